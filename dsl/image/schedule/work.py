"""What the kernel of a group does: operations, loads, shuffles, bytes, shared memory, registers, occupancy.

Counts are of a thread, on the average. They follow the text that `tiling` generates: pixels that a thread needs several
times count once, because nvcc finds equal expressions, and a tile is computed with its overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....arch import MAX_REGISTERS
from ....toolchain.occupancy import occupancy
from ... import types as t
from ..global_operators import Words
from ..groups import Group
from ..operators import Image, Node
from ..tiling.rows import sharing_nodes
from ..tiling.teams import WARP
from .counted import SFU, SHUFFLE, Counts, Work
from .lane_work import lane_work
from .members import THREAD, Members, bytes_of, ceil_of, shape_of
from .tile_work import Fills, fills, in_registers

__all__ = ["SECTOR", "Members", "Work", "work_of"]

#: Registers of a thread that no pixel needs: addresses, sizes, coordinates.
_BASE_REGISTERS = 20

#: `Work.chains` and `Work.ahead` of tiles of lanes, fitted to times.
_CHAINS, _AHEAD = 2.6, 0.75
#: Bytes of a pixel that a thread loads at a time, at most and usually.
_WIDE, _WORD = 16, 4
#: The blocks of a multiprocessor from which on more of them hide the end of one no better.
_MANY_BLOCKS = 8

#: Bytes of a transaction of global memory.
SECTOR = 32
#: Bytes of a line of the L1 cache.
LINE = 128


def work_of(members: Members, group: Group, sm: int = 90) -> Work:
    """The work of a legal group of ``members``. Regions of a group count for nothing."""
    key = shape_of(group), sm
    if key not in members.works:
        members.works[key] = _work_of(members, group, sm)
    return members.works[key]


def _work_of(members: Members, group: Group, sm: int) -> Work:
    if any(node.operator.kind == "global" for node in group.nodes):
        return _of_global(group)
    return _of_lanes(members, group, sm) if group.kind == "lanes" else _of_tiles(members, group, sm)


@dataclass(frozen=True, slots=True)
class _Thread:
    """What a thread of an inner team does: ``total`` for tiles and for its pixels, ``shuffles``, the instructions of
    its ``code``, and the pixels that it keeps at a time, ``live``."""

    total: Counts
    shuffles: float
    code: float
    live: float


def _thread(members: Members, group: Group, columns: int, made: Fills) -> _Thread:
    """``columns`` of the pixels of a thread are not in registers; ``made`` is what it does to fill tiles."""
    tall = group.pixels[1]
    total, code, shuffles, live = made.total, made.code, 0.0, 0.0
    if columns:
        rows, shape = sharing_nodes(group), (1 if columns > 1 else columns, tall)
        each = members.counts(group.stored, group.tiled, shape, fill=False, rows=rows)
        total += each.times(columns)
        code += each.instructions * columns * members.unrolled
        live = each.kept(tall) * members.unrolled
    if group.kind == "hybrid":
        tiles = [node for node in group.nodes if node in group.tiled and node in members.reaches]
        added, shuffles, live = in_registers(members, group, tiles)
        total += added
        code += added.instructions * members.unrolled + SHUFFLE * shuffles
    return _Thread(total, shuffles, code, max(live, made.live * members.unrolled))


def _of_tiles(members: Members, group: Group, sm: int) -> Work:
    """The work of a group with tiles in shared memory, with hybrid ones, or with none."""
    first, team = group.stored[0], group.team
    columns = group.pixels[0] - group.in_registers
    own = group.pixels[0] * group.pixels[1]
    made = fills(members, group, columns)
    thread = _thread(members, group, columns, made)
    total = thread.total
    registers = min(float(MAX_REGISTERS), _BASE_REGISTERS + thread.live + 2 * len(group.stored))
    shared = members.shared_bytes(group)
    threads = group.block[0] * group.block[1]
    found = occupancy(sm, threads, round(registers), shared)
    resident = found.blocks if found is not None else 1
    blocks = ceil_of(first.width, group.tile[0] * team.count[0]) * ceil_of(first.height, group.tile[1] * team.count[1])
    stores = own * len(group.stored)
    instructions = total.instructions + SHUFFLE * thread.shuffles + made.instructions + THREAD + 2 * stores
    edges = members.edges(group)
    return Work(
        pixels=float(int(first.width) * int(first.height)),
        moved=members.moved,
        blocks=blocks,
        threads=threads,
        alu=total.alu / own,
        sfu=total.sfu / own,
        loads=total.loads / own,
        reads=total.reads / own,
        shuffles=thread.shuffles / own,
        filled=made.filled / own,
        waits=made.waits / own,
        transactions=total.loads / own * members.input_bytes / SECTOR,
        overlap=made.overlap,
        shared=shared,
        registers=registers,
        resident=resident,
        occupancy=found.share if found is not None else 1.0,
        code=thread.code,
        instructions=instructions,
        at_edges=max(instructions, members.at_edges(group)) if edges else instructions,
        edges=edges,
        accesses=total.loads + total.reads + thread.shuffles + made.filled + made.passes + stores,
        rounds=made.rounds + 1,
        footprint=resident * team.teams * _footprint(members, group),
        ahead=_ahead(members.width),
        block_share=1 / min(_MANY_BLOCKS, max(1, resident)),
    )


def _footprint(members: Members, group: Group) -> float:
    """The bytes of the inputs that a team reads again for each pixel."""
    return sum(_lines(members, group, image) for image in members.inputs & members.reread)


def _ahead(width: float) -> float:
    """`Work.ahead` of threads that load a pixel when they need it: the wider the pixels, the more bytes are under way.
    With pixels of 16 bytes, these are as many as where lanes load rows ahead."""
    return 1 - (1 - _AHEAD) * min(1.0, max(0.0, (width - _WORD) / (_WIDE - _WORD)))


def _of_lanes(members: Members, group: Group, sm: int) -> Work:
    """The work of a group with tiles of lanes."""
    columns = group.pixels[0]

    def counts(roots: tuple[Node[Any], ...]) -> Counts:
        return members.counts(roots, group.tiled, (columns, 1), fill=True)

    made = lane_work(group, counts, SFU, _BASE_REGISTERS)
    threads, (tile_x, tile_y), (teams_x, teams_y) = group.block[0] * group.block[1], group.tile, group.team.count
    registers = min(float(MAX_REGISTERS), made.registers)
    found = occupancy(sm, threads, round(registers), 0)
    first = group.stored[0]
    instructions = made.instructions + THREAD
    return Work(
        pixels=float(int(first.width) * int(first.height)),
        moved=members.moved,
        blocks=ceil_of(first.width, tile_x * teams_x) * ceil_of(first.height, tile_y * teams_y),
        threads=threads,
        alu=made.alu / made.pixels,
        sfu=made.sfu / made.pixels,
        loads=made.loads / made.pixels,
        reads=0.0,
        shuffles=made.shuffles / made.pixels,
        filled=0.0,
        waits=0.0,
        transactions=made.loads * columns / made.pixels * members.input_bytes / SECTOR,
        overlap=columns * WARP / tile_x - 1,
        shared=0,
        registers=registers,
        resident=found.blocks if found is not None else 1,
        occupancy=found.share if found is not None else 1.0,
        code=made.code,
        instructions=instructions,
        at_edges=max(instructions, made.at_edges + THREAD),
        edges=members.edges(group),
        accesses=made.accesses,
        rounds=made.rounds,
        footprint=0.0,
        chains=_CHAINS,
        ahead=_AHEAD,
    )


def _of_global(group: Group) -> Work:
    """The work of a global operator: the bytes of the image that it reads. A thread waits for pixels, and the last
    block for what the others have made of theirs."""
    (image,) = {access.image for node in group.nodes for access in node.accesses}
    several = Words.of(image.pixel).blocks(int(image.width) * int(image.height)) > 1
    counts = dict.fromkeys(("alu", "sfu", "loads", "reads", "shuffles", "filled", "waits", "transactions"), 0.0)
    more = ("code", "instructions", "at_edges", "edges", "accesses", "footprint")
    rest = dict.fromkeys(more, 0.0)
    return Work(
        pixels=1.0, moved=bytes_of({image}), blocks=0, threads=0, overlap=0.0, shared=0, registers=0.0, resident=1,
        occupancy=1.0, rounds=2.0 if several else 1.0, **counts, **rest,
    )  # fmt: skip


def _lines(members: Members, group: Group, image: Image[Any]) -> float:
    """The bytes of an input that a team reads, in whole lines of the L1 cache."""
    if image not in members.reaches:
        return 0.0
    reach, (width, height) = members.reaches[image], group.tile
    size = t.size_of(image.pixel)
    if width * size % LINE == 0:
        lines = width * size / LINE + ceil_of(reach.left * size, LINE) + ceil_of(reach.right * size, LINE)
    else:
        lines = 1 + ((width + reach.left + reach.right) * size - 1) / LINE
    return lines * LINE * (height + reach.up + reach.down)
