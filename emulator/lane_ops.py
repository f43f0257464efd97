"""Arithmetic steps: the lane function of a form, connected to its operands and to the carry flag.

Requires: `semantics.resolve`, which gives the lane functions. Guarantees: a guarded instruction changes only the lanes
for which its guard holds. This module also computes which register keys an instruction reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.ir import Kernel
from ..ptx.notation import Effect, OperandSpec
from ..ptx.operands import Operand, Pair, Special, Vec
from . import semantics as table
from .liveness import StepFacts
from .registers import Binder, Getter, Refused, Registers, Setter
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["bind", "carry", "defs", "facts", "is_warp_operation", "uses", "with_shadows"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"


def carry(registers: Registers, kernel: Kernel) -> int:
    """The key of the hidden carry flag in ``kernel``."""
    return registers.carry(kernel)


def is_warp_operation(instr: Instr) -> bool:
    """Whether the instruction runs only in lanes for which its guard holds.

    Its writes are then certain: they need not keep the old value.
    """
    return semantics(instr).startswith(("sync_", "matrix_")) and semantics(instr) != "sync_fence"


def defs(registers: Registers, instr: Instr) -> list[int]:
    """Keys that ``instr`` writes."""
    return [key for operand in instr.dsts for key in registers.keys(operand)]


def uses(registers: Registers, instr: Instr) -> list[int]:
    """Keys that ``instr`` reads, its guard's among them."""
    form = instr.form
    start = 0 if form.inout else form.dst_count
    keys = [key for operand in instr.operands[start:] for key in registers.keys(operand)]
    # An address is never a destination of the row, also if memory is written there, as with `[d]` of cp.async.
    if instr.guard is not None:
        keys += registers.keys(instr.guard.reg)
    return keys


def with_shadows(registers: Registers, keys: list[int]) -> list[int]:
    """``keys`` and their shadows: the flags that state whether each register has been written."""
    shadows = registers.shadows
    return keys + [shadows[key] for key in keys if key in shadows] if shadows else keys


def facts(registers: Registers, instr: Instr, kernel: Kernel, *, guarded: bool) -> StepFacts:
    """The registers that ``instr`` reads and writes."""
    read = with_shadows(registers, uses(registers, instr))
    written = with_shadows(registers, defs(registers, instr))
    if instr.form.effects & Effect.CARRY_IN:
        read.append(carry(registers, kernel))
    if instr.form.effects & Effect.CARRY_OUT:
        written.append(carry(registers, kernel))
    return StepFacts(read, [], written) if guarded else StepFacts(read, written)


def pair_specs(instr: Instr) -> list[tuple[Operand, OperandSpec]]:
    """The operands with their specifications; a pair becomes two of them."""
    specs = instr.form.specs
    if len(instr.operands) > len(specs):
        raise Refused("too many operands")
    specified: list[tuple[Operand, OperandSpec]] = []
    for operand, spec in zip(instr.operands, specs, strict=False):
        if spec.pair is not None:
            if isinstance(operand, Pair):
                specified += [(operand.first, spec), (operand.second, spec.pair)]
            else:
                specified.append((operand, spec))
        else:
            specified.append((operand, spec))
    return specified


def bind(binder: Binder, instr: Instr) -> Step:
    """The step of an arithmetic instruction."""
    form = instr.form
    if semantics(instr) == "move_vector":
        return _vector_move(binder, instr)
    function = table.resolve(form)
    if function is None:
        raise Refused("")
    reads: list[Getter] = []
    writes: list[Setter] = []
    for operand, spec in pair_specs(instr):
        scalar = form.operand_type(spec)
        if spec.role == "def":
            writes.append(binder.destination(operand, scalar))
        elif spec.type == "vec" and isinstance(operand, Vec):
            reads += [binder.source(element, None) for element in operand.elements]
        else:
            reads.append(binder.source(operand, scalar))
    has_pair = bool(form.specs) and form.specs[0].pair is not None
    if has_pair and len(writes) == 1:
        writes.append(lambda c, value, guard: None)
    if function.writes_carry:
        writes.append(binder.put(carry(binder.registers, binder.kernel)))
    guard = binder.guard(instr)
    if function.reads_carry:
        return _with_carry(function, reads, writes, guard, carry(binder.registers, binder.kernel))
    if len(writes) == 1:
        return _one_result(function, reads, writes[0], guard)

    def step(c: Cohort) -> None:
        results = function([read(c) for read in reads])
        active = None if guard is None else guard(c)
        for write, result in zip(writes, results, strict=False):
            write(c, result, active)

    return step


def _vector_move(binder: Binder, instr: Instr) -> Step:
    """The step of ``mov.v2`` and ``mov.v4``. The source is a vector register, a list, or a whole special register."""
    form = instr.form
    target, source = instr.operands
    targets = binder.elements(target)
    if isinstance(source, Special):
        sources: list[Operand] = [Special(f"{source.text}.{letter}", source.type) for letter in "xyzw"]
    else:
        sources = binder.elements(source)
    if not len(targets) == len(sources) == form.lanes:
        raise Refused(f"{len(sources)} elements for {len(targets)} registers")
    reads = [binder.source(element, form.type) for element in sources]
    writes = [binder.destination(element, form.type) for element in targets]
    guard = binder.guard(instr)

    def step(c: Cohort) -> None:
        values = [read(c) for read in reads]
        active = None if guard is None else guard(c)
        for write, value in zip(writes, values, strict=True):
            write(c, value, active)

    return step


def _one_result(function: table.LaneFunction, reads: list[Getter], write: Setter, guard: Getter | None) -> Step:
    if guard is not None:

        def guarded(c: Cohort) -> None:
            write(c, function([read(c) for read in reads])[0], guard(c))

        return guarded
    if len(reads) == 2:
        first, second = reads

        def binary(c: Cohort) -> None:
            write(c, function((first(c), second(c)))[0], None)

        return binary

    def step(c: Cohort) -> None:
        write(c, function([read(c) for read in reads])[0], None)

    return step


def _with_carry(
    function: table.LaneFunction, reads: list[Getter], writes: list[Setter], guard: Getter | None, key: int
) -> Step:
    def step(c: Cohort) -> None:
        flag = c.env.get(key, _CLEAR)
        results = function([read(c) for read in reads], flag)
        active = None if guard is None else guard(c)
        for write, result in zip(writes, results, strict=False):
            write(c, result, active)

    return step


_CLEAR = np.zeros(1, bool)
