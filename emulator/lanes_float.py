"""Single- and double-precision arithmetic over lanes: PTX ISA §9.7.3, the exact rows.

Computes: add sub mul fma mad div rcp sqrt in every rounding mode, abs neg min max (two and three inputs) copysign.
Requires: sources as raw bits (`lane_types`). Guarantees: the bits of the GPU: results are correctly rounded; `.ftz`
    flushes operands and results to zeros of their sign; `.sat` clamps to [+0, 1] and turns a NaN into +0; an f32 NaN is
    canonical. Undefined in the manual: the payload of a NaN. `double_nan` has what Hopper returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..ptx.notation import Form
from . import exact_double
from .float_formats import (
    CANONICAL,
    INFINITY,
    as_float,
    canonical32,
    directed,
    flush_bits,
    flush_result,
    product_sum_to_odd,
    round_to_f32,
    saturate,
    sum_to_odd,
)
from .lane_types import UNSIGNED, Factory, LaneFunction, Lanes, Results, by_parts, choose, in_blocks, without_warnings

__all__ = ["FACTORIES", "add32", "double_nan", "fma32"]

_MODES = ("rn", "rz", "rm", "rp")
#: An operation on the numbers of one to three sources, in a rounding mode.
_Core = (
    Callable[[Lanes, str], Lanes] | Callable[[Lanes, Lanes, str], Lanes] | Callable[[Lanes, Lanes, Lanes, str], Lanes]
)


def _wide(value: Lanes) -> Lanes:
    return value.astype(np.float64)


# Arithmetic in single precision: f32 numbers as operands, f32 bits as results


def add32(a: Lanes, b: Lanes, mode: str) -> Lanes:
    """The f32 bits of ``a + b`` for f32 numbers, rounded in ``mode``."""
    if mode == "rn":
        return canonical32(a + b)
    total = sum_to_odd(_wide(a), _wide(b))
    return _minus_zero(round_to_f32(total, mode), total, a, b, mode)


def _minus_zero(bits: Lanes, total: Lanes, a: Lanes, b: Lanes, mode: str) -> Lanes:
    """Under rm a sum that is exactly zero is -0, unless both terms are +0."""
    if mode != "rm":
        return bits
    return np.where((total == 0) & (np.signbit(a) | np.signbit(b)), np.uint32(0x8000_0000), bits)


def _sub32(a: Lanes, b: Lanes, mode: str) -> Lanes:
    return canonical32(a - b) if mode == "rn" else add32(a, -b, mode)


def _mul32(a: Lanes, b: Lanes, mode: str) -> Lanes:
    return canonical32(a * b) if mode == "rn" else round_to_f32(_wide(a) * _wide(b), mode)


def fma32(a: Lanes, b: Lanes, c: Lanes, mode: str) -> Lanes:
    """The f32 bits of ``a * b + c`` for f32 numbers, rounded once, in ``mode``."""
    a, b, c = _wide(a), _wide(b), _wide(c)
    product = a * b
    if mode == "rn":
        total = product + c
        result = total.astype(np.float32)
        # Rounding twice gives another result only if the double is a tie of f32, or the result has fewer than 24 bits.
        tie = (total.view(np.uint64) & np.uint64(0x1FFF_FFFF)) == np.uint64(0x1000_0000)
        short = (result.view(np.uint32) & np.uint32(0x7FFF_FFFF)) <= np.uint32(0x0080_0000)
        if not tie.any() and not (short.any() and (short & (total != 0)).any()):
            return canonical32(result)
    total = product_sum_to_odd(a, b, c)
    return _minus_zero(round_to_f32(total, mode), total, product, c, mode)


def _div32(a: Lanes, b: Lanes, mode: str) -> Lanes:
    quotient = a / b
    if mode == "rn":
        return canonical32(quotient)
    # The product of the rounded quotient and the divisor is exact in double precision.
    back, exact = _wide(quotient) * _wide(b), _wide(a)
    larger, smaller = back > exact, back < exact
    negative = b < 0
    above, below = np.where(negative, smaller, larger), np.where(negative, larger, smaller)
    return directed(canonical32(quotient), above, below, mode)


def _rcp32(a: Lanes, mode: str) -> Lanes:
    return _div32(np.ones_like(a), a, mode)


def _sqrt32(a: Lanes, mode: str) -> Lanes:
    root = np.sqrt(a)
    if mode == "rn":
        return canonical32(root)
    back, exact = _wide(root) ** 2, _wide(a)
    return directed(canonical32(root), back > exact, back < exact, mode)


# Arithmetic in double precision: f64 numbers as operands, f64 bits as results


_QUIET = np.uint64(0x0008_0000_0000_0000)


def double_nan(result: Lanes, *sources: Lanes) -> Lanes:
    """The bits of f64 ``result``; a NaN is replaced by the one that Hopper computes from ``sources``.

    It is the last of ``sources`` that is a NaN, as a quiet NaN; if none is, the negative NaN without payload.
    """
    bits = result.view(np.uint64)
    nan = result != result
    if not nan.any():
        return bits
    bits = np.where(nan, np.uint64(0xFFF8_0000_0000_0000), bits)
    for source in sources:
        bits = np.where(source != source, source.view(np.uint64) | _QUIET, bits)
    return bits


_CORES: dict[str, tuple[_Core, _Core]] = {
    "add": (add32, lambda a, b, mode: double_nan(exact_double.add(a, b, mode), a, b)),
    "sub": (_sub32, lambda a, b, mode: double_nan(exact_double.add(a, -b, mode), a, b)),
    "mul": (_mul32, lambda a, b, mode: double_nan(exact_double.multiply(a, b, mode), a, b)),
    "fma": (fma32, lambda a, b, c, mode: double_nan(exact_double.fma(a, b, c, mode), a, c, b)),
    "div": (_div32, lambda a, b, mode: double_nan(exact_double.divide(a, b, mode), b, a)),
    "sqrt": (_sqrt32, lambda a, mode: double_nan(exact_double.square_root(a, mode), a)),
    "rcp": (
        _rcp32,
        lambda a, mode: double_nan(exact_double.divide(np.ones_like(a), a, mode), a),
    ),
}


#: Unrounded results as doubles: exact, or rounded to odd, or accurate enough for the comparisons of `flush_result`.
#: Sums
#: and roots are missing: if they are subnormal, they are exact.
_EXACT: dict[str, Callable[..., Lanes]] = {
    "mul": np.multiply,
    "fma": product_sum_to_odd,
    "div": np.divide,
    "rcp": np.reciprocal,
}


def _arithmetic(form: Form, name: str) -> LaneFunction | None:
    scalar = form.type
    if scalar is None or scalar.name not in ("f32", "f64", "f32x2"):
        return None
    if form.op.base == "mad" and "rnd" not in form.mods:
        return None  # the `mad` of the first GPUs, which rounded in another way
    mode = form.mods.get("rnd", "rn")
    ftz, sat = "ftz" in form.flags, "sat" in form.flags
    single = scalar.name != "f64"
    if mode not in _MODES or (not single and (ftz or sat)) or (scalar.lanes == 2 and sat):
        return None
    core: Callable[..., Lanes] = _CORES[name][0 if single else 1]
    read, exact = as_float(scalar, ftz), _EXACT.get(name)
    assert read is not None

    def compute(*sources: Lanes) -> Results:
        values = [read(source) for source in sources]
        bits = core(*values, mode)
        if ftz and exact is not None:
            bits = flush_result(bits, "f32", mode, partial(exact, *map(_wide, values)))
        elif ftz:
            bits = flush_bits(bits, "f32")
        if sat:
            bits = saturate(bits.view(np.float32)).view(np.uint32)
        return (bits,)

    heavy = not (single and mode == "rn" and name in ("add", "sub", "mul", "div", "sqrt"))
    plain = without_warnings(compute)
    return LaneFunction(by_parts(scalar, in_blocks(plain) if heavy and scalar.lanes == 1 else plain))


# Signs, minima and maxima


def _format(form: Form) -> str | None:
    """The element format of a form; ``None`` if the modifiers of the row do not apply to it."""
    if form.type is None or not form.type.is_float:
        return None
    name = form.type.name.removesuffix("x2")
    if "ftz" in form.flags and name not in ("f32", "f16"):
        return None
    return name


def _sign_operation(form: Form, negate: bool) -> LaneFunction | None:
    name, ftz = _format(form), "ftz" in form.flags
    if name is None or form.type is None:
        return None
    bits_in_element = form.type.bits // form.type.lanes
    word = UNSIGNED[bits_in_element].type
    sign, infinity, quiet_bit = (
        word(1 << (bits_in_element - 1)),
        word(INFINITY[name]),
        word(_QUIET if name == "f64" else 0),
    )

    def compute(a: Lanes) -> Results:
        bits = a ^ sign if negate else a & ~sign
        if ftz:
            bits = flush_bits(bits, name)
        nan = (a & ~sign) > infinity
        if nan.any():
            # A NaN becomes the canonical one in the narrow formats. In f64 it keeps its bits, as a quiet NaN.
            bits = np.where(nan, a | quiet_bit if name == "f64" else word(CANONICAL[name]), bits)
        return (bits,)

    return LaneFunction(by_parts(form.type, compute))


def _order(bits: Lanes) -> Lanes:
    """Integers in the order of the floats, with -0 below +0. NaNs must be handled separately."""
    width = 8 * bits.dtype.itemsize
    number = bits.view(np.dtype(f"i{width // 8}"))
    return number ^ ((number >> (width - 1)) & number.dtype.type((1 << (width - 1)) - 1))


def _extreme(form: Form, least: bool) -> LaneFunction | None:
    name = _format(form)
    if name is None or form.type is None or form.type.name == "f32x2":
        return None
    flags = form.flags
    ftz, spread, absolute, xorsign = "ftz" in flags, "NaN" in flags, "abs" in flags, "xorsign" in flags
    three = sum(spec.role == "use" for spec in form.specs) == 3
    if (name == "f64" and flags - {"f64"}) or (xorsign != absolute and not three):
        return None
    width = form.type.bits // form.type.lanes
    word = UNSIGNED[width].type
    sign, infinity = word(1 << (width - 1)), word(INFINITY[name])

    def pair(a: Lanes, b: Lanes) -> Lanes:
        nan_a, nan_b = (a & ~sign) > infinity, (b & ~sign) > infinity
        first = _order(a) < _order(b) if least else _order(a) > _order(b)
        chosen = choose(first, a, b)
        if not (nan_a | nan_b).any():
            return chosen
        nan = b | _QUIET if name == "f64" else word(CANONICAL[name])
        if spread:
            return np.where(nan_a | nan_b, nan, chosen)
        chosen = np.where(nan_a, b, np.where(nan_b, a, chosen))
        return np.where(nan_a & nan_b, nan, chosen)

    def compute(*sources: Lanes) -> Results:
        if ftz:
            sources = tuple(flush_bits(source, name) for source in sources)
        signs = sources[0] ^ sources[1]
        if absolute:
            sources = tuple(source & ~sign for source in sources)
        result = pair(sources[0], sources[1])
        for source in sources[2:]:
            result = pair(result, source)
        if xorsign:
            nan = (result & ~sign) > infinity
            result = np.where(nan, result, (result & ~sign) | (signs & sign))
        return (result,)

    return LaneFunction(in_blocks(by_parts(form.type, compute)))


def _copysign(form: Form) -> LaneFunction | None:
    if form.type is None:
        return None
    sign = UNSIGNED[form.type.bits].type(1 << (form.type.bits - 1))
    return LaneFunction(lambda a, b: ((a & sign) | (b & ~sign),))


def _named(name: str) -> Factory:
    return lambda form: _arithmetic(form, name)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    **{f"float_{name}": _named(name) for name in _CORES},
    "float_abs": lambda form: _sign_operation(form, negate=False),
    "float_neg": lambda form: _sign_operation(form, negate=True),
    "float_min": lambda form: _extreme(form, least=True),
    "float_max": lambda form: _extreme(form, least=False),
    "float_min3": lambda form: _extreme(form, least=True),
    "float_max3": lambda form: _extreme(form, least=False),
    "float_copysign": _copysign,
}
