"""The schedule that is fastest on a GPU, within a budget of seconds.

First the plans of all models are timed (`auto.candidates`), and the one with regions for each operator that checks
indices. Then the groups of the best plan are changed one at a time: regions; other tiles, blocks, pixels of a thread
and registers, in the order of their time by the model. A change that helps is kept. The time of each plan is measured
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..graph import Graph
from ..groups import Group, Plan, separate
from ..lowered import Options
from .auto import candidates
from .costs import Model, model_here
from .shapes import shapes, with_regions
from .work import Members, work_of

__all__ = ["Measure", "Tuned", "tune"]

#: Plans that are compiled together, and changes of a group that are timed.
_BATCH = 8
_CHANGES = 32


class Measure(Protocol):
    """Times plans, such as `timing.Timer`."""

    def compile(self, plans: Sequence[Plan]) -> None: ...

    def microseconds(self, plan: Plan) -> float: ...


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
    found["isp"] = _partitioned(graph, options)
    for plan in search.batches([*found.values()]):
        search.time(plan, next(name for name, each in found.items() if each is plan))
    model = model_here("time")
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

    def improve(self, model: Model) -> bool:
        """Time changes of each group of the best plan. Whether one of them is faster."""
        found = False
        for at in range(len(self.best[0].groups)):
            for plan in self.batches(self._changes(at, model)):
                found = self.time(plan, f"{plan.groups[at]}") or found
        return found

    def _changes(self, at: int, model: Model) -> list[Plan]:
        plan = self.best[0]
        members = Members(plan.graph, plan.groups[at].nodes, self.options)
        groups = sorted(shapes(members), key=lambda group: model(work_of(members, group)))[:_CHANGES]
        return [_with(plan, at, group) for group in (*with_regions(plan.groups[at], self.options), *groups)]


def _partitioned(graph: Graph, options: Options) -> Plan:
    """A kernel for each operator, with regions if it checks indices."""
    plan = separate(graph, options.block)
    return replace(plan, groups=tuple(next(with_regions(group, options), group) for group in plan.groups))


def _with(plan: Plan, at: int, group: Group) -> Plan:
    return replace(plan, groups=(*plan.groups[:at], group, *plan.groups[at + 1 :]))
