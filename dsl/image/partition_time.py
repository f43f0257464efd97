"""How long the kernel of one operator takes: the estimate by which `isp+m` decides.

A kernel cannot be faster than the slowest of these:

- *start*: the GPU starts one block after the other, whatever the kernel does and however many threads a block has;
- *issue*: the machine instructions, each with the issue slots of a scheduler that its class takes;
- *loads*: the accesses to global memory that a multiprocessor handles, one after the other;
- *memory*: the pixels, if the images do not fit into the cache. Few bytes are in flight with one pixel for each thread,
  so such kernels reach about half of the bandwidth of a copy.

The work of instructions and loads overlaps in part, so they are joined by a norm and not by a maximum, and so is this
with the rest. To this come the time of a launch and, for a partitioned kernel with more blocks than run at a time, that
of the last row of blocks: its regions begin late, and no block has fetched their code before. That is a constant time,
which is why a partitioned kernel is slower where start or memory bounds both kernels.

The numbers are those of an NVIDIA H200. docs/experiments/image-kernels.md says how they were measured and how often the
estimate is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...cost import SCHEDULERS

__all__ = ["CLOCK", "MULTIPROCESSORS", "Work", "seconds"]

MULTIPROCESSORS = 132
#: Cycles in a second.
CLOCK = 1.98e9
#: Seconds of a kernel of a CUDA graph besides everything else, and of the start of a block.
KERNEL, BLOCK = 1.17e-6, 0.611e-9
#: Seconds until the last row of blocks has fetched the code of its regions.
LAST_REGIONS = 0.075e-6
#: Issue slots of a scheduler for a machine instruction, by class (`toolchain/machine_ops.py`), and for the others.
SLOTS = {"wide": 3.65, "integer": 1.26, "fp32": 1.18, "special": 8.0, "conversion": 2.0, "load_global": 1.06}
OTHER_SLOTS = 1.06
#: Cycles of a multiprocessor for an access of a warp to global memory: pixels of at least 4 bytes, and narrower ones.
ACCESS, NARROW_ACCESS = 1.38, 1.78
#: Seconds for a pixel from memory with one pixel for each thread, and with several; the share by which regions make it
#: longer.
MEMORY, MEMORY_OF_ROWS, MEMORY_OF_REGIONS = 3.7e-12, 2.2e-12, 0.06
#: Images of fewer bytes stay in the cache; those of more than the second number all come from memory.
CACHED, NOT_CACHED = 34e6, 46e6
#: The powers of the norms that join issue with loads, and the result with start and memory.
OVERLAP_OF_WORK, OVERLAP = 2.7, 6.7


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
    pixel = MEMORY if work.rows == 1 else MEMORY_OF_ROWS
    memory = from_memory * work.pixels * pixel * (1 + MEMORY_OF_REGIONS * work.is_partitioned)
    is_late = work.is_partitioned and work.blocks > work.resident * MULTIPROCESSORS
    start = work.blocks * BLOCK
    return KERNEL + is_late * LAST_REGIONS + _norm((start, _norm((issue, loads), OVERLAP_OF_WORK), memory), OVERLAP)


def _norm(values: tuple[float, ...], power: float) -> float:
    largest = max(values)
    return largest * sum((value / largest) ** power for value in values) ** (1 / power) if largest else 0.0
