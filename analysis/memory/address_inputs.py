"""The leaves of an address: the values from which it is computed and that are not functions of other values.

A *leaf* is a φ that joins different values, a load from memory that may be written, or the result of an instruction
that must not move. A class of values is the same number as long as none of its leaves is defined again. A definition
that computes the same value again changes nothing.

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

#: An address with more leaves than this has no answer.
_MOST_LEAVES = 24


class AddressLeaves:
    """The leaves of the addresses of one kernel."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.ssa = values.ssa
        #: By SSA value: its leaves; ``None`` if they are too many.
        self._known: dict[int, frozenset[int] | None] = {}

    @classmethod
    def of(cls, facts: Facts) -> AddressLeaves:
        """A fact for `Facts.get`."""
        return cls(facts.values)

    def of_instr(self, instr: Instr) -> frozenset[int] | None:
        """The SSA values that are the leaves of the address of ``instr``; ``None`` if they are too many. An address
        without leaves is the same in all iterations of every loop."""
        address = instr.address
        if address is None or not isinstance(address.base, Reg):
            return frozenset()
        return self._of_value(self.ssa.read(instr, address.base))

    def _of_value(self, value: int) -> frozenset[int] | None:
        """The leaves of ``value``; ``None`` if they are too many."""
        leaves = self._known
        waiting: dict[int, list[int]] = {}  # by value on the stack its sources
        work = [value]
        while work:
            top = work[-1]
            if top in leaves:
                work.pop()
                continue
            sources = waiting.get(top)
            if sources is None:
                sources = self._sources(top)
                if sources is None:
                    leaves[top] = frozenset([top])
                    continue
                missing = [each for each in sources if each not in leaves]
                if missing:
                    waiting[top] = sources
                    work += missing
                    continue
            leaves[top] = self._union(sources)
        return leaves[value]

    def _union(self, sources: list[int]) -> frozenset[int] | None:
        """The leaves of all ``sources``, whose leaves are known."""
        union: frozenset[int] = frozenset()
        for source in sources:
            leaves = self._known[source]
            if leaves is None:
                return None
            if leaves:
                union = union | leaves if union else leaves
        return union if len(union) <= _MOST_LEAVES else None

    def _sources(self, value: int) -> list[int] | None:
        """The values of which a value is a function; ``None`` for a leaf."""
        ssa, number = self.ssa, self.values.number
        instr = ssa.instr[value]
        if instr is None:
            arguments = ssa.phi_args.get(value)
            if arguments is None:
                return []  # an undefined value never changes
            # A φ that joins values of one class is that value, and it is in that class.
            if any(number[argument] != number[value] for _, argument in arguments):
                return None
            return [argument for _, argument in arguments]
        values = self.values
        if value in ssa.old or instr not in values.movable or (values.late and values.is_late(instr)):
            return None
        if instr.form.effects & Effect.READ and (not is_constant_read(instr) or instr in values.awaiting):
            return None
        return [ssa.read(instr, reg) for reg in instr.uses()]
