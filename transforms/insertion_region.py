"""The down-safety region with the fewest earliest points, by a minimum cut.

Sparse code motion chooses a set R of program points with RelComp ⊆ R ⊆ DnSafe \\ UpSafe that is closed under ρ, and
evaluates the expression at the points of R that are R-Earliest; the fewer of those (or the lighter, with weights), the
better. For one expression that is a closure problem on the points:

- closure is a set of implications p ∈ R ⇒ q ∈ R;
- a point m is earliest for good, if it is in R, where a predecessor can never be in R: cost w(m) if m ∈ R;
- otherwise its predecessors are in R all together or not at all (closure again), and with p one of them the cost is
  w(m) if m ∈ R and p ∉ R.

Costs of the form "m ∈ R and p ∉ R" with implications are a minimum cut: R is the source side, RelComp is tied to the
source, an implication is an arc p → q without limit, a cost is an arc m → p, or m → sink, of capacity w(m). Of all
minimum cuts the one with the smallest R is taken: the same number of evaluations, as late as possible.

This is exact, with max-flow in place of the matching in Rüthing, Knoop and Steffen (*Sparse Code Motion*, POPL 2000),
who minimise the same count; ``tests/unit/test_insertion_region.py`` compares with brute force.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["RegionProblem", "smallest_minimum_region"]

UNLIMITED = 1 << 60


#: (p, q): p ∈ R ⇒ q ∈ R.
Implication: TypeAlias = tuple[int, int]

#: (m, p, w): w is paid if m ∈ R and p ∉ R; p is ``None`` where m is earliest for good.
Cost: TypeAlias = tuple[int, int | None, int]

#: Capacities left: from each point to its neighbours.
_Arcs: TypeAlias = defaultdict[int, dict[int, int]]


@dataclass
class RegionProblem:
    """Points are natural numbers, with one cost each at most. Weights are positive integers."""

    required: list[int] = field(default_factory=list[int])  #: RelComp
    implications: list[Implication] = field(default_factory=list[Implication])
    costs: list[Cost] = field(default_factory=list[Cost])

    def cost(self, region: Iterable[int]) -> int:
        """What ``region`` costs; the closure is not checked."""
        chosen = set(region)
        return sum(w for m, p, w in self.costs if m in chosen and (p is None or p not in chosen))


_SINK = -1


def smallest_minimum_region(problem: RegionProblem, *, below: int | None = None) -> set[int] | None:
    """The smallest closed region of minimum cost that holds all required points; ``None`` where its cost would not be
    ``below`` the number given."""
    arcs = _network(problem)
    flow = 0
    while (path := _augmenting_path(arcs, problem.required)) is not None:
        limit = min(arcs[tail][head] for tail, head in path)
        flow += limit
        if below is not None and flow >= below:
            return None  # every cut, and so every region, costs as much as has flowed
        for tail, head in path:
            if arcs[tail][head] < UNLIMITED:
                arcs[tail][head] -= limit
            back = arcs[head].get(tail, 0)
            if back < UNLIMITED:
                arcs[head][tail] = back + limit
    return _reachable(arcs, problem.required)


def _network(problem: RegionProblem) -> _Arcs:
    """The arcs with capacity; those on which flow can be taken back come with the flow."""
    arcs: _Arcs = defaultdict(dict)
    for point, predecessor, weight in problem.costs:
        arcs[point][_SINK if predecessor is None else predecessor] = min(weight, UNLIMITED)
    for tail, head in problem.implications:
        arcs[tail][head] = UNLIMITED
    return arcs


def _augmenting_path(arcs: _Arcs, sources: Iterable[int]) -> list[tuple[int, int]] | None:
    """A shortest path with capacity left from a source to the sink."""
    parent: dict[int, int | None] = dict.fromkeys(sources)
    queue = list(parent)
    for tail in queue:  # which grows
        for head, capacity in arcs[tail].items():
            if capacity and head not in parent:
                parent[head] = tail
                if head == _SINK:
                    return _path_to(head, parent)
                queue.append(head)
    return None


def _path_to(head: int, parent: dict[int, int | None]) -> list[tuple[int, int]]:
    path: list[tuple[int, int]] = []
    while (tail := parent[head]) is not None:
        path.append((tail, head))
        head = tail
    return path[::-1]


def _reachable(arcs: _Arcs, sources: Iterable[int]) -> set[int]:
    found = set(sources)
    work = list(found)
    while work:
        for head, capacity in arcs[work.pop()].items():
            if capacity and head not in found:
                found.add(head)
                work.append(head)
    return found
