"""The conditions of a launch under which pairs of pointer parameters may be treated as disjoint.

A pair of parameters is disjoint

- *by ranges*, if the bytes that the kernel accesses through them are disjoint (`access_ranges`), so they may be parts
  of one allocation. If the range of an access is unknown, the whole allocation takes its place;
- *by allocation*, if they point into different allocations.

Whole allocations rely on the assumption of `points_to`: an address that is computed from a parameter stays in the
allocation that the parameter points into.

Requires: pointer parameters of 64 bits; facts of the kernel as it was given, without nested scopes. Guarantees: if the
conditions hold for a launch, no access whose address may be computed from one parameter of a pair touches a byte that
an access computed from the other one touches, as far as one of the two accesses writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..analysis.memory.access_ranges import AccessRange, AccessRanges, are_readable
from ..analysis.memory.touched_memory import ANY
from ..contract import Condition, Disjoint, Expression, Holds, Number, Range
from ..contract.conditions import expressions_of
from ..contract.expressions import maximum, minimum
from ..ptx import Param
from .pairs import Pair

if TYPE_CHECKING:
    from ..analysis.manager import Facts

__all__ = ["by_allocation", "by_ranges"]

#: The most ranges of a parameter that are compared one by one. More are united first.
_MOST_RANGES = 2
#: The longest text of the conditions of a version, in characters.
_LONGEST = 12_000


def by_allocation(numbers: dict[str, int], pairs: Iterable[Pair]) -> tuple[Condition, ...]:
    """The conditions that each pair points into different allocations. ``numbers``: by name of a parameter its
    number."""
    ordered = sorted(sorted((numbers[one], numbers[two])) for one, two in pairs)
    return tuple(Disjoint(Range(one), Range(two)) for one, two in ordered)


def by_ranges(facts: Facts, pairs: Iterable[Pair]) -> tuple[Condition, ...] | None:
    """The conditions that the accesses of each pair are disjoint; ``None`` if no range is known or they are too
    long."""
    sides = _Sides(facts)
    if not sides.has_ranges:
        return None
    found: dict[Condition, None] = {}
    for one, two in sorted(pairs):
        for first, second in ((sides.all(one), sides.written(two)), (sides.written(one), sides.read(two))):
            for left in first:
                for right in second:
                    found[Disjoint(left, right)] = None
    if not any(not each.is_whole for condition in found for each in _ranges(condition)):
        return None
    used = dict.fromkeys(each for condition in found for each in _ranges(condition))
    needs = [Holds(need) for need in dict.fromkeys(need for each in used for need in sides.needs.get(each, ()))]
    conditions = (*needs, *found)
    expressions = [expression for each in conditions for expression in expressions_of(each)]
    is_short = sum(len(str(each)) for each in expressions) <= _LONGEST
    return conditions if is_short and are_readable(expressions) else None


def _ranges(condition: Condition) -> tuple[Range, ...]:
    return (condition.first, condition.second) if isinstance(condition, Disjoint) else ()


class _Sides:
    """The ranges that the kernel reads and writes through each parameter."""

    def __init__(self, facts: Facts) -> None:
        self._numbers = {param.name: number for number, param in enumerate(facts.kernel.params or ())}
        #: By name of the parameter the ranges of its reads and of its writes; ``None`` in a list: unknown.
        self._reads: dict[str, dict[AccessRange | None, None]] = {}
        self._writes: dict[str, dict[AccessRange | None, None]] = {}
        #: By range what must hold so that it is right.
        self.needs: dict[Range, tuple[Expression, ...]] = {}
        memory, ranges = facts.memory, facts.get(AccessRanges)
        for instr in facts.kernel.instructions():
            for access in memory.accesses(instr):
                if access.space not in ("global", "generic", ANY) or access.objects is None:
                    continue
                for param in access.objects:
                    if isinstance(param, Param):
                        for wanted, side in ((access.reads, self._reads), (access.writes, self._writes)):
                            if wanted:
                                side.setdefault(param.name, {})[ranges.of(instr)] = None

    @property
    def has_ranges(self) -> bool:
        """Whether the range of an access is known."""
        return any(
            each is not None for side in (self._reads, self._writes) for found in side.values() for each in found
        )

    def read(self, name: str) -> list[Range]:
        return self._united(name, list(self._reads.get(name, {})))

    def written(self, name: str) -> list[Range]:
        return self._united(name, list(self._writes.get(name, {})))

    def all(self, name: str) -> list[Range]:
        return self._united(name, list(self._reads.get(name, {}) | self._writes.get(name, {})))

    def _united(self, name: str, found: list[AccessRange | None]) -> list[Range]:
        """The ranges; the whole allocation of the parameter if one of them is unknown."""
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return [Range(self._numbers[name])]
        united: list[Range] = []
        for pointer in dict.fromkeys(each.pointer for each in known):
            united += self._of_pointer(pointer, [each for each in known if each.pointer == pointer])
        return united

    def _of_pointer(self, pointer: int, known: list[AccessRange]) -> list[Range]:
        ends = list(dict.fromkeys((each.start, each.stop) for each in known))
        if len(ends) > _MOST_RANGES:
            ends = [(_least([start for start, _ in ends]), _greatest([stop for _, stop in ends]))]
        united = [Range(pointer, *each) for each in ends]
        for each in united:
            needs = dict.fromkeys([*self.needs.get(each, ()), *(need for other in known for need in other.needs)])
            self.needs[each] = tuple(needs)
        return united


def _least(values: list[Expression]) -> Expression:
    return minimum(*_extreme(values, 1))


def _greatest(values: list[Expression]) -> Expression:
    return maximum(*_extreme(values, -1))


def _extreme(values: list[Expression], sign: int) -> list[Expression]:
    """The values without those that another one is below by a known number (above, for ``sign`` -1)."""
    kept: list[Expression] = []
    for value in values:
        for number, other in enumerate(kept):
            distance = value - other
            if isinstance(distance, Number):
                if distance.value * sign < 0:
                    kept[number] = value
                break
        else:
            kept.append(value)
    return kept
