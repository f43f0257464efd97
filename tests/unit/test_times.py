"""`ptxmotion times` with a CUPTI that records what a program states (`fake_cupti.c`, `timed_program.c`)."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from injection_builds import built_times, compile_c, kept_folder
from ptxmotion.cli import main
from ptxmotion.programs import kernel_times
from ptxmotion.programs.errors import RequirementMissing
from ptxmotion.python_child import child_environment, python_command

HERE = Path(__file__).parent

#: Runs the verb with the library of the tests; the first argument is its path.
_PROGRAM = """
from ptxmotion.injection import library
path = sys.argv[1]
library.find_library = lambda name: path
from ptxmotion.cli import main
sys.exit(main(["times", *sys.argv[2:]]))
"""

VERSION = "__ptxmotion_1_0123456789abcdef"


@functools.cache
def built() -> Path:
    """A folder with `libcupti.so.13` and `program`."""
    folder = kept_folder("ptxmotion-fake-cupti-")
    compile_c(folder / "libcupti.so.13", "-shared", "-fPIC", HERE / "fake_cupti.c")
    compile_c(folder / "program", HERE / "timed_program.c", "-ldl")
    return folder


def times(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the verb."""
    settings = {"KERNEL_TIMES_CUPTI": str(built() / "libcupti.so.13"), **variables}
    inherited = {name: value for name, value in child_environment().items() if name != "CUDA_INJECTION64_PATH"}
    environment = {**inherited, **settings}
    command = python_command(f"import sys{_PROGRAM}", str(built_times()), *words)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def program(*launches: str) -> list[str]:
    return [str(built() / "program"), *launches]


def test_the_times_of_one_program(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    done = times("--json", str(path), *program("_Z4rowsPKfS0_Pfi=3000", f"_Z4rowsPKfS0_Pfi{VERSION}=1000", "fill=1000"))
    assert done.returncode == 0, done.stderr
    header, rows, fill = done.stdout.splitlines()
    assert header.split() == ["kernel", "launches", "ms", "µs", "per", "launch", "share"]
    assert re.split(" {2,}", rows) == ["rows(float const*, float const*, float*, int)", "2", "0.004", "2.000", "0.800"]
    assert fill.split() == ["fill", "1", "0.001", "1.000", "0.200"]
    kernels = json.loads(path.read_text())["kernels"]
    assert kernels[0] == {"kernel": "_Z4rowsPKfS0_Pfi", "launches": 2, "seconds": pytest.approx(4e-6)}


def test_two_programs_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    before = program("a=40000", "b=20000", "b=40000", "c=5000", "only_before=100")
    after = program(f"a{VERSION}=20000", "b=45000", "c=5000", "only_after=100")
    done = times("--before", shlex.join(before), "--rounds", "3", "--json", str(path), *after)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert sorted(found["not_compared"]) == ["only_after", "only_before"]
    rows = {row["kernel"]: row for row in found["comparisons"]}
    assert [row["kernel"] for row in found["comparisons"]] == ["b", "a", "c"]
    assert {name: row["verdict"] for name, row in rows.items()} == {"a": "FASTER", "b": "SLOWER", "c": "SAME"}
    assert rows["a"]["speedup"] == pytest.approx(2)
    assert rows["b"]["launches"] == [2, 1]
    assert "only_before is not launched in each execution" in done.stderr
    assert "all kernels of an execution: 0.105 ms before, 0.070 ms after" in done.stdout
    assert "2 → 1" in done.stdout


def test_a_program_that_differs_from_itself_has_no_verdict() -> None:
    """The time of the kernel is twice as long in every other execution."""
    numbers = iter(range(100))

    def unstable() -> dict[str, kernel_times.KernelTime]:
        return {"k": kernel_times.KernelTime(1, 1e-3 * (1 + next(numbers) % 2))}

    def fast() -> dict[str, kernel_times.KernelTime]:
        return {"k": kernel_times.KernelTime(1, 1e-5)}

    ((row,), others) = kernel_times.compared(unstable, fast, 5, lambda done: None)
    assert row.estimate.verdict == "FASTER"
    assert row.verdict == "INCONCLUSIVE"
    assert others == []


def test_processes_without_launches_do_no_harm() -> None:
    done = times("sh", "-c", f"{shlex.join(program('fork', 'a=1000'))} & {shlex.join(program('a=3000'))}; wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["a", "2", "0.004", "2.000", "1.000"]


@pytest.mark.parametrize(
    ("words", "variables", "code", "message"),
    [
        (["a=1"], {"STATUS": "7"}, 3, "the program ended with exit status 7; its last output:\nrecorded 1"),
        (["a=1", "kill"], {}, 3, "no launch of a kernel was recorded"),
        ([], {}, 3, "no launch of a kernel was recorded"),
        (["a=0"], {}, 3, "no launch of a kernel was recorded"),
        (["a=1"], {"FAKE_CUPTI_STATUS": "35"}, 3, "warning: CUPTI error 35"),
        (["a=1"], {"FAKE_CUPTI_DROPPED": "2"}, 0, "warning: 2 launches have no time"),
        (["a=1"], {"KERNEL_TIMES_CUPTI": "/no/such/library"}, 3, "warning: /no/such/library: cannot open"),
        (["a=1"], {"CUDA_INJECTION64_PATH": "/other.so"}, 2, "CUDA_INJECTION64_PATH is set to /other.so"),
    ],
)
def test_what_goes_wrong(words: list[str], variables: dict[str, str], code: int, message: str) -> None:
    done = times(*program(*words), **variables)
    assert done.returncode == code, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "3", "./a"], "--rounds is for a comparison"),
        (["--before", "'", "./a"], "--before: No closing quotation"),
        (["--before", "", "./a"], "--before is empty"),
    ],
)
def test_wrong_usage_of_times_has_a_message(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["times", *words]) == 2
    assert message in capfd.readouterr().err


def test_where_cupti_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNEL_TIMES_CUPTI", raising=False)
    monkeypatch.setattr(kernel_times, "wheel_folders", lambda: iter(()))
    monkeypatch.setattr(kernel_times, "system_folders", lambda: iter([str(tmp_path / "bin")]))
    with pytest.raises(RequirementMissing, match="nvidia-cuda-cupti"):
        kernel_times.find_cupti()
    folder = tmp_path / "extras" / "CUPTI" / "lib64"
    folder.mkdir(parents=True)
    for name in ("libcupti.so.9.2", "libcupti.so.13", "libcupti.so.12"):
        (folder / name).touch()
    assert kernel_times.find_cupti() == str(folder / "libcupti.so.13")
