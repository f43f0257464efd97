"""BKF, the backward phase: hoist one launch, and fuse it with launches before it.

For a launch statement kls, over the nodes of `launch_graph` (figures 5.4 to 5.9):

    NdSafe(n)   = Launch(n) ∨ (Transp(n) ∧ XdSafe(n))
    XdSafe(n)   = false at the exit e; elsewhere ∏ over successors s of NdSafe(s)
    XFusible(n, kls, k) = XdSafe(n) ∧ n is k, k is another launch, and (k, kls) may be fused
    NDnEarliest(n) = NdSafe(n) ∧ Σ over predecessors p of ¬XdSafe(p)
    XDnEarliest(n) = XdSafe(n) ∧ ¬Transp(n)
    NDelayed(n) = NDnEarliest(n) ∨ ∏ over predecessors p of (XDelayed(p) ∧ ∏ over launches k of ¬XFusible(p, kls, k))
    XDelayed(n) = XDnEarliest(n) ∨ (NDelayed(n) ∧ ¬Launch(n))
    NLatest(n)  = NDelayed(n) ∧ Launch(n)
    XLatest(n)  = XDelayed(n) ∧ Σ over successors s of ¬NDelayed(s)

All solutions are greatest solutions. The printed equations leave these cases open:

- At the start s, which has no predecessor, NDnEarliest(s) = NdSafe(s), and ∏ over predecessors is false, as figure 5.8
  says.
- A node from which the program cannot end has XdSafe false, as if it led to e. Otherwise a launch would be hoisted out
  of one arm of a branch whose other arm never ends.
- Whether two kernels may be fused at all (§5.3.1 leaves it to the user) is part of XFusible. A launch that may not be
  fused blocks kls, because Transp is false there.

Guarantees: each path executes kls as often as before, in the same order relative to all launches and modification
statements. It executes one launch less for each fusion on it. If nothing can be fused, nothing changes: kls is delayed
to its original node (NLatest).
Reference: thesis §5.2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .launch_graph import LaunchGraph, Node, Place, Step

__all__ = ["Backward", "Fusible", "analyze", "backward_step"]

#: Whether the second launch may be fused with the first, at the position of the third argument: one of these two.
Fusible = Callable[[Node, Node, Node], bool]


@dataclass(frozen=True)
class Backward:
    """The nodes at which each predicate holds for one launch."""

    n_down_safe: frozenset[Node]
    x_down_safe: frozenset[Node]
    x_fusible: frozenset[Node]
    n_earliest: frozenset[Node]
    x_earliest: frozenset[Node]
    n_delayed: frozenset[Node]
    x_delayed: frozenset[Node]
    n_latest: frozenset[Node]
    x_latest: frozenset[Node]


def analyze(graph: LaunchGraph, launch: Node, fusible: Fusible) -> Backward:
    """Solve the equations for ``launch``."""
    n_safe, x_safe = _down_safety(graph, launch)
    others = [node for node in graph.launches if node != launch and node in x_safe]
    x_fusible = frozenset(node for node in others if fusible(node, launch, node))
    n_earliest = frozenset(
        node for node in n_safe if node == graph.entry or not all(pred in x_safe for pred in graph.preds[node])
    )
    x_earliest = frozenset(node for node in x_safe if not graph.is_transparent(node, launch))
    n_delayed, x_delayed = _delayability(graph, launch, n_earliest, x_earliest, x_fusible)
    n_latest = n_delayed & {launch}
    x_latest = frozenset(node for node in x_delayed if not all(s in n_delayed for s in graph.succs[node]))
    return Backward(n_safe, x_safe, x_fusible, n_earliest, x_earliest, n_delayed, x_delayed, n_latest, x_latest)


def backward_step(graph: LaunchGraph, launch: Node, fusible: Fusible) -> Step | None:
    """The transformation of ``launch`` by this phase; None if it fuses nothing."""
    solution = analyze(graph, launch, fusible)
    if not solution.x_fusible:
        return None
    in_order = [node for node in graph.order if node in solution.x_latest]
    return Step(
        "backward",
        launch,
        tuple(node for node in in_order if node in solution.x_fusible),
        tuple(Place(node, at_exit=True) for node in in_order if node not in solution.x_fusible),
    )


def _down_safety(graph: LaunchGraph, launch: Node) -> tuple[frozenset[Node], frozenset[Node]]:
    entry, exit = set(graph.order), {node for node in graph.order if node != graph.exit and node in graph.ends}
    changed = True
    while changed:
        changed = False
        for node in reversed(graph.order):
            if node in exit and not all(s in entry for s in graph.succs[node]):
                exit.discard(node)
                changed = True
            holds = node == launch or (graph.is_transparent(node, launch) and node in exit)
            if node in entry and not holds:
                entry.discard(node)
                changed = True
    return frozenset(entry), frozenset(exit)


def _delayability(
    graph: LaunchGraph,
    launch: Node,
    n_earliest: frozenset[Node],
    x_earliest: frozenset[Node],
    x_fusible: frozenset[Node],
) -> tuple[frozenset[Node], frozenset[Node]]:
    entry, exit = set(graph.order), set(graph.order)
    changed = True
    while changed:
        changed = False
        for node in graph.order:
            arrives = node != graph.entry and all(p in exit and p not in x_fusible for p in graph.preds[node])
            if node in entry and not (node in n_earliest or arrives):
                entry.discard(node)
                changed = True
            if node in exit and not (node in x_earliest or (node in entry and node != launch)):
                exit.discard(node)
                changed = True
    return frozenset(entry), frozenset(exit)
