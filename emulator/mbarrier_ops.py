"""`mbarrier`: objects in shared memory that count arrivals and bytes of asynchronous copies, phase by phase.

Computes: `init`, `inval`, `arrive`, `arrive_drop`, `expect_tx`, `complete_tx`, `test_wait`, `try_wait`,
`pending_count`, and `cp.async.mbarrier.arrive`. Lanes that use the same object are executed in lane order.
Model: an object is a number of 64 bits in the shared memory of the block (`mbarrier_state`). The state that `arrive`
returns is the number before the arrival. The bytes of a copy that completes at an object are written when a thread
waits for that object (`transfers`). `try_wait` never suspends a thread.
Guarantees: for the race check, an arrival is a release and a successful wait is an acquire. Parities and counts are
those of an H200.
Refuses: mbarriers of other blocks. (`.shared::cluster` means the shared memory of the block itself here.)
Reference: PTX ISA 9.0, §9.7.13.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.operands import Mem, Operand
from ..ptx.types import TYPES
from . import memory_ops, transfers
from .access import Access, Piece
from .atomic_ops import fetch_and_apply
from .mbarrier_state import COUNT, MARK, PHASE, initial, update_of, updated
from .memory import spread
from .registers import Binder, Refused, Setter
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort
    from .image import Image

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"


def bind(image: Image, binder: Binder, instr: Instr) -> Step:
    """The step of an operation on an mbarrier."""
    name = semantics(instr)
    if name == "mbarrier_pending_count":
        read = binder.source(instr.operands[1], TYPES["b64"])
        write = binder.destination(instr.operands[0], TYPES["b32"])
        guard = binder.guard(instr)
        return lambda c: write(c, (read(c) & np.uint64(COUNT)).astype(np.uint32), None if guard is None else guard(c))
    make = {
        "mbarrier_init": _init,
        "mbarrier_inval": _inval,
        "mbarrier_arrive": _arrive,
        "mbarrier_arrive_drop": _arrive,
        "mbarrier_expect_tx": _transaction,
        "mbarrier_complete_tx": _transaction,
        "mbarrier_wait": _wait,
        "mbarrier_copies": _arrive_behind_copies,
    }.get(name)
    if make is None:
        raise Refused("")
    return make(image, binder, instr)


class Object:
    """The mbarrier that an operand names. `pieces` gives the objects of lanes."""

    def __init__(
        self, image: Image, binder: Binder, instr: Instr, operand: Operand, *, atomic: bool, reads: bool = True
    ) -> None:
        memory = memory_ops.memory_operand(operand)
        self.instr = instr
        words = instr.form.text.split(".")
        space = "shared" if any(word.startswith("shared") for word in words) else "generic"
        space = memory_ops.space_of(binder, space, memory)
        self.access = Access(instr, space, 8, 1, image.options, reads=reads, writes=True, strong=atomic)
        self.address = memory_ops.address_of(binder, memory)
        self.checks = image.options.checks

    def pieces(self, c: Cohort, lanes: Array) -> list[Piece]:
        """The objects of ``lanes`` (positions in the cohort). The accesses are checked and counted."""
        pieces = self.access.pieces(c, spread(self.address(c), c.n)[lanes], lanes)
        for piece in pieces:
            piece.lanes = lanes if piece.lanes is None else piece.lanes
            piece.offsets = spread(piece.offsets, piece.lanes.size)
            self.access.check(c, piece, reads=self.access.reads)
        self.access.tally(c, pieces)
        return pieces

    def update(self, c: Cohort, piece: Piece, updates: Array) -> Array:
        """Apply ``updates``, one for each lane of ``piece``. The result is the old state for each lane."""
        data, _ = piece.target.view(8)
        indices = piece.offsets >> np.int64(3)
        old = fetch_and_apply(data, indices, updates.astype(np.int64).view(np.uint64), updated, False)
        if self.checks:
            self._check(c, piece, old, updates)
        return old

    def _check(self, c: Cohort, piece: Piece, old: Array, updates: Array) -> None:
        assert piece.lanes is not None
        state = old.view(np.int64)
        bad = state >> MARK != 1
        if bool(bad.any()):
            self.report(c, piece.lanes[bad], "uses an object that is not an initialised mbarrier")
        bad = ~bad & (updates & COUNT > state & COUNT)
        if bool(bad.any()):
            first = int(np.flatnonzero(bad)[0])
            message = f"arrives {int(updates[first] & COUNT)} times, {int(state[first] & COUNT)} are pending"
            self.report(c, piece.lanes[bad], message)

    def report(self, c: Cohort, lanes: Array, what: str) -> None:
        """Record a finding about the use of the object."""
        c.batch.report("mbarrier", self.instr, c, lanes, what)


def _on_active_lanes(binder: Binder, instr: Instr, run: Callable[[Cohort, Array], None]) -> Step:
    """The step that calls ``run`` with the cohort and the positions of its active lanes, if there is one."""
    guard = binder.guard(instr)

    def step(c: Cohort) -> None:
        any_active, lanes = memory_ops.guarded_lanes(guard, c)
        if any_active:
            run(c, np.arange(c.n) if lanes is None else lanes)

    return step


def _flags(lanes: Array, c: Cohort) -> Array | None:
    """Which lanes of the cohort are in ``lanes``; ``None`` if all are."""
    if lanes.size == c.n:
        return None
    flags = np.zeros(c.n, bool)
    flags[lanes] = True
    return flags


def _released(c: Cohort, lanes: Array) -> None:
    """``lanes`` arrive: their earlier accesses are released to the threads that wait."""
    words = c.threads[lanes], c.blocks[lanes]
    c.batch.order.fence(*words, False)
    c.batch.order.strong(*words, reads=False, writes=True)


def _init(image: Image, binder: Binder, instr: Instr) -> Step:
    target = Object(image, binder, instr, instr.operands[0], atomic=False, reads=False)
    count = binder.source(instr.operands[1], TYPES["b32"])

    def run(c: Cohort, lanes: Array) -> None:
        counts = spread(count(c), c.n).astype(np.int64)
        bad = lanes[(counts[lanes] < 1) | (counts[lanes] > COUNT)]
        if bad.size and target.checks:
            target.report(c, bad, f"a count of {int(counts[bad[0]])}")
        for piece in target.pieces(c, lanes):
            piece.target.store(piece.offsets >> np.int64(3), 8, initial(counts[piece.lanes]))

    return _on_active_lanes(binder, instr, run)


def _inval(image: Image, binder: Binder, instr: Instr) -> Step:
    target = Object(image, binder, instr, instr.operands[0], atomic=False)

    def run(c: Cohort, lanes: Array) -> None:
        for piece in target.pieces(c, lanes):
            # The memory may now be used for something else. Until it is written, it counts as never written.
            indices = piece.offsets >> np.int64(3)
            piece.target.store(indices, 8, np.zeros(indices.size, np.uint64))
            written = piece.target.view(8)[1]
            if written is not None:
                written[indices] = 0

    return _on_active_lanes(binder, instr, run)


def _result(binder: Binder, instr: Instr) -> tuple[Setter, list[Operand]]:
    """The setter of the first operand, which receives the state of the mbarrier, and the other operands."""
    operands = list(instr.operands)
    result = operands.pop(0)
    if isinstance(result, Mem):
        raise Refused("no result")
    return binder.destination(result, TYPES["b64"]), operands


def _arrive(image: Image, binder: Binder, instr: Instr) -> Step:
    write, operands = _result(binder, instr)
    words = instr.form.text.split(".")
    target = Object(image, binder, instr, operands[0], atomic=True)
    amount = binder.source(operands[1], TYPES["b32"]) if len(operands) > 1 else None
    expects = "expect_tx" in words
    if expects and amount is None:
        raise Refused("it names no bytes")
    is_partial = "noComplete" in words
    drops = semantics(instr) == "mbarrier_arrive_drop"

    def run(c: Cohort, lanes: Array) -> None:
        amounts = np.ones(c.n, np.int64) if amount is None else spread(amount(c), c.n).astype(np.int64)
        states = np.zeros(c.n, np.uint64)
        _released(c, lanes)
        for piece in target.pieces(c, lanes):
            piece_amounts = amounts[piece.lanes]
            if not expects and target.checks and bool(((piece_amounts < 1) | (piece_amounts > COUNT)).any()):
                assert piece.lanes is not None
                target.report(c, piece.lanes, f"a count of {int(piece_amounts.max())}")
            updates = update_of(1, piece_amounts, drops=drops) if expects else update_of(piece_amounts, 0, drops=drops)
            old = target.update(c, piece, updates)
            states[piece.lanes] = old
            if is_partial and target.checks and bool(((old & np.uint64(COUNT)) == (updates & COUNT)).any()):
                assert piece.lanes is not None
                target.report(c, piece.lanes, "completes the phase, although .noComplete states that it does not")
        write(c, states, _flags(lanes, c))

    return _on_active_lanes(binder, instr, run)


def _transaction(image: Image, binder: Binder, instr: Instr) -> Step:
    target = Object(image, binder, instr, instr.operands[0], atomic=True)
    amount = binder.source(instr.operands[1], TYPES["b32"])
    sign = 1 if semantics(instr) == "mbarrier_expect_tx" else -1

    def run(c: Cohort, lanes: Array) -> None:
        amounts = spread(amount(c), c.n).astype(np.int64)
        for piece in target.pieces(c, lanes):
            target.update(c, piece, update_of(0, sign * amounts[piece.lanes]))

    return _on_active_lanes(binder, instr, run)


def _wait(image: Image, binder: Binder, instr: Instr) -> Step:
    operands = instr.operands
    write = binder.destination(operands[0], TYPES["pred"])
    words = instr.form.text.split(".")
    is_parity = "parity" in words
    target = Object(image, binder, instr, operands[1], atomic=True)
    target.access.writes = False
    phase_operand = binder.source(operands[2], TYPES["b32"] if is_parity else TYPES["b64"])

    def run(c: Cohort, lanes: Array) -> None:
        values = spread(phase_operand(c), c.n)
        phases = values & values.dtype.type(1) if is_parity else values >> np.uint64(PHASE) & np.uint64(1)
        results = np.zeros(c.n, bool)
        for piece in target.pieces(c, lanes):
            assert piece.lanes is not None
            transfers.deliver_at(c.batch, np.unique(piece.offsets))
            state = piece.target.view(8)[0][piece.offsets >> np.int64(3)]
            results[piece.lanes] = (state >> np.uint64(PHASE) & np.uint64(1)) != phases[piece.lanes]
            if target.checks and bool((state.view(np.int64) >> MARK != 1).any()):
                target.report(c, piece.lanes, "waits for an object that is not an initialised mbarrier")
        passed = lanes[results[lanes]]
        c.batch.waits_in_vain = not passed.size
        if passed.size:
            c.batch.order.strong(c.threads[passed], c.blocks[passed], reads=True, writes=False)
        write(c, results, _flags(lanes, c))

    return _on_active_lanes(binder, instr, run)


def _arrive_behind_copies(image: Image, binder: Binder, instr: Instr) -> Step:
    """`cp.async.mbarrier.arrive`: arrives when the earlier copies of the thread are complete."""
    target = Object(image, binder, instr, instr.operands[0], atomic=True)
    # Without .noinc, the pending count is increased by 1 for the later arrival.
    is_counted = "noinc" in instr.form.flags

    def run(c: Cohort, lanes: Array) -> None:
        for piece in target.pieces(c, lanes):
            assert piece.lanes is not None
            if not is_counted:
                np.add.at(piece.target.view(8)[0], piece.offsets >> np.int64(3), np.uint64(1))
            transfers.arrive_behind_copies(c, instr, piece.lanes, piece.offsets)

    return _on_active_lanes(binder, instr, run)
