"""Floating-point formats as raw bits, and exact rounding from double precision to the narrower formats.

Computes: the numbers that bits represent, flushed subnormals, sums rounded to odd, and such a sum rounded to f32, f16
    or bf16 in any of the four modes of PTX.
Rounding to odd: truncate, then set the last bit if anything was lost. If a value is rounded to odd in a format that has
    at least two bits more than a narrower format, then rounding the result to that format is the same as rounding the
    exact value (Boldo and Melquiond, 2008). A double has 53 bits; f32 has 24, and its subnormals have fewer.
Guarantees: exact in every mode, also with overflow and subnormals. A NaN becomes the canonical NaN of the format.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.types import ScalarType
from .lane_types import Lanes, choose

__all__ = [
    "CANONICAL",
    "INFINITY",
    "as_float",
    "canonical32",
    "directed",
    "flush_bits",
    "flush_result",
    "product_sum_to_odd",
    "round_to_f32",
    "round_to_half",
    "saturate",
    "sum_to_odd",
    "to_odd",
]

#: The NaN that arithmetic returns, by format.
CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFF_FFFF}

#: The bits of infinity, which are those of the largest exponent.
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}


def flush_bits(bits: Lanes, name: str) -> Lanes:
    """``bits`` of format ``name`` with subnormals replaced by zeros of the same sign."""
    word = bits.dtype.type
    sign = 1 << (8 * bits.dtype.itemsize - 1)
    # Whether 0 < bits < smallest normal number. For zero, the subtraction wraps around, so the comparison is false.
    subnormal = ((bits & word(sign - 1)) - word(1)) < word((INFINITY[name] & -INFINITY[name]) - 1)
    return choose(subnormal, bits & word(sign), bits) if subnormal.any() else bits


def flush_result(bits: Lanes, name: str, mode: str, exact: Callable[[], Lanes]) -> Lanes:
    """A result of format ``name`` (f16, f32) under `.ftz`.

    Hopper decides whether a result is subnormal after rounding it to full precision as if exponents had no limit. So a
    result that is the smallest normal number may have been a smaller value before rounding. In this case ``exact``
    gives the unrounded results.
    """
    word, (precision, exponent) = bits.dtype.type, {"f16": (11, -14), "f32": (24, -126)}[name]
    magnitude = word((1 << (8 * bits.dtype.itemsize - 1)) - 1)
    least = (bits & magnitude) == word(1 << (precision - 1))
    if least.any():
        value, normal = np.abs(exact()), 2.0**exponent
        if mode == "rn":
            tiny = value < normal * (1 - 2.0 ** -(precision + 1))
        else:
            tiny = value <= normal * (1 - 2.0**-precision)
        bits = np.where(least & tiny, bits & ~magnitude, bits)
    return flush_bits(bits, name)


def as_float(scalar: ScalarType, ftz: bool = False) -> Callable[[Lanes], Lanes] | None:
    """A function that converts raw bits of one element of ``scalar`` to numbers: f16 and bf16 to f32, others unchanged.

    ``None`` if ``scalar`` is not one of these formats.
    """
    name = scalar.name.removesuffix("x2")
    if name == "f64":
        return None if ftz else lambda bits: bits.view(np.float64)
    if name == "f32":
        return (lambda bits: flush_bits(bits, name).view(np.float32)) if ftz else (lambda bits: bits.view(np.float32))
    if name == "f16":
        if ftz:
            return lambda bits: flush_bits(bits, name).view(np.float16).astype(np.float32)
        return lambda bits: bits.view(np.float16).astype(np.float32)
    if name == "bf16":
        if ftz:
            return lambda bits: (flush_bits(bits, name).astype(np.uint32) << np.uint32(16)).view(np.float32)
        return lambda bits: (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return None


def canonical32(result: Lanes) -> Lanes:
    """The bits of f32 ``result``, every NaN as the canonical one. ``result`` is overwritten."""
    bits = result.view(np.uint32)
    nan = result != result
    if nan.any():
        np.copyto(bits, np.uint32(CANONICAL["f32"]), where=nan)
    return bits


def saturate(result: Lanes) -> Lanes:
    """``result`` clamped to [+0, 1]; a NaN becomes +0, and so does -0."""
    return np.where(result > 0, np.minimum(result, result.dtype.type(1)), result.dtype.type(0))


def sum_to_odd(a: Lanes, b: Lanes) -> Lanes:
    """``a + b`` of doubles, rounded to odd. Requires: no finite sum overflows. Error-free by Knuth's two-sum."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    return to_odd(total, error)


def to_odd(total: Lanes, error: Lanes) -> Lanes:
    """The double ``total + error`` rounded to odd, where ``error`` is less than half a unit of ``total``."""
    inexact = ((error < 0) | (error > 0)).astype(np.uint64)
    bits = total.view(np.uint64)
    opposite = ((error.view(np.uint64) ^ bits) >> np.uint64(63)) & inexact
    return ((bits - opposite) | inexact).view(np.float64)


def product_sum_to_odd(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """``a * b + c`` rounded to odd, for doubles whose product is exact (up to 26 bits each)."""
    return sum_to_odd(a * b, c)


def directed(bits: Lanes, above: Lanes, below: Lanes, mode: str) -> Lanes:
    """The value nearest to an exact one, changed to that of a directed ``mode`` (rz rm rp), in any format.

    ``above`` and ``below`` state where the nearest value is greater or less than the exact one. In the order of bits,
    infinity follows the largest finite number and zero precedes the smallest, so overflow and underflow need no extra
    code.
    """
    word = bits.dtype.type
    negative = (bits >> word(8 * bits.dtype.itemsize - 1)) != 0
    if mode == "rz":
        inward, outward = np.where(negative, below, above), None
    elif mode == "rm":
        inward, outward = above & ~negative, above & negative
    else:
        inward, outward = below & negative, below & ~negative
    bits = bits - inward.astype(bits.dtype)
    return bits if outward is None else bits + outward.astype(bits.dtype)


def round_to_f32(exact: Lanes, mode: str) -> Lanes:
    """The f32 bits nearest to doubles ``exact`` (rounded to odd) in ``mode`` (rn rz rm rp); canonical NaNs."""
    result = exact.astype(np.float32)
    if mode == "rn":
        return canonical32(result)
    back = result.astype(np.float64)
    return directed(canonical32(result), back > exact, back < exact, mode)


def round_to_half(exact: Lanes, name: str, mode: str) -> Lanes:
    """The bits in format ``name`` (f16, bf16) nearest to doubles ``exact`` (rounded to odd) in ``mode``."""
    nan = exact != exact
    if name == "f16":
        result = exact.astype(np.float16)
        bits = result.view(np.uint16)
        if mode != "rn":
            back = result.astype(np.float64)
            bits = directed(bits, back > exact, back < exact, mode)
    else:
        bits = _round_to_bf16(exact, mode)
    return np.where(nan, np.uint16(CANONICAL[name]), bits) if nan.any() else bits


def _round_to_bf16(exact: Lanes, mode: str) -> Lanes:
    # bf16 is the upper half of f32. So an f32 rounded to odd is rounded as an integer; a carry goes into the exponent.
    towards_zero = round_to_f32(exact, "rz")
    lost = towards_zero.view(np.float32).astype(np.float64) != exact
    word = towards_zero | lost.astype(np.uint32)
    if mode == "rn":
        word = word + (np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1)))
    elif mode != "rz":
        outward = (word >> np.uint32(31)) == (mode == "rm")
        word = word + np.where(outward, np.uint32(0xFFFF), np.uint32(0))
    return (word >> np.uint32(16)).astype(np.uint16)
