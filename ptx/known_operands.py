"""The verifier's cache of the operands of a function.

Computes: at the first lookup of an operand, whether its registers are declared with their types, and the number of its
kind (see `operand_rules`). In one process, equal kinds have the same number.
Requires: the caller passes the declarations of the function to `KnownOperands.declare` before its first instruction,
and those of a nested scope where they stand. Guarantees: the entries hold as long as the declarations stay the same.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from .instructions import Guard
from .ir import Kernel
from .operand_rules import Kind, kind_of
from .operands import Mem, Operand, Reg, Vec, registers
from .types import ScalarType

__all__ = ["KINDS", "KnownOperands", "known_operands"]

_DIGITS = "0123456789"

#: KINDS[number] is a kind; _KIND_NUMBERS[kind] is its number.
KINDS: list[Kind] = []
_KIND_NUMBERS: dict[Kind, int] = {}
#: The numbers of the kinds of: registers with one lane, by the name of the type; addresses, by the number of the base;
#: brace lists, by the numbers of the elements.
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
    """known[operand] is the number of the kind of an operand of one function. A missing entry is computed at its
    lookup. The value is `None`, and not stored, if a register of the operand is not declared with its type.

    An entry stays right because operands are immutable and ranges of registers only grow.
    """

    __slots__ = ("declarations", "guards", "has_doubles", "has_scopes", "names", "ranges", "singles")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.declarations = list(kernel.declarations)
        self.has_scopes = kernel.has_scopes
        #: The guards that were checked without an error.
        self.guards: set[Guard | None] = {None}
        #: The names of the registers checked so far, and whether two registers have the same name.
        self.names: set[str] = set()
        self.has_doubles = False
        #: singles[name]: (type, lanes) of each declaration. ranges[prefix]: (type, lanes, count) of each declaration.
        self.singles: dict[str, list[tuple[ScalarType, int]]] = {}
        self.ranges: dict[str, list[tuple[ScalarType, int, int]]] = {}

    def holds_for(self, kernel: Kernel) -> bool:
        """Whether ``kernel`` still has the declarations with which the entries were computed; it may have more."""
        known, now = self.declarations, kernel.declarations
        return (
            len(now) >= len(known)
            and self.has_scopes == kernel.has_scopes
            and all(old is new for old, new in zip(known, now, strict=False))
        )

    # --- declarations --------------------------------------------------------------------------------------------

    def declare(self, name: str, scalar: ScalarType, lanes: int, count: int | None = None) -> None:
        """Add the declaration of register ``name``, or of the range ``name<count>``."""
        if count is None:
            self.singles.setdefault(name, []).append((scalar, lanes))
        else:
            self.ranges.setdefault(name, []).append((scalar, lanes, count))

    def know_made(self, made: tuple[Reg, ...]) -> None:
        """Add the registers ``made`` that the parser created from a range. They differ only in their numbers, which
        count from 0. So only the last one is checked: if it is right, all are. No two of them have the same name."""
        last = made[-1]
        if last in self:
            return  # added by an earlier check; any other one is checked at its lookup
        names = [reg.text for reg in made]
        self.has_doubles |= not self.names.isdisjoint(names)
        number = self[last]
        if number is not None:
            self.names.update(names)
            self.update(dict.fromkeys(made, number))

    def forget_declarations(self) -> None:
        """Remove all declarations. Every check of the function begins with this and adds them again."""
        self.singles.clear()
        self.ranges.clear()

    def range_of(self, name: str) -> list[tuple[ScalarType, int]]:
        """(type, lanes) of each range that has a register ``name``."""
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
        """(type, lanes) of each declaration of register ``name``; nested scopes may have several."""
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
        """Whether ``reg`` belongs to the only range of its prefix. This is the common case."""
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
        """The number of an address without further parts. It depends only on the kind of the base."""
        base = self[operand.base]
        if base is None:
            return None
        number = _ADDRESS_NUMBERS.get(base)
        if number is None:
            number = _ADDRESS_NUMBERS[base] = _number(kind_of(operand))
        return number

    def _brace_list(self, operand: Vec) -> int | None:
        """The number of a brace list. It depends only on the kinds of the elements."""
        elements = tuple([self[element] for element in operand.elements])
        if None in elements:
            return None
        number = _VECTOR_NUMBERS.get(elements)
        if number is None:
            number = _VECTOR_NUMBERS[elements] = _number(kind_of(operand))
        return number

    def first_undeclared(self, operand: Operand) -> Reg:
        """The first register of ``operand`` that is not declared with its type. There must be one."""
        return next(reg for reg in registers(operand) if self[reg] is None)


_KNOWN: WeakKeyDictionary[Kernel, KnownOperands] = WeakKeyDictionary()


def known_operands(kernel: Kernel) -> KnownOperands:
    """The cache of ``kernel``, with all entries that still hold. The caller has to add the declarations again."""
    known = _KNOWN.get(kernel)
    if known is None or not known.holds_for(kernel):
        known = _KNOWN[kernel] = KnownOperands(kernel)
    known.forget_declarations()
    return known
