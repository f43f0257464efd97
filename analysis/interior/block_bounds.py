"""Conditions of a block under which a polynomial is not negative in any of its threads.

Computes: for a polynomial of `ThreadForms` a list of polynomials over ``ctaid``, ``ntid``, ``nctaid`` and parameters.
If all of them are at least 0, the polynomial is at least 0 for every thread of the block. Each atom that differs
between threads stands at the end of its range where the polynomial is least: ``tid`` at 0 or at ``ntid - 1``, ``turn``
and other bounded atoms at one of their bounds. A word that was extended from 32 bits is replaced by the polynomial to
which it is congruent; that this polynomial is in the range of the word becomes a condition, too.

As an integer, a parameter is the signed word that the kernel reads. The conditions are to be evaluated in signed
arithmetic of 64 bits. That cannot overflow: a polynomial whose terms may be too large is refused, and parameters of 64
bits are limited to 2^40 (`Needs.wide`).

Requires: `ThreadForms` of the current version. Guarantees: the implication above, for all values of the coordinates,
the dimensions and the parameters. Refuses (`Unbounded`, with a reason): atoms without bounds, products of atoms that
differ between threads, terms that may be too large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ptx import Instr, Param, Sym
from ..manager import Facts
from ..values.polynomial import Atom, Poly, TooManyTerms, centered, constant, variable
from ..values.thread_affine import MOST_TURNS, coordinate, range_of
from .interior_forms import InteriorForms

__all__ = ["WIDE", "BlockBounds", "Needs", "Unbounded", "resolved_atoms"]

#: The largest magnitude of a parameter of 64 bits in a block for which the conditions may hold.
WIDE = 1 << 40
#: The sum of the magnitudes of the terms of a condition is less.
_LARGEST = 1 << 62

#: Kinds of atoms that are the same for all threads of a block.
_OF_BLOCK = frozenset(["ctaid", "ntid", "nctaid", "param"])


class Unbounded(ValueError):
    """There is no such condition. ``reason``: ``not-affine``, ``loop-bound`` or ``too-large``; in `border_checks` also
    ``direction`` or ``never``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Needs:
    """What has to hold: each of ``conditions`` is at least 0, and each of the ``wide`` parameters, which have 64 bits,
    is from ``-WIDE`` to ``WIDE``."""

    conditions: list[Poly] = field(default_factory=list[Poly])
    wide: set[Atom] = field(default_factory=set[Atom])

    def add(self, other: Needs) -> None:
        """Add what ``other`` needs."""
        self.conditions += other.conditions
        self.wide |= other.wide


