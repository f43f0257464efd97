"""Shapes of groups: kinds of tiles, blocks, pixels of a thread, and registers, which the searches try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..groups import Group, Regions
from ..lowered import Options
from ..operators import Image, Node
from ..partitioning import ROWS, checks_edges
from ..tiling.lane_layout import COLUMNS
from ..tiling.teams import WARP, Kind
from .work import Members

__all__ = ["BLOCKS", "FEW", "SHAPES", "Shape", "shapes", "tiled_sets", "with_regions"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What computes a tile, the threads of a block, the pixels of a thread, and its columns in registers."""

    kind: Kind
    block: tuple[int, int]
    pixels: tuple[int, int]
    in_registers: int = 0


#: Shapes of a group: tile sizes are powers of two, and fractions in registers are quarters.
SHAPES: tuple[Shape, ...] = (
    *(Shape("block", (32, 8), (1, tall)) for tall in (1, 2, 4)),
    *(Shape("block", (32, 4), (1, tall)) for tall in (4, 8)),
    *(Shape("block", (64, 4), (1, tall)) for tall in (1, 4)),
    *(Shape("block", (32, 16), (1, tall)) for tall in (2, 4)),
    Shape("block", (64, 8), (1, 4)),
    Shape("block", (32, 8), (2, 4)),
    *(Shape("warp", (32, 4), (across, tall)) for across in (1, 2, 4) for tall in (2, 4, 8, 16)),
    *(
        Shape("hybrid", (32, 4), (across, tall), columns)
        for across in (1, 2, 4)
        for tall in (4, 8, 16, 32)
        for columns in sorted({max(1, across // 2), across})
        if across * tall <= 32
    ),
    *(Shape("lanes", (32, 4), (columns, tall)) for columns in COLUMNS for tall in (2, 4, 8, 16)),
)


#: The shapes by which the groups of a large graph are compared; the groups that are found get the best of `SHAPES`.
FEW: tuple[Shape, ...] = (
    Shape("block", (32, 8), (1, 4)),
    Shape("warp", (32, 4), (2, 8)),
    Shape("hybrid", (32, 4), (1, 8), 1),
    Shape("hybrid", (32, 4), (2, 16), 2),
    Shape("lanes", (32, 4), (1, 4)),
    Shape("lanes", (32, 4), (2, 8)),
)


#: Blocks of kernels with regions, which are tried when schedules are timed.
BLOCKS = ((32, 4), (32, 8), (64, 4), (128, 1), (128, 4))
#: Those of them that are tried for kernels whose threads compute several pixels.
BLOCKS_OF_ROWS = ((32, 4), (32, 8), (64, 4), (128, 1))


def with_regions(group: Group, options: Options) -> Iterator[Group]:
    """The kernels with regions of a group of one operator. Those with one pixel of a thread differ from the naive one
    if an index is checked; those with several also share what they read."""
    for block in BLOCKS:
        # A block that is one warp wide has no other warps along x.
        kinds: tuple[Regions, ...] = ("isp", "isp_warp") if block[0] > WARP else ("isp",)
        of_rows: tuple[Regions, ...] = ("isp_rows",) if block in BLOCKS_OF_ROWS else ()
        for regions in (*kinds, *of_rows):
            rows = ROWS if regions == "isp_rows" else 1
            made = Group(group.graph, group.nodes, block=block, pixels=(1, rows), regions=regions)
            if not list(made.problems(options)) and checks_edges(group.nodes[0], replace(options, block=block), rows):
                yield made


def tiled_sets(members: Members) -> list[frozenset[Node[Any]]]:
    """Sets of operators that may be worth tiles: none; all internal images that windows read; all operators with
    windows that would be computed several times for a pixel; and these without one of them."""
    group = members.group
    internal = [node for node in group.nodes if any(each is not node for each in group.nodes)]
    windowed: set[Image[Any]] = set()
    for reader in group.nodes:
        windowed |= {access.image for access in reader.accesses if access.extent.size != (1, 1)}
    copies = members.copies(group)
    reached = [node for node in internal if node in members.reaches]
    read = frozenset(node for node in reached if node in windowed)
    repeated = frozenset(node for node in reached if node.operator.kind == "local" and copies[node] > 1)
    found = [frozenset[Node[Any]](), read, repeated]
    small = [whole for whole in (read, repeated) if len(whole) <= 4]
    found += [whole - {node} for whole in small for node in group.nodes if node in whole]
    return list(dict.fromkeys(found))


def shapes(members: Members, tried: Sequence[Shape] = SHAPES) -> Iterator[Group]:
    """All groups of these operators, in some shapes, that the searches consider and that one kernel can compute."""
    if any(node.operator.kind == "global" for node in members.nodes):
        if not members.problem:
            yield members.group
        return
    if members.problem:
        return
    for tiled in tiled_sets(members):
        for shape in tried:
            # Lanes keep everything that windows read.
            if tiled == members.read_by_windows if shape.kind == "lanes" else tiled or shape.kind == "block":
                group = members.with_(tiled, shape)
                if members.is_legal(group):
                    yield group
