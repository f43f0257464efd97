"""Loads, stores, and what only looks like one: `ld`, `ldu`, `st`, `prefetch`, `createpolicy`, `cp.async`.

Guarantees: every cache and eviction modifier is accepted and changes nothing; `.volatile`, `.relaxed`, `.acquire`,
`.release` and `.cv` make an access strong, the ordered ones also fence. `cp.async` reads its source when it is issued
and writes its destination when the thread waits for it: until then the destination counts as never written.
Refuses: state spaces of clusters that are not the block's own are treated as the block's (a cluster has one block).
Reference: PTX ISA 9.0, §9.7.9.8 to §9.7.9.25, chapter 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.ir import Param, Variable
from ..ptx.operands import Imm, Mem, Operand, Reg, Sink, Sym
from ..ptx.operations import Operation
from ..ptx.types import TYPES, ScalarType
from .access import Access, Piece
from .memory import UINT, Selector, spread, wrapped
from .registers import Binder, Getter, Refused, Setter, integer
from .segments import semantics

if TYPE_CHECKING:
    from .batch import Batch
    from .cohort import Cohort
    from .image import Code, Image

__all__ = ["Pending", "address_of", "bind", "is_strong", "load_bytes", "space_of", "store_bytes", "taken_copies"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"


def bind(image: Image, code: Code, instr: Instr) -> Step:
    """The step of a memory instruction; atomics are in `atomic_ops`."""
    name = semantics(instr)
    binder = code.function.binder
    if name == "memory_ld":
        return _load(image, binder, instr)
    if name == "memory_st":
        return _store(image, binder, instr)
    if name == "memory_prefetch":
        return _nothing
    if name == "memory_createpolicy":
        write = binder.destination(instr.operands[0], TYPES["b64"])
        guard = binder.guard(instr)
        policy = np.array([1], np.uint64)
        return lambda c: write(c, policy, None if guard is None else guard(c))
    if name == "memory_cp_async":
        return _copy_async(image, binder, instr)
    if name == "memory_cp_async_commit":
        return _commit
    if name == "memory_cp_async_wait":
        return _wait(instr)
    raise Refused("")


def _nothing(c: Cohort) -> None:
    """A prefetch changes nothing that a program can see."""


# --- addresses -----------------------------------------------------------------------------------------------------


def space_of(binder: Binder, form_space: str, address: Mem) -> str:
    """The space of an access: ``global``, ``shared``, ``local`` or ``generic``.

    Constant memory and an entry's parameters are read like global memory; parameters of functions and variables of
    calls lie in the frame.
    """
    declared = address.base.declaration if isinstance(address.base, Sym) else None
    if form_space == "param" or (isinstance(declared, Param | Variable) and declared.space == "param"):
        if isinstance(declared, Variable) or not binder.kernel.is_entry:
            return "local"
        return "global"
    if form_space == "const":
        return "global"
    if form_space == "generic" and isinstance(declared, Variable):
        return {"shared": "shared", "local": "local"}.get(declared.space.partition("::")[0], "global")
    return form_space


def address_of(binder: Binder, operand: Operand) -> Getter:
    """The address as int64, one for each lane or one for all."""
    if not isinstance(operand, Mem) or operand.rest:
        raise Refused(f"address '{operand.text}'")
    offset = np.int64(wrapped(operand.offset))
    base = operand.base
    if isinstance(base, Imm):
        constant = np.array([wrapped(integer(base.text, "an address") + operand.offset)], np.int64)
        return lambda c: constant
    if isinstance(base, Sym):
        found = binder.symbol(base)
        if isinstance(found, int):
            constant = np.array([wrapped(found + operand.offset)], np.int64)
            return lambda c: constant
        return lambda c: found(c) + offset
    read = binder.source(base, None)

    def address(c: Cohort) -> Array:
        value = read(c)
        # A 32-bit base wraps with its offset, as compilers rely on it: shared memory at -64 + 68 is at 4.
        wide = value.astype(np.int64) + offset
        return wide & np.int64(0xFFFF_FFFF) if value.itemsize == 4 else wide

    return address


def is_strong(instr: Instr) -> bool:
    """Whether the access is morally strong with others: volatile, relaxed, acquire, release, mmio or uncached."""
    mods = instr.form.mods
    return mods.get("sem", "weak") != "weak" or mods.get("cop") == "cv"


def orders(c: Cohort, instr: Instr, lanes: Array | None, *, reads: bool, writes: bool) -> None:
    """What a strong access means to the order of others."""
    order = c.batch.order
    threads = c.threads if lanes is None else c.threads[lanes]
    blocks = c.blocks if lanes is None else c.blocks[lanes]
    sem = instr.form.mods.get("sem", "weak")
    if sem in ("release", "acq_rel", "sc"):
        order.fence(threads, blocks, instr.form.mods.get("scope", "gpu") != "cta")
    order.strong(threads, blocks, reads=reads, writes=writes)


def _element(instr: Instr) -> tuple[ScalarType, int, int]:
    """Type, width in bytes and number of elements that memory sees; 128 bits are two of 8 bytes."""
    scalar = instr.form.type
    if scalar is None:
        raise Refused("")
    if scalar.bits == 128:
        return scalar, 8, 2 * instr.form.lanes
    if scalar.bytes not in UINT:
        raise Refused(f".{scalar.name} in memory")
    return scalar, scalar.bytes, instr.form.lanes


def guarded_lanes(guard: Getter | None, c: Cohort) -> tuple[bool, Array | None]:
    """Whether any lane takes part, and which (``None``: all)."""
    if guard is None:
        return True, None
    flags = guard(c)
    if bool(flags.all()):
        return True, None
    lanes = np.flatnonzero(spread(flags, c.n))
    return bool(lanes.size), lanes


# --- ld --------------------------------------------------------------------------------------------------------------


def _load(image: Image, binder: Binder, instr: Instr) -> Step:
    form = instr.form
    scalar, width, count = _element(instr)
    memory = instr.operands[1]
    if not isinstance(memory, Mem):
        raise Refused(f"address '{memory.text}'")
    targets = binder.elements(instr.operands[0])
    if len(targets) != form.lanes:
        raise Refused(f"{len(targets)} registers for {form.lanes} elements")
    writes: list[Setter] = [binder.destination(target, scalar) for target in targets]
    skips = [isinstance(target, Sink) for target in targets]
    guard = binder.guard(instr)
    space = space_of(binder, form.space, memory)
    read = address_of(binder, memory)
    if (
        space == "global"
        and isinstance(memory.base, Sym)
        and isinstance(memory.base.declaration, Param)
        and guard is None
    ):
        return _load_parameter(image, instr, memory, width, count, writes, scalar)
    strong = is_strong(instr)
    options = image.options
    access = Access(instr, space, width, count, options, reads=True, writes=False, strong=strong)
    # A structure passed by value is copied whole, with padding that nobody has written.
    is_parameter = form.space == "param"
    is_read_only = "nc" in form.flags or form.operation is Operation.UNIFORM_LOAD
    dtype = UINT[width]

    def step(c: Cohort) -> None:
        some, lanes = guarded_lanes(guard, c)
        if not some:
            return
        address = read(c)
        if lanes is not None and address.shape[0] > 1:
            address = address[lanes]
        pieces = access.pieces(c, address, lanes)
        values: list[Array] | None = None
        for piece in pieces:
            where = piece.selectors(width, count)
            if options.checks:
                if not is_parameter:
                    access.check_read(c, piece, where)
                if not is_read_only and access.is_raceable(piece):
                    places = access.check_races(c, piece, None, where)
                    access.note_access(c, piece, None, where, places)
            loaded = [piece.target.load(at, width) for at in where]
            if piece.lanes is None:
                values = loaded
            else:
                if values is None:
                    values = [np.zeros(c.n, dtype) for _ in range(count)]
                for value, part in zip(values, loaded, strict=True):
                    value[piece.lanes] = part
        if values is None:
            values = [np.zeros(1, dtype) for _ in range(count)]
        if options.counts or options.trace:
            access.tally(c, pieces)
        if strong:
            orders(c, instr, lanes, reads=True, writes=False)
        mask = None if lanes is None else guard(c) if guard is not None else None
        if scalar.bits == 128:
            values = [np.stack(values[index : index + 2], axis=1) for index in range(0, count, 2)]
        for write, skip, value in zip(writes, skips, values, strict=True):
            if not skip:
                write(c, value, mask)

    return step


def _load_parameter(
    image: Image, instr: Instr, memory: Mem, width: int, count: int, writes: list[Setter], scalar: ScalarType
) -> Step:
    """`ld.param` of an entry's parameter by name: one value for all lanes."""
    assert isinstance(memory.base, Sym)
    target = image.param_object
    param = memory.base.declaration
    assert isinstance(param, Param)
    inside = memory.base.offset + memory.offset
    start = image.params.offsets[memory.base.name] + inside
    if inside < 0 or inside + width * count > param.bytes:
        raise Refused(f"reads outside of parameter '{param.name}'")
    if start % (width * count):
        raise Refused(f"parameter '{param.name}' is not aligned for this access")
    first = start // width

    def step(c: Cohort) -> None:
        view = target.view(width)[0]
        if scalar.bits == 128:
            for index, write in enumerate(writes):
                write(c, view[first + 2 * index : first + 2 * index + 2].reshape(1, 2).copy(), None)
            return
        for index, write in enumerate(writes):
            write(c, view[first + index : first + index + 1].copy(), None)

    return step


