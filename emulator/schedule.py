"""Which threads run next: warp fragments, their divergence, reconvergence and waiting.

A *warp fragment* is a set of threads of one warp at one program point. A warp begins as one fragment. If a branch
diverges, the fragment waits at the reconvergence point, which is the immediate post-dominator of the branch, while two
child fragments run. A child that arrives there ends. When the last child has ended, the parent continues with all of
its threads that have not exited. If the child itself diverges and has the same reconvergence point (a loop that threads
leave one after another), the child is divided instead, so that the depth does not grow with the iterations.

    P ──branch──► A ─┐            both A and B may run: if A spins until B does something, B still runs,
     (waits at J) B ─┴─► J: P     unlike with the hardware stack of GPUs before Volta

If nothing else can run and a `*.sync` instruction waits for lanes, then threads that only wait at a reconvergence point
continue without the others. So a lane that a membermask names can exit.
Two ready fragments of a warp with the same program point, parent and reconvergence point are merged when they are
chosen.

Program points are numbers: call depth × number of segments + segment; `RETURN` is the end of a function.
Default order: the deepest call first, then the smallest reverse-postorder rank, so that threads that are behind run
first. Every `FAIRNESS`-th choice is the fragment that has waited longest, so that no fragment waits forever while
others spin. So is the choice after a wait for an mbarrier that no lane has passed.
Random order: a random program point with ready fragments, and a random part of them.
Random order of warps: the same, but of each warp only the fragment that the default order would choose. So the order of
warps is random, while the lanes of each warp reconverge, as divergence analysis assumes. A fragment that has waited for
`STARVED` choices runs in any case.
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
#: What runs next: the fragment by the default order, a random fragment, or a random warp.
SCHEDULES = ("order", "random", "warps")
#: The arrays of a pool with one element for each fragment.
_COLUMNS = (
    *("point", "reconvergence", "mask", "warp", "parent", "pending", "state", "since", "barrier"),
    *("members", "passing"),
)


class Pool:
    """All warp fragments of a batch, as columns; a fragment is a row number.

    ``point`` is the program point, ``reconvergence`` the reconvergence point, ``mask`` the lanes, ``pending`` the
    number of children that have not ended, ``since`` the time of the last run, ``barrier`` the number of the last
    barrier.
    """

    def __init__(self, masks: Array, entry: int) -> None:
        count = masks.size
        size = max(2 * count, 64)
        self.point = np.zeros(size, np.int64)
        self.reconvergence = np.full(size, RETURN, np.int64)
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
        self.members = np.zeros(size, np.uint32)  #: the membermask of a fragment that waits for lanes
        self.passing = np.zeros(size, np.uint32)  #: lanes whose `bar.warp.sync` was completed by lanes at another one
        self.joined = False  #: whether any fragment was ever divided

    def allocate(self, count: int) -> Array:
        """``count`` free rows."""
        while len(self.free) < count:
            old = self.state.size
            for name in _COLUMNS:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
            self.free.extend(range(2 * old - 1, old - 1, -1))
        rows = np.array([self.free.pop() for _ in range(count)], np.int64)
        self.pending[rows] = 0
        self.passing[rows] = 0
        return rows

    def child(self, parents: Array, masks: Array, warps: Array, point: int, reconvergence: int | Array) -> Array:
        """New ready fragments with the parents ``parents`` (-1: none), whose ``pending`` increases."""
        rows = self.allocate(parents.size)
        self.point[rows] = point
        self.reconvergence[rows] = reconvergence
        self.mask[rows] = masks
        self.warp[rows] = warps
        self.parent[rows] = parents
        self.state[rows] = READY
        self.since[rows] = self.time
        real = parents >= 0
        np.add.at(self.pending, parents[real], 1)
        return rows

    def diverge(self, rows: Array, parts: list[tuple[int, Array]], reconvergence: int) -> None:
        """Divide ``rows``. Each part is a program point and, for every row, the threads that continue there."""
        self.joined = True
        same = self.reconvergence[rows] == reconvergence
        self._open(rows[~same], [(point, masks[~same]) for point, masks in parts], reconvergence)
        self._divide(rows[same], [(point, masks[same]) for point, masks in parts], reconvergence)

    def _open(self, rows: Array, parts: list[tuple[int, Array]], reconvergence: int) -> None:
        """Let ``rows`` wait at the reconvergence point, with a child for each part that continues elsewhere."""
        if not rows.size:
            return
        self.point[rows] = reconvergence
        self.state[rows] = JOIN
        for point, masks in parts:
            has_threads = masks != 0
            if point != reconvergence and bool(has_threads.any()):
                self.child(rows[has_threads], masks[has_threads], self.warp[rows[has_threads]], point, reconvergence)

    def _divide(self, rows: Array, parts: list[tuple[int, Array]], reconvergence: int) -> None:
        """Divide ``rows`` that end at this reconvergence point: the first part keeps the row, others become
        siblings."""
        if not rows.size:
            return
        is_kept = np.zeros(rows.size, bool)
        for point, masks in parts:
            has_threads = masks != 0
            if point == reconvergence:
                continue
            is_first = has_threads & ~is_kept
            is_new = has_threads & is_kept
            if bool(is_new.any()):
                at = rows[is_new]
                self.child(self.parent[at], masks[is_new], self.warp[at], point, reconvergence)
            at = rows[is_first]
            self.point[at] = point
            self.mask[at] = masks[is_first]
            is_kept |= is_first
        if not bool(is_kept.all()):
            self.retire(rows[~is_kept])

    def retire(self, rows: Array) -> None:
        """End ``rows``, which have arrived at their reconvergence point or have no threads.

        Parents without children continue.
        """
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
            rows = done[(self.mask[done] == 0) | (self.point[done] == self.reconvergence[done])]

    def release_parked(self) -> bool:
        """Release threads that only wait at a reconvergence point, in warps where others wait for lanes.

        Reconvergence is not a synchronization of the program, so threads that have arrived may continue, and perhaps
        exit. It is called when nothing else can run. The result is whether any thread continues.
        """
        waiting = np.unique(self.warp[self.state == LANES])
        rows = np.flatnonzero((self.state == JOIN) & np.isin(self.warp, waiting))
        live = np.flatnonzero((self.state != FREE) & (self.parent >= 0))
        in_children = np.zeros(self.state.size, np.uint32)
        np.bitwise_or.at(in_children, self.parent[live], self.mask[live])
        arrived = self.mask[rows] & ~self.exited[self.warp[rows]] & ~in_children[rows]
        rows, arrived = rows[arrived != 0], arrived[arrived != 0]
        self.mask[rows] &= ~arrived
        # Fragments that are also at the reconvergence point of their parent have arrived there, too.
        continues = self.point[rows] != self.reconvergence[rows]
        for row, mask in zip(rows[continues].tolist(), arrived[continues].tolist(), strict=True):
            at = np.array([row])
            new = self.child(
                self.parent[at],
                np.array([mask], np.uint32),
                self.warp[at],
                int(self.point[row]),
                self.reconvergence[at],
            )
            self.since[new] = self.time
        return bool(rows.size)

    def arrive(self, rows: Array) -> None:
        """End those of ``rows`` that are at their reconvergence point."""
        if self.joined:
            ended = rows[self.point[rows] == self.reconvergence[rows]]
            if ended.size:
                self.retire(ended)

    def exit(self, rows: Array) -> None:
        """Let all threads of ``rows`` exit."""
        np.bitwise_or.at(self.exited, self.warp[rows], self.mask[rows])
        self.mask[rows] = 0
        self.retire(rows)
        # Fragments that wait for lanes of their warp may have all of them now.
        self.state[self.state == LANES] = READY

    def with_waiting(self, rows: Array) -> Array:
        """``rows``, which are at one point, and the fragments of their warps that wait for lanes at this point. Lanes
        that did not reconverge arrive one after the other."""
        waiting = np.flatnonzero((self.state == LANES) & (self.point == self.point[rows[0]]))
        waiting = waiting[np.isin(self.warp[waiting], self.warp[rows])]
        if not waiting.size:
            return rows
        self.state[waiting] = READY
        return self.merge(np.concatenate([rows, waiting]))

    def merge(self, rows: Array) -> Array:
        """``rows`` in the order of their warps; rows with the same warp, parent and reconvergence point are merged."""
        warps = self.warp[rows]
        if rows.size > 1 and not bool((warps[1:] > warps[:-1]).all()):
            rows = rows[np.lexsort((self.reconvergence[rows], self.parent[rows], warps))]
            warps = self.warp[rows]
            same = (warps[1:] == warps[:-1]) & (self.parent[rows[1:]] == self.parent[rows[:-1]])
            same &= self.reconvergence[rows[1:]] == self.reconvergence[rows[:-1]]
            if bool(same.any()):
                rows = self._merge_equal(rows, np.concatenate([[False], same]))
        return rows

    def _merge_equal(self, rows: Array, same: Array) -> Array:
        heads = rows[~same]
        group = np.cumsum(~same) - 1
        tails = rows[same]
        np.bitwise_or.at(self.mask, heads[group[same]], self.mask[tails])
        np.bitwise_or.at(self.passing, heads[group[same]], self.passing[tails])
        parents = self.parent[tails]
        np.subtract.at(self.pending, parents[parents >= 0], 1)
        self.state[tails] = FREE
        self.free.extend(tails.tolist())
        return heads
