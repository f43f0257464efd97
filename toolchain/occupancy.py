"""Theoretical occupancy: how many blocks and warps of a kernel one multiprocessor can hold at a time.

Requires: the kernel's registers per thread, shared memory and block size, and the architecture.
Guarantees: the blocks that `cudaOccupancyMaxActiveBlocksPerMultiprocessor` gives for a kernel that may use all of the
multiprocessor's shared memory (carveout 100 %).
Refuses: an architecture that is not in the table gives `None`, never a guess.
Reference: `cuda_occupancy.h` of CUDA 13.0 for granularities, blocks and the order of the limits; CUDA C++ Programming
Guide 13.0, table "Technical Specifications per Compute Capability", for warps and shared memory.
"""

from dataclasses import dataclass

#: Threads of a warp; registers of a multiprocessor; what registers of a warp are rounded up to; its sub-partitions.
WARP = 32
REGISTERS = 65536
REGISTER_GRANULE = 256
PARTITIONS = 4

#: The most threads that one block may have.
MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor holds: warps, blocks, bytes of shared memory.

    Shared memory is handed out in units of `granule` bytes, and each block takes `reserved` bytes for the system.
    """

    warps: int
    blocks: int
    shared: int
    granule: int = 128
    reserved: int = 1024


#: By the number in `sm_…`.
MULTIPROCESSORS: dict[int, Multiprocessor] = {
    75: Multiprocessor(warps=32, blocks=16, shared=64 << 10, granule=256, reserved=0),
    80: Multiprocessor(warps=64, blocks=32, shared=164 << 10),
    86: Multiprocessor(warps=48, blocks=16, shared=100 << 10),
    87: Multiprocessor(warps=48, blocks=16, shared=164 << 10),
    89: Multiprocessor(warps=48, blocks=24, shared=100 << 10),
    90: Multiprocessor(warps=64, blocks=32, shared=228 << 10),
    100: Multiprocessor(warps=64, blocks=32, shared=228 << 10),
    103: Multiprocessor(warps=64, blocks=32, shared=228 << 10),
    110: Multiprocessor(warps=48, blocks=24, shared=228 << 10),
    120: Multiprocessor(warps=48, blocks=24, shared=100 << 10),
    121: Multiprocessor(warps=48, blocks=24, shared=100 << 10),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps on one multiprocessor, the share of its warps, and what keeps them from being more.

    `limit` is `blocks`, `warps`, `registers` or `shared`: the first of these, in this order, that allows no more.
    """

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(sm: int, threads: int, registers: int, shared: int = 0) -> Occupancy | None:
    """Occupancy of blocks of `threads` threads; `shared` is static and dynamic bytes together.

    A block that cannot be launched gives 0 blocks. Raises `ValueError` unless `threads` is positive.

    >>> occupancy(90, threads=256, registers=40)
    Occupancy(blocks=6, warps=48, share=0.75, limit='registers')
    """
    if threads <= 0:
        raise ValueError(f"a block has at least one thread, not {threads}")
    of = MULTIPROCESSORS.get(sm)
    if of is None:
        return None
    warps = -(-threads // WARP)
    limits = {
        "blocks": of.blocks,
        "warps": of.warps // warps if threads <= MAX_THREADS else 0,
        "registers": _by_registers(warps, registers, of.blocks),
        "shared": _by_shared(of, shared),
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / of.warps, limit)


def _by_registers(warps: int, registers: int, unlimited: int) -> int:
    """Registers are handed out to warps, from their own sub-partition; a launch is checked as if to all of them."""
    per_warp = _round_up(registers * WARP, REGISTER_GRANULE)
    if per_warp == 0:
        return unlimited
    if per_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared(of: Multiprocessor, shared: int) -> int:
    per_block = _round_up(shared + of.reserved, of.granule)
    return of.shared // per_block if per_block else of.blocks


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to
