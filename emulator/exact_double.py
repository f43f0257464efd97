"""Correctly rounded double-precision arithmetic in the four rounding modes of PTX.

Computes: add, mul, fma, div and sqrt of doubles, rounded rn, rz, rm or rp, over arrays.
Guarantees: results are exact for every finite operand, also with overflow, underflow and subnormals. Infinities follow
    IEEE 754. A NaN result is some NaN; the caller chooses which.
Method: the host rounds to nearest. The error of that rounding is computed exactly (two-sum of Knuth, product of
    Dekker, fused multiply-add of Boldo and Melquiond, 2008). Its sign decides whether the nearest value is replaced by
    its neighbour. Where exponents are outside of the range in which these methods are exact, operands are scaled to
    mantissas, and the last rounding is done on integers.
"""

from __future__ import annotations

import numpy as np

from .float_formats import directed, sum_to_odd
from .lane_types import Lanes

__all__ = ["add", "divide", "fma", "multiply", "square_root"]

#: Veltkamp's constant: splits a double into halves of 26 bits.
_SPLIT = np.float64((1 << 27) + 1)
#: The range in which products and their errors are exact.
_MOST, _LEAST = 2.0**990, 2.0**-900
#: A difference of exponents at which the smaller number only decides the direction of rounding.
_FAR = 900


