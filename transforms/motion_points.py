"""The program points of sparse code motion, and where regions may go on from each.

`SplitGraph` is the CFG with a node on every critical edge; each of its nodes has two points. `RegionPoints` says, for
all expression classes at once, which points a region R ⊆ DnSafe \\ UpSafe that holds a point may or must hold besides;
for one class it gives the minimum-cut problem (`insertion_region.py`), over the points that RelComp can draw in.

Most classes have nothing to gain, which is found without that problem. In a region that is closed, walking up from a
point of RelComp leads to an earliest point. Where no point above one of RelComp is lighter than it, and none is above
two of them, these earliest points are as many and as heavy as RelComp, so no region costs less than the code as it is.

Reference: thesis §4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..analysis.block_weights import NEVER
from ..analysis.cfg import Cfg
from ..analysis.manager import Facts
from ..ptx import Block
from .edges import EdgeInserter
from .insertion_region import RegionProblem

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

    def _above(self, point: Point, bit: int) -> list[Point]:
        """The points above ``point``: a region with one of them has them all."""
        if not self.rises[point] & bit:
            return []
        if point & 1:
            return [point - 1]
        leaving = self._leaving
        return [2 * other + 1 for other in self._before[point >> 1] if not leaving[other] & bit]

    def may_gain(self, number: int, required: Sequence[Point]) -> bool:
        """Whether some point is above two of ``required``, or is above one and lighter; see the module's header."""
        bit, weights = 1 << number, self._weights
        #: Of each point found, the required one that it is above.
        below = {point: point for point in required}
        queue = list(required)
        for point in queue:  # which grows
            lowest = below[point]
            for other in self._above(point, bit):
                known = below.get(other)
                if known is None:
                    if weights[other >> 1] < weights[lowest >> 1]:
                        return True
                    below[other] = lowest
                    queue.append(other)
                elif known != lowest:
                    return True
        return False

    def problem(self, number: int, required: Sequence[Point]) -> RegionProblem:
        """The region problem of one class, over the points that RelComp can draw in."""
        bit = 1 << number
        problem = RegionProblem(list(required))
        costs, implications, weights = problem.costs, problem.implications, self._weights
        falls, succ, enters = self._falls, self._succ, self._enters
        seen = set(required)
        work = list(required)
        while work:
            point = work.pop()
            node = point >> 1
            found = self._above(point, bit)
            costs.append((point, found[0] if found else None, weights[node]))
            if len(found) > 1:
                implications += zip(found, [*found[1:], found[0]], strict=True)
            if falls[point] & bit:
                after = [2 * each for each in succ[node] if enters[each] & bit] if point & 1 else [point + 1]
                for other in after:
                    implications.append((point, other))
                found += after
            for other in found:
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        return problem
