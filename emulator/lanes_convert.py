"""Conversions over lanes: PTX ISA §9.7.9, `cvt` and `cvt.pack`.

Computes: integer ↔ integer, integer ↔ float, float ↔ float in every rounding mode, rounding to an integer in a float
    format, tf32, e4m3x2 and e5m2x2, packed halves from two f32, and saturating packs.
Requires: sources as raw bits (`lane_types`). Guarantees: the bits of the GPU. A float outside of the range of an
    integer type becomes the nearest integer in it. A NaN becomes what the table of the manual says (`_nan_as_integer`).
    NaNs are canonical, with the exceptions of Hopper in `_nan_of_double` and `_to_tf32`, and those of plain moves.
Refuses: formats and roundings that Hopper does not have (e2m1, e2m3, e3m2, ue8m0, `.rs`), with ``None``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..ptx.notation import Form
from ..ptx.types import TYPES, ScalarType
from . import exact_double
from .float_formats import CANONICAL, INFINITY, as_float, flush_bits, round_to_f32, round_to_half, saturate, sum_to_odd
from .lane_types import (
    SIGNED,
    UNSIGNED,
    Compute,
    Factory,
    LaneFunction,
    Lanes,
    Results,
    in_blocks,
    typed,
    without_warnings,
)

__all__ = ["FACTORIES"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_FLOAT_MODES = ("rn", "rz", "rm", "rp")
_TO_INTEGER: dict[str, Callable[[Lanes], Lanes]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _limits(scalar: ScalarType) -> tuple[int, int]:
    if scalar.kind == "s":
        return -(1 << (scalar.bits - 1)), (1 << (scalar.bits - 1)) - 1
    return 0, (1 << scalar.bits) - 1


# Integer to integer


def _between_integers(source: ScalarType, result: ScalarType, sat: bool) -> Compute:
    number, target = typed(source), typed(result)
    low, high = _limits(source)
    least, most = _limits(result)

    def compute(a: Lanes) -> Results:
        value = a.view(number)
        if sat and (low < least or high > most):
            value = np.clip(value, max(low, least), min(high, most))
        return (value.astype(target).view(UNSIGNED[result.bits]),)

    return compute


# Integer to float


def _exact_double(value: Lanes) -> Lanes:
    """Integers as doubles, rounded to odd where they have more than 53 bits."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    return sum_to_odd(*_two_doubles(value))


def _two_doubles(value: Lanes) -> tuple[Lanes, Lanes]:
    low = (value & value.dtype.type(0xFFFF_FFFF)).astype(np.float64)
    return (value >> value.dtype.type(32)).astype(np.float64) * 4294967296.0, low


def _integer_to_float(source: ScalarType, result: ScalarType, mode: str, sat: bool) -> Compute:
    number, name = typed(source), result.name

    def convert(value: Lanes) -> Lanes:
        if name == "f64":
            if mode == "rn" or source.bits < 64:
                return value.astype(np.float64).view(np.uint64)
            return exact_double.add(*_two_doubles(value), mode).view(np.uint64)
        if name == "f32":
            if mode == "rn":
                return value.astype(np.float32).view(np.uint32)
            return round_to_f32(_exact_double(value), mode)
        return round_to_half(_exact_double(value), name, mode)

    return lambda a: (_saturated(convert(a.view(number)), name, sat),)


def _saturated(bits: Lanes, name: str, sat: bool) -> Lanes:
    """``bits`` of format ``name`` clamped to [+0, 1] where ``sat``."""
    if not sat:
        return bits
    if name == "bf16":
        # Non-negative floats are ordered as their bits are. NaNs are above infinity.
        inside = np.minimum(bits, np.uint16(0x3F80))
        return np.where((bits >> np.uint16(15) != 0) | (bits > 0x7F80), np.uint16(0), inside)
    return saturate(bits.view(f"f{bits.dtype.itemsize}")).view(bits.dtype)


# Float to integer


def _nan_as_integer(source: ScalarType, result: ScalarType) -> int:
    """The bits of the integer that a NaN becomes, by the table of the manual: all zero; but if the source is f64 or the
    result has 64 bits, the sign bit is set."""
    if source.name != "f64" and result.bits != 64:
        return 0
    return 1 << (result.bits - 1)


