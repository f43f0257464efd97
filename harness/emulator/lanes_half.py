"""Half-precision arithmetic over lanes (f16, bf16 and their packed forms), and f32 arithmetic with half operands.

Computes: add sub mul fma of PTX ISA §9.7.4, and the mixed-precision add, sub and fma of §9.7.5.
Requires: sources as raw bits (`lane_types`). Guarantees: every bit as on the GPU: one rounding, to nearest even;
    `.ftz` flushes f16 operands and results, `.sat` clamps to [+0, 1] with a NaN as +0, `.relu` turns what is negative
    into +0 and keeps NaNs, which are canonical.
Refuses: `.oob`, whose out-of-bounds NaN the manual does not spell out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ptx.notation import Form
from ...ptx.types import TYPES
from .float_formats import CANONICAL, as_float, flush_bits, product_sum_to_odd, round_to_half, saturate
from .lane_types import Factory, LaneFunction, Lanes, by_parts, quiet
from .lanes_float import add32, fma32

__all__ = ["FACTORIES"]

_Core = Callable[..., Lanes]


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


def _fma(a: Lanes, b: Lanes, c: Lanes, name: str) -> Lanes:
    exact = product_sum_to_odd(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))
    return round_to_half(exact, name, "rn")


# Sums and products of two halves, rounded to f32 first, round to the same half: f32 has more than twice the bits.
_CORES: dict[str, _Core] = {
    "add": lambda a, b, name: _from_f32(a + b, name),
    "sub": lambda a, b, name: _from_f32(a - b, name),
    "mul": lambda a, b, name: _from_f32(a * b, name),
    "fma": _fma,
}


def _arithmetic(form: Form, operation: str) -> LaneFunction | None:
    scalar = form.type
    if scalar is None or form.mods.get("rnd", "rn") != "rn" or "oob" in form.flags:
        return None
    name = scalar.name.removesuffix("x2")
    ftz, sat, relu = ("ftz" in form.flags), ("sat" in form.flags), ("relu" in form.flags)
    if (name == "bf16" and (ftz or sat)) or (relu and sat):
        return None
    core, read, number = _CORES[operation], as_float(scalar, ftz), as_float(scalar)
    if read is None or number is None:
        return None

    def compute(*sources: Lanes) -> tuple[Lanes, ...]:
        bits = core(*[read(source) for source in sources], name)
        if ftz:
            bits = flush_bits(bits, name)
        if sat:
            bits = saturate(bits.view(np.float16)).view(np.uint16)
        if relu:
            # Canonical NaNs are positive, so the sign bit alone says what is below zero.
            bits = np.where(bits >> np.uint16(15), np.uint16(0), bits)
        return (bits,)

    return LaneFunction(by_parts(scalar, quiet(compute)))


def _mixed(form: Form, operation: str) -> LaneFunction | None:
    """f32 arithmetic whose first operands are halves; widening them is exact."""
    mode, half = form.mods.get("rnd", "rn"), form.mods["atype"]
    if form.mods["dtype"] != "f32" or half not in ("f16", "bf16") or mode not in ("rn", "rz", "rm", "rp"):
        return None
    widen, sat = as_float(TYPES[half]), "sat" in form.flags
    assert widen is not None

    def compute(*sources: Lanes) -> tuple[Lanes, ...]:
        last = sources[-1].view(np.float32)
        first = [widen(source) for source in sources[:-1]]
        if operation == "fma":
            bits = fma32(first[0], first[1], last, mode)
        else:
            bits = add32(first[0], -last if operation == "sub" else last, mode)
        if sat:
            bits = saturate(bits.view(np.float32)).view(np.uint32)
        return (bits,)

    return LaneFunction(quiet(compute))


def _named(maker: Callable[[Form, str], LaneFunction | None], operation: str) -> Factory:
    return lambda form: maker(form, operation)


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    **{f"half_{operation}": _named(_arithmetic, operation) for operation in _CORES},
    **{f"mixed_{operation}": _named(_mixed, operation) for operation in ("add", "sub", "fma")},
}
