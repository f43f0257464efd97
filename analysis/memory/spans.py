"""Intervals of integers whose ends are expressions of the launch.

A `Span` also has bounds of its ends that hold in every launch (``least``, ``most``), which decide about signs.
Guarantees: sums and products contain every sum and product of two members. Both ends may be larger than a machine word.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...contract import Expression, Number
from ...contract.expressions import maximum, minimum

__all__ = ["Span", "exactly", "number", "product", "sum_of", "united"]


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from ``low`` to ``high``. In every launch, ``low`` is at least ``least``, and ``high`` at most
    ``most``; ``None`` if that is unknown. ``part`` is a lower bound of ``width``, for a sum of which one part has a
    known width."""

    low: Expression
    high: Expression
    least: int | None = None
    most: int | None = None
    part: int = 0

    @property
    def width(self) -> int:
        """``high`` minus ``low`` is at least this, in every launch in which the values exist."""
        if isinstance(self.low, Number) and isinstance(self.high, Number):
            return max(self.part, self.high.value - self.low.value)
        return self.part

    @property
    def is_exact(self) -> bool:
        """Whether it is one integer, the same in all threads."""
        return self.low is self.high or self.low == self.high

    @property
    def is_constant(self) -> bool:
        """Whether the interval is one integer that does not depend on the launch."""
        return self.is_exact and isinstance(self.low, Number)

    def is_within(self, low: int, high: int) -> bool:
        """Whether all members are within the bounds in every launch."""
        return self.least is not None and self.most is not None and low <= self.least and self.most <= high


def number(value: int) -> Span:
    """One known integer."""
    return Span(Number(value), Number(value), value, value)


def exactly(value: Expression, least: int | None = None, most: int | None = None) -> Span:
    """One integer that the launch decides."""
    return Span(value, value, least, most)


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def sum_of(left: Span, right: Span) -> Span:
    """The sums."""
    least, most = _plus(left.least, right.least), _plus(left.most, right.most)
    low = left.low + right.low
    return Span(
        low, low if left.is_exact and right.is_exact else left.high + right.high, least, most, left.width + right.width
    )


def united(left: Span, right: Span) -> Span:
    """The smallest span that contains both."""
    least = None if left.least is None or right.least is None else min(left.least, right.least)
    most = None if left.most is None or right.most is None else max(left.most, right.most)
    width = max(left.width, right.width)
    return Span(minimum(left.low, right.low), maximum(left.high, right.high), least, most, width)


def product(left: Span, right: Span) -> Span:
    """The products."""
    if right.is_constant:
        left, right = right, left
    if isinstance(left.low, Number) and left.is_constant:
        return _multiple(right, left.low.value)
    least, most = _static_product(left, right)
    if left.is_exact and right.is_exact:
        return exactly(left.low * right.low, least, most)
    if left.least is not None and left.least >= 0 and right.least is not None and right.least >= 0:
        return Span(left.low * right.low, left.high * right.high, least, most)
    if right.least is not None and right.least >= 0:
        left, right = right, left
    corners = [a * b for a in dict.fromkeys((left.low, left.high)) for b in dict.fromkeys((right.low, right.high))]
    if left.least is not None and left.least >= 0:
        low = minimum(left.low * right.low, left.high * right.low)
        return Span(low, maximum(left.low * right.high, left.high * right.high), least, most)
    return Span(minimum(*corners), maximum(*corners), least, most)


def _multiple(span: Span, factor: int) -> Span:
    def times(bound: int | None) -> int | None:
        return None if bound is None else bound * factor

    if factor == 1:
        return span
    low, high, width = span.low * factor, span.high * factor, span.width * abs(factor)
    if factor >= 0:
        return Span(low, high, times(span.least), times(span.most), width)
    return Span(high, low, times(span.most), times(span.least), width)


def _static_product(left: Span, right: Span) -> tuple[int | None, int | None]:
    a, b, c, d = left.least, left.most, right.least, right.most
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    return None, None
