"""Strips: the pixels of a column of a tile that one thread computes together, so that they share what they read.

A tile is computed in rounds. In each round, every thread of the team computes a strip of ``rows`` pixels, one below the
other. Pixels of a strip read many of the same pixels, and their indices are computed once. The last strip of a column
may be shorter.

Threads with consecutive numbers have consecutive columns. Where a strip of the next rows begins within a warp, lanes
may access different words of the same bank of shared memory, which takes another pass. `pitch_of` chooses the distance
of rows in a tile so that there are few of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

__all__ = ["MOST_ROWS_OF_STRIP", "Strips", "Use", "passes", "pitch_of", "strips_of"]

#: The most pixels of a strip. More of them need more registers.
MOST_ROWS_OF_STRIP = 8

#: What a strip costs besides its pixels, in pixels: the computation of indices, and the rows that its windows read
#: above and below of it.
_OVERHEAD = 3.0


#: Banks of shared memory, and lanes of a warp.
_BANKS = 32

#: How much wider than its pixels a tile may be, what a word that is not used costs, as a share of all passes, and the
#: passes of accesses that have no conflicts.
_MOST_MORE, _UNUSED, _FREE = 24, 0.02, 16

#: How the threads of a team access a tile: the width, the number and the rows of their strips, and how many accesses
#: each of them makes.
Use: TypeAlias = "tuple[int, int, int, int]"


@dataclass(frozen=True, slots=True)
class Strips:
    """How a tile is divided. ``rows``: pixels of a strip. ``count``: strips of a column. ``last``: pixels of the last
    strip of a column. ``rounds``: how often a thread computes a strip."""

    rows: int
    count: int
    last: int
    rounds: int


@lru_cache(maxsize=4096)
def strips_of(width: int, height: int, threads: int, most: int = MOST_ROWS_OF_STRIP) -> Strips:
    """The strips of a tile that take the fewest instructions of a thread, with at most ``most`` pixels. ``width`` and
    ``height`` are those of the tile in pixels; ``threads`` compute it.

    >>> strips_of(34, 34, 256)
    Strips(rows=5, count=7, last=4, rounds=1)
    """
    best: tuple[float, Strips] | None = None
    for rows in range(1, min(most, height) + 1):
        count = -(-height // rows)
        rounds = -(-width * count // threads)
        cost = rounds * (rows + _OVERHEAD)
        if best is None or cost < best[0]:
            best = cost, Strips(rows, count, height - (count - 1) * rows, rounds)
    assert best is not None
    return best[1]


@lru_cache(maxsize=4096)
def passes(width: int, count: int, rows: int, pitch: int) -> float:
    """How many passes an access of a warp takes on the average, if threads have strips of this width, number and rows
    in a tile whose rows are ``pitch`` words apart.

    >>> passes(32, 8, 4, 32), passes(40, 6, 7, 40), passes(38, 6, 7, 42)
    (1.0, 1.5, 1.0)
    """
    total = warps = 0
    for first in range(0, width * count, _BANKS):
        end = min(first + _BANKS, width * count)
        #: By bank: how many words of it lanes access. Those of one strip are in different banks.
        words = [0] * _BANKS
        while first < end:
            strip, column = divmod(first, width)
            lanes = min(width - column, end - first)
            start = strip * rows * pitch + column
            for word in range(start, start + lanes):
                words[word % _BANKS] += 1
            first += lanes
        total += max(words)
        warps += 1
    return total / warps


@lru_cache(maxsize=4096)
def pitch_of(width: int, uses: tuple[Use, ...]) -> int:
    """The distance of the rows of a tile, in pixels, that takes the fewest passes in these uses."""

    def cost(pitch: int) -> float:
        return (_FREE + _passes_of(uses, pitch)) * (1 + _UNUSED * (pitch - width))

    # Lanes access all banks once in a use if the next strip begins where the one before has ended.
    more = [
        pitch
        for pitch in range(width + 1, width + _MOST_MORE + 1)
        if any((rows * pitch - columns) % _BANKS == 0 for columns, _, rows, _ in uses)
    ]
    return min([width, *more], key=cost)


def _passes_of(uses: Sequence[Use], pitch: int) -> float:
    return sum(accesses * passes(width, count, rows, pitch) for width, count, rows, accesses in uses)
