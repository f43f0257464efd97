"""The graph that kernel fusion works on: launches, what they may not change places with, and edits.

A node holds one statement. Of a launch statement ``kls`` the equations know two local predicates (thesis §5.2.1):

    Launch(n)    n is kls
    Transp(n)    n holds no modification statement of kls and no other launch

`LaunchGraph` is a snapshot: an edit is a `Step`, made by an `Editable` (a host program, or a graph of a test), which
then gives a new snapshot. Every critical edge, from a node with several successors to one with several predecessors,
carries an `EdgePoint`: an empty node of its own. Without them a launch could be neither hoisted nor sunk on one of
two ways only, and the equations would insert it twice on a third.

Requires: nodes are hashable and stay the same from snapshot to snapshot; a launch has one successor.
Guarantees: nodes that the entry does not reach take no part.
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
    """The empty node on a critical edge; ``edge`` is what the maker of the graph calls the edge."""

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
    """One transformation of a launch: it is taken out, inserted at ``insertions``, and fused at ``fusions``.

    ``fusions`` are the launches that it is fused with: behind them in the ``backward`` phase, before them in the
    ``forward`` phase and in ``traditional`` fusion. Neither list names a place twice, and they have none in common.
    """

    phase: str
    launch: Node
    fusions: tuple[Node, ...] = ()
    insertions: tuple[Place, ...] = ()

    @property
    def pairs(self) -> list[tuple[Node, Node]]:
        """The fused pairs, the launch that runs first in front."""
        behind = self.phase == "backward"
        return [(other, self.launch) if behind else (self.launch, other) for other in self.fusions]


@dataclass(frozen=True)
class Applied:
    """What a step made: the launches at its insertions, and the fused launches, each in the step's order. An insertion
    may have become several launches, as one before the head of a loop does."""

    inserted: tuple[tuple[Node, ...], ...]
    fused: tuple[Node, ...]


class Editable(Protocol):
    """A program that can be transformed."""

    def graph(self) -> LaunchGraph:
        """A snapshot of it as it is now."""
        ...

    def apply(self, step: Step) -> Applied:
        """Transform it. The pairs of the step were found fusible in the snapshot before."""
        ...


class LaunchGraph:
    """``edges`` are (source, target, name), several between the same nodes allowed; ``modifies(node, launch)`` says
    whether ``node`` is a modification statement of ``launch``. It is asked for nodes that are no launches."""

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
        self._transparent: dict[tuple[Node, Node], bool] = {}
        self.succs, self.preds = _with_edge_points(entry, exit, list(edges))
        self.order = _reverse_postorder(entry, self.succs)
        reached = set(self.order)
        self.preds = {node: tuple(p for p in self.preds[node] if p in reached) for node in self.order}
        self.succs = {node: self.succs[node] for node in self.order}
        chosen = set(launches)
        #: The launches that can be reached, in reverse postorder.
        self.launches = [node for node in self.order if node in chosen]
        self.is_launch = frozenset(self.launches)
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
        """The nodes behind ``node`` in its basic block."""
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
        way: list[Node] = [source, target]
        if leaving[source] > 1 and entering[target] > 1:
            way.insert(1, EdgePoint(name))
        for node in way:
            succs.setdefault(node, [])
            preds.setdefault(node, [])
        for before, behind in pairwise(way):
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
    """The nodes from which the program can end."""
    found: set[Node] = {exit}
    waiting = [exit]
    while waiting:
        for pred in preds[waiting.pop()]:
            if pred not in found:
                found.add(pred)
                waiting.append(pred)
    return frozenset(found)
