"""What the speculation of loads has assumed about the buffers of a launch.

A promise that the launch compares ranges and strides with buffers (`Promise.inside`) has an object of this class. It
records each assumption under which a load was called safe, whether or not the load was then moved. So its contents are
sufficient for all loads that were moved under the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...contract import Expression
    from .access_ranges import AccessRange
    from .alias import Reference

__all__ = ["Assumptions", "Element", "Elements", "Limit"]


@dataclass(frozen=True, slots=True)
class Element:
    """The buffer of parameter number ``pointer`` consists of whole elements of ``stride`` bytes, counted from the
    pointer in both directions. ``align``: the pointer is a multiple of it."""

    pointer: int
    stride: int
    align: int


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of ``stride`` bytes of a buffer, from the address of parameter number ``pointer`` plus ``shift``.

    ``kind``: how their index is extended to 64 bits, ``s`` or ``u``. ``beyond``: wherever the kernel accesses an
    element, the index is congruent modulo 2^32 to the sum of this number and of one of 0 to 2^31 - 1; ``None``: it may
    have any value. ``align`` divides the address of each access. ``is_whole``: the buffer ends
    where an element ends."""

    pointer: int
    shift: Expression
    stride: int
    kind: str
    beyond: Expression | None
    align: int
    is_whole: bool

    def contains(self, reference: Reference) -> bool:
        """Whether the bytes of a reference, counted from the start of an element, lie in the element."""
        size = reference.bytes
        if self.align % size or reference.offset % size or not 0 <= reference.offset <= self.stride - size:
            return False
        return self.is_whole or size == self.stride


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest index at which each of ``buffers`` has an element. Parameter ``name`` of a version has it as its
    value."""

    name: str
    buffers: tuple[Elements, ...]


@dataclass
class Assumptions:
    """``ranges``: (range inside its buffer, bytes of the load, to which the pointer is aligned). ``elements``: buffers
    of whole elements. ``limits``: those of loads whose index is clamped."""

    ranges: dict[tuple[AccessRange, int], None] = field(default_factory=dict["tuple[AccessRange, int]", None])
    elements: dict[Element, None] = field(default_factory=dict[Element, None])
    limits: dict[Limit, None] = field(default_factory=dict[Limit, None])

    @property
    def is_empty(self) -> bool:
        """Whether no load was called safe because of an assumption."""
        return not self.ranges and not self.elements and not self.limits