# --- st --------------------------------------------------------------------------------------------------------------


def _store(image: Image, binder: Binder, instr: Instr) -> Step:
    form = instr.form
    scalar, width, count = _element(instr)
    memory = instr.operands[0]
    if not isinstance(memory, Mem):
        raise Refused(f"address '{memory.text}'")
    sources = binder.elements(instr.operands[1])
    if len(sources) != form.lanes:
        raise Refused(f"{len(sources)} registers for {form.lanes} elements")
    reads = [binder.source(source, scalar) for source in sources]
    flags = [_set_flag(binder, source) for source in sources]
    any_flags = any(flag is not None for flag in flags)
    guard = binder.guard(instr)
    strong = is_strong(instr)
    options = image.options
    access = Access(
        instr, space_of(binder, form.space, memory), width, count, options, reads=False, writes=True, strong=strong
    )
    where_to = address_of(binder, memory)

    def step(c: Cohort) -> None:
        some, lanes = guarded_lanes(guard, c)
        if not some:
            return
        address = where_to(c)
        if lanes is not None and address.shape[0] > 1:
            address = address[lanes]
        values = [read(c) for read in reads]
        if scalar.bits == 128:
            values = [value[:, half] for value in values for half in (0, 1)]
        if strong:
            orders(c, instr, lanes, reads=False, writes=True)
        pieces = access.pieces(c, address, lanes)
        for piece in pieces:
            if piece.target.space != "global" or piece.offsets.shape[0] == 1:
                # Lanes that share an address write one after the other; the last one stays.
                size = c.n if piece.lanes is None else piece.lanes.size
                piece.offsets = spread(piece.offsets, size)
            where = piece.selectors(width, count)
            parts = [
                value if value.shape[0] == 1 else value if piece.lanes is None else value[piece.lanes]
                for value in values
            ]
            race = options.checks and access.is_raceable(piece)
            places: list[Selector] = []
            value = parts[0] if count == 1 else None
            if race:
                places = access.check_races(c, piece, value, where)
            for at, part in zip(where, parts, strict=True):
                piece.target.store(at, width, part)
            if any_flags:
                _forget_unset(c, piece, where, width, flags)
            if race:
                access.note_access(c, piece, value, where, places)
        if options.counts or options.trace:
            access.tally(c, pieces)

    return step


