"""``%r1+4`` and ``%laneid+1`` as source operands: an addition in front of the instruction that reads them.

ptxas takes a register or special register plus a constant wherever an instruction reads an integer, and adds the two
at the width of the register, as tests on its machine code show. The IR has no such operand: the parser computes the sum
into a register of its own, so that no analysis has to know of it.

Requires: all text of the module, so that the new names are not taken anywhere in it. Guarantees: the additions are
executed where the instruction is, without its guard; they have no effect beside their result.
Refuses, with `None`: registers of other widths than 16, 32 and 64 bits, which have no ``add``, and special registers
where the instruction does not read an integer of their width. The instruction is then kept as an opaque one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .decoding import decode
from .instructions import Instr, Loc
from .ir import Kernel, RegisterDeclaration
from .notation import Form
from .operand_parser import OffsetOperand, Scope
from .operand_rules import align
from .operands import Element, Imm, Operand, Reg, Special
from .types import TYPES, ScalarType

__all__ = ["OffsetOperands"]

_WIDTHS = (16, 32, 64)


class OffsetOperands:
    """Makes the additions of one function. ``text`` is that of the module, ``scope`` the outermost of the body."""

    def __init__(self, text: str, kernel: Kernel, scope: Scope) -> None:
        self.kernel = kernel
        self.scope = scope
        self.count = 0
        self.prefix = "%sum"
        while self.prefix in text:
            self.prefix += "_"

    def parse(
        self, form: Form, parts: list[str], read: Callable[[str], Operand], loc: Loc | None, pos: int
    ) -> tuple[tuple[Operand, ...], list[Instr]] | None:
        """The operands of ``parts``, and the instructions to stand in front. `None` where there is an offset that no
        addition can be made of. Raises `OperandError`."""
        operands: list[Operand] = []
        added: list[Instr] = []
        specs = align(form, len(parts)) or ()
        for index, part in enumerate(parts):
            expected = form.operand_type(specs[index]) if index < len(specs) else None
            while True:
                try:
                    operands.append(read(part))
                    break
                except OffsetOperand as operand:
                    replaced = self._replaced(expected, part, operand, added, loc, pos)
                    if replaced is None:
                        return None
                    part = replaced
        return tuple(operands), added

    def _replaced(
        self,
        expected: ScalarType | None,
        part: str,
        operand: OffsetOperand,
        added: list[Instr],
        loc: Loc | None,
        pos: int,
    ) -> str | None:
        """``part`` with a new register in place of ``operand``, where the instruction reads type ``expected``."""
        scalar = _type_of(expected, operand.base)
        pattern = rf"(?<![^\s,{{|]){re.escape(operand.text)}(?![^\s,}}\]|])"
        if scalar is None or re.search(pattern, part) is None:
            return None
        base: Operand = operand.base
        if isinstance(base, Special):
            base = self._new(scalar)
            added.append(Instr(decode(f"mov.{scalar.name}", 2), (base, operand.base), None, loc, pos))
        total = self._new(scalar)
        add = decode(f"add.u{scalar.bits}", 3)
        added.append(Instr(add, (total, base, Imm(operand.offset)), None, loc, pos))
        return re.sub(pattern, total.text, part, count=1)

    def _new(self, scalar: ScalarType) -> Reg:
        reg = Reg(f"{self.prefix}{self.count}", scalar)
        self.count += 1
        self.kernel.declarations.append(RegisterDeclaration(scalar, reg.text))
        self.kernel.names.add(reg.text)
        self.scope.declare({reg.text: reg})
        return reg


def _type_of(expected: ScalarType | None, base: Reg | Element | Special) -> ScalarType | None:
    """The type of the sum; `None` where there is no such addition."""
    if isinstance(base, Special):
        if expected is None or expected.kind not in "bus" or (expected.lanes, expected.bits) != (1, base.type.bits):
            return None
        return TYPES[f"b{base.type.bits}"]
    reg = base if isinstance(base, Reg) else base.reg
    is_one = reg.lanes == 1 or isinstance(base, Element)
    return reg.type if is_one and reg.type.kind in "bus" and reg.type.lanes == 1 and reg.type.bits in _WIDTHS else None
