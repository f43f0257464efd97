"""Kernel benchmarks in pytest-benchmark: each variant of a program becomes a benchmark.

With a GPU the values are times between CUDA events. Without one they are counts of the emulator: an executed warp
instruction counts as a nanosecond, so that the tables, histograms and `--benchmark-compare` of pytest-benchmark work. A
difference between two such runs is a difference of the code.

Requires: pytest-benchmark; tasks, which the caller makes (`cli/pytest_plugin.py`).
Guarantees: a variant with wrong outputs, or a program that cannot run, fails the test with the message of the harness.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from .machine import Machine
from .protocol import Plan
from .results import ArmResult, BenchmarkResult, ResultFile
from .session import Code, Session, Task

__all__ = ["KernelMismatch", "measure", "record"]

_SECONDS_OF_AN_INSTRUCTION = 1e-9


class KernelMismatch(AssertionError):
    """A variant has other outputs than the baseline, or could not run."""


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


def record(fixture: Any, found: BenchmarkResult) -> None:
    """Add a benchmark for each arm to pytest-benchmark. ``fixture`` is its `benchmark`; it is then marked as used."""
    verdicts = {each.candidate: each for each in found.comparisons}
    fixture._mode = "kernel_benchmark(...)"
    for arm in found.arms:
        if arm.role == "control":
            continue
        each = copy.copy(fixture)
        each.name, each.fullname = f"{fixture.name}[{arm.id}]", f"{fixture.fullname}[{arm.id}]"
        each.group = fixture.group or found.fullname
        each.param, each.params = arm.id, {**found.params, "variant": arm.id}
        each.extra_info = {"program": found.fullname, "static": arm.static, "emulated": arm.emulated}
        if arm.id in verdicts:
            comparison = verdicts[arm.id]
            each.extra_info |= {"verdict": comparison.verdict, "speedup": comparison.speedup, "ci": comparison.ci}
        seconds, timer = _values(arm, found)
        stats = each._make_stats(iterations=1)
        stats.options = {**stats.options, "timer": timer}
        for value in seconds:
            stats.update(value)


def _values(arm: ArmResult, found: BenchmarkResult) -> tuple[list[float], str]:
    """The values of an arm in seconds, and the name of their timer."""
    if arm.samples:
        return _kept(arm, found), "CUDA events"
    if arm.emulated:
        return [arm.emulated["warp_instructions"] * _SECONDS_OF_AN_INSTRUCTION], "emulated warp instructions"
    # The same machine code as the baseline's is not timed again.
    base = next(each for each in found.arms if each.role == "baseline")
    if not base.samples:
        raise KernelMismatch(f"{found.fullname}: {arm.id} was neither timed nor counted")
    return _kept(base, found), "CUDA events, of the baseline: the machine code is the same"


def _kept(arm: ArmResult, found: BenchmarkResult) -> list[float]:
    dropped = set(found.timing.dropped_rounds) if found.timing is not None else set[int]()
    kept = [each for number, block in enumerate(arm.samples) if number not in dropped for each in block]
    if not kept:
        raise KernelMismatch(f"{found.fullname}: every round was dropped because the SM clock changed")
    return kept
