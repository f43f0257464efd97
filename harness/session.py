"""Runs benchmarks: prepares each task, gives the benchmarks to an engine, and writes the result file after each one.

First the arms of all tasks are made and assembled, on all cores of this computer. Then the engine (`engines`) runs the
benchmarks on its machines.

Requires: tasks that can be made in any thread. Guarantees: the file is replaced in one step after every finished
benchmark; an error of one arm or benchmark does not affect the others; the benchmarks of the result have the order of
the tasks, whatever the engine; `resume` skips benchmarks whose results have the same arms and options.
Refuses: `ResultError` for resuming a file of other options or another machine; `MachineMissing` if a machine is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import results
from .benchmark_run import (
    BENCHMARK_ERRORS,
    Code,
    Conditions,
    Limits,
    Prepared,
    Task,
    empty_benchmark,
    outcome_of,
    prepare,
)
from .engines import Engine, LocalEngine
from .machine import Machine
from .protocol import Plan
from .results import BenchmarkResult, ResultError, ResultFile

__all__ = ["BENCHMARK_ERRORS", "Code", "Limits", "Session", "Task"]


class Session:
    """Runs tasks. ``assembler`` assembles the modules of an arm; ``report`` receives lines of progress.

    ``path`` is the result file. ``engine`` distributes the benchmarks; without one, ``jobs`` of them run at the same
    time on ``machines`` machines of this computer.
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
        limits: Limits | None = None,
        report: Callable[[str], None] = lambda line: None,
        engine: Engine | None = None,
    ) -> None:
        self.conditions = Conditions(machine, plan, limits or Limits())
        self.result, self.assembler, self.path, self.report = result, assembler, path, report
        self.engine: Engine = engine or LocalEngine(jobs, machines)
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
        done = {index: former for index, each in enumerate(made) if (former := self._kept(each)) is not None}
        for each in done.values():
            self.report(f"{each.fullname}: kept from the result file")

        def finish(index: int, benchmark: BenchmarkResult) -> None:
            done[index] = benchmark
            self._save(done)

        for index, each in enumerate(made):
            if each.error:
                done[index] = empty_benchmark(each, each.error)
                self.report(f"{each.work.fullname}: {outcome_of(done[index])}")
        pending = {index: each for index, each in enumerate(made) if index not in done}
        if done:
            self._save(done)
        if pending:
            self.engine.run(self.conditions, pending, finish, self.report)
        self.result.complete = True
        self._save(done)
        return self.result

    def _prepare(self, tasks: Sequence[Task]) -> list[Prepared]:
        """Make and assemble the arms of every task, in threads that wait for compilers."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            made = [pool.submit(prepare, task, self.assembler) for task in tasks]
            for number, each in enumerate(as_completed(made), start=1):
                self.report(f"{each.result().work.fullname}: prepared {number} of {len(made)}")
            return [each.result() for each in made]
        finally:
            pool.shutdown(cancel_futures=True)

    def _kept(self, made: Prepared) -> BenchmarkResult | None:
        """The result of an earlier run with the same arms and parameters."""
        former = self._former.get(made.work.fullname)
        if former is None:
            return None
        empty = empty_benchmark(made)
        then = {each.id: each.ptx_sha256 for each in former.arms if each.role != "control"}
        is_same = former.params == empty.params and then == {arm.id: arm.ptx_sha256 for arm in empty.arms}
        return former if is_same else None

    def _save(self, done: Mapping[int, BenchmarkResult]) -> None:
        self.result.benchmarks = [done[index] for index in sorted(done)]
        results.settle(self.result)
        if self.path is not None:
            results.write(self.path, self.result)
