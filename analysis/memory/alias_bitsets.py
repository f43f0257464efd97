"""Many references at once, as a bit vector: which of them an access may touch.

A set is arranged by state space and objects, and by base and offset, so that an access is not compared with each
reference: one answer for all references of equal space and objects, then, for an access at one address, a look at those
with the same base near its offset. The time for n accesses and m references is near n + m, as long as few kinds of
objects are named.

Guarantees: every reference that `Memory.may_alias` an access is in the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from .alias import Memory, Reference
from .points_to import Objects
from .touched_memory import Access

__all__ = ["ReferenceSet"]

#: Up to so many references an access is compared with all whose base differs from its own.
_FEW = 48
_ADDRESSES = 1 << 32


class ReferenceSet:
    """Reference i of ``references`` is bit i; ``None`` is one of which nothing is known."""

    def __init__(self, memory: Memory, references: Sequence[Reference | None]) -> None:
        self.memory = memory
        self.references = references
        self.unknown = 0
        self._groups: dict[tuple[str, Objects], int] = {}
        #: By base and kind of address, (offset, number) in ascending order.
        self._by_base: dict[tuple[int, str], list[tuple[int, int]]] = {}
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
        for found in self._by_base.values():
            found.sort()
        self._touched: dict[tuple[str, Objects], int] = {}
        self._overlapping: dict[tuple[Reference, int], int] = {}

    def near(self, reference: Reference) -> Iterator[int]:
        """The numbers of the references with the same base, in a space of the same kind, that overlap the one given."""
        found = self._by_base.get((reference.base, _kind(reference.space)), ())
        start = (reference.offset - self._widest + 1) % _ADDRESSES
        length = self._widest + reference.bytes - 1
        for first, last in ((start, start + length), (0, start + length - _ADDRESSES)):
            for at in range(bisect_left(found, (first, -1)), len(found)):
                offset, number = found[at]
                if offset >= last:
                    break
                other = self.references[number]
                if other is not None and self.memory.may_alias(other, reference):
                    yield number

    def touched_by(self, access: Access | Reference) -> int:
        """The references that an access somewhere in a space, in some objects, may touch."""
        key = (access.space, access.objects)
        found = self._touched.get(key)
        if found is None:
            found = self.unknown
            for group, bits in self._groups.items():
                if not self.memory.are_apart(*group, *key):
                    found |= bits
            self._touched[key] = found
        return found

    def overlapping(self, reference: Reference, asked: int = -1) -> int:
        """The references of ``asked`` that `Memory.may_alias` the one given, and some that may not."""
        key = (reference, asked)
        found = self._overlapping.get(key)
        if found is None:
            found = self.touched_by(reference) & asked
            same = self._bits_of_base.get((reference.base, _kind(reference.space)), 0)
            if same & found:
                found &= ~same
                for number in self.near(reference):
                    found |= 1 << number & asked
            if len(self.references) <= _FEW:
                for number, other in enumerate(self.references):
                    if found >> number & 1 and other is not None and not self.memory.may_alias(other, reference):
                        found &= ~(1 << number)
            self._overlapping[key] = found
        return found


def _kind(space: str) -> str:
    """Spaces in which equal numbers are equal addresses: see `Memory.may_alias`."""
    return "global" if space == "generic" else space
