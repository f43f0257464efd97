"""The operands of the golden results, which are computed from a seed.

Computes: for the kinds of the operands of a form (`f32`, `u16x2`, `count`, …) the values of all lanes: every
    combination of special values, then random values. Guarantees: the bits are the same on every machine and with every
    version of NumPy, since the only generator is SplitMix64 on a counter. All values are uint64, with the operand in
    the low bits.
Random floats have several distributions, since uniform bits almost never cancel, tie or underflow: uniform bits,
    moderate exponents, few fraction bits, pairs whose product or quotient is near the smallest normal number, operands
    that differ by one or two units, and addends that nearly cancel the product.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["COMPARED_LANES", "RANDOM_LANES", "SPECIAL_LANES", "digest_chunk", "lanes_of", "mix", "width_of"]

Lanes = npt.NDArray[Any]

#: The number of random lanes for each form, in addition to special ones.
RANDOM_LANES = 2048
#: The largest number of combinations of special values. For comparisons it is smaller, since they have thousands of
#: forms.
SPECIAL_LANES, COMPARED_LANES = 4096, 1024

_FORMATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52), "tf32": (32, 23)}
_EIGHT = ("e4m3x2", "e5m2x2")
_WIDTHS = {"pred": 1, "count": 32, "base": 32, "offset": 32, "e4m3x2": 16, "e5m2x2": 16}


def mix(words: Lanes) -> Lanes:
    """SplitMix64's finalizer: a bijection of 64-bit words in which every output bit depends on every input bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _draw(seed: int, count: int) -> Lanes:
    counter = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
    return mix(counter * np.uint64(0x9E3779B97F4A7C15))


def width_of(kind: str) -> int:
    """Bits of an operand of ``kind``."""
    if kind in _WIDTHS:
        return _WIDTHS[kind]
    if kind in _FORMATS:
        return _FORMATS[kind][0]
    if kind.endswith("x2"):
        return 2 * width_of(kind[:-2])
    return int(kind[1:])


# Special values


def _float_specials(kind: str) -> list[int]:
    width, fraction = _FORMATS[kind]
    sign, one_exponent = 1 << (width - 1), (1 << (width - 2 - fraction)) - 1
    infinity = (2 * one_exponent + 1) << fraction
    least_normal, quiet = 1 << fraction, 1 << (fraction - 1)
    one = one_exponent << fraction
    values = [
        0,
        one,
        infinity | quiet,
        infinity,
        1,
        least_normal,
        infinity - 1,
        sign,
        sign | one,
        sign | infinity,
        infinity | 1,
        # The half that marks an element outside of a tensor. For other instructions it is a normal NaN.
        infinity | (least_normal - 9),
        least_normal - 1,
        sign | 1,
        sign | infinity | quiet | 5,
        one + 1,
        2 * least_normal - 1,
        sign | (infinity - 1),
        one - 1,
        one + least_normal,
        one - least_normal,
        one + quiet,
        sign | least_normal,
        sign | (least_normal - 1),
        sign | infinity | 1,
        infinity | (least_normal - 1),
        one - quiet,
        least_normal + 1,
        least_normal // 2,
        one + least_normal + quiet,
        one + least_normal + quiet // 2,
        sign | (one + quiet),
        sign | (one - least_normal),
    ]
    # The limits of integer types, and the exponents from which numbers have no fraction.
    for exponent in (fraction, fraction + 1, 7, 8, 15, 16, 31, 32, 63, 64, -14, -24, -25, -126, -133, -149, -150):
        if 0 < exponent + one_exponent <= 2 * one_exponent:
            power = (exponent + one_exponent) << fraction
            values += [power, power - 1, sign | power, sign | (power + 1)]
    return values


def _integer_specials(width: int) -> list[int]:
    mask, top = (1 << width) - 1, 1 << (width - 1)
    values = [0, 1, mask, top, top - 1, 2, mask - 1, top + 1, 0x5555555555555555 & mask, 0xAAAAAAAAAAAAAAAA & mask]
    values += [3, 0x80, 0x7F, 0xFF, 0x8000, 0x7FFF, 0xFFFF, 0x10000, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x800000]
    values += [0xFFFFFF, 0x1000000, mask ^ 0x7F, mask ^ 0x7FFF, mask ^ 0xFF, 0x100, 7, mask - 6, 10, 1000003]
    return list(dict.fromkeys(value & mask for value in values))


_COUNTS = (
    *(0, 1, 31, 32, 33, 63, 64, 255, 2, 7, 8, 15, 16, 17, 30, 47, 48, 62, 65, 127, 128, 256, 257, 288),
    *(0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80000001),
)


