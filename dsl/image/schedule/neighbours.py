"""Plans that differ a little from a plan: another shape of a group, regions, two groups merged, a group split.

`neighbours` gives them in the order of their time by the model, so that a search by time measures those first that are
most likely to help. Two groups are merged if one of them reads the other or both read an image. A group is split into
what can be computed first and the rest, in every way for few operators, and otherwise after each of its operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...errors import DslError
from ..groups import Group, Plan, groups_of
from ..lowered import Options
from ..operators import Image, Node
from .costs import Model, TimeModel
from .shapes import shapes, with_regions
from .work import Members, work_of

__all__ = ["neighbours"]

#: Shapes of a group, of a merged group, and of each part of a split one.
_OWN, _MERGED, _PARTS = 32, 6, 2

#: The most operators of a group that is split in every way.
_FEW = 6


def neighbours(plan: Plan, options: Options, model: Model | TimeModel) -> list[Plan]:
    """The plans around a plan, those with the least time by the model first."""
    around = _Around(plan, options, model)
    found = [*around.other_shapes(), *around.regions(), *around.merged(), *around.split()]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


class _Around:
    def __init__(self, plan: Plan, options: Options, model: Model | TimeModel) -> None:
        self.plan, self.options, self.model = plan, options, model
        self.times = [self._time(group) for group in plan.groups]
        #: By operators: their best groups and the times of these, the best one first.
        self._best: dict[tuple[Node[Any], ...], list[tuple[float, Group]]] = {}

    def _time(self, group: Group) -> float:
        return self.model(work_of(Members(self.plan.graph, group.nodes, self.options), group))

    def best(self, nodes: tuple[Node[Any], ...], count: int) -> list[tuple[float, Group]]:
        """At most ``count`` groups of some operators, with their times. Empty if no kernel can compute them."""
        if nodes not in self._best:
            members = Members(self.plan.graph, nodes, self.options)
            found = [(self.model(work_of(members, group)), group) for group in shapes(members)]
            self._best[nodes] = sorted(found, key=lambda pair: pair[0])
        return self._best[nodes][:count]

    def other_shapes(self) -> Iterator[tuple[float, Plan]]:
        for at, group in enumerate(self.plan.groups):
            for time, made in self.best(group.nodes, _OWN):
                yield sum(self.times) - self.times[at] + time, self._changed(at, made)

    def regions(self) -> Iterator[tuple[float, Plan]]:
        """The plans in which a group has regions. The model does not know what regions save."""
        for at, group in enumerate(self.plan.groups):
            for made in with_regions(group, self.options):
                yield sum(self.times) - self.times[at] + self._time(made), self._changed(at, made)

    def _changed(self, at: int, group: Group) -> Plan:
        return replace(self.plan, groups=(*self.plan.groups[:at], group, *self.plan.groups[at + 1 :]))

    def merged(self) -> Iterator[tuple[float, Plan]]:
        groups = self.plan.groups
        for second in range(len(groups)):
            for first in range(second):
                if not _share(groups[first], groups[second]):
                    continue
                nodes = _in_order(self.plan, (*groups[first].nodes, *groups[second].nodes))
                kept = [group for at, group in enumerate(groups) if at not in (first, second)]
                rest = sum(self.times) - self.times[first] - self.times[second]
                yield from self._with(kept, [[each] for each in self.best(nodes, _MERGED)], rest)

    def split(self) -> Iterator[tuple[float, Plan]]:
        for at, group in enumerate(self.plan.groups):
            kept = [each for each in self.plan.groups if each is not group]
            for part in _parts(group):
                others = tuple(node for node in group.nodes if node not in part)
                halves = [self.best(part, _PARTS), self.best(others, _PARTS)]
                pairs = [[first, second] for first in halves[0] for second in halves[1]]
                yield from self._with(kept, pairs, sum(self.times) - self.times[at])

    def _with(
        self, kept: Sequence[Group], choices: Sequence[Sequence[tuple[float, Group]]], rest: float
    ) -> Iterator[tuple[float, Plan]]:
        """The plans with some groups, and with each of some choices of others that take the place of the rest."""
        for chosen in choices:
            by_nodes = {group.nodes: group for group in (*kept, *(group for _, group in chosen))}
            try:
                order = groups_of(self.plan.graph, [*by_nodes])
            except DslError:
                return  # groups need each other
            groups = tuple(by_nodes[nodes] for nodes in order)
            yield rest + sum(time for time, _ in chosen), replace(self.plan, groups=groups)


def _share(first: Group, second: Group) -> bool:
    """Whether one of the groups reads the other, or both read an image."""
    read = [{access.image for node in group.nodes for access in node.accesses} for group in (first, second)]
    return bool(read[1] & {*first.nodes} or read[0] & {*second.nodes} or read[0] & read[1])


def _in_order(plan: Plan, nodes: Sequence[Node[Any]]) -> tuple[Node[Any], ...]:
    chosen = set(nodes)
    return tuple(node for node in plan.graph.nodes if node in chosen)


def _parts(group: Group) -> Iterator[tuple[Node[Any], ...]]:
    """The first parts of a group that do not need the rest of it. With many operators, those of the first ones."""
    nodes = group.nodes
    if len(nodes) > _FEW:
        yield from (nodes[:count] for count in range(1, len(nodes)))
        return
    for number in range(1, (1 << len(nodes)) - 1):
        part = tuple(node for at, node in enumerate(nodes) if number >> at & 1)
        known: set[Image[Any]] = {*part}
        if all(access.image in known or access.image not in nodes for node in part for access in node.accesses):
            yield part
