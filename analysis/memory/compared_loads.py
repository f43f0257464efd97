"""Loads that are safe because the launch compares the buffer with them.

Computes, for a load at the end of a block, whether one of these shows that it cannot fault there:

- *range*: the bytes that all threads which come there may read are known (`access_ranges`), and are inside the buffer;
- *element*: the address is ``pointer + stride·i + offset``, the buffer consists of whole elements of ``stride`` bytes,
  and a byte of the same element is dereferenced whenever a thread comes there. So all fields of a node of a tree may be
  read as soon as one of them is, for any index. Elements are taken as small as possible: the *granule* is the least
  divisor of the stride for which both are in the same one, since a buffer consists of whole granules more often;
- *limit*: the index is clamped to the extent of the buffer (`clamped_indices`).

In all cases the pointer must be aligned to the size of the load. The assumption is recorded in `Promise.inside`, for
the one who has made the promise.

Requires: `Promise.inside` is set. Guarantees: in a launch for which the recorded assumptions hold, a load that is
called safe faults only if the program faults as well. Assumes, as `points_to`, that an address that is computed from a
parameter stays in its buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TYPE_CHECKING

from ...ptx import Param
from .access_ranges import AccessRanges
from .alias import Reference
from .assumptions import Element
from .clamped_indices import ClampedIndices

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["ComparedLoads"]

#: The largest distance from a pointer for which sums of 64 bits certainly do not wrap around.
_FARTHEST = 1 << 62
#: The largest granule that is smaller than an element: what is read from memory at a time.
_LARGEST_GRANULE = 128


class ComparedLoads:
    """The answers for one kernel; a fact for `Facts.get`."""

    def __init__(self, facts: Facts) -> None:
        self._assumptions = facts.promise.inside
        self._ranges = facts.get(AccessRanges)
        self._params = list(facts.kernel.params or ())
        self._clamped = ClampedIndices(facts, facts.promise.limits)
        #: By class of the base: (number of the pointer, stride, constant distance), or ``None``.
        self._strides: dict[int, tuple[int, int, int] | None] = {}

    def is_safe(self, reference: Reference, block: int, sites: Iterable[Reference]) -> bool:
        """Whether a load of ``reference`` at the end of ``block`` is safe under an assumption, which is recorded then.
        ``sites`` are dereferenced whenever a thread comes there, and have the same base."""
        assert self._assumptions is not None
        limit = self._clamped.limit_of(reference)
        if limit is not None:
            self._assumptions.limits[limit] = None
            return True
        element = self._element(reference, sites)
        if element is not None:
            self._assumptions.elements[element] = None
            return True
        found = self._ranges.at_end(reference, block)
        if found is None or found.factor % reference.bytes:
            return False
        self._assumptions.ranges[found, reference.bytes] = None
        return True

    def _element(self, reference: Reference, sites: Iterable[Reference]) -> Element | None:
        if reference.space not in ("global", "generic"):
            return None
        if reference.base not in self._strides:
            self._strides[reference.base] = self._find_stride(reference)
        known = self._strides[reference.base]
        if known is None or reference.objects != frozenset[Param]([self._params[known[0]]]):
            return None
        pointer, stride, distance = known
        first = distance + reference.offset
        if stride % reference.bytes or first % reference.bytes:
            return None
        touched = [distance + site.offset for site in sites if site.objects == reference.objects]
        for granule in _multiples_that_divide(stride, reference.bytes):
            if any(first // granule == each // granule for each in touched):
                return Element(pointer, granule, reference.bytes)
        return None

    def _find_stride(self, reference: Reference) -> tuple[int, int, int] | None:
        address = self._ranges.address(reference.base)
        found = self._ranges.pointer_in(address) if address is not None else None
        if found is None:
            return None
        pointer, offset = found
        least, most = offset.interval(lambda atom: (atom.low, atom.high))
        if least is None or most is None or least < -_FARTHEST or most > _FARTHEST:
            return None
        stride = gcd(*(factor for monomial, factor in offset if monomial))
        return (pointer, stride, offset.value) if stride > 1 else None


def _multiples_that_divide(stride: int, size: int) -> list[int]:
    """The divisors of ``stride`` that are multiples of ``size``, ascending. Many divisors are not needed, so only those
    up to 128 and the stride itself."""
    return [each for each in range(size, min(stride, _LARGEST_GRANULE + 1), size) if stride % each == 0] + [stride]
