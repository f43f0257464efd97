"""How a segment ends: branches, tables, returns, exits, traps.

Computes: the next program point of every warp fragment of a cohort. Guarantees: where the lanes of a fragment take
different sides of a branch, the fragment is divided until the immediate post-dominator of the branch (see `schedule`).
`ret` of an entry exits.
Reference: PTX ISA 9.0, §9.7.12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.ir import Kernel
from ..ptx.operands import Args
from ..ptx.types import TYPES
from . import calls, lane_ops, sync_ops
from .liveness import StepFacts
from .registers import Binder, Refused, Registers
from .schedule import RETURN
from .segments import Segment

if TYPE_CHECKING:
    from .batch import Batch
    from .cohort import Cohort
    from .image import Code, Image

__all__ = ["PRED", "Finish", "bind", "carry_key", "facts", "parameter_registers"]

Array: TypeAlias = npt.NDArray[Any]
Finish: TypeAlias = "Callable[[Batch, Cohort], None]"

PRED = TYPES["pred"]


def carry_key(registers: Registers, kernel: Kernel) -> int:
    """The key of the hidden carry flag."""
    return registers.carry(kernel)


def parameter_registers(binder: Binder, kernel: Kernel) -> set[int]:
    """Keys of ``.reg`` parameters of ``kernel``."""
    return {key for keys in calls.register_parameters(binder.registers, kernel, kernel.params) for key in keys}


def facts(registers: Registers, segment: Segment) -> StepFacts:
    """The registers that the end of ``segment`` reads."""
    end = segment.end
    if segment.kind == "ret":
        results = calls.register_parameters(registers, segment.kernel, segment.kernel.results)
        return StepFacts(lane_ops.with_shadows(registers, [key for keys in results for key in keys]), [])
    if end is None:
        return StepFacts([], [])
    keys_read: list[int] = []
    if segment.kind in ("bra", "guard"):
        if end.guard is not None:
            keys_read += registers.keys(end.guard.reg)
    elif segment.kind == "call":
        for operand in end.operands[1:]:
            if isinstance(operand, Args):
                keys_read += [key for part in operand.elements for key in registers.keys(part)]
            else:
                keys_read += registers.keys(operand)
    else:
        start = end.form.dst_count if segment.kind == "bar" else 0
        keys_read += [key for operand in end.operands[start:] for key in registers.keys(operand)]
    return StepFacts(lane_ops.with_shadows(registers, keys_read), [])


def bind(image: Image, code: Code) -> Finish:
    """The function that moves the warp fragments of a cohort to the next program point after the last step of
    ``code``."""
    segment = code.segment
    kind = segment.kind
    if kind in ("bra", "guard"):
        assert segment.end is not None
        if segment.end.guard is None:
            return _goto(segment.targets[0])
        return _branch(image, code)
    if kind == "fall":
        return _goto(segment.targets[0])
    if kind == "brx":
        return _with_check(code, 0, _table(image, code))
    if kind == "ret":
        return _with_checked_results(code, calls.bind_return(image, code))
    if kind == "exit":
        return lambda batch, c: batch.pool.exit(c.ids)
    if kind == "trap":
        return _trap(segment.end)
    if kind == "call":
        return calls.bind_call(image, code)
    if kind == "bar":
        assert segment.end is not None
        return _with_check(code, segment.end.form.dst_count, sync_ops.bind_barrier(image, code))
    raise Refused(kind)


def _goto(target: Segment) -> Finish:
    index = target.index

    def go(batch: Batch, c: Cohort) -> None:
        pool = batch.pool
        pool.point[c.ids] = c.depth * batch.segments + index
        pool.arrive(c.ids)

    return go


def _branch(image: Image, code: Code) -> Finish:
    segment = code.segment
    end = segment.end
    assert end is not None
    predicate = code.function.binder.guard(end)
    assert predicate is not None
    taken_index, other_index = segment.targets[0].index, segment.targets[1].index
    join = segment.join
    number = code.index
    is_counted = end.is_terminator
    is_same = taken_index == other_index
    assert end.guard is not None
    shadow = _unset_check(code, end, code.function.binder.registers.keys(end.guard.reg), "branches on")

    def go(batch: Batch, c: Cohort) -> None:
        pool = batch.pool
        if shadow is not None:
            shadow(c)
        base = c.depth * batch.segments
        flags = predicate(c)
        if is_counted:
            batch.executed[number] += c.ids.size
        if bool(flags.all()):
            pool.point[c.ids] = base + taken_index
        elif is_same or not bool(flags.any()):
            pool.point[c.ids] = base + other_index
        else:
            taken = c.row_masks(flags)
            other = c.masks & ~taken
            mixed = (taken != 0) & (other != 0)
            pool.point[c.ids[other == 0]] = base + taken_index
            pool.point[c.ids[taken == 0]] = base + other_index
            if bool(mixed.any()):
                if is_counted and batch.launch.judge is not None:
                    batch.launch.judge.judge(code, c, flags)
                reconvergence = base + join.index if join is not None else RETURN
                parts = [(base + taken_index, taken[mixed]), (base + other_index, other[mixed])]
                if is_counted:
                    batch.diverged[number] += int(mixed.sum())
                undivided = c.ids[~mixed]
                pool.diverge(c.ids[mixed], parts, reconvergence)
                pool.arrive(undivided)
                return
        pool.arrive(c.ids)

    return go


def _with_checked_results(code: Code, finish: Finish) -> Finish:
    """``finish`` of a return, after a check that results in registers have been written."""
    end, kernel, registers = code.segment.end, code.segment.kernel, code.function.binder.registers
    if end is None or kernel.is_entry:
        return finish
    keys = [key for of_result in calls.register_parameters(registers, kernel, kernel.results) for key in of_result]
    return _after(_unset_check(code, end, keys, "returns"), finish)


def _with_check(code: Code, first: int, finish: Finish) -> Finish:
    """``finish``, after a check that the registers in the operands from ``first`` on have been written."""
    end = code.segment.end
    assert end is not None
    keys = [key for operand in end.operands[first:] for key in code.function.binder.registers.keys(operand)]
    return _after(_unset_check(code, end, keys, "reads"), finish)


def _after(check: Callable[[Cohort], None] | None, finish: Finish) -> Finish:
    """``finish`` after ``check``, if there is a check."""
    if check is None:
        return finish

    def go(batch: Batch, c: Cohort) -> None:
        check(c)
        finish(batch, c)

    return go


def _unset_check(code: Code, end: Instr, keys: list[int], verb: str) -> Callable[[Cohort], None] | None:
    """A check that the registers which ``end`` reads have been written. ``verb`` is for its message."""
    registers = code.function.binder.registers
    watched = [(key, registers.shadows[key]) for key in keys if key in registers.shadows]
    if not watched:
        return None

    def check(c: Cohort) -> None:
        for key, flag in watched:
            is_set = c.env.get(flag)
            if is_set is None or not bool(is_set.all()):
                bad = np.broadcast_to(~is_set if is_set is not None else np.ones(1, bool), (c.n,))
                message = f"{verb} register {registers.names[key]}, which was never written"
                c.batch.report("uninitialised-register", end, c, np.flatnonzero(bad), message)

    return check


def _table(image: Image, code: Code) -> Finish:
    segment = code.segment
    end = segment.end
    assert end is not None
    read = code.function.binder.source(end.operands[0], TYPES["u32"])
    targets = [target.index for target in segment.targets]
    join = segment.join
    number = code.index

    def go(batch: Batch, c: Cohort) -> None:
        pool = batch.pool
        base = c.depth * batch.segments
        index = np.broadcast_to(read(c), (c.n,)).astype(np.int64)
        batch.executed[number] += c.ids.size
        bad = index >= len(targets)
        if bool(bad.any()):
            bad_lanes = np.flatnonzero(bad)
            message = f"index {int(index[bad_lanes[0]])} into a table of {len(targets)} targets"
            batch.report("trap", end, c, bad_lanes, message)
        parts: dict[int, Array] = {}
        values: list[int] = np.unique(index).tolist()
        for value in values:
            masks = c.row_masks(index == value)
            point = base + targets[value]
            parts[point] = parts[point] | masks if point in parts else masks
        targets_of_row = np.zeros(c.ids.size, np.int64)
        for masks in parts.values():
            targets_of_row += masks != 0
        mixed = targets_of_row > 1
        for point, masks in parts.items():
            pool.point[c.ids[(masks != 0) & ~mixed]] = point
        if bool(mixed.any()):
            if batch.launch.judge is not None:
                batch.launch.judge.judge(code, c, index)
            reconvergence = base + join.index if join is not None else RETURN
            batch.diverged[number] += int(mixed.sum())
            undivided = c.ids[~mixed]
            pool.diverge(c.ids[mixed], [(point, masks[mixed]) for point, masks in parts.items()], reconvergence)
            pool.arrive(undivided)
            return
        pool.arrive(c.ids)

    return go


def _trap(end: Instr | None) -> Finish:
    assert end is not None
    instr = end

    def go(batch: Batch, c: Cohort) -> None:
        batch.report("trap", instr, c, np.arange(c.n), "the kernel trapped")

    return go
