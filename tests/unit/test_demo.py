"""The demo reports for each kernel what moved, what was refused, the gate's decision, and the results of ptxas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "demo" / "run.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT / "demo",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path), **environment},
    )


@pytest.mark.slow
def test_the_demo_reports_each_kernel() -> None:
    done = demo("particles.cu", "tree.cu", "histogram.cu")
    assert done.returncode == 0, done.stderr
    first, *kernels, sums = done.stdout.strip().split("\n\n")
    assert "-O2 with the gate" in first
    kept, given_back, untouched = kernels
    assert kept.startswith("cell_forces (particles.cu)\n  redundant  mul.lo.s64 in line 7; ")
    assert "[memory-store]\n" in kept
    assert "\n  gate       kept: cycles of one warp " in kept
    assert "\n  ptxas      registers 33 → 31, spill bytes 0, instructions 218 → " in kept
    # Rewrites are reported although they were reverted, and the figures are those of the code of nvcc.
    assert given_back.startswith("range_sum (tree.cu)\n  redundant  shl.b64 in line 34\n")
    assert "\n  gate       reverted: " in given_back
    assert "→" not in given_back
    assert untouched.splitlines()[1] == "  gate       not needed: there was no rewrite"
    assert sums.startswith("3 kernels: 1 better, 2 identical\n  registers: ")
    assert all(len(line) <= 110 for line in done.stdout.splitlines())


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    done = demo("tree.cu", PTXMOTION_NVCC=str(tmp_path / "none"))
    assert (done.returncode, "nvcc not found: " in done.stderr) == (4, True)
