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
from ..reach import Reach
from ..tiling.lane_layout import Item, LaneLayout, Staged, can_be_shuffled
from ..tiling.lanes import ROWS_AHEAD, UNROLLED_ROWS
from ..tiling.teams import WARP

__all__ = ["LaneWork", "lane_work"]

#: Bytes of a lane that the unit for loads and stores handles at a time.
_PASS = 4

#: The share of the instructions that remains where columns and rows share expressions, and the share of the passes
#: through the unit for memory that is not hidden. Fitted to times, as are the following numbers.
_REMAINING, _SEEN = 0.78, 0.48
#: Waits of a warp, and of each of its rows; the share of the code that counts, since most of it is a loop.
_WAITS, _WAITS_OF_ROW, _FETCHED = 1.28, 0.13, 0.425
#: The share of the further instructions at edges.
_AT_EDGES = 0.8

#: Further instructions of a row of an item, and of a row of the results.
_ROW, _STORE = 2.0, 5.0
#: Further instructions in a warp at an edge: of a pixel that is loaded, of one that is padded, of a row of an operator,
#: and of a result.
_EDGE_LOAD, _EDGE_PAD, _EDGE_ROW, _EDGE_STORE = 3.0, 3.0, 6.0, 3.0


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


def lane_work(group: Group, counts: Callable[[tuple[Node[Any], ...]], Any], sfu: float, base: float) -> LaneWork:
    """The work of a legal group with tiles of lanes. ``counts`` gives what one row of some operators takes
    (`work.Counts`), ``sfu`` the instructions of an operation of the SFU, ``base`` the registers that no pixel needs."""
    layout, (columns, tall) = group.lanes, group.pixels
    direct = _direct(group)
    alu = slow = loads = shuffles = other = passes = edge = one = ahead = 0.0
    for roots in _alike(layout):
        each, rows = counts(roots), layout.rows(roots[0], tall)
        own = _ROW * len(roots)
        row = each.alu + sfu * each.sfu + own
        alu, slow, other, one = alu + rows * each.alu, slow + rows * each.sfu, other + rows * own, one + row
        ahead += (rows - tall) * row
        loaded = rows * (each.far + (each.loads - each.far) * direct)
        loads, passes = loads + loaded, passes + loaded
        edge += sum(rows * (_EDGE_ROW + _EDGE_PAD * columns) for root in roots if root in layout.tiled)
    inputs = sum(isinstance(item, Staged) for item in layout.items)
    for item in layout.items:
        rows, size = layout.rows(item, tall), t.size_of(_pixel(item))
        exchanged = sum(layout.columns(item))
        shuffles, passes = shuffles + rows * exchanged, passes + rows * exchanged
        other, one = other + rows * _ROW, one + _ROW + exchanged
        if isinstance(item, Staged):
            words = 1 if columns * size <= 16 else columns
            loads, passes = loads + rows * words, passes + rows * max(1.0, columns * size / _PASS)
            edge += rows * columns * _EDGE_LOAD
    for node in layout.stored:
        other += tall * _STORE
        passes += tall * max(1.0, columns * t.size_of(node.pixel) / _PASS)
        edge += tall * columns * _EDGE_STORE
    instructions = _REMAINING * (alu + sfu * slow + loads + shuffles + other)
    return LaneWork(
        alu=alu,
        sfu=slow,
        loads=loads,
        shuffles=shuffles,
        instructions=instructions,
        at_edges=instructions + _AT_EDGES * edge,
        accesses=_SEEN * passes,
        rounds=_WAITS + _WAITS_OF_ROW * tall,
        code=_FETCHED * (ahead + one * min(tall, UNROLLED_ROWS)),
        registers=base + layout.kept(columns) + columns * (ROWS_AHEAD * inputs + len(layout.stored)),
        pixels=group.tile[0] * tall / WARP,
    )


def _alike(layout: LaneLayout) -> list[tuple[Node[Any], ...]]:
    """The roots of equal reach: nvcc finds equal expressions in their rows."""
    found: dict[Reach, list[Node[Any]]] = {}
    for root in layout.roots:
        found.setdefault(layout.reaches[root], []).append(root)
    return [tuple(roots) for roots in found.values()]


def _pixel(item: Item) -> t.Type:
    return item.image.pixel if isinstance(item, Staged) else item.pixel


def _direct(group: Group) -> float:
    """The share of the inputs of the group whose pixels lanes do not keep, if there are any. They keep nothing that far
    accesses read."""
    inputs = {access.image for node in group.nodes for access in node.accesses if access.image not in group.nodes}
    return sum(not can_be_shuffled(image.pixel) for image in inputs) / max(1, len(inputs))
