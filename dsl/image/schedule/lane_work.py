"""What a kernel with tiles of lanes does: `tiling.lane_layout` counted.

A lane computes a row of its columns at a time, and loads, exchanges and stores a row at a time. Rows around the results
are computed, too, and lanes without results work as the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ... import types as t
from ..groups import Group
from ..operators import Node
from ..tiling.lane_layout import Item, Staged, can_be_shuffled
from ..tiling.lanes import UNROLLED_ROWS
from ..tiling.teams import WARP

__all__ = ["LaneWork", "lane_work"]

#: Bytes of a lane that the unit for loads and stores handles at a time.
_PASS = 4

#: Further instructions of a row of an item, and of a row of the results.
_ROW, _STORE = 2.0, 5.0
#: The same in a warp at an edge: of a pixel that is loaded, of one that is padded, of an operator, of a result.
_EDGE_LOAD, _EDGE_PAD, _EDGE_ROW, _EDGE_STORE = 9.0, 3.0, 14.0, 4.0


@dataclass(frozen=True, slots=True)
class LaneWork:
    """Counts of one lane: operations, those of the SFU, loads, shuffles, instructions in a warp that is not at an edge
    (``instructions``) and at an edge, passes through the unit for memory, waits for rows (``rounds``), instructions of
    the code, registers, and ``pixels`` of a result, on the average over the lanes of a warp."""

    alu: float
    sfu: float
    loads: float
    shuffles: float
    instructions: float
    at_edges: float
    accesses: float
    rounds: float
    code: float
    registers: float
    pixels: float


def lane_work(group: Group, counts: Callable[[Node[Any]], Any], sfu: float, base: float) -> LaneWork:
    """The work of a legal group with tiles of lanes. ``counts`` gives what one row of an operator takes
    (`work.Counts`), ``sfu`` the instructions of an operation of the SFU, ``base`` the registers that no pixel needs."""
    layout, (columns, tall) = group.lanes, group.pixels
    steps = tall + max(reach.up + reach.down for reach in layout.reaches.values())
    direct = _direct(group)
    alu = slow = loads = shuffles = other = passes = edge = one = ahead = 0.0
    for root in layout.roots:
        each, rows = counts(root), layout.rows(root, tall)
        row = each.alu + sfu * each.sfu + _ROW
        alu, slow, other, one = alu + rows * each.alu, slow + rows * each.sfu, other + rows * _ROW, one + row
        ahead += (rows - tall) * row
        loads, passes = loads + rows * each.loads * direct, passes + rows * each.loads * direct
        edge += steps * (row + _EDGE_ROW + (_EDGE_PAD * columns if root in layout.tiled else 0))
    for item in layout.items:
        rows, size = layout.rows(item, tall), t.size_of(_pixel(item))
        exchanged = sum(layout.columns(item))
        shuffles, passes = shuffles + rows * exchanged, passes + rows * exchanged
        other, one = other + rows * _ROW, one + _ROW + exchanged
        moved = (layout.depth(item, inner=False) - 1) * (columns + exchanged)
        edge += steps * (moved + exchanged)
        if isinstance(item, Staged):
            words = 1 if columns * size <= 16 else columns
            loads, passes = loads + rows * words, passes + rows * max(1.0, columns * size / _PASS)
            edge += steps * columns * _EDGE_LOAD
    for node in layout.stored:
        other += tall * _STORE
        passes += tall * max(1.0, columns * t.size_of(node.pixel) / _PASS)
        edge += tall * columns * _EDGE_STORE
    instructions = alu + sfu * slow + loads + shuffles + other
    return LaneWork(
        alu=alu,
        sfu=slow,
        loads=loads,
        shuffles=shuffles,
        instructions=instructions,
        at_edges=max(edge, instructions),
        accesses=passes,
        rounds=1 + -(-tall // UNROLLED_ROWS),
        code=ahead + one * min(tall, UNROLLED_ROWS),
        registers=base + layout.kept(columns) + columns * len(layout.stored),
        pixels=group.tile[0] * tall / WARP,
    )


def _pixel(item: Item) -> t.Type:
    return item.image.pixel if isinstance(item, Staged) else item.pixel


def _direct(group: Group) -> float:
    """The share of the inputs of the group that lanes do not keep, if there are any."""
    inputs = {access.image for node in group.nodes for access in node.accesses if access.image not in group.nodes}
    return sum(not can_be_shuffled(image.pixel) for image in inputs) / max(1, len(inputs))
