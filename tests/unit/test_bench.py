"""The benchmarks of our own speed: they measure work, and their results can be compared."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from generated import module
from ptxmotion.ptx import parse
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
@pytest.mark.parametrize("seed", range(3))
def test_each_level_changes_each_generated_kernel(level: str, seed: int) -> None:
    """A benchmark of the passes needs kernels that they change. Contraction, for example, can forbid every change."""
    parsed = parse(module(3, 100, seed))
    before = {kernel.name: kernel.clone() for kernel in parsed.kernels}
    remarks = Remarks(parsed)
    assert run_passes(parsed, level, remarks)
    for kernel in parsed.kernels:
        assert [i.text for i in kernel.instructions()] != [i.text for i in before[kernel.name].instructions()]
    assert not any(remark.pass_name == "contraction" for remark in remarks.items)


def test_results_can_be_compared(tmp_path: Path) -> None:
    # pytest-benchmark measures nothing in a process that it takes for a worker of pytest-xdist.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment["PYTHONPATH"] = str(ROOT / "typings")
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # as in the Makefile
    storage = f"--benchmark-storage={tmp_path / 'kept'}"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "benchmark",
        "-p",
        "no:cacheprovider",
        str(ROOT / "bench" / "speed.py"),
    ]
    command += ["-k", "instructions and (parse or verify)", storage, "--benchmark-autosave", "--benchmark-max-time=0.1"]
    for number in range(2):
        result = tmp_path / f"{number}.json"
        done = subprocess.run(
            [*command, f"--benchmark-json={result}"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(result.read_text())["benchmarks"]
        assert {each["group"] for each in found} == {"parse", "verify"} and len(found) == 4
        assert all(0 < each["stats"]["median"] < 1 for each in found)
    compare = [sys.executable, "-m", "pytest_benchmark", f"--storage={tmp_path / 'kept'}", "compare"]
    done = subprocess.run(compare, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("test_parse[1,000 instructions] (000") == 2, done.stdout
