"""Forms of `mma`: each is tested on whole warps, with operands that are chosen for the format of the elements.

Computes: every form of `mma` that the emulator executes, as a frame for `forms.module_text`; its operands from a seed,
    one column of lanes for each register. Requires: the generator of `operands.mix`.
Guarantees: operands do not depend on the layout of elements in the registers, so they are computed without the
emulator. A tensor core aligns exact products to the largest exponent and truncates the bits below. So most operands
have few different exponents, are powers of two, or have sums that cancel; `_MODES` lists these cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from .forms import load_operand, store_result
from .operands import mix

__all__ = ["Matrix", "columns_of", "matrix_cases"]

Lanes = npt.NDArray[Any]

#: The number of warps for a form with floating-point elements, and for one with integers.
FLOAT_WARPS, INTEGER_WARPS = 512, 64


@dataclass(frozen=True)
class Matrix:
    """One form. ``counts`` are the registers of A, B, C and D; ``elements`` the formats of A, B and C."""

    row: str
    elements: tuple[str, str, str]
    counts: tuple[int, int, int, int]
    detail: str = ""

    @property
    def key(self) -> str:
        return f"{self.row} {self.detail}".rstrip()

    @property
    def width(self) -> int:
        """Bits of a register."""
        return 64 if self.elements[0] == "f64" else 32

    @property
    def kinds(self) -> tuple[str, ...]:
        return (f"b{self.width}",) * sum(self.counts[:3])

    @property
    def results(self) -> tuple[str, ...]:
        return (f"b{self.width}",) * self.counts[3]

    @property
    def warps(self) -> int:
        return FLOAT_WARPS if self.elements[0][0] in "fbet" and self.elements[0] != "b1" else INTEGER_WARPS

    @property
    def body(self) -> list[str]:
        lines: list[str] = []
        names = [load_operand(index, kind, lines) for index, kind in enumerate(self.kinds)]
        count_a, count_b, _, count_d = self.counts
        parts = (names[:count_a], names[count_a : count_a + count_b], names[count_a + count_b :])
        lists = ["{" + ", ".join(part) + "}" for part in parts]
        results = [f"%d{index}" for index in range(count_d)]
        typed = {"f32": "f32", "f64": "f64"}.get(self.elements[2], "b32")
        lines += [f".reg .{typed} {name};" for name in results]
        if typed != "b32":
            # The registers of the accumulator have its type.
            for index, name in enumerate(parts[2]):
                lines.append(f".reg .{typed} %c{index}; mov.b{self.width} %c{index}, {name};")
            lists[2] = "{" + ", ".join(f"%c{index}" for index in range(len(parts[2]))) + "}"
        if self.elements[0] == "f64":
            for letter, part, place in (("a", parts[0], 0), ("b", parts[1], 1)):
                for index, name in enumerate(part):
                    lines.append(f".reg .f64 %{letter}{index}; mov.b64 %{letter}{index}, {name};")
                lists[place] = "{" + ", ".join(f"%{letter}{index}" for index in range(len(part))) + "}"
        lines.append(f"{self.row} {{{', '.join(results)}}}, {', '.join(lists)};")
        for index, name in enumerate(results):
            lines.append(f".reg .b{self.width} %e{index}; mov.b{self.width} %e{index}, {name};")
            store_result(f"b{self.width}", f"%e{index}", lines)
        return lines


#: The number of bits of an element in a register.
_BITS = {
    "b1": 1,
    "s4": 4,
    "u4": 4,
    "s8": 8,
    "u8": 8,
    "e4m3": 8,
    "e5m2": 8,
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f64": 64,
}


def _form(shape: str, a: str, b: str, c: str, *, before: str = "", after: str = "") -> Matrix:
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    width = 64 if a == "f64" else 32
    counts = [m * k * _BITS[a] // (32 * width), k * n * _BITS[b] // (32 * width)]
    accumulators = m * n * {"f16": 16, "f32": 32, "s32": 32, "f64": 64}[c] // (32 * width)
    row = f"mma.sync.aligned.{shape}.row.col{before}.{c}.{a}.{b}.{c}{after}"
    return Matrix(row, (a, b, c), (counts[0], counts[1], accumulators, accumulators))


def _forms() -> Iterator[Matrix]:
    for c in ("f32", "f16"):
        for shape in ("m16n8k8", "m16n8k16"):
            yield _form(shape, "f16", "f16", c)
        for shape, a, b in product(("m16n8k16", "m16n8k32"), ("e4m3", "e5m2"), ("e4m3", "e5m2")):
            yield _form(shape, a, b, c)
    for shape in ("m16n8k8", "m16n8k16"):
        yield _form(shape, "bf16", "bf16", "f32")
    for shape in ("m16n8k4", "m16n8k8"):
        yield _form(shape, "tf32", "tf32", "f32")
    for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"):
        for rounding in ("", ".rn", ".rz", ".rm", ".rp"):
            yield _form(shape, "f64", "f64", "f64", before=rounding)
    for width, shapes in ((8, ("m8n8k16", "m16n8k16", "m16n8k32")), (4, ("m8n8k32", "m16n8k32", "m16n8k64"))):
        for shape, a, b, limit in product(shapes, "su", "su", ("", ".satfinite")):
            yield _form(shape, f"{a}{width}", f"{b}{width}", "s32", before=limit)
    for shape, operation in product(("m8n8k128", "m16n8k128", "m16n8k256"), ("xor", "and")):
        yield _form(shape, "b1", "b1", "s32", after=f".{operation}.popc")
    for layout in ("row.row", "row.col", "col.row", "col.col"):
        row = f"mma.sync.aligned.m8n8k4.{layout}.f32.f16.f16.f32"
        yield Matrix(row, ("f16", "f16", "f32"), (2, 2, 8, 8))
    # Only products that are far below the format of the accumulator.
    for form in _TINY:
        yield Matrix(form.row, form.elements, form.counts, "tiny")


_TINY = (
    _form("m16n8k16", "bf16", "bf16", "f32"),
    _form("m16n8k8", "tf32", "tf32", "f32"),
    _form("m16n8k16", "f16", "f16", "f16"),
    _form("m16n8k32", "e5m2", "e5m2", "f16"),
)


@cache
def matrix_cases() -> dict[str, Matrix]:
    """Every form by its name."""
    return {case.key: case for case in _forms()}


# --- operands --------------------------------------------------------------------------------------------------------

#: Bits of exponent and fraction.
_FORMATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 10),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}


def _draw(seed: int, shape: tuple[int, ...]) -> Lanes:
    count = int(np.prod(shape))
    counter = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
    return mix(counter * np.uint64(0x9E3779B97F4A7C15)).reshape(shape)


@dataclass(frozen=True)
class _Mode:
    """How the elements of a warp are drawn.

    Exponents are from ``low`` to ``high`` relative to that of 1.0, clamped to the range of the format, for A, B and C.
    ``bits`` is the number of random bits of the fraction. One in ``special`` elements is any pattern of bits.
    """

    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]
    keep: int = 1  #: one in this number of elements of A and B is not zero
    bits: int = 64
    special: int = 0
    zero_sign: bool = False


_ALL = (-5000, 5000)
_MODES = (
    _Mode((0, 0), (0, 0), (0, 0)),
    _Mode((-3, 3), (-3, 3), (-3, 6)),
    _Mode((-1, 1), (-1, 1), (-30, 10)),
    _Mode((-8, 8), (-8, 8), (-16, 16)),
    _Mode((-13, 13), (-13, 13), (-26, 26), bits=0),
    _Mode((-8, 8), (-8, 8), (-12, 26), bits=1, keep=2),
    _Mode((-13, 13), (-13, 13), (-26, 26), keep=3),
    _Mode(_ALL, _ALL, _ALL, keep=4),
    _Mode(_ALL, (0, 0), _ALL),
    _Mode((-5000, -5000), (0, 5000), (-5000, -5000)),  # subnormal elements of A
    _Mode((-70, -60), (-70, -60), (-5000, -120)),  # subnormal results
    _Mode((-5000, -5000), (-5000, -5000), (-5000, -5000), keep=2),
    _Mode((5000, 5000), (0, 5000), (0, 5000)),  # results that overflow
    _Mode((60, 66), (60, 66), (120, 127), keep=2),
    _Mode((-3, 3), (-3, 3), (-3, 6), special=24),
    _Mode((-3, 3), (-3, 3), (-3, 6), special=6, keep=3),
    _Mode((0, 0), (0, 0), (0, 0), keep=64, zero_sign=True),
    _Mode((-2, 2), (-2, 2), (20, 28)),
    _Mode((-2, 2), (-2, 2), (-28, -20)),
    _Mode((0, 0), (0, 0), (-24, 4), bits=2),
    _Mode((-60, -60), (60, 60), (-40, 10), keep=2),
    _Mode((-40, -20), (-40, 40), (-5000, -60), keep=4),  # zeros of A are multiplied by large elements of B
    _Mode((0, 0), (0, 0), (-2, 5), bits=0),
    _Mode((-12, 0), (0, 12), (10, 14), bits=3),
)
#: Products below the least subnormal f32, or f16, and an accumulator of zero.
_TINY_MODES = (
    _Mode((-100, -80), (-100, -80), (-5000, -5000), bits=0, keep=2),
    _Mode((-80, -70), (-80, -70), (-5000, -5000), bits=0, keep=8),
)


def _floats(kind: str, exponents: tuple[int, int], mode: _Mode, keep: int, seed: int, shape: tuple[int, ...]) -> Lanes:
    exponent_bits, fraction_bits = _FORMATS[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    largest = (1 << exponent_bits) - (1 if kind == "e4m3" else 2)
    first, second = _draw(seed, shape), _draw(seed + 1, shape)
    low, high = (min(max(value + bias, 0), largest) for value in exponents)
    exponent = np.uint64(low) + first % np.uint64(high - low + 1)
    fraction = (first >> np.uint64(8)) & np.uint64((1 << fraction_bits) - 1)
    if mode.bits < fraction_bits:
        cut = np.uint64(fraction_bits - mode.bits)
        fraction = fraction >> cut << cut
    sign = first >> np.uint64(63)
    value = (exponent << np.uint64(fraction_bits)) | fraction
    if kind == "e4m3":  # its NaN has all bits set
        value = np.minimum(value, np.uint64(0x7E))
    value = np.where(second % np.uint64(keep) == 0, value, np.uint64(0))
    if not mode.zero_sign:
        sign = np.where(value == 0, np.uint64(0), sign)
    value |= sign << np.uint64(exponent_bits + fraction_bits)
    if mode.special:
        # Infinities, NaNs, zeros, and any pattern of bits.
        kinds = np.array([largest + 1, largest + 1, 0, largest], np.uint64) << np.uint64(fraction_bits)
        picked = kinds[(second >> np.uint64(32) & np.uint64(3)).astype(np.int64)]
        picked |= (second >> np.uint64(40) & np.uint64(1)) << np.uint64(exponent_bits + fraction_bits)
        picked |= np.where(second >> np.uint64(41) & np.uint64(7) == 0, fraction, np.uint64(0))
        mask = np.uint64((1 << (exponent_bits + fraction_bits + 1)) - 1)
        value = np.where(second >> np.uint64(48) & np.uint64(0xFFFF) < np.uint64(0xFFFF // mode.special), picked, value)
        value &= mask
    if kind == "tf32":
        # The lower bits of a register do not belong to the number. In most lanes they are zero.
        value = value << np.uint64(13) | np.where(
            second & np.uint64(0xF00) == 0, second >> np.uint64(20) & np.uint64(0x1FFF), np.uint64(0)
        )
    return value


def _integers(kind: str, seed: int, shape: tuple[int, ...], warps: int) -> Lanes:
    """Words of small integers or bits: random, but in every fourth warp only the extremes."""
    words = _draw(seed, shape) & np.uint64(0xFFFF_FFFF)
    width = _BITS.get(kind, 32)
    pick = _draw(seed + 1, (*shape, 32 // width)) % np.uint64(4)
    extremes = np.array([0, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1], np.uint64)
    elements = extremes[pick.astype(np.int64)] << (np.arange(32 // width, dtype=np.uint64) * np.uint64(width))
    extreme = elements.sum(axis=-1, dtype=np.uint64)
    turn = np.arange(warps) % 4 == 3
    near = turn if kind != "s32" else np.arange(warps) % 2 == 1
    if kind == "s32":
        # Accumulators within some thousand of the limits, so that sums saturate or wrap around.
        extreme = (extreme & np.uint64(0x8000_0000)) ^ (np.uint64(0x7FFF_FFFF) - (words & np.uint64(0xFFF)))
    return np.where(near[None, :, None], extreme, words)


def _operand(kind: str, place: int, registers: int, case: Matrix) -> Lanes:
    """The words of operand ``place`` (0 A, 1 B, 2 C) as (registers, lanes)."""
    warps = case.warps
    seed = 500 + 40 * place
    if kind not in _FORMATS:
        return _integers(kind, seed, (registers, warps, 32), warps).reshape(registers, -1)
    width = {"tf32": 32, "f32": 32}.get(kind, _BITS.get(kind, 32))
    per = max(case.width // width, 1)
    words = np.zeros((registers, warps, 32), np.uint64)
    modes = _TINY_MODES if case.detail else _MODES
    for number, mode in enumerate(modes):
        mine = np.arange(warps) % len(modes) == number
        exponents = (mode.a, mode.b, mode.c)[place]
        keep = mode.keep if place < 2 or mode.zero_sign else 1
        shape = (registers, int(mine.sum()), 32, per)
        values = _floats(kind, exponents, mode, keep, seed + 100 * (number + 1), shape)
        shifts = np.arange(per, dtype=np.uint64) * np.uint64(width)
        words[:, mine] = (values << shifts).sum(axis=-1, dtype=np.uint64)
    return words.reshape(registers, -1)


def columns_of(case: Matrix) -> tuple[Lanes, ...]:
    """The operands of ``case``: a column of lanes for each register of A, B and C."""
    found: list[Lanes] = []
    for place, (kind, count) in enumerate(zip(case.elements, case.counts, strict=False)):
        found += list(_operand(kind, place, count, case))
    return tuple(found)