class BlockBounds:
    """The conditions of one kernel. ``widths``: by name of a parameter's atom, the bits of its widest load. ``forms``
    has the conditions of loops."""

    def __init__(self, facts: Facts, forms: InteriorForms | None = None) -> None:
        self.forms = forms
        self.widths: dict[str, int] = {}
        for instr in facts.kernel.instructions():
            _note_width(instr, self.widths)

    def static(self, atom: Atom) -> tuple[int | None, int | None]:
        """The range of an atom in every launch; of a wide parameter the range that `Needs` demands."""
        if atom.kind == "param":
            return (-WIDE, WIDE) if self.is_wide(atom) else range_of("s", 32)
        return atom.low, atom.high

    def not_negative(self, form: Poly, needs: Needs) -> None:
        """Add to ``needs`` conditions under which ``form`` is at least 0. Raises `Unbounded`."""
        try:
            found = self._least(self.as_integer(form, needs), needs)
        except TooManyTerms:
            raise Unbounded("not-affine") from None
        for each in found:
            self._check_size(each)
            if not self._is_always(each):
                needs.conditions.append(each)

    def within(self, form: Poly, kind: str, bits: int, needs: Needs) -> None:
        """Add to ``needs`` conditions under which ``form`` is the value of its word, read as that type."""
        low, high = range_of(kind, bits)
        integer = self.as_integer(form, needs)
        for each in (integer - low, constant(high) - integer):
            least, _ = each.interval(self.static)
            if least is None or least < 0:
                self.not_negative(each, needs)

    def as_integer(self, form: Poly, needs: Needs) -> Poly:
        """``form`` with each extended word replaced by the polynomial that it is under ``needs``."""
        for atom in sorted(form.atoms):
            if atom.kind != "extended":
                continue
            assert atom.inner is not None
            own = Needs()
            try:
                inner = self.as_integer(centered(atom.inner, 32), own)
                self.within(inner, atom.name[0], 32, own)
                form = form.substitute({atom: inner})
            except Unbounded:
                continue  # the word stays, with the bounds of its type
            except TooManyTerms:
                raise Unbounded("not-affine") from None
            needs.add(own)
        needs.wide |= {atom for atom in form.atoms if self.is_wide(atom)}
        return form

    def is_wide(self, atom: Atom) -> bool:
        """Whether the atom is a parameter that the kernel reads as a word of 64 bits."""
        return atom.kind == "param" and self.widths.get(atom.name) == 64

    def strongest(self, conditions: Iterable[Poly]) -> list[Poly]:
        """``conditions`` without those that follow from one of the others."""
        kept: list[Poly] = []
        for each in dict.fromkeys(conditions):
            if any(self._implies(other, each) for other in kept):
                continue
            kept = [other for other in kept if not self._implies(each, other)]
            kept.append(each)
        return kept

    def _implies(self, stronger: Poly, weaker: Poly) -> bool:
        """Whether ``weaker`` is known to be at least 0 where ``stronger`` is."""
        try:
            return self._is_always(weaker - stronger)
        except TooManyTerms:
            return False

    def is_never(self, form: Poly) -> bool:
        """Whether ``form`` is negative in every launch."""
        _, most = form.interval(self.static)
        return most is not None and most < 0

    # --- the least value ---------------------------------------------------------------------------------------------

    def _least(self, form: Poly, needs: Needs) -> list[Poly]:
        """Conditions under which ``form`` is not negative in any thread of a block. What they assume of loops is added
        to ``needs``."""
        varying = sorted(atom for atom in form.atoms if atom.kind not in _OF_BLOCK)
        if not varying:
            return [form]
        atom = varying[0]
        factor = form.coefficient(atom)
        if factor is None or any(other.kind not in _OF_BLOCK for other in factor.atoms):
            raise Unbounded("not-affine")
        least, most = factor.interval(self.static)
        if least is not None and least >= 0:
            return self._least(form.substitute({atom: self._low(atom)}), needs)
        if most is None or most > 0:  # the sign of the factor is not known: it is the width of an image, for example
            return [factor, *self._least(form.substitute({atom: self._low(atom)}), needs)]
        if atom.kind == "turn" and (atom.high is None or atom.high >= MOST_TURNS):
            # The counter is at most the larger one of 0 and the last iteration.
            ends = (constant(0), self._last_turn(atom, needs))
        else:
            ends = (self._high(atom),)
        return [each for end in ends for each in self._least(form.substitute({atom: end}), needs)]

    def _last_turn(self, turn: Atom, needs: Needs) -> Poly:
        """A number such that ``turn`` is at most that number, or at most 0. Raises `Unbounded`.

        If iteration ``t`` is not the first one, the test after iteration ``t - 1`` has let the loop continue: the word
        ``first + t - 1`` is less than ``limit``, for example. If ``first`` and ``limit`` are in the range of the type,
        no word up to there wraps, by induction over ``t``.
        """
        test = self.forms.loop_test(turn) if self.forms is not None else None
        if test is None or any(atom.kind == "turn" for atom in (test.first.atoms | test.limit.atoms)):
            raise Unbounded("loop-bound")
        first, limit = (self.as_integer(each, needs) for each in (test.first, test.limit))
        if any(atom.kind not in _OF_BLOCK for atom in first.atoms | limit.atoms):
            raise Unbounded("loop-bound")
        self.within(first, test.kind, 32, needs)
        self.within(limit, test.kind, 32, needs)
        distance = limit - first
        if test.relation == "le":
            self.within(limit + 1, test.kind, 32, needs)
            return distance + 1
        if test.relation == "ne":
            self.not_negative(distance, needs)
        return distance

    def _low(self, atom: Atom) -> Poly:
        if atom.low is None:
            raise Unbounded("not-affine")
        return constant(atom.low)

    def _high(self, atom: Atom) -> Poly:
        if atom.kind == "tid":
            return variable(coordinate("ntid", atom.name[-1])) - 1
        if atom.high is None:
            raise Unbounded("not-affine")
        return constant(atom.high)

    def _is_always(self, form: Poly) -> bool:
        least, _ = form.interval(self.static)
        return least is not None and least >= 0

    def _check_size(self, form: Poly) -> None:
        total = 0
        for monomial, factor in form:
            low, high = Poly(((monomial, factor),)).interval(self.static)
            if low is None or high is None:
                raise Unbounded("too-large")
            total += max(abs(low), abs(high))
        if total >= _LARGEST:
            raise Unbounded("too-large")


def _note_width(instr: Instr, widths: dict[str, int]) -> None:
    """Note a load of a parameter under the name that its atom has in `ThreadForms`."""
    address, scalar = instr.address, instr.form.type
    if instr.form.space != "param" or address is None or not isinstance(address.base, Sym) or scalar is None:
        return
    if not isinstance(address.base.declaration, Param):
        return  # a variable of a call, which may have the name of a parameter
    offset = address.offset + address.base.offset
    for name in (address.base.name, f"{address.base.name}+{offset}"):
        widths[name] = max(widths.get(name, 0), scalar.bits)


def resolved_atoms(form: Poly) -> frozenset[Atom]:
    """All atoms of the polynomial, also those inside extended words."""
    found: set[Atom] = set()
    work = list(form.atoms)
    while work:
        atom = work.pop()
        if atom not in found:
            found.add(atom)
            if atom.inner is not None:
                work += atom.inner.atoms
    return frozenset(found)
