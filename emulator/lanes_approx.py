"""Approximate arithmetic over lanes: the rows for which the PTX manual gives an error bound instead of a value.

Computes: rcp sqrt rsqrt div sin cos lg2 ex2 tanh in double precision, rounded once. The error is well within each
    bound, but the bits are not those of a particular GPU. Requires: sources as raw bits (`lane_types`).
Guarantees: for special operands exactly the results in the tables of the manual: zeros, infinities, NaNs, `.ftz`, and
    the range in which a divisor or an argument counts as zero or infinite. The functions are marked ``approximate``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.notation import Form
from .float_formats import as_float, canonical32, flush_bits, round_to_half
from .lane_types import Factory, LaneFunction, Lanes, Results, by_parts, in_blocks, without_warnings
from .lanes_float import double_nan

__all__ = ["FACTORIES"]


def _reciprocal_square_root(a: Lanes) -> Lanes:
    return 1.0 / np.sqrt(a)


_FUNCTIONS: dict[str, Callable[..., Lanes]] = {
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_square_root,
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
    "div": np.divide,
}


def _single(form: Form, name: str) -> LaneFunction | None:
    scalar = form.type
    if scalar is None or scalar.name not in ("f32", "f16", "f16x2", "bf16", "bf16x2"):
        return None
    function, ftz, part = _FUNCTIONS[name], "ftz" in form.flags, scalar.name.removesuffix("x2")
    read = as_float(scalar, ftz)
    # In early PTX, the meaning of a `div` without a modifier depended on the version.
    if read is None or (name == "div" and "mode" not in form.mods):
        return None
    full = form.mods.get("mode") == "full"

    def compute(*sources: Lanes) -> Results:
        values = [read(source).astype(np.float64) for source in sources]
        result = function(*values)
        if name == "div" and not full:
            # The approximate quotient multiplies by a reciprocal that is zero for divisors beyond 2**126.
            huge = (np.abs(values[1]) > 2.0**126) & np.isfinite(values[1])
            lost = np.where(np.isfinite(values[0]), np.copysign(0.0, result), np.nan)
            result = np.where(huge, lost, result)
        if part == "f32":
            bits = canonical32(result.astype(np.float32))
        else:
            bits = round_to_half(result, part, "rn")
        return (flush_bits(bits, part) if ftz else bits,)

    return LaneFunction(in_blocks(by_parts(scalar, without_warnings(compute))), approximate=True)


def _double(form: Form, name: str) -> LaneFunction | None:
    """`rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: the upper 32 bits of the operand give those of the result."""
    function = _FUNCTIONS[name]

    def compute(a: Lanes) -> Results:
        upper = a & np.uint64(0xFFFF_FFFF_0000_0000)
        result = function(flush_bits(upper, "f64").view(np.float64)).view(np.uint64)
        nan = (result & np.uint64(0x7FFF_FFFF_FFFF_FFFF)) > np.uint64(0x7FF0_0000_0000_0000)
        result = flush_bits(result, "f64") & np.uint64(0xFFFF_FFFF_0000_0000)
        return (np.where(nan, np.uint64(0x7FFF_FFFF_0000_0000), result),)

    return LaneFunction(without_warnings(compute), approximate=True)


def _reciprocal_root(form: Form) -> LaneFunction | None:
    """`rsqrt.approx`; the f64 one, emulated in software on the GPU, gives full precision and supports subnormals."""
    if form.type is None or form.type.name != "f64":
        return _single(form, "rsqrt")
    if "ftz" in form.flags:
        return None

    def compute(a: Lanes) -> Results:
        value = a.view(np.float64)
        return (double_nan(1.0 / np.sqrt(value), value),)

    return LaneFunction(without_warnings(compute), approximate=True)


def _named(name: str) -> Factory:
    return lambda form: _single(form, name)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    **{f"float_{name}_approx": _named(name) for name in _FUNCTIONS},
    "float_rsqrt_approx": _reciprocal_root,
    "double_rcp_approx": lambda form: _double(form, "rcp"),
    "double_rsqrt_approx": lambda form: _double(form, "rsqrt"),
}
