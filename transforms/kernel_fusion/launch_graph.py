"""The graph that kernel fusion works on, and the edits of it.

Each node is one statement. For a launch statement ``kls`` the data-flow equations use two local predicates (thesis
§5.2.1):

    Launch(n)    n is kls
    Transp(n)    n is neither a modification statement of kls nor another launch

`LaunchGraph` is an immutable snapshot. An edit is a `Step`. An `Editable` (a host program, or a test's graph) applies
it and then gives a new snapshot. Each critical edge, from a node with several successors to a node with several
predecessors, is split by an `EdgePoint`, an empty node. Without these nodes a launch could not be moved onto only one
of the paths that share a branch and a join, and the equations would insert it twice on another path.

Requires: nodes are hashable and stay the same from snapshot to snapshot. A launch has one successor.
Guarantees: nodes that are not reachable from the entry are ignored.
Reference: thesis (Fukuhara 2023) §5.2; critical edges: Knoop, Rüthing, Steffen, *Lazy code motion*, PLDI 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

__all__ = ["Applied", "EdgePoint", "Editable", "LaunchGraph", "Node", "Place", "Step"]

#: A node, or an `EdgePoint`.
Node: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class EdgePoint:
    """The empty node on a critical edge. ``edge`` identifies the edge for the builder of the graph."""

    edge: Hashable


@dataclass(frozen=True, slots=True)
class Place:
    """The entry or the exit of a node."""

    node: Node
    at_exit: bool

    def __str__(self) -> str:
        return f"{'exit' if self.at_exit else 'entry'} of {self.node}"


@dataclass(frozen=True)
class Step:
    """One transformation of a launch: remove it, insert copies of it at ``insertions``, and fuse it with ``fusions``.

    ``fusions`` are the launches to fuse it with. In the ``backward`` phase they run before it. In the ``forward`` phase
    and in ``traditional`` fusion they run after it. No place occurs twice in the two lists.
    """

    phase: str
    launch: Node
    fusions: tuple[Node, ...] = ()
    insertions: tuple[Place, ...] = ()

    @property
    def pairs(self) -> list[tuple[Node, Node]]:
        """The pairs to fuse, each in execution order."""
        behind = self.phase == "backward"
        return [(other, self.launch) if behind else (self.launch, other) for other in self.fusions]


@dataclass(frozen=True)
class Applied:
    """The result of a step: the launches at each insertion, and the fused launches, both in the order of the step. One
    insertion may give several launches, for example an insertion before the head of a loop."""

    inserted: tuple[tuple[Node, ...], ...]
    fused: tuple[Node, ...]


class Editable(Protocol):
    """A program that can be transformed."""

    def graph(self) -> LaunchGraph:
        """The launch graph of the current program, as a snapshot."""
        ...

    def apply(self, step: Step) -> Applied:
        """Transform the program. The pairs of the step must have been fusible in the latest snapshot."""
        ...


class LaunchGraph:
    """A snapshot. ``edges`` are (source, target, identifier); several edges may join the same nodes. ``modifies(node,
    launch)`` says whether ``node`` is a modification statement of ``launch``; it is called only for nodes that are not
    launches."""

    def __init__(
        self,
        entry: Node,
        exit: Node,
        edges: Iterable[tuple[Node, Node, Hashable]],
        launches: Collection[Node],
        modifies: Callable[[Node, Node], bool],
    ) -> None:
        self.entry, self.exit = entry, exit
        self._modifies = modifies
        #: ``Transp`` by (node, launch), as far as it has been computed.
        self._transparent: dict[tuple[Node, Node], bool] = {}
        self.succs, self.preds = _with_edge_points(entry, exit, list(edges))
        self.order = _reverse_postorder(entry, self.succs)
        reached = set(self.order)
        self.preds = {node: tuple(p for p in self.preds[node] if p in reached) for node in self.order}
        self.succs = {node: self.succs[node] for node in self.order}
        chosen = set(launches)
        #: The reachable launches in reverse postorder.
        self.launches = [node for node in self.order if node in chosen]
        self.is_launch = frozenset(self.launches)
        #: The nodes from which the exit can be reached.
        self.ends = _reaching(exit, self.preds) if exit in reached else frozenset[Node]()

    def is_transparent(self, node: Node, launch: Node) -> bool:
        """``Transp(node)`` of ``launch``."""
        if isinstance(node, EdgePoint) or node == launch:
            return True
        if node in self.is_launch:
            return False
        key = (node, launch)
        if key not in self._transparent:
            self._transparent[key] = not self._modifies(node, launch)
        return self._transparent[key]

    def straight_from(self, node: Node) -> Iterator[Node]:
        """The nodes after ``node`` in its basic block."""
        while len(self.succs[node]) == 1:
            following = self.succs[node][0]
            if len(self.preds[following]) != 1:
                return
            yield following
            node = following


def _with_edge_points(
    entry: Node, exit: Node, edges: list[tuple[Node, Node, Hashable]]
) -> tuple[dict[Node, tuple[Node, ...]], dict[Node, tuple[Node, ...]]]:
    leaving: dict[Node, int] = {}
    entering: dict[Node, int] = {}
    for source, target, _ in edges:
        leaving[source] = leaving.get(source, 0) + 1
        entering[target] = entering.get(target, 0) + 1
    succs: dict[Node, list[Node]] = {entry: [], exit: []}
    preds: dict[Node, list[Node]] = {entry: [], exit: []}
    for source, target, name in edges:
        chain: list[Node] = [source, target]
        if leaving[source] > 1 and entering[target] > 1:
            chain.insert(1, EdgePoint(name))
        for node in chain:
            succs.setdefault(node, [])
            preds.setdefault(node, [])
        for before, behind in pairwise(chain):
            succs[before].append(behind)
            preds[behind].append(before)
    return {n: tuple(s) for n, s in succs.items()}, {n: tuple(p) for n, p in preds.items()}


def _reverse_postorder(entry: Node, succs: Mapping[Node, tuple[Node, ...]]) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = {entry}
    stack = [(entry, iter(succs[entry]))]
    while stack:
        node, following = stack[-1]
        target = next((each for each in following if each not in seen), None)
        if target is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(succs[target])))
    return order[::-1]


def _reaching(exit: Node, preds: Mapping[Node, tuple[Node, ...]]) -> frozenset[Node]:
    """The nodes from which ``exit`` can be reached."""
    reaching: set[Node] = {exit}
    waiting = [exit]
    while waiting:
        for pred in preds[waiting.pop()]:
            if pred not in reaching:
                reaching.add(pred)
                waiting.append(pred)
    return frozenset(reaching)
