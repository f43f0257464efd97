"""The schedule that is fastest on a GPU, within a budget of seconds.

First the plans of all searches are timed (`auto.candidates`), and those in which each operator has a kernel with
regions, with one pixel and with several pixels of a thread. Then plans around the best one are timed, in the order of
their time by the model (`neighbours`): with regions, other tiles, blocks, pixels of a thread and registers of a group,
with two groups merged, or with a group split. After a batch that has a better plan, the search goes on around that one.
The time of each plan is measured once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..graph import Graph
from ..groups import Plan, Regions, separate
from ..lowered import Options
from .auto import candidates
from .costs import TimeModel, time_model
from .neighbours import neighbours
from .shapes import with_regions

__all__ = ["Measure", "Tuned", "tune"]

#: Plans that are compiled together.
_BATCH = 8


class Measure(Protocol):
    """Times plans, such as `timing.Timer`."""

    def compile(self, plans: Sequence[Plan]) -> None:
        """Compile the kernels of plans in advance, so that `microseconds` does not."""
        ...

    def microseconds(self, plan: Plan) -> float:
        """The time of one run of a plan."""
        ...


@dataclass(frozen=True)
class Tuned:
    """The fastest plan, its time in microseconds, and the times of all plans that were measured, by their JSON."""

    plan: Plan
    microseconds: float
    times: dict[str, float]


def tune(graph: Graph, options: Options, measure: Measure, seconds: float, progress: Callable[[str], None]) -> Tuned:
    """Search for ``seconds`` seconds; what is being measured then is finished. ``progress`` gets a line for each plan
    that is better, and for each batch."""
    search = _Search(options, measure, time.monotonic() + seconds, progress)
    found = {each.name: each.plan for each in candidates(graph, options)}
    kinds: tuple[Regions, ...] = ("isp", "isp_rows")
    for regions in kinds:
        found[regions] = _partitioned(graph, options, regions)
    for plan in search.batches([*found.values()]):
        search.time(plan, next(name for name, each in found.items() if each is plan))
    model = time_model()
    while not search.is_over and search.improve(model):
        pass
    return Tuned(search.best[0], search.best[1], search.times)


class _Search:
    def __init__(self, options: Options, measure: Measure, end: float, progress: Callable[[str], None]) -> None:
        self.options, self.measure, self.end, self.progress = options, measure, end, progress
        self.times: dict[str, float] = {}
        #: The fastest plan and its time.
        self._best: tuple[Plan, float] | None = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end

    @property
    def best(self) -> tuple[Plan, float]:
        assert self._best is not None, "the first batch is always measured"
        return self._best

    def batches(self, plans: Sequence[Plan]) -> Iterator[Plan]:
        """The plans that have not been measured, compiled in batches, until the time is over."""
        new = list({text: plan for plan in plans if (text := plan.to_json()) not in self.times}.values())
        for start in range(0, len(new), _BATCH):
            if self._best is not None and self.is_over:
                return
            batch = new[start : start + _BATCH]
            self.measure.compile(batch)
            for plan in batch:
                if self._best is None or not self.is_over:
                    yield plan
            left = max(0.0, self.end - time.monotonic())
            self.progress(f"{len(self.times)} schedules, best {self.best[1]:.2f} us, {left:.0f} s left")

    def time(self, plan: Plan, name: str) -> bool:
        """Measure a plan. Whether it is the fastest one."""
        taken = self.times[plan.to_json()] = self.measure.microseconds(plan)
        if self._best is not None and taken >= self._best[1]:
            return False
        self._best = plan, taken
        self.progress(f"{name}: {taken:.2f} us")
        return True

    def improve(self, model: TimeModel) -> bool:
        """Time the plans around the best one, until a batch of them has a better one. Whether there is one."""
        before = self.best[0]
        for number, plan in enumerate(self.batches(neighbours(before, self.options, model)), 1):
            self.time(plan, _difference(before, plan))
            if number % _BATCH == 0 and self.best[0] is not before:
                break
        return self.best[0] is not before


def _partitioned(graph: Graph, options: Options, regions: Regions) -> Plan:
    """A kernel for each operator, with these regions where there is such a kernel."""
    plan = separate(graph, options.block)
    groups = (
        next((each for each in with_regions(group, options) if each.regions == regions), group) for group in plan.groups
    )
    return replace(plan, groups=tuple(groups))


def _difference(before: Plan, after: Plan) -> str:
    """The groups that are new."""
    known = set(map(str, before.groups))
    return " | ".join(str(group) for group in after.groups if str(group) not in known)
