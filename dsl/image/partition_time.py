"""How long the kernel of one operator takes: the estimate by which `isp+m` decides.

A kernel cannot be faster than the slowest of these:

- *start*: the GPU starts one block after the other, whatever the kernel does and however many threads a block has;
- *issue*: the machine instructions, each with the issue slots of a scheduler that its class takes;
- *loads*: the accesses to global memory that a multiprocessor handles, one after the other;
- *memory*: the pixels, if the images do not fit into the cache. Few bytes are in flight with one pixel for each thread,
  so such kernels reach about half of the bandwidth of a copy.

They overlap, but not fully, so they are joined by a norm and not by a maximum. To this comes the time of a launch and,
for a partitioned kernel with more blocks than run at a time, a constant time.

The numbers are those of an NVIDIA H200. docs/experiments/image-kernels.md says how they were measured and how often the
estimate is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...cost import SCHEDULERS
from .fusion.machine import H200

__all__ = ["CLOCK", "MULTIPROCESSORS", "Work", "seconds"]

MULTIPROCESSORS = H200.multiprocessors
#: Cycles in a second.
CLOCK = 1.98e9
#: Seconds of a kernel of a CUDA graph besides everything else, and of the start of a block.
KERNEL, BLOCK = 1.147e-6, 0.603e-9
#: Seconds that a partitioned kernel takes longer if not all blocks run at a time.
REGIONS = 0.086e-6
#: Issue slots of a scheduler for a machine instruction, by class (`toolchain/machine_ops.py`), and for the others.
SLOTS = {"wide": 3.25, "integer": 1.27, "fp32": 1.4, "special": 8.0, "conversion": 2.0}
OTHER_SLOTS = 1.43
#: Cycles of a multiprocessor for an access of a warp to global memory: pixels of at least 4 bytes, and narrower ones.
ACCESS, NARROW_ACCESS = 1.42, 1.89
#: Bytes per second of a copy. With one pixel for each thread, few bytes are in flight: then a pixel from memory takes
#: at least these seconds, and longer by this share if tests come before the first load.
COPY, LONE_PIXEL, TESTS_FIRST = 4.0e12, 3.58e-12, 0.075
#: Images of fewer bytes stay in the cache; those of more than the second number all come from memory.
CACHED, NOT_CACHED = 34e6, 46e6
#: The power of the norm that joins times that overlap.
OVERLAP = 6


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does.

    ``kinds`` are the machine instructions of a warp by class, and ``more`` is the factor by which an average warp
    executes more than this. ``resident`` are the blocks that a multiprocessor holds at a time. ``rows`` are the pixels
    of a thread, and ``pixel_bytes`` the bytes of the narrowest pixel that is read.
    """

    blocks: int
    warps: int
    resident: int
    rows: int
    kinds: Mapping[str, float]
    more: float
    is_partitioned: bool
    pixels: int
    moved: int
    pixel_bytes: int


def seconds(work: Work) -> float:
    """The estimated time of a kernel."""
    warps = work.blocks * work.warps / MULTIPROCESSORS
    slots = sum(count * SLOTS.get(kind, OTHER_SLOTS) for kind, count in work.kinds.items()) * work.more
    accesses = work.kinds.get("load_global", 0.0) + work.kinds.get("store_global", 0.0)
    issue = warps * slots / SCHEDULERS / CLOCK
    loads = warps * accesses * (ACCESS if work.pixel_bytes >= 4 else NARROW_ACCESS) / CLOCK
    from_memory = min(max((work.moved - CACHED) / (NOT_CACHED - CACHED), 0.0), 1.0)
    memory = from_memory * work.moved / COPY
    if work.rows == 1:
        lone = work.pixels * LONE_PIXEL * (1 + TESTS_FIRST * work.is_partitioned)
        memory = max(memory, from_memory * lone)
    late = REGIONS if work.is_partitioned and work.blocks > work.resident * MULTIPROCESSORS else 0.0
    return KERNEL + late + _norm(work.blocks * BLOCK, issue, loads, memory)


def _norm(*values: float) -> float:
    largest = max(values)
    return largest * sum((value / largest) ** OVERLAP for value in values) ** (1 / OVERLAP) if largest else 0.0
