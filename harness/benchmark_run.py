"""One benchmark: its arms are prepared, checked, timed and compared.

`prepare` makes and assembles the arms; it uses no machine. `run_benchmark` checks the baseline and every arm whose
machine code differs from that of the earlier arms. The correct arms are timed, the baseline twice, and compared. On a
machine without a stopwatch, their noise-free figures are compared (`figures`).

Requires: a `Worker` of the machine of the conditions. Guarantees: an error of one arm does not affect the others; equal
machine code is checked and timed once; a `Prepared` and a `Conditions` can be pickled, so another process can run them.
Refuses: `MachineMissing` if the machine is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..ptx.errors import PtxError
from ..toolchain.cubin import CubinError
from ..toolchain.tools import ToolFailed, ToolTimeout
from . import results
from .figures import compare_figures, estimate_time, judge_figures, parse_threshold
from .machine import Machine
from .measurement_lock import MeasurementLock
from .protocol import CONTROL, Plan
from .results import (
    ArmResult,
    BenchmarkResult,
    ComparisonResult,
    Correctness,
    FigureResult,
    Timing,
)
from .stats import Verdict, summarize
from .verdicts import comparisons_of
from .worker import Timed, Worker, WorkerDied, WorkerError, WorkerFailed, WorkerHung
from .workload import Arm, Work

__all__ = [
    "BENCHMARK_ERRORS",
    "Code",
    "Conditions",
    "Limits",
    "Prepared",
    "Task",
    "empty_benchmark",
    "outcome_of",
    "prepare",
    "run_benchmark",
]

#: The errors that end one benchmark and are recorded in its result. Every other error ends the session.
BENCHMARK_ERRORS = (ToolFailed, ToolTimeout, CubinError, PtxError, WorkerError)


class Code(Protocol):
    """The machine code of an arm (`arm_code.ArmCode`)."""

    @property
    def cubin_sha256(self) -> str:
        """The digest of the cubins, for the result file."""
        ...

    def is_same_code(self, other: Any, /) -> bool:
        """Whether the machine code of two arms is equal."""
        ...

    def static(self, launches: Mapping[str, tuple[int, int]] | None = None, /) -> dict[str, dict[str, Any]]:
        """The noise-free figures by kernel. ``launches``: threads of a block and dynamic shared bytes, by kernel."""
        ...


@dataclass(frozen=True)
class Task:
    """One benchmark: its name, and a function that makes its work and its arms, the baseline first."""

    fullname: str
    make: Callable[[], tuple[Work, Sequence[Arm]]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a child is killed: while it checks one arm, and in one round of timing."""

    check: float = 300.0
    round: float = 60.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """How every benchmark of a session is run: the machine, the plan, and the limits of a child."""

    machine: Machine
    plan: Plan
    limits: Limits = Limits()


#: The most seconds that opening a machine may take.
_OPENING = 120.0


@dataclass(frozen=True)
class Prepared:
    """The work and the arms of a task, the baseline first. ``codes`` maps the id of an arm to its machine code.

    ``error`` says why the baseline has none, and the benchmark cannot be run. ``params`` are those of the work, so that
    another process need not load it.
    """

    work: Work
    params: dict[str, Any]
    arms: list[Arm]
    codes: dict[str, Code]
    error: str = ""


def prepare(task: Task, assembler: Callable[[Mapping[str, str]], Code]) -> Prepared:
    """Make and assemble the arms of a task. Raises the errors of ``task.make``."""
    work, task_arms = task.make()
    arms = [replace(task_arms[0], role="baseline"), *task_arms[1:]]
    codes: dict[str, Code] = {}
    for position, arm in enumerate(arms):
        if arm.error:
            continue
        try:
            codes[arm.id] = assembler(arm.modules)
        except BENCHMARK_ERRORS as error:
            if position == 0:
                return Prepared(work, dict(work.params), arms, {}, str(error))
            arms[position] = replace(arm, error=str(error))
    return Prepared(work, dict(work.params), arms, codes)


def empty_benchmark(made: Prepared, error: str = "") -> BenchmarkResult:
    """The result of a benchmark that was not run yet, or that cannot be run because of this error."""
    work = made.work
    name = work.fullname.rpartition("/")[2]
    arms = [_arm_of(each) for each in made.arms]
    return BenchmarkResult(work.fullname, name, work.group, made.params, arms, error=error)


def _arm_of(arm: Arm) -> ArmResult:
    sha = results.hashes({name: text.encode("utf-8", "surrogateescape") for name, text in arm.modules.items()})
    return ArmResult(arm.id, arm.role, sha, "", Correctness("ok"))


def _choices(arm: Arm) -> list[str]:
    """The contracts of an arm that have versions: its launches depend on them."""
    found = (json.loads(text)["kernels"].values() for text in arm.contracts.values())
    has_versions = [any(len(kernel["versions"]) > 1 for kernel in kernels) for kernels in found]
    return sorted(text for text, has in zip(arm.contracts.values(), has_versions, strict=True) if has)


