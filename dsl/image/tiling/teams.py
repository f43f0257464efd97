"""Teams: the threads of a block that compute one overlapped tile together.

A tile belongs to a block, and its threads wait for each other with ``__syncthreads``. Or it belongs to a warp, and
only the 32 threads of the warp wait for each other (``__syncwarp``). Then each warp of a block has its own part of
shared memory.

Source: Jangda, Guha: Model-Based Warp Overlapped Tiling, §4 (the equations of warp sizes).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

__all__ = ["KINDS", "WARP", "Kind", "Team", "problem_of_block", "team_of"]

#: The threads of a warp.
WARP = 32

#: What owns a tile. In a hybrid tile, a warp keeps a part of the tile in registers. In a tile
#: of lanes, it keeps the rows that are in use, all in registers.
Kind: TypeAlias = Literal["block", "warp", "hybrid", "lanes"]
KINDS: tuple[Kind, ...] = ("block", "warp", "hybrid", "lanes")


@dataclass(frozen=True, slots=True)
class Team:
    """The threads of a team along x and y, and how many teams a block has along x and y."""

    threads: tuple[int, int]
    count: tuple[int, int]

    @property
    def size(self) -> int:
        """The threads of the team."""
        return self.threads[0] * self.threads[1]

    @property
    def teams(self) -> int:
        """The teams of a block."""
        return self.count[0] * self.count[1]

    def lines(self, tile: tuple[int, int]) -> list[str]:
        """The code that computes ``first_x`` and ``first_y``, the first pixel of the team's tile, and ``local_x`` and
        ``local_y``, the place of the thread in its team."""
        lines: list[str] = []
        for axis, size, threads, count in zip("xy", tile, self.threads, self.count, strict=True):
            index = f"i32(threadIdx.{axis})"
            lines.append(f"local_{axis} = {f'{index} % {threads}' if count > 1 else index}")
            block = f"i32(blockIdx.{axis})"
            # All lanes of a warp have the same number. The shuffle shows it to the compiler.
            number = f"shfl_sync(0xFFFFFFFF, {index} // {threads}, 0)"
            team = f"({block} * {count} + {number})" if count > 1 else block
            lines.append(f"first_{axis} = {team} * {size}")
        return lines

    @property
    def thread(self) -> str:
        """The number of the thread in its team, as code."""
        return f"local_y * {self.threads[0]} + local_x"

    @property
    def number(self) -> str:
        """The number of the team in its block, as code."""
        x, y = (f"i32(threadIdx.{axis}) // {threads}" for axis, threads in zip("xy", self.threads, strict=True))
        return f"({y}) * {self.count[0]} + {x}"


def problem_of_block(kind: Kind, block: tuple[int, int]) -> str:
    """Why a block of these threads cannot have teams of this kind. Empty if it can."""
    x, y = block
    if kind == "lanes" and x % WARP:
        return f"tiles of lanes need blocks whose width is a multiple of {WARP}, not {x}"
    if kind == "block" or x % WARP == 0 or (WARP % x == 0 and y % (WARP // x) == 0):
        return ""
    return f"tiles of warps need blocks that consist of rectangles of {WARP} threads, not {x} x {y}"


@lru_cache(maxsize=256)
def team_of(kind: Kind, block: tuple[int, int]) -> Team:
    """The teams of a block. The block must have no problem."""
    if kind == "block":
        return Team(block, (1, 1))
    x = min(block[0], WARP)
    y = WARP // x
    return Team((x, y), (block[0] // x, block[1] // y))
