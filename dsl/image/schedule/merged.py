"""Plans in which one kernel computes groups that do not need each other.

The searches compare few groups of operators without an edge or a common input (`dynamic.regrouped`), and no group of
more than `dynamic.MOST_OF_GROUP` operators. So branches of a graph that have the same size, such as the planes of a
grid or the pyramids of several levels of brightness, may get kernels of their own, which are too small to fill a GPU
and wait for each other. `with_groups_merged` puts two such groups into one kernel as long as
this is faster by the model. The kernel has the tiles of both, and the block and the pixels of a thread of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import DslError
from ..groups import Group, Plan, groups_of
from ..lowered import Options
from ..operators import Node
from .counted import Work
from .dynamic import MOST_OF_GROUP
from .known import KnownMembers
from .shapes import shapes
from .work import work_of

__all__ = ["with_groups_merged"]

#: The most operators of a merged group.
MOST_MERGED = 40

Cost = Callable[[Work], float]


def with_groups_merged(plan: Plan, options: Options, cost: Cost, known: KnownMembers | None = None) -> Plan:
    """The plan after the merges that make it faster, the best one first. ``known``: what searches of its graph have
    computed."""
    merger = _Merger(plan, options, cost, known or KnownMembers(plan.graph, options))
    while (best := merger.best()) is not None:
        merger.merge(*best)
    return merger.plan() if len(merger.groups) < len(plan.groups) else plan


@dataclass
class _Merger:
    """The groups of ``start`` while they are merged."""

    start: Plan
    options: Options
    cost: Cost
    known: KnownMembers
    #: The groups, in any order.
    groups: list[Group] = field(init=False)
    #: By operators: what a group of them costs.
    _costs: dict[Group, float] = field(default_factory=dict[Group, float])
    #: By two groups: the best group of the operators of both. None if there is none.
    _pairs: dict[tuple[Group, Group], Group | None] = field(default_factory=dict[Any, "Group | None"])

    def __post_init__(self) -> None:
        self.groups = list(self.start.groups)
        #: By operator: all operators that it is computed from.
        self._needs: dict[Node[Any], frozenset[Node[Any]]] = {}
        for node in self.start.graph.nodes:
            read = [access.image for access in node.accesses if isinstance(access.image, Node)]
            self._needs[node] = frozenset(read).union(*(self._needs[each] for each in read))

    def best(self) -> tuple[Group, Group, Group] | None:
        """The two groups to merge, and the group of both. None if no merge makes the plan faster."""
        found: tuple[float, Group, Group, Group] | None = None
        for at, one in enumerate(self.groups):
            for other in self.groups[at + 1 :]:
                made = self._merged(one, other)
                if made is None:
                    continue
                gain = self._cost(one) + self._cost(other) - self._cost(made)
                if gain > 0 and (found is None or gain > found[0]) and self._has_order(one, other):
                    found = gain, one, other, made
        return found[1:] if found is not None else None

    def merge(self, one: Group, other: Group, made: Group) -> None:
        self.groups = [made if group is one else group for group in self.groups if group is not other]

    def plan(self) -> Plan:
        """The plan of the groups, in an order in which they can be computed."""
        by_nodes = {frozenset(group.nodes): group for group in self.groups}
        ordered = groups_of(self.start.graph, [list(group.nodes) for group in self.groups])
        return Plan(self.start.graph, tuple(self._in_best_shape(by_nodes[frozenset(nodes)]) for nodes in ordered))

    def _in_best_shape(self, group: Group) -> Group:
        """The group, or if it was merged, the fastest one of these operators in any shape that the searches try."""
        if group in self.start.groups or len(group.nodes) > MOST_OF_GROUP:
            return group
        return min((group, *shapes(self.known.of(group.nodes))), key=self._cost)

    def _cost(self, group: Group) -> float:
        if group not in self._costs:
            self._costs[group] = self.cost(work_of(self.known.of(group.nodes), group))
        return self._costs[group]

    def _merged(self, one: Group, other: Group) -> Group | None:
        if (one, other) not in self._pairs:
            self._pairs[one, other] = min(self._made(one, other), key=self._cost, default=None)
        return self._pairs[one, other]

    def _made(self, one: Group, other: Group) -> Iterator[Group]:
        """The legal groups of the operators of both."""
        spaces = [group.stored[0].space for group in (one, other)]
        same = len({(int(each.width), int(each.height), each.x0, each.y0) for each in spaces}) == 1
        special = any(group.regions or group.nodes[0].operator.kind == "global" for group in (one, other))
        if special or not same or len(one.nodes) + len(other.nodes) > MOST_MERGED or not self._are_apart(one, other):
            return
        inside = {*one.nodes, *other.nodes}
        members = self.known.of(tuple(node for node in self.start.graph.nodes if node in inside))
        if members.problem:
            return
        for group in (one, other):
            kinds = {each.kind for each in (one, other) if each.tiled or each.kind == "lanes"}
            if kinds <= {group.kind}:
                made = replace(group, nodes=members.nodes, tiled=one.tiled | other.tiled)
                if members.is_legal(made):
                    yield made

    def _are_apart(self, one: Group, other: Group) -> bool:
        """Whether no operator of a group needs one of the other group."""
        needs = [frozenset[Node[Any]]().union(*(self._needs[node] for node in group.nodes)) for group in (one, other)]
        return needs[0].isdisjoint(other.nodes) and needs[1].isdisjoint(one.nodes)

    def _has_order(self, one: Group, other: Group) -> bool:
        """Whether the kernels can be run in some order after the merge. Both groups may be apart, and others that were
        merged before may need one and be needed by the other."""
        rest = [group.nodes for group in self.groups if group is not one and group is not other]
        try:
            groups_of(self.start.graph, [*rest, (*one.nodes, *other.nodes)])
        except DslError:
            return False
        return True
