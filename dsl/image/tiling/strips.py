"""Strips: the pixels of a column of a tile that one thread computes together, so that they share what they read.

A tile is computed in rounds. In each round, every thread of the team computes a strip of ``rows`` pixels, one below the
other. Pixels of a strip read many of the same pixels, and their indices are computed once. The last strip of a column
may be shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_ROWS_OF_STRIP", "Strips", "strips_of"]

#: The most pixels of a strip. More of them need more registers.
MOST_ROWS_OF_STRIP = 8

#: What a strip costs besides its pixels, in pixels: the computation of indices, and the rows that its windows read
#: above and below of it.
_OVERHEAD = 3.0


@dataclass(frozen=True, slots=True)
class Strips:
    """How a tile is divided. ``rows``: pixels of a strip. ``count``: strips of a column. ``last``: pixels of the last
    strip of a column. ``rounds``: how often a thread computes a strip."""

    rows: int
    count: int
    last: int
    rounds: int


def strips_of(width: int, height: int, threads: int, most: int = MOST_ROWS_OF_STRIP) -> Strips:
    """The strips of a tile that take the fewest instructions of a thread, with at most ``most`` pixels.

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
