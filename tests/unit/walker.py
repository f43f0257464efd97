"""A walk through a kernel with given branch decisions: an oracle for code motion that uses no analysis.

Registers hold integers modulo 2^32, and memory is a dictionary. A guarded branch takes the next decision, whatever its
predicate holds. With the same decisions, two versions of a kernel must store the same values. The evaluations on the
walk can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxmotion.ptx import Imm, Instr, Kernel, Label, Mem, Operand, Reg

MASK = 0xFFFF_FFFF


class Endless(Exception):
    """The kernel has a cycle without a conditional branch."""


@dataclass
class Walk:
    """The stores in order, and how often each opcode ran. ``left`` says whether the kernel ended."""

    stores: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    ran: Counter[str] = field(default_factory=Counter[str])
    left: bool = False
    #: The blocks that were entered, and the instructions with the value that each wrote.
    steps: list[int | tuple[Instr, int | None]] = field(default_factory=list["int | tuple[Instr, int | None]"])


def walk(kernel: Kernel, decisions: Sequence[bool], registers: dict[str, int], memory: dict[int, int]) -> Walk:
    """Run ``kernel`` until it ends or no decision is left."""
    state = dict(registers)
    memory = dict(memory)
    result = Walk()
    starts = {block.label: number for number, block in enumerate(kernel.blocks) if block.label is not None}
    pending = list(decisions)
    number = undecided = 0
    while number < len(kernel.blocks):
        target: int | None = None
        result.steps.append(number)
        undecided += 1
        if undecided > 500:
            raise Endless
        for instr in kernel.blocks[number].instrs:
            if instr.is_directive:
                continue
            base = instr.form.op.base
            if base in ("ret", "exit", "bra"):
                if instr.guard is not None:
                    undecided = 0
                    if not pending:
                        return result
                    if not pending.pop(0):
                        continue
                if base != "bra":
                    result.left = True
                    return result
                label = instr.operands[0]
                assert isinstance(label, Label)
                target = starts[label]
                break
            result.ran[instr.form.text] += 1
            result.steps.append((instr, _execute(instr, state, memory, result)))
        number = number + 1 if target is None else target
    return result


def _value(operand: Operand, state: dict[str, int]) -> int:
    if isinstance(operand, Imm):
        return int(operand.text) & MASK
    assert isinstance(operand, Reg), operand
    return state.get(operand.name, 0xDEAD)


def _execute(instr: Instr, state: dict[str, int], memory: dict[int, int], result: Walk) -> int | None:
    """The value that the instruction writes to its register."""
    base = instr.form.op.base
    if base == "st":
        address, source = instr.operands
        assert isinstance(address, Mem)
        at = _value(address.base, state) + address.offset
        memory[at] = _value(source, state)
        result.stores.append((at, memory[at]))
        return None
    target = instr.operands[0]
    assert isinstance(target, Reg)
    if base == "ld":
        address = instr.operands[1]
        assert isinstance(address, Mem)
        at = _value(address.base, state) + address.offset
        value = memory.get(at, at * 2654435761 & MASK)
    else:
        sources = [_value(operand, state) for operand in instr.operands[1:]]
        value = {
            "mov": lambda: sources[0],
            "add": lambda: sources[0] + sources[1],
            "mul": lambda: sources[0] * sources[1],
            "setp": lambda: 0,
        }[base]()
    state[target.name] = value & MASK
    return state[target.name]
