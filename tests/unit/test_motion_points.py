"""`RegionPoints` compared with the problem that it represents, for one class at a time and all points of RelComp."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from ptxmotion.analysis.graph.dataflow import solve
from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import parse
from ptxmotion.transforms.code_motion.insertion_region import SINK, Arcs, smallest_minimum_region
from ptxmotion.transforms.code_motion.motion_points import Point, RegionPoints, SplitGraph

CLASSES = 5


def kernel_of(choose: random.Random, blocks: int) -> str:
    """A kernel of labelled blocks, some of which end in a branch to any other."""
    lines = [".version 8.0", ".target sm_80", ".address_size 64", ".visible .entry k()", "{", ".reg .pred %p<2>;"]
    for number in range(blocks):
        lines.append(f"$L{number}:")
        if choose.random() < 0.6:
            lines.append(f"@%p1 bra $L{choose.randrange(1, blocks)};")
    return "\n".join([*lines, "ret;", "}", ""])


def some_classes(choose: random.Random, chance: float) -> int:
    return sum((choose.random() < chance) << number for number in range(CLASSES))


@dataclass
class Case:
    """Random sets on a random graph, with the relations that the sets of code motion have."""

    graph: SplitGraph
    weights: list[int]
    kill: list[int]
    phi_kill: list[int]
    computed: list[int]
    may_hold: list[int]
    leaving: list[int]
    required: dict[int, list[Point]]

    @classmethod
    def of(cls, choose: random.Random) -> Case:
        (kernel,) = parse(kernel_of(choose, choose.randint(3, 8))).kernels
        graph = Facts(kernel).get(SplitGraph, graph_only=True)
        nodes = len(graph.cfg.blocks)
        kill, phi_kill, antloc, comp, down = (
            [some_classes(choose, chance) for _ in range(2 * nodes)] for chance in (0.2, 0.1, 0.3, 0.5, 0.8)
        )
        exit_comp = [comp[node] & kill[node] for node in range(nodes)]
        up = solve(
            graph.cfg,
            direction="forward",
            meet="intersection",
            gen=[exit_comp[node] | (antloc[node] & ~kill[node]) for node in range(nodes)],
            kill=[kill[node] | phi_kill[node] for node in range(nodes)],
            boundary=0,
            universe=(1 << CLASSES) - 1,
        )
        weights = [choose.choice([1, 1, 1, 8, 64]) for _ in range(nodes)]
        computed, may_hold = [0] * (2 * nodes), [0] * (2 * nodes)
        required: dict[int, list[Point]] = {}
        for node in graph.cfg.rpo:
            entry, end = 2 * node, 2 * node + 1
            above = up.entry[node] & ~phi_kill[node]
            computed[entry], computed[end] = antloc[node], exit_comp[node]
            may_hold[entry] = (down[entry] | antloc[node]) & ~above
            may_hold[end] = (down[end] | exit_comp[node]) & ~((antloc[node] | above) & ~kill[node])
            for number in range(CLASSES):
                points = [point for point in (entry, end) if computed[point] & may_hold[point] & 1 << number]
                required.setdefault(number, []).extend(points)
        return cls(graph, weights, kill, phi_kill, computed, may_hold, up.exit, required)

    def points(self) -> RegionPoints:
        return RegionPoints(
            self.graph,
            self.weights,
            kill=self.kill,
            phi_kill=self.phi_kill,
            computed=self.computed,
            may_hold=self.may_hold,
            leaving=self.leaving,
        )

    def above(self, point: Point, bit: int) -> list[Point]:
        """The points above ``point``. A region that contains one of them contains all."""
        node = point >> 1
        if point & 1:
            return [point - 1] if self.may_hold[point - 1] & ~self.kill[node] & bit else []
        if node == self.graph.cfg.rpo[0] or self.phi_kill[node] & bit:
            return []
        found = [2 * other + 1 for other in self.graph.before[node] if not self.leaving[other] & bit]
        return found if all(self.may_hold[other] & bit for other in found) else []

    def below(self, point: Point, bit: int) -> list[Point]:
        """The points below ``point`` that a region with ``point`` must contain."""
        if self.computed[point] & bit:
            return []
        if not point & 1:
            return [point + 1] if self.may_hold[point + 1] & bit else []
        after = self.graph.cfg.succ[point >> 1]
        return [2 * each for each in after if self.may_hold[2 * each] & ~self.phi_kill[each] & bit]

    def may_gain(self, bit: int, required: Sequence[Point]) -> bool:
        """Whether some point is above two of ``required``, or is above one of them and has a smaller weight."""
        lowest_of: dict[Point, set[Point]] = {}
        for lowest in required:
            seen, work = {lowest}, [lowest]
            while work:
                for other in self.above(work.pop(), bit):
                    if self.weights[other >> 1] < self.weights[lowest >> 1]:
                        return True
                    if other not in seen:
                        seen.add(other)
                        work.append(other)
            for point in seen:
                lowest_of.setdefault(point, set()).add(lowest)
        return any(len(found) > 1 for found in lowest_of.values())

    def problem(self, bit: int, required: Sequence[Point]) -> dict[Point, Arcs]:
        """The whole problem, with all points that a region can contain."""
        paid: dict[Point, tuple[int, int]] = {}
        implied: dict[Point, list[Point]] = {}
        work = list(required)
        while work:
            point = work.pop()
            if point in paid:
                continue
            above, below = self.above(point, bit), self.below(point, bit)
            paid[point] = (above[0] if above else SINK, self.weights[point >> 1])
            for tail, head in zip(above, [*above[1:], *above[:1]], strict=True):
                implied.setdefault(tail, []).append(head)
            implied.setdefault(point, []).extend(below)
            work += above + below
        return {point: (*paid[point], implied[point]) for point in paid}


@pytest.mark.parametrize("chunk", range(4))
def test_what_cannot_gain_has_no_cheaper_region(chunk: int) -> None:
    rewritten = 0
    for seed in range(chunk * 100, chunk * 100 + 100):
        case = Case.of(random.Random(seed))
        points = case.points()
        gaining = points.gaining(case.required)
        for number, required in case.required.items():
            bit = 1 << number
            assert bool(gaining & bit) == case.may_gain(bit, required), f"seed {seed}"
            if required and not gaining & bit:
                rewritten += 1
                cost = sum(case.weights[point >> 1] for point in required)
                assert smallest_minimum_region(required, points.arcs(number), below=cost) is None, f"seed {seed}"
    assert rewritten > 100


@pytest.mark.parametrize("chunk", range(4))
def test_regions_are_those_of_the_whole_problem(chunk: int) -> None:
    rewritten = 0
    for seed in range(chunk * 100, chunk * 100 + 100):
        case = Case.of(random.Random(seed))
        points = case.points()
        for number, required in case.required.items():
            whole = smallest_minimum_region(required, case.problem(1 << number, required).__getitem__)
            region = smallest_minimum_region(required, points.arcs(number))
            assert whole is not None and region is not None
            assert region.earliest == whole.earliest, f"seed {seed}"
            assert {point for point in region.points if point < 2 * len(case.weights)} == whole.points, f"seed {seed}"
            rewritten += whole.points != set(required)
    assert rewritten > 100
