"""The down-safety region with the fewest earliest points, by a minimum cut.

Sparse code motion chooses a set R of program points with RelComp ⊆ R ⊆ DnSafe \\ UpSafe that is closed under ρ. It
evaluates the expression at the points of R that are R-Earliest, and minimizes their number, or the sum of their
weights. For one expression this is a closure problem on the points:

- the closure is a set of implications p ∈ R ⇒ q ∈ R;
- if a predecessor of point m can never be in R, m is earliest whenever it is in R: cost w(m) if m ∈ R;
- otherwise either all or none of its predecessors are in R, by the closure. With p one of them, the cost is w(m) if
  m ∈ R and p ∉ R.

Costs of the form "m ∈ R and p ∉ R" together with implications are a minimum cut problem: R is the source side, the
points of RelComp are connected to the source, an implication is an arc p → q of unlimited capacity, and a cost is an
arc m → p, or m → sink, of capacity w(m). Among all minimum cuts, the one with the smallest R is chosen: it has the same
number of evaluations and places them as late as possible.

This is exact. It uses a maximum flow instead of the matching in Rüthing, Knoop and Steffen (*Sparse Code Motion*, POPL
2000), who minimize the same count. ``tests/unit/test_insertion_region.py`` compares it with brute force.

The smallest R is the set of points that the source reaches in the residual graph. It is the same for every maximum
flow. So the flow may start with any augmenting paths: here, from each required point upwards along the arcs of costs
alone, while they have capacity. Usually this is already a maximum flow, and one search finds the region. Otherwise each
search gives all paths of its tree that have capacity, since a kernel may have thousands of independent ones. Arcs are
computed on demand, because the search does not visit most points outside of R.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["SINK", "UNLIMITED", "Arcs", "Region", "smallest_minimum_region"]

UNLIMITED = 1 << 60

#: The head of the arc from a point that is always earliest if it is in the region.
SINK = -1

#: The arcs from point m as (p, w, qs): the cost is w if m ∈ R and p ∉ R (p may be `SINK`); m ∈ R ⇒ q ∈ R for q in qs.
Arcs: TypeAlias = tuple[int, int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Region:
    """The points of R. ``earliest`` maps each R-Earliest point to its cost, in ascending order of the points."""

    points: set[int]
    earliest: dict[int, int]


def smallest_minimum_region(
    required: Sequence[int], arcs: Callable[[int], Arcs], *, below: int | None = None
) -> Region | None:
    """The smallest closed region of minimum cost that contains all ``required`` points; ``None`` if its cost is not
    less than ``below``. Points are natural numbers; weights are integers from 0 to `UNLIMITED`."""
    flow = _Flow(required, arcs)
    flow.start()
    while below is None or flow.value < below:
        paths_or_region = flow.search()
        if isinstance(paths_or_region, Region):
            return paths_or_region
        for path in paths_or_region:
            flow.augment(path)
    return None  # every cut, and so every region, costs at least the value of the flow


#: The arcs of a path, in its direction.
_Path: TypeAlias = list[tuple[int, int]]


class _Flow:
    """A flow from the required points to the sink."""

    def __init__(self, required: Sequence[int], arcs: Callable[[int], Arcs]) -> None:
        self.value = 0
        self._required = required
        self._arcs = arcs
        #: By point and neighbour: the net flow to the neighbour; no entry means 0.
        self._sent: dict[int, dict[int, int]] = {}

    def start(self) -> None:
        """Augment along the arcs of costs alone. A point has one such arc, so there is one such path from each required
        point. Where one path fails, all paths to the same point fail."""
        arcs, sent = self._arcs, self._sent
        failed: set[int] = set()
        for point in self._required:
            path: _Path = []
            passed: set[int] = set()
            while point != SINK and point not in failed and point not in passed:
                passed.add(point)
                above, weight, _ = arcs(point)
                if weight <= sent.get(point, _NOTHING).get(above, 0):
                    break
                path.append((point, above))
                point = above
            if point == SINK:
                self.augment(path)
            else:
                failed |= passed

    def augment(self, path: _Path) -> None:
        """Increase the flow along ``path`` by its residual capacity, which may be 0."""
        sent = self._sent
        limit = min([self._room(tail, head) for tail, head in path])
        if limit == 0:
            return
        for tail, head in path:
            on, back = sent.setdefault(tail, {}), sent.setdefault(head, {})
            on[head] = on.get(head, 0) + limit
            back[tail] = back.get(tail, 0) - limit
        self.value += limit

    def _room(self, tail: int, head: int) -> int:
        """The residual capacity from ``tail`` to ``head``; a flow in the other direction adds to it."""
        above, weight, implied = self._arcs(tail)
        capacity = UNLIMITED if head in implied else weight if head == above else 0
        return capacity - self._sent.get(tail, _NOTHING).get(head, 0)

    def search(self) -> Region | list[_Path]:
        """Augmenting paths from required points to the sink, the shortest one first; if there are none, the reached
        points. Later paths may have arcs in common with earlier ones, and no capacity when these are augmented."""
        arcs, sent = self._arcs, self._sent
        parent: dict[int, int | None] = dict.fromkeys(self._required)
        #: The arcs of costs without residual capacity: (tail, head, cost).
        full: list[tuple[int, int, int]] = []
        #: Points with residual capacity to the sink.
        last: list[int] = []
        queue = list(parent)
        for tail in queue:  # the loop appends to it
            above, weight, implied = arcs(tail)
            heads: Iterable[int] = implied
            room = weight
            flows = sent.get(tail)
            if flows is not None:
                room -= flows.get(above, 0)
                heads = [*implied, *(head for head, flow in flows.items() if flow < 0)]
            if room <= 0:
                full.append((tail, above, weight))
            elif above == SINK:
                last.append(tail)
            elif above not in parent:
                parent[above] = tail
                queue.append(above)
            for head in heads:
                if head not in parent:
                    parent[head] = tail
                    queue.append(head)
        if last:
            return [[*_path_to(tail, parent), (tail, SINK)] for tail in last]
        # No arc of the cut has residual capacity.
        earliest = {tail: weight for tail, above, weight in sorted(full) if above not in parent}
        return Region(set(parent), earliest)


#: The flow from a point without an entry.
_NOTHING: dict[int, int] = {}


def _path_to(head: int, parent: dict[int, int | None]) -> _Path:
    path: _Path = []
    while (tail := parent[head]) is not None:
        path.append((tail, head))
        head = tail
    return path[::-1]