@cache
def specials(kind: str) -> tuple[int, ...]:
    """The special values of ``kind``, the most important first."""
    if kind == "pred":
        return (0, 1)
    if kind == "count":
        return _COUNTS
    if kind == "base":
        return (0, 31, 1, 15, 16, 30, 7, 8)
    if kind == "offset":
        return tuple(value & 0xFFFFFFFF for value in (0, 1, -1, 2, -2, 31, -32, 32, -33, 0x7FFFFFFF, -0x80000000, 5))
    if kind in _FORMATS:
        return tuple(dict.fromkeys(_float_specials(kind)))
    if kind.endswith("x2") and kind not in _EIGHT:
        half = specials(kind[:-2])
        shift = width_of(kind[:-2])
        return tuple(low | (half[(7 * index + 3) % len(half)] << shift) for index, low in enumerate(half))
    if kind in _EIGHT:
        return tuple(_integer_specials(16))
    return tuple(_integer_specials(width_of(kind)))


def _combinations(kinds: tuple[str, ...], limit: int) -> list[Lanes]:
    """Every combination of special values. Lists are truncated so that there are at most ``limit`` combinations."""
    sizes = [len(specials(kind)) for kind in kinds]
    most = max(sizes)
    while np.prod([min(size, most) for size in sizes], dtype=np.int64) > limit and most > 2:
        most -= 1
    axes = [np.array(specials(kind)[:most], np.uint64) for kind in kinds]
    return [grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")]


# Random values


def _random_float(kind: str, seed: int, count: int) -> Lanes:
    width, fraction = _FORMATS[kind]
    bits, choice = _draw(seed, count), _draw(seed + 1, count)
    mask = np.uint64((1 << width) - 1)
    word = bits & mask
    middle = (1 << (width - 2 - fraction)) - 1
    sign, digits = word & np.uint64(1 << (width - 1)), word & np.uint64((1 << fraction) - 1)

    def with_exponent(exponent: Lanes, digits: Lanes) -> Lanes:
        inside = np.clip(exponent, 0, 2 * middle + 1).astype(np.uint64)
        return sign | (inside << np.uint64(fraction)) | digits

    spread = (choice >> np.uint64(8)).astype(np.int64) & 0xFFFF
    few = digits & ~np.uint64((1 << max(fraction - 5, 1)) - 1)
    groups = [
        word,
        with_exponent(middle + spread % 13 - 6, digits),
        with_exponent(middle + spread % 7 - 3, few),
        with_exponent(middle + spread % 160 - 70, digits),
        with_exponent(middle + spread % 48 - 28, few | np.uint64(1 << max(fraction - 12, 0))),
        with_exponent(middle - 130 + spread % 30, digits),
    ]
    return np.select([choice % np.uint64(6) == index for index in range(6)], groups, groups[0])


def _random(kind: str, seed: int, count: int) -> Lanes:
    bits, choice = _draw(seed, count), _draw(seed + 1, count)
    if kind in _FORMATS:
        return _random_float(kind, seed, count)
    if kind in _EIGHT:
        return bits & np.uint64(0xFFFF)
    if kind == "pred":
        return bits & np.uint64(1)
    if kind == "count":
        large = np.where(choice & np.uint64(1), bits & np.uint64(0xFFFFFFFF), bits % np.uint64(300))
        return np.where(choice & np.uint64(6), bits % np.uint64(70), large)
    if kind == "base":
        return bits & np.uint64(31)
    if kind == "offset":
        return ((bits % np.uint64(69)) - np.uint64(34)) & np.uint64(0xFFFFFFFF)
    if kind.endswith("x2"):
        half = kind[:-2]
        return _random(half, seed, count) | (_random(half, seed + 500, count) << np.uint64(width_of(half)))
    width = width_of(kind)
    shift = (choice >> np.uint64(4)) % np.uint64(width)
    mask = np.uint64((1 << width) - 1)
    small = (bits & mask) >> shift
    return np.where(choice & np.uint64(1), bits & mask, np.where(choice & np.uint64(2), small, ~small & mask))


def _near(values: Lanes, seed: int, width: int) -> Lanes:
    """``values`` moved by up to two units in the last place, with the sign turned in half of the lanes."""
    choice = _draw(seed, values.size)
    moved = values + (choice % np.uint64(5)) - np.uint64(2)
    flipped = moved ^ ((choice >> np.uint64(32) & np.uint64(1)) << np.uint64(width - 1))
    return flipped & np.uint64((1 << width) - 1)


def _number(bits: Lanes, kind: str) -> Lanes:
    """The value of f32 and f64 ``bits`` as doubles."""
    return bits.view(np.float64) if kind == "f64" else bits.astype(np.uint32).view(np.float32).astype(np.float64)


def _relate(columns: list[Lanes], kinds: tuple[str, ...], seed: int) -> None:
    """In some lanes, computes the second operand from the first, and a third operand that cancels the product."""
    if len(kinds) < 2 or kinds[0] != kinds[1]:
        return
    kind, width = kinds[0], width_of(kinds[0])
    count = RANDOM_LANES // 8
    columns[1][:count] = _near(columns[0][:count], seed, width)
    if kind in ("f16", "f32", "f64"):
        _near_least_normal(columns, kinds, seed + 50, slice(5 * count, 7 * count))
    if kind not in ("f32", "f64"):
        return
    _, fraction = _FORMATS[kind]
    middle = (1 << (width - 2 - fraction)) - 1
    field = np.uint64(2 * middle + 1)
    limits = [
        (slice(count, 2 * count), False),
        (slice(2 * count, 3 * count), True),
        (slice(4 * count, 5 * count), False),
    ]
    for part, quotient in limits:
        exponent = ((columns[0][part] >> np.uint64(fraction)) & field).astype(np.int64)
        target = 1 + (_draw(seed + 1, count) % np.uint64(8)).astype(np.int64) - 6
        wanted = exponent - target + middle if quotient else target - exponent + middle
        others = columns[1][part] & ~(field << np.uint64(fraction))
        columns[1][part] = others | (np.clip(wanted, 0, 2 * middle).astype(np.uint64) << np.uint64(fraction))
    if len(kinds) == 3 and kinds[2] == kind:
        part = slice(3 * count, 5 * count)
        with np.errstate(all="ignore"):
            product = -(_number(columns[0][part], kind) * _number(columns[1][part], kind))
            narrow = product if kind == "f64" else product.astype(np.float32)
        usable = np.isfinite(narrow)
        bits = narrow.view(f"u{width // 8}").astype(np.uint64)
        columns[2][part] = np.where(usable, _near(bits, seed + 2, width), columns[2][part])


def _near_least_normal(columns: list[Lanes], kinds: tuple[str, ...], seed: int, part: slice) -> None:
    """Products near the smallest normal number: flushing before rounding and flushing after it differ here."""
    kind, width = kinds[0], width_of(kinds[0])
    _, fraction = _FORMATS[kind]
    middle = (1 << (width - 2 - fraction)) - 1
    digits = columns[0][part] & np.uint64((1 << fraction) - 1)
    number = f"f{width // 8}"
    # A factor in [1, 2) and its inverse, scaled so that both are normal.
    first = (digits | np.uint64(middle << fraction)).astype(f"u{width // 8}").view(number)
    inverse = (1.0 / first.astype(np.float64)).astype(number)
    down = 2 - (middle // 2) * 2  # the exponent of the smallest normal number, divided between both factors
    low = (down // 2) << fraction
    high = (1 << fraction) - (middle << fraction) - low
    columns[0][part] = first.view(f"u{width // 8}").astype(np.uint64) + np.uint64(low % 2**64)
    moved = inverse.view(f"u{width // 8}").astype(np.uint64) + np.uint64(high % 2**64)
    columns[1][part] = _near(moved, seed, width)
    if len(kinds) == 3 and kinds[2] == kind:
        choice = _draw(seed + 1, digits.size)
        tiny = (choice % np.uint64(4)) * (choice >> np.uint64(62))
        columns[2][part] = tiny | ((choice >> np.uint64(40) & np.uint64(1)) << np.uint64(width - 1))


@cache
def lanes_of(kinds: tuple[str, ...], limit: int = SPECIAL_LANES) -> tuple[Lanes, ...]:
    """The operands of a form whose sources have ``kinds``: one array of uint64 for each, all of one length.

    ``limit`` bounds the combinations of special values. A form with one operand of at most 16 bits gets every value.
    """
    if len(kinds) == 1 and 8 <= width_of(kinds[0]) <= 16:
        return (np.arange(1 << width_of(kinds[0]), dtype=np.uint64),)
    special = _combinations(kinds, limit)
    seed = 1000 * sum((index + 1) * sum(kind.encode()) for index, kind in enumerate(kinds))
    random = [_random(kind, seed + 10 * index, RANDOM_LANES) for index, kind in enumerate(kinds)]
    _relate(random, kinds, seed + 100)
    # The last chunk is filled with random lanes, so that all chunks are whole.
    rest = -(special[0].size + RANDOM_LANES) % 64
    filler = [_random(kind, seed + 200 + 10 * index, rest) for index, kind in enumerate(kinds)]
    return tuple(np.concatenate(parts) for parts in zip(special, random, filler, strict=True))


def digest_chunk(lanes: int) -> int:
    """How many lanes one digest covers."""
    return 1024 if lanes == 1 << 16 else 64
