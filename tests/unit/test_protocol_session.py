"""A run of benchmarks: verdicts, the result file after each benchmark, interruption and resumption."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_runs import FAKE, PLAN, FakeCode, arm, assembler, empty_result, machine, session, task
from ptxmotion.harness import results
from ptxmotion.harness.machine import Machine, MachineMissing
from ptxmotion.harness.results import BenchmarkResult, ResultError
from ptxmotion.harness.workload import Arm
from ptxmotion.toolchain.tools import PtxasError


def verdicts(found: BenchmarkResult) -> dict[str, str]:
    return {each.candidate: each.verdict for each in found.comparisons}


def test_every_kind_of_arm_gets_its_verdict(tmp_path: Path) -> None:
    path, messages = tmp_path / "r.json", list[str]()
    arms = [
        arm("O3", "honest 1e-4"),
        arm("same text", "honest 1e-4"),
        arm("faster", "honest 0.9e-4"),
        arm("slower", "honest 1.1e-4"),
        arm("hardly", "honest 1.001e-4"),
        arm("stale", "stale 0.1e-4"),
        arm("endless", "never_ends 0.1e-4"),
    ]
    done = session(path=path, check=3.0, messages=messages).run([task("suite/a", *arms)])
    found = done.benchmarks[0]
    assert found.error == ""
    assert verdicts(found) == {
        "O3 (again)": "SAME",
        "same text": "IDENTICAL",
        "faster": "FASTER",
        "slower": "SLOWER",
        "hardly": "SAME",
        "stale": "MISMATCH",
        "endless": "MISMATCH",
    }
    assert done.gates and done.complete
    assert {each.id: each.correctness.status for each in found.arms}["endless"] == "hang"
    # Arms with wrong results or identical code are never timed.
    assert [each.id for each in found.arms if each.samples] == ["O3", "O3 (again)", "faster", "slower", "hardly"]
    assert found.timing is not None and found.timing.arms == ["O3", "O3 (again)", "faster", "slower", "hardly"]
    assert any("round 12 of 12" in line for line in messages)
    assert results.to_json(results.read(path)) == results.to_json(done)
    jsonschema.validate(json.loads(path.read_text()), results.schema())


def test_equal_code_among_candidates_is_checked_and_timed_once(tmp_path: Path) -> None:
    arms = [arm("O3", "honest 1e-4"), arm("x", "honest 0.9e-4"), arm("y", "honest 0.9e-4"), arm("z", "nan 1e-4")]
    path = tmp_path / "r.json"
    done = session(path=path).run([task("suite/a", *arms, arm("like z", "nan 1e-4"))])
    found = done.benchmarks[0]
    assert verdicts(found) == {
        "O3 (again)": "SAME",
        "x": "FASTER",
        "y": "FASTER",
        "z": "MISMATCH",
        "like z": "MISMATCH",
    }
    assert found.arm("y").same_code_as == "x" and not found.arm("y").samples
    assert found.arm("y").stats == found.arm("x").stats
    assert found.timing is not None and found.timing.arms == ["O3", "O3 (again)", "x"]
    by_id = {each.candidate: each for each in found.comparisons}
    assert (by_id["x"].speedup, by_id["x"].ci) == (by_id["y"].speedup, by_id["y"].ci)
    assert by_id["y"].reason.endswith("the same machine code as x, which was timed")
    assert done.summary.geomean_by_candidate["x"] == done.summary.geomean_by_candidate["y"]
    jsonschema.validate(json.loads(path.read_text()), results.schema())


def refusing_assembler(modules: Mapping[str, str]) -> FakeCode:
    if "faulty" in modules:
        raise PtxasError(255, "ptxas fatal: no")
    return assembler(modules)


def test_an_arm_that_cannot_be_made_costs_only_itself() -> None:
    unmade = Arm("unmade", {}, error="the optimizer failed")
    faulty = Arm("faulty", {"faulty": ""})
    running = session()
    running.assembler = refusing_assembler
    tasks = [
        task("suite/a", arm("O3", "honest 1e-4"), unmade, faulty, arm("x", "honest 2e-4")),
        task("suite/b", faulty, arm("x", "honest 2e-4")),
    ]
    done = running.run(tasks)
    first, second = done.benchmarks
    assert verdicts(first) == {"O3 (again)": "SAME", "unmade": "INVALID", "faulty": "INVALID", "x": "SLOWER"}
    assert first.candidates[0].reason == "could not be made: the optimizer failed"
    assert "no" in first.candidates[1].reason and first.arm("faulty").correctness.status == "not_made"
    assert "ptxas failed" in second.error and not second.comparisons
    jsonschema.validate(results.to_json(done), results.schema())


def test_where_the_baseline_is_not_the_same_as_itself_there_is_no_verdict() -> None:
    biased = Machine("fake", f"{FAKE}:fake_backend", "fake_runs:biased_stopwatch")
    arms = [arm("O3", "honest 1e-4"), arm("x", "honest 0.8e-4"), arm("y", "honest 0.8e-4"), arm("z", "nan 1e-4")]
    done = session(biased).run([task("suite/a", *arms), task("suite/b", arm("O3"), arm("same"))])
    found = done.benchmarks[0]
    assert verdicts(found) == {"O3 (again)": "SLOWER", "x": "INVALID", "y": "INVALID", "z": "MISMATCH"}
    assert found.candidates[0].reason.startswith("the baseline compared with itself is SLOWER (0.97")
    assert found.candidates[0].speedup is not None and done.summary.geomean_by_candidate == {"same": 1.0}
    assert not found.gates and not done.gates


def test_two_machines_time_at_once_and_nothing_else_runs_on_a_machine_that_times(tmp_path: Path) -> None:
    """Six benchmarks, two machines, two jobs on each: nothing is launched on a machine while its clock runs."""
    environment = {"NOTES": str(tmp_path)}
    # Only a machine of this name is given a GPU of its own.
    gpu = Machine("cuda", "fake_runs:noting_backend", "fake_runs:logging_stopwatch", environment=environment)
    names = [f"suite/{letter}" for letter in "abcdef"]
    tasks = [task(name, arm("O3", "honest 1e-4"), arm("x", "honest 2e-4")) for name in names]
    done = session(gpu, jobs=4, machines=2).run(tasks)
    assert [each.fullname for each in done.benchmarks] == names
    assert all(verdicts(each) == {"O3 (again)": "SAME", "x": "SLOWER"} for each in done.benchmarks)
    timed: list[str] = []
    for place in ("0", "1"):
        lines = (tmp_path / place).read_text().splitlines()
        assert "launch" in lines
        begun = [number for number, line in enumerate(lines) if line.startswith("begin")]
        for number in begun:
            assert lines[number + 1] == lines[number].replace("begin", "end"), lines
            timed.append(lines[number].removeprefix("begin "))
    assert sorted(timed) == names
    assert {each.timing.machine for each in done.benchmarks if each.timing} == {0, 1}


def test_without_a_stopwatch_arms_are_checked_and_not_timed() -> None:
    done = session(machine("")).run([task("suite/a", arm("O3"), arm("x", "honest 1"), arm("y", "nan"))])
    assert verdicts(done.benchmarks[0]) == {"x": "EQUAL", "y": "MISMATCH"}
    assert [each.figures != [] for each in done.benchmarks[0].candidates] == [True, False]
    assert done.control.aa_verdict == "NONE" and not done.gates


def test_clocks_that_do_not_hold_still_gate_nothing() -> None:
    done = session(machine("throttled_stopwatch")).run([task("suite/a", arm("O3"), arm("x", "honest 2e-4"))])
    assert verdicts(done.benchmarks[0]) == {"O3 (again)": "INVALID", "x": "INVALID"}
    assert not done.gates


@pytest.mark.parametrize("stopwatch", ["vanishing_stopwatch", "hanging_stopwatch"])
def test_timing_that_fails_is_invalid_and_the_next_benchmark_runs(stopwatch: str) -> None:
    tasks = [task(name, arm("O3"), arm("x", "honest 2e-4")) for name in ("suite/a", "suite/b")]
    done = session(machine(stopwatch), check=2.0).run(tasks)
    for found in done.benchmarks:
        assert verdicts(found) == {"O3 (again)": "INVALID", "x": "INVALID"}
        assert "timing failed" in found.comparisons[0].reason


def test_a_wrong_or_failing_baseline_costs_only_its_own_benchmark() -> None:
    tasks = [task("suite/a", arm("O3", "unheard_of"), arm("x")), task("suite/b", arm("O3"), arm("x", "honest 1e-5"))]
    first, second = session().run(tasks).benchmarks
    assert "not a simulated kernel" in first.error
    assert verdicts(second)["x"] == "FASTER"
    hung = session(check=1.0).run([task("suite/a", arm("O3", "never_ends"), arm("x"))]).benchmarks[0]
    assert hung.error.endswith("no answer within 1 s: killed")


def test_a_machine_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    gone = Machine("fake", "ptxmotion.harness.cuda:open_backend", "", environment={"CUDA_VISIBLE_DEVICES": ""})
    with pytest.raises(MachineMissing):
        session(gone, path=tmp_path / "r.json").run([task("suite/a", arm("O3"))])


def test_a_gpu_that_vanishes_ends_the_run_and_leaves_what_was_found(tmp_path: Path) -> None:
    path, gone = tmp_path / "r.json", {"GONE": str(tmp_path / "gone")}
    flaky = Machine("fake", "fake_runs:flaky_backend", "fake_runs:dying_stopwatch", environment=gone)
    tasks = [task(f"suite/{letter}", arm("O3"), arm("x", "honest 2e-4")) for letter in "abc"]
    with pytest.raises(MachineMissing, match="NO_DEVICE"):
        session(flaky, path=path).run(tasks)
    found = results.read(path)
    assert [each.fullname for each in found.benchmarks] == ["suite/a"]
    assert verdicts(found.benchmarks[0])["x"] == "SLOWER" and not found.complete


def test_benchmarks_run_at_the_same_time_and_stay_in_order() -> None:
    names = [f"suite/{letter}" for letter in "abcd"]
    done = session(machine(""), jobs=2).run([task(name, arm("O3"), arm("x", "honest 1")) for name in names])
    assert [each.fullname for each in done.benchmarks] == names


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fake_runs import arm, session, task

tasks = [task(f"suite/{c}", arm("O3"), arm("x", "honest 2e-4")) for c in "ab"]
session(path=Path(sys.argv[1])).run([*tasks, task("suite/c", arm("O3", "never_ends"), arm("x"))])
"""


