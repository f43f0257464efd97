"""Matrices of a warp: `mma`, `ldmatrix`, `stmatrix`.

Computes: the lanes of a warp hold the fragments of its matrices. The matrices of all warps of a cohort are multiplied
in one NumPy operation. Requires: the warps are complete (`sync_ops`). Guarantees: the bits of an H200 (`tensor_core`,
`tests/golden/sm_90_matrix.npz`). If a lane takes no part, its elements count as zero, and this is reported, since the
manual leaves the result undefined. Each row of `ldmatrix` and `stmatrix` is an access of 16 bytes by the lane that
gives its address.
Refuses, by name: what `fragments` refuses, and matrices of 8-bit elements in memory, which need sm_100a.
Reference: PTX ISA 9.0, §9.7.14.5 (mma, ldmatrix, stmatrix).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..ptx import decode
from ..ptx.instructions import Instr
from ..ptx.operands import Operand, Vec
from ..ptx.types import TYPES
from . import memory_ops, tensor_core
from . import semantics as table
from .access import Access
from .fragments import Product, product_of
from .memory import spread
from .registers import Binder, Getter, Refused
from .segments import semantics
from .warp_ops import Groups

if TYPE_CHECKING:
    from .cohort import Cohort
    from .image import Image

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"

#: Warps whose floating-point products are summed at a time, so that intermediate arrays are small.
_WARPS = 64
_ALL = np.array([0xFFFF_FFFF], np.uint32)


def bind(image: Image, binder: Binder, instr: Instr) -> Step:
    """The step of an operation on matrices."""
    name = semantics(instr)
    make = {"matrix_mma": _mma, "matrix_load": _load, "matrix_store": _store}.get(name)
    if make is None:
        raise Refused("")
    step = make(image, binder, instr)
    if not image.options.checks:
        return step

    def checked(c: Cohort) -> None:
        _report_missing(c, instr)
        step(c)

    return checked


def _report_missing(c: Cohort, instr: Instr) -> None:
    present = Groups(c, _ALL).present
    if not bool(present.all()):
        count = int((~present).any(axis=1).sum())
        message = f"{count} warps are not complete: all 32 threads must take part"
        c.batch.report("membermask", instr, c, np.arange(1), message)


# --- mma -------------------------------------------------------------------------------------------------------------


def _mma(image: Image, binder: Binder, instr: Instr) -> Step:
    product = product_of(instr.form)
    if len(instr.operands) != 4:
        raise Refused("operands")
    scalar = TYPES[f"b{product.width}"]
    dtype = np.dtype(f"u{product.width // 8}")
    fragments = (product.c, product.a, product.b, product.c)
    elements = [binder.elements(operand) for operand in instr.operands]
    for registers, fragment in zip(elements, fragments, strict=True):
        if len(registers) != fragment.registers:
            raise Refused(f"{len(registers)} registers for a fragment of {fragment.registers}")
    writes = [binder.destination(element, scalar) for element in elements[0]]
    reads = [[binder.source(element, scalar) for element in registers] for registers in elements[1:]]
    multiply = _multiplier(product)

    def step(c: Cohort) -> None:
        groups = Groups(c, _ALL)
        words = [np.stack([groups.matrix(spread(read(c), c.n)) for read in readers]) for readers in reads]
        matrices = [fragment.gather(array) for fragment, array in zip(fragments[1:], words, strict=True)]
        result = product.c.scatter(multiply(*matrices), dtype)
        for write, column in zip(writes, result, strict=True):
            write(c, column[groups.of, groups.lanes], None)

    return step


Multiply: TypeAlias = Callable[[Array, Array, Array], Array]


def _multiplier(product: Product) -> Multiply:
    """The function that computes the result from the matrices A, B and C of all warps. All are raw bits."""
    kind = product.types[0]
    if product.variant == "quarters":
        return _quarters
    if kind == "f64":
        return _doubles(product)
    if kind in ("f16", "bf16", "tf32"):
        return _in_parts(_floats(kind, product.types[2]))
    if kind in ("e4m3", "e5m2"):
        return _in_parts(_eighths(product))
    return _integers(product)


def _in_parts(multiply: Multiply) -> Multiply:
    def parted(a: Array, b: Array, c: Array) -> Array:
        count = a.shape[0]
        if count <= _WARPS:
            return multiply(a, b, c)
        parts = [slice(start, start + _WARPS) for start in range(0, count, _WARPS)]
        return np.concatenate([multiply(a[part], b[part], c[part]) for part in parts])

    return parted


def _floats(kind: str, accumulator: str) -> Multiply:
    form, wide = tensor_core.FORMATS[kind], tensor_core.FORMATS[accumulator]
    # A tf32 is in a register of 32 bits, of which the lower 13 do not belong to the number.
    shift = 13 if kind == "tf32" else 0

    def multiply(a: Array, b: Array, c: Array) -> Array:
        left = tensor_core.parts_of((a >> a.dtype.type(shift))[:, :, None, :], form)
        right = tensor_core.parts_of((b >> b.dtype.type(shift)).swapaxes(1, 2)[:, None, :, :], form)
        return tensor_core.dot(left, right, tensor_core.parts_of(c, wide), accumulator)

    return multiply


def _function(mnemonic: str) -> table.LaneFunction:
    return cast("table.LaneFunction", table.resolve(decode(mnemonic)))


def _eighths(product: Product) -> Multiply:
    """8-bit floats, as Hopper computes them.

    It converts them to f16. Starting from zero, it adds the products of columns 0 and 1 of every four, then those of
    columns 2 and 3. At last it adds the accumulator, with a separate rounding.
    """
    left_type, right_type, accumulator = product.types
    tables = {kind: _halves_of(kind) for kind in (left_type, right_type)}
    multiply = _floats("f16", accumulator)
    add = _function(f"add.rn.{accumulator}")
    columns = np.arange(product.k)
    parts = (columns[columns % 4 < 2], columns[columns % 4 >= 2])
    dtype = np.dtype(np.uint32 if accumulator == "f32" else np.uint16)

    def multiply_eighths(a: Array, b: Array, c: Array) -> Array:
        left, right = tables[left_type][a], tables[right_type][b]
        total = np.zeros(c.shape, dtype)
        for part in parts:
            total = multiply(left[:, :, part], right[:, part, :], total)
        return add((total.reshape(-1), c.astype(dtype).reshape(-1)))[0].reshape(c.shape)

    return multiply_eighths


def _halves_of(kind: str) -> Array:
    """The value of each 8-bit float as f16."""
    every = np.arange(256, dtype=np.uint16)
    return (_function(f"cvt.rn.f16x2.{kind}x2")((every,))[0] & np.uint32(0xFFFF)).astype(np.uint16)


def _quarters(a: Array, b: Array, c: Array) -> Array:
    """`m8n8k4` of f16, which the tensor cores of Hopper lack. A chain of `fma.rn.f32` from zero adds the products. Then
    the accumulator is added."""
    widen, fma, add = _function("cvt.f32.f16"), _function("fma.rn.f32"), _function("add.rn.f32")
    left, right = (widen((bits.astype(np.uint16).reshape(-1),))[0].reshape(bits.shape) for bits in (a, b))
    total = np.zeros(c.size, np.uint32)
    for index in range(4):
        column = np.broadcast_to(left[..., index, None], c.shape).reshape(-1)
        row = np.broadcast_to(right[..., index, None, :], c.shape).reshape(-1)
        total = fma((column, row, total))[0]
    return add((total, c.astype(np.uint32).reshape(-1)))[0].reshape(c.shape)


def _doubles(product: Product) -> Multiply:
    """Doubles: a chain of fused multiply-adds over the columns of A."""
    rounding = product.variant or "rn"
    fma = _function(f"fma.{rounding}.f64")

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = c.reshape(-1)
        for index in range(product.k):
            left = np.broadcast_to(a[:, :, index, None], c.shape).reshape(-1)
            right = np.broadcast_to(b[:, index, None, :], c.shape).reshape(-1)
            total = fma((left, right, total))[0]
        return total.reshape(c.shape)

    return multiply


def _integers(product: Product) -> Multiply:
    """Integers and bits: the exact sum, which wraps around or is clamped."""
    left_type, right_type, _ = product.types

    def multiply(a: Array, b: Array, c: Array) -> Array:
        # Sums of products are below 2**53, so double precision is exact. It is the fastest matrix product of NumPy.
        left, right = _numbers(a, left_type), _numbers(b, right_type)
        total = (left @ right).astype(np.int64)
        if product.variant == "xor":
            counts = left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None, :]
            total = counts.astype(np.int64) - 2 * total
        total += c.astype(np.uint32).view(np.int32)
        if product.variant == "satfinite":
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        return total.astype(np.uint32)

    return multiply


def _numbers(bits: Array, kind: str) -> Array:
    width = int(kind[1:])
    values = bits.astype(np.int64)
    if kind[0] == "s":
        values -= (values >> (width - 1)) << width
    return values.astype(np.float64)


# --- ldmatrix and stmatrix -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of ``count`` matrices of 8 × 8 elements of 16 bits in shared memory, which may be transposed."""

    count: int
    is_transposed: bool
    access: Access
    address: Getter

    def lanes(self, c: Cohort) -> Array:
        """Positions in the cohort of the lanes that give the address of a row."""
        return np.flatnonzero(c.column("lane") < 8 * self.count)

    def places(self) -> tuple[Array, Array, Array]:
        """For each register and lane: the rows (of 8 · count) and the columns of its two elements, and the matrix."""
        matrix, lane = np.meshgrid(np.arange(self.count), np.arange(32), indexing="ij")
        if self.is_transposed:
            row = 8 * matrix + 2 * (lane % 4)
            return np.stack([row, row + 1]), np.stack([lane // 4, lane // 4]), matrix
        column = 2 * (lane % 4)
        row = 8 * matrix + lane // 4
        return np.stack([row, row]), np.stack([column, column + 1]), matrix


def _rows(image: Image, binder: Binder, instr: Instr, operand: Operand, registers: int, *, writes: bool) -> _Rows:
    words = instr.form.mods.get("*", "").split(".")
    if "m8n8" not in words or "b16" not in words:
        shape = next((word for word in words if word[:1] == "m" and "n" in word), "?")
        raise Refused(f"matrices of shape .{shape} and type .{words[-1]}, which need sm_100a")
    count = next((int(word[1:]) for word in words if word in ("x1", "x2", "x4")), 0)
    if count != registers:
        raise Refused(f"{registers} registers for {count} matrices")
    memory = memory_ops.memory_operand(operand)
    is_shared = any(word.startswith("shared") for word in words)
    space = memory_ops.space_of(binder, "shared" if is_shared else "generic", memory)
    access = Access(instr, space, 8, 2, image.options, reads=not writes, writes=writes)
    return _Rows(count, "trans" in words, access, memory_ops.address_of(binder, memory))


def _load(image: Image, binder: Binder, instr: Instr) -> Step:
    elements = binder.elements(instr.operands[0])
    rows = _rows(image, binder, instr, instr.operands[1], len(elements), writes=False)
    writes = [binder.destination(element, TYPES["b32"]) for element in elements]
    row, column, _ = rows.places()

    def step(c: Cohort) -> None:
        groups = Groups(c, _ALL)
        table = np.zeros((groups.count, 32, 8), np.uint16)
        at = rows.lanes(c)
        data = memory_ops.load_bytes(c, rows.access, spread(rows.address(c), c.n)[at], at)
        table[groups.of[at], groups.lanes[at]] = data.view(np.uint16)
        halves = table[:, row, column].astype(np.uint32)  # (warps, 2, registers, 32)
        result = halves[:, 0] | (halves[:, 1] << np.uint32(16))
        for index, write in enumerate(writes):
            write(c, result[groups.of, index, groups.lanes], None)

    return step


def _store(image: Image, binder: Binder, instr: Instr) -> Step:
    operand = instr.operands[1]
    elements = list(operand.elements) if isinstance(operand, Vec) else binder.elements(operand)
    rows = _rows(image, binder, instr, instr.operands[0], len(elements), writes=True)
    reads = [binder.source(element, TYPES["b32"]) for element in elements]
    row, column, matrix = rows.places()

    def step(c: Cohort) -> None:
        groups = Groups(c, _ALL)
        words = np.stack([groups.matrix(spread(read(c), c.n)) for read in reads])
        table = np.zeros((groups.count, 32, 8), np.uint16)
        lane = np.broadcast_to(np.arange(32), matrix.shape)
        register_values = np.moveaxis(words[matrix, :, lane], -1, 0)  # (warps, registers, 32)
        for half in range(2):
            table[:, row[half], column[half]] = (register_values >> np.uint32(16 * half)).astype(np.uint16)
        at = rows.lanes(c)
        data = np.ascontiguousarray(table[groups.of[at], groups.lanes[at]]).view(np.uint8)
        memory_ops.store_bytes(c, rows.access, spread(rows.address(c), c.n)[at], at, data)

    return step
