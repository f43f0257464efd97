"""Integer values as polynomials, with more operations than `thread_affine`.

Computes: the polynomials of `ThreadForms`, in which the results of some other operations are *derived* atoms, with
their operands: the low bits of a word (``n & 3``), a word shifted right, quotient and remainder of unsigned words by a
constant, and a choice (a φ that is not of a loop, or ``selp``). A mask that clears low bits gives ``x - low bits of
x``.

The value of a derived atom is an integer. Low bits, shifted words, quotients and remainders are the results themselves.
A choice is the integer that is the value of the polynomial of the chosen operand; it is congruent to the result.

Requires: facts of a kernel without nested scopes. Guarantees: as `ThreadForms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx import Imm, Instr, Reg
from ...ptx.operations import Operation
from ...ptx.types import is_integer_literal, literal_value
from ..manager import Facts
from .polynomial import Atom, Poly, constant, variable
from .thread_affine import ThreadForms

__all__ = ["Derived", "LaunchForms"]

#: The most operands of a choice.
_MOST_CHOICES = 4


@dataclass(frozen=True, slots=True)
class Derived:
    """The operation of a derived atom. ``kind``: ``choice``, ``low`` (remainder by ``amount``, a power of two),
    ``right``
    or ``quotient`` (the word divided by ``amount``, rounded to minus infinity), ``remainder`` (by ``amount``).

    The operand is read as a word of ``bits`` bits that is ``signed`` or not. ``low`` is the same for both.
    """

    kind: str
    operands: tuple[Poly, ...]
    bits: int
    amount: int = 0
    signed: bool = False


class LaunchForms(ThreadForms):
    """The polynomials of one kernel. ``derived``: by derived atom its operation."""

    def __init__(self, facts: Facts) -> None:
        self.derived: dict[Atom, Derived] = {}
        self._atoms_of: dict[Derived, Atom] = {}
        super().__init__(facts)

    def operands(self, atom: Atom) -> tuple[Poly, ...]:
        """The operands of a derived atom, with loop variables as polynomials in ``turn``."""
        return tuple(self._resolved(each) for each in self.derived[atom].operands)

    def _choice(self, operands: tuple[Poly, ...], bits: int) -> Poly:
        """One of the operands. Each choice has an atom of its own: others may take another one of the same operands."""
        atom = Atom("derived", f"d{len(self.derived)}")
        self.derived[atom] = Derived("choice", operands, bits)
        return variable(atom)

    def _derive(self, operation: Derived, low: int | None = None, high: int | None = None) -> Poly:
        atom = self._atoms_of.get(operation)
        if atom is None:
            atom = self._atoms_of[operation] = Atom("derived", f"d{len(self.derived)}", low, high)
            self.derived[atom] = operation
        return variable(atom)

    def _phi(self, phi: int, block: int) -> Poly:
        forms = [self._forms.get(value) for _, value in self._arguments(phi)]
        known = [form for form in forms if form is not None]
        if len(known) == len(forms) and 1 < len(set(known)) <= _MOST_CHOICES:
            return self._choice(tuple(dict.fromkeys(known)), self._ssa.reg[phi].type.bits)
        return super()._phi(phi, block)

    def _operation(self, instr: Instr, bits: int) -> Poly | None:
        found = super()._operation(instr, bits)
        scalar = instr.form.type
        if found is not None or scalar is None or scalar.lanes != 1 or scalar.is_float or scalar.bits != bits:
            return found
        sources = instr.operands[1:]
        if instr.form.operation is Operation.SELECTION and len(sources) == 3:
            first, second = (self._operand(instr, each, bits) for each in sources[:2])
            return self._choice((first, second), bits) if first != second else first
        if len(sources) != 2 or not isinstance(sources[0], Reg) or not isinstance(sources[1], Imm):
            return None
        if not is_integer_literal(sources[1].text):
            return None
        operand = self._operand(instr, sources[0], bits)
        return self._by_constant(instr.form.operation, operand, int(literal_value(sources[1].text)), bits, scalar.kind)

    def _by_constant(self, operation: Operation, operand: Poly, number: int, bits: int, kind: str) -> Poly | None:
        """The result of an operation with a constant as its second operand."""
        top = (1 << bits) - 1
        if operation is Operation.AND:
            mask = number & top
            if mask and mask & (mask + 1) == 0:
                return self._low(operand, mask + 1, bits)
            cleared = (~mask & top) + 1
            return operand - self._low(operand, cleared, bits) if mask and cleared & (cleared - 1) == 0 else None
        if operation is Operation.SHIFT_RIGHT and 0 < number < bits:
            signed = kind == "s"
            low, high = (-(1 << (bits - 1 - number)), (1 << (bits - 1 - number)) - 1) if signed else (0, top >> number)
            return self._derive(Derived("right", (operand,), bits, 1 << number, signed), low, high)
        if operation is Operation.QUOTIENT and kind == "u" and number > 0:
            return self._derive(Derived("quotient", (operand,), bits, number), 0, top // number)
        if operation is Operation.REMAINDER and kind == "u" and number > 0:
            return self._derive(Derived("remainder", (operand,), bits, number), 0, number - 1)
        return None

    def _low(self, operand: Poly, modulus: int, bits: int) -> Poly:
        if operand.is_constant:
            return constant(operand.value % modulus)
        return self._derive(Derived("low", (operand,), bits, modulus), 0, modulus - 1)
