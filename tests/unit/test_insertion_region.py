"""The minimum-cut region against brute force over all closed regions."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import combinations

import pytest
from growth import assert_near_linear
from ptxmotion.transforms.code_motion.insertion_region import SINK, Arcs, smallest_minimum_region

#: The arcs of points 0, 1, …
Problem = list[Arcs]


def is_closed(region: Collection[int], problem: Problem) -> bool:
    return all(head in region for tail in region for head in problem[tail][2])


def earliest(region: Collection[int], problem: Problem) -> dict[int, int]:
    """The earliest points of ``region``, with their cost."""
    return {point: problem[point][1] for point in sorted(region) if problem[point][0] not in region}


def brute_force(required: list[int], problem: Problem) -> tuple[int, int]:
    """Minimum cost, and the size of the smallest region that has it."""
    best: tuple[int, int] | None = None
    optional = [point for point in range(len(problem)) if point not in required]
    for size in range(len(optional) + 1):
        for extra in combinations(optional, size):
            region = {*required, *extra}
            if is_closed(region, problem):
                candidate = (sum(earliest(region, problem).values()), len(region))
                best = candidate if best is None else min(best, candidate)
    assert best is not None
    return best


@pytest.mark.parametrize("chunk", range(4))
def test_region_is_minimal_and_smallest(chunk: int) -> None:
    for seed in range(chunk * 500, chunk * 500 + 500):
        choose = random.Random(seed)
        points = list(range(choose.randint(2, 9)))
        required = list(choose.sample(points, choose.randint(1, len(points) - 1)))
        implied: list[list[int]] = [[] for _ in points]
        for _ in range(choose.randint(0, 8)):
            implied[choose.choice(points)].append(choose.choice(points))
        problem: Problem = []
        for point in points:
            above = SINK if choose.random() < 0.35 else choose.choice(points)
            problem.append((above if above != point else SINK, choose.choice([0, 1, 1, 1, 8]), implied[point]))
        region = smallest_minimum_region(required, problem.__getitem__)
        assert region is not None
        assert set(required) <= region.points
        assert is_closed(region.points, problem), f"seed {seed}"
        assert region.earliest == earliest(region.points, problem), f"seed {seed}"
        cost = sum(region.earliest.values())
        assert (cost, len(region.points)) == brute_force(required, problem), f"seed {seed}"
        below = choose.randint(1, 12)
        worth = region if cost < below else None
        assert smallest_minimum_region(required, problem.__getitem__, below=below) == worth, f"seed {seed}"


def test_implications_from_required_points_are_followed() -> None:
    problem: Problem = [(SINK, 1, [1]), (SINK, 0, [2]), (SINK, 0, [])]
    region = smallest_minimum_region([0], problem.__getitem__)
    assert region is not None
    assert region.points == {0, 1, 2}


def test_many_independent_parts_take_near_linear_time() -> None:
    """Each required point has no capacity on the arcs of costs, and some over a point that it implies."""

    def parts(count: int) -> Problem:
        problem: Problem = []
        for part in range(count):
            problem += [(3 * part + 1, 1, [3 * part + 2]), (SINK, 0, []), (SINK, 1, [])]
        return problem

    def solve(problem: Problem) -> None:
        assert smallest_minimum_region(range(0, len(problem), 3), problem.__getitem__) is not None

    assert_near_linear(parts, solve, 300)