def outcome_of(result: BenchmarkResult) -> str:
    """The outcome of a benchmark in one line."""
    if result.error:
        return f"error: {result.error.splitlines()[0]}"
    shown = [
        f"{c.candidate} {c.verdict}" + (f" {c.speedup:.3f}" if c.speedup is not None else "") for c in result.candidates
    ]
    return ", ".join(shown) or "baseline only"


def run_benchmark(
    conditions: Conditions,
    worker: Worker,
    made: Prepared,
    *,
    place: int = 0,
    lock: MeasurementLock | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> BenchmarkResult:
    """Check, time and compare the arms of a benchmark; its result, also where an error ended it.

    ``place`` is the number of the machine, and ``lock`` its lock, if other benchmarks use it at the same time. Raises
    `MachineMissing`.
    """
    started = time.monotonic()
    run = _BenchmarkRun(conditions, worker, made, place, lock or MeasurementLock(), report)
    try:
        run.run()
    except BENCHMARK_ERRORS as error:
        run.result.error = str(error)
    run.result.seconds = round(time.monotonic() - started, 3)
    return run.result


class _BenchmarkRun:
    """One benchmark on one worker."""

    def __init__(
        self,
        conditions: Conditions,
        worker: Worker,
        made: Prepared,
        place: int,
        lock: MeasurementLock,
        report: Callable[[str], None],
    ) -> None:
        self.machine, self.plan, self.limits = conditions.machine, conditions.plan, conditions.limits
        self.worker, self.made, self.place, self.lock, self.report = worker, made, place, lock, report
        self.work, self.arms, self.codes = made.work, made.arms, made.codes
        self.result = empty_benchmark(made)

    def run(self) -> None:
        """Check, time, compare."""
        for id, code in self.codes.items():
            self.result.arm(id).cubin_sha256 = code.cubin_sha256
        base = self.arms[0]
        baseline = self._begin()
        self.result.arm(base.id).correctness = baseline
        counted = {base.id: self.worker.counts()}
        launches = self.worker.launches()
        self.result.work = self.worker.amounts()
        correct: list[Arm] = []
        for position, arm in enumerate(self.arms[1:], start=1):
            if arm.error:
                self.result.arm(arm.id).correctness = Correctness("not_made", [arm.error])
                self._add(arm, Verdict.INVALID, f"could not be made: {arm.error}")
                continue
            former = next((each for each in self.arms[:position] if self._is_same(each, arm)), None)
            correctness = self._check(arm, former, counted)
            self.result.arm(arm.id).correctness = correctness
            if baseline.status != "ok":
                self._add(arm, Verdict.INVALID, f"the baseline is wrong: {baseline.details[0]}")
            elif correctness.status == "not_comparable":
                self._add(arm, Verdict.INVALID, correctness.details[0])
            elif correctness.status != "ok":
                self._add(arm, Verdict.MISMATCH, f"{correctness.status}: {correctness.details[0]}")
            elif former is base:
                ratio = 1.0 if self.machine.stopwatch else None
                self._add(arm, Verdict.IDENTICAL, "the same machine code", ratio)
            elif former is not None and former in correct:
                self.result.arm(arm.id).same_code_as = former.id
            else:
                correct.append(arm)
        for id, code in self.codes.items():
            each = self.result.arm(id)
            each.static = code.static(launches)
            each.emulated = counted.get(id, {})
        if not self.machine.stopwatch:
            for arm in self.arms[1:]:
                if arm in correct or self.result.arm(arm.id).same_code_as:
                    self._add(arm, *judge_figures(self._figures(arm.id)))
        elif correct or len(self.arms) == 1:
            self._time(correct)
        for comparison in self.result.candidates:
            if self.result.arm(comparison.candidate).correctness.status == baseline.status == "ok":
                comparison.figures = self._figures(comparison.candidate)
                comparison.estimate = estimate_time(self.result.arm(base.id), self.result.arm(comparison.candidate))
        order = {arm.id: position for position, arm in enumerate(self.arms)}
        self.result.comparisons.sort(key=lambda each: order.get(each.candidate, -1))

    def _figures(self, candidate: str) -> list[FigureResult]:
        """The noise-free figures of a candidate, compared with those of the baseline."""
        base, arm = self.result.arm(self.arms[0].id), self.result.arm(candidate)
        thresholds = [parse_threshold(each) for each in self.plan.thresholds]
        return compare_figures(self.result.fullname, base, arm, thresholds)

    def _is_same(self, one: Arm, other: Arm) -> bool:
        """Whether two arms have the same machine code, host program and launch mode, and choose the same versions."""
        if one.error or not (one.same_program and other.same_program) or one.launch != other.launch:
            return False
        if _choices(one) != _choices(other):
            return False
        return self.codes[one.id].is_same_code(self.codes[other.id])

    def _begin(self) -> Correctness:
        try:
            with self.lock.shared():
                if not self.worker.is_open:
                    self.worker.describe(_OPENING)  # opening a machine would disturb a timing on it
            self.worker.get_ready(self.work, self.arms[0], self.plan, self.limits.check)
            with self.lock.shared():
                return self.worker.begin(self.limits.check)
        except WorkerError as error:
            self._lost(error)
            raise type(error)(f"the baseline: {error}") if not isinstance(error, WorkerFailed) else error from error

    def _check(self, arm: Arm, former: Arm | None, counted: dict[str, dict[str, Any]]) -> Correctness:
        """Check an arm. An arm with the machine code of an earlier one gets the result of that one."""
        base = self.arms[0]
        if former is not None and (not counted[base.id] or arm.modules == former.modules):
            counted[arm.id] = counted.get(former.id, {})
            return replace(self.result.arm(former.id).correctness)
        # The emulator counts in the PTX, which can differ where the machine code is equal.
        try:
            if not self.worker.is_open:
                self._begin()
            with self.lock.shared():
                correctness = self.worker.check(arm, self.limits.check)
            counted[arm.id] = self.worker.counts()
            return correctness
        except WorkerError as error:
            self._lost(error)
            return Correctness("hang" if isinstance(error, WorkerHung) else "crash", [str(error)])

    def _lost(self, error: WorkerError) -> None:
        """After a child was lost: open the machine again. Raises `MachineMissing` if it is gone."""
        if isinstance(error, WorkerDied | WorkerHung) or (isinstance(error, WorkerFailed) and error.is_device_failure):
            with self.lock.shared():
                self.worker.describe(max(self.limits.check, _OPENING))
            self.worker.close()

    def _time(self, correct: Sequence[Arm]) -> None:
        base = self.arms[0]
        again = replace(base, id=base.id + CONTROL, role="control")
        arms = [base, again, *correct]
        control = replace(self.result.arm(base.id), id=again.id, role="control")
        self.result.arms.insert(1, control)
        pairs = [(0, other) for other in range(1, len(arms))]
        try:
            with self.lock.exclusive():
                timed = self.worker.time(
                    self.work,
                    arms,
                    pairs,
                    self.plan,
                    self.limits.round,
                    max(self.limits.check, self.limits.round),
                    lambda done, of: self.report(f"{self.work.fullname}: round {done} of {of}"),
                )
        except WorkerError as error:
            self._lost(error)
            shared = [each for each in self.arms if self.result.arm(each.id).same_code_as]
            for arm in [*arms[1:], *shared]:
                self._add(arm, Verdict.INVALID, f"timing failed: {error}")
            return
        self._keep(arms, timed)

    def _keep(self, arms: Sequence[Arm], timed: Timed) -> None:
        rule = self.plan.rule
        kept = timed.rounds.kept(rule)
        how = timed.how
        self.result.timing = Timing(
            arms=[arm.id for arm in arms],
            mode=how["mode"],
            launches_per_sample=how["launches_per_sample"],
            copies=how["copies"],
            flushed_bytes=how["flushed_bytes"],
            clocks_hz=[list(clocks) for clocks in timed.rounds.clocks],
            dropped_rounds=[number for number, keep in enumerate(kept) if not keep],
            machine=self.place,
        )
        for number, arm in enumerate(arms):
            each = self.result.arm(arm.id)
            each.samples = [[_rounded(s) for s in block] for block in timed.rounds.seconds[number]]
            if any(kept):
                each.stats = summarize([block for block, keep in zip(each.samples, kept, strict=True) if keep])
            wrong = timed.after.get(number, [])
            status = "mismatch" if wrong else each.correctness.status
            details = [*each.correctness.details, *(f"after timing: {line}" for line in wrong)]
            each.correctness = replace(each.correctness, status=status, details=details, checked_after_timing=True)
        for arm in self.result.arms:
            former = self.result.timed_as(arm)
            if former is not arm:
                arm.stats, arm.correctness = former.stats, replace(former.correctness)
        # The verdicts depend on the content of the file only, so that an audit can compute them again.
        wrong_baseline = self._wrong_after(arms[0].id) or self._wrong_after(arms[1].id)
        for comparison in comparisons_of(self.result, rule):
            wrong = wrong_baseline or self._wrong_after(comparison.candidate)
            if wrong:
                comparison = replace(comparison, verdict=Verdict.MISMATCH.value, speedup=None, ci=None, reason=wrong[0])
            self.result.comparisons.append(comparison)

    def _wrong_after(self, id: str) -> list[str]:
        correctness = self.result.arm(id).correctness
        return correctness.details if correctness.status != "ok" else []

    def _add(self, arm: Arm, verdict: Verdict, reason: str, speedup: float | None = None) -> None:
        ci = None if speedup is None else (speedup, speedup)
        base = self.arms[0].id
        self.result.comparisons.append(ComparisonResult(base, arm.id, speedup, ci, None, 0, 0, verdict.value, reason))


def _rounded(seconds: float) -> float:
    """Round to 0.1 ns: no event has a finer resolution, and the file is half as long."""
    return max(round(seconds, 10), 1e-10)
