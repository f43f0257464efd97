"""The control flow graph of a host program, and the memory that each node accesses.

Computes: nodes and edges of a program's tree; for each node the host variables that it uses and defines, and the device
buffers (by allocation site) that it reads and writes. A forward may-analysis over sets of bindings tracks assignments
of handles: ``a, b = b, a`` in a loop gives two bindings, and in each of them a and b point to different buffers.
Requires: which of its arguments a kernel reads and writes, as the argument ``effects``. The default uses what the
kernel's source declares: a DSL kernel does not write through a ``const_ptr``; any other kernel may read and write all
its arguments.
Guarantees: each edge has a position in the tree at which inserted code runs for exactly this edge, so every insertion
is printable as Python. A graph belongs to one version of its program; edits through `HostProgram` make a new version.
Reference: thesis §5.2 (the CFG on which KF_trad and KFCM work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from .host_nodes import (
    Allocate,
    Assign,
    Body,
    CopyDevice,
    CopyIn,
    CopyOut,
    Entry,
    Exit,
    For,
    Free,
    If,
    Item,
    Jump,
    Launch,
    Memset,
    Node,
    Read,
    While,
    Write,
)

__all__ = ["NodeAccess", "Binding", "Edge", "Effects", "EffectsOf", "HostCfg", "Position", "declared_effects"]


@dataclass(frozen=True, slots=True)
class Effects:
    """Positions of a launch's arguments whose memory the kernel may read, and may write."""

    reads: frozenset[int]
    writes: frozenset[int]


EffectsOf: TypeAlias = Callable[[Launch], Effects]

#: Pairs of a handle and the allocation sites that it may point to.
Binding: TypeAlias = "frozenset[tuple[str, frozenset[str]]]"

#: The largest number of bindings at a node. More are merged into one.
_MOST_BINDINGS = 24


def declared_effects(launch: Launch) -> Effects:
    """The effects that the kernel's source declares. If it declares none, the kernel may read and write every
    argument."""
    declared = launch.kernel.reads_and_writes()
    if declared is not None:
        return Effects(*declared)
    everything = frozenset(range(len(launch.args)))
    return Effects(everything, everything)


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """What a node accesses. ``uses`` and ``defines`` are host variables, including handles. ``reads`` and ``writes``
    are device buffers, each named by the variable that it was allocated to."""

    uses: frozenset[str]
    defines: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """A place in the tree: in ``body``, before ``item``, or at the end if ``item`` is None."""

    body: Body
    item: Item | None

    def insert(self, items: Iterable[Item]) -> None:
        """Insert ``items`` before the item, or at the end of the body if there is none."""
        at = len(self.body) if self.item is None else next(i for i, x in enumerate(self.body) if x is self.item)
        self.body[at:at] = list(items)


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """``kind`` is ``next``, or ``true`` or ``false`` after a branch or the head of a ``for``."""

    source: Node
    target: Node
    kind: str
    position: Position


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """An edge whose target is not known yet."""

    source: Node
    kind: str
    position: Position


