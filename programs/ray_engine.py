"""Runs benchmarks on the machines of a Ray cluster: one worker for each GPU, or for each core on the emulator.

A worker is an actor of Ray, which has a child process as every session has (`harness.worker`). This process prepares
the benchmarks, gives each idle worker the next one, and collects the results; workers keep nothing. If a worker or its
node is lost, its benchmark is run again by another one, `ATTEMPTS` times at most.

Guarantees: each benchmark has one result; all workers are machines of one kind; at the end no worker is left.
Refuses: `RequirementMissing` for machines of several kinds, and if there is no worker; the errors of a worker that are
no result of a benchmark end the run.
"""

from __future__ import annotations

import collections
import importlib
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..harness.benchmark_run import Conditions, Prepared, empty_benchmark, outcome_of, run_benchmark
from ..harness.engines import Finish
from ..harness.machine import Machine, MachineMissing
from ..harness.results import BenchmarkResult
from ..harness.throughput import ROOF
from ..harness.worker import Worker, end_with
from .bench_session import describe_computer
from .errors import RequirementMissing
from .machine_costs import measured_bandwidth
from .ray_cluster import ATTEMPTS, Origin, reason_of

__all__ = ["BenchmarkActor", "RayEngine"]

#: Seconds within which a worker must start, and for which the others are waited for after that.
_START = 120.0
_OTHERS = 20.0

#: The entries of a description that may differ between two machines of one kind.
_OWN = ("node", "processes", "temperature.gpu", "persistence_mode", ROOF)


class BenchmarkActor:
    """A worker, in a process that Ray starts. Ray shows it one GPU at most."""

    def __init__(self, origin: Origin, machine: Machine) -> None:
        self._origin, self._worker = origin, Worker(machine)
        # Ray ends a busy worker of a lost node only when its call ends.
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()

    def describe(self) -> dict[str, Any]:
        """The machine of this worker. Raises `RequirementMissing`, `MachineMissing`, `WorkerError`."""
        self._origin.apply()
        facts = describe_computer() | {"node": platform.node()}
        if self._worker.machine.stopwatch:
            facts |= self._worker.describe(_START)
            if (bandwidth := measured_bandwidth(str(facts.get("gpu")))) is not None:
                facts[ROOF] = bandwidth
        return facts

    def run(self, conditions: Conditions, made: Prepared, place: int) -> BenchmarkResult:
        """The result of a benchmark. Raises `MachineMissing`."""
        return run_benchmark(conditions, self._worker, made, place=place)


@dataclass(eq=False)
class _Member:
    """A worker of the cluster. ``number`` is its number in the result, -1 until it has described its machine; ``index``
    is the benchmark that it runs, or None."""

    actor: Any
    number: int = -1
    index: int | None = None