def _two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _two_product(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """``a * b`` and its rounding error, by Dekker. Requires: exponents far from both limits."""
    product = a * b
    shifted = _SPLIT * a
    a_high = shifted - (shifted - a)
    a_low = a - a_high
    shifted = _SPLIT * b
    b_high = shifted - (shifted - b)
    b_low = b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _bits(value: Lanes) -> Lanes:
    return value.view(np.uint64)


def _signed_zero(result: Lanes, a: Lanes, b: Lanes, mode: str) -> Lanes:
    """Under rm a sum that is exactly zero is -0, unless both terms are +0."""
    if mode != "rm":
        return result
    return np.where((result == 0) & (np.signbit(a) | np.signbit(b)), -0.0, result)


def add(a: Lanes, b: Lanes, mode: str) -> Lanes:
    """``a + b`` rounded in ``mode``."""
    total = a + b
    if mode == "rn":
        return total
    larger = np.abs(a) >= np.abs(b)
    big, small = np.where(larger, a, b), np.where(larger, b, a)
    # If the sum overflows, the error is an infinity of the opposite sign, since the exact sum of finite operands is
    # finite.
    error = small - (total - big)
    rounded = directed(_bits(_signed_zero(total, a, b, mode)), error < 0, error > 0, mode)
    return rounded.view(np.float64)


def multiply(a: Lanes, b: Lanes, mode: str) -> Lanes:
    """``a * b`` rounded in ``mode``."""
    product = a * b
    if mode == "rn":
        return product
    a_mantissa, a_exponent = np.frexp(a)
    b_mantissa, b_exponent = np.frexp(b)
    high, error = _two_product(a_mantissa, b_mantissa)
    distance = np.ldexp(product, -(a_exponent + b_exponent)) - high
    finite = np.isfinite(a) & np.isfinite(b)
    return directed(_bits(product), finite & (distance > error), finite & (distance < error), mode).view(np.float64)


def _compare_scaled(high: Lanes, low: Lanes, shift: Lanes, mantissa: Lanes) -> tuple[Lanes, Lanes]:
    """Where ``(high + low) * 2**shift`` is greater than ``mantissa``, and where it is less. Mantissas are in [0, 1)."""
    shift = np.clip(shift, -60, 60)
    distance, error = np.ldexp(high, shift) - mantissa, -np.ldexp(low, shift)
    return distance > error, distance < error


def divide(a: Lanes, b: Lanes, mode: str) -> Lanes:
    """``a / b`` rounded in ``mode``."""
    quotient = a / b
    if mode == "rn":
        return quotient
    q_mantissa, q_exponent = np.frexp(np.abs(quotient))
    a_mantissa, a_exponent = np.frexp(np.abs(a))
    b_mantissa, b_exponent = np.frexp(np.abs(b))
    high, low = _two_product(q_mantissa, b_mantissa)
    larger, smaller = _compare_scaled(high, low, q_exponent + b_exponent - a_exponent, a_mantissa)
    is_finite = np.isfinite(a) & np.isfinite(b) & (b != 0)
    overflow = np.isinf(quotient)
    larger, smaller = is_finite & (larger | overflow), is_finite & smaller & ~overflow
    negative = np.signbit(quotient)
    above = (larger & ~negative) | (smaller & negative)
    below = (smaller & ~negative) | (larger & negative)
    return directed(_bits(quotient), above, below, mode).view(np.float64)


def square_root(a: Lanes, mode: str) -> Lanes:
    """The square root of ``a`` rounded in ``mode``."""
    root = np.sqrt(a)
    if mode == "rn":
        return root
    mantissa, exponent = np.frexp(root)
    a_mantissa, a_exponent = np.frexp(a)
    high, low = _two_product(mantissa, mantissa)
    larger, smaller = _compare_scaled(high, low, 2 * exponent - a_exponent, a_mantissa)
    is_finite = np.isfinite(a) & (a > 0)
    return directed(_bits(root), is_finite & larger, is_finite & smaller, mode).view(np.float64)


def _exact_terms(a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    """``a * b + c`` as a double and a remainder, which is rounded to odd and at most about one unit of the double."""
    product, product_error = _two_product(a, b)
    inner, inner_error = _two_sum(c, product_error)
    high, low = _two_sum(product, inner)
    return high, sum_to_odd(inner_error, low)


def _is_easy(a: Lanes, b: Lanes, c: Lanes, product: Lanes) -> Lanes:
    """Where no step of `_exact_terms` overflows, and the error of the product is a multiple of the least subnormal."""
    size = np.abs(product)
    easy = (size < _MOST) & ((size > _LEAST) | (a == 0) | (b == 0))
    return easy & (np.abs(a) < _MOST) & (np.abs(b) < _MOST) & (np.abs(c) < _MOST)


def _all_easy(a: Lanes, b: Lanes, c: Lanes, product: Lanes) -> bool:
    size = np.abs(product)
    if not all(np.max(np.abs(value)) < _MOST for value in (a, b, c)):
        return False
    return bool(np.min(size) > _LEAST) and bool(np.max(size) < _MOST)


def fma(a: Lanes, b: Lanes, c: Lanes, mode: str) -> Lanes:
    """``a * b + c``, rounded once, in ``mode``."""
    product = a * b
    high, rest = _exact_terms(a, b, c)
    total = high + rest
    zero = total == 0
    if zero.any():
        # A sum that is exactly zero has the sign of its terms if both are zero, and is +0 if they cancel.
        total = np.where(zero, np.where(product == 0, product + c, 0.0), total)
    if mode != "rn":
        error = rest - (total - high)
        signed = _bits(_signed_zero(total, product, c, mode))
        total = directed(signed, error < 0, error > 0, mode).view(np.float64)
    if _all_easy(a, b, c, product):
        return total
    easy = _is_easy(a, b, c, product)
    if easy.all():
        return total
    hard = ~easy
    a, b, c, total, hard = np.broadcast_arrays(a, b, c, total, hard)
    total = total.copy()
    total[hard] = _fma_scaled(a[hard], b[hard], c[hard], mode)
    return total


def _fma_scaled(a: Lanes, b: Lanes, c: Lanes, mode: str) -> Lanes:
    """`fma` for any exponents: computed on mantissas, and rounded once, on integers."""
    product = a * b
    zero = (a == 0) | (b == 0)
    finite = np.isfinite(a) & np.isfinite(b)
    simple = np.where(finite & ~zero, c, _signed_zero(product + c, product, c, mode))
    a_mantissa, a_exponent = np.frexp(a)
    b_mantissa, b_exponent = np.frexp(b)
    c_mantissa, c_exponent = np.frexp(c)
    base = a_exponent + b_exponent
    # A zero may have any exponent. That of the product needs no scaling.
    distance = np.where(c == 0, 0, c_exponent - base)
    scale = np.where(distance > _FAR, c_exponent - _FAR, base)
    near = np.clip(distance, -_FAR, _FAR)
    high, rest = _exact_terms(a_mantissa, b_mantissa, np.ldexp(c_mantissa, near))
    result = _round_scaled(high, rest, scale, mode)
    if mode == "rm":
        # Terms that cancel exactly give -0 in this mode.
        result = np.where((high == 0) & (rest == 0), -0.0, result)
    return np.where(finite & ~zero & np.isfinite(c), result, simple)


def _round_scaled(high: Lanes, rest: Lanes, scale: Lanes, mode: str) -> Lanes:
    """``(high + rest) * 2**scale`` rounded in ``mode``, on 62-bit integers with a sticky bit."""
    high, rest = np.where(high == 0, rest, high), np.where(high == 0, 0.0, rest)
    mantissa, exponent = np.frexp(np.abs(high))
    whole = np.ldexp(mantissa, 62).astype(np.int64)
    part = np.ldexp(np.where(high < 0, -rest, rest), 62 - exponent)
    floor = np.floor(part)
    number = (whole + floor.astype(np.int64)) | (part != floor)
    # The value is number · 2**(exponent + scale - 62); a double's last bit has at least the weight 2**-1074.
    length = np.where(number >= 1 << 62, 63, np.where(number >= 1 << 61, 62, 61))
    weight = exponent + scale - 62
    quantum = np.maximum(weight + length - 53, -1074)
    shift = np.minimum(quantum - weight, 64)
    cut = np.minimum(shift, 62)
    kept = np.where(shift > 62, 0, number >> cut)
    lost = number - (kept << cut)
    negative = high < 0
    if mode == "rn":
        half = np.int64(1) << np.minimum(shift - 1, 62)
        up = (shift < 64) & ((lost > half) | ((lost == half) & ((kept & 1) != 0)))
    elif mode == "rz":
        up = np.zeros(high.shape, bool)
    else:
        up = (lost != 0) & (negative == (mode == "rm"))
    magnitude = np.ldexp((kept + up).astype(np.float64), quantum)
    if mode != "rn":
        most = np.finfo(np.float64).max
        outward = np.zeros(high.shape, bool) if mode == "rz" else negative == (mode == "rm")
        magnitude = np.where(np.isinf(magnitude) & ~outward, most, magnitude)
    return np.where(negative, -magnitude, magnitude)
