"""Which of many references an access may alias, as a bit vector.

The references are grouped by state space and objects, and by base and offset, so that an access is not compared with
each reference: one test decides for all references of equal space and objects. For an access at one address, those with
the same base and a near offset are then tested one by one. The time for n accesses and m references is about n + m if
there are few combinations of space and objects.

Guarantees: the answer contains every reference that `Memory.may_alias` the access.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from .alias import Memory, Reference
from .points_to import Objects
from .touched_memory import TouchedObjects

__all__ = ["ReferenceSet"]

#: Up to this number of references, an access is also compared with each reference of a different base.
_FEW = 48
_ADDRESSES = 1 << 32


class ReferenceSet:
    """Reference i of ``references`` is bit i; ``None`` is an unknown reference, which may alias everything."""

    def __init__(self, memory: Memory, references: Sequence[Reference | None]) -> None:
        self.memory = memory
        self.references = references
        self.unknown = 0
        #: By (space, objects): the references, as bits.
        self._groups: dict[tuple[str, Objects], int] = {}
        #: By (base, `_kind` of the space): (offset, number of the reference), in ascending order.
        self._by_base: dict[tuple[int, str], list[tuple[int, int]]] = {}
        #: By (base, `_kind` of the space): the references, as bits.
        self._bits_of_base: dict[tuple[int, str], int] = {}
        self._widest = 1
        for number, reference in enumerate(references):
            if reference is None:
                self.unknown |= 1 << number
                continue
            key = (reference.space, reference.objects)
            self._groups[key] = self._groups.get(key, 0) | 1 << number
            place = (reference.base, _kind(reference.space))
            self._by_base.setdefault(place, []).append((reference.offset % _ADDRESSES, number))
            self._bits_of_base[place] = self._bits_of_base.get(place, 0) | 1 << number
            self._widest = max(self._widest, reference.bytes)
        for numbers in self._by_base.values():
            numbers.sort()
        self._touched: dict[tuple[str, Objects], int] = {}
        self._overlapping: dict[tuple[Reference, int], int] = {}

    def near(self, reference: Reference) -> Iterator[int]:
        """The numbers of the references of the same base and kind of space that overlap the given one."""
        entries = self._by_base.get((reference.base, _kind(reference.space)), ())
        start = (reference.offset - self._widest + 1) % _ADDRESSES
        length = self._widest + reference.bytes - 1
        for first, last in ((start, start + length), (0, start + length - _ADDRESSES)):
            for at in range(bisect_left(entries, (first, -1)), len(entries)):
                offset, number = entries[at]
                if offset >= last:
                    break
                other = self.references[number]
                if other is not None and self.memory.may_alias(other, reference):
                    yield number

    def touched_by(self, access: TouchedObjects | Reference) -> int:
        """The references that an access to unknown addresses in its space and objects may alias."""
        key = (access.space, access.objects)
        references = self._touched.get(key)
        if references is None:
            references = self.unknown
            for group, bits in self._groups.items():
                if not self.memory.are_disjoint(*group, *key):
                    references |= bits
            self._touched[key] = references
        return references

    def overlapping(self, reference: Reference, among: int = -1) -> int:
        """A superset of the references of ``among`` that `Memory.may_alias` the given one."""
        key = (reference, among)
        references = self._overlapping.get(key)
        if references is None:
            references = self.touched_by(reference) & among
            same = self._bits_of_base.get((reference.base, _kind(reference.space)), 0)
            if same & references:
                references &= ~same
                for number in self.near(reference):
                    references |= 1 << number & among
            if len(self.references) <= _FEW:
                for number, other in enumerate(self.references):
                    if references >> number & 1 and other is not None and not self.memory.may_alias(other, reference):
                        references &= ~(1 << number)
            self._overlapping[key] = references
        return references


def _kind(space: str) -> str:
    """A key that is equal for spaces in which equal numbers are equal addresses; see `Memory.may_alias`."""
    return "global" if space == "generic" else space
