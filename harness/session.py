"""Runs benchmarks: checks and times the arms of each task, and writes the result file after each task.

First the arms of all tasks are made and assembled, on all cores. Then, for each task, a child process checks the
baseline and every arm whose machine code differs from that of the earlier arms. The correct arms are timed, the
baseline twice, and compared. On a machine without a stopwatch, their noise-free figures are compared (`figures`). The
tasks are distributed over the machines (GPUs or emulators). Several tasks may be checked on one machine at the same
time, but a task is timed alone (`measurement_lock`).

Requires: tasks that can be made in any thread. Guarantees: the file is replaced in one step after every finished
benchmark; an error of one arm or benchmark does not affect the others; equal machine code is checked and timed once;
`resume` skips benchmarks whose results have the same arms and options.
Refuses: `ResultError` for resuming a file of other options or another machine; `MachineMissing` if a machine is lost.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
    ResultError,
    ResultFile,
    Stats,
    Timing,
)
from .stats import Verdict, summarize
from .verdicts import comparisons_of
from .worker import Timed, Worker, WorkerDied, WorkerError, WorkerFailed, WorkerHung
from .workload import Arm, Work

__all__ = ["BENCHMARK_ERRORS", "Code", "Limits", "Session", "Task"]

#: The errors that end one benchmark and are recorded in its result. Every other error ends the session.
BENCHMARK_ERRORS = (ToolFailed, ToolTimeout, CubinError, PtxError, WorkerError)


class Code(Protocol):
    """The machine code of an arm (`arm_code.ArmCode`)."""

    @property
    def cubin_sha256(self) -> str: ...
    def is_same_code(self, other: Any, /) -> bool: ...
    def static(self, launches: Mapping[str, tuple[int, int]] | None = None, /) -> dict[str, dict[str, Any]]: ...


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


#: The most seconds that opening a machine may take.
_OPENING = 120.0


class Session:
    """Runs tasks. ``assembler`` assembles the modules of an arm; ``report`` receives lines of progress.

    ``jobs`` tasks run at the same time, on ``machines`` machines of the same kind. ``path`` is the result file.
    """

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        result: ResultFile,
        *,
        assembler: Callable[[Mapping[str, str]], Code],
        path: Path | None = None,
        jobs: int = 1,
        machines: int = 1,
        limits: Limits = Limits(),
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.machine, self.plan, self.result = machine, plan, result
        self.assembler, self.path, self.jobs, self.limits, self.report = assembler, path, max(1, jobs), limits, report
        self.locks = [MeasurementLock() for _ in range(max(1, machines))]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._former: dict[str, BenchmarkResult] = {}

    def resume(self, former: ResultFile) -> None:
        """Reuse the benchmarks of an interrupted run. Raises `ResultError` for another backend, GPU or options."""
        for what, ours, recorded in (
            ("backend", self.result.backend, former.backend),
            ("options", self.result.options, former.options),
            ("GPU", self.result.machine_info.get("gpu"), former.machine_info.get("gpu")),
        ):
            if ours != recorded:
                raise ResultError(f"cannot resume: the {what} of the file: {recorded!r}; of this run: {ours!r}")
        self._former = {each.fullname: each for each in former.benchmarks if not each.error}

    def run(self, tasks: Sequence[Task]) -> ResultFile:
        """Run every task; the result file. Raises `MachineMissing`, `OSError`, and the errors of `Task.make`. The
        results of finished tasks are in the file, also after an error."""
        made = self._prepare(tasks)
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(len(tasks)):
            waiting.put(index)
        done: dict[int, BenchmarkResult] = {}
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=self._serve, args=(number, waiting, made, done, failures), daemon=True)
            for number in range(min(self.jobs, max(1, len(tasks))))
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[0].join(0.05)
                for thread in threads:
                    thread.join(0.05)
        except BaseException:
            self._stop.set()
            raise
        if failures:
            raise failures[0]
        self.result.complete = True
        self._save(done)
        return self.result

    def _prepare(self, tasks: Sequence[Task]) -> list[_Prepared]:
        """Make and assemble the arms of every task, in threads that wait for compilers."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            made = [pool.submit(_prepared, task, self.assembler) for task in tasks]
            for number, each in enumerate(as_completed(made), start=1):
                self.report(f"{each.result().work.fullname}: prepared {number} of {len(made)}")
            return [each.result() for each in made]
        finally:
            pool.shutdown(cancel_futures=True)

    def _serve(
        self,
        number: int,
        waiting: queue.SimpleQueue[int],
        made: Sequence[_Prepared],
        done: dict[int, BenchmarkResult],
        failures: list[BaseException],
    ) -> None:
        place = number % len(self.locks)
        with Worker(_one_of(self.machine, place)) as worker:
            while not self._stop.is_set():
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    benchmark = self._benchmark(worker, made[index], place)
                    with self._lock:
                        done[index] = benchmark
                        self._save(done)
                except BaseException as error:
                    failures.append(error)
                    self._stop.set()
                    return

    def _save(self, done: Mapping[int, BenchmarkResult]) -> None:
        self.result.benchmarks = [done[index] for index in sorted(done)]
        results.settle(self.result)
        if self.path is not None:
            results.write(self.path, self.result)

    # --- one benchmark -----------------------------------------------------------------------------------------

    def _benchmark(self, worker: Worker, made: _Prepared, place: int) -> BenchmarkResult:
        started = time.monotonic()
        run = _BenchmarkRun(self, worker, made, place)
        former = self._former.get(made.work.fullname)
        if former is not None and run.has_arms_of(former):
            self.report(f"{made.work.fullname}: kept from the result file")
            return former
        try:
            run.run()
        except BENCHMARK_ERRORS as error:
            run.result.error = str(error)
        run.result.seconds = round(time.monotonic() - started, 3)
        self.report(f"{made.work.fullname}: {run.outcome()}")
        return run.result


