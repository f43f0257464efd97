"""Abstract host programs for the tests of the fusion equations: graphs of statements that read and write named
variables, edits of them, and an interpreter that follows given branches.

A written variable gets a value that consists of the statement's name and all values that it read. So if two programs
end with equal values, they executed the same statements in an equivalent order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from ptxmotion.transforms.kernel_fusion.launch_graph import Applied, EdgePoint, LaunchGraph, Node, Place, Step


@dataclass(frozen=True)
class Statement:
    """``parts`` are the kernels of a launch: one, or several if it is fused. It is empty for other statements."""

    name: str = ""
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    parts: tuple[Statement, ...] = ()

    @property
    def is_launch(self) -> bool:
        return bool(self.parts)

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    def conflicts(self, other: Statement) -> bool:
        touched = other.reads | other.writes
        return bool(self.writes & touched or other.writes & (self.reads | self.writes))


def statement(text: str) -> Statement:
    """Parses ``name: reads > writes``. A name in capitals is a kernel."""
    name, _, rest = text.partition(":")
    read, _, written = rest.partition(">")
    made = Statement(name, frozenset(read.split()), frozenset(written.split()))
    return Statement(name, made.reads, made.writes, (made,)) if name.isupper() else made


def fused(first: Statement, second: Statement) -> Statement:
    parts = (*first.parts, *second.parts)
    name = "Fused" + "_".join(part.name.removeprefix("K") for part in parts)
    return Statement(name, first.reads | second.reads, first.writes | second.writes, parts)


Legal = Callable[[Statement, Statement], bool]


class AbstractProgram:
    """``nodes`` by number. ``ways`` such as ``"1-2 2-3"`` are the edges; those that leave one node are in the order of
    its branches."""

    def __init__(
        self, nodes: dict[int, str], ways: str, entry: int, exit: int, legal: Legal = lambda first, second: True
    ) -> None:
        self.statements: dict[Node, Statement] = {number: statement(text) for number, text in nodes.items()}
        self.entry, self.exit, self.legal = entry, exit, legal
        self._numbers = count(1)
        self.edges: list[tuple[Node, Node, int]] = []
        for way in ways.split():
            source, target = map(int, way.split("-"))
            self.edges.append((source, target, next(self._numbers)))
            self.statements.setdefault(source, Statement())
            self.statements.setdefault(target, Statement())

    # --- Editable ----------------------------------------------------------------------------------------------

    def graph(self) -> LaunchGraph:
        launches = [node for node, each in self.statements.items() if each.is_launch]
        return LaunchGraph(self.entry, self.exit, self.edges, launches, self.modifies)

    def modifies(self, node: Node, launch: Node) -> bool:
        return self.statements[node].conflicts(self.statements[launch])

    def may_fuse(self, first: Node, second: Node, at: Node) -> bool:
        return self.legal(self.statements[first], self.statements[second])

    def allow_more(self) -> bool:
        return False

    def apply(self, step: Step) -> Applied:
        moved = self.statements[step.launch]
        for first, second in step.pairs:
            partner = first if second == step.launch else second
            pair = self.statements[first], self.statements[second]
            self.statements[partner] = fused(*pair)
        self.statements[step.launch] = Statement()
        return Applied(tuple(self._insert(place, moved) for place in step.insertions), step.fusions)

    def _insert(self, place: Place, what: Statement) -> tuple[Node, ...]:
        if isinstance(place.node, EdgePoint):
            chosen = [edge for edge in self.edges if edge[2] == place.node.edge]
        elif place.at_exit:
            chosen = [edge for edge in self.edges if edge[0] == place.node]
        else:
            new = self._new(what)
            self.edges = [(a, new if b == place.node else b, n) for a, b, n in self.edges]
            self.edges.append((new, place.node, next(self._numbers)))
            return (new,)
        if place.node == self.exit:
            new = self._new(what)
            self.edges.append((self.exit, new, next(self._numbers)))
            self.exit = new
            return (new,)
        return tuple(self._split(edge, what) for edge in chosen)

    def _split(self, edge: tuple[Node, Node, int], what: Statement) -> Node:
        new = self._new(what)
        at = self.edges.index(edge)  # keeps the position, because the order of a node's edges identifies its branches
        self.edges[at] = (edge[0], new, edge[2])
        self.edges.append((new, edge[1], next(self._numbers)))
        return new

    def _new(self, what: Statement) -> int:
        new = 1000 + next(self._numbers)
        self.statements[new] = what
        return new

    # --- reading -----------------------------------------------------------------------------------------------

    def succs(self, node: Node) -> list[Node]:
        return [target for source, target, _ in self.edges if source == node]

    def preds(self, node: Node) -> list[Node]:
        return [source for source, target, _ in self.edges if target == node]

    def launched(self, branches: Iterable[int] = ()) -> list[str]:
        """The names of the launches on the path that ``branches`` chooses."""
        return [each.name for each in self.way(branches)[0] if each.is_launch]

    def way(self, branches: Iterable[int]) -> tuple[list[Statement], bool]:
        """The statements on the path that ``branches`` chooses, and whether the program ended."""
        chosen = iter(branches)
        node, passed = self.entry, list[Statement]()
        for _ in range(10_000):
            passed.append(self.statements[node])
            following = self.succs(node)
            if node == self.exit or not following:
                return passed, node == self.exit
            if len(following) > 1:
                branch = next(chosen, None)
                if branch is None:
                    return passed, False
                node = following[branch % len(following)]
            else:
                node = following[0]
        return passed, False


def state_after(passed: Iterable[Statement]) -> dict[str, int]:
    """The final value of each variable."""
    values: dict[str, int] = {}
    for each in passed:
        for part in each.parts or (each,):
            seen = tuple(sorted((name, values.get(name, 0)) for name in part.reads))
            values |= {name: hash((part.name, name, seen)) for name in part.writes}
    return values
