"""Theoretical occupancy: how many blocks and warps of a kernel one multiprocessor can hold at a time.

Requires: the kernel's registers per thread, shared memory and block size, and the architecture.
Guarantees: the blocks that `cudaOccupancyMaxActiveBlocksPerMultiprocessor` gives for a kernel that may use all of the
multiprocessor's shared memory (carveout 100 %).
Refuses: an architecture without a row in `arch.py` gives `None`, never a guess.
Reference: `cuda_occupancy.h` of CUDA 13.0 for the order of the limits; `arch.py` for the limits.
"""

from dataclasses import dataclass

from ..arch import MAX_THREADS, PARTITIONS, REGISTER_GRANULE, REGISTERS, WARP, Architecture, architecture


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
    """Registers are handed out to warps, from their own sub-partition; a launch is checked as if to all of them."""
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
