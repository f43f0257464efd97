"""The forms of `mma`, and which register of which lane contains each element of their matrices.

Computes: the shape, element types and variant of a mnemonic; index arrays between registers and matrices. (A fragment
here is the part of a matrix that one lane holds, as in the manual.)
One rule describes the layouts of all forms but one. With ``e`` elements in a register, ``g = lane / 4`` and
``t = lane % 4``: register ``r`` of A has row ``g + 8 (r mod h)``, columns ``t e + i + 4 e (r div h)``, where ``h`` is 2
for 16 rows and 1 for 8. Register ``r`` of B has rows ``t e + i + 4 e r`` of column ``g``. Element ``x`` of the
accumulator is row ``g + 8 (x div 2)``, column ``2 t + x mod 2``. Here ``i`` is the element in the register.
`m8n8k4` of f16, made for Volta, has its own layouts: eight lanes (four of each half of the warp) compute one product.
Refuses, with `Refused` and the name of the feature: sparse and block-scaled products, `m8n8k4` of f16 with an
accumulator of f16, and element types of later chips.
Reference: PTX ISA 9.0, §9.7.14.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.notation import Form
from .registers import Refused

__all__ = ["Fragment", "Product", "product_of"]

Array: TypeAlias = npt.NDArray[Any]

#: Bits of each element type in its register.
BITS = {
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
    "f32": 32,
    "s32": 32,
    "f64": 64,
}
#: The shapes for each type of A.
_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    **dict.fromkeys(("e4m3", "e5m2"), ("m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16", "m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32", "m16n8k32", "m16n8k64")),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
#: Types that may be combined as those of A and B, and the types of the accumulator for them.
_FAMILIES = (
    (("f16",), ("f32", "f16")),
    (("bf16",), ("f32",)),
    (("tf32",), ("f32",)),
    (("f64",), ("f64",)),
    (("e4m3", "e5m2"), ("f32", "f16")),
    (("s8", "u8"), ("s32",)),
    (("s4", "u4"), ("s32",)),
    (("b1",), ("s32",)),
)
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


@dataclass(frozen=True, slots=True)
class Fragment:
    """The layout of a matrix in ``registers`` registers of ``per`` elements.

    ``register``, ``lane`` and ``element`` give the place of each element, as arrays of the shape of the matrix. If a
    warp computes several products, the first dimension of the arrays is the product.
    """

    registers: int
    bits: int
    per: int
    register: Array
    lane: Array
    element: Array

    def gather(self, words: Array) -> Array:
        """The matrices in ``words`` of shape (registers, warps, 32), as raw bits: (warps, …, rows, columns)."""
        elements = words[self.register, :, self.lane]  # (…, rows, columns, warps)
        if self.per > 1:
            shift = (self.element * self.bits).astype(elements.dtype)
            elements = (elements >> shift[..., None]) & elements.dtype.type((1 << self.bits) - 1)
        return np.moveaxis(elements, -1, 0)

    def scatter(self, matrices: Array, dtype: np.dtype[Any]) -> Array:
        """The registers that hold ``matrices``: the inverse of `gather`."""
        words = np.zeros((self.registers, matrices.shape[0], 32), dtype)
        values = np.moveaxis(matrices, 0, -1).astype(dtype)
        for element in range(self.per):
            is_here = self.element == element
            shift = dtype.type(element * self.bits)
            words[self.register[is_here], :, self.lane[is_here]] |= values[is_here] << shift
        return words


@dataclass(frozen=True, slots=True)
class Product:
    """One form of `mma`. ``variant`` is a rounding, ``satfinite``, ``xor``, ``and`` or empty."""

    m: int
    n: int
    k: int
    types: tuple[str, str, str]  #: of A, B, and of the accumulator and result
    variant: str
    a: Fragment
    b: Fragment
    c: Fragment

    @property
    def width(self) -> int:
        """Bits of a register."""
        return 64 if self.types[0] == "f64" else 32


def product_of(form: Form) -> Product:
    """The product that ``form``, a form of `mma`, computes. Raises `Refused`."""
    words = form.mods.get("*", "").split(".")
    for word in words:
        if word == "sp" or word.startswith("sp::"):
            raise Refused("sparse matrices")
        if word.startswith(("kind::", "block_scale", "scale_vec")):
            raise Refused(f".{word}, which needs sm_100 or later")
    types = [word for word in words if word in BITS]
    shape = next((word for word in words if _SHAPE.fullmatch(word)), "")
    if len(types) != 4:
        named = ", ".join(f".{word}" for word in words if word in ("e3m2", "e2m3", "e2m1"))
        raise Refused(f"element type {named}" if named else "its types are not modelled")
    result, a, b, c = types
    family = next((pair for pair in _FAMILIES if a in pair[0]), None)
    if family is None or b not in family[0] or c not in family[1]:
        raise Refused(f"the types .{a}, .{b} and .{c} together")
    if result != c:
        raise Refused(f"an accumulator of .{c} for a result of .{result}")
    if shape == "m8n8k4" and a == "f16":
        return _quarters(words, c)
    if shape not in _SHAPES[a]:
        raise Refused(f"shape .{shape or '?'} with elements of .{a}")
    if "row" not in words or "col" not in words or words.index("row") > words.index("col"):
        raise Refused("a layout other than .row.col")
    m, n, k = (int(part) for part in _matched(shape))
    variant = next((word for word in words if word in (*_ROUNDINGS, "satfinite", "xor", "and")), "")
    if a == "b1" and variant not in ("xor", "and"):
        raise Refused("it names no operation on bits")
    width = 64 if a == "f64" else 32
    return Product(
        m,
        n,
        k,
        (a, b, c),
        variant,
        _multiplicand(m, k, BITS[a], width, is_a=True),
        _multiplicand(k, n, BITS[b], width, is_a=False),
        _accumulator(m, n, BITS[c], width),
    )


def _matched(shape: str) -> tuple[str, ...]:
    match = _SHAPE.fullmatch(shape)
    assert match is not None
    return match.groups()


def _multiplicand(rows: int, columns: int, bits: int, width: int, *, is_a: bool) -> Fragment:
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    per = width // bits
    # ``outer`` is the row of A or the column of B, ``inner`` the index of the sum.
    outer, inner = (row, column) if is_a else (column, row)
    halves = rows // 8 if is_a else 1
    lane = 4 * (outer % 8) + inner // per % 4
    register = outer // 8 + halves * (inner // (4 * per))
    return Fragment(rows * columns * bits // (32 * width), bits, per, register, lane, inner % per)


def _accumulator(rows: int, columns: int, bits: int, width: int) -> Fragment:
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    per = width // bits
    number = 2 * (row // 8) + column % 2
    lane = 4 * (row % 8) + column // 2
    registers = rows * columns * bits // (32 * width)
    return Fragment(registers, bits, per, number // per, lane, number % per)


def _quarters(words: list[str], accumulator: str) -> Product:
    """`m8n8k4` of f16: lanes 4 q to 4 q + 3 and 16 + 4 q to 16 + 4 q + 3 compute product ``q``."""
    if accumulator != "f32":
        raise Refused("shape .m8n8k4 with an accumulator of .f16")
    layouts = [word for word in words if word in ("row", "col")]
    quarter, row, column = np.meshgrid(np.arange(4), np.arange(8), np.arange(4), indexing="ij")
    # With .row, a lane has a row of A; with .col, four rows of a column. For B it is the reverse.
    a = _halves(row, column) if layouts[0] == "row" else _halves(row // 4 * 4 + column, row % 4)
    quarter_b, row_b, column_b = np.meshgrid(np.arange(4), np.arange(4), np.arange(8), indexing="ij")
    b = _halves(column_b, row_b) if layouts[1] == "col" else _halves(column_b // 4 * 4 + row_b, column_b % 4)
    quarter_c, row_c, column_c = np.meshgrid(np.arange(4), np.arange(8), np.arange(8), indexing="ij")
    number = (row_c & 2) | (column_c & 4) | (column_c & 1)
    lane = (row_c & 1) | (column_c & 2) | (row_c & 4) << 2
    return Product(
        8,
        8,
        4,
        ("f16", "f16", "f32"),
        "quarters",
        Fragment(2, 16, 2, a[1] // 2, a[0] + 4 * quarter, a[1] % 2),
        Fragment(2, 16, 2, b[1] // 2, b[0] + 4 * quarter_b, b[1] % 2),
        Fragment(8, 32, 1, number, lane + 4 * quarter_c, np.zeros_like(number)),
    )


def _halves(place: Array, element: Array) -> tuple[Array, Array]:
    """Lane (of the first quarter) and element of each place in a matrix.

    Places 0 to 3 are in the lower half of the warp, places 4 to 7 in the upper half.
    """
    return place % 4 + 16 * (place // 4), element
