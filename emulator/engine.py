"""The loop that runs a batch: choose warp fragments at one program point, run their segment, move them on.

Guarantees: a segment runs for all chosen fragments at once, with one NumPy operation for each instruction. Registers
remain in the cohort as long as the same fragments run together. The launch ends with a message that names the places of
the threads if no thread can run (`deadlock`), or if more instructions than the budget were issued (`endless`). An
instruction counts once for all fragments that issue it together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from . import sync_ops, transfers
from .batch import Batch
from .checks import Finding, triple_text
from .cohort import Cohort
from .image import Code
from .schedule import BARRIER, FAIRNESS, LANES, READY, STARVED

__all__ = ["Engine"]

Array: TypeAlias = npt.NDArray[Any]

_PRUNE_EVERY = 64
#: How many ranges of threads a message names.
_RANGES_SHOWN = 4


class Engine:
    """Runs one batch. ``random`` is a generator for a random schedule, or ``None`` for the default order.

    With ``by_warp`` the random schedule chooses among warps only: of each warp, the fragment that is furthest behind
    runs. ``progress`` is called from time to time with the number of blocks that have ended.
    """

    def __init__(
        self,
        batch: Batch,
        random: np.random.Generator | None,
        budget: int,
        *,
        by_warp: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.batch = batch
        self.progress = progress
        self.random = random
        self.by_warp = by_warp
        self.budget = budget
        self.codes = batch.image.codes
        self.spent = 0
        self.counting = batch.image.options.counts
        self.judge = batch.launch.judge
        if self.judge is not None:
            self.judge.start(batch.image, batch.threads)
        self.groups = batch.launch.groups
        if self.groups is not None:
            self.groups.start(batch)
        self.issued = np.zeros((len(self.codes), 2), np.int64)
        self.pinned = frozenset(batch.image.pinned)

    def run(self) -> None:
        """Run until every thread has exited. Raises `EmulatorFault`."""
        batch = self.batch
        pool = batch.pool
        steps = 0
        cohort: Cohort | None = None
        with np.errstate(all="ignore"):
            while True:
                ready = np.flatnonzero(pool.state == READY)
                if not ready.size:
                    if pool.release_parked() or sync_ops.release_rest(batch):
                        continue
                    if bool((pool.state != 0).any()):
                        self._stuck()
                    break
                steps += 1
                batch.launch.steps += 1
                if self.spent > self.budget:
                    self._endless()
                cohort = self._cohort(self._pick(ready), cohort)
                if cohort is not None:
                    self._segment(cohort)
                if steps % _PRUNE_EVERY == 0:
                    batch.prune(self.pinned)
                    if self.progress is not None:
                        self.progress(self._blocks_done())
        transfers.finish(batch)
        if self.counting:
            self._count()
        if self.groups is not None:
            self.groups.finish(batch.image)

    def _blocks_done(self) -> int:
        batch = self.batch
        going = batch.pool.exited != batch.warp_lanes
        return batch.blocks - int(np.unique(batch.warp_block[going]).size)

    # --- choosing ----------------------------------------------------------------------------------------------------

    def _pick(self, ready: Array) -> Array:
        pool = self.batch.pool
        pool.time += 1
        points = pool.point[ready]
        if self.random is not None:
            if self.by_warp:
                ready = self._furthest_behind(ready)
                points = pool.point[ready]
            rows = self._pick_random(ready, points)
        elif bool((points == points[0]).all()):
            rows = ready
        elif pool.time % FAIRNESS == 0 or self.batch.waits_in_vain:
            self.batch.waits_in_vain = False
            rows = ready[points == points[np.argmin(pool.since[ready])]]
        else:
            rows = ready[points == points[np.argmin(self._order(points))]]
        rows = pool.merge(rows)
        pool.since[rows] = pool.time
        return rows

    def _order(self, points: Array) -> Array:
        """The priorities of program points, the smallest first: the deepest call, then the smallest rank."""
        depth, segment = np.divmod(points, self.batch.segments)
        return self.batch.image.ranks[segment] - depth * self.batch.segments

    def _furthest_behind(self, ready: Array) -> Array:
        """The fragments in ``ready`` that the default order would choose in their warp, and those that have waited too
        long."""
        pool = self.batch.pool
        order = self._order(pool.point[ready])
        lowest = np.full(pool.exited.size, np.iinfo(np.int64).max)
        np.minimum.at(lowest, pool.warp[ready], order)
        return ready[(order == lowest[pool.warp[ready]]) | (pool.time - pool.since[ready] > STARVED)]

    def _pick_random(self, ready: Array, points: Array) -> Array:
        assert self.random is not None
        rows = ready[points == points[self.random.integers(ready.size)]]
        if rows.size > 1 and self.random.random() < 0.75:
            draws = self.random.random(rows.size)
            if self.by_warp:  # fragments of one warp at the same point run together
                draws = draws[np.unique(self.batch.pool.warp[rows], return_inverse=True)[1]]
            keep = draws < self.random.random()
            if bool(keep.any()):
                rows = rows[keep]
        return rows

    def _cohort(self, rows: Array, last: Cohort | None) -> Cohort | None:
        """The chosen fragments as a cohort, with the registers that the segment reads.

        ``None`` if all of them must wait for other lanes.
        """
        batch = self.batch
        pool = batch.pool
        depth, index = divmod(int(pool.point[rows[0]]), batch.segments)
        code = self.codes[index]
        if code.membermask is not None:
            rows = pool.with_waiting(rows)
        cohort = self._same_or_new(rows, last, depth, code)
        cohort.gather(code.needs)
        if code.membermask is not None:
            cohort = self._with_all_lanes(cohort, code)
        return cohort

    def _same_or_new(self, rows: Array, last: Cohort | None, depth: int, code: Code) -> Cohort:
        """The cohort of ``rows``: the last one if it has the same threads, so that its registers can be used again."""
        batch = self.batch
        masks, warps = batch.pool.mask[rows], batch.pool.warp[rows]
        if last is not None:
            same = (
                last.ids.size == rows.size and np.array_equal(last.warps, warps) and np.array_equal(last.masks, masks)
            )
            if same:
                last.ids = rows
                if last.depth != depth or self.codes[last.function].function is not code.function:
                    last.move_to(depth, code.index)
                elif len(last.env) > len(code.live_in) + 8:
                    live = code.live_in
                    last.env = {key: value for key, value in last.env.items() if key in live}
                last.function = code.index
                last.live_out = code.live_out
                return last
            last.spill()
        cohort = Cohort(batch, rows, masks, warps, depth, code.index)
        cohort.live_out = code.live_out
        return cohort

    def _with_all_lanes(self, cohort: Cohort, code: Code) -> Cohort | None:
        """Only those lanes whose membermask is complete; the others wait."""
        going = sync_ops.going_lanes(cohort, code)
        if np.array_equal(going, cohort.masks):
            return cohort
        cohort.live_out = code.live_in
        cohort.spill()
        ids = sync_ops.hold(cohort, code, going)
        if not ids.size:
            return None
        pool = self.batch.pool
        remaining = Cohort(self.batch, ids, pool.mask[ids], pool.warp[ids], cohort.depth, code.index)
        remaining.live_out = code.live_out
        remaining.gather(code.needs)
        return remaining

    # --- running -----------------------------------------------------------------------------------------------------

    def _segment(self, c: Cohort) -> None:
        code = self.codes[c.function]
        self.spent += len(code.instructions) + 1
        if self.counting:
            issued = self.issued[code.index]
            issued[0] += c.ids.size
            issued[1] += c.n
        if self.judge is not None:
            self.judge.enter(code.index, c)
        if self.groups is not None:
            self.groups.enter(code.index, c)
        env = c.env
        for step, dies in code.steps:
            step(c)
            for key in dies:
                env.pop(key, None)
        assert code.finish is not None
        code.finish(self.batch, c)

    def _count(self) -> None:
        counts = self.batch.launch.counts
        for code, (warps, threads) in zip(self.codes, self.issued.tolist(), strict=True):
            if warps:
                counts.issue(code, warps, threads)
                if code.index in self.batch.image.starts:
                    counts.enter(code, warps, threads)
        for index in np.flatnonzero(self.batch.executed).tolist():
            code = self.codes[index]
            assert code.segment.end is not None
            line = self.batch.image.loaded.line(code.segment.end.pos)
            counts.branch(code, line, int(self.batch.executed[index]), int(self.batch.diverged[index]))

    # --- deadlocks and endless loops-----------------------------------------------------------------------------------

    def _stuck(self) -> None:
        """Reports a deadlock: no fragment is ready, and not all have exited."""
        pool = self.batch.pool
        waiting = np.flatnonzero((pool.state == BARRIER) | (pool.state == LANES))
        by_place: dict[str, list[int]] = {}
        for row in waiting.tolist():
            by_place.setdefault(self._describe(row), []).extend(self._threads(row))
        largest = sorted(by_place.items(), key=lambda item: -len(item[1]))[:6]
        message = "threads wait forever: " + "; ".join(
            f"{len(threads)} at {at}: {self._named(threads)}" for at, threads in largest
        )
        self._end("deadlock", message, int(waiting[0]))

    def _describe(self, row: int) -> str:
        """Describes what a fragment waits for."""
        pool = self.batch.pool
        instr = self._instruction(row)
        assert instr is not None
        line = self.batch.image.loaded.line(instr.pos)
        if pool.state[row] == BARRIER:
            first = int(self.batch.warp_start[pool.warp[row]]) + self._first_thread()
            x, y, z = self.batch.place(first).block
            return f"barrier {int(pool.barrier[row])} of block ({x},{y},{z}) in line {line}"
        return f"{instr.form.text} in line {line}, whose membermask names lanes that are absent or have another one"

    def _instruction(self, row: int) -> Instr | None:
        """The instruction that a fragment waits at, or else executes next."""
        pool = self.batch.pool
        index = int(pool.point[row]) % self.batch.segments
        if pool.state[row] == BARRIER:
            return self.batch.image.barrier_before(index)
        segment = self.codes[index].segment
        return segment.body[0] if segment.body else segment.end

    def _threads(self, row: int) -> list[int]:
        """The threads of a fragment, by their numbers in the grid."""
        pool = self.batch.pool
        first = int(self.batch.warp_start[pool.warp[row]]) + self._first_thread()
        mask = int(pool.mask[row])
        return [first + lane for lane in range(32) if mask >> lane & 1]

    def _named(self, threads: list[int]) -> str:
        """The text for threads, as ranges; only the first ranges are named."""
        ranges: list[list[int]] = []
        for thread in sorted(threads):
            if ranges and ranges[-1][1] == thread - 1:
                ranges[-1][1] = thread
            else:
                ranges.append([thread, thread])
        shown: list[str] = []
        for first, last in ranges[:_RANGES_SHOWN]:
            ends = [triple_text(self.batch.place(thread).thread) for thread in dict.fromkeys((first, last))]
            shown.append(" to ".join(ends))
        more = ", …" if len(ranges) > _RANGES_SHOWN else ""
        return f"{'thread' if len(threads) == 1 else 'threads'} {', '.join(shown)}{more}"

    def _first_thread(self) -> int:
        return self.batch.first_block * self.batch.block_size

    def _endless(self) -> None:
        pool = self.batch.pool
        live = np.flatnonzero(pool.state == READY)
        counts: Counter[int] = Counter((pool.point[live] % self.batch.segments).tolist())
        index = counts.most_common(1)[0][0]
        code = self.codes[index]
        body = [*code.segment.body, code.segment.end]
        line = next((self.batch.image.loaded.line(instr.pos) for instr in body if instr is not None), 0)
        label = self.batch.image.codes[index].segment.kernel.blocks[code.segment.block].label
        name = f"block {label.text}" if label is not None else f"basic block {code.segment.block}"
        rows = live[pool.point[live] % self.batch.segments == index]
        # Only threads of one block are named. Those of other blocks are usually in the same place.
        rows = rows[self.batch.warp_block[pool.warp[rows]] == self.batch.warp_block[pool.warp[rows[0]]]]
        threads_text = self._named([thread for row in rows.tolist() for thread in self._threads(row)])
        message = f"still running after {self.budget} instructions, at {name} in line {line}: {threads_text}"
        self._end("endless", message, int(rows[0]))

    def _end(self, kind: str, message: str, row: int) -> None:
        batch = self.batch
        pool = batch.pool
        code = self.codes[int(pool.point[row]) % batch.segments]
        mask = int(pool.mask[row])
        lane = (mask & -mask).bit_length() - 1 if mask else 0
        thread = int(batch.warp_start[pool.warp[row]]) + lane + self._first_thread()
        instr = self._instruction(row)
        finding = Finding(
            kind,
            message,
            code.segment.kernel.name,
            instr.form.text if instr is not None else "",
            batch.image.loaded.line(instr.pos) if instr is not None else 0,
            batch.place(thread),
        )
        batch.launch.findings.add(finding, instr)
