"""Bit operations over lanes: PTX ISA §9.7.1 (counts, fields), §9.7.8 (logic, shifts), §9.7.9 (mov, prmt).

Computes: and or xor not cnot lop3 shl shr shf prmt popc clz bfind fns brev bfe bfi szext bmsk mov.
Requires: sources as raw bits (`lane_types`). Guarantees: the bits of the GPU; shift counts above the width are clamped.
Undefined in the manual: `fns` with a base above 31; here it finds no bit. Where Hopper differs from the text of the
    manual, the result is that of Hopper: `fns` with the least offset gives 0, and the 64-bit `bfe` and `bfi` read all
    bits of position and size, not only the lowest 8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..ptx.notation import Form
from ..ptx.types import ScalarType
from .lane_types import SIGNED, UNSIGNED, DType, Factory, LaneFunction, Lanes, Results, choose, in_blocks

__all__ = ["FACTORIES"]

_NONE = np.uint32(0xFFFF_FFFF)


def _type(form: Form) -> ScalarType:
    assert form.type is not None, form.text
    return form.type


def _not(form: Form) -> LaneFunction:
    return LaneFunction(lambda a: (~a,))


def _cnot(form: Form) -> LaneFunction:
    return LaneFunction(lambda a: ((a == 0).astype(a.dtype),))


# Logic of three inputs


_Two = Callable[[Lanes, Lanes], Lanes]
_Three = Callable[[Lanes, Lanes, Lanes], Lanes]


@cache
def _lop3(table: int) -> _Three:
    """The function of three words whose truth table is ``table``: bit ``4a + 2b + c`` is the result.

    Split on ``a``: two functions of ``b`` and ``c`` of at most two operations each, then one select.
    """
    low_table, high_table = table & 15, table >> 4
    low, high = _LOP2[low_table], _LOP2[high_table]
    if low_table == high_table:
        return lambda a, b, c: low(b, c)
    if low_table == high_table ^ 15:
        return lambda a, b, c: a ^ low(b, c)
    if low_table == 0:
        return lambda a, b, c: a & high(b, c)
    if high_table == 0:
        return lambda a, b, c: ~a & low(b, c)
    if high_table == 15:
        return lambda a, b, c: a | low(b, c)
    if low_table == 15:
        return lambda a, b, c: ~a | high(b, c)

    def select(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        other = low(b, c)
        return other ^ (a & (high(b, c) ^ other))

    return select


#: The functions of two words by their truth table: bit ``2b + c`` is the result.
_LOP2: tuple[_Two, ...] = (
    lambda b, c: b ^ b,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: ~(b ^ b),
)


def _lop3_bits(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
    first = int(table.flat[0]) & 0xFF
    if table.size == 1 or bool((table == table.flat[0]).all()):
        return _lop3(first)(a, b, c)
    # In PTX the table is an immediate. For tables that differ between lanes, the result is the sum of the minterms.
    result = np.zeros_like(a & b & c & table)
    for index in range(8):
        terms = [word if index & bit else ~word for word, bit in ((a, 4), (b, 2), (c, 1))]
        chosen = np.uint32(0) - ((table >> np.uint32(index)) & np.uint32(1))
        result |= terms[0] & terms[1] & terms[2] & chosen
    return result


def _lop3_plain(form: Form) -> LaneFunction:
    return LaneFunction(lambda a, b, c, table: (_lop3_bits(a, b, c, table),))


def _lop3_pred(form: Form) -> LaneFunction:
    """``d`` as `lop3`, and ``p = (d != 0) or/and f``."""
    join = np.logical_or if form.mods["mode"] == "or" else np.logical_and

    def compute(a: Lanes, b: Lanes, c: Lanes, table: Lanes, f: Lanes) -> Results:
        result = _lop3_bits(a, b, c, table)
        return result, join(result != 0, f)

    return LaneFunction(compute)


# Shifts


def _count(count: Lanes, dtype: DType, most: int) -> Lanes:
    return np.minimum(count, np.uint32(most)).astype(dtype)


def _shl(form: Form) -> LaneFunction | None:
    scalar = _type(form)
    if scalar.bits not in (16, 32, 64):
        return None

    def compute(a: Lanes, count: Lanes) -> Results:
        shifted = a << _count(count, a.dtype, scalar.bits - 1)
        return (np.where(count >= scalar.bits, a.dtype.type(0), shifted),)

    return LaneFunction(compute)


def _shr(form: Form) -> LaneFunction:
    scalar = _type(form)

    def logical(a: Lanes, count: Lanes) -> Results:
        shifted = a >> _count(count, a.dtype, scalar.bits - 1)
        return (np.where(count >= scalar.bits, a.dtype.type(0), shifted),)

    def arithmetic(a: Lanes, count: Lanes) -> Results:
        number = SIGNED[scalar.bits]
        return ((a.view(number) >> _count(count, number, scalar.bits - 1)).view(a.dtype),)

    return LaneFunction(arithmetic if scalar.kind == "s" else logical)


def _shf(form: Form) -> LaneFunction | None:
    """The upper (`l`) or lower (`r`) word of the 64 bits ``b:a`` shifted by ``c``."""
    clamps, left = form.mods.get("clamp") == "clamp", form.mods["mode"] == "l"
    if clamps == ("wrap" in form.flags):
        return None

    def compute(a: Lanes, b: Lanes, count: Lanes) -> Results:
        pair = (b.astype(np.uint64) << np.uint64(32)) | a
        wide = np.minimum(count, np.uint32(32)) if clamps else count & np.uint32(31)
        shift = wide.astype(np.uint64)
        result = (pair << shift) >> np.uint64(32) if left else pair >> shift
        return (result.astype(np.uint32),)

    return LaneFunction(compute)


# Bytes

_SELECTORS: dict[str, list[list[int]]] = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}


def _byte(pair: Lanes, index: Lanes) -> Lanes:
    return (pair >> (index.astype(np.uint64) << np.uint64(3))) & np.uint64(0xFF)


def _prmt(form: Form) -> LaneFunction:
    mode = form.mods.get("mode")
    steps = np.array(_SELECTORS[mode], dtype=np.uint8) if mode else None

    def compute(a: Lanes, b: Lanes, selector: Lanes) -> Results:
        pair = (b.astype(np.uint64) << np.uint64(32)) | a
        result = np.zeros(np.broadcast_shapes(pair.shape, selector.shape), np.uint64)
        for place in range(4):
            if steps is not None:
                value = _byte(pair, steps[:, place][selector & np.uint32(3)])
            else:
                nibble = selector >> np.uint32(4 * place)
                value = _byte(pair, nibble & np.uint32(7))
                # Bit 3 of a selector replaces the byte by eight copies of its sign.
                spread = (value >> np.uint64(7)) * np.uint64(0xFF)
                value = choose((nibble & np.uint32(8)) != 0, spread, value)
            result |= value << np.uint64(8 * place)
        return (result.astype(np.uint32),)

    return LaneFunction(in_blocks(compute))


# Counts and positions


def _ones(bits: Lanes) -> Lanes:
    """The number of set bits of 64-bit words, by adding adjacent fields."""
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((bits * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint32)


def _popc(form: Form) -> LaneFunction:
    return LaneFunction(in_blocks(lambda a: (_ones(a.astype(np.uint64)),)))


def length(bits: Lanes) -> Lanes:
    """The position of the highest set bit plus one, 0 for none, as int32, of words of up to 64 bits."""
    if bits.dtype.itemsize < 8:
        return np.frexp(bits.astype(np.float64))[1]
    high = np.frexp((bits >> np.uint64(32)).astype(np.float64))[1]
    low = np.frexp((bits & np.uint64(0xFFFF_FFFF)).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low)


def _clz(form: Form) -> LaneFunction:
    bits = _type(form).bits
    return LaneFunction(lambda a: ((bits - length(a)).astype(np.uint32),))


def _bfind(form: Form) -> LaneFunction:
    scalar, shift = _type(form), "shiftamt" in form.flags

    def compute(a: Lanes) -> Results:
        if scalar.kind == "s":
            a = choose(a.view(SIGNED[scalar.bits]) < 0, ~a, a)
        position = length(a)
        distance = (scalar.bits - position if shift else position - 1).astype(np.uint32)
        return (np.where(position == 0, _NONE, distance),)

    return LaneFunction(compute)


def _fns(form: Form) -> LaneFunction:
    """The position of the ``offset``-th set bit of ``mask``, counted up or down from ``base``; all ones if there is
    none."""

    def compute(mask: Lanes, base: Lanes, offset: Lanes) -> Results:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        step = np.ascontiguousarray(offset).view(np.int32).astype(np.int64)
        ordinal = np.maximum(np.abs(step), 1)
        result = np.full(mask.shape, _NONE)
        for upward in (True, False):
            counted = np.zeros(mask.shape, np.int64)
            for position in range(32) if upward else range(31, -1, -1):
                reached = base <= position if upward else base >= position
                hit = (((mask >> np.uint32(position)) & np.uint32(1)) != 0) & reached & (base < 32)
                counted += hit
                chosen = hit & (counted == ordinal) & ((step >= 0) == upward)
                result = np.where(chosen & ((step != 0) | (base == position)), np.uint32(position), result)
        return (np.where(offset == 0x8000_0000, np.uint32(0), result),)

    return LaneFunction(compute)


def _brev(form: Form) -> LaneFunction:
    scalar = _type(form)
    word = UNSIGNED[scalar.bits].type
    masks = [(1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)]
    fields = [(word(shift), word(mask & ((1 << scalar.bits) - 1))) for shift, mask in masks]

    def compute(a: Lanes) -> Results:
        for shift, mask in fields:
            a = ((a >> shift) & mask) | ((a & mask) << shift)
        return (a.byteswap(),)

    return LaneFunction(compute)


# Fields


def _low_mask(count: Lanes, scalar: ScalarType) -> Lanes:
    """A word with the lowest ``count`` bits set; all bits where ``count`` reaches the width."""
    word = UNSIGNED[scalar.bits]
    ones: Lanes = np.array((1 << scalar.bits) - 1, word)
    wide = np.minimum(count, count.dtype.type(scalar.bits - 1)).astype(word)
    return np.where(count >= scalar.bits, ones, ~(ones << wide))


def _field(count: Lanes, scalar: ScalarType) -> Lanes:
    """The position or size of a field, as the hardware reads it."""
    return np.minimum(count, np.uint32(255)) if scalar.bits == 64 else count & np.uint32(255)


def _bfe(form: Form) -> LaneFunction:
    scalar = _type(form)
    word, most = UNSIGNED[scalar.bits], scalar.bits - 1
    ones: Lanes = np.array((1 << scalar.bits) - 1, word)

    def compute(a: Lanes, position: Lanes, size: Lanes) -> Results:
        start, size = _field(position, scalar), _field(size, scalar)
        inside = np.minimum(start, np.uint32(most)).astype(word)
        mask = _low_mask(size, scalar)
        field = np.where(start > most, word.type(0), a >> inside)
        result = field & mask
        if scalar.kind == "s":
            # The last bit of the field, or of the word if the field ends beyond it.
            last = np.minimum(np.maximum(start + size, np.uint32(1)) - np.uint32(1), np.uint32(most)).astype(word)
            negative = (((a >> last) & word.type(1)) != 0) & (size != 0)
            # Bits of the field that are beyond the word are copies of the sign, too.
            above = np.where(start > most, ones, ~(ones >> inside))
            result = choose(negative, result | ~mask | above, result)
        return (result,)

    return LaneFunction(in_blocks(compute))


def _bfi(form: Form) -> LaneFunction:
    scalar = _type(form)
    word, most = UNSIGNED[scalar.bits], scalar.bits - 1

    def compute(a: Lanes, b: Lanes, position: Lanes, size: Lanes) -> Results:
        start, size = _field(position, scalar), _field(size, scalar)
        shift = np.minimum(start, np.uint32(most)).astype(word)
        mask = np.where(start > most, word.type(0), _low_mask(size, scalar) << shift)
        return ((b & ~mask) | ((a << shift) & mask),)

    return LaneFunction(compute)


def _szext(form: Form) -> LaneFunction:
    scalar, clamps = _type(form), form.mods["mode"] == "clamp"

    def compute(a: Lanes, count: Lanes) -> Results:
        size = count & np.uint32(31)
        mask = _low_mask(size, scalar)
        if clamps:
            mask = np.where(count >= 32, _NONE, mask)
        result = a & mask
        if scalar.kind == "s":
            sign = (a >> ((size - np.uint32(1)) & np.uint32(31))) & np.uint32(1)
            result = np.where((sign != 0) & (size != 0), result | ~mask, result)
        return (result,)

    return LaneFunction(compute)


def _bmsk(form: Form) -> LaneFunction:
    scalar = ScalarType("b32", 32, "b")
    clamps = form.mods["mode"] == "clamp"

    def compute(start: Lanes, size: Lanes) -> Results:
        first, count = start & np.uint32(31), size & np.uint32(31)
        result = _low_mask(first + count, scalar) & ~_low_mask(first, scalar)
        if clamps:
            result = np.where(size >= 32, ~_low_mask(first, scalar), result)
            result = np.where(start >= 32, np.uint32(0), result)
        return (result,)

    return LaneFunction(compute)


def _mov(form: Form) -> LaneFunction:
    return LaneFunction(lambda a: (a,))


#: Lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    "bits_and": lambda form: LaneFunction(lambda a, b: (a & b,)),
    "bits_or": lambda form: LaneFunction(lambda a, b: (a | b,)),
    "bits_xor": lambda form: LaneFunction(lambda a, b: (a ^ b,)),
    "bits_not": _not,
    "bits_cnot": _cnot,
    "bits_lop3": _lop3_plain,
    "bits_lop3_pred": _lop3_pred,
    "bits_shl": _shl,
    "bits_shr": _shr,
    "bits_shf": _shf,
    "bits_prmt": _prmt,
    "int_popc": _popc,
    "int_clz": _clz,
    "int_bfind": _bfind,
    "int_fns": _fns,
    "int_brev": _brev,
    "int_bfe": _bfe,
    "int_bfi": _bfi,
    "int_szext": _szext,
    "int_bmsk": _bmsk,
    "move_mov": _mov,
}