class HostCfg:
    """The graph of a program. ``nodes`` are in the order of the program text, `Entry` first and `Exit` last."""

    def __init__(
        self,
        body: Body,
        params: Iterable[str] = (),
        effects: EffectsOf = declared_effects,
        entry: Entry | None = None,
        exit: Exit | None = None,
    ) -> None:
        self.entry, self.exit = entry or Entry(), exit or Exit()
        self.nodes: list[Node] = [self.entry]
        self.edges: list[Edge] = []
        self.params = tuple(params)
        self._effects = effects
        self._returns: list[_Open] = []
        end = self._body(body, [_Open(self.entry, "next", Position(body, body[0] if body else None))], None)
        self._meet([*end, *self._returns], self.exit)
        self.nodes.append(self.exit)
        self._succs: dict[Node, list[Edge]] = {node: [] for node in self.nodes}
        self._preds: dict[Node, list[Edge]] = {node: [] for node in self.nodes}
        for edge in sorted(self.edges, key=lambda edge: edge.kind == "false"):
            self._succs[edge.source].append(edge)
            self._preds[edge.target].append(edge)
        self._bindings = self._points_to()

    # --- the graph ---------------------------------------------------------------------------------------------

    def succs(self, node: Node) -> list[Edge]:
        """Edges that leave ``node``. A branch has ``true`` first."""
        return self._succs[node]

    def preds(self, node: Node) -> list[Edge]:
        """Edges that lead to ``node``."""
        return self._preds[node]

    def launches(self) -> list[Launch]:
        """The launches in the order of the program text."""
        return [node for node in self.nodes if isinstance(node, Launch)]

    def reverse_postorder(self) -> list[Node]:
        """The reachable nodes, each before its successors except along back edges."""
        order: list[Node] = []
        visited: set[Node] = {self.entry}
        stack: list[tuple[Node, Iterator[Edge]]] = [(self.entry, iter(self._succs[self.entry]))]
        while stack:
            node, edges = stack[-1]
            target = next((edge.target for edge in edges if edge.target not in visited), None)
            if target is None:
                order.append(node)
                stack.pop()
            else:
                visited.add(target)
                stack.append((target, iter(self._succs[target])))
        return order[::-1]

    # --- accesses of nodes -------------------------------------------------------------------------------------

    def bindings(self, node: Node) -> frozenset[Binding]:
        """Where the handles may point just before ``node``: one binding for each possible combination. Two buffers that
        are swapped in a loop have two. Empty for a node that is not reachable."""
        return self._bindings.get(node, frozenset())

    def buffers(self, handle: str, node: Node) -> frozenset[str]:
        """The allocations that ``handle`` may point to just before ``node``; empty if it is not a handle there."""
        return frozenset[str]().union(*(_sites(handle, binding) for binding in self.bindings(node)))

    def access(self, node: Node) -> NodeAccess:
        """What ``node`` accesses."""
        reads, writes = frozenset[str](), frozenset[str]()
        for binding in self.bindings(node):
            more = self._memory(node, binding)
            reads, writes = reads | more[0], writes | more[1]
        return NodeAccess(node.uses, node.defines, reads, writes)

    def is_modification(self, node: Node, launch: Launch) -> bool:
        """Whether ``node`` is a modification statement of ``launch``: if the launch is right before or after it, the
        two must not be swapped.

        This holds if ``node`` writes a variable that the launch's arguments or configuration use, uses a variable that
        the launch defines, or accesses a buffer in conflict with what the kernel reads or writes. The launch's handles
        have the values that they have at ``node``, because a launch that was moved there has passed no assignment to
        them.
        """
        if node.defines & launch.uses or launch.defines & (node.uses | node.defines):
            return True
        handles = [arg.text for arg in launch.args if self._is_handle(arg.text, launch)]
        for binding in self.bindings(node):
            if any(not _sites(handle, binding) for handle in handles):
                return True  # it is not allocated yet
            reads, writes = self._memory(node, binding)
            launch_reads, launch_writes = self._memory(launch, binding)
            if writes & (launch_reads | launch_writes) or reads & launch_writes:
                return True
        return False

    def _is_handle(self, name: str, node: Node) -> bool:
        return bool(self.buffers(name, node))

    def _memory(self, node: Node, binding: Binding) -> tuple[frozenset[str], frozenset[str]]:
        """The buffers that ``node`` reads and writes if the handles point as ``binding`` says."""

        def at(handle: str) -> frozenset[str]:
            return _sites(handle, binding)

        nothing: frozenset[str] = frozenset()
        match node:
            case Launch():
                effects = self._effects(node)
                reads = [at(arg.text) for i, arg in enumerate(node.args) if i in effects.reads]
                writes = [at(arg.text) for i, arg in enumerate(node.args) if i in effects.writes]
                return nothing.union(*reads), nothing.union(*writes)
            case CopyIn() | Memset():
                return nothing, at(node.target.buffer)
            case CopyOut():
                return at(node.source.buffer), nothing
            case CopyDevice():
                return at(node.source.buffer), at(node.target.buffer)
            case Read():
                return at(node.buffer), nothing
            case Write() | Free():
                return nothing, at(node.buffer)
            case Allocate():
                # New memory replaces what the site allocated before.
                return nothing, frozenset({node.target})
            case _:
                return nothing, nothing

    def _points_to(self) -> dict[Node, frozenset[Binding]]:
        before: dict[Node, frozenset[Binding]] = {self.entry: frozenset({frozenset()})}
        order = self.reverse_postorder()
        changed = True
        while changed:
            changed = False
            for node in order:
                after = frozenset(_moved(node, binding) for binding in before.get(node, ()))
                for edge in self._succs[node]:
                    old = before.get(edge.target, frozenset())
                    joined = _narrowed(old | after)
                    if joined != old:
                        before[edge.target] = joined
                        changed = True
        return before

    # --- building ----------------------------------------------------------------------------------------------

    def _meet(self, opened: Iterable[_Open], target: Node) -> None:
        self.edges += [Edge(o.source, target, o.kind, o.position) for o in opened]

    def _body(self, body: Body, opened: list[_Open], loop: _Loop | None) -> list[_Open]:
        for at, item in enumerate(body):
            following = Position(body, body[at + 1] if at + 1 < len(body) else None)
            match item:
                case Node():
                    self._node(item, opened)
                    opened = [_Open(item, "next", following)]
                case If():
                    self._node(item.branch, opened)
                    then = self._body(item.body, [_Open(item.branch, "true", _start(item.body))], loop)
                    other = self._body(item.orelse, [_Open(item.branch, "false", _start(item.orelse))], loop)
                    opened = then + other
                case While():
                    opened = self._loop(item, item.branch, opened, loop)
                case For():
                    self._node(item.init, opened)
                    # Nothing can be between the bounds and the head. Code for this edge goes before the loop.
                    opened = self._loop(item, item.next, [_Open(item.init, "next", Position(body, item))], loop)
                case Jump():
                    self._jump(item, opened, loop, body)
                    opened = []
        return opened

    def _node(self, node: Node, opened: list[_Open]) -> None:
        self.nodes.append(node)
        self._meet(opened, node)

    def _loop(self, item: While | For, head: Node, opened: list[_Open], outer: _Loop | None) -> list[_Open]:
        self._node(head, opened)
        loop = _Loop(head, [])
        end = self._body(item.body, [_Open(head, "true", _start(item.body))], loop)
        self._meet(end, head)
        left = self._body(item.orelse, [_Open(head, "false", _start(item.orelse))], outer)
        return left + loop.breaks

    def _jump(self, item: Jump, opened: list[_Open], loop: _Loop | None, body: Body) -> None:
        # If only one edge leads here, its own position may be nested deeper. The position before the jump is correct,
        # too.
        here = [_Open(o.source, o.kind, Position(body, item) if len(opened) == 1 else o.position) for o in opened]
        if item.word == "return":
            self._returns += here
        elif loop is not None and item.word == "break":
            loop.breaks += here
        elif loop is not None:
            self._meet(here, loop.head)


