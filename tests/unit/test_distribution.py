"""What the source distribution and the wheel contain."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: What only a checkout has. The link cannot be in an archive; `make` creates it.
NOT_DISTRIBUTED = {".gitignore", "typings/ptxmotion"}

_LISTS = """
import json, pathlib, sys
from setuptools import setup

distribution = setup(script_name="setup.py", script_args=["-q", "egg_info", "--egg-base", sys.argv[1]])
packaged = distribution.get_command_obj("build_py")
packaged.build_lib = sys.argv[1]
packaged.ensure_finalized()
(listed,) = pathlib.Path(sys.argv[1]).glob("*.egg-info/SOURCES.txt")
print(json.dumps({"sdist": listed.read_text().splitlines(), "wheel": packaged.get_outputs(include_bytecode=False)}))
"""


def setuptools_is_old() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) < 77
    except importlib.metadata.PackageNotFoundError:
        return True


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The files of the source distribution, and of the wheel below its root."""
    if setuptools_is_old():
        pytest.skip("setuptools 77 or newer is not installed; the extra `test` has it")
    folder = tmp_path_factory.mktemp("egg")
    command = [sys.executable, "-c", _LISTS, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    wheel = {Path(name).relative_to(folder).as_posix() for name in found["wheel"]}
    return {"sdist": {Path(name).as_posix() for name in found["sdist"]}, "wheel": wheel}


def test_the_source_distribution_has_what_the_repository_has(lists: dict[str, set[str]]) -> None:
    for name in ("README.md", "Makefile", "docs/index.md", "demo/run.py", "demo/particles.cu", "bench/run.py"):
        assert (name in lists["sdist"]) == (ROOT / name).exists(), name
    for folder in ("docs", "tests", "demo", "bench"):
        there = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert {path.relative_to(ROOT).as_posix() for path in there} <= lists["sdist"]
    if (ROOT / ".git").exists():
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        present = {name for name in tracked.splitlines() if (ROOT / name).exists()}
        assert present - lists["sdist"] == NOT_DISTRIBUTED


def test_the_wheel_has_only_packages(lists: dict[str, set[str]]) -> None:
    assert {"ptxmotion/__init__.py", "ptxmotion/py.typed", "ptxmotion/cli/opt.py"} <= lists["wheel"]
    folders = {name.split("/")[1] for name in lists["wheel"]}
    assert not folders & {"tests", "docs", "demo", "bench", "build", "typings", "MANIFEST.in", "README.md"}
    assert all(name.startswith("ptxmotion/") for name in lists["wheel"])
