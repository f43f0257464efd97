"""The bits of the values of one kernel: which are the same always and everywhere, which may vary where they are read.

Computes: for an instruction whose operation `varying_bits` knows, the bits of its result from those of its operands;
for a value, the bits that have one known value whatever runs, found by looking a few definitions back.

Requires: the SSA view; ``seen(value, block)``, the varying bits of a value where it is read in a block, as the solver
of `divergence` has them so far. Guarantees: what is known does not depend on ``seen``, so it is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ptx import Imm, Instr, Not, Operand, Pair, Reg, Special, Sym
from ...ptx.operations import Operation
from ...ptx.types import is_integer_literal, literal_value
from ..values.ssa import Ssa
from .sources import Sources, operand_widths
from .varying_bits import OPERATIONS, Bits, constant

__all__ = ["ValueBits"]

#: How far back the bits of an operand are looked up, and through how many arguments of a φ.
_MOST_DEPTH = 5
_MOST_ARGUMENTS = 4


#: The bits of a value that is the same in all lanes, of which no more is known.
_NOTHING = Bits(0)


def _unasked(value: int, block: int) -> int:
    raise AssertionError("the bits of values are asked for where they are read after the solution")


class ValueBits:
    """Bits of the values of ``ssa``."""

    def __init__(self, ssa: Ssa, sources: Sources, seen: Callable[[int, int], int]) -> None:
        self.ssa = ssa
        self._sources = sources
        self._seen = seen
        self._known: dict[int, Bits] = {}
        #: By spelling and width.
        self._constants: dict[tuple[str, int], Bits] = {}

    def settle(self) -> None:
        """Ask ``seen`` no more: from now on only `known` and `mask` are called. The solver and its bits would refer to
        each other for ever, and wait for the collector."""
        self._seen = _unasked

    def mask(self, value: int) -> int:
        """All bits that the register of ``value`` has."""
        reg = self.ssa.reg[value]
        return (1 << reg.type.bits * reg.lanes) - 1

    def precise(self, instr: Instr, block: int, depth: int = _MOST_DEPTH + 1) -> Bits | None:
        """The bits of the result of ``instr`` in ``block``, or ``None`` where nothing better is known than all or none.

        With ``block`` = -1 nothing varies, and only the known bits count.
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
            bits = self._operand(instr, operand, width, block, depth)
            if bits is None:
                return None
            operands.append(bits)
        return operation(form, operands)

    def _operand(self, instr: Instr, operand: Operand, width: int, block: int, depth: int) -> Bits | None:
        if isinstance(operand, Reg):
            # A conversion reads the lower part of a wider register.
            if operand.lanes != 1 or not 0 < width <= operand.type.bits:
                return None
            value = self.ssa.read(instr, operand)
            known = self.known(value, depth - 1)
            varying = self._seen(value, block) if block >= 0 else 0
            return Bits(varying & ~(known.zero | known.one), known.zero, known.one)
        if isinstance(operand, Imm):
            return self._literal(operand.text, width)
        if isinstance(operand, Special):
            bits = self._sources.special(operand)
            return bits if block >= 0 else Bits(0, bits.zero, bits.one)
        if isinstance(operand, Not):
            bits = self._operand(instr, operand.operand, width, block, depth)
            return Bits(bits.varying, bits.one, bits.zero) if bits is not None else None
        return Bits(0) if isinstance(operand, Sym) else None

    def _literal(self, text: str, width: int) -> Bits:
        found = self._constants.get((text, width))
        if found is None:
            is_integer = width > 0 and is_integer_literal(text)
            found = constant(int(literal_value(text)), width) if is_integer else _NOTHING
            self._constants[text, width] = found
        return found

    def known(self, value: int, depth: int = _MOST_DEPTH) -> Bits:
        """The bits of a value that are the same always and everywhere."""
        known = self._known.get(value)
        if known is not None:
            return known
        found = self._look_up(value, depth) if depth > 0 else _NOTHING
        if depth == _MOST_DEPTH:
            self._known[value] = found
        return found

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
        bits = self.precise(instr, -1, depth)
        return Bits(0, bits.zero, bits.one) if bits is not None else _NOTHING