def _float_to_integer(source: ScalarType, result: ScalarType, mode: str, ftz: bool) -> Compute | None:
    read = as_float(source, ftz and source.name == "f32")
    rounding = _TO_INTEGER.get(mode)
    if read is None or rounding is None:
        return None
    target, word = typed(result), UNSIGNED[result.bits]
    least, most = _limits(result)
    nan_bits = word.type(_nan_as_integer(source, result))

    def compute(a: Lanes) -> Results:
        value = rounding(read(a))
        # `most + 1` and `least` are powers of two or zero, so every float format represents them exactly.
        too_large, too_small = value >= float(most + 1), value < float(least)
        nan = value != value
        odd = too_large | too_small | nan
        if not odd.any():
            return (value.astype(target).view(word),)
        bits = np.where(odd, value.dtype.type(0), value).astype(target).view(word)
        bits = np.where(too_large, word.type(most), bits)
        bits = np.where(too_small, word.type(least & ((1 << result.bits) - 1)), bits)
        return (np.where(nan, nan_bits, bits),)

    return compute


# Float to float


def _widened(source: ScalarType, result: ScalarType, ftz: bool) -> Callable[[Lanes], Lanes]:
    # Hopper does not flush subnormal f32 in a conversion to f16, not even with `.ftz`.
    read = as_float(source, ftz and source.name == "f32" and result.name != "f16")
    assert read is not None
    return lambda bits: read(bits).astype(np.float64)


def _rounded(exact: Lanes, name: str, mode: str) -> Lanes:
    if name == "f64":
        return exact.view(np.uint64)
    if name == "f32":
        return round_to_f32(exact, mode)
    return round_to_half(exact, name, mode)


#: The largest finite number of each format, as bits.
_MOST = {"f16": 0x7BFF, "bf16": 0x7F7F, "f32": 0x7F7F_FFFF, "tf32": 0x7F7F_E000}


def _finite(bits: Lanes, name: str) -> Lanes:
    """``bits`` with infinities replaced by the largest finite number of their sign."""
    word = bits.dtype.type
    sign = bits & word(1 << (8 * bits.dtype.itemsize - 1))
    infinity = INFINITY["f32" if name == "tf32" else name]
    return np.where((bits ^ sign) == infinity, sign | word(_MOST[name]), bits)


def _relu(bits: Lanes) -> Lanes:
    negative = (bits >> bits.dtype.type(8 * bits.dtype.itemsize - 1)) != 0
    return np.where(negative, bits.dtype.type(0), bits)


def _between_floats(form: Form, source: ScalarType, result: ScalarType) -> Compute | None:
    mode, flags = form.mods.get("rnd"), form.flags
    ftz, sat, satfinite, relu = ("ftz" in flags), ("sat" in flags), ("satfinite" in flags), ("relu" in flags)
    name, widen = result.name, _widened(source, result, ftz)
    integral = _TO_INTEGER.get(mode or "")
    if mode is not None and integral is None and mode not in _TO_FLOAT_MODES:
        return None
    narrows = _PRECISION[source.name] > _PRECISION[name] or (source.name, name) in (("bf16", "f16"), ("f16", "bf16"))
    if narrows and (mode is None or integral is not None):
        return None

    if name == "f32" and not (ftz or sat or integral is not None):
        # From bf16 or f32 to f32, only bits are moved. NaNs are not changed.
        if source.name == "f32":
            return lambda a: (a,)
        if source.name == "bf16":
            return lambda a: (a.astype(np.uint32) << np.uint32(16),)

    def compute(a: Lanes) -> Results:
        exact = widen(a)
        if integral is not None:
            exact = integral(exact)
        bits = _rounded(exact, name, "rn" if mode is None or integral is not None else mode)
        if source.name == "f64" and name != "f64":
            bits = _nan_of_double(a, bits, name)
        if ftz and name == "f64":
            bits = np.where(exact != exact, np.uint64(0x7FFF_FFFF_E000_0000), bits)
        if ftz and name == "f32":
            bits = flush_bits(bits, name)
        if satfinite:
            bits = _finite(bits, name)
        bits = _saturated(bits, name, sat)
        return (_relu(bits) if relu else bits,)

    return compute


_PRECISION = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}


def _nan_of_double(a: Lanes, bits: Lanes, name: str) -> Lanes:
    """A NaN of f64 keeps its sign and the upper bits of its payload, and becomes a quiet NaN."""
    nan = (a & np.uint64(0x7FFF_FFFF_FFFF_FFFF)) > INFINITY["f64"]
    if not nan.any():
        return bits
    width, fraction = 8 * bits.dtype.itemsize, _PRECISION[name] - 1
    sign = (a >> np.uint64(63)) << np.uint64(width - 1)
    payload = (a >> np.uint64(52 - fraction)) & np.uint64((1 << fraction) - 1)
    nan_bits = sign | np.uint64(INFINITY[name] | (1 << (fraction - 1))) | payload
    return np.where(nan, nan_bits.astype(bits.dtype), bits)


