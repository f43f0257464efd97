"""Launches that never come to stand side by side, and the statements that keep them apart.

Computes: for launches that follow each other on some way without another launch between, whether a statement that the
first may not pass stands on it before, or is, one that the second may not pass.
Guarantees: nothing but remarks; what could be fused is told by those who decide it.
Reference: thesis §5.2.1, modification statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...dsl.host_cfg import HostCfg
from ...dsl.host_nodes import Launch, Node
from ..remarks import Remark

__all__ = ["kept_apart"]

#: Whether a launch may not change places with a node.
Modifies = Callable[[Node, Launch], bool]


def kept_apart(cfg: HostCfg, modifies: Modifies) -> Iterator[Remark]:
    """A remark for each two launches that are kept apart, in the order of the text."""
    for first in cfg.launches():
        for second, between in _following(cfg, first):
            stops_first = [at for at, node in enumerate(between) if modifies(node, first)]
            stops_second = [at for at, node in enumerate(between) if modifies(node, second)]
            if stops_first and stops_second and stops_first[0] <= stops_second[-1]:
                yield _remark(first, second, between[stops_first[0]], between[stops_second[-1]])


def _following(cfg: HostCfg, first: Launch) -> Iterator[tuple[Launch, list[Node]]]:
    """The launches behind one, each with the statements of a way there."""
    seen: set[Node] = set()
    waiting: list[tuple[Node, list[Node]]] = [(edge.target, []) for edge in cfg.succs(first)]
    while waiting:
        node, way = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Launch):
            if node is not first:
                yield node, way
            continue
        waiting += [(edge.target, [*way, node]) for edge in reversed(cfg.succs(node))]


def _remark(first: Launch, second: Launch, one: Node, other: Node) -> Remark:
    if one is other:
        told = f"{_shown(one)} stands between them, and neither may pass it"
    else:
        told = f"{first.kernel_text} may not pass {_shown(one)}, and {second.kernel_text} may not pass {_shown(other)}"
    both = f"{first.kernel.name}+{second.kernel.name}"
    place = second.place or first.place
    where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
    return Remark("Missed", "fuse", "NotFused", both, told, *where, reason="kept-apart")


def _shown(node: Node) -> str:
    return f"'{node}'" + (f" (line {node.place.line})" if node.place is not None else "")
