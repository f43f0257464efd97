"""Exchanges between the lanes of a warp: `shfl`, `vote`, `match`, `redux`, `elect`, `activemask`, `bar.warp.sync`.

Computes: lanes of one warp with the same membermask form a group. Each group is a row of a (groups, 32) matrix.
Without a membermask (before Volta) the group is the warp fragment. Requires: the groups are complete (`sync_ops`).
Reference: PTX ISA 9.0, §9.7.9.6 (shfl), §9.7.13.7 to §9.7.13.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.operands import Operand, Pair
from ..ptx.types import TYPES
from .memory import spread
from .registers import Binder, Getter, Refused, Setter
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort
    from .image import Image

__all__ = ["Groups", "bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"

_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


class Groups:
    """The lanes of a cohort that act together.

    ``of[lane position]`` is the group; ``present[group, lane]`` is whether the lane takes part.
    """

    def __init__(self, c: Cohort, masks: Array | None) -> None:
        lanes = c.column("lane").astype(np.int64)
        rows = c.rows
        warps = c.warps
        if masks is None or (masks.shape[0] == 1 and (warps.size == 1 or bool((warps[1:] > warps[:-1]).all()))):
            self.of = rows
            self.count = c.ids.size
        else:
            keys = (warps[rows] << np.int64(32)) | spread(masks, c.n).astype(np.int64)
            unique, inverse = np.unique(keys, return_inverse=True)
            self.of = inverse.reshape(-1)
            self.count = unique.size
        self.lanes = lanes
        self.present = np.zeros((self.count, 32), bool)
        self.present[self.of, lanes] = True

    def matrix(self, values: Array, fill: Any = 0) -> Array:
        """The values as a (groups, 32) matrix, with ``fill`` for lanes that take no part."""
        table = np.full((self.count, 32), fill, values.dtype)
        table[self.of, self.lanes] = values
        return table

    def lanes_of(self, rows: Array) -> Array:
        """For each lane the value of its group."""
        return rows[self.of]

    def bits(self, flags: Array) -> Array:
        """A (groups, 32) matrix of flags as one mask for each group."""
        return np.packbits(flags, axis=1, bitorder="little").view(np.uint32)[:, 0]


def bind(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    """The step of a warp instruction; ``mask`` is its membermask."""
    make = _MAKERS.get(semantics(instr))
    if make is None:
        raise Refused("")
    step = make(image, binder, instr, mask)
    if mask is None or not image.options.checks:
        return step
    read = mask

    def checked(c: Cohort) -> None:
        masks = read(c)
        own_bit = (masks >> c.column("lane")) & np.uint32(1)
        if not bool(own_bit.all()):
            lanes = np.flatnonzero(own_bit == 0)
            message = f"membermask {int(spread(masks, c.n)[lanes[0]]):#010x} does not name the executing lane"
            c.batch.report("membermask", instr, c, lanes, message)
        step(c)

    return checked


def _results(binder: Binder, operand: Operand, first: str, second: str) -> tuple[Setter, Setter | None]:
    if isinstance(operand, Pair):
        return binder.destination(operand.first, TYPES[first]), binder.destination(operand.second, TYPES[second])
    return binder.destination(operand, TYPES[first]), None


def _masks(mask: Getter | None, c: Cohort) -> Array | None:
    return None if mask is None else mask(c)


def _shfl(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    mode = instr.form.mods["mode"]
    value, offset, clamp = (binder.source(operand, TYPES["b32"]) for operand in instr.operands[1:4])
    write, write_p = _results(binder, instr.operands[0], "b32", "pred")

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        lane = groups.lanes
        b = offset(c).astype(np.int64) & 31
        limits = clamp(c).astype(np.int64)
        segment = (limits >> 8) & 31
        last = (lane & segment) | (limits & 31 & ~segment)
        if mode == "up":
            source = lane - b
            valid = source >= last
        elif mode == "down":
            source = lane + b
            valid = source <= last
        elif mode == "bfly":
            source = lane ^ b
            valid = source <= last
        else:
            source = (lane & segment) | (b & ~segment & 31)
            valid = source <= last
        source = np.where(valid, source, lane)
        present = groups.present[groups.of, source]
        if image.options.checks and not bool(present.all()):
            _report_absent(c, instr, source, np.flatnonzero(~present))
        source = np.where(present, source, lane)
        table = groups.matrix(spread(value(c), c.n))
        write(c, table[groups.of, source], None)
        if write_p is not None:
            write_p(c, valid, None)

    return step


def _report_absent(c: Cohort, instr: Instr, source: Array, lanes: Array) -> None:
    """A note that these lanes of the cohort read lanes that do not take part; such a value is undefined."""
    message = f"reads lane {int(source[lanes[0]])}, which does not take part; the value is undefined"
    c.batch.report("absent-lane", instr, c, lanes, message, severity="note")


def _ballots(c: Cohort, mask: Getter | None, predicate: Getter) -> tuple[Groups, Array, Array]:
    groups = Groups(c, _masks(mask, c))
    flags = groups.matrix(spread(predicate(c), c.n), False)
    return groups, groups.bits(flags), groups.bits(groups.present)


def _ballot(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    predicate = binder.source(instr.operands[1], TYPES["pred"])
    write = binder.destination(instr.operands[0], TYPES["b32"])

    def step(c: Cohort) -> None:
        groups, votes, _ = _ballots(c, mask, predicate)
        write(c, groups.lanes_of(votes), None)

    return step


def _vote(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    predicate = binder.source(instr.operands[1], TYPES["pred"])
    write = binder.destination(instr.operands[0], TYPES["pred"])
    mode = instr.form.mods["mode"]

    def step(c: Cohort) -> None:
        groups, votes, members = _ballots(c, mask, predicate)
        if mode == "all":
            result = votes == members
        elif mode == "any":
            result = votes != 0
        else:
            result = (votes == members) | (votes == 0)
        write(c, groups.lanes_of(result), None)

    return step


def _match_any(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    value = binder.source(instr.operands[1], instr.form.type)
    write = binder.destination(instr.operands[0], TYPES["b32"])

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        table = groups.matrix(spread(value(c), c.n))
        equal = (table[:, :, None] == table[:, None, :]) & groups.present[:, None, :]
        masks = np.where(equal, _BITS, np.uint32(0)).sum(axis=2, dtype=np.uint32)
        write(c, masks[groups.of, groups.lanes], None)

    return step


def _match_all(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    value = binder.source(instr.operands[1], instr.form.type)
    write, write_p = _results(binder, instr.operands[0], "b32", "pred")

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        table = groups.matrix(spread(value(c), c.n))
        first = table[np.arange(groups.count), groups.present.argmax(axis=1)]
        same = ((table == first[:, None]) | ~groups.present).all(axis=1)
        members = np.where(same, groups.bits(groups.present), np.uint32(0))
        write(c, groups.lanes_of(members), None)
        if write_p is not None:
            write_p(c, groups.lanes_of(same), None)

    return step


_REDUCTIONS: dict[str, tuple[Any, int]] = {
    "add": (np.add, 0),
    "and": (np.bitwise_and, 0xFFFF_FFFF),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


def _redux(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    form = instr.form
    scalar = form.type
    if scalar is None or scalar.is_float:
        raise Refused("")
    mode = form.mods["mode"]
    value = binder.source(instr.operands[1], scalar)
    write = binder.destination(instr.operands[0], scalar)
    dtype = np.dtype(np.int32) if scalar.kind == "s" else np.dtype(np.uint32)
    if mode in ("min", "max"):
        info = np.iinfo(dtype)
        combine, identity = (np.minimum, info.max) if mode == "min" else (np.maximum, info.min)
    else:
        combine, identity = _REDUCTIONS[mode]
        dtype = np.dtype(np.uint32)

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        table = groups.matrix(spread(value(c), c.n).view(dtype), identity)
        result = combine.reduce(table, axis=1, dtype=dtype).view(np.uint32)
        write(c, groups.lanes_of(result), None)

    return step


def _elect(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    write, write_p = _results(binder, instr.operands[0], "b32", "pred")

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        leader = groups.lanes_of(groups.present.argmax(axis=1))
        write(c, leader.astype(np.uint32), None)
        if write_p is not None:
            write_p(c, leader == groups.lanes, None)

    return step


def _activemask(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    write = binder.destination(instr.operands[0], TYPES["b32"])
    return lambda c: write(c, c.masks[c.rows], None)


def _warp_barrier(image: Image, binder: Binder, instr: Instr, mask: Getter | None) -> Step:
    if not image.options.checks:
        return lambda c: None

    def step(c: Cohort) -> None:
        groups = Groups(c, _masks(mask, c))
        matrix = groups.matrix(c.threads, -1)
        c.batch.order.warp_barrier(c.threads, groups.lanes, groups.of, matrix, c.blocks)

    return step


_MAKERS: dict[str, Callable[[Any, Binder, Instr, Getter | None], Step]] = {
    "sync_shfl": _shfl,
    "sync_ballot": _ballot,
    "sync_vote": _vote,
    "sync_match_any": _match_any,
    "sync_match_all": _match_all,
    "sync_redux": _redux,
    "sync_elect": _elect,
    "sync_activemask": _activemask,
    "sync_warp": _warp_barrier,
}
