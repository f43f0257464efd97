"""Synchronization: barriers of a block, exchanges in a warp, fences.

Computes: `bar`/`barrier` with numbers, counts and reductions; `shfl`, `vote`, `match`, `redux`, `elect`, `activemask`,
`bar.warp.sync`; fences, which matter only to the race check, since memory here is sequentially consistent.
Model: a `*.sync` instruction waits until every lane of its membermask that has not exited is at this instruction with
the same membermask, in any warp fragment. For `bar.warp.sync` the lanes may also be at another one. Where only some
lanes of a fragment must wait, it is divided. A barrier without a count waits for all
threads of the block. If nothing else can run, it no longer waits for threads that have exited, and this is reported. A
barrier with a count waits for warps: a warp counts as 32 threads when all of its threads that have not exited have
arrived, as on Hopper. A shuffle from a lane that takes no part gives the value of the reading lane. (The manual leaves
it undefined.)
Reference: PTX ISA 9.0, §9.7.9.6, §9.7.13.1 to §9.7.13.15.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.operands import Operand
from ..ptx.types import TYPES
from . import warp_ops
from .memory import spread
from .registers import Binder, Getter, Refused
from .schedule import BARRIER, LANES, READY
from .segments import names_whole_warp, semantics, waits_for_lanes

if TYPE_CHECKING:
    from .batch import Batch
    from .cohort import Cohort
    from .image import Code, Image

__all__ = ["bind", "bind_barrier", "going_lanes", "hold", "membermask", "receive", "release_rest"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"
Finish: TypeAlias = "Callable[[Batch, Cohort], None]"

BARRIERS = 16


def popcount(masks: Array) -> Array:
    """The number of bits set in each 32-bit mask."""
    return np.unpackbits(np.ascontiguousarray(masks).view(np.uint8).reshape(-1, 4), axis=1).sum(axis=1).astype(np.int64)


# --- within a warp ---------------------------------------------------------------------------------------------------


def bind(image: Image, binder: Binder, instr: Instr) -> Step:
    """The step of a warp instruction or a fence."""
    if semantics(instr) == "sync_fence":
        return _fence(image, binder, instr)
    mask = membermask(binder, instr) if waits_for_lanes(instr) else None
    return warp_ops.bind(image, binder, instr, mask)


def _fence(image: Image, binder: Binder, instr: Instr) -> Step:
    words = instr.form.text.split(".")
    is_wide = "cta" not in words
    guard = binder.guard(instr)
    if not image.options.checks:
        return lambda c: None

    def step(c: Cohort) -> None:
        threads, blocks = c.threads, c.blocks
        if guard is not None:
            flags = np.broadcast_to(guard(c), (c.n,))
            threads, blocks = threads[flags], blocks[flags]
        if threads.size:
            c.batch.order.fence(threads, blocks, is_wide)

    return step


def membermask(binder: Binder, instr: Instr) -> Getter:
    """The membermask of a `*.sync` instruction, its last operand. Operations on matrices use all lanes."""
    if names_whole_warp(instr):
        return binder.constant(0xFFFF_FFFF, TYPES["b32"])
    return binder.source(instr.operands[-1], TYPES["b32"])


def going_lanes(c: Cohort, code: Code) -> Array:
    """For each row the lanes that may execute the instruction, as bits: those whose membermask names only lanes that
    have exited or are in the cohort with the same membermask."""
    assert code.membermask is not None
    batch = c.batch
    pool = batch.pool
    masks = code.membermask(c)
    warps, rows = c.warps, c.rows
    gone = pool.exited[warps] | ~batch.warp_lanes[warps]
    if masks.shape[0] == 1:
        present = c.masks
        if warps.size > 1 and not bool((warps[1:] > warps[:-1]).all()):
            union = np.zeros(batch.warp_block.size, np.uint32)
            np.bitwise_or.at(union, warps, c.masks)
            present = union[warps]
        going = np.where(masks & ~gone & ~present, np.uint32(0), c.masks)
    else:
        groups = warp_ops.Groups(c, masks)
        present = groups.lanes_of(groups.bits(groups.present))
        going = c.row_masks(masks & ~gone[rows] & ~present == 0)
    passing = pool.passing[c.ids]
    pool.passing[c.ids] = 0
    return going | passing


def hold(c: Cohort, code: Code, going: Array) -> Array:
    """Let the lanes of a cohort wait that are not in ``going``, in fragments of one membermask each. The result is the
    rows that continue. Values of registers must be in the file of the batch."""
    assert code.membermask is not None
    pool = c.batch.pool
    masks = code.membermask(c)
    waiting = np.flatnonzero(going != c.masks)
    if masks.shape[0] == 1:
        held: list[int] = c.ids[waiting].tolist()
        pool.state[held] = LANES
        pool.members[held] = masks[0]
    else:
        held = [part for row in waiting.tolist() for part in _divide(c, masks, row, going[row])]
    if semantics(code.segment.body[0]) == "sync_warp":
        for row in held:
            _release_warp_barrier(c.batch, row)
    return c.ids[going != 0]


def _divide(c: Cohort, masks: Array, row: int, going: np.uint32) -> list[int]:
    """Divide one row: the lanes that are not in ``going`` wait. The result is their fragments."""
    pool = c.batch.pool
    first, last = np.searchsorted(c.rows, [row, row + 1]).tolist()
    of_lane = spread(masks, c.n)[first:last]
    bits = np.uint32(1) << c.column("lane")[first:last].astype(np.uint32)
    own = c.ids[row : row + 1]
    held: list[int] = []
    for mask in np.unique(of_lane[bits & ~going != 0]).tolist():
        lanes = np.bitwise_or.reduce(bits[of_lane == mask], keepdims=True) & ~going
        if lanes[0] == pool.mask[own[0]]:
            part = own
        else:
            pool.mask[own] &= ~lanes
            part = pool.child(pool.parent[own], lanes, pool.warp[own], int(pool.point[own[0]]), pool.reconvergence[own])
            pool.joined = True
        pool.state[part] = LANES
        pool.members[part] = mask
        held += part.tolist()
    return held


def _release_warp_barrier(batch: Batch, row: int) -> None:
    """Release a fragment that waits at a `bar.warp.sync` if the lanes that it lacks wait at others."""
    pool = batch.pool
    mask, warp = pool.members[row], pool.warp[row]
    same = np.flatnonzero((pool.state == LANES) & (pool.warp == warp) & (pool.members == mask))
    body = [batch.image.codes[int(point) % batch.segments].segment.body for point in pool.point[same]]
    same = same[[bool(each) and semantics(each[0]) == "sync_warp" for each in body]]
    gone = pool.exited[warp] | ~batch.warp_lanes[warp]
    together = np.bitwise_or.reduce(pool.mask[same], initial=np.uint32(0))
    if not mask & ~gone & ~together:
        pool.state[same] = READY
        pool.passing[same] = pool.mask[same]
        if batch.image.options.checks:
            _order_memory(batch, int(warp), together)


def _order_memory(batch: Batch, warp: int, mask: np.uint32) -> None:
    """Tell the race check that these lanes of a warp have met."""
    lanes = np.flatnonzero(mask >> np.arange(32, dtype=np.uint32) & np.uint32(1))
    threads = batch.warp_start[warp] + lanes
    matrix = np.full((1, 32), -1, np.int64)
    matrix[0, lanes] = threads
    block = np.full(lanes.size, batch.warp_block[warp])
    batch.order.warp_barrier(threads, lanes, np.zeros_like(lanes), matrix, block)


# --- barriers of a block ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Barriers:
    """The barriers of a batch. Arrays have the shape (blocks, 16) unless another one is stated.

    ``members`` has, by block and number of the barrier, the threads that arrived, and whether they wait.
    """

    arrived: Array
    expected: Array  #: the count of threads; 0 if the barrier has none
    true: Array  #: threads that arrived with a true predicate
    all_true: Array  #: whether all that arrived had a true predicate
    results: Array  #: ``true`` of the last completed reduction
    all_results: Array  #: ``all_true`` of the last completed reduction
    came: Array  #: (warps, 16): the lanes that have arrived at a barrier with a count
    is_whole: Array  #: (warps, 16): whether the warp was counted as 32 threads
    members: dict[tuple[int, int], list[tuple[Array, bool]]] = field(
        default_factory=dict[tuple[int, int], "list[tuple[Array, bool]]"]
    )


def _barriers(batch: Batch) -> Barriers:
    if batch.barriers is None:
        shape = (batch.blocks, BARRIERS)
        numbers = [np.zeros(shape, np.int64) for _ in range(4)]
        batch.barriers = Barriers(
            numbers[0],
            numbers[1],
            numbers[2],
            np.ones(shape, bool),
            numbers[3],
            np.zeros(shape, bool),
            np.zeros((batch.warp_block.size, BARRIERS), np.uint32),
            np.zeros((batch.warp_block.size, BARRIERS), bool),
        )
    barriers: Barriers = batch.barriers
    return barriers


@dataclass(slots=True)
class _Operands:
    result: Operand | None
    number: Operand
    count: Operand | None
    predicate: Operand | None


def _operands(instr: Instr) -> _Operands:
    operands = list(instr.operands)
    result = predicate = None
    if semantics(instr) != "sync_bar":
        result, predicate = operands[0], operands[-1]
        operands = operands[1:-1]
    if not 1 <= len(operands) <= 2:
        raise Refused("operands")
    return _Operands(result, operands[0], operands[1] if len(operands) == 2 else None, predicate)


def _per_row(c: Cohort, value: Array) -> Array:
    if value.shape[0] == 1:
        return np.broadcast_to(value, (c.ids.size,)).astype(np.int64)
    rows = c.rows
    first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return value[first].astype(np.int64)


def bind_barrier(image: Image, code: Code) -> Finish:
    """The function for the end of a segment that arrives at a barrier."""
    instr = code.segment.end
    assert instr is not None
    binder = code.function.binder
    operands = _operands(instr)
    number = binder.source(operands.number, TYPES["u32"])
    count = binder.source(operands.count, TYPES["u32"]) if operands.count is not None else None
    predicate = binder.source(operands.predicate, TYPES["pred"]) if operands.predicate is not None else None
    following = code.segment.targets[0].index
    is_arrival = instr.form.mods.get("mode") == "arrive"
    is_aligned = instr.form.op.base == "bar" or "aligned" in instr.form.flags
    if is_arrival and count is None:
        raise Refused("an arrival needs a count")
    checks = image.options.checks

    def arrive(batch: Batch, c: Cohort) -> None:
        pool = batch.pool
        state = _barriers(batch)
        numbers = _per_row(c, number(c))
        if bool((numbers >= BARRIERS).any()):
            batch.report("barrier-count", instr, c, np.arange(1), f"barrier {int(numbers.max())}, but there are 16")
        blocks = batch.warp_block[c.warps]
        if is_aligned and checks:
            partial = c.masks != batch.warp_lanes[c.warps] & ~pool.exited[c.warps]
            if bool(partial.any()):
                at = np.flatnonzero(partial[c.rows])
                batch.report("divergent-barrier", instr, c, at, "not all threads of the warp have arrived")
        threads = popcount(c.masks)
        if count is not None:
            np.bitwise_or.at(state.came, (c.warps, numbers), c.masks)
            threads = threads + _missing_of_warps(batch, state, c.warps, numbers)
            _note_counts(batch, state, instr, c, numbers, _per_row(c, count(c)))
        np.add.at(state.arrived, (blocks, numbers), threads)
        if predicate is not None:
            flags = np.broadcast_to(predicate(c), (c.n,))
            np.add.at(state.true, (blocks, numbers), popcount(c.row_masks(flags)))
            np.logical_and.at(state.all_true, (blocks, numbers), c.row_masks(flags) == c.masks)
        if batch.image.options.counts:
            batch.launch.counts.barriers += int(c.ids.size)
        if count is not None and checks:
            _note_members(state, c, blocks, numbers, not is_arrival)
        pool.point[c.ids] = c.depth * batch.segments + following
        pool.barrier[c.ids] = numbers
        if not is_arrival:
            pool.state[c.ids] = BARRIER
        _complete(batch, state, np.unique(blocks * BARRIERS + numbers), 0)
        if is_arrival:
            pool.arrive(c.ids)

    return arrive


def _note_counts(batch: Batch, state: Barriers, instr: Instr, c: Cohort, numbers: Array, stated: Array) -> None:
    """Set the counts of the barriers to ``stated``, one for each row of the cohort as in ``numbers``. Report one that
    is no multiple of 32, or other than that of earlier arrivals."""
    blocks = batch.warp_block[c.warps]
    earlier = state.expected[blocks, numbers]
    is_wrong = ((earlier != 0) & (earlier != stated)) | (stated % 32 != 0) | (stated == 0)
    if bool(is_wrong.any()):
        row = int(np.flatnonzero(is_wrong)[0])
        at = np.flatnonzero(c.rows == row)
        batch.report("barrier-count", instr, c, at, f"barrier {int(numbers[row])} with count {int(stated[row])}")
    state.expected[blocks, numbers] = stated


def _missing_of_warps(batch: Batch, state: Barriers, warps: Array, numbers: Array) -> Array:
    """For each warp the number of its missing threads, if all threads that have not exited have arrived; else 0.

    Counts are in whole warps: the barrier counts a warp as 32 threads, even if some have exited or never existed. If a
    warp has several rows, only the first gets the number.
    """
    came = state.came[warps, numbers]
    live = batch.warp_lanes[warps] & ~batch.pool.exited[warps]
    whole = ((live & ~came) == 0) & (came != 0) & ~state.is_whole[warps, numbers]
    first = np.zeros(warps.size, bool)
    first[np.unique(warps * BARRIERS + numbers, return_index=True)[1]] = True
    whole &= first
    state.is_whole[warps[whole], numbers[whole]] = True
    return np.where(whole, 32 - popcount(came), 0)


def _count_warps_with_exited_threads(batch: Batch, state: Barriers) -> bool:
    """Count as whole the warps whose missing threads have exited.

    The result is whether a barrier was completed.
    """
    warps, numbers = np.nonzero(state.came)
    if not warps.size:
        return False
    blocks = batch.warp_block[warps]
    np.add.at(state.arrived, (blocks, numbers), _missing_of_warps(batch, state, warps, numbers))
    return _complete(batch, state, np.unique(blocks * BARRIERS + numbers), 0)


def _note_members(state: Barriers, c: Cohort, blocks: Array, numbers: Array, waits: bool) -> None:
    for row in range(c.ids.size):
        key = (int(blocks[row]), int(numbers[row]))
        state.members.setdefault(key, []).append((c.threads[c.rows == row], waits))


def _complete(batch: Batch, state: Barriers, keys: Array, gone: int | Array) -> bool:
    """Release those of the barriers ``keys`` (block × 16 + number) at which all threads have arrived.

    ``gone`` is the number of threads that have exited and are not waited for. The result is whether any was released.
    """
    blocks, numbers = np.divmod(keys, BARRIERS)
    expected = state.expected[blocks, numbers]
    counted = expected != 0
    needed = np.where(counted, expected, batch.block_size - gone)
    ready = state.arrived[blocks, numbers] >= needed
    if not bool(ready.any()):
        return False
    blocks, numbers, counted, needed = blocks[ready], numbers[ready], counted[ready], needed[ready]
    pool = batch.pool
    waiting = np.flatnonzero(pool.state == BARRIER)
    done = np.zeros((batch.blocks, BARRIERS), bool)
    done[blocks, numbers] = True
    released = waiting[done[batch.warp_block[pool.warp[waiting]], pool.barrier[waiting]]]
    pool.state[released] = READY
    pool.since[released] = pool.time
    if bool(counted.any()):
        completed = done[batch.warp_block]
        state.came[completed] = 0
        state.is_whole[completed] = False
    state.arrived[blocks, numbers] = 0
    state.expected[blocks, numbers] = 0
    state.results[blocks, numbers] = state.true[blocks, numbers]
    state.all_results[blocks, numbers] = state.all_true[blocks, numbers]
    state.true[blocks, numbers] = 0
    state.all_true[blocks, numbers] = True
    if batch.image.options.checks:
        whole = ~counted | (needed >= 32 * batch.warps_per_block)
        batch.order.full_barrier(blocks[whole])
        for block, number in zip(blocks.tolist(), numbers.tolist(), strict=True):
            members = state.members.pop((block, number), [])
            if members and not bool(whole[(blocks == block) & (numbers == number)][0]):
                before = np.concatenate([threads for threads, _ in members])
                after = [threads for threads, waits in members if waits]
                batch.order.partial_barrier(block, before, np.concatenate(after) if after else before[:0])
    pool.arrive(released)
    return True


def release_rest(batch: Batch) -> bool:
    """When nothing can run, complete barriers without the threads that have exited, and report it.

    The result is whether any barrier was completed.
    """
    if batch.barriers is None:
        return False
    state = _barriers(batch)
    pool = batch.pool
    waiting = np.flatnonzero(pool.state == BARRIER)
    if not waiting.size:
        return False
    if _count_warps_with_exited_threads(batch, state):
        return True
    exited = np.zeros(batch.blocks, np.int64)
    np.add.at(exited, batch.warp_block, popcount(pool.exited))
    blocks = batch.warp_block[pool.warp[waiting]]
    keys = np.unique(blocks * BARRIERS + pool.barrier[waiting])
    row_of_key = {
        int(key): int(row) for key, row in zip(blocks * BARRIERS + pool.barrier[waiting], waiting, strict=True)
    }
    expected = state.expected[keys // BARRIERS, keys % BARRIERS]
    keys = keys[expected == 0]
    gone = exited[keys // BARRIERS]
    complete = state.arrived[keys // BARRIERS, keys % BARRIERS] >= batch.block_size - gone
    keys, gone = keys[complete], gone[complete]
    if not keys.size:
        return False
    if batch.image.options.checks:
        for key, absent in zip(keys.tolist(), gone.tolist(), strict=True):
            _report_partial(batch, row_of_key[key], key % BARRIERS, absent)
    return _complete(batch, state, keys, gone)


def _report_partial(batch: Batch, row: int, number: int, absent: int) -> None:
    from .cohort import Cohort

    pool = batch.pool
    rows = np.array([row])
    depth, index = divmod(int(pool.point[row]), batch.segments)
    c = Cohort(batch, rows, pool.mask[rows], pool.warp[rows], depth, index)
    instr = batch.image.barrier_before(index)
    arrived = batch.block_size - absent
    message = f"barrier {number} is reached by {arrived} of {batch.block_size} threads; the others have exited"
    batch.report("partial-barrier", instr, c, np.arange(1), message)


def receive(binder: Binder, instr: Instr) -> Step:
    """The first step after a reduction barrier: it writes the result."""
    operands = _operands(instr)
    assert operands.result is not None
    is_count = semantics(instr) == "sync_bar_red_popc"
    write = binder.destination(operands.result, TYPES["u32"] if is_count else TYPES["pred"])
    operation = instr.form.mods.get("bool", "")
    if not is_count and operation not in ("and", "or"):
        raise Refused("")

    def step(c: Cohort) -> None:
        state = _barriers(c.batch)
        numbers = c.batch.pool.barrier[c.ids][c.rows]
        blocks = c.blocks
        if is_count:
            value = state.results[blocks, numbers].astype(np.uint32)
        elif operation == "and":
            value = state.all_results[blocks, numbers]
        else:
            value = state.results[blocks, numbers] > 0
        write(c, value, None)

    return step
