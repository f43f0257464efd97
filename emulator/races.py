"""Data races: who touched a location since it was last ordered.

Two accesses of different threads to overlapping bytes, one of them a write, race when neither is ordered before the
other and not both are strong (atomic, volatile, relaxed, acquire, release). What orders:

- a barrier that all threads of the block (that have not exited) took part in: everything before it in the block;
- a barrier of fewer threads, `barrier.arrive`, `bar.warp.sync`: what the participants did before, for participants;
- inside one launch nothing orders blocks, except the release pattern: the first thread's block has executed a fence
  (or a release) after the access and then a strong write or an atomic, and the second thread's block has executed a
  strong read or an atomic. The same pattern orders threads of one block by thread. Which location carries the
  synchronization is not matched, so this may hide a race; it never reports one that the pattern orders.

`shfl`, `vote`, `match` and `redux` order nothing (PTX ISA 9.0, §9.7.9 and §9.7.13), nor does running in lock step.
Two writers of one value are a race by the memory model too, but harmless to results; they are reported as a note.

A location is 4 bytes, or one byte in an object that is accessed in smaller pieces. For each, the last writer and the
last reader and one before it are kept, weak and strong accesses apart: of the earlier readers one from another block
is preferred, and stays while the last reader is not of that block.
A stamp is the block's clock << 32 | thread + 1; a clock ticks at every synchronization of its block. So one comparison
of numbers says whether a stamp of the same block is older than the block's last barrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .memory import MemoryObject, Selector, selector

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["Conflict", "Order", "Races"]

Array: TypeAlias = npt.NDArray[Any]

_THREAD = np.int64(0xFFFF_FFFF)
_HIGH = np.int64(32)


class Order:
    """Which accesses of a batch of blocks are ordered before what happens now."""

    def __init__(self, blocks: int, block_size: int, grid: GridOrder, first_block: int) -> None:
        self.block_size = block_size
        self.clock = np.ones(blocks, np.int64)
        self.base = np.zeros(blocks, np.int64)
        self.version = 0
        self.first_thread = first_block * block_size
        self.first_block = first_block
        self.grid = grid
        threads = blocks * block_size
        self.fenced = np.zeros(threads, np.int64)
        self.released = np.zeros(threads, np.int64)
        self.acquired = np.zeros(threads, np.int64)
        self.warp_seen: Array | None = None
        self.block_seen: Array | None = None
        self._all: tuple[int, Array, Array, Array] | None = None

    def stamps_of_all(self, *, wanted: bool) -> tuple[Array, Array, Array] | None:
        """What `Cohort.stamps` gives, for every thread of the batch; ``None`` where it is neither known nor wanted."""
        known = self._all
        if known is None or known[0] != self.version:
            if not wanted:
                return None
            threads = np.arange(self.first_thread + 1, self.first_thread + self.fenced.size + 1)
            low = np.repeat(np.arange(self.clock.size) * self.block_size + self.first_thread + 1, self.block_size)
            stamp = threads | np.repeat(self.clock << _HIGH, self.block_size)
            # Every stamp of the block up to the barrier's clock is at most this.
            base = np.repeat((self.base + 1 << _HIGH) - 1, self.block_size)
            known = self._all = (self.version, stamp, base, low)
        return known[1:]

    def tick(self, blocks: Array) -> None:
        """A synchronization in each of ``blocks``."""
        self.clock[blocks] += 1
        self.version += 1

    def full_barrier(self, blocks: Array) -> None:
        """All threads of ``blocks`` have met."""
        self.base[blocks] = self.clock[blocks]
        self.tick(blocks)

    def partial_barrier(self, block: int, before: Array, after: Array) -> None:
        """What threads ``before`` of ``block`` did is ordered before what threads ``after`` will do."""
        if self.block_seen is None:
            self.block_seen = np.zeros((self.fenced.size, self.block_size), np.int32)
        seen = self.block_seen
        joined = seen[before].max(axis=0)
        joined[before - block * self.block_size] = self.clock[block]
        seen[after] = np.maximum(seen[after], joined)
        self.tick(np.array([block]))

    def warp_barrier(self, threads: Array, lanes: Array, groups: Array, matrix: Array, blocks: Array) -> None:
        """Lanes of each group have met. ``matrix[g, lane]`` is the thread there, or -1."""
        if self.warp_seen is None:
            self.warp_seen = np.zeros((self.fenced.size, 32), np.int32)
        seen = self.warp_seen
        present = matrix >= 0
        rows = np.where(present[:, :, None], seen[matrix], 0).max(axis=1)
        clocks = np.zeros(present.shape[0], np.int32)
        clocks[groups] = self.clock[blocks]
        rows = np.where(present, np.maximum(rows, clocks[:, None]), rows)
        seen[threads] = rows[groups]
        if self.block_seen is not None:
            for group in range(matrix.shape[0]):
                members = matrix[group][present[group]]
                block = int(members[0]) // self.block_size
                joined = self.block_seen[members].max(axis=0)
                joined[members - block * self.block_size] = clocks[group]
                self.block_seen[members] = joined
        self.tick(np.unique(blocks))

    def fence(self, threads: Array, blocks: Array, is_wide: bool) -> None:
        """A fence; ``is_wide``: of gpu scope or wider."""
        self.fenced[threads] = self.clock[blocks]
        if is_wide:
            self.grid.fenced[blocks + self.first_block] = self.clock[blocks]
        self.tick(np.unique(blocks))

    def strong(self, threads: Array, blocks: Array, *, reads: bool, writes: bool) -> None:
        """Strong accesses or atomics by ``threads``."""
        if writes:
            self.released[threads] = self.fenced[threads]
            at = blocks + self.first_block
            self.grid.released[at] = self.grid.fenced[at]
        if reads:
            self.acquired[threads] = self.clock[blocks]
            self.grid.acquired[blocks + self.first_block] = True

    def is_ordered(self, earlier: Array, now: Array) -> Array:
        """Whether the pairs of stamps, not ordered by full barriers, are ordered by anything else."""
        size = self.block_size
        thread, clock = (earlier & _THREAD) - 1, earlier >> _HIGH
        me = (now & _THREAD) - 1 - self.first_thread
        block, mine = thread // size, me // size + self.first_block
        same = block == mine
        ordered = ~same & (clock <= self.grid.released[block]) & self.grid.acquired[mine]
        local = np.where(same, thread - self.first_thread, 0)
        ordered |= same & (clock <= self.released[local]) & (self.acquired[me] > 0)
        if self.warp_seen is not None:
            here = local - local // size * size
            my_index = me - me // size * size
            in_warp = same & (here >> 5 == my_index >> 5)
            ordered |= in_warp & (clock <= self.warp_seen[me, here & 31])
        if self.block_seen is not None:
            ordered |= same & (clock <= self.block_seen[me, local % size])
        return ordered


class GridOrder:
    """Releases and acquires of the blocks of one launch."""

    def __init__(self, blocks: int) -> None:
        self.fenced = np.zeros(blocks, np.int64)
        self.released = np.zeros(blocks, np.int64)
        self.acquired = np.zeros(blocks, bool)


@dataclass(slots=True)
class Conflict:
    """Lanes that race: positions in the access, the other threads (global numbers), what the other did."""

    lanes: Array
    others: Array
    what: str


@dataclass(slots=True)
class Races:
    """The last accesses to each location of one object."""

    nbytes: int
    is_private: bool  #: only threads of one block ever touch a location, as in shared memory
    shift: int = 2
    columns: dict[str, Array] = field(default_factory=dict[str, Array])

    def column(self, name: str) -> Array:
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = np.zeros((self.nbytes >> self.shift) + 2, np.int64)
        return found

    def grow(self, nbytes: int) -> None:
        """The object has ``nbytes`` bytes now; new ones were never accessed."""
        self.nbytes = nbytes
        for name, column in self.columns.items():
            grown = np.zeros((nbytes >> self.shift) + 2, np.int64)
            grown[: column.size] = column
            self.columns[name] = grown

    def refine(self) -> None:
        """Go over to one location for each byte."""
        for name, column in self.columns.items():
            self.columns[name] = np.repeat(column, 1 << self.shift)
        self.shift = 0

    def selectors(self, offsets: Array, nbytes: int) -> list[Selector]:
        """The locations of an access of ``nbytes`` bytes."""
        if nbytes < 1 << self.shift:
            self.refine()
        first = selector(offsets >> np.int64(self.shift))
        count = nbytes >> self.shift
        return [shifted(first, index) for index in range(count)]

    def check(
        self, c: Cohort, lanes: Array | None, where: list[Selector], *, writes: bool, strong: bool
    ) -> list[Conflict]:
        """The races of this access with earlier ones."""
        mine, base, low = c.stamps(lanes)
        names = ["write"] if not writes else ["write", "read", "read2"]
        if not strong:
            names += ["strong write"] if not writes else ["strong write", "strong read", "strong read2"]
        found: list[Conflict] = []
        for name in names:
            column = self.columns.get(name)
            if column is None:
                continue
            for at in where:
                conflict = self._conflict(c, column[at], mine, base, low)
                if conflict is not None:
                    found.append(Conflict(*conflict, name.removesuffix("2")))
        return found

    def _unordered(self, earlier: Array, mine: Array, base: Array, low: Array, size: int) -> Array | None:
        """Which of the stamps are of other threads and not behind a barrier of all; ``None`` where none is."""
        recent = earlier > base
        if not self.is_private:
            recent |= (earlier != 0) & ~_same_block(earlier, low, size)
        if not bool(recent.any()):
            return None
        recent &= ((earlier ^ mine) & _THREAD) != 0
        return recent if bool(recent.any()) else None

    def _conflict(self, c: Cohort, earlier: Array, mine: Array, base: Array, low: Array) -> tuple[Array, Array] | None:
        bad = self._unordered(earlier, mine, base, low, c.batch.block_size)
        if bad is None:
            return None
        lanes = np.flatnonzero(bad)
        lanes = lanes[~c.batch.order.is_ordered(earlier[lanes], mine[lanes])]
        if not lanes.size:
            return None
        return lanes, (earlier[lanes] & _THREAD) - 1

    def note(
        self, c: Cohort, lanes: Array | None, where: list[Selector], *, writes: bool, strong: bool
    ) -> Conflict | None:
        """Remember this access; the races between its own lanes, where it writes."""
        mine, base, low = c.stamps(lanes)
        prefix = "strong " if strong else ""
        if not writes:
            for at in where:
                self._note_read(prefix, at, mine, base, low, c.batch.block_size)
            return None
        column = self.column(prefix + "write")
        found: Conflict | None = None
        for at in where:
            column[at] = mine
            if not isinstance(at, slice) and not strong:
                back = column[at]
                lost = back != mine
                if bool(lost.any()):
                    at_lanes = np.flatnonzero(lost)
                    found = Conflict(at_lanes, (back[at_lanes] & _THREAD) - 1, "write")
        return found

    def _note_read(self, prefix: str, at: Selector, mine: Array, base: Array, low: Array, size: int) -> None:
        """Remember a reader; the one before it stays as the second, unless it is ordered before this one.

        Where the second is of another block it stays: no barrier ever orders it.
        """
        column = self.column(prefix + "read")
        second = self.columns.get(prefix + "read2")
        if second is None or self.is_private or isinstance(at, slice):
            self._note_new_reader(prefix, at, mine, base, low, size)
            return
        have = second[at]
        rest = np.flatnonzero((have == 0) | _same_block(have, low, size))
        if not rest.size:
            column[at] = mine
        elif rest.size == mine.size:
            self._note_new_reader(prefix, at, mine, base, low, size)
        else:
            old = column[at[rest]]
            column[at] = mine
            self._note_second(prefix, old, at[rest], mine[rest], base[rest], low[rest], size)

    def _note_new_reader(self, prefix: str, at: Selector, mine: Array, base: Array, low: Array, size: int) -> None:
        column = self.column(prefix + "read")
        old = column[at]
        column[at] = mine
        self._note_second(prefix, old, at, mine, base, low, size)

    def _note_second(
        self, prefix: str, old: Array, at: Selector, mine: Array, base: Array, low: Array, size: int
    ) -> None:
        """``old`` were the readers before ``mine``, which are noted already."""
        keep = self._unordered(old, mine, base, low, size)
        if keep is not None:
            second = self.column(prefix + "read2")
            have = second[at]
            if not self.is_private:
                # Of several readers one of another block is worth most: no barrier ever orders it.
                keep &= ~((have != 0) & ~_same_block(have, low, size) & _same_block(old, low, size))
            second[at] = np.where(keep, old, have)
        if isinstance(at, slice):
            return
        back = self.column(prefix + "read")[at]
        lost = np.flatnonzero(back != mine)
        if lost.size:
            second = self.column(prefix + "read2")
            if self.is_private:
                second[at[lost]] = mine[lost]
                return
            is_within = _same_block(back[lost], low[lost], size)
            within = lost[is_within]
            if within.size:
                have = second[at[within]]
                foreign = (have != 0) & ~_same_block(have, low[within], size)
                second[at[within]] = np.where(foreign, have, mine[within])
            cross = lost[~is_within]
            second[at[cross]] = mine[cross]


def shifted(index: Selector, by: int) -> Selector:
    """``index`` moved by ``by`` elements."""
    if not by:
        return index
    if isinstance(index, slice):
        return slice(index.start + by, index.stop + by, index.step)
    return index + by


def _same_block(stamps: Array, low: Array, size: int) -> Array:
    distance = (stamps & _THREAD) - low
    return (distance >= 0) & (distance < size)


def races_of(target: MemoryObject) -> Races:
    """The records of ``target``, made now if there are none."""
    if target.races is None:
        target.races = Races(target.bytes.size, target.space == "shared")
    return target.races
