"""Where `bench run` runs: on this computer, or on the nodes of a Ray cluster.

A site chooses the machine, and then starts it: the description of the machine for the result file, and the engine that
distributes the benchmarks. Guarantees: after the ``with`` of `site`, nothing that it started is left.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from ..harness.engines import Engine, LocalEngine
from ..harness.machine import CUDA, EMULATOR, Machine, MachineMissing, choose
from ..harness.throughput import ROOF
from .bench_session import default_jobs, describe_computer, describe_machine
from .machine_costs import measured_bandwidth

if TYPE_CHECKING:
    from .ray_engine import RayEngine

__all__ = ["Site", "site"]


class Site(Protocol):
    """A place to run benchmarks."""

    def choose(self, backend: str, require_gpu: bool, /) -> tuple[Machine, int, str]:
        """The machine for `auto`, `cuda` or `emulator`, how many there are, and the reason for the choice. Raises
        `MachineMissing`."""
        ...

    def start(self, machine: Machine, count: int, tasks: int, jobs: int | None, /) -> tuple[dict[str, Any], Engine]:
        """Start what runs ``tasks`` benchmarks, ``jobs`` at a time (None: as many as the machines allow), on ``count``
        machines, as `choose` returns them. The result is the description of the machine, and the engine.
        Raises `MachineMissing`, `RequirementMissing`."""
        ...


@contextlib.contextmanager
def site(engine: str, report: Callable[[str], None]) -> Generator[Site]:
    """The site of an engine. ``report`` receives lines about it. Raises `RequirementMissing`."""
    if engine == "local":
        yield _LocalSite()
        return
    from .ray_cluster import connected

    with connected() as ray:
        cluster = _RaySite(ray, report)
        try:
            yield cluster
        finally:
            cluster.close()


class _LocalSite:
    """This computer."""

    def choose(self, backend: str, require_gpu: bool, /) -> tuple[Machine, int, str]:
        return choose(backend, require_gpu)

    def start(self, machine: Machine, count: int, tasks: int, jobs: int | None, /) -> tuple[dict[str, Any], Engine]:
        info = describe_computer()
        if machine.stopwatch:
            info |= describe_machine(machine)
            if count > 1:
                info["gpus"] = count
            if (bandwidth := measured_bandwidth(str(info.get("gpu")))) is not None:
                info[ROOF] = bandwidth
        jobs = jobs or default_jobs(machine, count, os.cpu_count() or 1)
        return info, LocalEngine(jobs, count)


class _RaySite:
    """The nodes of a Ray cluster."""

    def __init__(self, ray: Any, report: Callable[[str], None]) -> None:
        self._ray, self._report = ray, report
        self._engine: RayEngine | None = None

    def choose(self, backend: str, require_gpu: bool, /) -> tuple[Machine, int, str]:
        gpus, nodes = self._count("GPU"), sum(bool(each["Alive"]) for each in self._ray.nodes())
        where = f"ray: {nodes} node{'s' if nodes > 1 else ''}, {gpus} GPU{'s' if gpus != 1 else ''}"
        if backend == "emulator" and not require_gpu:
            return EMULATOR, self._count("CPU"), f"{where}; emulator: chosen with --backend"
        if gpus:
            return CUDA, gpus, where
        if backend == "cuda" or require_gpu:
            raise MachineMissing(where, "without a GPU, --backend=emulator counts instead of timing")
        return EMULATOR, self._count("CPU"), f"{where}; emulator"

    def start(self, machine: Machine, count: int, tasks: int, jobs: int | None, /) -> tuple[dict[str, Any], Engine]:
        from .ray_engine import RayEngine

        if not count:
            raise MachineMissing("the Ray cluster has no cores: start its nodes with --num-cpus")
        self._engine = RayEngine(self._ray, machine, self._report)
        return self._engine.start(min(count, tasks, jobs or count)), self._engine

    def close(self) -> None:
        """End the workers."""
        if self._engine is not None:
            self._engine.close()

    def _count(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))
