"""Which threads of two launches can access the same bytes with two accesses.

Computes, for access A of the first launch and access B of the second launch to one allocation: ``never``, ``thread``
(only threads with the same coordinates), ``block`` (only threads of blocks with the same coordinates) or ``any``.

Method: the accesses overlap if the difference of the two addresses lies in a window of a few bytes around 0. This
difference is a sum of strides times digits. A digit is a combination of coordinates, loop iterations or unknowns of the
two threads. Words of 32 bits are compared modulo 2^32; this holds for integers, too, if the sum is shown to stay below
2^32. Then digits are determined from the largest stride down, as in a positional number system: if the sum of all
smaller terms is less than a stride, the digit of that stride must be one particular number. If all coordinates of the
two threads turn out to be equal, it is the same thread.

Guarantees: the answer holds for all values of host quantities within their bounds or, if checks are allowed, for the
values that pass the checks. The answer is ``any`` if nothing better can be shown.
Reference: thesis §5.1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import gcd

from ...analysis.values.polynomial import ZERO, Atom, Poly, TooManyTerms, constant, variable
from .host_values import Signs, interval
from .placement import AXES, VARYING, Bound, Placement, Target, linear

__all__ = ["ORDER", "relation"]

#: The answers, from best to worst.
ORDER = ("never", "thread", "block", "any")

_WORD = 1 << 32
#: The largest distance in bytes of two addresses in one allocation. A larger sum has wrapped around.
_FAR = 1 << 63


def relation(first: tuple[Placement, Target, int], second: tuple[Placement, Target, int], signs: Signs) -> str:
    """One of `ORDER` for two accesses. Each is given as its launch, its place and its size in bytes."""
    before = dict(signs.checks)
    try:
        order = _Comparison(first, second, signs).answer()
    except TooManyTerms:
        order = "any"
    if order == "any":
        signs.checks = before
    return order


class _Unknown(Exception):
    """The relation of the accesses cannot be determined."""


@dataclass(slots=True)
class _Digit:
    """The factor of one stride in the difference: atoms with their signs."""

    stride: Poly
    atoms: list[tuple[Atom, int]] = field(default_factory=list[tuple[Atom, int]])


class _Comparison:
    def __init__(
        self, first: tuple[Placement, Target, int], second: tuple[Placement, Target, int], signs: Signs
    ) -> None:
        self.placements = (first[0], second[0])
        self.places = (first[1], second[1])
        self.signs = signs
        #: The accesses overlap if the difference of the offsets lies from ``low`` to ``high``.
        self.low, self.high = -(first[2] - 1), second[2] - 1
        #: Results so far: by name of an atom, the difference between the two launches' atoms of that name; and by atom,
        #: its value.
        self.equal: dict[str, int] = {}
        self.values: dict[Atom, int] = {}

    def answer(self) -> str:
        first, second = self.places
        try:
            difference = self._integers(first.offset, second.offset)
        except _Unknown:
            return "any"
        if difference is None:
            return "never"
        # Try the global indices as digits, and the coordinates that they consist of.
        return min((self._relation(self._indexed(difference)), self._relation(difference)), key=ORDER.index)

    def _relation(self, difference: Poly) -> str:
        self.equal.clear()
        self.values.clear()
        if not self._split(difference):
            return "never"
        if all(self._is_equal("ctaid", axis) for axis in AXES):
            return "thread" if all(self._is_equal("tid", axis) for axis in AXES) else "block"
        return "any"

    # --- to the integers -----------------------------------------------------------------------------------------

    def _integers(self, first: Poly, second: Poly) -> Poly | None:
        """A polynomial that lies from ``low`` to ``high`` whenever the accesses overlap. ``None`` if they cannot
        overlap."""
        total = first - second
        low, high = interval(total)
        if low is None or high is None or low <= -_FAR or high >= _FAR:
            self._need_near(total)
        words = [atom for atom in total.atoms if atom.inner is not None]
        if not words:
            return total
        factor = 0
        for monomial, coefficient in total.terms:
            if monomial:
                factor = gcd(factor, coefficient)
        rest = total.value
        self.low, self.high = -((rest - self.low) // factor), (self.high - rest) // factor
        if self.low > self.high:
            return None
        total = Poly(tuple([(m, c // factor) for m, c in total.terms if m]))
        while any(atom.inner is not None for atom in total.atoms):
            total = total.substitute({atom: atom.inner for atom in total.atoms if atom.inner is not None})
        # The value is congruent modulo 2^32 to a number in the window. It is equal to that number if both are near
        # enough.
        least, greatest = self._extremes(total)
        conditions = [constant(_WORD - self.high) + least, constant(_WORD + self.low) - greatest]
        if not self.signs.ensure_positive(conditions):
            raise _Unknown
        return total

    def _need_near(self, total: Poly) -> None:
        """Show that the sum, which is the difference of two addresses modulo 2^64, is exactly that difference. Raises
        `_Unknown`."""
        least, greatest = self._extremes(total)
        if not self.signs.ensure_positive([least + _FAR, constant(_FAR) - greatest]):
            raise _Unknown

    def _extremes(self, total: Poly) -> tuple[Poly, Poly]:
        """Bounds of a polynomial over all threads, in host quantities. Raises `_Unknown`."""
        parts = linear(self._indexed(total), VARYING)
        if parts is None:
            raise _Unknown
        least = greatest = ZERO
        for atom, stride in parts:
            if atom is None:
                least, greatest = least + stride, greatest + stride
                continue
            digit = self._digit(atom, stride)
            low, high = self._bounds_of(digit)
            least, greatest = least + digit.stride * low.value, greatest + digit.stride * high.value
        return least, greatest

    # --- digits --------------------------------------------------------------------------------------------------

    def _indexed(self, total: Poly) -> Poly:
        for placement in self.placements:
            total = placement.with_global_index(total)
        return total

    def _digit(self, atom: Atom, stride: Poly) -> _Digit:
        """A digit with a positive stride: the sign is moved to the atom. Raises `_Unknown` if the sign is not known."""
        if self.signs.is_positive(stride):
            return _Digit(stride, [(atom, 1)])
        if self.signs.is_positive(-stride):
            return _Digit(-stride, [(atom, -1)])
        if self.signs.may_check and self.signs.ensure_positive([stride if _leads_positive(stride) else -stride]):
            return _Digit(stride, [(atom, 1)]) if _leads_positive(stride) else _Digit(-stride, [(atom, -1)])
        raise _Unknown

    def _split(self, total: Poly) -> bool:
        """Determine the value of each digit. False if no choice of digits reaches the window."""
        parts = linear(total, VARYING)
        if parts is None:
            return True
        rest = ZERO
        digits: dict[Poly, _Digit] = {}
        try:
            for atom, stride in parts:
                if atom is None:
                    rest = stride
                else:
                    digit = self._digit(atom, stride)
                    digits.setdefault(digit.stride, _Digit(digit.stride)).atoms += digit.atoms
        except _Unknown:
            return True
        remaining = sorted(digits.values(), key=lambda digit: _size(digit.stride), reverse=True)
        while remaining:
            digit = remaining.pop(0)
            shift = _multiple(rest, digit.stride)
            rest = rest - digit.stride * shift
            numbers = self._certain(digit, remaining, rest)
            if numbers is None:
                return not self._is_out_of_reach([digit, *remaining], rest + digit.stride * shift)
            if not numbers:
                return False
            (number,) = numbers
            if self._is_beyond(digit, number - shift):
                return False
            self._note(digit, number - shift)
            rest = rest + digit.stride * number
        low, high = interval(rest)
        return not ((low is not None and low > self.high) or (high is not None and high < self.low))

    def _certain(self, digit: _Digit, below: list[_Digit], rest: Poly) -> tuple[int, ...] | None:
        """The possible values of ``digit`` plus the part that was taken from ``rest``: one number, no number, or
        ``None`` if it is not known. ``below`` are the digits with smaller strides."""
        try:
            low, high = self._sum(below, rest)
        except _Unknown:
            return None
        for may_check in (False, True):
            for least, greatest in itertools.product(low, high):
                numbers = self._number(digit.stride, least, greatest, may_check=may_check)
                if numbers is not None:
                    return numbers
        return None

    def _number(self, stride: Poly, least: Bound, greatest: Bound, *, may_check: bool) -> tuple[int, ...] | None:
        """Which multiples of ``stride`` can be added to a value between the bounds so that the sum is in the window.

        A tuple with the only factor, an empty tuple if there is none, ``None`` if several are possible or if it is
        not known.
        """
        bounds = [*least.conditions, *greatest.conditions]
        conditions = [stride + least.value - self.high, stride + self.low - greatest.value, *bounds]
        if self.signs.ensure_positive(conditions, may_check=may_check):
            return (0,)
        a, b = least.value, greatest.value
        if not (stride.is_constant and a.is_constant and b.is_constant):
            return None
        smallest = -((b.value - self.low) // stride.value)
        largest = (self.high - a.value) // stride.value
        if smallest < largest or not self.signs.ensure_positive(bounds, may_check=may_check):
            return None
        return (smallest,) if smallest == largest else ()

    def _is_beyond(self, digit: _Digit, number: int) -> bool:
        """Whether the digit can never be ``number``."""
        try:
            low, high = self._all_bounds_of(digit)
        except _Unknown:
            return False
        below = [[each.value - number, *each.conditions] for each in low]
        above = [[constant(number) - each.value, *each.conditions] for each in high]
        return any(self.signs.ensure_positive(conditions, may_check=False) for conditions in (*below, *above))

    def _is_out_of_reach(self, digits: list[_Digit], rest: Poly) -> bool:
        """Whether the whole sum is always outside the window."""
        try:
            low, high = self._sum(digits, rest)
        except _Unknown:
            return False
        return any(self.signs.ensure_positive([each.value - self.high, *each.conditions]) for each in low) or any(
            self.signs.ensure_positive([constant(self.low) - each.value, *each.conditions]) for each in high
        )

    def _sum(self, digits: list[_Digit], rest: Poly) -> tuple[list[Bound], list[Bound]]:
        """Lower and upper bounds of a sum of digits. Raises `_Unknown`."""
        lows, highs = [Bound(rest)], [Bound(rest)]
        for digit in digits:
            low, high = self._all_bounds_of(digit)
            lows = _plus(lows, digit.stride, low)
            highs = _plus(highs, digit.stride, high)
        return lows, highs

    def _bounds_of(self, digit: _Digit) -> tuple[Bound, Bound]:
        """The bounds that need no conditions, if there are any. Raises `_Unknown`."""
        low, high = self._all_bounds_of(digit)
        return next((each for each in low if not each.conditions), low[-1]), next(
            (each for each in high if not each.conditions), high[-1]
        )

    def _all_bounds_of(self, digit: _Digit) -> tuple[list[Bound], list[Bound]]:
        lows, highs = [Bound(ZERO)], [Bound(ZERO)]
        one = constant(1)
        for atom, sign in digit.atoms:
            upper, lower = self._uppers(atom), self._lowers(atom)
            if sign < 0:
                upper, lower = (
                    [Bound(-each.value, each.conditions) for each in lower],
                    [Bound(-each.value, each.conditions) for each in upper],
                )
            lows, highs = _plus(lows, one, lower), _plus(highs, one, upper)
        return lows, highs

    def _uppers(self, atom: Atom) -> list[Bound]:
        if atom.kind == "word":
            return [Bound(constant(atom.high if atom.high is not None else _WORD))]
        side = int(atom.name[-1])
        bounds = list(self.places[side].upper.get(atom, ()))
        whole = self.placements[side].greatest(atom)
        if whole is not None:
            bounds.append(Bound(whole))
        if not bounds:
            raise _Unknown
        return bounds[:3]

    def _lowers(self, atom: Atom) -> list[Bound]:
        if atom.kind == "word":
            return [Bound(constant(atom.low if atom.low is not None else -_WORD))]
        side = int(atom.name[-1])
        bounds = list(self.places[side].lower.get(atom, ()))
        if atom.low is not None:
            bounds.append(Bound(constant(atom.low)))
        if not bounds:
            raise _Unknown
        return bounds[:3]

    # --- results so far ------------------------------------------------------------------------------------------

    def _note(self, digit: _Digit, number: int) -> None:
        """Record that the sum of the digit's atoms is ``number``."""
        if len(digit.atoms) == 1:
            atom, sign = digit.atoms[0]
            self.values[atom] = number * sign
        elif len(digit.atoms) == 2:
            (a, _), (b, sign) = digit.atoms
            name = a.name.partition("#")[0]
            if name == b.name.partition("#")[0] and a.name != b.name and sign == -digit.atoms[0][1]:
                self.equal[name] = number

    def _is_equal(self, kind: str, axis: str) -> bool:
        """Whether the coordinate is the same for both threads."""
        name = f"{kind}.{axis}"
        if self.equal.get(name) == 0 or self.equal.get(f"gid.{axis}") == 0:
            return True
        both = [self._single(side, self.placements[side].axis(kind, axis)) for side in (0, 1)]
        if both[0] is not None and both[0] == both[1]:
            return True
        # A global index identifies one thread of one block, because the blocks of both launches have the same extents.
        both = [self._single(side, variable(self.placements[side].global_index(axis))) for side in (0, 1)]
        return both[0] is not None and both[0] == both[1]

    def _single(self, side: int, poly: Poly) -> Poly | None:
        """The only value that the coordinate can have in the thread of launch ``side``, or None."""
        if poly.is_constant:
            return poly
        atom = next(iter(poly.atoms))
        if atom in self.values:
            return constant(self.values[atom])
        place = self.places[side]
        for upper in place.upper.get(atom, ()):
            lowers = [*place.lower.get(atom, ()), Bound(ZERO)]
            for lower in lowers:
                if upper.value == lower.value and self.signs.ensure_positive([*upper.conditions, *lower.conditions]):
                    return upper.value
        return None


def _plus(bounds: list[Bound], stride: Poly, more: list[Bound]) -> list[Bound]:
    sums = [
        Bound(each.value + stride * other.value, (*each.conditions, *other.conditions))
        for each in bounds
        for other in more
    ]
    return sums[:16]


def _leads_positive(stride: Poly) -> bool:
    return bool(stride.terms) and stride.terms[-1][1] > 0


def _size(stride: Poly) -> tuple[int, int]:
    """A sort key: strides with more quantities are larger, then those with larger coefficients."""
    return len(stride.terms[-1][0]) if stride.terms else 0, max((abs(c) for _, c in stride.terms), default=0)


def _multiple(rest: Poly, stride: Poly) -> int:
    """How often the largest term of a symbolic stride is contained in ``rest``."""
    if stride.is_constant:
        return 0
    monomial, factor = stride.terms[-1]
    return next((coefficient // factor for m, coefficient in rest.terms if m == monomial), 0)
