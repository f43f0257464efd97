"""Greedy grouping: operators with the largest benefit are merged, as long as a merge has one.

The cost of a group is that of listing 1: arithmetic and loads of all its operators, divided by the threads that are
active. A configuration is invalid if it exceeds a limit of the GPU, has too low an occupancy, or fewer blocks than the
GPU has multiprocessors. Tiles are powers of two between bounds that depend on the image; each thread of a block
computes one pixel of the result. At the end each group gets the best tile whose sides are even.

Nested fusion (listing 2): an operator is computed where it is read, and not in a tile, if no pixel of it is then
computed twice. Operators that are read pixel by pixel, or are cheap, are always inline.

Differences from the paper: a block has as many threads as a tile of the result has pixels; where the tile of an
operator is larger, a thread computes several of its pixels. The extents of larger tiles only limit the threads.

Source: Sioutas, Stuijk, Basten, Corporaal, Somers: Schedule Synthesis for Halide Pipelines on GPUs, §4.2 and §4.3
(listings 1 and 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from ....arch import MAX_THREADS
from ....toolchain.occupancy import occupancy
from ... import types as t
from ..fusion.benefit import operations_of
from ..fusion.machine import multiprocessors_here
from ..graph import Graph
from ..groups import Group, Plan, groups_of
from ..lowered import Options
from ..operators import Node
from ..tiling.teams import WARP
from .costs import Costed, cheapest
from .known import KnownMembers
from .work import SECTOR, Members

__all__ = ["greedy_plan"]

#: What a load takes, in operations: from global memory and from a tile.
_GLOBAL_LOAD, _TILE_LOAD = 40.0, 4.0
#: The least occupancy, and the registers of a thread that are assumed.
_LEAST_OCCUPANCY, _REGISTERS = 0.1, 32
#: An operator with fewer operations is always inline.
_CHEAP = 2


def greedy_plan(graph: Graph, options: Options, known: KnownMembers | None = None) -> Plan:
    """The plan that merging finds. ``known``: what other searches of the graph have computed."""
    search = _Search(known or KnownMembers(graph, options))
    parts: list[tuple[Node[Any], ...]] = [(node,) for node in graph.nodes]
    while True:
        merges = [merge for pair in search.pairs(parts) if (merge := search.merged(parts, *pair)) is not None]
        if not merges:
            break
        _, parts = max(merges, key=lambda each: each[0])
    return Plan(graph, tuple(search.final(nodes) for nodes in parts))


class _Search:
    def __init__(self, known: KnownMembers) -> None:
        self.graph, self.options, self.known = known.graph, known.options, known
        #: By operators: the best group. None if none is valid.
        self._best: dict[tuple[Node[Any], ...], Costed | None] = {}

    def best(self, nodes: tuple[Node[Any], ...]) -> Costed | None:
        """The valid group of these operators with the least cost, over tiles that are powers of two."""
        if nodes not in self._best:
            self._best[nodes] = self._least(nodes, [2**power for power in range(12)])
        return self._best[nodes]

    def _least(self, nodes: tuple[Node[Any], ...], sides: list[int]) -> Costed | None:
        """The same over blocks that are tiles with these sides."""
        members = self.known.of(nodes)
        if members.problem or nodes[0].operator.kind == "global":
            return None
        tiled = self._tiled(members)
        groups = (replace(members.group, tiled=tiled, block=block) for block in _blocks(members.group, sides))
        costs = ((group, _cost(members, group)) for group in groups if members.is_legal(group))
        return cheapest(Costed(group, cost) for group, cost in costs if cost is not None)

    def _tiled(self, members: Members) -> frozenset[Node[Any]]:
        """The operators that get tiles: those that would be computed several times for a pixel, and are not cheap."""
        copies = members.group.copies(self.options)
        inner = [node for node in members.nodes if node not in members.group.stored and node in members.reaches]
        return frozenset(node for node in inner if copies[node] > 1 and operations_of(node).alu > _CHEAP)

    def pairs(self, parts: list[tuple[Node[Any], ...]]) -> Iterator[tuple[int, int]]:
        """Groups of which one reads the other."""
        for first, producers in enumerate(parts):
            for second, readers in enumerate(parts):
                images = {access.image for node in readers for access in node.accesses}
                if first != second and images & {*producers}:
                    yield first, second

    def merged(
        self, parts: list[tuple[Node[Any], ...]], first: int, second: int
    ) -> tuple[float, list[tuple[Node[Any], ...]]] | None:
        """The benefit of a merge, and the groups after it. None if there is none."""
        order = {node: at for at, node in enumerate(self.graph.nodes)}
        whole = tuple(sorted((*parts[first], *parts[second]), key=order.__getitem__))
        merged = self.best(whole)
        if merged is None:
            return None
        singles = [self.best(parts[at]) for at in (first, second)]
        benefit = sum(each.cost if each is not None else inf for each in singles) - merged.cost
        if benefit <= 0:
            return None
        rest = [nodes for at, nodes in enumerate(parts) if at not in (first, second)]
        return benefit, groups_of(self.graph, [*rest, whole])

    def final(self, nodes: tuple[Node[Any], ...]) -> Group:
        """The group with the best tile whose sides are even, after nested fusion."""
        members = self.known.of(nodes)
        best = self._least(nodes, list(range(2, 129, 2))) or self.best(nodes)
        group = best.group if best is not None else members.group
        for node in [node for node in nodes if node in group.tiled]:
            nested = replace(group, tiled=group.tiled - {node})
            if nested.copies(self.options)[node] <= 1 and members.is_legal(nested):
                group = nested
        return group


def _blocks(group: Group, sides: list[int]) -> Iterator[tuple[int, int]]:
    """Blocks that are tiles between the bounds, and consist of whole warps."""
    first = group.stored[0]
    width, height = int(first.width), int(first.height)
    for x in sides:
        for y in sides:
            if _within(x, width, 32) and _within(y, height, 128) and x * y <= MAX_THREADS and x * y % WARP == 0:
                yield x, y


def _within(side: int, extent: int, share: int) -> bool:
    """Whether the side of a tile is between the bounds for a dimension of this extent."""
    most = extent // share if extent >= 1024 else max(1, extent // 2)
    least = 8 if extent > 64 else 1
    return min(least, most) <= side <= most


def _cost(members: Members, group: Group) -> float | None:
    """The cost of a group by listing 1 of the paper, without a unit; `None` if its configuration is invalid."""
    first = group.stored[0]
    tile_x, tile_y = group.tile
    blocks = -(-int(first.width) // tile_x) * -(-int(first.height) // tile_y)
    shared = members.shared_bytes(group)
    inside = set(group.nodes)
    arithmetic = memory = 0.0
    least, active = 1.0, float(MAX_THREADS)
    for node in group.nodes:
        if node not in group.stored and node not in group.tiled:
            continue
        reach = members.reaches[node]
        width, height = tile_x + reach.left + reach.right, tile_y + reach.up + reach.down
        threads = min(MAX_THREADS, -(-width * height // WARP) * WARP)
        resident = occupancy(90, threads, _REGISTERS, shared)
        if resident is None or resident.share < _LEAST_OCCUPANCY:
            return None
        counts = members.counts((node,), group.tiled, (1, 1), fill=True)
        pixels = width * height
        running = float(threads * resident.blocks)
        arithmetic += pixels * (counts.alu + 16 * counts.sfu) / (resident.share * running)
        memory += pixels * (counts.loads * _GLOBAL_LOAD / _consecutive(node, inside) + counts.reads * _TILE_LOAD)
        memory += pixels * (_GLOBAL_LOAD / _consecutive(node, inside) if node in group.stored else _TILE_LOAD)
        least, active = min(least, resident.share), min(active, running)
    count = multiprocessors_here()
    if blocks < count and int(first.width) * int(first.height) >= count * WARP * 32:
        return None
    return blocks * (arithmetic + memory / (least * active))


def _consecutive(node: Node[Any], inside: set[Any]) -> float:
    """How many consecutive loads share a transaction."""
    sizes = [t.size_of(access.image.pixel) for access in node.accesses if access.image not in inside]
    return SECTOR / max([t.size_of(node.pixel), *sizes])
