"""`ptxmotion run` on a GPU: programs of nvcc, CuPy, Numba, Triton and torch.compile have the same results with and
without it, and kernels change.

The optimizer runs without its gate, so that kernels of CUDA C++ change for sure. Of other compilers it is tested that
their kernels reach the optimizer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gpu_programs import CUDA, CUPY, NUMBA, TORCH, TRITON, program
from injection_builds import Ran, program_on_path, run_injected
from nvcc_builds import LIBRARIES, NVCC
from ptxmotion.python_child import child_environment

pytestmark = pytest.mark.gpu

FLAGS = {"PTXMOTION_FLAGS": "-O2 --gate=off"}

ARCHITECTURES = {
    "sm_90 with PTX": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    "PTX only": ("-gencode", "arch=compute_80,code=compute_80"),
    "sm_90 without PTX": ("-gencode", "arch=compute_90,code=sm_90"),
}


def plain(folder: Path, command: list[str], variables: dict[str, str]) -> str:
    """The output of a program without `ptxmotion run`."""
    done = subprocess.run(
        command, cwd=folder, env={**child_environment(), **variables}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compared(folder: Path, command: list[str], **variables: str) -> Ran:
    """Run a program without and with `ptxmotion run`, each with empty caches; the outputs are the same."""
    settings: list[dict[str, str]] = []
    for name in ("plain", "ours"):
        caches = {"CUPY_CACHE_DIR": "cupy", "NUMBA_CACHE_DIR": "numba"}
        caches |= {} if name == "ours" else {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        paths = {variable: str(folder / name / each) for variable, each in caches.items()}
        settings.append({**paths, "PATH": program_on_path(folder, "ptxmotion-ptxas", "ptxas"), **variables})
    expected = plain(folder, command, settings[0])
    ran = run_injected(folder, command, {**FLAGS, **settings[1]})
    print(ran.summary, ran.errors, sep="\n")
    assert ran.status == 0, ran.output + ran.errors
    assert ran.output == expected
    return ran


@pytest.mark.parametrize("runtime", ["static", "shared"])
@pytest.mark.parametrize("which", ARCHITECTURES)
def test_an_executable_of_nvcc(which: str, runtime: str, tmp_path: Path) -> None:
    if not NVCC or not shutil.which("g++"):
        pytest.skip("no nvcc, or no host compiler")
    (tmp_path / "a.cu").write_text(CUDA)
    options = [*ARCHITECTURES[which], "-cudart", runtime, LIBRARIES, f"{LIBRARIES}64", "-o", "program"]
    subprocess.run([NVCC, "a.cu", *options], cwd=tmp_path, check=True)
    folders = [LIBRARIES.removeprefix("-L"), f"{LIBRARIES.removeprefix('-L')}64", os.environ.get("LD_LIBRARY_PATH", "")]
    libraries = ":".join(filter(None, folders))
    ran = compared(tmp_path, ["./program"], LD_LIBRARY_PATH=libraries)
    assert ran.output.startswith("no error ")
    assert ran.changed == (0 if "without" in which else 1)
    # nvcc adds an empty image without PTX to some executables.
    assert "without" not in which or any("without PTX" in reason for _, reason in ran.left)


@pytest.mark.parametrize("is_ptx", [True, False])
def test_a_program_of_cupy_is_optimized_where_it_compiles_to_ptx(is_ptx: bool, tmp_path: Path) -> None:
    command = program(tmp_path, CUPY, "cupy")
    ran = compared(tmp_path, command, **({"CUPY_COMPILE_WITH_PTX": "1"} if is_ptx else {}))
    assert (ran.changed >= 1) == is_ptx
    assert (("NVRTC", "it compiled to machine code") in ran.left) != is_ptx


@pytest.mark.parametrize("mode", ["ptx", "default"])
def test_a_program_of_numba_is_optimized(mode: str, tmp_path: Path) -> None:
    ran = compared(tmp_path, [*program(tmp_path, NUMBA, "numba"), mode])
    is_lto = mode == "default" and ("nvJitLink", "LTO-IR") in ran.left
    assert is_lto or any(each["kernels"] and "Link" in each["way"] for each in ran.summary["loaded"])


def test_a_program_of_triton_is_optimized(tmp_path: Path) -> None:
    ran = compared(tmp_path, program(tmp_path, TRITON, "triton", "torch"))
    assert re.search(r"'way': 'ptxas', 'ptx': [1-9]", str(ran.summary))


def test_a_program_of_torch_compile_is_optimized(tmp_path: Path) -> None:
    ran = compared(tmp_path, program(tmp_path, TORCH, "torch"))
    assert re.search(r"'way': 'ptxas', 'ptx': [1-9]", str(ran.summary))
