"""A model of the time of groups on a GPU, and the choice of tiles by it.

The time of a kernel is the sum of three parts. The first one is its node in a CUDA graph. The second one is the time of
a single thread, which executes its instructions one after the other and waits for tiles; every kernel takes it once,
because the last blocks begin late. The third one is the throughput: the blocks must be started and the bytes moved, at
the same time the instructions be issued, and loads, stores and shuffles pass the unit for them. These overlap, but not
fully, so they are joined by a norm (`Machine.overlap`) and not by a maximum.

Bytes come from the L2 cache if what the kernel moves fits there, because the kernel before has just written it, and
from memory otherwise. Operators with loops over many pixels, which are not unrolled, read an input again after a long
time. If the inputs of the resident blocks do not fit in the L1 cache, these reads go to the L2 cache. Blocks at the
edges of images check indices and share less, so that they take several times as long. The last blocks are at an edge.
Code that does not fit in the caches for instructions takes longer. Where a multiprocessor has few blocks, fewer warps
work while one of these ends, or waits for its tile.

`schedule.work` counts what a kernel does, and `Machine` has the numbers, which `schedule.fitting` fits to measured
times; docs/experiments/image-fusion.md says how well they estimate others. All searches use this model, so that their
plans can be compared. Times are estimates: they choose between plans, and are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..groups import Group
from ..lowered import Options
from ..operators import Node
from ..schedule.work import Members, Work, work_of
from .machine import Machine

__all__ = ["GroupCost", "Machine", "best_group", "cost_of", "seconds_of"]

#: Bytes that a load of a thread brings from the L2 cache if it misses the L1 cache.
_MISSED = 16.0


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
    return _cost(work_of(Members(group.graph, group.nodes, options), group), machine)


def _cost(work: Work, machine: Machine) -> GroupCost:
    return GroupCost(work.moved, _instructions(work), seconds_of(work, machine))


def _instructions(work: Work) -> float:
    """The instructions of all threads."""
    each = (1 - work.edges) * work.instructions + work.edges * work.at_edges
    return each * work.threads * work.blocks


def seconds_of(work: Work, machine: Machine) -> float:
    """The time of a kernel."""
    threads = work.threads * work.blocks
    slow = 1 + max(0.0, work.code - machine.code) / machine.fetched
    alone = 1 + machine.drain * work.block_share
    missed = min(1.0, max(0.0, work.footprint / machine.l1 - 1)) * work.loads * work.pixels * _MISSED
    parts = (
        work.blocks * machine.block + machine.moving(work.moved) * work.ahead + missed / machine.l2,
        _instructions(work) * slow * alone / machine.instructions_per_second,
        work.accesses * threads * alone / machine.accesses_per_second,
    )
    busy = min(1.0, work.occupancy / machine.occupancy)
    together = sum(part**machine.overlap for part in parts) ** (1 / machine.overlap)
    more = (work.at_edges - work.instructions) * machine.edge_instruction
    serial = work.instructions * slow * machine.instruction / work.chains + more + work.rounds * machine.latency
    return machine.node + serial + together / max(busy, 0.1)


# --- choice -------------------------------------------------------------------------------------------------------

#: Blocks and pixels of a thread that are tried: the block of the options, and blocks with several rows of a thread.
_SHAPES = (
    ((32, 8), (1, 1)),
    ((32, 8), (1, 2)),
    ((32, 8), (1, 4)),
    ((32, 4), (1, 4)),
    ((32, 16), (1, 2)),
    ((64, 4), (1, 4)),
)


def best_group(members: Members, machine: Machine) -> tuple[Group, GroupCost] | None:
    """The group of these operators with the least estimated time, over tiles, blocks and pixels of a thread. None if
    no choice is legal."""
    if members.problem:
        return None
    found: tuple[Group, GroupCost] | None = None
    for group in _shapes(members):
        chosen = _tiled(members, group, machine)
        if chosen is not None and (found is None or chosen[1].seconds < found[1].seconds * 0.999):
            found = chosen
    return found


def _shapes(members: Members) -> Iterator[Group]:
    block = members.options.block
    yield replace(members.group, block=block)
    for each, pixels in _SHAPES if members.nodes[0].operator.kind != "global" else ():
        if (each, pixels) != (block, (1, 1)):
            yield replace(members.group, block=each, pixels=pixels)


def _tiled(members: Members, group: Group, machine: Machine) -> tuple[Group, GroupCost] | None:
    """The group with the tiles that make its time least: from none on, from all that windows read, and from all that
    would be computed several times, the best change of one operator."""
    read, repeated = members.read_by_windows, members.repeated
    candidates = [node for node in members.nodes if node in read or node in repeated]
    best: tuple[Group, GroupCost] | None = None
    #: By tiled operators: the group and its cost. None if it is not legal.
    made: dict[frozenset[Node[Any]], tuple[Group, GroupCost] | None] = {}

    def with_tiles(tiled: frozenset[Node[Any]]) -> tuple[Group, GroupCost] | None:
        if tiled not in made:
            made[tiled] = _legal(members, replace(group, tiled=tiled), machine)
        return made[tiled]

    for start in dict.fromkeys((frozenset[Node[Any]](), read, repeated)):
        at = with_tiles(start)
        while True:
            changes = [with_tiles((at[0].tiled if at else start) ^ {node}) for node in candidates]
            known = [each for each in changes if each is not None]
            step = min(known, key=lambda each: (each[1].seconds, len(each[0].tiled)), default=None)
            if step is None or (at is not None and step[1].seconds >= at[1].seconds):
                break
            at = step
        if at is not None and (best is None or at[1].seconds < best[1].seconds):
            best = at
    return best


def _legal(members: Members, group: Group, machine: Machine) -> tuple[Group, GroupCost] | None:
    if group.nodes[0].operator.kind != "global" and not members.is_legal(group):
        return None
    return group, _cost(work_of(members, group), machine)
