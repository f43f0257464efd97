"""Atomic operations: `atom` and `red` in all types.

Computes: lanes with the same address are executed in lane order (threads in the order of the cohort), so results are
the same in every run. Sums of floats are rounded at every step. Requires: aligned addresses (`access`).
Guarantees: `add.f32` flushes subnormals in global memory and keeps them in shared memory, as the manual says. `f16`,
`bf16` and packed types never flush. If operands of `add.f64` are NaNs, the result is that of Hopper: in global memory
the operand, or else the value in memory, unchanged; in shared memory the value in memory, or else the operand, as a
quiet NaN.
Method: integer operations and `exch` are associative, so the old values are computed by a segmented scan of log₂ steps.
Float sums, `inc` and `dec` are computed for the first lane of every address, then for the second, and so on. `cas`
goes from one success to the next.
Reference: PTX ISA 9.0, §9.7.13.5, §9.7.13.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..ptx.decoding import decode
from ..ptx.instructions import Instr
from ..ptx.operands import Mem, Sink
from ..ptx.types import ScalarType
from . import memory_ops
from . import semantics as table
from .access import Access, Piece
from .memory import spread
from .registers import Binder, Getter, Refused, Setter
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort
    from .image import Image

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Combine: TypeAlias = Callable[[Array, Array], Array]
Step: TypeAlias = "Callable[[Cohort], None]"
Update: TypeAlias = Callable[[Piece, list[list[Array]], list[Array]], None]

_SIGNED = {2: np.dtype("i2"), 4: np.dtype("i4"), 8: np.dtype("i8")}


def _signed(combine: Combine) -> Combine:
    def on_signed(a: Array, b: Array) -> Array:
        dtype = _SIGNED[a.dtype.itemsize]
        return combine(a.view(dtype), b.view(dtype)).view(a.dtype)

    return on_signed


def _replace(old: Array, new: Array) -> Array:
    return new


_ASSOCIATIVE: dict[str, Combine] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exch": _replace,
}


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + old.dtype.type(1)).astype(old.dtype)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)).astype(old.dtype)


_ADD_DOUBLES = cast("table.LaneFunction", table.resolve(decode("add.rn.f64")))
_COUNTING: dict[str, Combine] = {"inc": _increment, "dec": _decrement}


def _add_doubles_in_cache(old: Array, value: Array) -> Array:
    """``old + value`` as the L2 cache computes it: a NaN is the result, unchanged."""
    result = _ADD_DOUBLES((old, value))[0]
    result = np.where(_is_nan(old), old, result)
    return np.where(_is_nan(value), value, result)


def _is_nan(bits: Array) -> Array:
    return (bits & np.uint64(2**63 - 1)) > np.uint64(0x7FF0 << 48)


def _add_doubles_in_shared(old: Array, value: Array) -> Array:
    return _ADD_DOUBLES((value, old))[0]


def _combination(operation: str, scalar: ScalarType, *, flush: bool) -> tuple[Combine, bool]:
    """The operation on raw bits, and whether it is associative. ``flush``: the operation is on global memory."""
    if operation == "exch":
        return _ASSOCIATIVE["exch"], True
    if scalar.name == "f64" and operation == "add":
        return (_add_doubles_in_cache if flush else _add_doubles_in_shared), False
    if scalar.is_float:
        words = ["add", "rn"] if operation == "add" else [operation]
        if flush and operation == "add" and scalar.name == "f32":
            words.append("ftz")
        function = (
            table.resolve(decode(".".join([*words, scalar.name]))) if operation in ("add", "min", "max") else None
        )
        if function is None:
            raise Refused("")
        chosen = function
        return lambda a, b: chosen((a, b))[0], False
    if operation in _COUNTING:
        return _COUNTING[operation], False
    combine = _ASSOCIATIVE.get(operation)
    if combine is None or scalar.bits == 128:
        raise Refused("")
    if scalar.kind == "s" and operation in ("min", "max"):
        return _signed(combine), True
    return combine, True


@dataclass(frozen=True, slots=True)
class _Operands:
    """The operands of an atomic instruction: the address; by operand, the values of each element; the results, none if
    the old values are not wanted."""

    memory: Mem
    reads: list[list[Getter]]
    writes: list[Setter]


def _operands(binder: Binder, instr: Instr, operation: str, scalar: ScalarType) -> _Operands:
    operands = list(instr.operands)
    result = operands.pop(0) if semantics(instr) != "memory_red" else None
    memory = memory_ops.memory_operand(operands.pop(0))
    needed = 2 if operation == "cas" else 1
    if "hint" in instr.form.mods and len(operands) > needed:
        operands = operands[:needed]
    if len(operands) != needed:
        raise Refused(f"{len(operands)} operands")
    vectors = [binder.elements(operand) for operand in operands]
    if any(len(vector) != instr.form.lanes for vector in vectors):
        raise Refused("vector of another length")
    reads = [[binder.source(element, scalar) for element in vector] for vector in vectors]
    targets = binder.elements(result) if result is not None else []
    writes = [binder.destination(target, scalar) for target in targets]
    return _Operands(memory, reads, [] if all(isinstance(target, Sink) for target in targets) else writes)


def bind(image: Image, binder: Binder, instr: Instr) -> Step:
    """The step of an atomic instruction."""
    scalar = instr.form.type
    if scalar is None:
        raise Refused("")
    operation = "cas" if semantics(instr) == "memory_atom_cas" else instr.form.mods.get("atomop", "exch")
    operands = _operands(binder, instr, operation, scalar)
    reads, writes = operands.reads, operands.writes
    width = max(scalar.bytes, 1)
    update = _update(operation, scalar, width)
    access = _access(image, binder, instr, operands, width)
    address_of = memory_ops.address_of(binder, operands.memory)
    guard = binder.guard(instr)
    is_counted = image.options.counts or image.options.trace

    def step(c: Cohort) -> None:
        any_active, lanes = memory_ops.guarded_lanes(guard, c)
        if not any_active:
            return
        size = c.n if lanes is None else int(lanes.size)
        values = [[spread(read(c), c.n) for read in vector] for vector in reads]
        olds = [np.zeros((c.n, *values[0][0].shape[1:]), values[0][0].dtype) for _ in writes]
        memory_ops.orders(c, instr, lanes, reads=True, writes=True)
        addresses = spread(memory_ops.active_addresses(c, address_of, lanes), size)
        pieces = access.pieces(c, addresses, lanes)
        for piece in pieces:
            access.check(c, piece, reads=operation != "exch")
            update(piece, values, olds)
        access.tally(c, pieces)
        if is_counted:
            c.batch.launch.counts.atomics += size
        flags = None
        if lanes is not None:
            flags = np.zeros(c.n, bool)
            flags[lanes] = True
        for write, old in zip(writes, olds, strict=True):
            write(c, old, flags)

    return step


def _access(image: Image, binder: Binder, instr: Instr, operands: _Operands, width: int) -> Access:
    """The access to vectors of elements of ``width`` bytes, in words of at most 8 bytes."""
    word = min(width, 8)
    return Access(
        instr,
        memory_ops.space_of(binder, instr.form.space, operands.memory),
        word,
        instr.form.lanes * width // word,
        image.options,
        reads=True,
        writes=True,
        strong=True,
        observes=bool(operands.writes),
    )


def _update(operation: str, scalar: ScalarType, width: int) -> Update:
    """The function that applies the operation to each lane of a piece, element after element. Its arguments are the
    piece; by operand, the values of each element; and the arrays for the old values of each element, none if they are
    not wanted."""
    in_shared = _combination(operation, scalar, flush=False) if operation != "cas" else None
    in_cache = _combination(operation, scalar, flush=True) if operation != "cas" else None

    def update(piece: Piece, values: list[list[Array]], olds: list[Array]) -> None:
        chosen = in_cache if piece.target.space != "shared" else in_shared
        active = slice(None) if piece.lanes is None else piece.lanes
        for index in range(len(values[0])):
            old = _apply(piece, index, width, chosen, [vector[index][active] for vector in values])
            if olds:
                olds[index][active] = old

    return update


def _apply(piece: Piece, index: int, width: int, chosen: tuple[Combine, bool] | None, values: list[Array]) -> Array:
    """Apply the operation to element ``index`` of the vector of each lane. The result is the old values."""
    if width == 16:
        data = piece.target.view(8)[0].reshape(-1, 2)
    else:
        data = piece.target.view(width)[0]
    indices = (piece.offsets >> np.int64(width.bit_length() - 1)) + index
    written = piece.target.written
    if chosen is None:
        old = compare_and_swap(data, indices, values[0], values[1])
    else:
        combine, is_associative = chosen
        old = fetch_and_apply(data, indices, values[0], combine, is_associative)
    if written is not None:
        written.reshape(-1, width)[indices] = 1
    return old


def _groups(indices: Array) -> tuple[Array, Array, Array]:
    """The lanes grouped by address: a stable order, where each group begins in it, and the size of each group."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return order, starts, np.diff(np.concatenate([starts, [indices.size]]))


