"""Asynchronous copies that complete at an mbarrier or in a bulk group: `cp.async.bulk`, `cp.async.mbarrier.arrive`.

Computes: a copy reads its source when it is issued. Its bytes are written when a thread waits for it: at a wait for its
mbarrier, at `cp.async.bulk.wait_group`, or at the end of the kernel. Until then the destination counts as never
written, so a read before the wait is found. Guarantees: the bytes count as written by the thread that issued the copy,
followed by a release. So an access is a race unless it is ordered before the issue or after the wait.
Refuses, by name: copies with a tensor map, to several blocks, from shared memory to that of the cluster (an illegal
instruction on an H200 unless the kernel is launched in clusters), masked bytes, and reductions.
Reference: PTX ISA 9.0, §9.7.9.25.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.operands import Imm, Mem
from ..ptx.types import TYPES
from . import memory_ops
from .access import Access, Piece
from .mbarrier_state import update_of, updated
from .memory import spread
from .registers import Binder, Refused, integer
from .segments import semantics

if TYPE_CHECKING:
    from .batch import Batch
    from .cohort import Cohort
    from .image import Image

__all__ = ["Transfer", "arrive_behind_copies", "bind", "deliver_at", "finish"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"

#: Bytes of an element of a bulk copy.
_WORD = 4


@dataclass(slots=True)
class Transfer:
    """A copy that has not been delivered.

    ``place`` is the place of the thread in the program: depth and segment, for messages.
    """

    thread: int
    place: tuple[int, int]
    access: Access
    addresses: Array
    data: Array  #: one row of bytes for each address
    group: int = 0  #: the bulk group, for a copy without an mbarrier
    barrier: int | None = None  #: the offset of its mbarrier in the batch's shared memory
    arrivals: int = 0
    nbytes: int = 0  #: the bytes that its mbarrier expects


@dataclass(slots=True)
class Transfers:
    """The transfers of a batch that have not been delivered, in the order of their issue.

    ``at_barrier`` has those that complete at an mbarrier, by its offset; ``in_groups`` has the others. ``group`` has
    the number of bulk groups that each thread has committed.
    """

    group: Array
    at_barrier: dict[int, list[Transfer]] = field(default_factory=dict[int, "list[Transfer]"])
    in_groups: list[Transfer] = field(default_factory=list[Transfer])

    def add(self, transfer: Transfer) -> None:
        if transfer.barrier is None:
            self.in_groups.append(transfer)
        else:
            self.at_barrier.setdefault(transfer.barrier, []).append(transfer)


def _transfers(batch: Batch) -> Transfers:
    if batch.transfers is None:
        batch.transfers = Transfers(np.zeros(batch.threads, np.int64))
    transfers: Transfers = batch.transfers
    return transfers


def bind(image: Image, binder: Binder, instr: Instr) -> Step:
    """The step of a bulk copy, or of the commit of and the wait for its groups."""
    name = semantics(instr)
    if name == "bulk_copy":
        return _copy(image, binder, instr)
    guard = binder.guard(instr)
    if name == "bulk_commit":

        def commit(c: Cohort) -> None:
            any_active, lanes = memory_ops.guarded_lanes(guard, c)
            if any_active:
                _transfers(c.batch).group[c.threads if lanes is None else c.threads[lanes]] += 1

        return commit
    if name != "bulk_wait":
        raise Refused("")
    operand = instr.operands[0]
    if not isinstance(operand, Imm):
        raise Refused("a count that is not a constant")
    left = integer(operand.text, "a count")
    if "read" in instr.form.flags:
        # The sources were read when the copies were issued.
        return lambda c: None

    def wait(c: Cohort) -> None:
        any_active, lanes = memory_ops.guarded_lanes(guard, c)
        if not any_active:
            return
        transfers = _transfers(c.batch)
        due = np.full(c.batch.threads, -1, np.int64)
        threads = c.threads if lanes is None else c.threads[lanes]
        due[threads] = transfers.group[threads] - left
        _deliver_groups(c.batch, due)

    return wait


# --- issue -----------------------------------------------------------------------------------------------------------


def _copy(image: Image, binder: Binder, instr: Instr) -> Step:
    words = instr.form.mods.get("*", "").split(".")
    for word in words:
        if word.startswith("multicast"):
            raise Refused("to several blocks")
        if word in ("cp_mask", "ignore_oob"):
            raise Refused(f".{word}")
    spaces = [word for word in words if word.partition("::")[0] in ("shared", "global")]
    if len(spaces) != 2:
        raise Refused("it does not name two state spaces")
    target_space, source_space = (word.partition("::")[0] for word in spaces)
    if target_space == source_space:
        raise Refused("a copy to shared memory of the cluster")
    is_load = target_space == "shared"
    if ("mbarrier::complete_tx::bytes" if is_load else "bulk_group") not in words:
        raise Refused("its completion mechanism")
    operands = list(instr.operands)
    if len(operands) < 3 + is_load or not all(isinstance(operand, Mem) for operand in operands[:2]):
        raise Refused("operands")
    size = binder.source(operands[2], TYPES["b32"])
    source = Access(instr, source_space, _WORD, 1, image.options, reads=True, writes=False)
    target = Access(instr, target_space, _WORD, 1, image.options, reads=False, writes=True)
    read_from, write_to = (memory_ops.address_of(binder, operand) for operand in (operands[1], operands[0]))
    barrier = memory_ops.address_of(binder, operands[3]) if is_load else None
    barrier_access = Access(instr, "shared", 8, 1, image.options, reads=True, writes=True, strong=True)
    guard = binder.guard(instr)

    def step(c: Cohort) -> None:
        any_active, lanes = memory_ops.guarded_lanes(guard, c)
        if not any_active:
            return
        at = np.arange(c.n) if lanes is None else lanes
        sources, targets, sizes = (spread(read(c), c.n)[at] for read in (read_from, write_to, size))
        barriers = None if barrier is None else spread(barrier(c), c.n)[at]
        for index, lane in enumerate(at.tolist()):
            nbytes = int(sizes[index])
            start, end = int(sources[index]), int(targets[index])
            if not _is_sound(c, instr, lane, start, end, nbytes):
                continue
            offsets = np.arange(0, nbytes, _WORD, dtype=np.int64)
            data = _read(c, source, lane, start + offsets)
            offset: int | None = None
            if barriers is not None:
                pieces = barrier_access.pieces(c, barriers[index : index + 1], np.array([lane]))
                if not pieces:
                    continue
                offset = int(pieces[0].offsets[0])
            if data is None or not _mark_unwritten(c, target, lane, end + offsets):
                continue
            thread = int(c.threads[lane])
            group = int(_transfers(c.batch).group[thread])
            place = (c.depth, c.function)
            transfer = Transfer(thread, place, target, end + offsets, data, group, offset, nbytes=nbytes)
            _transfers(c.batch).add(transfer)

    return step


def _is_sound(c: Cohort, instr: Instr, lane: int, start: int, end: int, nbytes: int) -> bool:
    for what, value in (("source", start), ("destination", end), ("size", nbytes)):
        if value % 16:
            c.batch.report("misaligned", instr, c, np.array([lane]), f"its {what}, {value:#x}, is no multiple of 16")
            c.batch.launch.findings.skip("misaligned", "global", "copies", [start, end, nbytes])
            return False
    if nbytes > c.batch.total_shared:
        what = f"copies {nbytes} bytes, more than the {c.batch.total_shared} bytes of the block's shared memory"
        c.batch.report("out-of-bounds", instr, c, np.array([lane]), what)
        c.batch.launch.findings.skip("out-of-bounds", "global", "copies", [start, end, nbytes])
        return False
    return True


def _whole(c: Cohort, access: Access, lane: int, addresses: Array) -> Piece | None:
    """The one piece of memory that the access of ``lane`` falls into; ``None`` where it is not all there."""
    if not addresses.size:
        return None
    pieces = access.pieces(c, addresses, np.full(addresses.size, lane))
    if len(pieces) != 1 or pieces[0].offsets.size != addresses.size:
        return None
    if pieces[0].lanes is None:
        pieces[0].lanes = np.full(addresses.size, lane)
    return pieces[0]


def _read(c: Cohort, access: Access, lane: int, addresses: Array) -> Array | None:
    piece = _whole(c, access, lane, addresses)
    if piece is None:
        return None
    access.check(c, piece)
    access.tally(c, [piece])
    return piece.target.load(piece.selectors(_WORD, 1)[0], _WORD).view(np.uint8).reshape(-1, _WORD)


def _mark_unwritten(c: Cohort, access: Access, lane: int, addresses: Array) -> bool:
    """Mark the destination as never written. The result is whether the whole destination exists."""
    piece = _whole(c, access, lane, addresses)
    if piece is None:
        return False
    written = piece.target.view(_WORD)[1]
    if written is not None:
        written[piece.selectors(_WORD, 1)[0]] = 0
    return True


def arrive_behind_copies(c: Cohort, instr: Instr, lanes: Array, offsets: Array) -> None:
    """Let ``lanes`` arrive at the mbarriers at ``offsets`` when their earlier `cp.async` copies are complete."""
    transfers = _transfers(c.batch)
    for lane, offset in zip(lanes.tolist(), offsets.tolist(), strict=True):
        thread = int(c.threads[lane])
        place = (c.depth, c.function)
        for access, addresses, data in memory_ops.taken_copies(c.batch, thread):
            transfers.add(Transfer(thread, place, access, addresses, data, barrier=offset))
        access = Access(instr, "shared", 8, 1, c.batch.image.options, reads=False, writes=False)
        nothing = np.zeros((0, 8), np.uint8)
        transfers.add(Transfer(thread, place, access, np.zeros(0, np.int64), nothing, barrier=offset, arrivals=1))


# --- delivery --------------------------------------------------------------------------------------------------------


def deliver_at(batch: Batch, offsets: Array) -> None:
    """Deliver the copies that complete at the mbarriers at ``offsets`` of the shared memory of the batch."""
    if batch.transfers is None:
        return
    pending = _transfers(batch).at_barrier
    if not pending:
        return
    for offset in offsets.tolist():
        for transfer in pending.pop(offset, ()):
            _store(batch, transfer)
            data = batch.shared.view(8)[0]
            state = slice(offset >> 3, (offset >> 3) + 1)
            change = update_of(np.array([transfer.arrivals]), -transfer.nbytes).view(np.uint64)
            data[state] = updated(data[state], change)


def finish(batch: Batch) -> None:
    """Deliver the bulk groups that were not waited for, at the end of the kernel."""
    if batch.transfers is not None:
        _deliver_groups(batch, np.full(batch.threads, np.iinfo(np.int64).max))


def _deliver_groups(batch: Batch, due: Array) -> None:
    """Deliver the bulk groups of each thread with a number below ``due``."""
    transfers = _transfers(batch)
    ready = [transfer.group < due[transfer.thread] for transfer in transfers.in_groups]
    due_transfers = [transfer for transfer, is_ready in zip(transfers.in_groups, ready, strict=True) if is_ready]
    transfers.in_groups = [
        transfer for transfer, is_ready in zip(transfers.in_groups, ready, strict=True) if not is_ready
    ]
    for transfer in due_transfers:
        _store(batch, transfer)


def _store(batch: Batch, transfer: Transfer) -> None:
    from .cohort import Cohort

    depth, function = transfer.place
    warp = int(np.searchsorted(batch.warp_start, transfer.thread, side="right")) - 1
    mask = np.array([1 << (transfer.thread - int(batch.warp_start[warp]))], np.uint32)
    c = Cohort(batch, np.zeros(1, np.int64), mask, np.array([warp]), depth, function)
    access = transfer.access
    if transfer.addresses.size:
        piece = _whole(c, access, 0, transfer.addresses)
        assert piece is not None, "the whole destination was there when the copy was issued"
        memory_ops.store_piece(c, access, piece, np.ascontiguousarray(transfer.data).view(f"u{access.width}"))
        access.tally(c, [piece])
    batch.order.fence(c.threads, c.blocks, True)
    batch.order.strong(c.threads, c.blocks, reads=False, writes=True)
