"""Floating-point lane functions, compared with exact rational arithmetic that is rounded by definition.

The recorded results of a GPU (`test_golden.py`) cover the forms of Hopper. These tests have random operands of every
magnitude, and the forms that Hopper lacks.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.emulator.semantics import resolve
from ptxmotion.ptx.decoding import decode
from ptxmotion.ptx.types import TYPES

Lanes = npt.NDArray[Any]
MODES = ("rn", "rz", "rm", "rp")

#: Width, bits of the fraction, exponent of the smallest normal number.
FORMATS = {"f16": (16, 10, -14), "bf16": (16, 7, -126), "f32": (32, 23, -126), "f64": (64, 52, -1022)}


def run(mnemonic: str, *sources: int, carry: bool = False) -> list[int]:
    """The results for one lane, from the raw bits of its sources."""
    form = decode(mnemonic, len(sources) + 1)
    function = resolve(form)
    assert function is not None, mnemonic
    specs = [spec for spec in form.specs if spec.role == "use"]
    arrays = [
        np.array([bits], dtype_of(form.mods.get(spec.type, spec.type)))
        for spec, bits in zip(specs, sources, strict=True)
    ]
    return [int(result[0]) for result in function(arrays, np.array([carry]))]


def dtype_of(name: str) -> Any:
    """The type of the raw bits of PTX type ``name``."""
    scalar = TYPES[name]
    return np.dtype(bool) if scalar.bits == 1 else np.dtype(f"u{scalar.bits // 8}")


def value_of(bits: int, name: str) -> Fraction:
    """The rational number with the finite representation ``bits``."""
    width, fraction, least = FORMATS[name]
    sign = -1 if bits >> (width - 1) else 1
    exponent, digits = (bits >> fraction) & ((1 << (width - 1 - fraction)) - 1), bits & ((1 << fraction) - 1)
    if exponent:
        digits |= 1 << fraction
    return sign * Fraction(digits) * Fraction(2) ** (max(exponent, 1) - 1 + least - fraction)


def rounded(exact: Fraction, name: str, mode: str, zero_sign: int = 0) -> int:
    """The bits of ``exact`` in format ``name``, by the definition of the rounding mode."""
    width, fraction, least = FORMATS[name]
    sign = 1 << (width - 1)
    if exact == 0:
        return sign * zero_sign
    size, negative = abs(exact), exact < 0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, least)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = size / Fraction(2) ** (exponent - fraction)
    whole = math.floor(steps)
    rest = steps - whole
    away = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if away is None:
        away = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    whole += bool(rest and away)
    bits = ((exponent - least) << fraction) + whole
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    if bits >= infinity:
        to_infinity = mode == "rn" or (mode == "rm" and negative) or (mode == "rp" and not negative)
        bits = infinity if to_infinity else infinity - 1
    return bits | (sign if negative else 0)


def finite_bits(name: str) -> st.SearchStrategy[int]:
    """Finite numbers of all magnitudes; half of them near the limits of the format."""
    width, fraction, _ = FORMATS[name]
    top = (1 << (width - 1 - fraction)) - 2
    exponents = st.one_of(st.integers(0, top), st.sampled_from([0, 1, 2, fraction, top // 2, top - 1, top]))
    digits = st.one_of(
        st.integers(0, (1 << fraction) - 1), st.sampled_from([0, 1, (1 << fraction) - 1, 1 << (fraction - 1)])
    )

    def assemble(sign: int, exponent: int, digits: int) -> int:
        return (sign << (width - 1)) | (exponent << fraction) | digits

    return st.builds(assemble, st.integers(0, 1), exponents, digits)


def sum_zero(terms: list[int], width: int, mode: str) -> int:
    """The sign of a sum that is exactly zero, from the signs of its terms."""
    signs = {term >> (width - 1) for term in terms}
    return signs.pop() if len(signs) == 1 else int(mode == "rm")


@pytest.mark.parametrize(("name", "mode"), [*product(("f32", "f64"), MODES), ("f16", "rn"), ("bf16", "rn")])
def test_fma_is_rounded_once(name: str, mode: str) -> None:
    width = FORMATS[name][0]

    @given(finite_bits(name), finite_bits(name), finite_bits(name), st.integers(-2, 2), st.booleans())
    def check(a: int, b: int, c: int, near: int, cancel: bool) -> None:
        factors = value_of(a, name) * value_of(b, name)
        if cancel and factors:
            c = rounded(-factors, name, "rz") ^ (near & 1)
        exact = factors + value_of(c, name)
        terms = [(a ^ b) & (1 << (width - 1)), c & (1 << (width - 1))]
        zero = sum_zero(terms, width, mode) if factors == 0 or value_of(c, name) == 0 else int(mode == "rm")
        assert run(f"fma.{mode}.{name}", a, b, c) == [rounded(exact, name, mode, zero)]

    check()


@pytest.mark.parametrize(("name", "mode"), [*product(("f32", "f64"), MODES), ("f16", "rn"), ("bf16", "rn")])
def test_sums_and_products_are_rounded_once(name: str, mode: str) -> None:
    width = FORMATS[name][0]

    @given(finite_bits(name), finite_bits(name))
    def check(a: int, b: int) -> None:
        left, right = value_of(a, name), value_of(b, name)
        flipped = b ^ (1 << (width - 1))
        zeros = sum_zero([a, b], width, mode), sum_zero([a, flipped], width, mode), (a ^ b) >> (width - 1)
        assert run(f"add.{mode}.{name}", a, b) == [rounded(left + right, name, mode, zeros[0])]
        assert run(f"sub.{mode}.{name}", a, b) == [rounded(left - right, name, mode, zeros[1])]
        expected = rounded(left * right, name, mode, zeros[2])
        if left * right and expected & ~(1 << (width - 1)) == 0:
            expected = zeros[2] << (width - 1)
        assert run(f"mul.{mode}.{name}", a, b) == [expected]

    check()


@pytest.mark.parametrize(("name", "mode"), list(product(("f32", "f64"), MODES)))
def test_quotients_and_roots_are_rounded_once(name: str, mode: str) -> None:
    width = FORMATS[name][0]

    @given(finite_bits(name), finite_bits(name))
    def check(a: int, b: int) -> None:
        left, right = value_of(a, name), value_of(b, name)
        sign = (a ^ b) >> (width - 1)
        if right:
            assert run(f"div.{mode}.{name}", a, b) == [rounded(left / right, name, mode, sign)]
        if left:
            assert run(f"rcp.{mode}.{name}", a) == [rounded(1 / left, name, mode)]
        (root,) = run(f"sqrt.{mode}.{name}", a & ~(1 << (width - 1)))
        below, above = abs(left), value_of(root, name) ** 2
        if mode in ("rz", "rm"):
            assert above <= below < value_of(root + 1, name) ** 2
        elif mode == "rp":
            assert root == 0 or value_of(root - 1, name) ** 2 < below <= above
        else:
            middle = [(value_of(root, name) + value_of(root + step, name)) / 2 for step in (-1, 1) if root + step >= 0]
            assert all((edge**2 <= below) == (edge < value_of(root, name)) for edge in middle)

    check()


@given(finite_bits("f32"), finite_bits("f32"), finite_bits("f32"), finite_bits("f32"))
def test_packed_singles_are_two_singles(a: int, b: int, c: int, d: int) -> None:
    for mnemonic in ("add.rz{}.{}", "mul.rp{}.{}", "sub.rn{}.{}"):
        for ftz in ("", ".ftz"):
            single = mnemonic.format(ftz, "f32")
            (low,), (high,) = run(single, a, b), run(single, c, d)
            assert run(mnemonic.format(ftz, "f32x2"), a | c << 32, b | d << 32) == [low | high << 32]


@given(finite_bits("f16"), finite_bits("bf16"), finite_bits("f32"))
def test_mixed_precision_widens_first(half: int, brain: int, single: int) -> None:
    for name, bits in (("f16", half), ("bf16", brain)):
        (wide,) = run(f"cvt.f32.{name}", bits)
        for mode in MODES:
            assert run(f"add.{mode}.f32.{name}", bits, single) == run(f"add.{mode}.f32", wide, single)
            assert run(f"sub.{mode}.f32.{name}", bits, single) == run(f"sub.{mode}.f32", wide, single)
            assert run(f"fma.{mode}.sat.f32.{name}", bits, bits, single) == run(
                f"fma.{mode}.sat.f32", wide, wide, single
            )


@given(*[st.one_of(finite_bits("f32"), st.sampled_from([0x7FC00000, 0xFF800001, 0x7F800000]))] * 3)
def test_three_inputs_are_two_steps(a: int, b: int, c: int) -> None:
    for name in ("min", "max"):
        for modifiers in ("", ".ftz", ".NaN", ".ftz.NaN"):
            (first,) = run(f"{name}{modifiers}.f32", a, b)
            assert run(f"{name}{modifiers}.f32", a, b, c) == run(f"{name}{modifiers}.f32", first, c)


def test_infinities_and_nans() -> None:
    infinity, quiet, canonical = 0x7F800000, 0x7FC00001, 0x7FFFFFFF
    assert run("add.f32", infinity, infinity | 1 << 31) == [canonical]
    assert run("mul.rz.f32", infinity, 0) == [canonical]
    assert run("fma.rp.f32", infinity, quiet, 0) == [canonical]
    assert run("add.sat.f32", quiet, 0) == [0]
    assert run("fma.rn.f64", 0x7FE << 52, 0x7FE << 52, 0xFFF << 52) == [0xFFF << 52]
    assert run("fma.rn.f64", 0x7FF << 52, 0, 0x7FF8000000000007) == [0x7FF8000000000007]
    assert run("sqrt.rn.f64", 0xBFF << 52) == [0xFFF8 << 48]
    assert run("max.f32", quiet, struct.unpack("<I", struct.pack("<f", -2.0))[0]) == [0xC0000000]
    assert run("min.NaN.f16", 0x7E01, 0x3C00) == [0x7FFF]


def test_what_has_no_meaning_is_refused() -> None:
    for mnemonic in (
        "mad.f32",
        "fma.rz.bf16",
        "add.sat.f64",
        "rcp.rn.ftz.f64",
        "add.rz.f16",
        "setp.lo.f32",
        "cvt.f32.f64",
    ):
        assert resolve(decode(mnemonic)) is None, mnemonic


def test_one_value_for_all_lanes_broadcasts() -> None:
    function = resolve(decode("fma.rn.f64"))
    assert function is not None
    many = np.array([1.5, 2.5, 1e300], np.float64).view(np.uint64)
    one = np.array([2.0]).view(np.uint64)
    (result,) = function([many, one, np.array([0.5]).view(np.uint64)])
    assert result.view(np.float64).tolist() == [3.5, 5.5, 2e300]
