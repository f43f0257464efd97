"""Which bytes each access of a kernel to global memory touches in a launch, relative to a pointer parameter.

Computes: for an access whose address is ``pointer + offset`` the range of the offset over all threads and iterations,
as expressions of scalar arguments and of the dimensions of the launch (`launch_ranges`), and what that needs. Accesses
with the same guards and the same address except for a constant are in one range.

Requires: facts of a kernel without nested scopes. Guarantees: in every launch for which the needs hold, all bytes of
the accesses are in the range. Bytes are numbered by integers: if ``pointer + start`` is negative, the range is of no
use, so this is a need as well. Refuses (``None``): addresses that are no sum with one pointer parameter, offsets that
nothing bounds or that are only known to be in 4 GiB, and expressions that are too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, TypeAlias, cast

from ...contract import Expression, Number, Operation
from ...contract.expressions import argument, compare, stack_need
from ...ptx import Instr, Param
from ..fact_marks import for_any_promise
from ..values.polynomial import Poly, TooManyTerms, constant, variable
from ..values.value_numbering import Values
from .alias import Reference
from .launch_ranges import LaunchRanges
from .points_to import is_pointer_parameter
from .spans import Span
from .thread_accesses import Comparison, access_set_with
from .wide_loads import wide_loads

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["AccessRange", "AccessRanges", "are_readable"]

#: The address without its constant, and the guards.
_Group: TypeAlias = "tuple[Poly, tuple[Comparison, ...]]"

#: Limits of a range: the characters of its two ends and of its conditions (`needs`) as text, and the depth of the stack
#: for their evaluation.
_LONGEST = 4000
_DEEPEST = 48
#: The largest literal.
_LARGEST = 1 << 62
#: A range that is wider in every launch says nothing: no buffer contains it.
_WIDEST = 1 << 31


@dataclass(frozen=True, slots=True)
class AccessRange:
    """The bytes from ``start`` up to, not including, ``stop`` relative to parameter number ``pointer``. ``needs`` are
    the conditions of the launch under which that is right. ``factor`` divides the distance of each address from the
    pointer."""

    pointer: int
    start: Expression
    stop: Expression
    needs: tuple[Expression, ...] = ()
    factor: int = 1


@for_any_promise
class AccessRanges:
    """The ranges of one kernel; a fact for `Facts.get`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._launch = LaunchRanges(facts)
        bits = (facts.module.address_size if facts.module is not None else None) or 64
        touched = facts.memory.buffers.reads | facts.memory.buffers.writes
        self._pointers = {
            name: index
            for name, (index, param) in self._launch.params.items()
            if name in touched and is_pointer_parameter(param, bits)
        }
        self._params: list[Param] = [param for _, param in self._launch.params.values()]
        self._is_whole = bits == 64 and facts.kernel.is_entry
        #: The accesses at the same address, except for a constant, and with the same guards: (instruction, constant,
        #: bytes) by (address without its constant, guards). A range is computed for all accesses of a group.
        self._groups: dict[_Group, list[tuple[Instr, int, int]]] = {}
        #: By address without its constant: its groups.
        self._of_base: dict[Poly, list[_Group]] = {}
        #: By instruction its group.
        self._group_of: dict[Instr, _Group] = {}
        #: By group its range; a group that was not asked for is missing.
        self._found: dict[_Group, AccessRange | None] = {}
        #: By (class of values, offset, bytes, block): `at_end`.
        self._at_end: dict[tuple[int, int, int, int], AccessRange | None] = {}
        #: By address without its constant: the pointer and the bounds of the distance of each range of its groups.
        self._bounds: dict[Poly, set[tuple[int, Expression, Expression]]] = {}
        #: By class of values an SSA value of it.
        self._values: dict[int, int] | None = None
        if self._is_whole:
            self._group(facts)

    def of(self, instr: Instr) -> AccessRange | None:
        """The bytes that ``instr`` touches; ``None`` if they are unknown."""
        group = self._group_of.get(instr)
        return None if group is None else self._range_of_group(group)

    def at_end(self, reference: Reference, block: int) -> AccessRange | None:
        """The bytes of ``reference`` over all threads that reach the end of ``block``. Its base must be available
        there.

        ``None`` also if they are more than at the accesses of the kernel to the same addresses, because a comparison
        that bounds the index comes later. Such a range would seldom be inside the buffer.
        """
        key = (reference.base, reference.offset, reference.bytes, block)
        if key not in self._at_end:
            self._at_end[key] = self._find_at_end(reference, block)
        return self._at_end[key]

    def _find_at_end(self, reference: Reference, block: int) -> AccessRange | None:
        if not self._is_whole or reference.space not in ("global", "generic"):
            return None
        address = self.address(reference.base)
        if address is None:
            return None
        first, base = _signed(address.value + reference.offset), address - constant(address.value)
        bounds = self._bounds_of(base)
        if not bounds:
            return None
        found = self.range_of(base, self._launch.guards.at(block), first, first + reference.bytes)
        if found is None:
            return None
        own = (found.pointer, found.start - first, found.stop - (first + reference.bytes))
        return found if own in bounds else None

    def address(self, number: int) -> Poly | None:
        """The polynomial of a class of values of 64 bits; ``None`` if it is unknown."""
        try:
            return self._poly(number, 64)
        except TooManyTerms:
            return None

    def _poly(self, number: int, bits: int) -> Poly | None:
        """The polynomial of a class of values of ``bits`` bits."""
        values: Values = self._facts.values
        forms = self._launch.forms
        if self._values is None:
            self._values = {own: value for value, own in reversed(list(enumerate(values.number)))}
        value = self._values.get(number)
        if value is not None:
            return forms.value(value)
        key = values.key_of(number)
        if key[0] == "affine" and key[1] == bits:
            total = constant(cast("int", key[2]))
            for atom, factor in cast("tuple[tuple[int, int], ...]", key[3]):
                part = self._poly(atom, bits)
                if part is None:
                    return None
                total = total + part * factor
            return total
        if key[0] == "extend" and key[2:4] == (32, bits):
            inner = self._poly(cast("int", key[4]), 32)
            return forms.extended(inner, cast("str", key[1])) if inner is not None and key[1] in ("s", "u") else None
        return None

    def _group(self, facts: Facts) -> None:
        """Find the groups. Their ranges are computed when they are needed, because that takes longer."""
        accesses = access_set_with(facts, self._launch.forms, self._launch.guards).accesses
        for access in accesses:
            group = (access.address - constant(access.address.value), access.guards)
            self._groups.setdefault(group, []).append((access.instr, access.address.value, access.bytes))
        for group, members in self._groups.items():
            self._of_base.setdefault(group[0], []).append(group)
            self._group_of |= dict.fromkeys((instr for instr, _, _ in members), group)

    def _range_of_group(self, group: _Group) -> AccessRange | None:
        """The bytes that all accesses of a group touch."""
        if group not in self._found:
            base, guards = group
            first, last = self._extent(group)
            self._found[group] = self.range_of(base, guards, first, last)
        return self._found[group]

    def _extent(self, group: _Group) -> tuple[int, int]:
        """The least constant of the accesses of a group, and the largest end of one."""
        members = self._groups[group]
        return min(offset for _, offset, _ in members), max(offset + size for _, offset, size in members)

    def _bounds_of(self, base: Poly) -> set[tuple[int, Expression, Expression]]:
        """The pointer and the bounds of the distance of each range of the groups with this address."""
        if base not in self._bounds:
            bounds: set[tuple[int, Expression, Expression]] = set()
            for group in self._of_base.get(base, ()):
                found = self._range_of_group(group)
                if found is not None:
                    first, last = self._extent(group)
                    start = _signed(first)
                    bounds.add((found.pointer, found.start - start, found.stop - (start + last - first)))
            self._bounds[base] = bounds
        return self._bounds[base]

    def pointer_in(self, address: Poly) -> tuple[int, Poly] | None:
        """The only pointer parameter of which the address is the sum with something else: its number, and the rest."""
        found = [atom for atom in address.atoms if atom.kind == "param" and atom.name in self._pointers]
        if len(found) != 1 or address.coefficient(found[0]) != constant(1):
            return None
        return self._pointers[found[0].name], address - variable(found[0])

    def shifted_pointer(self, number: int) -> tuple[int, Expression] | None:
        """The pointer parameter and the number that the launch adds to it, for a class of values of 64 bits that is
        such a sum and the same in all threads."""
        address = self.address(number)
        found = self.pointer_in(address) if address is not None else None
        if found is None:
            return None
        known = self._launch.span_where((), found[1])
        if known is None or not known[0].is_exact or known[1] or not are_readable([known[0].low]):
            return None
        return found[0], known[0].low

    def beyond(self, number: int, bits: int, block: int) -> Expression | None:
        """A number of the launch. In each thread that comes to a block, the class of values of ``bits`` bits is
        congruent modulo 2^32 to the sum of it and of one of 0 to 2^31 - 1. ``None`` if no comparison shows one."""
        try:
            form = self._poly(number, bits)
        except TooManyTerms:
            form = None
        if form is None:
            return None
        for test in self._launch.guards.at(block):
            if test.kind != "s" or not test.left.is_constant or test.relation not in ("lt", "le"):
                continue
            least = (test.left.value + (1 << (test.bits - 1))) % (1 << test.bits) - (1 << (test.bits - 1))
            if least < -(test.relation == "lt") or (test.bits == 64 and test.right not in self._extended_loads):
                continue
            rest = self._launch.place(()).exact(form - test.right, "s")
            if rest is not None and are_readable([rest]):
                return rest
        return None

    @cached_property
    def _extended_loads(self) -> frozenset[Poly]:
        """The polynomials of values of 64 bits that loads have sign-extended from 32 bits."""
        loads = self._facts.get(wide_loads)
        forms = (self.address(number) for number, kind in loads.items() if kind == "s")
        return frozenset(form for form in forms if form is not None)

    def range_of(self, address: Poly, guards: Sequence[Comparison], first: int, last: int) -> AccessRange | None:
        """The bytes from ``address + first`` to ``address + last`` over all threads at a place with these guards."""
        # Addresses are computed modulo 2^64; an offset that is written as a large number is a negative one.
        first, last = _signed(first), _signed(first) + (last - first)
        pointers = [(self._pointers.get(atom.name), atom) for atom in address.atoms if atom.kind == "param"]
        for index, atom in sorted((index, atom) for index, atom in pointers if index is not None):
            if address.coefficient(atom) != constant(1):
                continue
            offset = address - variable(atom)
            known = self._launch.span_where(guards, offset)
            if known is None:
                continue
            factor = gcd(first, *(factor for _, factor in offset))
            found = _range(index, known[0], first, last, known[1], factor)
            if found is not None:
                return found
        return None


def _signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _range(
    index: int, span: Span, first: int, last: int, needs: tuple[Expression, ...], factor: int
) -> AccessRange | None:
    if span.width + last - first > _WIDEST:
        return None
    start, stop = span.low + first, span.high + last
    if span.least is None or span.least + first < 0:
        needs += (compare(">=", argument(index) + start, 0),)
    if any(isinstance(need, Number) and not need.value for need in needs):
        return None  # never right
    expressions = (start, stop, *needs)
    if not are_readable(expressions) or sum(len(str(each)) for each in expressions) > _LONGEST:
        return None
    return AccessRange(index, start, stop, needs, factor)


def are_readable(expressions: Iterable[Expression]) -> bool:
    """Whether a contract can contain the expressions: they need few intermediate values and have no huge literals."""
    return all(stack_need(each) <= _DEEPEST and _largest(each) <= _LARGEST for each in expressions)


def _largest(expression: Expression) -> int:
    """The largest magnitude of a literal."""
    if isinstance(expression, Operation):
        return max(map(_largest, expression.operands))
    return abs(expression.value) if isinstance(expression, Number) else 0
