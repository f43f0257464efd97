"""Which threads run next: splits of warps, their divergence, reconvergence and waiting.

A *split* is a set of threads of one warp that stand at one program point. A warp begins as one split. Where a branch
diverges, the split waits at the immediate post-dominator while two children go on; a child that arrives there ends,
and when the last one has, the parent goes on with all of its threads that have not exited. Where the child's own
meeting point is the same (a loop that threads leave one after another), the child is divided instead, so that depth
does not grow with trips.

    P ──branch──► A ─┐            both A and B may run: unlike a hardware stack before Volta, a split that spins
     (waits at J) B ─┴─► J: P     on another of its warp does not starve it

Where nothing else can run and a `*.sync` instruction waits for lanes, those that wait at a meeting point only go on by
themselves: so a lane may exit that a membermask names.
Two ready splits of a warp with one program point, one parent and one meeting point are merged when they are picked.

Program points are numbers: call depth × number of segments + segment; `RETURN` is the end of a function.
Default order: the deepest call first, then the smallest reverse-postorder rank, so that threads behind catch up; every
`FAIRNESS`-th pick takes the split that has waited longest, so that nobody spins for ever on one that never runs; so
does the pick behind a wait for an mbarrier that no lane has come through.
Random order: a random program point that is ready, and a random part of the splits there.
Random order of warps: the same, but of each warp only the split that the default order would take. So warps overtake
each other at random while the lanes of each reconverge, as analyses of divergence assume; a split that has waited for
`STARVED` picks goes on all the same.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["BARRIER", "FAIRNESS", "FREE", "JOIN", "LANES", "READY", "RETURN", "SCHEDULES", "STARVED", "Pool"]

Array: TypeAlias = npt.NDArray[Any]

RETURN = -1
FREE, READY, JOIN, BARRIER, LANES = 0, 1, 2, 3, 4
FAIRNESS = 257
STARVED = 1 << 17
#: Who runs next: the default order, a random split, or a random warp.
SCHEDULES = ("order", "random", "warps")


class Pool:
    """All splits of a batch of blocks, as columns; a split is a row number."""

    def __init__(self, masks: Array, entry: int) -> None:
        count = masks.size
        size = max(2 * count, 64)
        self.point = np.zeros(size, np.int64)
        self.meet = np.full(size, RETURN, np.int64)
        self.mask = np.zeros(size, np.uint32)
        self.warp = np.zeros(size, np.int64)
        self.parent = np.full(size, -1, np.int64)
        self.pending = np.zeros(size, np.int64)
        self.state = np.zeros(size, np.int8)
        self.since = np.zeros(size, np.int64)
        self.barrier = np.zeros(size, np.int64)
        self.point[:count] = entry
        self.mask[:count] = masks
        self.warp[:count] = np.arange(count)
        self.state[:count] = READY
        self.exited = np.zeros(count, np.uint32)  #: threads of each warp that have exited
        self.free = list(range(size - 1, count - 1, -1))
        self.time = 0
        self.passing: set[int] = set()  #: splits whose `bar.warp.sync` has been met elsewhere
        self.joined = False  #: whether any split has ever been divided

    def allocate(self, count: int) -> Array:
        """``count`` free rows."""
        while len(self.free) < count:
            old = self.state.size
            for name in ("point", "meet", "mask", "warp", "parent", "pending", "state", "since", "barrier"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
            self.free.extend(range(2 * old - 1, old - 1, -1))
        rows = np.array([self.free.pop() for _ in range(count)], np.int64)
        self.pending[rows] = 0
        return rows

    def child(self, parents: Array, masks: Array, warps: Array, point: int, meet: int | Array) -> Array:
        """New ready splits below ``parents`` (-1: none), counted by them."""
        rows = self.allocate(parents.size)
        self.point[rows] = point
        self.meet[rows] = meet
        self.mask[rows] = masks
        self.warp[rows] = warps
        self.parent[rows] = parents
        self.state[rows] = READY
        self.since[rows] = self.time
        real = parents >= 0
        np.add.at(self.pending, parents[real], 1)
        return rows

    def diverge(self, rows: Array, parts: list[tuple[int, Array]], meet: int) -> None:
        """Divide ``rows``: each part is a program point and the threads of every row that go there."""
        self.joined = True
        same = self.meet[rows] == meet
        self._open(rows[~same], [(point, masks[~same]) for point, masks in parts], meet)
        self._divide(rows[same], [(point, masks[same]) for point, masks in parts], meet)

    def _open(self, rows: Array, parts: list[tuple[int, Array]], meet: int) -> None:
        """``rows`` wait at ``meet`` for one child for each part that goes elsewhere."""
        if not rows.size:
            return
        self.point[rows] = meet
        self.state[rows] = JOIN
        for point, masks in parts:
            some = masks != 0
            if point != meet and bool(some.any()):
                self.child(rows[some], masks[some], self.warp[rows[some]], point, meet)

    def _divide(self, rows: Array, parts: list[tuple[int, Array]], meet: int) -> None:
        """``rows`` end at ``meet`` themselves: the first part keeps the row, the others become siblings."""
        if not rows.size:
            return
        kept = np.zeros(rows.size, bool)
        for point, masks in parts:
            some = masks != 0
            if point == meet:
                continue
            first = some & ~kept
            more = some & kept
            if bool(more.any()):
                at = rows[more]
                self.child(self.parent[at], masks[more], self.warp[at], point, meet)
            at = rows[first]
            self.point[at] = point
            self.mask[at] = masks[first]
            kept |= first
        if not bool(kept.all()):
            self.retire(rows[~kept])

    def retire(self, rows: Array) -> None:
        """``rows`` have reached their meeting point or have no threads left: they end, and parents go on."""
        while rows.size:
            parents = self.parent[rows]
            self.state[rows] = FREE
            self.free.extend(rows.tolist())
            parents = parents[parents >= 0]
            np.subtract.at(self.pending, parents, 1)
            parents = np.unique(parents)
            done = parents[self.pending[parents] == 0]
            self.mask[done] &= ~self.exited[self.warp[done]]
            self.state[done] = READY
            self.since[done] = self.time
            rows = done[(self.mask[done] == 0) | (self.point[done] == self.meet[done])]

    def release_parked(self) -> bool:
        """Let threads go on that wait at a meeting point only, in warps where others wait for lanes.

        Meeting is no synchronization of the program: whoever has arrived may go on, and perhaps exit. Called when
        nothing else can run; whether any thread goes on.
        """
        waiting = np.unique(self.warp[self.state == LANES])
        rows = np.flatnonzero((self.state == JOIN) & np.isin(self.warp, waiting))
        live = np.flatnonzero((self.state != FREE) & (self.parent >= 0))
        below = np.zeros(self.state.size, np.uint32)
        np.bitwise_or.at(below, self.parent[live], self.mask[live])
        arrived = self.mask[rows] & ~self.exited[self.warp[rows]] & ~below[rows]
        rows, arrived = rows[arrived != 0], arrived[arrived != 0]
        self.mask[rows] &= ~arrived
        # Those that stand at the meeting point of the split around theirs have arrived there, too.
        apart = self.point[rows] != self.meet[rows]
        for row, mask in zip(rows[apart].tolist(), arrived[apart].tolist(), strict=True):
            at = np.array([row])
            new = self.child(
                self.parent[at], np.array([mask], np.uint32), self.warp[at], int(self.point[row]), self.meet[at]
            )
            self.since[new] = self.time
        return bool(rows.size)

    def arrive(self, rows: Array) -> None:
        """End those of ``rows`` that stand at their meeting point."""
        if self.joined:
            ended = rows[self.point[rows] == self.meet[rows]]
            if ended.size:
                self.retire(ended)

    def exit(self, rows: Array) -> None:
        """All threads of ``rows`` exit."""
        np.bitwise_or.at(self.exited, self.warp[rows], self.mask[rows])
        self.mask[rows] = 0
        self.retire(rows)
        # Who waits for lanes of its warp may now have all of them.
        self.state[self.state == LANES] = READY

    def merge(self, rows: Array) -> Array:
        """``rows`` in the order of their warps; those of one warp, parent and meeting point made one."""
        warps = self.warp[rows]
        if rows.size > 1 and not bool((warps[1:] > warps[:-1]).all()):
            rows = rows[np.lexsort((self.meet[rows], self.parent[rows], warps))]
            warps = self.warp[rows]
            same = (warps[1:] == warps[:-1]) & (self.parent[rows[1:]] == self.parent[rows[:-1]])
            same &= self.meet[rows[1:]] == self.meet[rows[:-1]]
            if bool(same.any()):
                rows = self._merge_equal(rows, np.concatenate([[False], same]))
        return rows

    def _merge_equal(self, rows: Array, same: Array) -> Array:
        heads = rows[~same]
        group = np.cumsum(~same) - 1
        tails = rows[same]
        np.bitwise_or.at(self.mask, heads[group[same]], self.mask[tails])
        parents = self.parent[tails]
        np.subtract.at(self.pending, parents[parents >= 0], 1)
        self.state[tails] = FREE
        self.free.extend(tails.tolist())
        return heads
