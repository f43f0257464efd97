"""The bits of the values of one kernel: which are constant, and which may vary between lanes where they are read.

Computes: for an instruction whose operation is in `varying_bits`, the bits of its result from the bits of its operands;
for a value, the bits that are constant in every execution, from a few definitions before it.

Requires: the SSA view. The varying bits of what an instruction reads are an argument. Guarantees: the known bits do not
depend on them, so they are memoized.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ptx import Imm, Instr, Not, Operand, Pair, Reg, Special, Sym
from ...ptx.operations import Operation
from ...ptx.types import is_integer_literal, literal_value
from ..values.ssa import Ssa
from .sources import Sources, operand_widths
from .varying_bits import OPERATIONS, Bits, constant

__all__ = ["ValueBits"]

#: Limits for known bits: the length of a chain of definitions, and the number of arguments of a φ.
_MOST_DEPTH = 5
_MOST_ARGUMENTS = 4


#: The bits of a uniform value without known bits.
_NOTHING = Bits(0)


class ValueBits:
    """Bits of the values of ``ssa``."""

    def __init__(self, ssa: Ssa, sources: Sources) -> None:
        self.ssa = ssa
        self._sources = sources
        #: By SSA value: the result of `known`.
        self._known: dict[int, Bits] = {}
        #: By (text of the literal, width in bits): its bits.
        self._constants: dict[tuple[str, int], Bits] = {}

    def mask(self, value: int) -> int:
        """All bits of the register of ``value``."""
        reg = self.ssa.reg[value]
        return (1 << reg.type.bits * reg.lanes) - 1

    def precise(self, instr: Instr, varying: Mapping[int, int] | None, depth: int = _MOST_DEPTH + 1) -> Bits | None:
        """The bits of the result of ``instr``; ``None`` if there is no rule for single bits.

        ``varying`` has the varying bits of each value that the instruction reads. With ``None`` no bit varies, and only
        the known bits matter.
        """
        form = instr.form
        operation = OPERATIONS.get(form.operation)
        if operation is None:
            return None
        result = instr.operands[0]
        if isinstance(result, Pair):
            result = result.first
        is_predicate = form.operation is Operation.COMPARISON
        if not isinstance(result, Reg) or result.lanes != 1:
            return None
        widths = operand_widths(form)
        if len(widths) < len(instr.operands) or result.type.bits != (1 if is_predicate else widths[0]):
            return None
        operands: list[Bits] = []
        for operand, width in zip(instr.operands[1:], widths[1:], strict=False):
            bits = self._operand(instr, operand, width, varying, depth)
            if bits is None:
                return None
            operands.append(bits)
        return operation(form, operands)

    def _operand(
        self, instr: Instr, operand: Operand, width: int, varying: Mapping[int, int] | None, depth: int
    ) -> Bits | None:
        if isinstance(operand, Reg):
            # A conversion may read the lower part of a wider register.
            if operand.lanes != 1 or not 0 < width <= operand.type.bits:
                return None
            value = self.ssa.read(instr, operand)
            constant_bits = self.known(value, depth - 1)
            bits = 0 if varying is None else varying[value]
            return Bits(bits & ~(constant_bits.zero | constant_bits.one), constant_bits.zero, constant_bits.one)
        if isinstance(operand, Imm):
            return self._literal(operand.text, width)
        if isinstance(operand, Special):
            bits = self._sources.special(operand)
            return Bits(0, bits.zero, bits.one) if varying is None else bits
        if isinstance(operand, Not):
            bits = self._operand(instr, operand.operand, width, varying, depth)
            return Bits(bits.varying, bits.one, bits.zero) if bits is not None else None
        return Bits(0) if isinstance(operand, Sym) else None

    def _literal(self, text: str, width: int) -> Bits:
        bits = self._constants.get((text, width))
        if bits is None:
            is_integer = width > 0 and is_integer_literal(text)
            bits = constant(int(literal_value(text)), width) if is_integer else _NOTHING
            self._constants[text, width] = bits
        return bits

    def known(self, value: int, depth: int = _MOST_DEPTH) -> Bits:
        """The bits of a value that are constant in every execution."""
        cached = self._known.get(value)
        if cached is not None:
            return cached
        bits = self._look_up(value, depth) if depth > 0 else _NOTHING
        if depth == _MOST_DEPTH:
            self._known[value] = bits
        return bits

    def _look_up(self, value: int, depth: int) -> Bits:
        ssa = self.ssa
        instr = ssa.instr[value]
        if instr is None:
            arguments = ssa.phi_args.get(value, ())
            if not 0 < len(arguments) <= _MOST_ARGUMENTS:
                return _NOTHING
            mask = self.mask(value)
            zero = one = mask
            for _, argument in arguments:
                bits = self.known(argument, depth - 1)
                zero &= bits.zero
                one &= bits.one
            return Bits(0, zero, one)
        if value in ssa.old:
            return _NOTHING
        scalar, reg = instr.form.type, ssa.reg[value]
        if reg.lanes != 1:
            return _NOTHING
        if (
            instr.form.operation is Operation.LOAD
            and scalar is not None
            and scalar.kind in "ub"
            and scalar.bits < reg.type.bits
        ):
            return Bits(0, self.mask(value) & ~((1 << scalar.bits) - 1))
        if len(instr.defs()) != 1:
            return _NOTHING
        bits = self.precise(instr, None, depth)
        return Bits(0, bits.zero, bits.one) if bits is not None else _NOTHING