class RayEngine:
    """An engine (`harness.engines`) on ``machine`` of every node. ``ray`` is the connected module; ``report`` receives
    lines about workers."""

    def __init__(self, ray: Any, machine: Machine, report: Callable[[str], None]) -> None:
        self._ray, self._machine, self._report = ray, machine, report
        resources = {"num_gpus": 1, "num_cpus": 0} if machine.stopwatch else {"num_cpus": 1}
        options = {**resources, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(**options)(BenchmarkActor)
        self._origin = Origin.here()
        #: The outstanding call of each worker that is starting or busy.
        self._calls: dict[Any, _Member] = {}
        self._idle: list[_Member] = []
        self._info: dict[str, Any] = {}
        self._unstarted = 0

    def start(self, count: int) -> dict[str, Any]:
        """Start workers, and describe their machine. The description has a list `workers`, to which workers that start
        later are added. Raises `RequirementMissing`."""
        for _ in range(count):
            self._start_worker()
        end = time.monotonic() + _START
        while self._calls and time.monotonic() < end:
            for member, answer in self._answers():
                self._add_worker(member, answer)
                end = min(end, time.monotonic() + _OTHERS)
        if not self._idle:
            raise RequirementMissing(f"no worker of the Ray cluster started within {_START:g} s: are its nodes busy?")
        if self._calls:
            self._report(
                f"ray: {len(self._idle)} of {count} workers have started; the others join the run when they start"
            )
        return self._info

    def run(
        self,
        conditions: Conditions,
        prepared: Mapping[int, Prepared],
        finish: Finish,
        report: Callable[[str], None],
        /,
    ) -> None:
        """Run the benchmarks. Raises `RequirementMissing` if no worker is left, and errors that are no result."""
        waiting = collections.deque(prepared)
        lost: dict[int, list[str]] = {index: [] for index in prepared}
        end = time.monotonic() + _START
        while waiting or any(each.index is not None for each in self._calls.values()):
            while waiting and self._idle:
                member = self._idle.pop()
                member.index = waiting.popleft()
                self._calls[member.actor.run.remote(conditions, prepared[member.index], member.number)] = member
            for member, answer in self._answers():
                end = time.monotonic() + _START
                index = member.index
                if index is None:
                    self._add_worker(member, answer)
                    continue
                made = prepared[index]
                if isinstance(answer, BenchmarkResult):
                    member.index = None
                    self._idle.append(member)
                    report(f"{answer.fullname}: {outcome_of(answer)}")
                    finish(index, answer)
                    continue
                lost[index].append(self._replace(member, answer, made.work.fullname))
                if len(lost[index]) < ATTEMPTS:
                    waiting.appendleft(index)
                    continue
                error = f"given up: {ATTEMPTS} workers were lost while they ran it: {'; '.join(lost[index])}"
                result = empty_benchmark(made, error)
                report(f"{result.fullname}: {outcome_of(result)}")
                finish(index, result)
            if any(each.index is not None for each in self._calls.values()):
                end = time.monotonic() + _START
            elif waiting and not self._idle and time.monotonic() > end:
                raise RequirementMissing(f"no worker of the Ray cluster is left, and none started within {_START:g} s")

    def close(self) -> None:
        """End the workers."""
        for member in [*self._calls.values(), *self._idle]:
            self._ray.kill(member.actor)
        self._calls, self._idle = {}, []

    def _start_worker(self) -> None:
        actor = self._actor.remote(self._origin, self._machine)
        self._calls[actor.describe.remote()] = _Member(actor)

    def _answers(self) -> list[tuple[_Member, Any]]:
        """Wait for answers, for one second at most. Each is a worker and its answer: a value, or the error that says
        that it was lost. Raises other errors."""
        if not self._calls:
            time.sleep(0.2)
            return []
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=1.0)
        return [(self._calls.pop(call), self._answer(call)) for call in ready]

    def _answer(self, call: Any) -> Any:
        errors: Any = importlib.import_module("ray.exceptions")
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            if isinstance(error.cause, MachineMissing):
                return error.cause
            raise error.cause from error
        except errors.RayError as error:
            return error

    def _add_worker(self, member: _Member, answer: Any) -> None:
        """Add a worker, whose machine ``answer`` describes. If it was lost before that, start another one. Raises
        `RequirementMissing` for a machine of another kind."""
        if isinstance(answer, BaseException):
            self._unstarted += 1
            if self._unstarted >= ATTEMPTS:
                raise RequirementMissing(f"the workers of the Ray cluster do not start: {answer}")
            self._replace(member, answer, "it started")
            return
        facts: dict[str, Any] = answer
        kind = {name: value for name, value in facts.items() if name not in _OWN}
        own = {name: value for name, value in facts.items() if name in _OWN}
        if not self._info:
            self._info = {**kind, "workers": []}
        differing = [name for name, value in kind.items() if self._info.get(name) != value]
        if differing:
            first = self._info["workers"][0]["node"]
            shown = ", ".join(f"{name} {self._info.get(name)!r} and {kind[name]!r}" for name in differing)
            raise RequirementMissing(
                f"the machines of the cluster are of several kinds: {first} and {own['node']}: {shown}"
            )
        member.number = len(self._info["workers"])
        self._info["workers"].append(own)
        self._idle.append(member)

    def _replace(self, member: _Member, error: BaseException, what: str) -> str:
        """Start another worker in place of a lost one; how it was lost."""
        where = f" on {self._info['workers'][member.number]['node']}" if member.number >= 0 else ""
        reason = f"worker {member.number}{where}: {reason_of(error)}" if member.number >= 0 else reason_of(error)
        self._report(f"ray: a worker was lost while it ran {what}: {reason}")
        self._ray.kill(member.actor)  # it may still run where only the connection was lost
        self._start_worker()
        return reason
