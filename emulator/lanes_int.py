"""Integer arithmetic over lanes: PTX ISA §9.7.1 and §9.7.2 (extended precision), and the packed 16-bit forms.

Computes: add, sub, mul, mad, their carry chains, 24-bit products, sad, div, rem, abs, neg, min, max and dot products.
Requires: sources as raw bits (`lane_types`). Guarantees: the bits of the GPU, with results that wrap around.
Undefined in the manual: division by zero; here quotient and remainder are those of Hopper, all ones. The carry flag is
    that of the machine: `sub.cc` and `subc.cc` set it if there is *no* borrow. A program sees this only if a
    subtraction and an addition are in one chain, which the manual does not describe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.notation import Form
from ..ptx.types import ScalarType
from .lane_types import (
    SIGNED,
    UNSIGNED,
    Call,
    Compute,
    Factory,
    LaneFunction,
    Lanes,
    Results,
    by_parts,
    choose,
    in_blocks,
    typed,
    without_warnings,
)

__all__ = ["FACTORIES"]

_Product = Callable[[Lanes, Lanes], Lanes]


def _plain(compute: Compute) -> LaneFunction:
    return LaneFunction(compute)


def _type(form: Form) -> ScalarType:
    assert form.type is not None, form.text
    return form.type


def _add(form: Form) -> LaneFunction:
    return _plain(by_parts(_type(form), lambda a, b: (a + b,)))


def _sub(form: Form) -> LaneFunction:
    return _plain(by_parts(_type(form), lambda a, b: (a - b,)))


def _clamp_s32(wide: Lanes) -> Lanes:
    return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)


def _wide_s32(bits: Lanes) -> Lanes:
    return bits.view(np.int32).astype(np.int64)


def _add_sat(form: Form) -> LaneFunction:
    return _plain(lambda a, b: (_clamp_s32(_wide_s32(a) + _wide_s32(b)),))


def _sub_sat(form: Form) -> LaneFunction:
    return _plain(lambda a, b: (_clamp_s32(_wide_s32(a) - _wide_s32(b)),))


def _add_with_carry(a: Lanes, b: Lanes, carry: Lanes) -> tuple[Lanes, Lanes]:
    partial = a + b
    total = partial + carry.astype(partial.dtype)
    return total, (partial < a) | (total < partial)


def _add_cc(form: Form) -> LaneFunction:
    def compute(a: Lanes, b: Lanes) -> Results:
        total = a + b
        return total, total < a

    return LaneFunction(compute, writes_carry=True)


def _sub_cc(form: Form) -> LaneFunction:
    return LaneFunction(lambda a, b: (a - b, a >= b), writes_carry=True)


def _chained(form: Form, compute: Compute) -> LaneFunction:
    """A form that reads the carry, and writes it only with ``.cc``."""
    if "cc" in form.flags:
        return LaneFunction(compute, reads_carry=True, writes_carry=True)
    call: Call = compute

    def without_flag(*sources: Lanes) -> Results:
        return call(*sources)[:1]

    return LaneFunction(without_flag, reads_carry=True)


def _addc(form: Form) -> LaneFunction:
    return _chained(form, _add_with_carry)


def _subc(form: Form) -> LaneFunction:
    def compute(a: Lanes, b: Lanes, carry: Lanes) -> Results:
        return a + ~b + carry.astype(a.dtype), (a > b) | ((a == b) & carry)

    return _chained(form, compute)


def _high_product_u64(a: Lanes, b: Lanes) -> Lanes:
    """The upper 64 bits of a 64 × 64 bit product, by 32-bit halves."""
    low = np.uint64(0xFFFF_FFFF)
    a0, a1, b0, b1 = a & low, a >> 32, b & low, b >> 32
    middle = a1 * b0 + ((a0 * b0) >> 32)
    cross = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> 32) + (cross >> 32)


def _high_product_s64(a: Lanes, b: Lanes) -> Lanes:
    high = _high_product_u64(a, b)
    # For each negative factor, the other factor is subtracted from the unsigned product.
    return high - ((a.view(np.int64) >> 63).view(np.uint64) & b) - ((b.view(np.int64) >> 63).view(np.uint64) & a)


def _widened(scalar: ScalarType, bits: Lanes) -> Lanes:
    """The number in ``bits`` at twice the width, as raw bits."""
    wide = 2 * scalar.bits
    if scalar.kind == "s":
        return bits.view(SIGNED[scalar.bits]).astype(SIGNED[wide]).view(UNSIGNED[wide])
    return bits.astype(UNSIGNED[wide])


def _high_product(scalar: ScalarType) -> _Product:
    if scalar.bits == 64:
        return _high_product_s64 if scalar.kind == "s" else _high_product_u64
    narrow = UNSIGNED[scalar.bits]
    return lambda a, b: ((_widened(scalar, a) * _widened(scalar, b)) >> scalar.bits).astype(narrow)


def _mul_lo(form: Form) -> LaneFunction:
    return _plain(lambda a, b: (a * b,))


def _mul_hi(form: Form) -> LaneFunction:
    high = _high_product(_type(form))
    return _plain(lambda a, b: (high(a, b),))


def _mul_wide(form: Form) -> LaneFunction:
    scalar = _type(form)
    return _plain(lambda a, b: (_widened(scalar, a) * _widened(scalar, b),))


def _mad_lo(form: Form) -> LaneFunction:
    return _plain(lambda a, b, c: (a * b + c,))


def _mad_hi(form: Form) -> LaneFunction:
    high = _high_product(_type(form))
    return _plain(lambda a, b, c: (high(a, b) + c,))


def _mad_wide(form: Form) -> LaneFunction:
    scalar = _type(form)
    return _plain(lambda a, b, c: (_widened(scalar, a) * _widened(scalar, b) + c,))


def _mad_hi_sat(form: Form) -> LaneFunction:
    high = _high_product(_type(form))
    return _plain(lambda a, b, c: (_clamp_s32(_wide_s32(high(a, b)) + _wide_s32(c)),))


def _half_product(form: Form) -> _Product:
    if form.mods["mode"] == "hi":
        return _high_product(_type(form))
    return lambda a, b: a * b


def _mad_cc(form: Form) -> LaneFunction:
    product = _half_product(form)

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Results:
        total = product(a, b) + c
        return total, total < c

    return LaneFunction(compute, writes_carry=True)


def _madc(form: Form) -> LaneFunction:
    product = _half_product(form)
    return _chained(form, lambda a, b, c, carry: _add_with_carry(product(a, b), c, carry))


def _product_24(form: Form) -> _Product:
    """The lower or the upper 32 of the 48 bits of a product of 24-bit numbers."""
    signed = _type(form).kind == "s"
    shift = 16 if form.mods["mode"] == "hi" else 0

    def number(bits: Lanes) -> Lanes:
        if signed:
            return ((bits << 8).view(np.int32) >> 8).astype(np.int64)
        return (bits & np.uint32(0xFF_FFFF)).astype(np.int64)

    return lambda a, b: ((number(a) * number(b)) >> shift).astype(np.uint32)


def _mul24(form: Form) -> LaneFunction:
    product = _product_24(form)
    return _plain(lambda a, b: (product(a, b),))


def _mad24(form: Form) -> LaneFunction | None:
    product = _product_24(form)
    if "sat" not in form.flags:
        return _plain(lambda a, b, c: (product(a, b) + c,))
    if form.mods["mode"] != "hi" or _type(form).kind != "s":
        return None
    return _plain(lambda a, b, c: (_clamp_s32(_wide_s32(product(a, b)) + _wide_s32(c)),))


def _sad(form: Form) -> LaneFunction:
    number = typed(_type(form))

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Results:
        return (c + choose(a.view(number) < b.view(number), b - a, a - b),)

    return _plain(compute)


def _magnitude(bits: Lanes, number: np.dtype[np.signedinteger]) -> Lanes:
    return choose(bits.view(number) < 0, ~bits + bits.dtype.type(1), bits)


def _divide(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Unsigned quotient and remainder; for a zero divisor all ones, and the dividend."""
    by_zero = b == 0
    quotient = a // np.where(by_zero, b.dtype.type(1), b)
    if by_zero.any():
        quotient = np.where(by_zero, ~b.dtype.type(0), quotient)
    return quotient, a - quotient * b


