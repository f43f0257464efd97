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

The smallest R is what the source still reaches once as much flows as can, and that is the same for every maximum flow,
wherever it runs. So it may start in any way: along the arcs of costs alone, which lead up from each required point
until there is no capacity left, or no such arc. Mostly that is all the flow there is, and one search finds the region.
Arcs are asked for where the search comes to: most of what lies behind the cut is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["SINK", "UNLIMITED", "Arcs", "Region", "smallest_minimum_region"]

UNLIMITED = 1 << 60

#: The head of the arc from a point that is earliest for good.
SINK = -1

#: Those of point m, (p, w, qs): w is paid if m ∈ R and p ∉ R, with p maybe `SINK`; and m ∈ R ⇒ q ∈ R for q in qs.
Arcs: TypeAlias = tuple[int, int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Region:
    """R, and for its points that are earliest, ascending, what they cost."""

    points: set[int]
    earliest: dict[int, int]


def smallest_minimum_region(
    required: Sequence[int], arcs: Callable[[int], Arcs], *, below: int | None = None
) -> Region | None:
    """The smallest closed region of minimum cost that holds all ``required`` points; ``None`` where its cost would not
    be ``below`` the number given. Points are natural numbers, weights integers from 0 to `UNLIMITED`."""
    flow = _Flow(required, arcs)
    flow.start()
    while below is None or flow.value < below:
        found = flow.search()
        if isinstance(found, Region):
            return found
        flow.augment(found)
    return None  # every cut, and so every region, costs as much as has flowed


#: The arcs of a path, in its direction.
_Path: TypeAlias = list[tuple[int, int]]


class _Flow:
    """What flows from the required points to the sink."""

    def __init__(self, required: Sequence[int], arcs: Callable[[int], Arcs]) -> None:
        self.value = 0
        self._required = required
        self._arcs = arcs
        #: By point and neighbour what flows to it, less what flows back, where anything ever did.
        self._sent: dict[int, dict[int, int]] = {}

    def start(self) -> None:
        """Send what can be sent along the arcs of costs alone. There is one such arc a point, so each of these paths
        leads on in one way; and where one fails, all that come there will."""
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
        """Send as much as there is room for along ``path``."""
        sent = self._sent
        limit = min([self._room(tail, head) for tail, head in path])
        for tail, head in path:
            on, back = sent.setdefault(tail, {}), sent.setdefault(head, {})
            on[head] = on.get(head, 0) + limit
            back[tail] = back.get(tail, 0) - limit
        self.value += limit

    def _room(self, tail: int, head: int) -> int:
        """What can be sent besides from ``tail`` to ``head``: what flows against it can be taken back."""
        above, weight, implied = self._arcs(tail)
        capacity = UNLIMITED if head in implied else weight if head == above else 0
        return capacity - self._sent.get(tail, _NOTHING).get(head, 0)

    def search(self) -> Region | _Path:
        """A shortest path with room from a required point to the sink; where there is none, what can be reached."""
        arcs, sent = self._arcs, self._sent
        parent: dict[int, int | None] = dict.fromkeys(self._required)
        #: The arcs of costs on which there is no room, with what they cost.
        full: list[tuple[int, int, int]] = []
        queue = list(parent)
        for tail in queue:  # which grows
            above, weight, implied = arcs(tail)
            heads: Iterable[int] = implied
            room = weight
            flows = sent.get(tail)
            if flows is not None:
                room -= flows.get(above, 0)
                heads = [*implied, *(head for head, flow in flows.items() if flow < 0)]
            if room <= 0:
                full.append((tail, above, weight))
            elif above not in parent:
                parent[above] = tail
                if above == SINK:
                    return _path_to(above, parent)
                queue.append(above)
            for head in heads:
                if head not in parent:
                    parent[head] = tail
                    queue.append(head)
        # No arc that is cut has room left.
        earliest = {tail: weight for tail, above, weight in sorted(full) if above not in parent}
        return Region(set(parent), earliest)


#: What flows where nothing ever did.
_NOTHING: dict[int, int] = {}


def _path_to(head: int, parent: dict[int, int | None]) -> _Path:
    path: _Path = []
    while (tail := parent[head]) is not None:
        path.append((tail, head))
        head = tail
    return path[::-1]