def _processes() -> dict[int, int]:
    """For each process that has not ended, its parent."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.parent.name)] = int(parent)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_killed_in_the_middle_the_file_is_valid_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parents[1] / "typings")}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), str(here)], env=environment)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (path.exists() and '"suite/b"' in path.read_text()):
            time.sleep(0.05)
    finally:
        (child,) = (each for each, parent in _processes().items() if parent == process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    former = results.read(path)
    assert [each.fullname for each in former.benchmarks] == ["suite/a", "suite/b"]
    assert not former.complete
    # Its child process, whose kernel never ends, is ended, too.
    end = time.monotonic() + 60
    while child in _processes() and time.monotonic() < end:
        time.sleep(0.1)
    assert child not in _processes()
    messages: list[str] = []
    again = session(path=path, messages=messages)
    again.resume(former)
    tasks = [task(f"suite/{c}", arm("O3"), arm("x", "honest 2e-4")) for c in "abc"]
    tasks[1] = task("suite/b", arm("O3"), arm("x", "honest 3e-4"))
    done = again.run(tasks)
    assert done.complete and [each.fullname for each in done.benchmarks] == ["suite/a", "suite/b", "suite/c"]
    # The code of an arm of b has changed, so b is run again.
    assert [line for line in messages if "kept from" in line] == ["suite/a: kept from the result file"]
    assert done.benchmarks[0] == former.benchmarks[0]


def test_what_was_another_kind_of_run_is_not_resumed() -> None:
    former = empty_result(rounds=99)
    with pytest.raises(ResultError, match="cannot resume: the options of the file"):
        session().resume(former)
    with pytest.raises(ResultError, match="the backend of the file: 'cuda'"):
        session().resume(replace(empty_result(), backend="cuda"))


def test_a_full_disk_ends_the_run_and_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "r.json"
    with pytest.raises(OSError, match="No such file"):
        session(machine(""), path=path, plan=PLAN).run([task("suite/a", arm("O3"))])
