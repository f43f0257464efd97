"""Kernel benchmarks in pytest-benchmark: each variant of a program becomes a benchmark.

With a GPU the values are times between CUDA events. Without one nothing is timed: the value is the estimate of the
gate's model, whose name contains `estimated`, and the counts are in `extra_info` with their units.

Only public interfaces of pytest-benchmark are used: the attributes of its fixture, the mark `benchmark(timer=…)`, and
`pedantic`, which reads that timer before and after a call. Here the timer is a `Replay`, so that each round has a
duration that was measured before.

Requires: pytest-benchmark; tasks, which the caller makes (`cli/pytest_plugin.py`).
Guarantees: a variant with wrong outputs, or a program that cannot run, fails the test with the message of the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .exporters import ESTIMATED_CYCLE, extra_info, kept_samples
from .figures import estimated_cycles
from .machine import Machine
from .protocol import Plan
from .results import ArmResult, BenchmarkResult, ResultFile
from .session import Code, Session, Task

__all__ = ["KernelMismatch", "Replay", "measure", "record"]


class KernelMismatch(AssertionError):
    """A variant has other outputs than the baseline, or could not run."""


class Replay:
    """A timer for pytest-benchmark: the calls of each pair are as far apart as the next of the given durations.

    >>> timer = Replay()
    >>> timer.load([2.0, 3.0])
    >>> [timer(), timer(), timer(), timer()]
    [0.0, 2.0, 0.0, 3.0]
    """

    def __init__(self) -> None:
        self._times: Iterator[float] = iter(())

    def load(self, seconds: Sequence[float]) -> None:
        """Set the durations."""
        self._times = iter([time for each in seconds for time in (0.0, each)])

    def __call__(self) -> float:
        return next(self._times)


def measure(
    task: Task,
    machine: Machine,
    plan: Plan,
    assembler: Callable[[Mapping[str, str]], Code],
    machine_info: dict[str, Any],
) -> BenchmarkResult:
    """Run one task. Raises `KernelMismatch`, `MachineMissing`."""
    result = ResultFile("", "", machine.name, machine_info, {}, plan.options())
    benchmark = Session(machine, plan, result, assembler=assembler).run([task]).benchmarks[0]
    if benchmark.error:
        raise KernelMismatch(f"{benchmark.fullname}: {benchmark.error}")
    wrong = [
        f"{arm.id}: {'; '.join(arm.correctness.details)}" for arm in benchmark.arms if arm.correctness.status != "ok"
    ]
    if wrong:
        raise KernelMismatch(f"{benchmark.fullname}: " + "\n".join(wrong))
    return benchmark


def record(fixtures: Callable[[], Any], timer: Replay, found: BenchmarkResult) -> None:
    """Add a benchmark for each arm to pytest-benchmark.

    ``fixtures`` returns, at each call, a `benchmark` fixture that was made with ``timer`` and not used yet.
    """
    verdicts = {each.candidate: each for each in found.comparisons}
    for arm in found.arms:
        if arm.role == "control":
            continue
        seconds, suffix = _values(arm, found)
        each, name = fixtures(), f"[{arm.id}{suffix}]"
        each.name, each.fullname = f"{each.name}{name}", f"{each.fullname}{name}"
        each.group = each.group or found.fullname
        each.param, each.params = arm.id, {**found.params, "variant": arm.id}
        each.extra_info = {"program": found.fullname, **extra_info(arm, verdicts.get(arm.id))}
        timer.load(seconds)
        each.pedantic(_nothing, rounds=len(seconds))


def _nothing() -> None:
    """The function whose duration the timer replays."""


def _values(arm: ArmResult, found: BenchmarkResult) -> tuple[list[float], str]:
    """The values of an arm in seconds, and a suffix of its name."""
    if seconds := kept_samples(found, arm):
        return seconds, ""
    if (cycles := estimated_cycles(arm)) is not None:
        return [cycles * ESTIMATED_CYCLE], ", estimated"
    # The same machine code as the baseline's is not timed again.
    base = next(each for each in found.arms if each.role == "baseline")
    if seconds := kept_samples(found, base):
        return seconds, ""
    if base.samples:
        raise KernelMismatch(f"{found.fullname}: every round was dropped because the SM clock changed")
    raise KernelMismatch(f"{found.fullname}: {arm.id} was neither timed nor has an estimate")
