"""Host expressions as polynomials, and proofs about their signs.

Computes: the polynomial of a Python expression over host quantities. A quantity is a name, or a part that is no sum,
difference or product, such as ``(n + 255) // 256``. Its bounds follow from the bounds of its operands.
Guarantees: `Signs.is_positive` is true only if the polynomial is positive for all values within the bounds. For ``q = e
// c`` it uses that ``0 <= e - c*q <= c - 1``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ...analysis.values.polynomial import ZERO, Atom, Poly, TooManyTerms, constant, variable

__all__ = ["Bounds", "HostValues", "Signs", "bounds_of_check", "interval", "narrowed"]

Bounds: TypeAlias = "tuple[int | None, int | None]"


def interval(poly: Poly) -> Bounds:
    """The bounds of a polynomial that follow from the bounds of its atoms."""
    return poly.interval(lambda atom: (atom.low, atom.high))


def narrowed(first: Bounds, second: Bounds) -> Bounds:
    """The intersection of two intervals."""
    lows = [low for low in (first[0], second[0]) if low is not None]
    highs = [high for high in (first[1], second[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


class HostValues:
    """Polynomials of host expressions. ``known`` maps the text of an expression to its bounds. ``checks`` are
    comparisons of an expression with a number that are true wherever the polynomials are used."""

    def __init__(self, known: Mapping[str, Bounds], checks: Iterable[str] = ()) -> None:
        self.known = {_normal(text): bounds for text, bounds in known.items()}
        #: Polynomials that are known to be at least 0.
        self.not_negative: list[Poly] = []
        checked = [bounds_of_check(check) for check in checks]
        # An atom contains its bounds. So all bounds must be known before the first polynomial is made.
        for text, bounds in checked:
            self.known[text] = narrowed(self.known.get(text, (None, None)), bounds)
        for text, (low, high) in checked:
            poly = self.poly(text)
            if low is not None:
                self._note(poly - low)
            if high is not None:
                self._note(constant(high) - poly)

    def poly(self, value: int | str) -> Poly:
        """The polynomial of a number or an expression."""
        if isinstance(value, int):
            return constant(value)
        try:
            tree = ast.parse(value, mode="eval").body
        except SyntaxError:
            return variable(Atom("unnamed", value))
        try:
            return self._of(tree)
        except TooManyTerms:
            return self._quantity(tree, (None, None))

    def _of(self, tree: ast.expr) -> Poly:
        if isinstance(tree, ast.Constant) and type(tree.value) is int:
            return constant(tree.value)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return -self._of(tree.operand)
        if isinstance(tree, ast.BinOp):
            return self._operation(tree)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
            parts = [interval(self._of(each)) for each in tree.args]
            if tree.func.id in ("min", "max") and len(parts) > 1:
                return self._quantity(tree, _extreme(tree.func.id, parts))
        return self._quantity(tree, (None, None))

    def _operation(self, tree: ast.BinOp) -> Poly:
        left, right = self._of(tree.left), self._of(tree.right)
        if isinstance(tree.op, ast.Add):
            return self._bounded(tree, left + right)
        if isinstance(tree.op, ast.Sub):
            return self._bounded(tree, left - right)
        if isinstance(tree.op, ast.Mult):
            return self._bounded(tree, left * right)
        divisor = right.value if right.is_constant else 0
        if divisor > 0 and isinstance(tree.op, ast.FloorDiv):
            return self._quotient(tree, left, divisor)
        if divisor > 0 and isinstance(tree.op, ast.Mod):
            return self._quantity(tree, (0, divisor - 1))
        return self._quantity(tree, (None, None))

    def _bounded(self, tree: ast.expr, poly: Poly) -> Poly:
        """The polynomial of a sum or product. The known bounds of the whole may be tighter than those that follow from
        its parts."""
        low, high = self.known.get(ast.unparse(tree), (None, None))
        if low is not None:
            self._note(poly - low)
        if high is not None:
            self._note(constant(high) - poly)
        return poly

    def _note(self, fact: Poly) -> None:
        if not fact.is_constant and fact not in self.not_negative:
            self.not_negative.append(fact)

    def _quotient(self, tree: ast.expr, dividend: Poly, divisor: int) -> Poly:
        if dividend.is_constant:
            return constant(dividend.value // divisor)
        low, high = interval(dividend)
        bounds = None if low is None else low // divisor, None if high is None else high // divisor
        quotient = self._quantity(tree, bounds)
        rest = dividend - quotient * divisor
        for fact in (rest, constant(divisor - 1) - rest):
            self._note(fact)
        return quotient

    def _quantity(self, tree: ast.expr, bounds: Bounds) -> Poly:
        text = ast.unparse(tree)
        bounds = narrowed(bounds, self.known.get(text, (None, None)))
        return variable(Atom("host", text if isinstance(tree, ast.Name) else f"({text})", *bounds))


def bounds_of_check(check: str) -> tuple[str, Bounds]:
    """The expression that a check bounds, and the bounds. Raises `ValueError` if the text is not such a comparison.

    >>> bounds_of_check("n - m > 0"), bounds_of_check("n // 64 <= 132")
    (('n - m', (1, None)), ('n // 64', (None, 132)))
    """
    tree = ast.parse(check, mode="eval").body
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.comparators[0], ast.Constant):
        number = tree.comparators[0].value
        text = ast.unparse(tree.left)
        if type(number) is int and isinstance(tree.ops[0], ast.Gt):
            return text, (number + 1, None)
        if type(number) is int and isinstance(tree.ops[0], ast.LtE):
            return text, (None, number)
    raise ValueError(f"'{check}' does not bound an expression by a number")


def _normal(text: str) -> str:
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError:
        return text


def _extreme(name: str, parts: list[Bounds]) -> Bounds:
    lows, highs = [low for low, _ in parts], [high for _, high in parts]
    known_lows = [low for low in lows if low is not None]
    known_highs = [high for high in highs if high is not None]
    if name == "min":
        return (min(known_lows) if len(known_lows) == len(lows) else None), min(known_highs, default=None)
    return max(known_lows, default=None), (max(known_highs) if len(known_highs) == len(highs) else None)


class Signs:
    """Proves that polynomials over host quantities are positive, or collects checks for it.

    With ``may_check``, a condition on host quantities that cannot be proven becomes a check: a Python expression in
    ``checks``.
    """

    def __init__(self, values: HostValues, *, may_check: bool) -> None:
        self.values = values
        self.may_check = may_check
        self.checks: dict[str, None] = {}
        #: Polynomials that are positive.
        self._positive: set[Poly] = set()
        #: Polynomials of which this is not known → the number of facts (`HostValues.not_negative`) that were tried.
        self._tried: dict[Poly, int] = {}

    def is_positive(self, poly: Poly) -> bool:
        """Whether the polynomial is greater than 0 for all values of its atoms."""
        if poly in self._positive:
            return True
        facts = self.values.not_negative
        tried = self._tried.get(poly)
        is_found = tried is None and _is_plainly_positive(poly)
        if is_found or any(_is_plainly_positive(rest) for fact in facts[tried:] for rest in _less(poly, fact)):
            self._positive.add(poly)
            return True
        self._tried[poly] = len(facts)
        return False

    def ensure_positive(self, polys: list[Poly], *, may_check: bool = True) -> bool:
        """Whether all polynomials are positive: proven, or, if allowed, by checks that are added to ``checks``."""
        open_ = [poly for poly in polys if not self.is_positive(poly)]
        if not open_:
            return True
        if not (self.may_check and may_check) or not all(_is_checkable(poly) for poly in open_):
            return False
        for poly in open_:
            self.checks[f"{poly} > 0"] = None
        return True


#: A check that only bounds quantities from above must leave at least this range, or it would almost never be true.
_ROOM = 1 << 16


def _is_checkable(poly: Poly) -> bool:
    if poly.is_constant or not all(atom.kind == "host" for atom in poly.atoms):
        return False
    return poly.value >= _ROOM or any(coefficient > 0 for monomial, coefficient in poly.terms if monomial)


def _is_plainly_positive(poly: Poly) -> bool:
    low, _ = interval(poly)
    if low is not None and low > 0:
        return True
    if any(atom.low is None for atom in poly.atoms):
        return False
    # Write each quantity as its least value plus a quantity that is not negative.
    shifted = {atom: variable(Atom("rest", atom.name, 0)) + atom.low for atom in poly.atoms if atom.low}
    try:
        moved = poly.substitute(shifted)
    except TooManyTerms:
        return False
    return moved.value > 0 and all(coefficient >= 0 for _, coefficient in moved.terms)


def _less(poly: Poly, fact: Poly) -> list[Poly]:
    """``poly`` minus positive multiples of ``fact``, which is at least 0. The multiples cancel a negative term, or a
    positive term that may have no other bounds."""
    have = dict(fact.terms)
    differences: list[Poly] = []
    for monomial, coefficient in poly.terms:
        divisor = have.get(monomial, 0)
        if monomial and coefficient < 0 and divisor < 0:
            factor = -(coefficient // -divisor)
            differences.append(poly - fact * factor)
        elif monomial and divisor > 0 and coefficient >= divisor:
            differences.append(poly - fact * (coefficient // divisor))
    return differences or [ZERO]
