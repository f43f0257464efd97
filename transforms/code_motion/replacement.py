"""Replaces evaluations of an expression by reads of a temporary.

A class is *present* at a point if its temporary holds the value of its expression there. Guarantees: after
`replace_occurrences` a class is present after each of its occurrences, and remains so until its value changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...analysis.manager import Facts
from ...ptx import Block, Instr, Kernel, Reg, ScalarType, decode
from ..cleanup.copy_propagation import CopyPropagation
from ..cleanup.dead_code import DeadCodeElimination
from ..remarks import Remarks
from .expressions import ExpressionClass, Transfer

__all__ = ["copy", "end_round", "evaluate_into", "move_mnemonic", "occurrences_of", "replace_occurrences"]


def move_mnemonic(scalar: ScalarType) -> str:
    """The ``mov`` that copies a register of this type with all its bits."""
    if scalar.kind == "p":
        return "mov.pred"
    if scalar.is_float and scalar.lanes == 1 and scalar.bits in (32, 64):
        return f"mov.{scalar.name}"
    return f"mov.b{scalar.bits}"


def copy(target: Reg, source: Reg, like: Instr) -> Instr:
    """``mov target, source``, at the source position of ``like``."""
    return Instr(decode(move_mnemonic(target.type), 2), (target, source), None, like.loc)


def evaluate_into(target: Reg, occurrence: Instr) -> Instr:
    """A copy of ``occurrence`` with result ``target`` and without a guard."""
    return Instr(occurrence.form, (target, *occurrence.operands[1:]), None, occurrence.loc, occurrence.pos)


def replace_occurrences(
    kernel: Kernel,
    block: Block,
    present: int,
    number_of: Mapping[Instr, int],
    temporaries: Mapping[int, Reg],
    transfer: Transfer,
    inserted: Mapping[Instr, int] | None = None,
) -> None:
    """Rewrite the occurrences in ``block``. ``number_of`` maps an occurrence to the number of its class.

    ``present`` is the set of classes whose temporary holds the value at the start of the block. An occurrence becomes a
    copy of its temporary; if the class is not present, the temporary is evaluated directly before it. ``inserted``: by
    evaluation that is already inserted in the block the number of its class.
    """
    if not any(instr in number_of for instr in block.instrs):
        return
    rewritten: list[Instr] = []
    for instr in block.instrs:
        number = number_of.get(instr)
        if number is None:
            rewritten.append(instr)
            if inserted is not None and instr in inserted:
                present |= 1 << inserted[instr]
                continue
        else:
            temporary = temporaries[number]
            if not present >> number & 1:
                rewritten.append(evaluate_into(temporary, instr))
                present |= 1 << number
            result = instr.operands[0]
            assert isinstance(result, Reg)
            rewritten.append(copy(result, temporary, instr))
        if present and not instr.is_directive:
            present &= ~transfer.kill(instr)
    kernel.set_instrs(block, rewritten)


def occurrences_of(classes: Sequence[ExpressionClass], numbers: Iterable[int]) -> dict[Instr, int]:
    """By occurrence: the number of its class. Only the classes ``numbers`` are included."""
    return {occurrence.instr: number for number in numbers for occurrence in classes[number].occurrences}


def end_round(kernel: Kernel, facts: Facts, remarks: Remarks, name: str, moved: int, *, by_value: bool) -> None:
    """Count the classes that a round of the pass ``name`` moved, and remove its copies and dead code.

    The next round should see the temporaries themselves: it treats a copy as a new definition of the value.
    """
    remarks.count(kernel, name, "moved by value" if by_value else "moved lexically", moved)
    CopyPropagation().run(kernel, facts, remarks)
    DeadCodeElimination().run(kernel, facts, remarks)
