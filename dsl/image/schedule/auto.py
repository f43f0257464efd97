"""The schedule that the models choose, and schedules by name.

Two searches of papers make plans: dynamic programming with the cost function of Jangda and Guha (`paper`), and greedy
grouping (`greedy`). Dynamic programming with the model of time (`dynamic`) and the search of fusion (`fused`) make two
more, and the last one has a kernel for each operator (`separate`). The model of time is that of all searches, so their
plans can be compared: ``auto`` is the plan with the least time, and never slower than a kernel for each operator.
All but `separate` plan the graph in which costly functions of single pixels have images (`fusion.pixel_images`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....spelling import did_you_mean
from ...errors import DslError
from ..fusion.pixel_images import with_pixel_images
from ..fusion.planning import plan_by_model
from ..graph import Graph
from ..group_lowering import lower_plan
from ..groups import Plan, plan_from_json, separate
from ..lowered import Lowered, Options
from .copied_points import with_points_copied
from .costs import Model, TimeModel, paper_model, time_model
from .dynamic import Chooser, dynamic_plan
from .greedy import greedy_plan
from .known import KnownMembers
from .merged import with_groups_merged
from .work import work_of

__all__ = ["SCHEDULES", "Candidate", "auto", "auto_plan", "candidates", "microseconds", "scheduled"]


@dataclass(frozen=True)
class Candidate:
    """A plan, what made it, and its time by the model in microseconds."""

    name: str
    plan: Plan
    microseconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.microseconds:.2f} us by the model, {len(self.plan.groups)} kernels"


def microseconds(plan: Plan, options: Options, model: Model | TimeModel, known: KnownMembers | None = None) -> float:
    """The time of a plan by a model. ``known``: what searches of the graph have computed."""
    known = known or KnownMembers(plan.graph, options)
    members = [known.of(group.nodes) for group in plan.groups]
    return sum(model(work_of(each, group)) for each, group in zip(members, plan.groups, strict=True))


def _paper(graph: Graph, options: Options) -> Plan:
    return dynamic_plan(Chooser(with_pixel_images(graph), options, paper_model()))[0]


def _dynamic(graph: Graph, options: Options) -> Plan:
    model = time_model()
    plan, _ = dynamic_plan(Chooser(with_pixel_images(graph), options, model), regroup=True)
    return with_groups_merged(with_points_copied(plan, options, model), options, model)


def candidates(graph: Graph, options: Options) -> list[Candidate]:
    """The plans that are compared, the fastest by the model first."""
    model, searched, works = time_model(), with_pixel_images(graph), dict[Any, Any]()
    known = KnownMembers(searched, options)
    plan, _ = dynamic_plan(Chooser(searched, options, model, works, known), regroup=True)
    by_time = with_points_copied(plan, options, model)
    plans = {
        "dynamic": with_groups_merged(by_time, options, model, known if by_time.graph is searched else None),
        "paper": dynamic_plan(Chooser(searched, options, paper_model(), works, known))[0],
        "greedy": greedy_plan(searched, options, known),
        "fused": plan_by_model(searched, options, known=known),
        "separate": separate(graph, options.block),
    }
    made = [
        Candidate(name, plan, microseconds(plan, options, model, known if plan.graph is searched else None))
        for name, plan in plans.items()
    ]
    return sorted(made, key=lambda each: each.microseconds)


def auto_plan(graph: Graph, options: Options) -> Plan:
    """The best plan by the model."""
    return candidates(graph, options)[0].plan


def auto(graph: Graph, options: Options) -> Lowered:
    """One kernel for each group of the best plan by the model."""
    return lower_plan(auto_plan(graph, options), options, "auto")


#: By name: the function that makes a plan.
SCHEDULES: Mapping[str, Callable[[Graph, Options], Plan]] = {
    "auto": auto_plan,
    "dynamic": _dynamic,
    "paper": _paper,
    "greedy": lambda graph, options: greedy_plan(with_pixel_images(graph), options),
    "fused": plan_by_model,
    "separate": lambda graph, options: separate(graph, options.block),
}


def scheduled(graph: Graph, options: Options, schedule: str) -> Plan:
    """The plan of a graph by the name of a schedule, or from its JSON (`Plan.to_json`). Raises `DslError` if it is not
    legal."""
    if schedule in SCHEDULES:
        return SCHEDULES[schedule](graph, options)
    if not schedule.lstrip().startswith(("{", "[")):
        hint = did_you_mean(schedule, SCHEDULES)
        raise DslError(f"there is no schedule {schedule!r}{hint}; there are {', '.join(SCHEDULES)}, and JSON")
    return plan_from_json(graph, schedule, options)
