"""Theoretical occupancy: the number of blocks and warps of a kernel that one multiprocessor can hold at a time.

Requires: the registers per thread, shared memory and block size of the kernel, and the architecture.
Guarantees: the number of blocks is that of `cudaOccupancyMaxActiveBlocksPerMultiprocessor` for a kernel that may use
all shared memory of the multiprocessor (carveout 100 %). Refuses: an architecture without a row in `arch.py`; the
result is `None`. Reference: `cuda_occupancy.h` of CUDA 13.0 for the order of the limits; `arch.py` for the limits.
"""

from dataclasses import dataclass

from ..arch import MAX_THREADS, PARTITIONS, REGISTER_GRANULE, REGISTERS, WARP, Architecture, architecture


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The blocks and warps on one multiprocessor, their share of its warps, and the limiting resource.

    `limit` is `blocks`, `warps`, `registers` or `shared`: the first of these, in this order, that allows no more
    blocks.
    """

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(sm: int, threads: int, registers: int, shared: int = 0) -> Occupancy | None:
    """The occupancy for blocks of `threads` threads. `shared` is the sum of static and dynamic shared memory, in bytes.

    A block that cannot be launched gives 0 blocks. Raises `ValueError` unless `threads` is positive.

    >>> occupancy(90, threads=256, registers=40)
    Occupancy(blocks=6, warps=48, share=0.75, limit='registers')
    """
    if threads <= 0:
        raise ValueError(f"a block has at least one thread, not {threads}")
    of = architecture(sm)
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
    """The number of blocks that the registers allow. Each warp gets registers of its sub-partition. The check of a
    launch rounds the number of warps up to a multiple of the sub-partitions."""
    per_warp = _round_up(registers * WARP, REGISTER_GRANULE)
    if per_warp == 0:
        return unlimited
    if per_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared(of: Architecture, shared: int) -> int:
    per_block = _round_up(shared + of.reserved, of.granule)
    return of.shared // per_block if per_block else of.blocks


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to
