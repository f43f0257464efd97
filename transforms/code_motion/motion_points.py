"""The program points of sparse code motion, and how regions extend from each.

`SplitGraph` is the CFG with a node on every critical edge; each of its nodes has two points. `RegionPoints` computes,
for all expression classes at once, which other points a region R ⊆ DnSafe \\ UpSafe that contains a point may or must
contain. For one class it gives the minimum-cut problem (`insertion_region.py`) on the points that RelComp can imply.

Most classes have no gain, which `_Labels` finds for all classes at once, without that problem: in a closed region, each
path upwards from a point of RelComp leads to an earliest point. If no point above a point of RelComp has less weight,
and no point is above two of them, the earliest points are as many and as heavy as RelComp. Then no region costs less
than the present code.

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

#: A program point: 2·node for the entry part N(b), 2·node + 1 for the exit part X(b). Nodes after the blocks are
#: critical edges.
Point: TypeAlias = int


class SplitGraph:
    """The CFG with a node on every critical edge. ``edge`` maps such a node to its (block, successor). It depends on
    the CFG alone; a fact for `Facts.get`."""

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
        # The minimum cut needs integers, so the unit is the smallest weight.
        weight = [round(each / NEVER) for each in facts.block_weights]
        self.weight = [*weight, *(min(weight[i], weight[j]) for i, j in self.edge.values())]


class RegionPoints:
    """How regions extend from each point, for all classes at once.

    ``rises`` has for each point the classes for which a region with the point may also contain the points above it.
    ``_falls`` has the classes for which such a region must contain the points below it, because the class is not
    computed at the point.
    """

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
        """``weights``, ``kill``, ``phi_kill`` and ``leaving`` (available at the end) are by node. ``computed`` and
        ``may_hold`` (DnSafe \\ UpSafe) are by point."""
        self._weights = weights
        self._leaving = leaving
        self._order = graph.cfg.backward.position
        self._before = graph.before
        self._succ = graph.cfg.succ
        count = len(graph.before)
        self.rises = rises = [0] * (2 * count)
        self._falls = falls = [0] * (2 * count)
        #: By node: the classes whose regions may contain its entry part if they contain the end of a predecessor.
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
        """The classes with a point above two of their ``required`` points, or with a lighter point above one of them.
        ``required``: by class number its points; see the header of the module."""
        return _Labels(required, self._weights).spread(self._above, self._order)

    def _above(self, point: Point, classes: int) -> list[tuple[Point, int]]:
        """Each point directly above ``point``, with those of ``classes`` for which a region that contains ``point`` may
        extend to it. A region of such a class contains all or none of these points."""
        classes &= self.rises[point]
        if not classes:
            return []
        if point & 1:
            return [(point - 1, classes)]
        leaving = self._leaving
        above = [(2 * other + 1, classes & ~leaving[other]) for other in self._before[point >> 1]]
        return [each for each in above if each[1]]

    def arcs(self, number: int) -> Callable[[Point], Arcs]:
        """The region problem of one class. If a node has several predecessors, an additional point, numbered after the
        points of the graph, represents the points above its entry part: each of those points implies it, and it implies
        each of them.

        Each of them also implies the entry part: it has no computation, which would be available at its end. So the
        arcs of a point depend only on the sets at the point, not on RelComp.
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
    """Which required point each point is above, for many classes at once.

    The label of a point for a class is the number of one required point of the class that the point is above. Labels
    are stored by binary digit: for each digit the classes for which it is 1. A class reaches a point once and is tested
    once on each arc upwards from it, so that the result does not depend on the order: if two labels reach a point, they
    differ between the ends of some arc; otherwise each point has one label. Unreached points cost nothing.
    """

    def __init__(self, required: Mapping[int, Sequence[Point]], weights: Sequence[int]) -> None:
        self._weights = weights
        digits = max([len(points) - 1 for points in required.values()], default=0).bit_length()
        #: By point: the classes that reached it, as bits.
        self._reached: dict[Point, int] = {}
        #: By point and binary digit: the classes whose label at the point has this digit set, as bits.
        self._labels: dict[Point, list[int]] = {}
        #: By point and weight: the classes whose label comes from a required point of this weight, as bits.
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
        """Propagate the labels upwards; the classes with a possible gain. ``position`` maps a node to its rank in the
        order in which nodes are visited."""
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
        """Propagate the labels of the classes ``new`` from ``point`` to ``other``; those of the classes for which
        ``other`` is lighter than the required point."""
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
