"""Comparisons and selections over lanes: PTX ISA §9.7.5 and §9.7.6, with their half-precision forms.

Computes: set setp selp slct, and testp of §9.7.3. Requires: sources as raw bits (`lane_types`).
Guarantees: the bits of the GPU. For a NaN, `eq ne lt le gt ge` are false and `equ neu ltu leu gtu geu` are true. `.ftz`
    reads subnormals as zeros of their sign. Packed types are compared element by element.
    `testp.normal` holds for zeros, as the special case in the manual says.
Refuses: a comparison that the type does not have (`lo` of floats, `lt` of bits), with ``None``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ptx.notation import Form
from ..ptx.types import TYPES, ScalarType
from .float_formats import as_float, flush_bits
from .lane_types import SIGNED, UNSIGNED, Factory, LaneFunction, Lanes, Results, choose, typed

__all__ = ["FACTORIES"]

_Relation = Callable[[Lanes, Lanes], Lanes]

_ORDERED: dict[str, _Relation] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_FLOAT: dict[str, _Relation] = {
    **_ORDERED,
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_JOIN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _relation(scalar: ScalarType, name: str, ftz: bool) -> _Relation | None:
    """Comparison ``name`` of two arrays of raw bits of ``scalar`` (one element of a packed type)."""
    if scalar.is_float:
        relation = _FLOAT.get(name)
        read = as_float(scalar, ftz)
        if relation is None or read is None:
            return None

        def compare(a: Lanes, b: Lanes) -> Lanes:
            return relation(read(a), read(b))

        return compare
    if ftz or scalar.lanes > 1 or scalar.bits not in (16, 32, 64):
        return None
    if scalar.kind == "u":
        name = _UNSIGNED_NAMES.get(name, name)
    if name not in _ORDERED or (scalar.kind == "b" and name not in ("eq", "ne")):
        return None
    number, order = typed(scalar), _ORDERED[name]
    return lambda a, b: order(a.view(number), b.view(number))


def _element(scalar: ScalarType) -> ScalarType:
    return TYPES[scalar.name.removesuffix("x2")] if scalar.lanes == 2 else scalar


def _halves(bits: Lanes) -> tuple[Lanes, Lanes]:
    return bits.astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16)


def _setp(form: Form) -> LaneFunction | None:
    scalar = form.type
    if scalar is None:
        return None
    compare = _relation(_element(scalar), form.mods["cmp"], "ftz" in form.flags)
    if compare is None or scalar.name == "f32x2":
        return None
    join = _JOIN.get(form.mods.get("bool", ""))

    def single(a: Lanes, b: Lanes, *rest: Lanes) -> Results:
        holds = compare(a, b)
        if join is None:
            return holds, ~holds
        return join(holds, rest[0]), join(~holds, rest[0])

    def packed(a: Lanes, b: Lanes, *rest: Lanes) -> Results:
        pairs = zip(_halves(a), _halves(b), strict=True)
        low, high = [compare(left, right) for left, right in pairs]
        if join is None:
            return low, high
        return join(low, rest[0]), join(high, rest[0])

    return LaneFunction(packed if scalar.lanes == 2 else single)


#: What `set` writes where the comparison holds.
_TRUE = {
    **dict.fromkeys(["u16", "s16"], 0xFFFF),
    **dict.fromkeys(["u32", "s32"], 0xFFFF_FFFF),
    "f32": 0x3F80_0000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f16x2": 0x3C00,
    "bf16x2": 0x3F80,
}


def _set(form: Form) -> LaneFunction | None:
    scalar, result = form.type, form.scalar("dtype")
    if scalar is None or result is None or result.name not in _TRUE or scalar.name == "f32x2":
        return None
    compare = _relation(_element(scalar), form.mods["cmp"], "ftz" in form.flags)
    if compare is None or (scalar.lanes == 2) != (result.lanes == 2 or (scalar.lanes == 2 and result.bits == 32)):
        return None
    join = _JOIN.get(form.mods.get("bool", ""))
    yes: Lanes = np.array(_TRUE[result.name], UNSIGNED[result.bits])
    no: Lanes = np.zeros((), UNSIGNED[result.bits])
    half = np.uint32(0xFFFF if result.is_integer else _TRUE[result.name])

    def single(a: Lanes, b: Lanes, *rest: Lanes) -> Results:
        holds = compare(a, b)
        if join is not None:
            holds = join(holds, rest[0])
        return (choose(holds, yes, no),)

    def packed(a: Lanes, b: Lanes, *rest: Lanes) -> Results:
        words: list[Lanes] = []
        for left, right in zip(_halves(a), _halves(b), strict=True):
            holds = compare(left, right)
            if join is not None:
                holds = join(holds, rest[0])
            words.append(np.where(holds, half, np.uint32(0)))
        return (words[0] | (words[1] << np.uint32(16)),)

    return LaneFunction(packed if scalar.lanes == 2 else single)


def _selp(form: Form) -> LaneFunction:
    return LaneFunction(lambda a, b, c: (choose(c, a, b),))


def _slct(form: Form) -> LaneFunction | None:
    """``a`` where ``c >= 0``, else ``b``. For a NaN the result is ``b``, for negative zero ``a``."""
    ftz = "ftz" in form.flags
    by = form.mods["atype"]
    if by == "f32":

        def by_sign(a: Lanes, b: Lanes, c: Lanes) -> Results:
            selector = flush_bits(c, "f32") if ftz else c
            return (choose(selector.view(np.float32) >= 0, a, b),)

        return LaneFunction(by_sign)
    if by != "s32" or ftz:
        return None
    return LaneFunction(lambda a, b, c: (choose(c.view(SIGNED[32]) >= 0, a, b),))


def _testp(form: Form) -> LaneFunction | None:
    scalar, test = form.type, form.mods["mode"]
    if scalar is None or scalar.bits not in (32, 64):
        return None
    word = UNSIGNED[scalar.bits].type
    fraction_bits = 23 if scalar.bits == 32 else 52
    magnitude, least = word((1 << (scalar.bits - 1)) - 1), word(1 << fraction_bits)
    infinity = word(((1 << (scalar.bits - 1)) - 1) & ~((1 << fraction_bits) - 1))
    tests: dict[str, Callable[[Lanes], Lanes]] = {
        "finite": lambda m: m < infinity,
        "infinite": lambda m: m == infinity,
        "number": lambda m: m <= infinity,
        "notanumber": lambda m: m > infinity,
        "normal": lambda m: ((m >= least) & (m < infinity)) | (m == 0),
        "subnormal": lambda m: (m < least) & (m != 0),
    }
    holds = tests[test]
    return LaneFunction(lambda a: (holds(a & magnitude),))


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    "compare_set": _set,
    "compare_setp": _setp,
    "compare_selp": _selp,
    "compare_slct": _slct,
    "float_testp": _testp,
}