def _div(form: Form) -> LaneFunction:
    scalar = _type(form)
    if scalar.kind == "u":
        return _plain(in_blocks(without_warnings(lambda a, b: (_divide(a, b)[0],))))
    number = SIGNED[scalar.bits]

    def compute(a: Lanes, b: Lanes) -> Results:
        quotient, _ = _divide(_magnitude(a, number), _magnitude(b, number))
        negative = ((a ^ b).view(number) < 0) & (b != 0)
        return (choose(negative, ~quotient + quotient.dtype.type(1), quotient),)

    return _plain(in_blocks(without_warnings(compute)))


def _rem(form: Form) -> LaneFunction:
    scalar = _type(form)
    number, ones = typed(scalar), ~UNSIGNED[scalar.bits].type(0)

    def compute(a: Lanes, b: Lanes) -> Results:
        if scalar.kind == "u":
            _, remainder = _divide(a, b)
        else:
            _, remainder = _divide(_magnitude(a, number), _magnitude(b, number))
            remainder = choose(a.view(number) < 0, ~remainder + remainder.dtype.type(1), remainder)
        by_zero = b == 0
        return (np.where(by_zero, ones, remainder) if by_zero.any() else remainder,)

    return _plain(in_blocks(without_warnings(compute)))


def _abs(form: Form) -> LaneFunction:
    number = SIGNED[_type(form).bits]
    return _plain(lambda a: (_magnitude(a, number),))


