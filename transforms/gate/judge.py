"""The interface of a judge."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ...cost import Figures
from ...ptx import Module
from ...work_times import WorkTimes

__all__ = [
    "Judge",
    "JudgesSmallLaunches",
    "JudgesTogether",
    "ReadsFloatCode",
    "RecordingJudge",
    "Refused",
    "TimesItsWork",
]


class Refused(Exception):
    """The judge cannot judge the module; the message says why."""


class Judge(Protocol):
    """Computes the figures of the kernels of a module."""

    name: str

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name. Raises `Refused`."""
        ...


@runtime_checkable
class TimesItsWork(Protocol):
    """A judge that measures its work, for `--time-passes`."""

    times: WorkTimes


@runtime_checkable
class JudgesTogether(Protocol):
    """A judge that saves time if it knows for which modules it will be asked."""

    def prepare(self, *modules: Module) -> None:
        """`figures` will be called for each of the modules."""
        ...


@runtime_checkable
class ReadsFloatCode(Protocol):
    """A judge that also reads which machine instructions the floating-point instructions of PTX have become."""

    def float_code(self, module: Module) -> dict[str, list[frozenset[str]]]:
        """Name of an entry → for each of its instructions in order, the kinds of its floating-point machine
        instructions: ``fma``, ``add``, ``mul``; empty where it has none. Raises `Refused`."""
        ...


@runtime_checkable
class JudgesSmallLaunches(Protocol):
    """A judge that can also judge for small launches only."""

    def for_small_launches(self, most_warps: float) -> Judge:
        """This judge, for launches of which a multiprocessor has at most ``most_warps`` warps at a time."""
        ...


@runtime_checkable
class RecordingJudge(Protocol):
    """A judge that also records results for later runs: JSON values by keys."""

    def recall(self, key: str) -> Any:
        """The value recorded under ``key``; `None` where there is none."""
        ...

    def remember(self, key: str, value: Any) -> None:
        """Record ``value`` under ``key``."""
        ...
