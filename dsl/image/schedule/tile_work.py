"""What a thread does for tiles: it fills those in shared memory in strips, and computes those in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..groups import Group
from ..operators import Node
from ..tiling.strips import Strips, passes, strips_of
from ..tiling.teams import WARP
from .counted import Counts
from .members import Members

__all__ = ["Fills", "fills", "in_registers"]

#: Further instructions of a strip, and of a pixel of a tile.
_STRIP, _FILL = 12.0, 1.0


@dataclass(frozen=True, slots=True)
class Fills:
    """What a thread of an inner team does for tiles in shared memory, on the average: ``total`` without what strips
    take besides, which are ``instructions``; ``filled`` pixels; ``waits``; ``rounds`` of strips, one after the other.
    ``code``: instructions of the code. ``overlap``: the share of pixels of tiles that others compute, too.
    ``passes``: further passes through shared memory, because of conflicts of banks. ``live``: the pixels that a thread
    keeps at a time."""

    total: Counts
    instructions: float
    filled: float
    waits: float
    rounds: float
    code: float
    overlap: float
    passes: float
    live: float


def fills(members: Members, group: Group, columns: int) -> Fills:
    """What a thread does to fill the tiles of a group. ``columns``: its columns that are in shared memory."""
    team, tall = group.team, group.pixels[1]
    total, instructions, filled, waits, rounds, code = Counts(), 0.0, 0.0, 0.0, 0.0, 0.0
    area = useful = passed = live = 0.0
    for stage in members.stages(group.tiled):
        waits += 1
        for batch in stage:
            reach = members.reaches[batch[0]]
            width = team.threads[0] * columns + reach.left + reach.right
            height = team.threads[1] * tall + reach.up + reach.down
            whole = width + WARP * group.in_registers if group.kind == "hybrid" else width
            area += whole * height * len(batch)
            useful += group.tile[0] * group.tile[1] * len(batch)
            if not width:
                continue
            strips: Strips = strips_of(width, height, team.size, members.rows_of_strip(group))
            each = members.counts(batch, group.tiled, (1, strips.rows), fill=True)
            # How many strips a thread computes, on the average.
            count = width * strips.count / team.size
            total += each.times(count)
            filled += count * strips.rows * len(batch)
            instructions += count * (_STRIP + _FILL * strips.rows * len(batch))
            rounds += strips.rounds
            passed += count * _more_passes(members, group, batch, strips, width)
            code += each.instructions * members.unrolled
            live = max(live, each.kept(strips.rows))
    overlap = area / useful - 1 if useful else 0.0
    return Fills(total, instructions, filled, waits, rounds, code, overlap, passed, live)


def _more_passes(members: Members, group: Group, batch: Sequence[Node[Any]], strips: Strips, width: int) -> float:
    """The further passes through shared memory that the accesses of a strip take because of conflicts of banks."""
    pitches, found = members.pitches(group), 0.0
    for node in batch:
        found += strips.rows * (passes(width, strips.count, strips.rows, pitches[node]) - 1)
        for source in members.sources(node, group.tiled):
            own, other = members.reaches[node], members.reaches[source]
            columns = 1 + other.left - own.left + other.right - own.right
            rows = strips.rows + other.up - own.up + other.down - own.down
            found += rows * columns * (passes(width, strips.count, strips.rows, pitches[source]) - 1)
    return found


def in_registers(members: Members, group: Group, tiles: list[Node[Any]]) -> tuple[Counts, float, float]:
    """What a thread does for the part of tiles in registers, how often it shuffles, and how many pixels it keeps."""
    tall = group.pixels[1]
    total, shuffles, live = Counts(), 0.0, 0.0
    for node in tiles:
        reach = members.reaches[node]
        rows = tall + reach.up + reach.down
        each = members.counts((node,), group.tiled, (1, rows), fill=True).times(group.in_registers)
        total += Counts(each.alu, each.sfu, each.loads, 0)
        shuffles += each.reads
        live += group.in_registers * (1 + reach.up + reach.down)
    results = tuple(node for node in group.stored if node not in group.tiled)
    each = members.counts(results, group.tiled, (1, tall), fill=False).times(group.in_registers)
    total += Counts(each.alu, each.sfu, each.loads, 0)
    return total, shuffles + each.reads, live + each.reads / tall
