"""Half-precision arithmetic over lanes (f16, bf16 and their packed forms), and f32 arithmetic with half operands.

Computes: add sub mul fma of PTX ISA §9.7.4, and the mixed-precision add, sub and fma of §9.7.5.
Requires: sources as raw bits (`lane_types`). Guarantees: the bits of the GPU: one rounding, to nearest even; `.ftz`
    flushes f16 operands and results; `.sat` clamps to [+0, 1], and a NaN becomes +0; `.relu` turns negative values into
    +0 and keeps NaNs, which are canonical.
Undefined in the manual: the bits of the out-of-bounds NaN. With `.oob`, a product with this NaN as a factor is +0. On
    Hopper its bits are 0x7FF7 and 0xFFF7.
Refuses: a rounding other than rn. (ptxas 13.0 accepts `fma.rz.bf16`, which is not in the manual, and its code computes
    wrong values.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.notation import Form
from ..ptx.types import TYPES
from .float_formats import CANONICAL, as_float, flush_bits, flush_result, product_sum_to_odd, round_to_half, saturate
from .lane_types import Factory, LaneFunction, Lanes, Results, by_parts, in_blocks, without_warnings
from .lanes_float import add32, fma32

__all__ = ["FACTORIES"]

_Core = Callable[[Lanes, Lanes, str], Lanes]

#: The NaN that stands for an element outside of a tensor, without its sign.
_OUT_OF_BOUNDS = 0x7FF7


def _from_f32(result: Lanes, name: str) -> Lanes:
    """The bits of f32 ``result`` rounded to nearest even; canonical NaNs."""
    if name == "f16":
        bits = result.astype(np.float16).view(np.uint16)
    else:
        word = result.view(np.uint32)
        word = word + (np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1)))
        bits = (word >> np.uint32(16)).astype(np.uint16)
    nan = result != result
    return np.where(nan, np.uint16(CANONICAL[name]), bits) if nan.any() else bits


def _exact(*values: Lanes) -> Lanes:
    """The product of two f32, or the product and sum of three, as doubles rounded to odd."""
    wide = [value.astype(np.float64) for value in values]
    return wide[0] * wide[1] if len(wide) == 2 else product_sum_to_odd(*wide)


# Sums and products of two halves, rounded to f32 first, round to the same half: f32 has more than twice the bits.
_CORES: dict[str, _Core] = {
    "add": lambda a, b, name: _from_f32(a + b, name),
    "sub": lambda a, b, name: _from_f32(a - b, name),
    "mul": lambda a, b, name: _from_f32(a * b, name),
}


def _arithmetic(form: Form, operation: str) -> LaneFunction | None:
    scalar = form.type
    if scalar is None or scalar.name.removesuffix("x2") not in ("f16", "bf16"):
        return None
    if form.mods.get("rnd", "rn") != "rn":
        return None
    name, oob = scalar.name.removesuffix("x2"), "oob" in form.flags
    ftz, sat, relu = ("ftz" in form.flags), ("sat" in form.flags), ("relu" in form.flags)
    if (name == "bf16" and (ftz or sat)) or (relu and sat):
        return None
    core, read = _CORES.get(operation), as_float(scalar, ftz)
    assert read is not None

    def compute(*sources: Lanes) -> Results:
        values = [read(source) for source in sources]
        bits = core(values[0], values[1], name) if core is not None else round_to_half(_exact(*values), name, "rn")
        if ftz and operation in ("mul", "fma"):
            bits = flush_result(bits, name, "rn", lambda: _exact(*values))
        elif ftz:
            bits = flush_bits(bits, name)
        if sat:
            bits = saturate(bits.view(np.float16)).view(np.uint16)
        if relu:
            # Canonical NaNs are positive, so a value is negative if its sign bit is set.
            bits = np.where(bits >> np.uint16(15), np.uint16(0), bits)
        if oob:
            outside = [(source & np.uint16(0x7FFF)) == _OUT_OF_BOUNDS for source in sources[:2]]
            bits = np.where(outside[0] | outside[1], np.uint16(0), bits)
        return (bits,)

    return LaneFunction(in_blocks(by_parts(scalar, without_warnings(compute))))


def _mixed(form: Form, operation: str) -> LaneFunction | None:
    """f32 arithmetic whose first operands are halves; widening them is exact."""
    mode, half = form.mods.get("rnd", "rn"), form.mods["atype"]
    if form.mods["dtype"] != "f32" or half not in ("f16", "bf16") or mode not in ("rn", "rz", "rm", "rp"):
        return None
    widen, sat = as_float(TYPES[half]), "sat" in form.flags
    assert widen is not None

    def compute(*sources: Lanes) -> Results:
        last = sources[-1].view(np.float32)
        first = [widen(source) for source in sources[:-1]]
        if operation == "fma":
            bits = fma32(first[0], first[1], last, mode)
        else:
            bits = add32(first[0], -last if operation == "sub" else last, mode)
        if sat:
            bits = saturate(bits.view(np.float32)).view(np.uint32)
        return (bits,)

    return LaneFunction(in_blocks(without_warnings(compute)))


def _named(maker: Callable[[Form, str], LaneFunction | None], operation: str) -> Factory:
    return lambda form: maker(form, operation)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    **{f"half_{operation}": _named(_arithmetic, operation) for operation in (*_CORES, "fma")},
    **{f"mixed_{operation}": _named(_mixed, operation) for operation in ("add", "sub", "fma")},
}
