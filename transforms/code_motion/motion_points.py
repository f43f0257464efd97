"""The program points of sparse code motion, and where regions may go on from each.

`SplitGraph` is the CFG with a node on every critical edge; each of its nodes has two points. `RegionPoints` says, for
all expression classes at once, which points a region R ⊆ DnSafe \\ UpSafe that holds a point may or must hold besides;
for one class it gives the minimum-cut problem (`insertion_region.py`), over the points that RelComp can draw in.

Most classes have nothing to gain, which is found without that problem. In a region that is closed, walking up from a
point of RelComp leads to an earliest point. Where no point above one of RelComp is lighter than it, and none is above
two of them, these earliest points are as many and as heavy as RelComp, so no region costs less than the code as it is.
`_Labels` finds that for all classes at once.

Reference: thesis §4.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from ...analysis.graph.block_weights import NEVER
from ...analysis.graph.cfg import Cfg
from ...analysis.graph.dataflow import bits
from ...analysis.manager import Facts
from ...ptx import Block
from .edges import EdgeInserter
from .insertion_region import SINK, UNLIMITED, Arcs

__all__ = ["Point", "RegionPoints", "SplitGraph"]

#: A program point: twice its node, and 1 more for the exit part X(b). Nodes past the blocks are critical edges.
Point: TypeAlias = int


class SplitGraph:
    """The CFG with a node on every critical edge. ``edge`` of such a node is (block, successor). It follows from the
    CFG alone: ask through `Facts.get`."""

    def __init__(self, facts: Facts) -> None:
        cfg = facts.cfg
        inserter = EdgeInserter(facts.kernel, cfg)
        count = len(cfg.blocks)
        succ = [list(successors) for successors in cfg.succ]
        self.edge: dict[int, tuple[int, int]] = {}
        exits = set(cfg.exits)
        for block in cfg.rpo:
            ways = len(cfg.succ[block]) + (block in exits)
            for position, successor in enumerate(cfg.succ[block]):
                is_critical = ways > 1 and (len(cfg.pred[successor]) > 1 or successor == cfg.rpo[0])
                if is_critical and inserter.is_possible(block, successor):
                    node = count + len(self.edge)
                    self.edge[node] = (block, successor)
                    succ[block][position] = node
                    succ.append([successor])
        blocks = [*cfg.blocks, *(Block() for _ in self.edge)]
        self.cfg = Cfg(blocks, succ, cfg.exits)
        reachable = self.cfg.reachable
        #: The reachable predecessors.
        self.before = [[other for other in others if reachable[other]] for others in self.cfg.pred]
        # In units in which the least weight there is counts as well: the minimum cut is one of integers.
        weight = [round(each / NEVER) for each in facts.block_weights]
        self.weight = [*weight, *(min(weight[i], weight[j]) for i, j in self.edge.values())]


class RegionPoints:
    """By point, sets of class numbers: ``rises`` are those whose regions, where they hold the point, may go on above
    it; ``falls`` those whose regions go on below it, since it has no computation of them."""

    def __init__(
        self,
        graph: SplitGraph,
        weights: Sequence[int],
        *,
        kill: Sequence[int],
        phi_kill: Sequence[int],
        computed: Sequence[int],
        may_hold: Sequence[int],
        leaving: Sequence[int],
    ) -> None:
        """``weights``, ``kill``, ``phi_kill`` and ``leaving``, which is available at the end, by node; ``computed`` and
        ``may_hold``, which is DnSafe \\ UpSafe, by point."""
        self._weights = weights
        self._leaving = leaving
        self._order = graph.cfg.backward.position
        self._before = graph.before
        self._succ = graph.cfg.succ
        count = len(graph.before)
        self.rises = rises = [0] * (2 * count)
        self._falls = falls = [0] * (2 * count)
        #: By node, those whose regions may hold its entry part where they hold the end of a predecessor.
        self._enters = [may_hold[2 * node] & ~phi_kill[node] for node in range(count)]
        root = graph.cfg.rpo[0]
        for node in graph.cfg.rpo:
            entry, end = 2 * node, 2 * node + 1
            if node != root:
                everywhere, somewhere = -1, 0
                for other in graph.before[node]:
                    everywhere &= leaving[other] | may_hold[2 * other + 1]
                    somewhere |= ~leaving[other]
                rises[entry] = everywhere & somewhere & ~phi_kill[node]
            rises[end] = may_hold[entry] & ~kill[node]
            falls[entry] = may_hold[end] & ~computed[entry]
            falls[end] = ~computed[end]

    def gaining(self, required: Mapping[int, Sequence[Point]]) -> int:
        """The classes that have a point above two of the ``required`` ones, which are given by class, or above one and
        lighter; see the module's header."""
        return _Labels(required, self._weights).spread(self._above, self._order)

    def _above(self, point: Point, classes: int) -> list[tuple[Point, int]]:
        """The points above ``point`` for any of ``classes``, each with these: a region of such a class with one of
        them has them all."""
        classes &= self.rises[point]
        if not classes:
            return []
        if point & 1:
            return [(point - 1, classes)]
        leaving = self._leaving
        found = [(2 * other + 1, classes & ~leaving[other]) for other in self._before[point >> 1]]
        return [each for each in found if each[1]]

    def arcs(self, number: int) -> Callable[[Point], Arcs]:
        """The region problem of one class. Where a node has several predecessors, another point, past all of the graph,
        stands for what is above its entry part: each of those points implies it, and it implies them.

        Each of them also implies the entry part: it has no computation, which would be available at its end. So the
        arcs of a point follow from the sets there, whichever points RelComp draws in.
        """
        bit = 1 << number
        rises, falls, enters, leaving = self.rises, self._falls, self._enters, self._leaving
        before, succ, weights = self._before, self._succ, self._weights
        joint = 2 * len(before)

        @cache
        def arcs(point: Point) -> Arcs:
            if point >= joint:
                node = point - joint
                first, *others = [2 * other + 1 for other in before[node] if not leaving[other] & bit]
                return first, UNLIMITED, [2 * node, *others]
            node = point >> 1
            implied: list[Point] = []
            if falls[point] & bit:
                if point & 1:
                    is_above = not leaving[node] & bit
                    for each in succ[node]:
                        if enters[each] & bit:
                            is_joint = is_above and len(before[each]) > 1 and rises[2 * each] & bit
                            implied.append(joint + each if is_joint else 2 * each)
                else:
                    implied.append(point + 1)
            if not rises[point] & bit:
                return SINK, weights[node], implied
            if point & 1:
                return point - 1, weights[node], implied
            others = before[node]
            return joint + node if len(others) > 1 else 2 * others[0] + 1, weights[node], implied

        return arcs


