"""Affine forms and polynomials against the arithmetic that they stand for."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from ptxmotion.analysis.values import affine, polynomial
from ptxmotion.analysis.values.affine import MAX_TERMS, Affine
from ptxmotion.analysis.values.polynomial import MOST_TERMS, Atom, Poly, TooManyTerms
from ptxmotion.ptx import decode

ATOMS = [Atom("word", name) for name in "abcd"]


def value_of(form: Affine, words: list[int]) -> int:
    return (form.constant + sum(factor * words[atom] for atom, factor in form.terms)) % (1 << form.width)


@pytest.mark.parametrize("width", [32, 64])
def test_an_affine_form_has_the_value_of_the_operation(width: int) -> None:
    choose = random.Random(width)
    operations: dict[str, Callable[[int, int], int]] = {
        "add.s": lambda a, b: a + b,
        "sub.s": lambda a, b: a - b,
        "mul.lo.s": lambda a, b: a * b,
        "shl.b": lambda a, b: a << b if b < width else 0,
    }
    made = 0
    for _ in range(400):
        words = [choose.getrandbits(width) for _ in range(4)]
        forms = [affine.atom(width, number) for number in range(4)]
        values = list(words)
        for _ in range(6):
            name = choose.choice(list(operations))
            left, right = choose.randrange(len(forms)), choose.randrange(len(forms))
            constant = choose.choice([0, 1, 5, width - 1, width, -3 % (1 << width)])
            other, by = (
                (affine.constant(width, constant), constant) if choose.random() < 0.5 else (forms[right], values[right])
            )
            find = affine.operation_of(decode(f"{name}{width}", 3))
            assert find is not None
            form = find(forms[left], other)
            if form is None:
                continue
            made += 1
            forms.append(form)
            values.append(operations[name](values[left], by) % (1 << width))
            assert value_of(form, words) == values[-1], name
            assert list(form.terms) == sorted(form.terms) and all(factor for _, factor in form.terms)
        parts = [(choose.randrange(-4, 5), choose.choice(forms)) for _ in range(3)]
        total = affine.weighted_sum(forms[0], parts)
        expected: Affine | None = forms[0]
        for factor, part in parts:
            expected = affine.add(expected, part, factor) if expected is not None else None
        assert total == expected
    assert made > 1000


def test_an_affine_form_has_a_limit() -> None:
    most = affine.weighted_sum(affine.constant(32, 1), [(1, affine.atom(32, number)) for number in range(MAX_TERMS)])
    assert most is not None
    assert affine.add(most, affine.atom(32, MAX_TERMS)) is None
    assert affine.add(most, affine.atom(32, 0), -1) == most._replace(terms=most.terms[1:])
    assert affine.operation_of(decode("add.f32", 3)) is None and affine.operation_of(decode("add.u16x2", 3)) is None


def random_polynomial(choose: random.Random) -> Poly:
    found = polynomial.constant(choose.randrange(-3, 4))
    for _ in range(choose.randrange(4)):
        term = polynomial.constant(choose.randrange(-3, 4))
        for _ in range(choose.randrange(1, 3)):
            term = term * polynomial.variable(choose.choice(ATOMS))
        found = found + term
    return found


def at(poly: Poly, values: dict[Atom, int]) -> int:
    total = 0
    for monomial, factor in poly:
        for atom in monomial:
            factor *= values[atom]
        total += factor
    return total


def test_polynomials_are_computed_with_as_their_values_are() -> None:
    choose = random.Random(7)
    for _ in range(500):
        values = {atom: choose.randrange(-9, 10) for atom in ATOMS}
        one, two = random_polynomial(choose), random_polynomial(choose)
        check_operations(one, two, values)
        check_bounds(one, values, choose)


def check_operations(one: Poly, two: Poly, values: dict[Atom, int]) -> None:
    x, y, a = at(one, values), at(two, values), ATOMS[0]
    results = [at(each, values) for each in (one + two, one - two, -one, one * two, 5 - one)]
    assert results == [x + y, x - y, -x, x * y, 5 - x]
    assert (one == two) == (one - two == polynomial.ZERO)
    assert at(one.substitute({a: two}), values) == at(one, {**values, a: y})
    factor = one.coefficient(a)
    if factor is None:
        assert any(monomial.count(a) > 1 for monomial, _ in one)
    else:
        assert at(factor, values) * values[a] + at(one.without(lambda atom: atom is a), values) == x


def check_bounds(one: Poly, values: dict[Atom, int], choose: random.Random) -> None:
    least, most = one.interval(lambda atom: (values[atom] - 2, values[atom] + 3))
    assert least is not None and most is not None
    for _ in range(5):
        assert least <= at(one, {atom: value + choose.randrange(-2, 4) for atom, value in values.items()}) <= most
    low, high = one.interval(lambda atom: (0, None))
    near = at(one, {atom: abs(value) for atom, value in values.items()})
    assert (low is None or low <= near) and (high is None or near <= high)


def test_a_polynomial_has_a_limit() -> None:
    wide = polynomial.ZERO
    for number in range(MOST_TERMS):
        wide = wide + polynomial.variable(Atom("word", f"v{number}"))
    with pytest.raises(TooManyTerms):
        _ = wide + polynomial.variable(Atom("word", "more"))
    with pytest.raises(TooManyTerms):
        _ = wide * wide
