"""What the address of an access is computed from, down to values that are no functions of other values.

A *leaf* is a value with a definition of its own: a φ that joins different values, a load from memory that may be
written, the result of whatever may not be moved. A class of values names the same number as long as no leaf of it is
defined anew: passing a definition that computes the same again changes nothing.

Requires: SSA view, value numbers. Guarantees: two evaluations of an address without a definition of one of its leaves
between them give the same number. Refuses: addresses with more than `_MOST_LEAVES` leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ptx import Effect, Instr, Reg
from ..effects import is_constant_read

if TYPE_CHECKING:
    from ..manager import Facts
    from ..values.value_numbering import Values

__all__ = ["AddressLeaves"]

#: A base that depends on more values than this is left out.
_MOST_LEAVES = 24


class AddressLeaves:
    """The leaves of the addresses of one kernel."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.ssa = values.ssa
        self._known: dict[int, frozenset[int] | None] = {}

    @classmethod
    def of(cls, facts: Facts) -> AddressLeaves:
        """Those of the kernel of ``facts`` as it is now."""
        return cls(facts.values)

    def of_instr(self, instr: Instr) -> frozenset[int] | None:
        """The SSA values that the address of ``instr`` is computed from and that are no functions of others; ``None``
        if they are too many. Where there are none, the address is the same in all turns of every loop."""
        address = instr.address
        if address is None or not isinstance(address.base, Reg):
            return frozenset()
        return self._of_value(self.ssa.read(instr, address.base))

    def _of_value(self, value: int) -> frozenset[int] | None:
        """The values, no functions of others, that ``value`` is computed from; ``None`` if they are too many."""
        known = self._known
        waiting: dict[int, list[int]] = {}  # what values on the way are functions of
        work = [value]
        while work:
            top = work[-1]
            if top in known:
                work.pop()
                continue
            sources = waiting.get(top)
            if sources is None:
                sources = self._sources(top)
                if sources is None:
                    known[top] = frozenset([top])
                    continue
                missing = [each for each in sources if each not in known]
                if missing:
                    waiting[top] = sources
                    work += missing
                    continue
            known[top] = self._union(sources)
        return known[value]

    def _union(self, sources: list[int]) -> frozenset[int] | None:
        """The leaves of all ``sources``, which are known."""
        found: frozenset[int] = frozenset()
        for each in sources:
            leaves = self._known[each]
            if leaves is None:
                return None
            if leaves:
                found = found | leaves if found else leaves
        return found if len(found) <= _MOST_LEAVES else None

    def _sources(self, value: int) -> list[int] | None:
        """The values that a value is a function of; ``None`` for a leaf."""
        ssa, number = self.ssa, self.values.number
        instr = ssa.instr[value]
        if instr is None:
            arguments = ssa.phi_args.get(value)
            if arguments is None:
                return []  # undefined all the time
            # A φ that joins values of one class is that value, and has been numbered as it.
            if any(number[argument] != number[value] for _, argument in arguments):
                return None
            return [argument for _, argument in arguments]
        values = self.values
        if value in ssa.old or instr not in values.movable or (values.late and values.is_late(instr)):
            return None
        if instr.form.effects & Effect.READ and (not is_constant_read(instr) or instr in values.awaiting):
            return None
        return [ssa.read(instr, reg) for reg in instr.uses()]
