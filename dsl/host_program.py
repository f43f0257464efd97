"""A host program: parameters, tree, surroundings; the edits that transforms make.

Guarantees: an edit keeps the tree printable as Python; it bumps ``version``, and the graph of the new version is built
when it is asked for. What has been built before keeps describing the version that it was built from.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import types as t
from .errors import DslError
from .host_cfg import Edge, EffectsOf, HostCfg, declared_effects
from .host_language import HostArray
from .host_nodes import Body, Entry, Exit, For, If, Item, Launch, LoopInit, Node, While, clone_body, walk_nodes
from .host_text import function_text
from .kernel import Kernel

__all__ = ["HostParam", "HostProgram"]


@dataclass(frozen=True, slots=True)
class HostParam:
    """A parameter: a host array or a scalar; ``type_text`` is its annotation."""

    name: str
    type: HostArray | t.Scalar
    type_text: str


@dataclass(eq=False)
class HostProgram:
    """``namespace`` holds what it takes from its surroundings: constants, functions and kernels by their names."""

    name: str
    params: tuple[HostParam, ...]
    body: Body
    namespace: dict[str, Any]
    doc: str = ""
    version: int = 0
    entry: Entry = field(default_factory=Entry, repr=False)  #: the same in the graphs of all versions
    exit: Exit = field(default_factory=Exit, repr=False)
    _graphs: dict[tuple[int, EffectsOf], HostCfg] = field(default_factory=dict[Any, HostCfg], repr=False)

    # --- reading -------------------------------------------------------------------------------------------------

    def cfg(self, effects: EffectsOf = declared_effects) -> HostCfg:
        """The graph of the current version."""
        key = (self.version, effects)
        if key not in self._graphs:
            self._graphs = {k: v for k, v in self._graphs.items() if k[0] == self.version}
            self._graphs[key] = HostCfg(self.body, (p.name for p in self.params), effects, self.entry, self.exit)
        return self._graphs[key]

    def nodes(self) -> list[Node]:
        """Every node in the order of the text."""
        return list(walk_nodes(self.body))

    @property
    def kernels(self) -> dict[str, Kernel[...]]:
        """The kernels that it launches, by the names that it uses, in the order of the text."""
        return {node.kernel_text: node.kernel for node in self.nodes() if isinstance(node, Launch)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The host arrays among the parameters that it may write."""
        written = set[str]()
        for node in self.nodes():
            written |= node.defines
        return tuple(p.name for p in self.params if p.name in written and isinstance(p.type, HostArray))

    def to_python(self) -> str:
        """The program as a Python function, without the imports it needs (`host_printer.module` writes these)."""
        params = ", ".join(f"{param.name}: {param.type_text}" for param in self.params)
        return function_text(self.name, params, self.doc, self.body)

    # --- changing ------------------------------------------------------------------------------------------------

    def clone(self) -> tuple[HostProgram, dict[Node, Node]]:
        """A copy to change, and the way from this program's nodes to the copy's."""
        copies: dict[Node, Node] = {}
        body = clone_body(self.body, copies)
        made = HostProgram(self.name, self.params, body, dict(self.namespace), self.doc)
        copies.update({self.entry: made.entry, self.exit: made.exit})
        return made, copies

    def bind(self, name: str, value: object) -> str:
        """Put a new kernel or constant into the surroundings; the name it got, which is ``name`` where that is free."""
        taken = set(self.namespace) | {p.name for p in self.params}
        for node in self.nodes():
            taken |= node.uses | node.defines
        chosen, number = name, 1
        while chosen in taken:
            chosen, number = f"{name}_{number}", number + 1
        self.namespace[chosen] = value
        return chosen

    def remove(self, node: Node) -> None:
        """Take a node out. Raises `DslError` for one that decides where the program goes on."""
        body, at = self._find(node)
        del body[at]
        self._changed()

    def replace(self, node: Node, new: Sequence[Item]) -> None:
        """Put ``new`` in the place of ``node``, which does not decide where the program goes on; ``new`` may."""
        body, at = self._find(node)
        body[at : at + 1] = new
        self._changed()

    def insert_before(self, node: Node, new: Sequence[Node]) -> None:
        """Put ``new`` where it runs each time right before ``node``: at the head of a loop, copies on every edge into
        it. Nothing stands before `Entry`."""
        found = self._owner(node)
        if found is not None and not isinstance(found[0][found[1]], While | For):
            body, at = found
            body[at:at] = new
            self._changed()
            return
        self._on_edges(self.cfg().preds(node), new, node)

    def insert_after(self, node: Node, new: Sequence[Node]) -> None:
        """Put ``new`` where it runs each time right after ``node``: behind a branch, copies on both edges."""
        self._on_edges(self.cfg().succs(node), new, node)

    def insert_on_edge(self, edge: Edge, new: Sequence[Node]) -> None:
        """Put ``new`` on an edge of the current version's graph. Raises `DslError` for an edge of an older one, and
        where it would have to stand between the bounds of a ``for`` and its head and changes the bounds."""
        if not any(edge in graph.edges for (version, _), graph in self._graphs.items() if version == self.version):
            raise DslError("the edge is of an older version of the program: take it from program.cfg()")
        self._check_bounds(edge, new)
        edge.position.insert(new)
        self._changed()

    def _on_edges(self, edges: Iterable[Edge], new: Sequence[Node], node: Node) -> None:
        chosen = list(edges)
        if not chosen:
            raise DslError(f"nothing stands {'before' if isinstance(node, Entry) else 'after'} this node")
        for edge in chosen:
            self._check_bounds(edge, new)
        for number, edge in enumerate(chosen):
            edge.position.insert(new if number == 0 else [copy.copy(n) for n in new])
        self._changed()

    @staticmethod
    def _check_bounds(edge: Edge, new: Sequence[Node]) -> None:
        if isinstance(edge.source, LoopInit) and any(n.defines & edge.source.uses for n in new):
            raise DslError(f"this would change the bounds of {edge.source}")

    def _changed(self) -> None:
        self.version += 1

    def _find(self, node: Node) -> tuple[Body, int]:
        found = _search(self.body, node)
        if found is None:
            known = isinstance(node, Entry | Exit) or self._owner(node) is not None
            raise DslError(f"{node} decides where the program goes on" if known else f"{node} is not in the program")
        return found

    def _owner(self, node: Node) -> tuple[Body, int] | None:
        """Where the item that is or holds ``node`` stands."""
        return _search(self.body, node, inside=True)


def _search(body: Body, node: Node, inside: bool = False) -> tuple[Body, int] | None:
    for at, item in enumerate(body):
        if item is node or (inside and _holds(item, node)):
            return body, at
        if isinstance(item, If | While | For):
            for part in (item.body, item.orelse):
                if found := _search(part, node, inside):
                    return found
    return None


def _holds(item: Item, node: Node) -> bool:
    if isinstance(item, If | While):
        return item.branch is node
    return isinstance(item, For) and node in (item.init, item.next)
