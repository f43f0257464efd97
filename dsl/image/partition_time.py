"""How long the kernel of one operator takes: the estimate by which `isp+m` decides.

A kernel cannot be faster than the slowest of these:

- *start*: the GPU starts one block after the other, whatever the kernel does and however many threads a block has;
- *issue*: the machine instructions, each with the issue slots of a scheduler that its class takes;
- *loads*: the accesses to global memory that a multiprocessor handles, one after the other. An access takes longer if
  the pixels of a warp are in several rows, because the block is narrower than a warp; the wider the pixels, the more;
- *memory*: the pixels, if the images do not fit into the cache. Few bytes are in flight with one pixel for each thread,
  so such kernels reach about half of the bandwidth of a copy;
- *waves*: one block after the other in each place for a block. A block takes the latency of a warp: instructions that
  wait for those before them, and for memory.

*issue* and *loads* are those of the multiprocessor with the most blocks, which matters if there are few. The times
overlap, but not fully, so they are joined by a norm and not by a maximum. The fewer warps a multiprocessor holds, the
less they overlap: while all of them wait for one unit, the others are idle. So the power of the norm is smaller then.
To this come the time of a launch and the last block: the latency of a warp, the time in which its instructions are
fetched first, and both for a block at an edge as far as they are longer.

The numbers are those of an NVIDIA H200. docs/experiments/image-kernels.md says how they were measured and how often the
estimate is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from ...arch import ARCHITECTURES, H200_CLOCK
from ...cost import SCHEDULERS
from .fusion.machine import H200

__all__ = ["H200_TIMES", "MULTIPROCESSORS", "Times", "Work", "seconds"]

MULTIPROCESSORS = H200.multiprocessors
#: The most warps that a multiprocessor holds.
MOST_WARPS = ARCHITECTURES[90].warps


@dataclass(frozen=True, slots=True)
class Times:
    """The numbers of a GPU.

    ``clock``: cycles in a second. ``kernel`` and ``block``: seconds of a kernel of a CUDA graph besides everything
    else, and of the start of a block. ``slots``: issue slots of a scheduler for a machine instruction, by class
    (`toolchain/machine_ops.py`); ``other_slots`` for the others. ``special``: cycles of the unit for functions such as
    square roots. ``access`` and ``narrow_access``: cycles of a multiprocessor for an access of a warp to global memory,
    for pixels of at least 4 bytes and for narrower ones; each further row of a warp's pixels takes the share
    ``further_row`` of this, with pixels of two bytes ``further_row_two_bytes``, and of one byte ``further_row_byte``.

    ``copy``: bytes per second of a copy, and ``cache``: those of images in the cache. With one pixel for each thread, a
    pixel from memory takes at least ``lone_pixel`` seconds, and longer by the share ``tests_first`` if tests come
    before the first load. Images of fewer than ``cached`` bytes stay in the cache; those of more than ``not_cached``
    bytes all come from memory.

    ``latency``: the share of the cycles of a warp by its schedule that it takes, without waits for loads; ``waiting``:
    that of the waits, since most loads are hits. ``fetch``: cycles for an instruction that a warp executes first, from
    ``fetched`` instructions on: fewer are prefetched. ``regions``: seconds that a partitioned kernel takes longer
    if blocks wait for others, and ``tests`` if all of them run at once.
    ``edge``: the share of the longer latency of a warp at an edge that a kernel takes longer. ``overlap``: the power of
    the norm that joins times that overlap, on a full multiprocessor, and ``few_warps``: the power of the share of its
    warps that is held by which that power is smaller.
    """

    clock: float = H200_CLOCK
    kernel: float = 1.001e-06
    block: float = 0.603e-9
    slots: Mapping[str, float] = field(
        default_factory=lambda: {"wide": 3.74, "integer": 1.2, "fp32": 1.3, "conversion": 2.0}
    )
    special: float = 8.0
    other_slots: float = 0.7475
    access: float = 1.34
    narrow_access: float = 1.463
    further_row: float = 0.7805
    further_row_two_bytes: float = 0.6402
    further_row_byte: float = 0.3086
    copy: float = 4.0e12
    cache: float = 5.314e12
    lone_pixel: float = 3.29e-12
    tests_first: float = 0.075
    cached: float = 34e6
    not_cached: float = 46e6
    latency: float = 0.9042
    waiting: float = 0.0703
    fetch: float = 7.195
    fetched: float = 1008.0
    regions: float = 1.548e-07
    tests: float = 9.62e-08
    edge: float = 0.9175
    overlap: float = 5.6
    few_warps: float = 0.7255


H200_TIMES = Times()


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does.

    ``kinds`` are the machine instructions of a warp by class, and ``more`` is the factor by which an average warp
    executes more than this. ``cycles`` are those of a warp alone, in which it waits ``exposed`` cycles for loads, and
    ``code`` are its machine instructions. ``edge_cycles`` and ``edge_code`` are those of the warps at an edge that
    execute the most, which wait ``edge_exposed`` cycles. ``resident`` are the blocks that a multiprocessor holds at a
    time. ``rows`` are the pixels of a thread, ``warp_rows`` the rows of the image in which a warp has pixels at once,
    and ``pixel_bytes`` the bytes of the narrowest pixel that is read. ``sectors`` is the factor by which rows that do
    not begin at a sector of the cache need more of them.
    """

    blocks: int
    warps: int
    resident: int
    rows: int
    warp_rows: int
    kinds: Mapping[str, float]
    cycles: float
    exposed: float
    code: float
    edge_code: float
    edge_cycles: float
    edge_exposed: float
    more: float
    is_partitioned: bool
    pixels: int
    moved: int
    pixel_bytes: int
    sectors: float


