"""What a kernel does, as numbers: `Counts` of one thread, and `Work` of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOAD", "SFU", "SHUFFLE", "Counts", "Work"]

#: Instructions of an exponential function, which the functions of the SFU are counted in, of a load from global memory,
#: and of a shuffle.
SFU, LOAD, SHUFFLE = 8.0, 1.5, 3.0
#: Further instructions of a load whose index is checked, or of a read of a tile whose index is exchanged.
_CHECK = 4.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What one thread does: operations, functions of the SFU in numbers of `SFU` instructions, pixels that it reads
    from global memory and from tiles, and indices that it exchanges or checks. ``far`` are those of the loads that
    accesses of images of another size do, and others whose pixels are not near."""

    alu: float = 0
    sfu: float = 0
    loads: float = 0
    reads: float = 0
    checks: float = 0
    far: float = 0

    def times(self, factor: float) -> Counts:
        """What ``factor`` such threads do."""
        counts = self.alu, self.sfu, self.loads, self.reads, self.checks, self.far
        return Counts(*(each * factor for each in counts))

    @property
    def instructions(self) -> float:
        """About how many instructions these are."""
        return self.alu + SFU * self.sfu + LOAD * self.loads + self.reads + _CHECK * self.checks

    def kept(self, rows: int) -> float:
        """About how many pixels a thread that computes this for ``rows`` pixels of a column keeps at a time: those that
        one row reads and others need, too. It reads the pixels of a single row when it needs them."""
        return (self.loads + self.reads) / rows * (1 - 1 / rows)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.alu + other.alu,
            self.sfu + other.sfu,
            self.loads + other.loads,
            self.reads + other.reads,
            self.checks + other.checks,
            self.far + other.far,
        )


@dataclass(frozen=True)
class Work:
    """What a kernel does. Rates are for one pixel of a result: ``alu`` and ``sfu`` operations, ``loads`` from global
    memory, ``reads`` from shared memory, ``shuffles``, ``filled`` pixels of tiles in shared memory, and ``waits`` of a
    thread for its team. ``transactions`` are those of loads.

    ``pixels`` are those of a result; ``moved`` are the bytes of images that the kernel reads and writes. ``overlap`` is
    the share of pixels of tiles that neighbouring tiles compute, too. ``shared`` are the bytes of shared memory of a
    block, ``registers`` an estimate for a thread. ``code`` are the instructions of the code that a thread runs through,
    where loops over its pixels are unrolled. ``resident`` are the blocks that a multiprocessor holds, and ``occupancy``
    their share of its warps.

    ``instructions`` are those of a thread in an inner team, ``at_edges`` those in a team at an edge, and ``edges`` the
    share of these teams. ``accesses`` are the loads, stores and shuffles of a thread, with the passes that conflicts of
    banks take. ``rounds`` counts what a thread waits for: strips of tiles, and pixels of results. ``footprint`` are the
    bytes of the inputs that the resident blocks read, if an operator has loops that are not unrolled, and 0 otherwise.
    ``chains``: how many times as fast a thread alone executes its instructions, because neighbouring pixels do not need
    each other. ``ahead``: the share of the time for moving bytes, if they are loaded long before they are needed.
    ``block_share``: the share of the warps of a multiprocessor that begin and end together, because they are of one
    block; 0 where rows are loaded ahead.
    """

    pixels: float
    moved: float
    blocks: float
    threads: int
    alu: float
    sfu: float
    loads: float
    reads: float
    shuffles: float
    filled: float
    waits: float
    transactions: float
    overlap: float
    shared: int
    registers: float
    resident: int
    occupancy: float
    code: float
    instructions: float
    at_edges: float
    edges: float
    accesses: float
    rounds: float
    footprint: float
    chains: float = 1.0
    ahead: float = 1.0
    block_share: float = 0.0
