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
from .operands import Mem, Operand, Reg, Vec, registers
from .types import ScalarType

__all__ = ["KINDS", "KnownOperands", "known_operands"]

_DIGITS = "0123456789"

#: The kinds by their numbers, and the other way round.
KINDS: list[Kind] = []
_KIND_NUMBERS: dict[Kind, int] = {}
#: Of registers of one lane, by the name of their type; of addresses, by the number of their base; of brace lists, by
#: those of their elements.
_REGISTER_NUMBERS: dict[str, int] = {}
_ADDRESS_NUMBERS: dict[int, int] = {}
_VECTOR_NUMBERS: dict[tuple[int | None, ...], int] = {}


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

    def know_made(self, made: tuple[Reg, ...]) -> None:
        """Take note of ``made``, the registers that the parser made of a range that is declared now. They are numbered
        from 0 and differ in nothing else, so all of them are right if the last one is, and there is no need to look
        at each. No two of them have the same name."""
        last = made[-1]
        if last in self:
            return  # noted by an earlier check; at worst the others are looked at when they are asked for
        names = [reg.text for reg in made]
        self.has_doubles |= not self.names.isdisjoint(names)
        number = self[last]
        if number is not None:
            self.names.update(names)
            self.update(dict.fromkeys(made, number))

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

    # --- operands ------------------------------------------------------------------------------------------------

    def __missing__(self, operand: Operand) -> int | None:
        if type(operand) is Reg:
            number = self._register(operand)
        elif type(operand) is Mem and not operand.rest:
            number = self._address(operand)
        elif type(operand) is Vec:
            number = self._brace_list(operand)
        elif None in map(self.__getitem__, registers(operand)):
            return None
        else:
            number = _number(kind_of(operand))
        if number is not None:
            self[operand] = number
        return number

    def _register(self, reg: Reg) -> int | None:
        name = reg.text
        if not self._is_of_one_range(reg, name) and (reg.type, reg.lanes) not in self.declared_as(name):
            return None
        if name in self.names:
            self.has_doubles = True
        self.names.add(name)
        number = _REGISTER_NUMBERS.get(reg.type.name) if reg.lanes == 1 else _number(kind_of(reg))
        if number is None:
            number = _REGISTER_NUMBERS[reg.type.name] = _number(kind_of(reg))
        return number

    def _is_of_one_range(self, reg: Reg, name: str) -> bool:
        """Whether ``reg`` is declared as nearly all are: its prefix is that of one range, which it is a number of."""
        prefix = name.rstrip(_DIGITS)
        ranges = self.ranges.get(prefix)
        if ranges is None or len(ranges) != 1:
            return False
        scalar, lanes, count = ranges[0]
        digits = name[len(prefix) :]
        return (
            scalar is reg.type
            and lanes == reg.lanes
            and 0 < len(digits) < 10
            and digits[0] != "0"
            and int(digits) < count
        )

    def _address(self, operand: Mem) -> int | None:
        """That of an address without further parts, which depends on the kind of its base only."""
        base = self[operand.base]
        if base is None:
            return None
        number = _ADDRESS_NUMBERS.get(base)
        if number is None:
            number = _ADDRESS_NUMBERS[base] = _number(kind_of(operand))
        return number

    def _brace_list(self, operand: Vec) -> int | None:
        """That of a brace list, which depends on the kinds of its elements only."""
        elements = tuple([self[element] for element in operand.elements])
        if None in elements:
            return None
        number = _VECTOR_NUMBERS.get(elements)
        if number is None:
            number = _VECTOR_NUMBERS[elements] = _number(kind_of(operand))
        return number

    def first_undeclared(self, operand: Operand) -> Reg:
        """The first register of ``operand`` that is not declared as it is; there must be one."""
        return next(reg for reg in registers(operand) if self[reg] is None)


_KNOWN: WeakKeyDictionary[Kernel, KnownOperands] = WeakKeyDictionary()


def known_operands(kernel: Kernel) -> KnownOperands:
    """What earlier checks of ``kernel`` have found and still holds; its declarations are still to be named."""
    known = _KNOWN.get(kernel)
    if known is None or not known.holds_for(kernel):
        known = _KNOWN[kernel] = KnownOperands(kernel)
    known.forget_declarations()
    return known
