"""Data races: the last accesses to each location, and whether they are ordered before the current one.

Two accesses of different threads to overlapping bytes, one of them a write, race if neither is ordered before the
other and not both are strong (atomic, volatile, relaxed, acquire, release). Accesses are ordered by:

- a barrier of all threads of the block that have not exited: it orders all earlier accesses in the block;
- a barrier of fewer threads, `barrier.arrive`, `bar.warp.sync`: it orders the earlier accesses of the participants
  before their later ones;
- the release pattern, between blocks or between threads of a block: after the first access, its thread (for another
  block: a thread of its block) executed a fence or a release, and then a strong write or an atomic; and the second
  thread (or a thread of its block) executed a strong read or an atomic. The location of the synchronization is not
  compared. This may hide a race, but accesses that the pattern orders are never reported.

`shfl`, `vote`, `match` and `redux` order nothing (PTX ISA 9.0, §9.7.9 and §9.7.13). Execution in lock step orders
nothing either. Two threads that write the same value race, too, but the result does not depend on it, so this is
reported as a note.

A location is 4 bytes, or one byte in an object that is accessed in smaller pieces. For each location, the last writer,
one writer before it, the last reader and one reader before it are stored, separately for weak and strong accesses. The
earlier one is needed where the last one accesses the location again: that access races only with the earlier one. As
the earlier one, a thread from another block than the last one's is preferred. An atomic with a result is stored as the
only strong write: its thread may know from the result that all others are done, as the last block of a reduction does,
which then writes the counter. A reduction (`red`) and a strong store show nothing to their thread.
A stamp is (clock of the block) << 32 | thread + 1. The clock of a block increases at each of its synchronizations. So a
comparison of numbers shows whether a stamp of the same block is older than the last barrier of the block.
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
    """Which accesses of a batch of blocks are ordered before the current one.

    By block: ``clock``, and ``base``, the clock of its last barrier of all threads. By thread: ``fenced``, the clock of
    its last fence; ``released``, that of the last fence before a strong write; ``acquired``, that of its last strong
    read. ``warp_seen[thread, lane]`` and ``block_seen[thread, thread in the block]`` are the clocks up to which the
    accesses of another thread are ordered before those of the thread. ``version`` increases with every clock.
    """

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
        """The values of `Cohort.stamps` for every thread of the batch.

        ``None`` if they are not computed yet for this version and ``wanted`` is false.
        """
        computed = self._all
        if computed is None or computed[0] != self.version:
            if not wanted:
                return None
            threads = np.arange(self.first_thread + 1, self.first_thread + self.fenced.size + 1)
            low = np.repeat(np.arange(self.clock.size) * self.block_size + self.first_thread + 1, self.block_size)
            stamp = threads | np.repeat(self.clock << _HIGH, self.block_size)
            # No stamp of the block up to the clock of the barrier is larger.
            base = np.repeat((self.base + 1 << _HIGH) - 1, self.block_size)
            computed = self._all = (self.version, stamp, base, low)
        return computed[1:]

    def tick(self, blocks: Array) -> None:
        """Record a synchronization in each of ``blocks``."""
        self.clock[blocks] += 1
        self.version += 1

    def full_barrier(self, blocks: Array) -> None:
        """Record a barrier of all threads of each of ``blocks``."""
        self.base[blocks] = self.clock[blocks]
        self.tick(blocks)

    def partial_barrier(self, block: int, before: Array, after: Array) -> None:
        """Record that earlier accesses of threads ``before`` of ``block`` are ordered before later ones of threads
        ``after``."""
        if self.block_seen is None:
            self.block_seen = np.zeros((self.fenced.size, self.block_size), np.int32)
        clocks = self.block_seen
        joined = clocks[before].max(axis=0)
        joined[before - block * self.block_size] = self.clock[block]
        clocks[after] = np.maximum(clocks[after], joined)
        self.tick(np.array([block]))

    def warp_barrier(self, threads: Array, lanes: Array, groups: Array, matrix: Array, blocks: Array) -> None:
        """Record a barrier of the lanes of each group. ``matrix[group, lane]`` is the thread, or -1."""
        if self.warp_seen is None:
            self.warp_seen = np.zeros((self.fenced.size, 32), np.int32)
        lane_clocks = self.warp_seen
        present = matrix >= 0
        rows = np.where(present[:, :, None], lane_clocks[matrix], 0).max(axis=1)
        clocks = np.zeros(present.shape[0], np.int32)
        clocks[groups] = self.clock[blocks]
        rows = np.where(present, np.maximum(rows, clocks[:, None]), rows)
        lane_clocks[threads] = rows[groups]
        if self.block_seen is not None:
            for group in range(matrix.shape[0]):
                members = matrix[group][present[group]]
                block = int(members[0]) // self.block_size
                joined = self.block_seen[members].max(axis=0)
                joined[members - block * self.block_size] = clocks[group]
                self.block_seen[members] = joined
        self.tick(np.unique(blocks))

    def fence(self, threads: Array, blocks: Array, is_wide: bool) -> None:
        """Record a fence. ``is_wide``: its scope is gpu or wider."""
        self.fenced[threads] = self.clock[blocks]
        if is_wide:
            self.grid.fenced[blocks + self.first_block] = self.clock[blocks]
        self.tick(np.unique(blocks))

    def strong(self, threads: Array, blocks: Array, *, reads: bool, writes: bool) -> None:
        """Record strong accesses or atomics by ``threads``."""
        if writes:
            self.released[threads] = self.fenced[threads]
            at = blocks + self.first_block
            self.grid.released[at] = self.grid.fenced[at]
        if reads:
            self.acquired[threads] = self.clock[blocks]
            self.grid.acquired[blocks + self.first_block] = True

    def is_ordered(self, earlier: Array, now: Array) -> Array:
        """Whether the access with stamp ``earlier`` is ordered before that with stamp ``now`` by anything but a full
        barrier."""
        size = self.block_size
        thread, clock = (earlier & _THREAD) - 1, earlier >> _HIGH
        own_thread = (now & _THREAD) - 1 - self.first_thread
        block, own_block = thread // size, own_thread // size + self.first_block
        same = block == own_block
        ordered = ~same & (clock <= self.grid.released[block]) & self.grid.acquired[own_block]
        local = np.where(same, thread - self.first_thread, 0)
        ordered |= same & (clock <= self.released[local]) & (self.acquired[own_thread] > 0)
        if self.warp_seen is not None:
            index_in_block = local - local // size * size
            own_index = own_thread - own_thread // size * size
            in_warp = same & (index_in_block >> 5 == own_index >> 5)
            ordered |= in_warp & (clock <= self.warp_seen[own_thread, index_in_block & 31])
        if self.block_seen is not None:
            ordered |= same & (clock <= self.block_seen[own_thread, local % size])
        return ordered


class GridOrder:
    """Fences, releases and acquires of the blocks of one launch."""

    def __init__(self, blocks: int) -> None:
        self.fenced = np.zeros(blocks, np.int64)
        self.released = np.zeros(blocks, np.int64)
        self.acquired = np.zeros(blocks, bool)


@dataclass(slots=True)
class Conflict:
    """Lanes that race: their positions in the access, the other threads (numbers in the grid), and the kind of the
    other access."""

    lanes: Array
    others: Array
    what: str


@dataclass(slots=True)
class Races:
    """The last accesses to each location of one object.

    ``columns`` has the stamps of each location, by kind of access.
    """

    nbytes: int
    is_private: bool  #: only threads of one block ever touch a location, as in shared memory
    shift: int = 2
    columns: dict[str, Array] = field(default_factory=dict[str, Array])

    def column(self, name: str) -> Array:
        """The stamps called ``name``, one for each location; 0 where there was no access."""
        stamps = self.columns.get(name)
        if stamps is None:
            stamps = self.columns[name] = np.zeros((self.nbytes >> self.shift) + 2, np.int64)
        return stamps

    def grow(self, nbytes: int) -> None:
        """The object now has ``nbytes`` bytes. The new bytes were never accessed."""
        self.nbytes = nbytes
        for name, column in self.columns.items():
            grown = np.zeros((nbytes >> self.shift) + 2, np.int64)
            grown[: column.size] = column
            self.columns[name] = grown

    def refine(self) -> None:
        """Use one location for each byte from now on."""
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
        self, c: Cohort, lanes: Array | None, locations: list[Selector], *, writes: bool, strong: bool
    ) -> list[Conflict]:
        """The races of this access with earlier ones."""
        stamps, base, low = c.stamps(lanes)
        kinds = ("write", "read") if writes else ("write",)
        if not strong:
            kinds += tuple(f"strong {name}" for name in kinds)
        conflicts: list[Conflict] = []
        for name in [name for kind in kinds for name in (kind, f"{kind}2")]:
            column = self.columns.get(name)
            if column is None:
                continue
            for at in locations:
                conflict = self._conflict(c, column[at], stamps, base, low)
                if conflict is not None:
                    conflicts.append(Conflict(*conflict, name.removesuffix("2")))
        return conflicts

    def _unordered(self, earlier: Array, stamps: Array, base: Array, low: Array, size: int) -> Array | None:
        """Which of the stamps are of other threads and not before the last full barrier; ``None`` if none is."""
        recent = earlier > base
        if not self.is_private:
            recent |= (earlier != 0) & ~_same_block(earlier, low, size)
        if not bool(recent.any()):
            return None
        recent &= ((earlier ^ stamps) & _THREAD) != 0
        return recent if bool(recent.any()) else None

    def _conflict(
        self, c: Cohort, earlier: Array, stamps: Array, base: Array, low: Array
    ) -> tuple[Array, Array] | None:
        bad = self._unordered(earlier, stamps, base, low, c.batch.block_size)
        if bad is None:
            return None
        lanes = np.flatnonzero(bad)
        lanes = lanes[~c.batch.order.is_ordered(earlier[lanes], stamps[lanes])]
        if not lanes.size:
            return None
        return lanes, (earlier[lanes] & _THREAD) - 1

    def note(
        self, c: Cohort, lanes: Array | None, locations: list[Selector], *, writes: bool, strong: bool, observes: bool
    ) -> Conflict | None:
        """Record this access. The result is the races between its own lanes, if it writes.

        ``observes``: it is an atomic whose result shows its thread which strong writes came before it.
        """
        stamps, base, low = c.stamps(lanes)
        kind = ("strong " if strong else "") + ("write" if writes else "read")
        conflict: Conflict | None = None
        for at in locations:
            if observes:
                self.column(kind)[at] = stamps
                if f"{kind}2" in self.columns:
                    self.columns[f"{kind}2"][at] = 0
            else:
                self._note_last(kind, at, stamps, base, low, c.batch.block_size)
            if writes and not strong and not isinstance(at, slice):
                stored = self.column(kind)[at]
                overwritten = stored != stamps
                if bool(overwritten.any()):
                    at_lanes = np.flatnonzero(overwritten)
                    conflict = Conflict(at_lanes, (stored[at_lanes] & _THREAD) - 1, "write")
        return conflict

    def _note_last(self, kind: str, at: Selector, stamps: Array, base: Array, low: Array, size: int) -> None:
        """Record the last reader or writer. The one before becomes the second one, unless it is ordered before this.

        A second one of another block is kept, since no barrier orders it.
        """
        column = self.column(kind)
        second = self.columns.get(f"{kind}2")
        if second is None or self.is_private or isinstance(at, slice):
            self._note_with_second(kind, at, stamps, base, low, size)
            return
        second_stamps = second[at]
        replaceable = np.flatnonzero((second_stamps == 0) | _same_block(second_stamps, low, size))
        if not replaceable.size:
            column[at] = stamps
        elif replaceable.size == stamps.size:
            self._note_with_second(kind, at, stamps, base, low, size)
        else:
            old = column[at[replaceable]]
            column[at] = stamps
            self._note_second(
                kind, old, at[replaceable], stamps[replaceable], base[replaceable], low[replaceable], size
            )

    def _note_with_second(self, kind: str, at: Selector, stamps: Array, base: Array, low: Array, size: int) -> None:
        column = self.column(kind)
        # A slice of a column is a view, which the assignment would change.
        old = column[at].copy() if isinstance(at, slice) else column[at]
        column[at] = stamps
        self._note_second(kind, old, at, stamps, base, low, size)

    def _note_second(
        self, kind: str, old: Array, at: Selector, stamps: Array, base: Array, low: Array, size: int
    ) -> None:
        """Record the earlier threads ``old`` as second ones. The last ones, ``stamps``, are already recorded."""
        keep = self._unordered(old, stamps, base, low, size)
        if keep is not None:
            second = self.column(f"{kind}2")
            second_stamps = second[at]
            if not self.is_private:
                # A thread of another block is preferred, since no barrier orders it.
                keep &= ~((second_stamps != 0) & ~_same_block(second_stamps, low, size) & _same_block(old, low, size))
            second[at] = np.where(keep, old, second_stamps)
        if isinstance(at, slice):
            return
        stored = self.column(kind)[at]
        overwritten = np.flatnonzero(stored != stamps)
        if overwritten.size:
            second = self.column(f"{kind}2")
            if self.is_private:
                second[at[overwritten]] = stamps[overwritten]
                return
            is_within = _same_block(stored[overwritten], low[overwritten], size)
            within = overwritten[is_within]
            if within.size:
                second_stamps = second[at[within]]
                foreign = (second_stamps != 0) & ~_same_block(second_stamps, low[within], size)
                second[at[within]] = np.where(foreign, second_stamps, stamps[within])
            cross = overwritten[~is_within]
            second[at[cross]] = stamps[cross]


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
    """The records of ``target``; they are made at the first use."""
    if target.races is None:
        target.races = Races(target.bytes.size, target.space == "shared")
    return target.races