def _to_tf32(form: Form) -> Compute | None:
    mode, flags = form.mods.get("rnd"), form.flags
    if mode not in ("rna", "rn", "rz") or (mode == "rna" and "relu" in flags):
        return None

    def nan_word(a: Lanes) -> Lanes:
        # The hardware has no instruction for `rna`: ptxas adds and masks, and with .satfinite subtracts one step.
        if mode != "rna":
            return np.full_like(a, 0x7FFF_E000)
        return (a & np.uint32(0xFFFF_E000)) - np.uint32(0x2000 if "satfinite" in flags else 0)

    def compute(a: Lanes) -> Results:
        word = a
        if mode == "rna":
            word = a + np.uint32(0x1000)
        elif mode == "rn":
            word = a + (np.uint32(0xFFF) + ((a >> np.uint32(13)) & np.uint32(1)))
        word = word & np.uint32(0xFFFF_E000)
        magnitude = a & np.uint32(0x7FFF_FFFF)
        nan = magnitude > 0x7F80_0000
        word = np.where(magnitude == 0x7F80_0000, a, word)
        if "satfinite" in flags:
            word = _finite(word, "tf32")
        word = np.where(nan, nan_word(a), word)
        return (_relu(word) if "relu" in flags else word,)

    return compute


# Eight-bit floats

#: Bits of the fraction, the bias, and the code of the largest finite number.
_EIGHT = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B)}


def _to_eight_bits(value: Lanes, name: str, relu: bool) -> Lanes:
    """Doubles rounded to nearest even in an 8-bit format, clamped to its largest number; codes as uint16."""
    fraction, bias, most = _EIGHT[name]
    magnitude = np.minimum(np.abs(value), 1.0e6)
    _, exponent = np.frexp(magnitude)
    exponent = np.where(magnitude == 0, 1 - bias, np.maximum(exponent - 1, 1 - bias))
    steps = np.rint(np.ldexp(magnitude, fraction - exponent))
    steps = np.where(np.isnan(value), 0.0, steps)
    code = steps.astype(np.int64) + ((exponent.astype(np.int64) - (1 - bias)) << fraction)
    code = np.minimum(code, most) | np.where(np.signbit(value), 0x80, 0)
    if relu:
        code = np.where(np.signbit(value), 0, code)
    return np.where(np.isnan(value), 0x7F, code).astype(np.uint16)


@cache
def _eight_bit_table(name: str) -> Lanes:
    """The f16 bits of each code; every 8-bit number is exact in f16."""
    fraction, bias, _ = _EIGHT[name]
    code = np.arange(256)
    magnitude = code & 0x7F
    exponent, steps = magnitude >> fraction, magnitude & ((1 << fraction) - 1)
    steps = np.where(exponent > 0, steps + (1 << fraction), steps)
    value = np.ldexp(steps.astype(np.float64), np.maximum(exponent, 1) - bias - fraction)
    value = np.where(code & 0x80, -value, value)
    with np.errstate(over="ignore"):  # codes beyond the largest number are replaced below
        bits = value.astype(np.float16).view(np.uint16)
    if name == "e5m2":
        bits = np.where(magnitude == 0x7C, (code << 8).astype(np.uint16), bits)
        return np.where(magnitude > 0x7C, np.uint16(CANONICAL["f16"]), bits)
    return np.where(magnitude == 0x7F, np.uint16(CANONICAL["f16"]), bits)


def _f16x2_to_eight_bits(form: Form, name: str) -> Compute | None:
    if form.mods.get("rnd") != "rn" or "satfinite" not in form.flags:
        return None
    relu = "relu" in form.flags

    def compute(a: Lanes) -> Results:
        codes: list[Lanes] = []
        for shift in (0, 16):
            half = (a >> np.uint32(shift)).astype(np.uint16).view(np.float16)
            codes.append(_to_eight_bits(half.astype(np.float64), name, relu))
        return (codes[0] | (codes[1] << np.uint16(8)),)

    return compute


