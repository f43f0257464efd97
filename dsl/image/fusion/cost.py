"""A model of the time of groups on a GPU, and the choice of tiles by it.

A kernel takes the time of a launch, and the larger one of two times: that of the bytes that it moves between global
memory and the GPU, and that of its instructions. The instructions are those of results and of tiles: operations of all
operators at all pixels that a thread computes, and loads. Pixels that one thread needs several times count once,
because nvcc finds equal expressions. A tile is computed with its overlap.

The numbers of `Machine` are those of an H200. Times are estimates: they choose between plans, and are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ... import types as t
from ..graph import Graph
from ..groups import Group, Reach, window_of
from ..lowered import Options
from ..operators import Image, Node
from .benefit import Operations, operations_of

__all__ = ["GroupCost", "Machine", "best_group", "cost_of"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU. Times are in seconds, rates in bytes or operations per second. ``fill`` are the threads that keep it busy,
    and ``barrier`` the instructions that a thread could run while it waits at a barrier."""

    launch: float = 1.5e-6
    bytes_per_second: float = 4.2e12
    #: Operations of single threads: 132 multiprocessors of 128 lanes at 1.7 GHz, of which half are reached.
    operations_per_second: float = 1.4e13
    #: How many operations a load, an operation of the SFU, and a check of an index take.
    load: float = 4
    sfu: float = 8
    barrier: float = 40
    fill: float = 132 * 1024


@dataclass(frozen=True, slots=True)
class GroupCost:
    """The estimate of a group: bytes that it moves, operations of all threads, and seconds."""

    bytes: float
    operations: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds * 1e6:.2f} us, {self.bytes / 1e6:.3g} MB, {self.operations / 1e6:.3g} M operations"


def cost_of(group: Group, options: Options, machine: Machine) -> GroupCost:
    """The estimate of a group."""
    if any(node.operator.kind == "global" for node in group.nodes):
        moved = sum(_bytes(access.image) for node in group.nodes for access in node.accesses)
        return GroupCost(moved, 0, machine.launch + moved / machine.bytes_per_second)
    reaches = group.reaches(options)
    first = group.stored[0]
    pixels = int(first.width) * int(first.height)
    tile_x, tile_y = group.tile
    threads = group.block[0] * group.block[1]
    blocks = -(-int(first.width) // tile_x) * -(-int(first.height) // tile_y)
    operations = sum(_positions_cost(group, options, machine, node, group.pixels) for node in group.stored) * pixels
    shared = 0
    for node in group.tiled:
        if node not in reaches:
            continue
        width, height = group.tile_shape(reaches[node])
        # Every thread computes as many pixels of a tile as the one that computes most.
        rounds = -(-width * height // threads) * threads
        each = _positions_cost(group, options, machine, node, (1, 1)) + 2 * machine.load
        operations += blocks * (rounds * each + threads * machine.barrier)
        shared += width * height * t.size_of(node.pixel)
    busy = min(1.0, blocks * threads / machine.fill)
    resident = min(1.0, (228 * 1024 // shared) * threads / 1024) if shared else 1.0
    moved = sum(_bytes(node) for node in group.stored) + sum(_bytes(image) for image in _inputs(group))
    instructions = operations / (machine.operations_per_second * max(busy, 0.02) * max(resident, 0.1))
    return GroupCost(moved, operations, machine.launch + max(moved / machine.bytes_per_second, instructions))


def _bytes(image: Image[Any]) -> float:
    return float(int(image.width) * int(image.height) * t.size_of(image.pixel))


def _inputs(group: Group) -> set[Image[Any]]:
    inside = set(group.nodes)
    return {access.image for node in group.nodes for access in node.accesses if access.image not in inside}


def _positions_cost(
    group: Group, options: Options, machine: Machine, root: Node[Any], pixels: tuple[int, int]
) -> float:
    """Operations for one pixel of a result or of a tile, if a thread computes ``pixels`` of them side by side."""
    inside = set(group.nodes)
    #: By image: how far it is needed around the pixels of the thread, and how often far accesses read it.
    near: dict[Image[Any], Reach] = {root: Reach()}
    far: dict[Image[Any], int] = {}
    cost = 0.0
    for node in reversed(group.nodes):
        count = (_positions(near[node], pixels) if node in near else 0) + far.get(node, 0)
        if not count or (node in group.tiled and node is not root):
            continue
        cost += count * _weighted(operations_of(node), machine)
        for access in node.accesses:
            window, (width, height) = window_of(access, node, options), access.extent.size
            is_far = window is None or node not in near
            if is_far and access.image in inside and access.image not in (root,):
                far[access.image] = far.get(access.image, 0) + width * height * count
            elif is_far:
                cost += count * width * height * machine.load
            elif window is not None:
                reach = near[node].around(window)
                near[access.image] = near[access.image].with_(reach) if access.image in near else reach
    for image, reach in near.items():
        if image not in inside or (image in group.tiled and image is not root):
            cost += _positions(reach, pixels) * machine.load
    return cost / (pixels[0] * pixels[1])


def _positions(reach: Reach, pixels: tuple[int, int]) -> int:
    return (pixels[0] + reach.left + reach.right) * (pixels[1] + reach.up + reach.down)


def _weighted(operations: Operations, machine: Machine) -> float:
    return operations.alu + machine.sfu * operations.sfu + 1


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
