"""A host program: parameters, statement tree, captured names, and the edits that transforms make.

Guarantees: after an edit the tree is still printable as Python. An edit increments ``version``. The graph of the new
version is built when it is used first. A graph that was built before still describes its own version.
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
    """A parameter: a host array or a scalar. ``type_text`` is the text of its annotation."""

    name: str
    type: HostArray | t.Scalar
    type_text: str


@dataclass(eq=False)
class HostProgram:
    """``namespace`` maps the names that it captures to constants, functions and kernels."""

    name: str
    params: tuple[HostParam, ...]
    body: Body
    namespace: dict[str, Any]
    doc: str = ""
    version: int = 0
    entry: Entry = field(default_factory=Entry, repr=False)  #: shared by the graphs of all versions
    exit: Exit = field(default_factory=Exit, repr=False)
    #: By (version, effects): the graph. Only graphs of the latest version are kept.
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
        """Every node in the order of the program text."""
        return list(walk_nodes(self.body))

    @property
    def kernels(self) -> dict[str, Kernel[...]]:
        """The kernels that it launches, by their names in the program, in the order of the program text."""
        return {node.kernel_text: node.kernel for node in self.nodes() if isinstance(node, Launch)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The parameters that are host arrays and may be written."""
        written = set[str]()
        for node in self.nodes():
            written |= node.defines
        return tuple(p.name for p in self.params if p.name in written and isinstance(p.type, HostArray))

    def to_python(self) -> str:
        """The program as a Python function, without imports (`host_printer.module` adds them)."""
        params = ", ".join(f"{param.name}: {param.type_text}" for param in self.params)
        return function_text(self.name, params, self.doc, self.body)

    # --- changing ------------------------------------------------------------------------------------------------

    def clone(self) -> tuple[HostProgram, dict[Node, Node]]:
        """A copy that may be changed, and a map from this program's nodes to those of the copy."""
        copies: dict[Node, Node] = {}
        body = clone_body(self.body, copies)
        made = HostProgram(self.name, self.params, body, dict(self.namespace), self.doc)
        copies.update({self.entry: made.entry, self.exit: made.exit})
        return made, copies

    def bind(self, name: str, value: object) -> str:
        """Add a kernel or constant to the captured names. The result is its name: ``name``, or a similar one if that is
        taken."""
        taken = set(self.namespace) | {p.name for p in self.params}
        for node in self.nodes():
            taken |= node.uses | node.defines
        chosen, number = name, 1
        while chosen in taken:
            chosen, number = f"{name}_{number}", number + 1
        self.namespace[chosen] = value
        return chosen

    def remove(self, node: Node) -> None:
        """Remove a node. Raises `DslError` for a node that decides about control flow."""
        body, at = self._find(node)
        del body[at]
        self._changed()

    def replace(self, node: Node, new: Sequence[Item]) -> None:
        """Replace ``node``, which must not decide about control flow, by ``new``."""
        body, at = self._find(node)
        body[at : at + 1] = new
        self._changed()

    def insert_before(self, node: Node, new: Sequence[Node]) -> None:
        """Insert ``new`` so that it runs right before each run of ``node``. At the head of a loop, copies are inserted
        on every edge to it. Raises `DslError` for `Entry`."""
        owner = self._owner(node)
        if owner is not None and not isinstance(owner[0][owner[1]], While | For):
            body, at = owner
            body[at:at] = new
            self._changed()
            return
        self._on_edges(self.cfg().preds(node), new, node)

    def insert_after(self, node: Node, new: Sequence[Node]) -> None:
        """Insert ``new`` so that it runs right after each run of ``node``. After a branch, copies are inserted on both
        edges."""
        self._on_edges(self.cfg().succs(node), new, node)

    def insert_on_edge(self, edge: Edge, new: Sequence[Node]) -> None:
        """Insert ``new`` on an edge of the current version's graph.

        Raises `DslError` for an edge of an older version, and if ``new`` would be between the bounds of a ``for`` and
        its head and would change the bounds.
        """
        if not any(edge in graph.edges for (version, _), graph in self._graphs.items() if version == self.version):
            raise DslError("the edge belongs to an older version of the program: take it from program.cfg()")
        self._check_bounds(edge, new)
        edge.position.insert(new)
        self._changed()

    def _on_edges(self, edges: Iterable[Edge], new: Sequence[Node], node: Node) -> None:
        chosen = list(edges)
        if not chosen:
            raise DslError(f"nothing can be inserted {'before' if isinstance(node, Entry) else 'after'} this node")
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
        position = _search(self.body, node)
        if position is None:
            is_inside = isinstance(node, Entry | Exit) or self._owner(node) is not None
            raise DslError(f"{node} decides about control flow" if is_inside else f"{node} is not in the program")
        return position

    def _owner(self, node: Node) -> tuple[Body, int] | None:
        """The body and the index of the item that is or contains ``node``."""
        return _search(self.body, node, inside=True)


def _search(body: Body, node: Node, inside: bool = False) -> tuple[Body, int] | None:
    for at, item in enumerate(body):
        if item is node or (inside and _holds(item, node)):
            return body, at
        if isinstance(item, If | While | For):
            for part in (item.body, item.orelse):
                if position := _search(part, node, inside):
                    return position
    return None


def _holds(item: Item, node: Node) -> bool:
    if isinstance(item, If | While):
        return item.branch is node
    return isinstance(item, For) and node in (item.init, item.next)
