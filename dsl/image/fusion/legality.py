"""Which blocks of kernels the thesis fuses: dependences (figure 3.2), resources (equation 3.2), headers (3.3).

A block has one kernel whose image is read outside of it, the destination. Kernels of a block may read images from
outside only if a first kernel of the block, a source, reads them, too. Blocks that `groups.Group` can compute are more:
several results, any inputs, and accesses with scales and offsets.

The thesis bounds occupancy by equation 3.2, and states for its example that shared memory may grow by a factor of two.
Here, the bound is on shared memory: a kernel that reads a window keeps a tile; the tiles of fused kernels can share
memory, unless one window reads what another window gives.

Source: Qiao, thesis, §3.3.2 and the example of §3.5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import types as t
from ..graph import Graph
from ..operators import Image, Node

__all__ = ["Limits", "problem_of_block", "shared_bytes"]


@dataclass(frozen=True, slots=True)
class Limits:
    """``shared_growth``: how many times the shared memory of its largest kernel a fused kernel may use. ``block``: the
    threads of a block."""

    shared_growth: float = 2
    block: tuple[int, int] = (32, 8)


def problem_of_block(graph: Graph, nodes: Sequence[Node[Any]], limits: Limits) -> str:
    """Why the thesis does not fuse a block of several kernels. Empty if it does."""
    if len(nodes) < 2:
        return ""
    inside = set(nodes)
    if any(node.operator.kind == "global" for node in nodes):
        return "a global operator"
    return _headers(inside) or _dependences(graph, inside) or _resources(graph, inside, limits)


def _headers(inside: set[Node[Any]]) -> str:
    spaces = {(int(n.space.width), int(n.space.height), n.space.x0, n.space.y0) for n in inside}
    if len(spaces) > 1:
        return "different iteration spaces"
    for node in inside:
        for access in node.accesses:
            if access.image in inside and any(
                (centre.numerator, centre.denominator, centre.offset) != (1, 1, 0) for centre in access.centres
            ):
                return "another granularity"
    return ""


def _dependences(graph: Graph, inside: set[Node[Any]]) -> str:
    outputs = set(graph.outputs)
    results = [
        node
        for node in graph.nodes
        if node in inside and (node in outputs or any(each not in inside for each in graph.consumers(node)))
    ]
    if len(results) > 1:
        return f"external output of {results[0].name}"
    sources = [node for node in inside if not any(access.image in inside for access in node.accesses)]
    shared: set[Image[Any]] = {access.image for node in sources for access in node.accesses}
    if len(sources) > 1 and not all(shared == {access.image for access in node.accesses} for node in sources):
        return "external input of several sources"
    for node in graph.nodes:
        if node in inside:
            for access in node.accesses:
                if access.image not in inside and access.image not in shared:
                    return f"external input of {node.name}"
    return ""


def shared_bytes(node: Node[Any], limits: Limits) -> int:
    """Bytes of the tiles of a kernel that reads windows."""
    found = 0
    for access in node.accesses:
        width, height = access.extent.size
        if access.param.is_window and width * height > 1:
            found += (limits.block[0] + width - 1) * (limits.block[1] + height - 1) * t.size_of(access.image.pixel)
    return found


def _resources(graph: Graph, inside: set[Node[Any]], limits: Limits) -> str:
    needed = {node: shared_bytes(node, limits) for node in inside}
    largest = max(needed.values())
    if not largest:
        return ""
    # Whether a window reads what, perhaps through point operators, depends on another window.
    below: set[Image[Any]] = set()
    is_nested = False
    for node in graph.nodes:
        if node in inside:
            depends = any(access.image in below for access in node.accesses)
            is_nested = is_nested or (depends and needed[node] > 0)
            if depends or needed[node]:
                below.add(node)
    growth = (sum(needed.values()) if is_nested else largest) / largest
    return f"shared memory grows {growth:.3g} times" if growth > limits.shared_growth else ""
