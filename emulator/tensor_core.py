"""The arithmetic of a Hopper tensor core for small floats: dot products that are added to an accumulator.

Computes: for arrays of dot products, the bits of `d = a · b + c` on an H200. Requires: raw bits.
Method for f16, bf16 and tf32: products are exact. All of them and the accumulator are aligned to the largest exponent
    among them (at least `_LEAST_EXPONENT`), truncated to `_FRACTION` bits of fraction, and summed exactly. The sum is
    truncated to f32, or rounded to the nearest f16. Subnormal operands and results are not flushed. The exponent of a
    product is the sum of the exponents of its factors, even if its significand is 2 or more. A result of zero is
    positive. NaNs are 0x7fffffff and 0x7fff.
Guarantees: agreement with `tests/golden/sm_90_matrix.npz`. The method is that of public measurements of tensor cores:
    P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", 2025;
    F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["FORMATS", "Format", "Parts", "dot", "parts_of"]

Array: TypeAlias = npt.NDArray[Any]

#: How many bits of fraction, relative to the largest exponent, are kept of an addend.
_FRACTION = 25
#: The least value of the largest exponent. It was measured: no other value gives the recorded bits.
_LEAST_EXPONENT = -133
#: The exponent of a zero: below all others.
_NO_EXPONENT = -(1 << 20)


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: bits of exponent and fraction. Infinities and NaNs have the largest exponent."""

    exponent: int
    fraction: int

    @property
    def bias(self) -> int:
        """What is added to an exponent to store it."""
        return (1 << (self.exponent - 1)) - 1


FORMATS: dict[str, Format] = {
    "f16": Format(5, 10),
    "bf16": Format(8, 7),
    "tf32": Format(8, 10),
    "f32": Format(8, 23),
}


@dataclass(slots=True)
class Parts:
    """The parts of numbers: ``significand`` is signed and has ``fraction`` bits after the point."""

    significand: Array
    exponent: Array
    is_nan: Array
    is_infinite: Array
    fraction: int


def parts_of(bits: Array, format: Format) -> Parts:
    """The parts of the numbers whose raw bits are ``bits``."""
    bits = bits.astype(np.int64)
    fraction = bits & ((1 << format.fraction) - 1)
    biased = (bits >> format.fraction) & ((1 << format.exponent) - 1)
    is_negative = (bits >> (format.fraction + format.exponent)) & 1 == 1
    is_special = biased == (1 << format.exponent) - 1
    significand = np.where(biased == 0, fraction, fraction | (1 << format.fraction))
    exponent = np.maximum(biased, 1) - format.bias
    return Parts(
        np.where(is_negative, -significand, significand),
        np.where(significand == 0, _NO_EXPONENT, exponent),
        is_special & (fraction != 0),
        is_special & (fraction == 0),
        format.fraction,
    )


def dot(a: Parts, b: Parts, c: Parts, result: str) -> Array:
    """``a · b + c`` along the last axis of ``a`` and ``b``, as raw bits of ``result``: ``f32`` or ``f16``."""
    significand = a.significand * b.significand
    exponent = np.where(significand == 0, _NO_EXPONENT, a.exponent + b.exponent)
    largest = np.maximum(np.maximum(exponent.max(axis=-1), c.exponent), _LEAST_EXPONENT)
    total = _aligned(significand, a.fraction + b.fraction, exponent - largest[..., None]).sum(axis=-1)
    total += _aligned(c.significand, c.fraction, c.exponent - largest)
    finite = _truncated(total, largest) if result == "f32" else _rounded(total, largest)
    return _with_specials(a, b, c, finite, result)


def _aligned(significand: Array, fraction: int, distance: Array) -> Array:
    """``significand`` · 2**``distance`` with `_FRACTION` bits of fraction, truncated towards zero."""
    magnitude = np.abs(significand) << np.int64(_FRACTION - min(fraction, _FRACTION))
    distance = np.minimum(-distance + max(fraction - _FRACTION, 0), 63)
    return np.sign(significand) * (magnitude >> distance)


def _truncated(total: Array, exponent: Array) -> Array:
    """``total`` · 2**(``exponent`` - `_FRACTION`) as f32, rounded towards zero."""
    magnitude = np.abs(total)
    length = _bit_length(magnitude)
    top = exponent - _FRACTION + length - 1  # the exponent of the first bit
    last = np.maximum(top, -126) - 23  # the exponent of the last place
    shift = last - (exponent - _FRACTION)
    kept = np.where(shift >= 0, magnitude >> np.clip(shift, 0, 63), magnitude << np.clip(-shift, 0, 63))
    biased = np.where(top < -126, 0, top + 126)
    bits = np.where(magnitude == 0, 0, kept + (biased << 23))
    bits = np.where(top > 127, 0x7F800000, bits)
    return np.where((total < 0) & (bits != 0), bits | 0x80000000, bits).astype(np.uint32)


def _rounded(total: Array, exponent: Array) -> Array:
    """``total`` · 2**(``exponent`` - `_FRACTION`) as f16, rounded to the nearest, ties to even."""
    magnitude = np.abs(total)
    length = _bit_length(magnitude)
    top = exponent - _FRACTION + length - 1
    last = np.maximum(top, -14) - 10
    shift = last - (exponent - _FRACTION)
    right = np.clip(shift, 0, 62)
    kept = np.where(shift >= 0, magnitude >> right, magnitude << np.clip(-shift, 0, 62))
    lost = magnitude - ((magnitude >> right) << right)
    half = (np.int64(1) << right) >> 1
    up = (shift > 0) & ((lost > half) | ((lost == half) & (kept & 1 == 1)))
    kept = kept + up
    biased = np.where(top < -14, 0, top + 14)
    bits = np.where(magnitude == 0, 0, kept + (biased << 10))
    bits = np.minimum(np.where(top > 15, 0x7C00, bits), 0x7C00)
    return np.where((total < 0) & (bits != 0), bits | 0x8000, bits).astype(np.uint16)


def _bit_length(magnitude: Array) -> Array:
    """Bits of each number below 2**62; 0 for 0."""
    return np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)


def _with_specials(a: Parts, b: Parts, c: Parts, finite: Array, result: str) -> Array:
    infinite = a.is_infinite | b.is_infinite
    is_zero = (a.significand == 0) | (b.significand == 0)
    is_nan = (a.is_nan | b.is_nan | (infinite & is_zero)).any(axis=-1) | c.is_nan
    is_negative = (a.significand < 0) ^ (b.significand < 0)
    plus = (infinite & ~is_negative).any(axis=-1) | (c.is_infinite & (c.significand > 0))
    minus = (infinite & is_negative).any(axis=-1) | (c.is_infinite & (c.significand < 0))
    is_nan |= plus & minus
    infinity, nan, sign = (0x7F800000, 0x7FFFFFFF, 0x80000000) if result == "f32" else (0x7C00, 0x7FFF, 0x8000)
    with_infinities = np.where(plus, infinity, np.where(minus, infinity | sign, finite))
    return np.where(is_nan, nan, with_infinities).astype(finite.dtype)