def _eight_bits_to_f16x2(form: Form, name: str) -> Compute | None:
    if form.mods.get("rnd") != "rn":
        return None
    table, relu = _eight_bit_table(name), "relu" in form.flags

    def compute(a: Lanes) -> Results:
        halves = [table[(a >> np.uint16(shift)) & np.uint16(0xFF)] for shift in (0, 8)]
        if relu:
            halves = [_relu(half) for half in halves]
        return (halves[0].astype(np.uint32) | (halves[1].astype(np.uint32) << np.uint32(16)),)

    return compute


# Rows


def _convert(form: Form) -> LaneFunction | None:
    source, result = form.scalar("atype"), form.scalar("dtype")
    compute = _conversion(form, source, result) if source is not None and result is not None else None
    return LaneFunction(in_blocks(without_warnings(compute))) if compute is not None else None


def _conversion(form: Form, source: ScalarType, result: ScalarType) -> Compute | None:
    mode, flags = form.mods.get("rnd"), form.flags
    if "scaled::n2::ue8m0" in flags:
        return None
    if result.name == "tf32":
        return _to_tf32(form) if source.name == "f32" and not flags & {"ftz", "sat"} else None
    eight = result.name.removesuffix("x2")
    if eight in _EIGHT and source.name == "f16x2":
        return _f16x2_to_eight_bits(form, eight)
    eight = source.name.removesuffix("x2")
    if eight in _EIGHT and result.name == "f16x2":
        return _eight_bits_to_f16x2(form, eight)
    if (source.is_float and source.name not in _FLOATS) or (result.is_float and result.name not in _FLOATS):
        return None
    if source.bits not in UNSIGNED or result.bits not in UNSIGNED:
        return None
    if source.is_integer and result.is_integer:
        ok = mode is None and not flags & {"ftz", "satfinite", "relu"}
        return _between_integers(source, result, "sat" in flags) if ok else None
    if source.is_integer and result.is_float:
        ok = mode in _TO_FLOAT_MODES and not flags & {"satfinite", "relu"}
        return _integer_to_float(source, result, mode or "", "sat" in flags) if ok else None
    if source.is_float and result.is_integer:
        return _float_to_integer(source, result, mode or "", "ftz" in flags)
    if source.is_float and result.is_float:
        return _between_floats(form, source, result)
    return None


def _convert_pair(form: Form) -> LaneFunction | None:
    """Two f32; the first becomes the upper half of the result."""
    source, result, mode = form.mods["atype"], form.mods["dtype"], form.mods.get("rnd", "")
    name = result.removesuffix("x2")
    satfinite, relu = "satfinite" in form.flags, "relu" in form.flags
    if source != "f32" or not result.endswith("x2"):
        return None
    if name in _EIGHT:
        if mode != "rn" or not satfinite:
            return None

        def pack_bytes(a: Lanes, b: Lanes) -> Results:
            high, low = [_to_eight_bits(x.view(np.float32).astype(np.float64), name, relu) for x in (a, b)]
            return ((high << np.uint16(8)) | low,)

        return LaneFunction(in_blocks(without_warnings(pack_bytes)))
    if name not in ("f16", "bf16") or mode not in ("rn", "rz"):
        return None

    def half(bits: Lanes) -> Lanes:
        rounded = round_to_half(bits.view(np.float32).astype(np.float64), name, mode)
        if satfinite:
            rounded = _finite(rounded, name)
        return (_relu(rounded) if relu else rounded).astype(np.uint32)

    return LaneFunction(in_blocks(without_warnings(lambda a, b: ((half(a) << np.uint32(16)) | half(b),))))


def _pack(form: Form) -> LaneFunction | None:
    """Two s32 clamped to a narrow type, the first above the second. ``c``, shifted, is above both."""
    result = TYPES[form.mods["dtype"]]
    if "sat" not in form.flags or form.mods["atype"] != "s32" or not result.is_integer:
        return None
    if (result.bits < 16) != ("ctype" in form.mods) or result.bits > 16:
        return None
    least, most = _limits(result)
    mask, width = np.uint32((1 << result.bits) - 1), result.bits

    def clamp(bits: Lanes) -> Lanes:
        return np.clip(bits.view(SIGNED[32]), least, most).view(np.uint32) & mask

    def compute(a: Lanes, b: Lanes, *rest: Lanes) -> Results:
        packed = (clamp(a) << np.uint32(width)) | clamp(b)
        return (packed | (rest[0] << np.uint32(2 * width)) if rest else packed,)

    return LaneFunction(compute)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    "convert": _convert,
    "convert_pair": _convert_pair,
    "convert_pack": _pack,
}
