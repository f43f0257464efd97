"""FKF, the forward phase: sink one launch, and fuse it with launches after it.

For a launch statement kls, over the nodes of `launch_graph` (figures 5.11 to 5.13):

    NSinkable(n) = false at the start s; elsewhere ∏ over predecessors p of XSinkable(p)
    XSinkable(n) = Launch(n) ∨ (Transp(n) ∧ NSinkable(n))
    NFusable(n, kls, k) = NSinkable(n) ∧ n is k, k is another launch, and (kls, k) may be fused
    NInsert(n)   = NSinkable(n) ∧ ¬Transp(n)
    XInsert(n)   = XSinkable(n) ∧ Σ over successors s of ¬NSinkable(s)

All solutions are greatest solutions. The printed equations leave these cases open:

- At the exit e, which has no successor, XInsert(e) = XSinkable(e). As an empty sum it would be false, and the launch
  would be lost.
- At a node from which the program cannot end, NSinkable is false. Otherwise the launch would be lost in an endless
  loop.

Guarantees: each path executes kls as often as before, in the same order relative to all launches and modification
statements. Unlike the backward phase, this phase moves a launch even if it fuses nothing, which figure 5.14 needs.
Reference: thesis §5.2.2, §5.2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from .backward import Fusible
from .launch_graph import LaunchGraph, Node, Place, Step

__all__ = ["Forward", "analyze", "forward_step"]


@dataclass(frozen=True)
class Forward:
    """The nodes at which each predicate holds for one launch."""

    n_sinkable: frozenset[Node]
    x_sinkable: frozenset[Node]
    n_fusible: frozenset[Node]
    n_insert: frozenset[Node]
    x_insert: frozenset[Node]


def analyze(graph: LaunchGraph, launch: Node, fusible: Fusible) -> Forward:
    """Solve the equations for ``launch``."""
    n_sinkable, x_sinkable = _sinkability(graph, launch)
    others = [node for node in graph.launches if node != launch and node in n_sinkable]
    return Forward(
        n_sinkable,
        x_sinkable,
        frozenset(node for node in others if fusible(launch, node, node)),
        frozenset(node for node in n_sinkable if not graph.is_transparent(node, launch)),
        frozenset(
            node for node in x_sinkable if node == graph.exit or not all(s in n_sinkable for s in graph.succs[node])
        ),
    )


def forward_step(graph: LaunchGraph, launch: Node, fusible: Fusible) -> Step | None:
    """The transformation of ``launch`` by this phase; None if the launch would stay in its place."""
    solution = analyze(graph, launch, fusible)
    fusions = tuple(node for node in graph.order if node in solution.n_fusible)
    places = [Place(n, at_exit=False) for n in graph.order if n in solution.n_insert and n not in solution.n_fusible]
    places += [Place(node, at_exit=True) for node in graph.order if node in solution.x_insert]
    if not fusions and _is_where_it_was(graph, launch, places):
        return None
    return Step("forward", launch, fusions, tuple(places))


def _is_where_it_was(graph: LaunchGraph, launch: Node, places: list[Place]) -> bool:
    here = {Place(launch, at_exit=True), *(Place(s, at_exit=False) for s in graph.succs[launch])}
    if graph.exit in graph.succs[launch] and len(graph.preds[graph.exit]) == 1:
        here.add(Place(graph.exit, at_exit=True))
    return all(place in here for place in places)


def _sinkability(graph: LaunchGraph, launch: Node) -> tuple[frozenset[Node], frozenset[Node]]:
    entry = {node for node in graph.order if node != graph.entry and node in graph.ends}
    exit = set(graph.order)
    changed = True
    while changed:
        changed = False
        for node in graph.order:
            if node in entry and not all(p in exit for p in graph.preds[node]):
                entry.discard(node)
                changed = True
            holds = node == launch or (graph.is_transparent(node, launch) and node in entry)
            if node in exit and not holds:
                exit.discard(node)
                changed = True
    return frozenset(entry), frozenset(exit)
