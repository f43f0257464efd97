"""What `RegionPoints` leaves out has nothing to gain: the minimum cut says the same."""

from __future__ import annotations

import random

import pytest
from ptxmotion.analysis.dataflow import solve
from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import parse
from ptxmotion.transforms.insertion_region import smallest_minimum_region
from ptxmotion.transforms.motion_points import RegionPoints, SplitGraph


def kernel_of(choose: random.Random, blocks: int) -> str:
    """A kernel of labelled blocks, some of which end in a branch to any other."""
    lines = [".version 8.0", ".target sm_80", ".address_size 64", ".visible .entry k()", "{", ".reg .pred %p<2>;"]
    for number in range(blocks):
        lines.append(f"$L{number}:")
        if choose.random() < 0.6:
            lines.append(f"@%p1 bra $L{choose.randrange(1, blocks)};")
    return "\n".join([*lines, "ret;", "}", ""])


@pytest.mark.parametrize("chunk", range(4))
def test_what_cannot_gain_has_no_cheaper_region(chunk: int) -> None:
    told = 0
    for seed in range(chunk * 100, chunk * 100 + 100):
        choose = random.Random(seed)
        (kernel,) = parse(kernel_of(choose, choose.randint(3, 8))).kernels
        facts = Facts(kernel)
        graph = facts.get(SplitGraph, graph_only=True)
        nodes = len(graph.cfg.blocks)
        kill, phi_kill, antloc, comp, down = (
            [int(choose.random() < chance) for _ in range(2 * nodes)] for chance in (0.2, 0.1, 0.3, 0.5, 0.8)
        )
        exit_comp = [comp[node] & kill[node] for node in range(nodes)]
        up = solve(
            graph.cfg,
            direction="forward",
            meet="intersection",
            gen=[exit_comp[node] | (antloc[node] & ~kill[node]) for node in range(nodes)],
            kill=[kill[node] | phi_kill[node] for node in range(nodes)],
            boundary=0,
            universe=1,
        )
        computed, may_hold = [0] * (2 * nodes), [0] * (2 * nodes)
        required: list[int] = []
        for node in graph.cfg.rpo:
            entry, end = 2 * node, 2 * node + 1
            above = up.entry[node] & ~phi_kill[node]
            computed[entry], computed[end] = antloc[node], exit_comp[node]
            may_hold[entry] = (down[entry] | antloc[node]) & ~above
            may_hold[end] = (down[end] | exit_comp[node]) & ~((antloc[node] | above) & ~kill[node])
            required += [point for point in (entry, end) if computed[point] & may_hold[point]]
        weights = [choose.choice([1, 1, 1, 8]) for _ in range(nodes)]
        points = RegionPoints(
            graph,
            weights,
            kill=kill,
            phi_kill=phi_kill,
            computed=computed,
            may_hold=may_hold,
            leaving=up.exit,
        )
        if not required or points.may_gain(0, required):
            continue
        told += 1
        cost = sum(weights[point >> 1] for point in required)
        region = smallest_minimum_region(points.problem(0, required))
        assert region is not None
        assert points.problem(0, required).cost(region) >= cost, f"seed {seed}"
    assert told > 20
