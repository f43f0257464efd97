"""Polynomials with integer coefficients over named quantities.

Computes: sums and products of unknown integers, such as ``4·ctaid.x·ntid.x + 4·tid.x + 16``. These are polynomials over
the integers, not modulo 2^width. The value of a machine word is congruent to its polynomial; a caller that needs
equality has to prove that the polynomial is in range.

Guarantees: equal polynomials are equal objects (``==``), terms are sorted. Refuses (`TooManyTerms`): more than
`MOST_TERMS` terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

__all__ = ["MOST_TERMS", "ZERO", "Atom", "Poly", "TooManyTerms", "centered", "constant", "variable"]

MOST_TERMS = 48


class TooManyTerms(ValueError):
    """The polynomial has more than `MOST_TERMS` terms."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A named quantity. ``kind``: see `thread_affine`. ``low`` and ``high`` are its bounds, ``None`` if unbounded.
    ``inner`` is the polynomial to which an extended word is congruent."""

    kind: str
    name: str
    low: int | None = None
    high: int | None = None
    inner: Poly | None = None

    def __lt__(self, other: Atom) -> bool:
        return (self.kind, self.name) < (other.kind, other.name)

    def __str__(self) -> str:
        return self.name


Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Poly:
    """``terms`` maps each monomial, a sorted tuple of atoms, to its coefficient; none is 0."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """All atoms of the polynomial."""
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    @property
    def is_constant(self) -> bool:
        """Whether no atom has a coefficient."""
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def value(self) -> int:
        """The coefficient of the empty monomial: the value of a constant polynomial."""
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    def __add__(self, other: Poly | int) -> Poly:
        return _collect([*self.terms, *_poly(other).terms])

    def __sub__(self, other: Poly | int) -> Poly:
        return self + _poly(other) * -1

    def __rsub__(self, other: int) -> Poly:
        return _poly(other) - self

    def __neg__(self) -> Poly:
        return self * -1

    def __mul__(self, other: Poly | int) -> Poly:
        if isinstance(other, int):
            return Poly(tuple([(m, c * other) for m, c in self.terms])) if other else ZERO
        if len(self.terms) * len(other.terms) > 4 * MOST_TERMS:
            raise TooManyTerms
        return _collect([(tuple(sorted((*m, *n))), c * d) for m, c in self.terms for n, d in other.terms])

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = " + ".join(_term(monomial, coefficient) for monomial, coefficient in reversed(self.terms))
        return text.replace("+ -", "- ")

    def coefficient(self, atom: Atom) -> Poly | None:
        """The factor of the atom; ``None`` if the atom occurs with a power greater than 1."""
        terms: list[tuple[Monomial, int]] = []
        for monomial, factor in self.terms:
            count = monomial.count(atom)
            if count > 1:
                return None
            if count:
                terms.append((tuple([other for other in monomial if other != atom]), factor))
        return _collect(terms)

    def without(self, drop: Callable[[Atom], bool]) -> Poly:
        """The terms that contain no atom for which ``drop`` is true."""
        return Poly(tuple([(m, c) for m, c in self.terms if not any(drop(atom) for atom in m)]))

    def substitute(self, replaced: Mapping[Atom, Poly]) -> Poly:
        """The polynomial with atoms replaced by polynomials. Raises `TooManyTerms`."""
        if self.atoms.isdisjoint(replaced):
            return self
        total = ZERO
        for monomial, factor in self.terms:
            product = Poly((((), factor),))
            for atom in monomial:
                replacement = replaced.get(atom)
                product = product * (replacement if replacement is not None else variable(atom))
            total = total + product
        return total

    def interval(self, bounds: Callable[[Atom], tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
        """(least value, greatest value) for atoms within ``bounds``, each term on its own; ``None`` is unbounded."""
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in self.terms:
            least, greatest = _product(monomial, factor, bounds)
            low = None if low is None or least is None else low + least
            high = None if high is None or greatest is None else high + greatest
        return low, high

    def __iter__(self) -> Iterator[tuple[Monomial, int]]:
        return iter(self.terms)


def _product(
    monomial: Monomial, factor: int, bounds: Callable[[Atom], tuple[int | None, int | None]]
) -> tuple[int | None, int | None]:
    low: int | None = factor
    high: int | None = factor
    for atom in monomial:
        a, b = bounds(atom)
        if low is not None and high is not None and a is not None and b is not None:
            corners = (low * a, low * b, high * a, high * b)
            low, high = min(corners), max(corners)
        elif a is not None and a >= 0 and low is not None and low >= 0:
            low, high = low * a, None
        elif a is not None and a >= 0 and high is not None and high <= 0:
            low, high = None, high * a
        else:
            return None, None
    return low, high


def _term(monomial: Monomial, coefficient: int) -> str:
    names = "*".join(str(atom) for atom in monomial)
    if not names:
        return str(coefficient)
    return names if coefficient == 1 else f"-{names}" if coefficient == -1 else f"{coefficient}*{names}"


def _collect(terms: list[tuple[Monomial, int]]) -> Poly:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = [(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]
    if len(kept) > MOST_TERMS:
        raise TooManyTerms
    kept.sort(key=lambda term: (len(term[0]), [(atom.kind, atom.name) for atom in term[0]]))
    return Poly(tuple(kept))


def _poly(value: Poly | int) -> Poly:
    return value if isinstance(value, Poly) else constant(value)


ZERO = Poly(())


def constant(value: int) -> Poly:
    """A constant polynomial."""
    return Poly((((), value),)) if value else ZERO


def variable(atom: Atom) -> Poly:
    """The polynomial that is one atom."""
    return Poly((((atom,), 1),))


def centered(form: Poly, bits: int) -> Poly:
    """The polynomial that is congruent modulo ``2**bits`` and has coefficients of the least magnitude."""
    half = 1 << (bits - 1)
    terms = ((monomial, (factor + half) % (2 * half) - half) for monomial, factor in form)
    return Poly(tuple([(monomial, factor) for monomial, factor in terms if factor]))
