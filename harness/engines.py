"""Engines: what distributes prepared benchmarks over machines and collects their results.

`LocalEngine` runs them on the machines of this computer: threads, each with a child process. A machine may check
several benchmarks at the same time, but one that is timed has the machine alone (`measurement_lock`).
`programs/ray_engine.py` is an engine for the machines of a Ray cluster.

Guarantees: `Engine.run` calls ``finish`` once for each benchmark that has ended, and one call at a time.
Refuses: `MachineMissing` if a machine is lost; errors that are no result of a benchmark end the run.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

from .benchmark_run import Conditions, Prepared, outcome_of, run_benchmark
from .machine import Machine
from .measurement_lock import MeasurementLock
from .results import BenchmarkResult
from .worker import Worker

__all__ = ["Engine", "Finish", "LocalEngine"]

#: Receives the number of a benchmark, and its result.
Finish: TypeAlias = Callable[[int, BenchmarkResult], None]


class Engine(Protocol):
    """Runs benchmarks on machines."""

    def run(
        self,
        conditions: Conditions,
        prepared: Mapping[int, Prepared],
        finish: Finish,
        report: Callable[[str], None],
        /,
    ) -> None:
        """Run the benchmarks, by number; call ``finish`` with each result. ``report`` receives lines of progress."""
        ...


class LocalEngine:
    """``jobs`` benchmarks run at the same time, on ``machines`` machines of the same kind.

    >>> LocalEngine(jobs=0).jobs
    1
    """

    def __init__(self, jobs: int = 1, machines: int = 1) -> None:
        self.jobs = max(1, jobs)
        self.locks = [MeasurementLock() for _ in range(max(1, machines))]

    def run(
        self,
        conditions: Conditions,
        prepared: Mapping[int, Prepared],
        finish: Finish,
        report: Callable[[str], None],
        /,
    ) -> None:
        """Run the benchmarks in threads. Raises the first error of a thread."""
        run = _LocalRun(self.locks, conditions, prepared, finish, report)
        count = min(self.jobs, len(prepared))
        threads = [threading.Thread(target=run.serve, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(0.05)
        except BaseException:
            run.stop.set()
            raise
        if run.failures:
            raise run.failures[0]


class _LocalRun:
    """One call of `LocalEngine.run`: what its threads share."""

    def __init__(
        self,
        locks: list[MeasurementLock],
        conditions: Conditions,
        prepared: Mapping[int, Prepared],
        finish: Finish,
        report: Callable[[str], None],
    ) -> None:
        self.locks, self.conditions, self.prepared = locks, conditions, prepared
        self.finish, self.report = finish, report
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in prepared:
            self.waiting.put(index)
        self.finishing = threading.Lock()
        self.stop = threading.Event()
        self.failures: list[BaseException] = []

    def serve(self, number: int) -> None:
        """Run benchmarks until none is left; the thread with this number."""
        place = number % len(self.locks)
        with Worker(_one_of(self.conditions.machine, place)) as worker:
            while not self.stop.is_set():
                try:
                    index = self.waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    self._run(index, worker, place)
                except BaseException as error:
                    self.failures.append(error)
                    self.stop.set()
                    return

    def _run(self, index: int, worker: Worker, place: int) -> None:
        made = self.prepared[index]
        result = run_benchmark(self.conditions, worker, made, place=place, lock=self.locks[place], report=self.report)
        self.report(f"{result.fullname}: {outcome_of(result)}")
        with self.finishing:
            self.finish(index, result)


def _one_of(machine: Machine, number: int) -> Machine:
    """One of several equal machines, by its number. Its process sees only this GPU."""
    if machine.name != "cuda":
        return machine
    visible = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    chosen = visible[number] if number < len(visible) else str(number)
    return replace(machine, environment={**machine.environment, "CUDA_VISIBLE_DEVICES": chosen})