@dataclass(frozen=True)
class _Prepared:
    """The work and the arms of a task, the baseline first. ``codes`` maps the id of an arm to its machine code.
    ``error`` says why the baseline has none."""

    work: Work
    arms: list[Arm]
    codes: dict[str, Code]
    error: Exception | None = None


def _prepared(task: Task, assembler: Callable[[Mapping[str, str]], Code]) -> _Prepared:
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
                return _Prepared(work, arms, {}, error)
            arms[position] = replace(arm, error=str(error))
    return _Prepared(work, arms, codes)


def _one_of(machine: Machine, number: int) -> Machine:
    """One of several equal machines, by its number. Its process sees only this GPU."""
    if machine.name != "cuda":
        return machine
    visible = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    chosen = visible[number] if number < len(visible) else str(number)
    return replace(machine, environment={**machine.environment, "CUDA_VISIBLE_DEVICES": chosen})


class _BenchmarkRun:
    """One benchmark on one worker."""

    def __init__(self, session: Session, worker: Worker, made: _Prepared, place: int) -> None:
        self.session, self.worker, self.made, self.place = session, worker, made, place
        self.lock = session.locks[place]
        self.work, self.arms, self.codes = made.work, made.arms, made.codes
        self.plan, self.limits = session.plan, session.limits
        work = made.work
        self.result = BenchmarkResult(
            work.fullname,
            work.fullname.rpartition("/")[2],
            work.group,
            dict(work.params),
            [self._arm(each) for each in made.arms],
        )

    @staticmethod
    def _arm(arm: Arm) -> ArmResult:
        sha = results.hashes({name: text.encode("utf-8", "surrogateescape") for name, text in arm.modules.items()})
        return ArmResult(arm.id, arm.role, sha, "", Correctness("ok"))

    def has_arms_of(self, former: BenchmarkResult) -> bool:
        """Whether an earlier result has the same arms and parameters."""
        then = {each.id: each.ptx_sha256 for each in former.arms if each.role != "control"}
        return former.params == self.result.params and then == {a.id: a.ptx_sha256 for a in self.result.arms}

    def outcome(self) -> str:
        """The outcome in one line."""
        if self.result.error:
            return f"error: {self.result.error.splitlines()[0]}"
        shown = [
            f"{c.candidate} {c.verdict}" + (f" {c.speedup:.3f}" if c.speedup is not None else "")
            for c in self.result.candidates
        ]
        return ", ".join(shown) or "baseline only"

    def run(self) -> None:
        """Check, time, compare."""
        if self.made.error is not None:
            raise self.made.error
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
                ratio = 1.0 if self.session.machine.stopwatch else None
                self._add(arm, Verdict.IDENTICAL, "the same machine code", ratio)
            elif former is not None and former in correct:
                self.result.arm(arm.id).same_code_as = former.id
            else:
                correct.append(arm)
        for id, code in self.codes.items():
            each = self.result.arm(id)
            each.static = code.static(launches)
            each.emulated = counted.get(id, {})
        if not self.session.machine.stopwatch:
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
        """Whether two arms have the same machine code, host program and launch mode."""
        if one.error or not (one.same_program and other.same_program) or one.launch != other.launch:
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
                    lambda done, of: self.session.report(f"{self.work.fullname}: round {done} of {of}"),
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
                each.stats = _stats([block for block, keep in zip(each.samples, kept, strict=True) if keep])
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


def _stats(samples: list[list[float]]) -> Stats:
    summary = summarize(samples)
    return Stats(
        summary.min,
        summary.q1,
        summary.median,
        summary.q3,
        summary.iqr,
        summary.mean,
        summary.stddev,
        summary.max,
        summary.count,
    )
