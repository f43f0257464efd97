"""The conditions of a launch under which pairs of pointer parameters may be treated as disjoint.

A pair is disjoint *by allocation* if the two parameters point into different allocations. That relies on the assumption
of `points_to`: an address that is computed from a parameter stays in the allocation that the parameter points into.

Requires: pointer parameters of 64 bits. Guarantees: if the conditions of a pair hold for a launch, no access whose
address may be computed from one of the parameters touches a byte that an access computed from the other one touches,
as far as one of the two accesses writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..contract import Condition, Disjoint, Range
from ..ptx import Kernel
from .pairs import Pair

__all__ = ["by_allocation"]


def by_allocation(kernel: Kernel, pairs: Iterable[Pair]) -> tuple[Condition, ...]:
    """The conditions that each pair points into different allocations."""
    numbers = {param.name: number for number, param in enumerate(kernel.params or ())}
    ordered = sorted(sorted((numbers[one], numbers[two])) for one, two in pairs)
    return tuple(Disjoint(Range(one), Range(two)) for one, two in ordered)
