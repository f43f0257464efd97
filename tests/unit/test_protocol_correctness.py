"""The check of results before timing: every planted cheat is found, and correct arms pass."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))

from fake_backend import FakeBackend
from fake_runs import arm, machine, work
from ptxmotion.harness.correctness import PATTERNS, Checker
from ptxmotion.harness.protocol import Plan
from ptxmotion.harness.results import Correctness
from ptxmotion.harness.worker import Worker, WorkerDied, WorkerFailed, WorkerHung
from ptxmotion.harness.workload import KernelWork

PLAN = Plan()


def check(behaviour: str, baseline: str = "honest") -> Correctness:
    checker = Checker(FakeBackend(), work(), arm("O3", baseline), (1, 2, 3))
    assert checker.check_baseline().status == "ok"
    return checker.check(arm("candidate", behaviour))


def test_an_honest_arm_passes() -> None:
    found = check("honest")
    assert (found.status, found.details, found.seeds, found.patterns) == ("ok", [], [1, 2, 3], sorted(PATTERNS))


@pytest.mark.parametrize(
    ("cheat", "message"),
    [
        ("stale", "seed 2: target: 1000 of 1000 elements differ"),
        ("unwritten", "seed 1: target: 1000 of 1000 elements differ"),
        ("first_element_unwritten", "target: 1 of 1000 elements differ; \\[0\\]"),
        ("other_stream", "target: 1000 of 1000 elements differ"),
        ("changes_input", "buffer 0 \\(4000 bytes\\) holds other bytes"),
        ("nan", "is nan instead of"),
        ("overruns", "writes outside of buffer 1 \\(4000 bytes\\)"),
        ("wrong_by_a_thousandth", "target: 1000 of 1000 elements differ"),
        ("racy", "elements differ"),
    ],
)
def test_cheats_are_caught(cheat: str, message: str) -> None:
    import re

    found = check(cheat)
    assert found.status == "mismatch"
    assert any(re.search(message, line) for line in found.details), found.details


def test_tolerance_only_where_the_baseline_differs_from_itself() -> None:
    assert check("racy", baseline="racy").status == "ok"
    assert check("honest", baseline="racy").status == "ok"
    assert check("honest", baseline="racy").nondeterministic == ["target", "buffer 1"]
    for cheat in ("nan", "wrong_by_a_thousandth", "unwritten", "stale", "changes_input", "overruns"):
        assert check(cheat, baseline="racy").status == "mismatch", cheat


class IntegerWork(KernelWork):
    """A work item that reads the float output as integers, which must be equal."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, NDArray[Any]]:
        return {"bits": super().run(backend, modules, seed)["target"].view(np.int32)}


def test_integers_that_change_from_run_to_run_are_not_comparable() -> None:
    of_floats = work()
    changed = IntegerWork(**vars(of_floats))
    checker = Checker(FakeBackend(), changed, arm("O3", "racy"), (1, 2, 3))
    checker.check_baseline()
    assert checker.check(arm("candidate", "racy")).status == "not_comparable"


class Referenced(KernelWork):
    """A work item with a reference result."""

    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]:
        return [] if np.array_equal(outputs["target"], 2 * self.data(seed)["source"] + 1) else ["target is wrong"]


def test_a_wrong_baseline_is_found_by_the_reference() -> None:
    plain = Referenced(**vars(work()))
    assert Checker(FakeBackend(), plain, arm("O3"), (1, 2)).check_baseline().status == "ok"
    found = Checker(FakeBackend(), plain, arm("O3", "wrong_by_a_thousandth"), (1, 2)).check_baseline()
    assert (found.status, found.details) == ("mismatch", ["seed 1: target is wrong"])


def _begun(worker: Worker, of: KernelWork, behaviour: str = "honest") -> Correctness:
    worker.get_ready(of, arm("O3", behaviour), PLAN, 60.0)
    return worker.begin(60.0)


def test_a_kernel_that_never_ends_is_killed_and_the_next_one_runs() -> None:
    with Worker(machine()) as worker:
        assert _begun(worker, work()).status == "ok"
        started = time.monotonic()
        with pytest.raises(WorkerHung, match="no answer within 1 s"):
            worker.check(arm("endless", "never_ends"), 1.0)
        assert time.monotonic() - started < 30
        assert not worker.is_open
        assert _begun(worker, work()).status == "ok"
        assert worker.check(arm("lcm"), 60.0).status == "ok"


def test_a_child_that_dies_or_raises_says_why() -> None:
    with Worker(machine()) as worker:
        with pytest.raises(WorkerFailed, match="ValueError: not a simulated kernel") as failed:
            _begun(worker, work(), "unheard_of")
        assert "Traceback" in failed.value.trace
        dying = Dying(**vars(work()))
        with pytest.raises(WorkerDied, match="signal 9; last words"):
            _begun(worker, dying)


class Dying(KernelWork):
    """A work item that ends its process, as a fault in a driver may."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, NDArray[Any]]:
        import os
        import signal

        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return {}