def _set_flag(binder: Binder, source: Operand) -> int | None:
    """The register that says whether ``source`` is set, where it may not be."""
    keys = binder.registers.keys(source)
    return binder.registers.shadows.get(keys[0]) if len(keys) == 1 else None


def _forget_unset(c: Cohort, piece: Piece, where: list[Selector], width: int, flags: list[int | None]) -> None:
    """Storing a register that was never written (a structure's padding, say) leaves its bytes unwritten."""
    written = piece.target.view(width)[1]
    if written is None:
        return
    per = len(where) // len(flags)
    for number, at in enumerate(where):
        flag = flags[number // per]
        if flag is None:
            continue
        is_set = spread(c.env.get(flag, _UNSET), c.n)
        is_set = is_set if piece.lanes is None else is_set[piece.lanes]
        if not bool(is_set.all()):
            written[at] = np.where(is_set, written[at], 0)


_UNSET = np.zeros(1, bool)


# --- bytes of lanes --------------------------------------------------------------------------------------------------


def load_bytes(c: Cohort, access: Access, addresses: Array, lanes: Array) -> Array:
    """What ``lanes`` (positions in the cohort) read at ``addresses``: one row of bytes for each."""
    options = access.options
    data = np.zeros((lanes.size, access.nbytes), np.uint8)
    position = np.full(c.n, -1)
    position[lanes] = np.arange(lanes.size)
    pieces = access.pieces(c, addresses, lanes)
    for piece in pieces:
        where = piece.selectors(access.width, access.count)
        if options.checks:
            access.check_read(c, piece, where)
            if access.is_raceable(piece):
                places = access.check_races(c, piece, None, where)
                access.note_access(c, piece, None, where, places)
        loaded = np.stack([piece.target.load(each, access.width) for each in where], axis=1)
        loaded = np.broadcast_to(loaded, (len(_positions(piece, lanes)), access.count))
        data[position[_positions(piece, lanes)]] = (
            np.ascontiguousarray(loaded).view(np.uint8).reshape(-1, access.nbytes)
        )
    if options.counts or options.trace:
        access.tally(c, pieces)
    return data


def store_bytes(c: Cohort, access: Access, addresses: Array, lanes: Array, data: Array) -> None:
    """``lanes`` (positions in the cohort) write their rows of ``data`` at ``addresses``."""
    options = access.options
    values = np.ascontiguousarray(data).view(UINT[access.width])
    position = np.full(c.n, -1)
    position[lanes] = np.arange(lanes.size)
    pieces = access.pieces(c, addresses, lanes)
    for piece in pieces:
        where = piece.selectors(access.width, access.count)
        part = values[position[_positions(piece, lanes)]]
        race = options.checks and access.is_raceable(piece)
        places = access.check_races(c, piece, None, where) if race else []
        for index, at in enumerate(where):
            piece.target.store(at, access.width, part[:, index])
        if race:
            access.note_access(c, piece, None, where, places)
    if options.counts or options.trace:
        access.tally(c, pieces)


def _positions(piece: Piece, lanes: Array) -> Array:
    return lanes if piece.lanes is None else piece.lanes


# --- cp.async --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Copy:
    """Asynchronous copies of several threads that have been issued and not yet waited for."""

    instr: Instr
    threads: Array
    groups: Array
    addresses: Array
    data: Array
    access: Access

    def take(self, keep: Array) -> None:
        """Forget the threads that are not to be kept."""
        self.threads, self.groups = self.threads[keep], self.groups[keep]
        self.addresses, self.data = self.addresses[keep], self.data[keep]


@dataclass(slots=True)
class Pending:
    """The asynchronous copies of a batch; ``group`` counts the groups that each thread has committed."""

    group: Array
    copies: list[Copy] = field(default_factory=list[Copy])


def _pending(batch: Batch) -> Pending:
    if batch.copies is None:
        batch.copies = Pending(np.zeros(batch.threads, np.int64))
    found: Pending = batch.copies
    return found


def _copy_async(image: Image, binder: Binder, instr: Instr) -> Step:
    operands = instr.operands
    size = operands[2]
    if not isinstance(size, Imm):
        raise Refused("a size that is no constant")
    nbytes = integer(size.text, "a size")
    if nbytes not in (4, 8, 16):
        raise Refused(f"{nbytes} bytes")
    extra = [operand for operand in operands[3:] if not (isinstance(operand, Reg) and operand.type.bits == 64)]
    if len(extra) > 1:
        raise Refused("operands")
    width = min(nbytes, 8)
    count = nbytes // width
    limit: Getter | None = None
    ignore: Getter | None = None
    if extra:
        is_predicate = isinstance(extra[0], Reg) and extra[0].type.kind == "p"
        if is_predicate:
            ignore = binder.source(extra[0], TYPES["pred"])
        else:
            limit = binder.source(extra[0], TYPES["b32"])
    source = Access(instr, "global", width, count, image.options, reads=True, writes=False)
    target = Access(instr, "shared", width, count, image.options, reads=False, writes=True)
    read_from, write_to = address_of(binder, operands[1]), address_of(binder, operands[0])
    guard = binder.guard(instr)

    def step(c: Cohort) -> None:
        some, lanes = guarded_lanes(guard, c)
        if not some:
            return
        at = np.arange(c.n) if lanes is None else lanes
        addresses = spread(read_from(c), c.n)[at]
        wanted = np.full(at.size, nbytes, np.int64)
        if limit is not None:
            wanted = np.minimum(spread(limit(c), c.n)[at].astype(np.int64), nbytes)
        if ignore is not None:
            wanted = np.where(spread(ignore(c), c.n)[at], 0, wanted)
        data = np.zeros((at.size, nbytes), np.uint8)
        taking = wanted > 0
        if bool(taking.any()):
            data[taking] = load_bytes(c, source, addresses[taking], at[taking])
        data[np.arange(nbytes) >= wanted[:, None]] = 0
        _issue(c, instr, target, at, spread(write_to(c), c.n)[at], data)

    return step


def _issue(c: Cohort, instr: Instr, target: Access, at: Array, addresses: Array, data: Array) -> None:
    pending = _pending(c.batch)
    threads = c.threads[at]
    for piece in target.pieces(c, addresses, at):
        for where in piece.selectors(target.width, target.count):
            written = piece.target.view(target.width)[1]
            if written is not None:
                written[where] = 0
    pending.copies.append(Copy(instr, threads, pending.group[threads].copy(), addresses, data, target))


def taken_copies(batch: Batch, thread: int) -> list[tuple[Access, Array, Array]]:
    """The copies that ``thread`` has under way, which are no longer waited for by group: access, addresses, data."""
    if batch.copies is None:
        return []
    found: list[tuple[Access, Array, Array]] = []
    rest: list[Copy] = []
    for copy in _pending(batch).copies:
        mine = copy.threads == thread
        if bool(mine.any()):
            found.append((copy.access, copy.addresses[mine], copy.data[mine]))
            copy.take(~mine)
        if copy.threads.size:
            rest.append(copy)
    _pending(batch).copies = rest
    return found


def _commit(c: Cohort) -> None:
    _pending(c.batch).group[c.threads] += 1


def _wait(instr: Instr) -> Step:
    is_all = not instr.operands
    left = 0
    if not is_all:
        operand = instr.operands[0]
        if not isinstance(operand, Imm):
            raise Refused("a count that is no constant")
        left = integer(operand.text, "a count")

    def step(c: Cohort) -> None:
        pending = _pending(c.batch)
        # A copy is in group g while the thread has committed g groups; group g is complete once g < committed - left.
        due = np.full(c.batch.threads, -1, np.int64)
        due[c.threads] = np.iinfo(np.int64).max if is_all else pending.group[c.threads] - left
        position = np.full(c.batch.threads, -1, np.int64)
        position[c.threads] = np.arange(c.n)
        rest: list[Copy] = []
        for copy in pending.copies:
            done = copy.groups < due[copy.threads]
            if bool(done.any()):
                _finish(c, copy, position[copy.threads[done]], done)
            if not bool(done.all()):
                copy.take(~done)
                rest.append(copy)
        pending.copies = rest

    return step


def _finish(c: Cohort, copy: Copy, lanes: Array, done: Array) -> None:
    access = copy.access
    addresses, data = copy.addresses[done], copy.data[done]
    order = np.argsort(lanes, kind="stable")
    store_bytes(c, access, addresses[order], lanes[order], data[order])
