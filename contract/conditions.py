"""The conditions of a version, and whether they hold for a launch.

A condition holds, does not hold, or is undecidable; `decide` gives the reason. `holds` counts undecidable as false.

The extent of a pointer is the allocation that it points into. An extent is given only if nothing else is mapped to
the same memory at other addresses, so ranges that have no address in common have no memory in common. A pointer that
is not between the begin and the end of the extent given for it has no extent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .errors import Undecidable
from .expressions import FIELD_TYPES, Expression, Symbol, evaluate, in_range, symbols

__all__ = [
    "Condition",
    "Disjoint",
    "Extent",
    "Holds",
    "Inside",
    "Launch",
    "Range",
    "decide",
    "expressions_of",
    "extents_read",
    "holds",
    "ranges_of",
    "value_in",
    "warps_per_scheduler",
]


class Extent(NamedTuple):
    """The first address of an allocation, and the address behind it."""

    begin: int
    end: int


#: Warp schedulers of a multiprocessor.
_SCHEDULERS = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """The facts of a launch.

    ``arguments``: an integer for each scalar or pointer, signed if its type is signed; `bytes` for a structure; None
    for what expressions cannot read, such as a float. ``extents`` maps the number of a pointer parameter to its extent;
    an unknown extent is missing or None. ``warps_per_scheduler`` is None if it is unknown.
    """

    arguments: tuple[int | bytes | None, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    extents: Mapping[int, Extent | None] = field(default_factory=dict[int, Extent | None])
    warps_per_scheduler: int | None = None

    def pointer(self, index: int) -> int:
        """The value of a pointer argument. Raises `Undecidable`."""
        value = self.arguments[index] if index < len(self.arguments) else None
        if not isinstance(value, int):
            raise Undecidable(f"arg{index} is no integer")
        return in_range(value)

    def extent(self, index: int) -> Extent:
        """The extent of a pointer argument. Raises `Undecidable`."""
        pointer = self.pointer(index)
        extent = self.extents.get(index)
        if extent is None or not extent.begin <= pointer <= extent.end:
            raise Undecidable(f"the extent of arg{index} is unknown")
        return extent


def warps_per_scheduler(
    grid: tuple[int, int, int], block: tuple[int, int, int], multiprocessors: int, resident_blocks: int
) -> int:
    """How many warps of a launch a scheduler has at a time, rounded up. The blocks are distributed evenly, and a block
    is on one multiprocessor.

    ``resident_blocks``: the blocks that one multiprocessor holds at a time, by the occupancy of the kernel.

    >>> warps_per_scheduler((132, 1, 1), (256, 1, 1), multiprocessors=132, resident_blocks=8)
    2
    >>> warps_per_scheduler((1, 1, 1), (1024, 1, 1), multiprocessors=132, resident_blocks=2)
    8
    """
    warps = -(-math.prod(block) // 32)
    blocks = min(-(-math.prod(grid) // multiprocessors), resident_blocks)
    return -(-warps * blocks // _SCHEDULERS)


def value_in(launch: Launch, symbol: Symbol) -> int:
    """The value of a symbol. Raises `Undecidable`."""
    kind, index = symbol.kind, symbol.index
    if kind == "arg":
        return launch.pointer(index)
    if kind in ("begin", "end"):
        extent = launch.extent(index)
        return extent.begin if kind == "begin" else extent.end
    if kind == "field":
        value = launch.arguments[index] if index < len(launch.arguments) else None
        part = value[symbol.offset : symbol.offset + FIELD_TYPES[symbol.type]] if isinstance(value, bytes) else b""
        if len(part) != FIELD_TYPES[symbol.type]:
            raise Undecidable(f"arg{index} has no field {symbol}")
        return int.from_bytes(part, "little", signed=symbol.type.startswith("s"))
    if kind == "shared":
        return launch.shared
    if kind == "warps_per_scheduler":
        if launch.warps_per_scheduler is None:
            raise Undecidable("the number of warps per scheduler is unknown")
        return launch.warps_per_scheduler
    of, _, axis = kind.partition("_")
    return (launch.grid if of == "grid" else launch.block)["xyz".index(axis)]


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes [pointer + start, pointer + stop) of a pointer parameter, or the whole allocation without the two."""

    pointer: int
    start: Expression | None = None
    stop: Expression | None = None

    @property
    def is_whole(self) -> bool:
        """Whether this is the whole allocation that the pointer points into."""
        return self.start is None or self.stop is None

    def addresses(self, launch: Launch) -> Extent:
        """The first address, and the address behind the range. It is empty if they are not in this order."""
        if self.start is None or self.stop is None:
            return launch.extent(self.pointer)
        pointer = launch.pointer(self.pointer)
        first = in_range(pointer + evaluate(self.start, lambda symbol: value_in(launch, symbol)))
        return Extent(first, in_range(pointer + evaluate(self.stop, lambda symbol: value_in(launch, symbol))))


@dataclass(frozen=True, slots=True)
class Inside:
    """The range is empty, or all its bytes are in the allocation that its pointer points into."""

    range: Range


@dataclass(frozen=True, slots=True)
class Disjoint:
    """One of the ranges is empty, or no byte is in both. Both extents must be known, unless a range is empty."""

    first: Range
    second: Range


@dataclass(frozen=True, slots=True)
class Holds:
    """The value of the expression is not 0."""

    expression: Expression


Condition: TypeAlias = Inside | Disjoint | Holds


def decide(condition: Condition, launch: Launch) -> bool:
    """Whether a condition holds. Raises `Undecidable` with the reason."""
    if isinstance(condition, Holds):
        return evaluate(condition.expression, lambda symbol: value_in(launch, symbol)) != 0
    if isinstance(condition, Inside):
        first, last = condition.range.addresses(launch)
        if first >= last:
            return True
        extent = launch.extent(condition.range.pointer)
        return extent.begin <= first and last <= extent.end
    one, other = condition.first.addresses(launch), condition.second.addresses(launch)
    if one.begin >= one.end or other.begin >= other.end:
        return True
    launch.extent(condition.first.pointer)
    launch.extent(condition.second.pointer)
    return one.end <= other.begin or other.end <= one.begin


def holds(condition: Condition, launch: Launch) -> bool:
    """Whether a condition holds; False if it is undecidable."""
    try:
        return decide(condition, launch)
    except Undecidable:
        return False


def ranges_of(condition: Condition) -> tuple[Range, ...]:
    """The ranges of a condition."""
    if isinstance(condition, Inside):
        return (condition.range,)
    return (condition.first, condition.second) if isinstance(condition, Disjoint) else ()


def expressions_of(condition: Condition) -> Iterator[Expression]:
    """The expressions of a condition."""
    if isinstance(condition, Holds):
        yield condition.expression
    for range in ranges_of(condition):
        yield from (each for each in (range.start, range.stop) if each is not None)


def extents_read(condition: Condition) -> frozenset[int]:
    """The pointer parameters whose extents the condition may read."""
    inside = {
        symbol.index
        for expression in expressions_of(condition)
        for symbol in symbols(expression)
        if symbol.kind in ("begin", "end")
    }
    return frozenset(inside | {range.pointer for range in ranges_of(condition)})
