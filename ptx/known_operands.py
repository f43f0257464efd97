"""What the verifier knows of a function's operands: the number of each one's kind, where it is right.

Computes: for an operand that is asked for the first time, whether its registers are declared as they are, and its kind
(see `operand_rules`) as a number that stands for equal kinds in the whole process.
Requires: the function's declarations, by `KnownOperands.declare`, before its first instruction; those of a nested scope
when they are met. Guarantees: what is remembered of a function holds as long as its declarations are the same.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from .ir import Guard, Kernel
from .operand_rules import Kind, kind_of
from .operands import Operand, Reg, registers
from .types import ScalarType

__all__ = ["KINDS", "KnownOperands", "known_operands"]

_DIGITS = "0123456789"

#: The kinds by their numbers, and the other way round.
KINDS: list[Kind] = []
_KIND_NUMBERS: dict[Kind, int] = {}


def _number(kind: Kind) -> int:
    number = _KIND_NUMBERS.get(kind)
    if number is None:
        number = _KIND_NUMBERS[kind] = len(KINDS)
        KINDS.append(kind)
    return number


class KnownOperands(dict[Operand, "int | None"]):
    """The operands of a function that have been found right, each with its kind's number; any other one is looked at
    when it is asked for. `None`, which is not remembered, stands for one with a register that is not declared so.

    Operands are immutable, and ranges of registers only grow.
    """

    __slots__ = ("declarations", "guards", "has_doubles", "has_scopes", "names", "ranges", "singles")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.declarations = list(kernel.declarations)
        self.has_scopes = kernel.has_scopes
        #: The guards that have been found right.
        self.guards: set[Guard | None] = {None}
        #: The names of the registers met so far, and whether two of them had the same.
        self.names: set[str] = set()
        self.has_doubles = False
        #: Type and lanes of the registers declared by name, and by the prefix of a range these and its count.
        self.singles: dict[str, list[tuple[ScalarType, int]]] = {}
        self.ranges: dict[str, list[tuple[ScalarType, int, int]]] = {}

    def holds_for(self, kernel: Kernel) -> bool:
        """Whether the declarations of ``kernel`` are still those that all of this was found with, or more."""
        known, now = self.declarations, kernel.declarations
        return (
            len(now) >= len(known)
            and self.has_scopes == kernel.has_scopes
            and all(old is new for old, new in zip(known, now, strict=False))
        )

    # --- declarations --------------------------------------------------------------------------------------------

    def declare(self, name: str, scalar: ScalarType, lanes: int, count: int | None = None) -> None:
        """Take note that register ``name``, or the range ``name<count>``, is declared."""
        if count is None:
            self.singles.setdefault(name, []).append((scalar, lanes))
        else:
            self.ranges.setdefault(name, []).append((scalar, lanes, count))

    def forget_declarations(self) -> None:
        """Start again with `declare`, as every check of the function does."""
        self.singles.clear()
        self.ranges.clear()

    def range_of(self, name: str) -> list[tuple[ScalarType, int]]:
        """Type and lanes of the ranges that ``name`` belongs to."""
        found: list[tuple[ScalarType, int]] = []
        for split in range(len(name.rstrip(_DIGITS)), len(name)):
            number = name[split:]
            # A number of many digits may be too long to convert, and no range is that long.
            if (number[0] == "0" and len(number) > 1) or len(number) > 10:
                continue
            for scalar, lanes, count in self.ranges.get(name[:split], ()):
                if int(number) < count:
                    found.append((scalar, lanes))
        return found

    def declared_as(self, name: str) -> list[tuple[ScalarType, int]]:
        """Type and lanes that register ``name`` is declared with; several where scopes hide names."""
        return [*self.singles.get(name, ()), *self.range_of(name)]

    def _is_declared(self, reg: Reg) -> bool:
        name = reg.text
        prefix = name.rstrip(_DIGITS)
        ranges = self.ranges.get(prefix)
        if ranges is not None and len(ranges) == 1 and 0 < len(name) - len(prefix) < 10:
            # The usual case in short: a number of the one range of that name.
            scalar, lanes, count = ranges[0]
            digits = name[len(prefix) :]
            if scalar is reg.type and lanes == reg.lanes and digits[0] != "0" and int(digits) < count:
                return True
        return (reg.type, reg.lanes) in self.declared_as(name)

    # --- operands ------------------------------------------------------------------------------------------------

    def __missing__(self, operand: Operand) -> int | None:
        if type(operand) is Reg:
            if not self._is_declared(operand):
                return None
            names = self.names
            if operand.text in names:
                self.has_doubles = True
            names.add(operand.text)
            number = _register_number(operand)
        else:
            for reg in registers(operand):
                if self[reg] is None:
                    return None
            number = _number(kind_of(operand))
        self[operand] = number
        return number

    def first_undeclared(self, operand: Operand) -> Reg:
        """The first register of ``operand`` that is not declared as it is; there must be one."""
        return next(reg for reg in registers(operand) if self[reg] is None)


#: The number of the kind of a register of one lane, by the name of its type.
_REGISTER_NUMBERS: dict[str, int] = {}


def _register_number(reg: Reg) -> int:
    if reg.lanes != 1:
        return _number(kind_of(reg))
    name = reg.type.name
    number = _REGISTER_NUMBERS.get(name)
    if number is None:
        number = _REGISTER_NUMBERS[name] = _number(kind_of(reg))
    return number


_KNOWN: WeakKeyDictionary[Kernel, KnownOperands] = WeakKeyDictionary()


def known_operands(kernel: Kernel) -> KnownOperands:
    """What earlier checks of ``kernel`` have found and still holds; its declarations are still to be named."""
    known = _KNOWN.get(kernel)
    if known is None or not known.holds_for(kernel):
        known = _KNOWN[kernel] = KnownOperands(kernel)
    known.forget_declarations()
    return known