def _neg(form: Form) -> LaneFunction:
    return _plain(lambda a: (~a + a.dtype.type(1),))


def _extreme(form: Form, choose: np.ufunc) -> LaneFunction | None:
    scalar = _type(form)
    number = typed(scalar)
    relu = "relu" in form.flags
    if relu and scalar.name not in ("s32", "s16x2"):
        return None

    def compute(a: Lanes, b: Lanes) -> Results:
        result = choose(a.view(number), b.view(number))
        if relu:
            result = np.maximum(result, number.type(0))
        return (result.view(a.dtype),)

    return _plain(by_parts(scalar, compute))


def _dot(form: Form, count: int) -> LaneFunction | None:
    """``c + Σ aᵢ bᵢ``: bytes of both for dp4a; halves of ``a`` with two bytes of ``b`` for dp2a."""
    if not {form.mods["atype"], form.mods["btype"]} <= {"u32", "s32"}:
        return None
    width = 32 // count
    first = 16 if form.mods.get("mode") == "hi" else 0
    signs = form.mods["atype"] == "s32", form.mods["btype"] == "s32"

    def element(bits: Lanes, start: int, size: int, signed: bool) -> Lanes:
        lifted = bits << np.uint32(32 - size - start)
        if signed:
            return (lifted.view(np.int32) >> (32 - size)).view(np.uint32)
        return lifted >> np.uint32(32 - size)

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Results:
        total = c
        for index in range(count):
            left = element(a, index * width, width, signs[0])
            total = total + left * element(b, first + 8 * index, 8, signs[1])
        return (total,)

    return _plain(compute)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    "int_add": _add,
    "int_add_sat": _add_sat,
    "int_add_cc": _add_cc,
    "int_addc": _addc,
    "int_sub": _sub,
    "int_sub_sat": _sub_sat,
    "int_sub_cc": _sub_cc,
    "int_subc": _subc,
    "int_mul_lo": _mul_lo,
    "int_mul_hi": _mul_hi,
    "int_mul_wide": _mul_wide,
    "int_mad_lo": _mad_lo,
    "int_mad_hi": _mad_hi,
    "int_mad_wide": _mad_wide,
    "int_mad_hi_sat": _mad_hi_sat,
    "int_mad_cc": _mad_cc,
    "int_madc": _madc,
    "int_mul24": _mul24,
    "int_mad24": _mad24,
    "int_sad": _sad,
    "int_div": _div,
    "int_rem": _rem,
    "int_abs": _abs,
    "int_neg": _neg,
    "int_min": lambda form: _extreme(form, np.minimum),
    "int_max": lambda form: _extreme(form, np.maximum),
    "int_dp4a": lambda form: _dot(form, 4),
    "int_dp2a": lambda form: _dot(form, 2),
}
