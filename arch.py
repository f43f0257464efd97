"""The architectures: one row for each ``sm_…`` that is supported. To add an architecture, add a row here.

A row has everything in which this package distinguishes architectures: the limits of a multiprocessor, and the
latencies by which schedules are compared. What is the same for all rows is a constant.

Imports no other module of this package, so every folder may import it. For an architecture without a row,
`architecture` returns `None`; it does not guess.
Reference: `cuda_occupancy.h` of CUDA 13.0 for granularities and blocks; CUDA C++ Programming Guide 13.0, table
"Technical Specifications per Compute Capability", for warps and shared memory; PTX ISA 9.0, §11.1 (targets).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "ALWAYS_FITS",
    "ARCHITECTURES",
    "DEFAULT_TARGET",
    "H200_CLOCK",
    "H200_MULTIPROCESSORS",
    "LATENCY",
    "MAX_REGISTERS",
    "MAX_THREADS",
    "OLDEST",
    "OTHER_LATENCY",
    "PARTITIONS",
    "REGISTERS",
    "REGISTER_GRANULE",
    "WARP",
    "Architecture",
    "architecture",
    "most_registers",
    "target_of_sm",
    "targets",
]

#: Threads of a warp.
WARP = 32

#: The most threads that one block may have.
MAX_THREADS = 1024

#: 32-bit registers of a multiprocessor, and the most that one thread can have.
REGISTERS = 65536
MAX_REGISTERS = 255

#: Threads of the largest block that can be launched whatever registers its kernel has.
ALWAYS_FITS = REGISTERS // (MAX_REGISTERS + 1)

#: The number of registers of a warp is rounded up to a multiple of this. They are in one of the `PARTITIONS` of the
#: multiprocessor.
REGISTER_GRANULE = 256
PARTITIONS = 4

#: The oldest target that ptxas 13.0 assembles for, and the target where neither a GPU nor an option gives another.
OLDEST = 75
DEFAULT_TARGET = "sm_90a"

#: Multiprocessors of an NVIDIA H200, and their cycles in a second. Estimates and the emulator use the numbers of this
#: GPU where nothing else is known of the machine.
H200_MULTIPROCESSORS = 132
H200_CLOCK = 1.98e9

#: Cycles until a result is available, rounded, by class of machine instruction (`toolchain.machine_ops`). Global
#: memory as on a miss of both caches, local memory as on a hit. Other classes: `OTHER_LATENCY`.
#: Luo et al., *Benchmarking and Dissecting the Nvidia Hopper GPU Architecture*, 2024.
LATENCY: Mapping[str, int] = {
    "load_global": 480,
    "load_generic": 480,
    "atomic": 480,
    "texture": 480,
    "surface": 480,
    "fence": 200,
    "load_local": 40,
    "load_constant": 40,
    "mma": 35,
    "load_shared": 30,
    "barrier": 30,
    "shuffle": 25,
}
#: All other instructions that set a barrier: conversions, special functions, wide products, special registers, …
OTHER_LATENCY = 20


@dataclass(frozen=True, slots=True)
class Architecture:
    """What one multiprocessor holds: ``warps``, ``blocks``, and ``shared`` bytes of shared memory.

    Shared memory is allocated in units of ``granule`` bytes, and each block takes ``reserved`` bytes for the system.
    ``latency`` is in cycles by class of machine instruction. ``suffix`` is the one of the target with all features of
    the architecture, as in ``sm_90a``.
    """

    warps: int
    blocks: int
    shared: int
    granule: int = 128
    reserved: int = 1024
    suffix: str = ""
    latency: Mapping[str, int] = field(default_factory=lambda: LATENCY)


#: The number in ``sm_…`` → row.
ARCHITECTURES: dict[int, Architecture] = {
    75: Architecture(warps=32, blocks=16, shared=64 << 10, granule=256, reserved=0),
    80: Architecture(warps=64, blocks=32, shared=164 << 10),
    86: Architecture(warps=48, blocks=16, shared=100 << 10),
    87: Architecture(warps=48, blocks=16, shared=164 << 10),
    89: Architecture(warps=48, blocks=24, shared=100 << 10),
    90: Architecture(warps=64, blocks=32, shared=228 << 10, suffix="a"),
    100: Architecture(warps=64, blocks=32, shared=228 << 10, suffix="a"),
    103: Architecture(warps=64, blocks=32, shared=228 << 10, suffix="a"),
    110: Architecture(warps=48, blocks=24, shared=228 << 10, suffix="a"),
    120: Architecture(warps=48, blocks=24, shared=100 << 10, suffix="a"),
    121: Architecture(warps=48, blocks=24, shared=100 << 10, suffix="a"),
}


def architecture(sm: int) -> Architecture | None:
    """The row of ``sm``; `None` where there is none."""
    return ARCHITECTURES.get(sm)


def targets() -> list[str]:
    """The PTX targets of all rows. From sm_100 on, there is also one for the family (``sm_100f``)."""
    suffixed = [f"sm_{sm}{row.suffix}" for sm, row in ARCHITECTURES.items() if row.suffix]
    families = [f"sm_{sm}f" for sm in ARCHITECTURES if sm >= 100]
    return [*(f"sm_{sm}" for sm in ARCHITECTURES), *suffixed, *families]


def target_of_sm(sm: int | None) -> str:
    """The target with all features of a GPU of ``sm``; `DEFAULT_TARGET` for `None`.

    >>> target_of_sm(90), target_of_sm(86), target_of_sm(None)
    ('sm_90a', 'sm_86', 'sm_90a')
    """
    if sm is None:
        return DEFAULT_TARGET
    row = ARCHITECTURES.get(sm)
    return f"sm_{sm}{row.suffix if row is not None else ''}"


def most_registers(threads: int) -> int:
    """The most registers of a thread with which a block of so many threads can be launched. The check of a launch
    rounds the number of warps up to a multiple of the sub-partitions.

    >>> most_registers(1024), most_registers(640), most_registers(32)
    (64, 96, 255)
    """
    warps = -(-threads // (WARP * PARTITIONS)) * PARTITIONS
    return min(REGISTERS // warps // REGISTER_GRANULE * REGISTER_GRANULE // WARP, MAX_REGISTERS)
