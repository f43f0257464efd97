"""`ptxmotion times` on a GPU: a program of nvcc alone, beside itself, and under `ptxmotion run`.

The optimizer runs without its gate, so that the kernel changes for sure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_programs import CUDA
from injection_builds import built_injection, built_times
from nvcc_builds import LIBRARIES, NVCC
from ptxmotion.programs.errors import RequirementMissing
from ptxmotion.programs.kernel_times import find_cupti
from ptxmotion.python_child import child_environment, python_command

pytestmark = pytest.mark.gpu

#: Runs the command with the libraries of the tests, whose paths are the first two arguments.
_PROGRAM = """
import sys
from ptxmotion.injection import library
paths = {"_inject": sys.argv[1], "_times": sys.argv[2]}
library.find_library = lambda name="_inject": paths[name]
from ptxmotion.cli import main
sys.exit(main(sys.argv[3:]))
"""

KERNEL = "_Z6choosePiPKiii"


def command(*words: str) -> list[str]:
    """The command line of `ptxmotion` with the libraries of the tests."""
    return python_command(_PROGRAM, str(built_injection()), str(built_times()), *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an executable `program`, and `optimized`, which runs it under `ptxmotion run`."""
    if not NVCC or not shutil.which("g++"):
        pytest.skip("no nvcc, or no host compiler")
    try:
        find_cupti()
    except RequirementMissing:
        pytest.skip("no libcupti")
    (tmp_path / "a.cu").write_text(CUDA)
    target = ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
    options = [*target, LIBRARIES, f"{LIBRARIES}64", "-o", "program"]
    subprocess.run([NVCC, "a.cu", *options], cwd=tmp_path, check=True)
    words = command("run", "--json", str(tmp_path / "run.json"), "./program")
    script = f"#!{sys.executable}\nimport os\nos.execv({words[0]!r}, {words!r})\n"
    (tmp_path / "optimized").write_text(script)
    (tmp_path / "optimized").chmod(0o755)
    return tmp_path


def times(folder: Path, *words: str) -> dict[str, Any]:
    """What the verb writes as JSON."""
    settings = {"PTXMOTION_FLAGS": "-O2 --gate=off", "PTXMOTION_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command("times", "--json", "times.json", *words),
        cwd=folder,
        env={**child_environment(), **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "warning" not in done.stderr
    return json.loads((folder / "times.json").read_text())


def test_a_program_has_the_time_of_its_launch(folder: Path) -> None:
    (found,) = times(folder, "./program")["kernels"]
    assert found["kernel"] == KERNEL
    assert found["launches"] == 1
    assert 5e-7 < found["seconds"] < 1e-3


def test_a_program_beside_itself(folder: Path) -> None:
    found = times(folder, "--before", "./program", "--rounds", "8", "./program")
    ((row,), others) = found["comparisons"], found["not_compared"]
    assert (row["kernel"], row["launches"], others) == (KERNEL, [1, 1], [])
    assert 0.8 < row["speedup"] < 1.25


def test_a_program_that_is_optimized_when_it_is_loaded(folder: Path) -> None:
    (row,) = times(folder, "--before", "./program", "--rounds", "3", "./optimized")["comparisons"]
    assert row["kernel"] == KERNEL
    assert json.loads((folder / "run.json").read_text())["changed"][0]["kernel"].startswith("choose(")