def fetch_and_apply(data: Array, indices: Array, values: Array, combine: Combine, is_associative: bool) -> Array:
    """``data[indices] = combine(data[indices], values)``, one lane after the other.

    The result is the old value for each lane.
    """
    order, starts, counts = _groups(indices)
    distinct = indices[order[starts]]
    old_values = np.empty_like(values)
    current = data[distinct]
    if starts.size == indices.size:
        old_values[order] = current
        data[distinct] = combine(current, values[order])
    elif is_associative:
        sorted_values = values[order]
        rank = np.arange(indices.size) - np.repeat(starts, counts)
        scan = sorted_values.copy()
        distance = 1
        while distance < int(counts.max()):
            later = np.flatnonzero(rank >= distance)
            scan[later] = combine(scan[later - distance], scan[later])
            distance *= 2
        old = np.repeat(current, counts, axis=0)
        later = np.flatnonzero(rank > 0)
        old[later] = combine(old[later], scan[later - 1])
        old_values[order] = old
        data[distinct] = combine(current, scan[starts + counts - 1])
    else:
        by_count = np.argsort(-counts, kind="stable")
        starts, counts, current, distinct = starts[by_count], counts[by_count], current[by_count], distinct[by_count]
        sorted_values = values[order]
        old = np.empty_like(values)
        for rank_now in range(int(counts[0])):
            active = int(np.searchsorted(-counts, -rank_now, side="left"))
            now = starts[:active] + rank_now
            old[now] = current[:active]
            current[:active] = combine(current[:active], sorted_values[now])
        old_values[order] = old
        data[distinct] = current
    return old_values


def compare_and_swap(data: Array, indices: Array, compare: Array, replace: Array) -> Array:
    """``data[indices] = replace`` where it equals ``compare``, one lane after the other; the old value for each
    lane."""
    order, starts, counts = _groups(indices)
    distinct = indices[order[starts]]
    current = data[distinct]
    compare, replace = compare[order], replace[order]
    group = np.repeat(np.arange(starts.size), counts)
    position = np.arange(indices.size)
    old = np.empty_like(compare)
    pending = np.ones(indices.size, bool)
    while bool(pending.any()):
        equal = compare == current[group]
        if equal.ndim == 2:
            equal = equal.all(axis=1)
        candidates = np.where(equal & pending, position, indices.size)
        first = np.minimum.reduceat(candidates, starts)
        served = pending & (position <= first[group])
        old[served] = current[group[served]]
        pending &= ~served
        hit = first < indices.size
        current[hit] = replace[first[hit]]
    data[distinct] = current
    old_values = np.empty_like(old)
    old_values[order] = old
    return old_values
