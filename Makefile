# Each target sets up what it needs by itself, in .venv; `make` alone lists them.
# Needs: Python >= 3.11 with venv, make, and a C++ compiler (nvcc runs it). A GPU only for `make gpu`.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   := .venv
PY     := $(VENV)/bin/python
JOBS   ?= auto
N      ?= 1000
# The tests start many Python processes. Without bytecode files, each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
# Plugins are named: else pytest would rewrite the assertions of this package, which has a plugin. That takes time when
# the package is imported, and 5 to 10 % of the time of tests.
PYTEST := $(PY) -m pytest --disable-plugin-autoload -p xdist -p benchmark -p hypothesispytest

# An editable install names this folder: a .venv that came along with a moved or copied folder is made anew.
ifneq ($(shell cat $(VENV)/made-for 2>/dev/null),$(CURDIR))
STALE := stale
endif

.PHONY: help demo test check docs bench gpu fuzz bless clean stale

help:
	@echo 'make demo      optimize an example end to end and say what was gained'
	@echo 'make test      every test that needs no GPU'
	@echo 'make check     ruff, pyright, the documentation, and the tests that take under a minute'
	@echo 'make docs      the documentation as a site, in build/site'
	@echo 'make bench     how long ptxmotion itself takes: limits beside ptxas, and benchmarks to compare revisions'
	@echo 'make gpu       the tests that need a GPU; fails where there is none'
	@echo 'make fuzz N=1000   random programs through every pass, N for each property'
	@echo 'make bless     rewrite the expectations in tests/ that may be rewritten'
	@echo 'make clean     remove .venv, build outputs and caches'

demo: $(VENV)/test.stamp
	@$(PY) demo/run.py

# A worker gets tests of the same files, whose fixtures it then makes once, and takes some of another worker at the end.
test: $(VENV)/test.stamp
	@$(PYTEST) -q -n $(JOBS) --dist worksteal --benchmark-disable

check: $(VENV)/dev.stamp docs
	@$(PY) -m ruff check .
	@$(PY) -m pyright --pythonpath $(PY)
	@$(PYTEST) -q -n $(JOBS) --dist worksteal --benchmark-disable -m 'not slow and not gpu and not fuzz'

# The site has the folders of the repository, so a link in a page works in both. A broken link makes the build fail.
docs: $(VENV)/dev.stamp
	@rm -rf build/pages
	@mkdir -p build/pages/tests/golden
	@cp -R README.md CONTRIBUTING.md CHANGELOG.md docs build/pages/
	@cp tests/golden/README.md build/pages/tests/golden/
	@$(PY) -m mkdocs build --strict
	@echo 'the documentation: build/site/index.html'

bench: $(VENV)/test.stamp
	@$(PY) bench/run.py
	@$(PYTEST) -q bench/speed.py --benchmark-autosave --benchmark-storage=build/benchmarks \
	  --benchmark-columns=min,median,iqr,rounds --benchmark-json=build/speed.json
	@echo 'compare with earlier runs: $(VENV)/bin/pytest-benchmark --storage=build/benchmarks compare'

gpu: $(VENV)/test.stamp
	@$(PYTEST) -q tests/gpu --require-gpu

fuzz: $(VENV)/test.stamp
	@$(PYTEST) -q -n $(JOBS) tests/property --fuzz-n=$(N)

bless: $(VENV)/test.stamp
	@$(PYTEST) -q --bless --benchmark-disable

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -not -path './typings/*' -prune -exec rm -rf {} +

stale:

$(VENV)/made-for: $(STALE)
	@test -n '$(PYTHON)' || { echo 'ptxmotion needs Python 3.11 or newer: install one, or make PYTHON=/path/to/python' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: sudo apt install python3-venv' >&2; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || \
	  echo 'note: no C++ compiler found, which nvcc needs; on Debian and Ubuntu: sudo apt install g++' >&2
	@test -e typings/ptxmotion || { mkdir -p typings; ln -s .. typings/ptxmotion; }  # no archive has this link
	$(PYTHON) -m venv --clear $(VENV)
	@printf '%s\n' '$(CURDIR)' > $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/made-for
	$(PY) -m pip install -q --disable-pip-version-check -e '.[test,gpu,plots,history]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/made-for
	$(PY) -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/test.stamp