def seconds(work: Work, times: Times = H200_TIMES) -> float:
    """The estimated time of a kernel."""
    # Few blocks are not spread evenly.
    warps = ceil(work.blocks / MULTIPROCESSORS) * work.warps
    slots = sum(count * times.slots.get(kind, times.other_slots) for kind, count in work.kinds.items()) * work.more
    accesses = work.kinds.get("load_global", 0.0) + work.kinds.get("store_global", 0.0)
    special = ceil(warps / SCHEDULERS) * work.kinds.get("special", 0.0) * times.special * work.more / times.clock
    issue = ceil(warps / SCHEDULERS) * slots / times.clock
    access = times.access if work.pixel_bytes >= 4 else times.narrow_access
    further = {1: times.further_row_byte, 2: times.further_row_two_bytes}.get(work.pixel_bytes, times.further_row)
    loads = warps * accesses * access * (1 + further * (work.warp_rows - 1)) / times.clock
    from_memory = min(max((work.moved - times.cached) / (times.not_cached - times.cached), 0.0), 1.0)
    memory = work.moved * (from_memory / times.copy + (1 - from_memory) * work.sectors / times.cache)
    if work.rows == 1:
        lone = work.pixels * times.lone_pixel * (1 + times.tests_first * work.is_partitioned)
        memory = max(memory, from_memory * lone)
    alone, at_edge = (
        (times.latency * (cycles - exposed) + times.waiting * exposed) / times.clock
        for cycles, exposed in ((work.cycles, work.exposed), (work.edge_cycles, work.edge_exposed))
    )
    fetch, fetch_at_edge = (
        times.fetch * max(0.0, code - times.fetched) / times.clock for code in (work.code, work.edge_code)
    )
    before = alone * work.more * max(0.0, work.blocks / (work.resident * MULTIPROCESSORS) - 1)
    last = alone + fetch + times.edge * max(0.0, at_edge + fetch_at_edge - alone - fetch)
    if work.is_partitioned:
        last += times.regions if work.blocks > work.resident * MULTIPROCESSORS else times.tests
    held = min(work.resident, ceil(work.blocks / MULTIPROCESSORS)) * work.warps
    power = max(1.0, times.overlap * min(1.0, held / MOST_WARPS) ** times.few_warps)
    return times.kernel + last + _norm(power, work.blocks * times.block, issue, special, loads, memory, before)


def _norm(power: float, *values: float) -> float:
    largest = max(values)
    return largest * sum((value / largest) ** power for value in values) ** (1 / power) if largest else 0.0
