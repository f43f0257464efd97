"""Child processes import this package and nothing from the current folder, however the package was installed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ptxmotion.python_child import FOLDER, child_environment, import_paths, module_command, python_command

ROOT = Path(__file__).parents[2]
#: Modules of this package, of its libraries, and of Python. Child processes really import the first three.
NAMES = ("ptxmotion", "numpy", "json", "pickle", "multiprocessing", "importlib", "runpy", "rich", "tomllib", "cuda")

_KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) { .reg .u64 %a; ld.param.u64 %a, [p]; st.global.u32 [%a], 7; ret; }
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with modules of these names. If one is imported, it writes a file ``marker``."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    code = f"open({str(tmp_path / 'marker')!r}, 'a').write(__file__ + chr(10))\n"
    for name in NAMES:
        (folder / f"{name}.py").write_text(code)
    for name in ("ptxmotion", "nvidia", "numpy"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(code)
        (folder / name / "__main__.py").write_text(code)
    tools = folder / "nvidia" / "cu13" / "bin"
    tools.mkdir(parents=True)
    for tool in ("ptxas", "nvcc"):
        (tools / tool).write_text(f"#!/bin/sh\necho {tool} >> {tmp_path / 'marker'}\n")
        (tools / tool).chmod(0o755)
    (folder / "k.ptx").write_text(_KERNEL)
    return folder


def marks(folder: Path) -> str:
    marker = folder.parent / "marker"
    return marker.read_text() if marker.exists() else ""


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env={**own, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def script(folder: Path) -> str:
    """The installed command ``ptxmotion``: a script in a separate folder."""
    folder.mkdir()
    made = folder / "ptxmotion"
    made.write_text(f"#!{sys.executable}\nimport sys\nfrom ptxmotion.cli import main\nsys.exit(main())\n")
    return str(made)


def test_the_folder_is_hostile(hostile: Path) -> None:
    """Without isolation, Python imports from this folder."""
    run([sys.executable, "-c", "import ptxmotion"], hostile)
    assert "ptxmotion" in marks(hostile)


def test_a_child_imports_the_package_of_its_parent(hostile: Path) -> None:
    code = "import ptxmotion.harness.worker as w, numpy, json; print(w.__file__)"
    done = run(python_command(code), hostile, **child_environment())
    assert done.stdout.strip() == os.path.join(FOLDER, "harness", "worker.py") and not marks(hostile)
    done = run(module_command("opt", "--no-config", "k.ptx"), hostile, **child_environment())
    assert done.returncode == 0 and ".entry k" in done.stdout and not marks(hostile), done.stderr


RUN = ["bench", "run", "pathfinder", "--backend=emulator", "--variant=cse", "--seeds=1"]


@pytest.mark.parametrize("verb", [["bench", "list"], ["doctor"], ["opt", "k.ptx"], RUN], ids=" ".join)
def test_the_command_in_a_hostile_folder(hostile: Path, tmp_path: Path, verb: list[str]) -> None:
    """`doctor` and `bench run` start children: the probe for GPUs, and workers."""
    command = [sys.executable, script(tmp_path / "bin"), *verb]
    done = run(command, hostile, PYTHONPATH=str(ROOT / "typings"), PTXMOTION_CACHE=str(tmp_path / "cache"))
    assert done.returncode in (0, 1), done.stderr
    assert not marks(hostile), marks(hostile)


def test_python_m_does_not_import_from_the_current_folder(hostile: Path) -> None:
    """The exception is a folder that contains the package: Python finds it there before any of its code can run."""
    for name in ("ptxmotion", "importlib", "runpy"):
        (hostile / f"{name}.py").unlink()
    shutil.rmtree(hostile / "ptxmotion")
    command = [sys.executable, "-m", "ptxmotion", "doctor"]
    done = run(command, hostile, PYTHONPATH=str(ROOT / "typings"))
    assert "python" in done.stdout and not marks(hostile), marks(hostile) + done.stderr


@pytest.mark.parametrize("installed", ["folder", "link", "editable"])
def test_every_kind_of_installation(hostile: Path, tmp_path: Path, installed: str) -> None:
    """A wheel is a folder ``ptxmotion`` in a folder of `sys.path`.

    The folder of an editable installation has any name.
    """
    site = tmp_path / "site"
    site.mkdir()
    if installed == "folder":
        kept = shutil.ignore_patterns("tests", "typings", ".*", "__pycache__", "docs", "build")
        shutil.copytree(ROOT, site / "ptxmotion", ignore=kept)
    else:
        (site / ("ptxmotion" if installed == "link" else "renamed")).symlink_to(ROOT)
    find = (
        "import sys, importlib.util as u\n"
        f"s = u.spec_from_file_location('ptxmotion', {str(site / 'renamed' / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(site / 'renamed')!r}])\n"
        "m = sys.modules['ptxmotion'] = u.module_from_spec(s); s.loader.exec_module(m)\n"
    )
    code = (find if installed == "editable" else "") + (
        "from ptxmotion.harness.machine import gpu_count\n"
        "from ptxmotion.python_child import *\n"
        "import subprocess\n"
        "count, why = gpu_count()\n"
        "assert 'failed' not in why, why\n"
        "done = subprocess.run(python_command('print(__import__(\"ptxmotion.harness.machine\").__file__)'), "
        "env=child_environment(), capture_output=True, text=True)\n"
        "print(done.stdout, done.stderr)\n"
    )
    file = tmp_path / "start.py"
    file.write_text(code)
    done = run([sys.executable, str(file)], hostile, PYTHONPATH=str(site))
    expected = site / ("renamed" if installed == "editable" else "ptxmotion") / "__init__.py"
    assert done.stdout.strip() == str(expected), done.stderr
    assert not marks(hostile), marks(hostile)


def test_an_empty_entry_of_the_path_is_not_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path)])
    assert import_paths() == [str(tmp_path)]


def test_python_is_started_in_one_place() -> None:
    """Only `python_child` makes command lines that start Python. Tests are excepted, since they act as users."""
    found: list[str] = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("tests", "typings", "build") or parts[0].startswith(".") or path.name == "python_child.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.List) and any(ast.unparse(each) == "sys.executable" for each in node.elts):
                flags = [each.value for each in node.elts if isinstance(each, ast.Constant)]
                if "-c" in flags or "-m" in flags or "-P" not in flags:
                    found.append(f"{'/'.join(parts)}:{node.lineno}")
            if isinstance(node, ast.Name) and node.id in ("ProcessPoolExecutor", "Process"):
                found.append(f"{'/'.join(parts)}:{node.lineno}")
    assert not found


def test_workers_end_with_a_process_that_is_killed() -> None:
    """They would wait for their next task forever."""
    code = (
        "import os, time\n"
        "from ptxmotion.python_child import process_pool\n"
        "pool = process_pool(2)\n"
        "print(*{pool.submit(os.getpid).result(), *pool._processes}, flush=True)\n"
        "time.sleep(60)\n"
    )
    started = subprocess.Popen(python_command(code), env=child_environment(), stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    workers = [int(each) for each in started.stdout.readline().split()]
    started.kill()
    started.wait()
    assert len(workers) == 2
    end = time.monotonic() + 20
    while (left := [each for each in workers if is_running(each)]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


def is_running(process: int) -> bool:
    """Whether a process runs, and is not only kept until its parent has asked for its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
