"""The minimum-cut region against brute force over all closed regions."""

from __future__ import annotations

import random
from collections.abc import Container
from itertools import combinations

import pytest
from ptxmotion.transforms.insertion_region import RegionProblem, smallest_minimum_region


def is_closed(region: Container[object], problem: RegionProblem) -> bool:
    return all(head in region for tail, head in problem.implications if tail in region)


def brute_force(problem: RegionProblem, points: list[int]) -> tuple[int, int]:
    """Minimum cost, and the size of the smallest region that has it."""
    best: tuple[int, int] | None = None
    optional = [point for point in points if point not in problem.required]
    for size in range(len(optional) + 1):
        for extra in combinations(optional, size):
            region = {*problem.required, *extra}
            if is_closed(region, problem):
                candidate = (problem.cost(region), len(region))
                best = candidate if best is None else min(best, candidate)
    assert best is not None
    return best


@pytest.mark.parametrize("chunk", range(4))
def test_region_is_minimal_and_smallest(chunk: int) -> None:
    for seed in range(chunk * 500, chunk * 500 + 500):
        choose = random.Random(seed)
        points = list(range(choose.randint(2, 9)))
        problem = RegionProblem(required=list(choose.sample(points, choose.randint(1, len(points) - 1))))
        for point in points:
            kind = choose.random()
            predecessor = None if kind < 0.35 else choose.choice(points)
            if predecessor != point:
                problem.costs.append((point, predecessor, choose.choice([1, 1, 1, 8])))
        for _ in range(choose.randint(0, 8)):
            problem.implications.append((choose.choice(points), choose.choice(points)))
        region = smallest_minimum_region(problem)
        assert region is not None
        assert set(problem.required) <= region
        assert is_closed(region, problem), f"seed {seed}"
        assert (problem.cost(region), len(region)) == brute_force(problem, points), f"seed {seed}"
        below = choose.randint(1, 12)
        worth = region if problem.cost(region) < below else None
        assert smallest_minimum_region(problem, below=below) == worth, f"seed {seed}"


def test_implications_from_required_points_are_followed() -> None:
    problem = RegionProblem(required=[0], implications=[(0, 1), (1, 2)], costs=[(0, None, 1)])
    assert smallest_minimum_region(problem) == {0, 1, 2}
