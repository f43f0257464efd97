"""What the speculation of loads has assumed about the buffers of a launch.

A promise that the launch compares ranges and strides with buffers (`Promise.inside`) has an object of this class. It
records each assumption under which a load was called safe, whether or not the load was then moved. So its contents are
sufficient for all loads that were moved under the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .access_ranges import AccessRange

__all__ = ["Assumptions", "Element"]


@dataclass(frozen=True, slots=True)
class Element:
    """The buffer of parameter number ``pointer`` consists of whole elements of ``stride`` bytes, counted from the
    pointer in both directions. ``align``: the pointer is a multiple of it."""

    pointer: int
    stride: int
    align: int


@dataclass
class Assumptions:
    """``ranges``: (range inside its buffer, bytes of the load, to which the pointer is aligned). ``elements``: buffers
    of whole elements."""

    ranges: dict[tuple[AccessRange, int], None] = field(default_factory=dict["tuple[AccessRange, int]", None])
    elements: dict[Element, None] = field(default_factory=dict[Element, None])

    @property
    def is_empty(self) -> bool:
        """Whether no load was called safe because of an assumption."""
        return not self.ranges and not self.elements
