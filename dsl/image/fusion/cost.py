"""A model of the time of groups on a GPU, and the choice of tiles by it.

The time of a kernel is the sum of three parts. The first one is its node in a CUDA graph. The second one is the time of
a single thread, which executes its instructions one after the other and waits for tiles; every kernel takes it once,
because the last blocks begin late. The third one is the throughput: the blocks must be started and the bytes moved, and
at the same time the instructions be issued. Both of these overlap, but not fully, so they are joined by a norm
(`Machine.overlap`) and not by a maximum.

Bytes come from the L2 cache if what the kernel moves fits there, because the kernel before has just written it, and
from memory otherwise. Instructions are those of PTX, as the parser of this project counts them in kernels of nvcc. A
division or a square root counts more, because it becomes several machine instructions. Pixels that one thread needs
several times count once, because nvcc finds equal expressions. A tile is computed with its overlap. Blocks at the edges
of images check indices and share nothing, so that they take several times as long. The last blocks are at an edge.

`Machine` has the numbers. They were fitted to half of the pipelines of docs/experiments/image_fusion.py;
docs/experiments/image-fusion.md says how well they estimate the other half. Times are estimates: they choose between
plans, and are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ... import types as t
from ..graph import Graph
from ..groups import Group, Reach, window_of
from ..lowered import Options
from ..operators import Image, Node
from .benefit import Operations, operations_of
from .machine import Machine

__all__ = ["GroupCost", "Machine", "best_group", "cost_of"]

#: PTX instructions: of a thread besides its pixels, of a pixel that is stored besides its value, of a load, of the loop
#: of a tile, of a pixel of a tile besides its value, of an operation of the SFU, and of the checks of an index.
_THREAD, _STORE, _LOAD, _LOOP, _TILE, _SFU, _CHECK = 25, 3, 2, 25, 14, 16, 1


@dataclass(frozen=True, slots=True)
class GroupCost:
    """The estimate of a group: bytes that it moves, instructions of all threads, and seconds."""

    bytes: float
    instructions: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds * 1e6:.2f} us, {self.bytes / 1e6:.3g} MB, {self.instructions / 1e6:.3g} M instructions"


def cost_of(group: Group, options: Options, machine: Machine) -> GroupCost:
    """The estimate of a group."""
    if any(node.operator.kind == "global" for node in group.nodes):
        moved = sum(_bytes(access.image) for node in group.nodes for access in node.accesses)
        return GroupCost(moved, 0, machine.node + machine.moving(moved))
    reaches = group.reaches(options)
    first = group.stored[0]
    tile_x, tile_y = group.tile
    threads = group.block[0] * group.block[1]
    blocks = -(-int(first.width) // tile_x) * -(-int(first.height) // tile_y)
    pixels = group.pixels[0] * group.pixels[1]
    each = _THREAD + pixels * _STORE * len(group.stored) + _instructions(group, options, group.stored, group.pixels)
    checked = _THREAD + pixels * (_STORE * len(group.stored) + _unshared(group, options, group.stored))
    waits = 0.0
    shared = 0
    for node in group.tiled:
        if node not in reaches:
            continue
        width, height = group.tile_shape(reaches[node])
        rounds = width * height / threads
        each += _LOOP + rounds * (_TILE + _instructions(group, options, (node,), (1, 1), is_tile=True))
        checked += _LOOP + rounds * (_TILE + _CHECK + _unshared(group, options, (node,), is_tile=True))
        # Every thread waits for as many rounds as the one that computes most pixels of the tile.
        waits += -(-width * height // threads) * machine.latency
        shared += width * height * t.size_of(node.pixel)
    edge = _share_at_edges(group, reaches)
    checked = max(each, checked) if edge else each
    resident = min(1.0, (228 * 1024 // shared) * threads / 1024) if shared else 1.0
    moved = sum(_bytes(node) for node in group.stored) + sum(_bytes(image) for image in _inputs(group))
    instructions = (each + edge * (checked - each)) * threads * blocks
    issue = instructions / (machine.instructions_per_second * max(resident, 0.1))
    # The last row of blocks is at an edge.
    serial = machine.node + checked * machine.instruction + waits
    moving = blocks * machine.block + machine.moving(moved)
    power = machine.overlap
    return GroupCost(moved, instructions, serial + (moving**power + issue**power) ** (1 / power))


def _bytes(image: Image[Any]) -> float:
    return float(int(image.width) * int(image.height) * t.size_of(image.pixel))


def _inputs(group: Group) -> set[Image[Any]]:
    inside = set(group.nodes)
    return {access.image for node in group.nodes for access in node.accesses if access.image not in inside}


def _instructions(
    group: Group, options: Options, roots: tuple[Node[Any], ...], pixels: tuple[int, int], *, is_tile: bool = False
) -> float:
    """Instructions for the values of ``pixels`` pixels, side by side, of the nodes ``roots``. ``is_tile``: they are
    computed for a tile, and are not read from it."""
    inside = set(group.nodes)
    #: By image: how far it is needed around the pixels of the thread, and how often far accesses read it.
    near: dict[Image[Any], Reach] = dict.fromkeys(roots, Reach())
    far: dict[Image[Any], float] = {}
    tiles = {node for node in group.tiled if not (is_tile and node in roots)}
    computed: set[Image[Any]] = {node for node in group.nodes if node not in tiles}
    #: By image: how often near accesses read it. With holes in a window, this is less than its pixels.
    reads: dict[Image[Any], float] = {}
    found = 0.0
    for node in reversed(group.nodes):
        needed = min(_positions(near[node], pixels), reads.get(node, inf)) if node in near and node in computed else 0
        count = needed + far.get(node, 0)
        if not count:
            continue
        found += count * _weighted(operations_of(node))
        for access in node.accesses:
            window, (width, height) = window_of(access, node, options), access.extent.size
            is_far = window is None or node not in near
            taps = min(width * height, max(1, operations_of(node).reads)) if access.param.is_window else 1
            if is_far and access.image in inside:
                far[access.image] = far.get(access.image, 0) + taps * count
            elif is_far:
                found += count * taps * _LOAD
            elif window is not None:
                reach = near[node].around(window)
                near[access.image] = near[access.image].with_(reach) if access.image in near else reach
                reads[access.image] = reads.get(access.image, 0) + taps * count
    for image, reach in near.items():
        if image not in computed:
            found += min(_positions(reach, pixels), reads.get(image, inf)) * _LOAD
    return found


def _unshared(group: Group, options: Options, roots: tuple[Node[Any], ...], *, is_tile: bool = False) -> float:
    """Instructions for the value of one pixel of each root in a block at an edge. Exchanged indices differ from pixel
    to pixel, so that nothing is shared, and each index is checked."""
    tiles = {node for node in group.tiled if not (is_tile and node in roots)}
    count: dict[Image[Any], float] = dict.fromkeys(roots, 1.0)
    inside, found = set(group.nodes), 0.0
    for node in reversed(group.nodes):
        if node not in count or (node in tiles and node not in roots):
            continue
        found += count[node] * _weighted(operations_of(node))
        for access in node.accesses:
            (width, height), reads = access.extent.size, operations_of(node).reads
            taps = count[node] * (min(width * height, max(1, reads)) if access.param.is_window else 1)
            if access.image in inside and access.image not in tiles:
                count[access.image] = count.get(access.image, 0.0) + taps
            else:
                found += taps * (_LOAD + _CHECK)
    return found


def _share_at_edges(group: Group, reaches: dict[Image[Any], Reach]) -> float:
    """The share of the blocks that read or compute a pixel outside of an image."""
    first = group.stored[0]
    inner = 1
    blocks = 1
    for axis, (tile, size) in enumerate(zip(group.tile, first.size, strict=True)):
        before = max(reach.left if axis == 0 else reach.up for reach in reaches.values())
        after = max(reach.right if axis == 0 else reach.down for reach in reaches.values())
        count = -(-int(size) // tile)
        blocks *= count
        low, high = -(-before // tile), (int(size) - after - tile) // tile
        inner *= max(0, high - low + 1) if before or after else count
    return 1 - inner / blocks


def _positions(reach: Reach, pixels: tuple[int, int]) -> int:
    return (pixels[0] + reach.left + reach.right) * (pixels[1] + reach.up + reach.down)


def _weighted(operations: Operations) -> float:
    return operations.alu + _SFU * operations.sfu


# --- choice -------------------------------------------------------------------------------------------------------

#: Blocks and pixels of a thread that are tried: the block of the options, and blocks with several rows of a thread.
_SHAPES = (((32, 8), (1, 1)), ((32, 8), (1, 2)), ((32, 8), (1, 4)), ((32, 4), (1, 4)), ((32, 16), (1, 2)))


def best_group(
    graph: Graph, nodes: tuple[Node[Any], ...], options: Options, machine: Machine
) -> tuple[Group, GroupCost] | None:
    """The group of these operators with the least estimated time, over tiles, blocks and pixels of a thread. None if
    no choice is legal."""
    found: tuple[Group, GroupCost] | None = None
    for group in _shapes(graph, nodes, options):
        chosen = _tiled(group, options, machine)
        if chosen is not None and (found is None or chosen[1].seconds < found[1].seconds * 0.999):
            found = chosen
    return found


def _shapes(graph: Graph, nodes: tuple[Node[Any], ...], options: Options) -> Iterator[Group]:
    yield Group(graph, nodes, block=options.block)
    for block, pixels in _SHAPES if nodes[0].operator.kind != "global" else ():
        if (block, pixels) != (options.block, (1, 1)):
            yield Group(graph, nodes, block=block, pixels=pixels)


def _tiled(group: Group, options: Options, machine: Machine) -> tuple[Group, GroupCost] | None:
    """The group with the tiles that make its time least: from none and from all on, the best change of one operator."""
    internal = [node for node in group.nodes if any(node is not each for each in group.nodes)]
    candidates = frozenset(node for node in internal if _is_read_by_a_window(group, node, options))
    best: tuple[Group, GroupCost] | None = None
    for start in {frozenset[Node[Any]](), candidates}:
        at = _legal(replace(group, tiled=start), options, machine)
        while True:
            changes = [
                _legal(replace(group, tiled=(at[0].tiled if at else start) ^ {n}), options, machine) for n in candidates
            ]
            known = [each for each in changes if each is not None]
            step = min(known, key=lambda each: (each[1].seconds, len(each[0].tiled)), default=None)
            if step is None or (at is not None and step[1].seconds >= at[1].seconds):
                break
            at = step
        if at is not None and (best is None or at[1].seconds < best[1].seconds):
            best = at
    return best


def _is_read_by_a_window(group: Group, node: Node[Any], options: Options) -> bool:
    inside = set(group.nodes)
    return any(
        access.image is node and access.extent.size != (1, 1) and window_of(access, reader, options) is not None
        for reader in group.graph.consumers(node)
        if reader in inside
        for access in reader.accesses
    )


def _legal(group: Group, options: Options, machine: Machine) -> tuple[Group, GroupCost] | None:
    if next(group.problems(options), None) is not None:
        return None
    return group, cost_of(group, options, machine)