@dataclass(slots=True)
class _Loop:
    head: Node
    breaks: list[_Open]


def _start(body: Body) -> Position:
    return Position(body, body[0] if body else None)


def _sites(handle: str, binding: Binding) -> frozenset[str]:
    return frozenset[str]().union(*(sites for name, sites in binding if name == handle))


def _moved(node: Node, binding: Binding) -> Binding:
    """The binding after ``node``."""
    after = dict(binding)
    if isinstance(node, Allocate):
        after[node.target] = frozenset({node.target})
    elif isinstance(node, Assign):
        for target, value in zip(node.targets, node.values, strict=False):
            sites = frozenset[str]().union(*(_sites(name, binding) for name in value.names))
            if target.is_name:
                after.pop(target.text, None)
                if sites:
                    after[target.text] = sites
    return frozenset(after.items())


def _narrowed(bindings: frozenset[Binding]) -> frozenset[Binding]:
    """The bindings without those that another one covers. If there are too many, one binding that covers all of them.

    The set of bindings that is covered at a node only grows, so the analysis terminates.
    """
    maximal = frozenset(b for b in bindings if not any(b is not other and _covers(other, b) for other in bindings))
    if len(maximal) <= _MOST_BINDINGS:
        return maximal
    covering: dict[str, frozenset[str]] = {}
    for binding in maximal:
        for handle, sites in binding:
            covering[handle] = covering.get(handle, frozenset()) | sites
    return frozenset({frozenset(covering.items())})


def _covers(wide: Binding, narrow: Binding) -> bool:
    sites_of = dict(wide)
    return all(handle in sites_of and sites <= sites_of[handle] for handle, sites in narrow)
