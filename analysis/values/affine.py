"""Affine forms of integer values: ``k + Σ cᵢ·vᵢ`` modulo 2^width.

Computes: the normal form of an integer operation from the forms of its operands. Arithmetic modulo a power of two is
exact, so equal forms are equal values for every order of the additions. Nothing is assumed about overflow.

Guarantees: a form has at most `MAX_TERMS` terms, sorted by atom, none with coefficient 0. Refuses (``None``): a form
with more terms, an operation that is not linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...ptx import Form
from ...ptx.operations import Operation

__all__ = ["MAX_TERMS", "Affine", "add", "atom", "constant", "operation_of", "scale", "weighted_sum"]

MAX_TERMS = 8


class Affine(NamedTuple):
    """``constant + Σ coefficient·atom`` modulo ``2**width``; atoms are value numbers. Width in bits."""

    width: int
    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether the form has no atoms."""
        return not self.terms

    @property
    def single_atom(self) -> int | None:
        """The atom, if the form is that atom alone; else ``None``."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def signed_constant(self) -> int:
        """The constant as a two's complement number."""
        half = 1 << (self.width - 1)
        return self.constant - (1 << self.width) if self.constant >= half else self.constant


def constant(width: int, value: int) -> Affine:
    """``value`` modulo 2^width."""
    return Affine(width, value & ((1 << width) - 1))


def atom(width: int, number: int) -> Affine:
    """The value number ``number``, once."""
    return Affine(width, 0, ((number, 1),))


def add(left: Affine, right: Affine, factor: int = 1) -> Affine | None:
    """``left + factor·right``."""
    width, own, others = left[0], left[2], right[2]
    mask = (1 << width) - 1
    total_constant = (left[1] + factor * right[1]) & mask
    if not others:
        return Affine(width, total_constant, own)
    if not own and factor == 1 and right[0] == width:
        return Affine(width, total_constant, others)
    terms = dict(own)
    _gather(terms, others, factor, mask)
    if len(terms) > MAX_TERMS:
        return None
    return Affine(width, total_constant, tuple(sorted(terms.items())))


def _gather(terms: dict[int, int], others: Iterable[tuple[int, int]], factor: int, mask: int) -> None:
    """Add ``factor`` times ``others`` to ``terms``; removes terms with coefficient 0."""
    for number, coefficient in others:
        total = (terms.get(number, 0) + factor * coefficient) & mask
        if total:
            terms[number] = total
        else:
            terms.pop(number, None)


def weighted_sum(start: Affine, parts: Iterable[tuple[int, Affine]]) -> Affine | None:
    """``start + Σ factor·part``; the same as one `add` per part."""
    width, constant, own = start
    mask = (1 << width) - 1
    terms = dict(own)
    for factor, part in parts:
        constant += factor * part[1]
        _gather(terms, part[2], factor, mask)
        if len(terms) > MAX_TERMS:
            return None
    return Affine(width, constant & mask, tuple(sorted(terms.items())) if len(terms) > 1 else tuple(terms.items()))


def scale(form: Affine, factor: int) -> Affine:
    """``factor·form``."""
    mask = (1 << form.width) - 1
    terms = tuple((number, product) for number, c in form.terms if (product := c * factor & mask))
    return Affine(form.width, form.constant * factor & mask, terms)


def _linear_mul(a: Affine, b: Affine) -> Affine | None:
    if b.is_constant:
        return scale(a, b.constant)
    return scale(b, a.constant) if a.is_constant else None


def _subtract(a: Affine, b: Affine) -> Affine | None:
    return add(a, b, -1)


def _negate(a: Affine) -> Affine:
    return scale(a, -1)


def _mad(a: Affine, b: Affine, c: Affine) -> Affine | None:
    product = _linear_mul(a, b)
    return None if product is None else add(product, c)


def _shift(a: Affine, b: Affine) -> Affine | None:
    if not b.is_constant:
        return None
    return scale(a, 1 << b.constant) if b.constant < a.width else constant(a.width, 0)


_OPERATIONS: dict[Operation, Callable[..., Affine | None]] = {
    Operation.SUM: add,
    Operation.DIFFERENCE: _subtract,
    Operation.PRODUCT: _linear_mul,
    Operation.PRODUCT_SUM: _mad,
    Operation.NEGATION: _negate,
    Operation.SHIFT_LEFT: _shift,
}


def operation_of(form: Form) -> Callable[..., Affine | None] | None:
    """The function that computes the affine form of the result from those of the operands, which must have its width.
    It returns ``None`` for a result that is not linear. ``None`` for an operation whose result is never linear."""
    return _OPERATIONS.get(form.operation) if form.type is not None and form.type.lanes == 1 else None
