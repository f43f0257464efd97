"""Reports launches that host statements keep from becoming adjacent.

Computes: pairs of launches that follow each other on a path with no other launch between them, but with statements
between them that block both. The first launch cannot move down past one of these statements, and the second launch
cannot move up past the same or a later one.
Guarantees: it produces remarks only. It decides nothing.
Reference: thesis §5.2.1, modification statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...dsl.host_cfg import HostCfg
from ...dsl.host_nodes import Launch, Node
from ..remarks import Remark

__all__ = ["blocked_pairs"]

#: Whether ``node`` blocks ``launch``: the two must keep their order.
Modifies = Callable[[Node, Launch], bool]


def blocked_pairs(cfg: HostCfg, modifies: Modifies) -> Iterator[Remark]:
    """A remark for each blocked pair of launches, in the order of the program text."""
    for first in cfg.launches():
        for second, between in _following(cfg, first):
            blocks_first = [at for at, node in enumerate(between) if modifies(node, first)]
            blocks_second = [at for at, node in enumerate(between) if modifies(node, second)]
            if blocks_first and blocks_second and blocks_first[0] <= blocks_second[-1]:
                yield _remark(first, second, between[blocks_first[0]], between[blocks_second[-1]])


def _following(cfg: HostCfg, first: Launch) -> Iterator[tuple[Launch, list[Node]]]:
    """The next launches after ``first``, each with the statements of one path to it."""
    visited: set[Node] = set()
    waiting: list[tuple[Node, list[Node]]] = [(edge.target, []) for edge in cfg.succs(first)]
    while waiting:
        node, path = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        if isinstance(node, Launch):
            if node is not first:
                yield node, path
            continue
        waiting += [(edge.target, [*path, node]) for edge in reversed(cfg.succs(node))]


def _remark(first: Launch, second: Launch, blocks_first: Node, blocks_second: Node) -> Remark:
    if blocks_first is blocks_second:
        message = f"{_shown(blocks_first)} is between them, and neither launch may move past it"
    else:
        message = f"{_may_not_pass(first, blocks_first)}, and {_may_not_pass(second, blocks_second)}"
    both = f"{first.kernel.name}+{second.kernel.name}"
    place = second.place or first.place
    where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
    return Remark("Missed", "fuse", "NotFused", both, message, *where, reason="blocked")


def _may_not_pass(launch: Launch, node: Node) -> str:
    return f"{launch.kernel_text} may not move past {_shown(node)}"


def _shown(node: Node) -> str:
    return f"'{node}'" + (f" (line {node.place.line})" if node.place is not None else "")