class _Labels:
    """Which of the required points each point is above, for many classes at once and as far as it is one for a class:
    its number among those of the class, in binary, digit by digit, with the classes for which that digit is 1.

    A class comes to a point once, and is looked at once on each way up from it, so that all that is found depends on no
    order: where two labels come to a point, they differ between the ends of some arc, and where none do, each point
    has one. Points that no class comes to cost nothing.
    """

    def __init__(self, required: Mapping[int, Sequence[Point]], weights: Sequence[int]) -> None:
        self._weights = weights
        digits = max([len(points) - 1 for points in required.values()], default=0).bit_length()
        #: By point the classes that have come to it, their labels, and the classes by weight of what it is above.
        self._reached: dict[Point, int] = {}
        self._labels: dict[Point, list[int]] = {}
        self._heavy: dict[Point, dict[int, int]] = {}
        for number, points in required.items():
            bit = 1 << number
            for label, point in enumerate(points):
                known = self._reached.get(point)
                if known is None:
                    known, self._labels[point], self._heavy[point] = 0, [0] * digits, {weights[point >> 1]: 0}
                self._reached[point] = known | bit
                self._heavy[point][weights[point >> 1]] |= bit
                labels = self._labels[point]
                for digit in bits(label):
                    labels[digit] |= bit

    def spread(self, above: Callable[[Point, int], Iterable[tuple[Point, int]]], position: Sequence[int]) -> int:
        """Let the labels spread upwards; the classes that have something to gain. ``position`` is a good order of the
        nodes."""
        reached, pending = self._reached, dict(self._reached)
        point_at = {2 * position[point >> 1] + (~point & 1): point for point in reached}
        queue = list(point_at)
        heapq.heapify(queue)
        gaining = 0
        while queue:
            point = point_at[heapq.heappop(queue)]
            for other, classes in above(point, pending.pop(point) & ~gaining):
                known = reached.get(other, 0)
                again, new = classes & known, classes & ~known
                if again:
                    for here, there in zip(self._labels[point], self._labels[other], strict=True):
                        gaining |= (here ^ there) & again
                if new:
                    gaining |= self._pass_on(point, other, new)
                    if other not in pending:
                        pending[other] = 0
                        at = 2 * position[other >> 1] + (~other & 1)
                        point_at[at] = other
                        heapq.heappush(queue, at)
                    pending[other] |= new
        return gaining

    def _pass_on(self, point: Point, other: Point, new: int) -> int:
        """Let what ``other`` is above be what ``point`` is above, for the classes ``new``; those for which it is
        lighter than that."""
        weight = self._weights[other >> 1]
        if other in self._reached:
            labels, heavy = self._labels[other], self._heavy[other]
            self._labels[other] = [
                there | (here & new) for here, there in zip(self._labels[point], labels, strict=True)
            ]
        else:
            heavy = self._heavy[other] = {}
            self._labels[other] = [here & new for here in self._labels[point]]
        self._reached[other] = self._reached.get(other, 0) | new
        lighter = 0
        for each, classes in self._heavy[point].items():
            if classes & new:
                heavy[each] = heavy.get(each, 0) | (classes & new)
                if weight < each:
                    lighter |= classes & new
        return lighter
