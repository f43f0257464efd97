"""Memory instructions without atomics: `ld`, `ldu`, `st`, `prefetch`, `createpolicy`, `cp.async`.

Guarantees: every cache and eviction modifier is accepted and has no effect. `.volatile`, `.relaxed`, `.acquire`,
`.release` and `.cv` make an access strong; accesses with an order are fences, too. `cp.async` reads its source when it
is issued and writes its destination when the thread waits for it. Until then the destination counts as never written.
The state spaces of a cluster are those of the block, since a cluster has one block here.
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

__all__ = [
    "Pending",
    "active_addresses",
    "address_of",
    "bind",
    "guarded_lanes",
    "is_strong",
    "load_bytes",
    "memory_operand",
    "orders",
    "space_of",
    "store_bytes",
    "store_piece",
    "taken_copies",
]

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
    """A prefetch has no effect that a program can see."""


# --- addresses -----------------------------------------------------------------------------------------------------


def memory_operand(operand: Operand) -> Mem:
    """``operand`` as an address in brackets; `Refused` where it is none."""
    if not isinstance(operand, Mem):
        raise Refused(f"address '{operand.text}'")
    return operand


def space_of(binder: Binder, form_space: str, address: Mem) -> str:
    """The space of an access: ``global``, ``shared``, ``local`` or ``generic``.

    Constant memory and the parameters of an entry are read like global memory. Parameters of functions and variables
    for calls are in the local frame.
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
    """The address as int64: one for each lane, or one for all."""
    memory = memory_operand(operand)
    if memory.rest:
        raise Refused(f"address '{memory.text}'")
    offset = np.int64(wrapped(memory.offset))
    base = memory.base
    if isinstance(base, Imm):
        constant = np.array([wrapped(integer(base.text, "an address") + memory.offset)], np.int64)
        return lambda c: constant
    if isinstance(base, Sym):
        symbol_address = binder.symbol(base)
        if isinstance(symbol_address, int):
            constant = np.array([wrapped(symbol_address + memory.offset)], np.int64)
            return lambda c: constant
        return lambda c: symbol_address(c) + offset
    read = binder.source(base, None)

    def address(c: Cohort) -> Array:
        value = read(c)
        # The sum of a 32-bit base and its offset wraps around. Compilers use this: shared memory at -64 + 68 is at 4.
        wide = value.astype(np.int64) + offset
        return wide & np.int64(0xFFFF_FFFF) if value.itemsize == 4 else wide

    return address


def is_strong(instr: Instr) -> bool:
    """Whether the access is strong: volatile, relaxed, acquire, release, mmio or uncached."""
    mods = instr.form.mods
    return mods.get("sem", "weak") != "weak" or mods.get("cop") == "cv"


def orders(c: Cohort, instr: Instr, lanes: Array | None, *, reads: bool, writes: bool) -> None:
    """Record, for the race check, how a strong access orders other accesses."""
    order = c.batch.order
    threads = c.threads if lanes is None else c.threads[lanes]
    blocks = c.blocks if lanes is None else c.blocks[lanes]
    sem = instr.form.mods.get("sem", "weak")
    if sem in ("release", "acq_rel", "sc"):
        order.fence(threads, blocks, instr.form.mods.get("scope", "gpu") != "cta")
    order.strong(threads, blocks, reads=reads, writes=writes)


def _element(instr: Instr) -> tuple[ScalarType, int, int]:
    """Type, width in bytes and number of the elements in memory; 128 bits are two elements of 8 bytes."""
    scalar = instr.form.type
    if scalar is None:
        raise Refused("")
    if scalar.bits == 128:
        return scalar, 8, 2 * instr.form.lanes
    if scalar.bytes not in UINT:
        raise Refused(f".{scalar.name} in memory")
    return scalar, scalar.bytes, instr.form.lanes


def guarded_lanes(guard: Getter | None, c: Cohort) -> tuple[bool, Array | None]:
    """Whether any lane is active, and the active lanes (``None``: all)."""
    if guard is None:
        return True, None
    flags = guard(c)
    if bool(flags.all()):
        return True, None
    lanes = np.flatnonzero(spread(flags, c.n))
    return bool(lanes.size), lanes


def active_addresses(c: Cohort, read: Getter, lanes: Array | None) -> Array:
    """The addresses of ``lanes`` (``None``: all), or one address if it is the same for all."""
    address = read(c)
    return address if lanes is None or address.shape[0] == 1 else address[lanes]


# --- ld --------------------------------------------------------------------------------------------------------------


def _load(image: Image, binder: Binder, instr: Instr) -> Step:
    form = instr.form
    scalar, width, count = _element(instr)
    memory = memory_operand(instr.operands[1])
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
    access = Access(instr, space, width, count, image.options, reads=True, writes=False, strong=strong)
    # A structure that is passed by value is copied with its padding, which was never written.
    is_parameter = form.space == "param"
    is_read_only = "nc" in form.flags or form.operation is Operation.UNIFORM_LOAD

    def step(c: Cohort) -> None:
        any_active, lanes = guarded_lanes(guard, c)
        if not any_active:
            return
        pieces = access.pieces(c, active_addresses(c, read, lanes), lanes)
        for piece in pieces:
            access.check(c, piece, reads=not is_parameter, races=not is_read_only)
        values = _loaded(c, pieces, width, count)
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


def _loaded(c: Cohort, pieces: list[Piece], width: int, count: int) -> list[Array]:
    """The ``count`` elements of ``width`` bytes of each lane: arrays with one value for each lane, or one for all."""
    values: list[Array] | None = None
    for piece in pieces:
        loaded = [piece.target.load(at, width) for at in piece.selectors(width, count)]
        if piece.lanes is None:
            values = loaded
            continue
        if values is None:
            values = [np.zeros(c.n, UINT[width]) for _ in range(count)]
        for value, part in zip(values, loaded, strict=True):
            value[piece.lanes] = part
    return values if values is not None else [np.zeros(1, UINT[width]) for _ in range(count)]


def _load_parameter(
    image: Image, instr: Instr, memory: Mem, width: int, count: int, writes: list[Setter], scalar: ScalarType
) -> Step:
    """`ld.param` of a parameter of an entry by name: one value for all lanes."""
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
    memory = memory_operand(instr.operands[0])
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
    target_address = address_of(binder, memory)

    def step(c: Cohort) -> None:
        any_active, lanes = guarded_lanes(guard, c)
        if not any_active:
            return
        values = [read(c) for read in reads]
        if scalar.bits == 128:
            values = [value[:, half] for value in values for half in (0, 1)]
        if strong:
            orders(c, instr, lanes, reads=False, writes=True)
        pieces = access.pieces(c, active_addresses(c, target_address, lanes), lanes)
        for piece in pieces:
            if piece.target.space != "global" or piece.offsets.shape[0] == 1:
                # If lanes have the same address, the value of the last lane remains.
                size = c.n if piece.lanes is None else piece.lanes.size
                piece.offsets = spread(piece.offsets, size)
            selectors = piece.selectors(width, count)
            parts = [
                value if value.shape[0] == 1 else value if piece.lanes is None else value[piece.lanes]
                for value in values
            ]
            race = options.checks and access.is_raceable(piece)
            locations: list[Selector] = []
            value = parts[0] if count == 1 else None
            if race:
                locations = access.check_races(c, piece, value, selectors)
            for at, part in zip(selectors, parts, strict=True):
                piece.target.store(at, width, part)
            if any_flags:
                _forget_unset(c, piece, selectors, width, flags)
            if race:
                access.note_access(c, piece, value, selectors, locations)
        access.tally(c, pieces)

    return step


def _set_flag(binder: Binder, source: Operand) -> int | None:
    """The shadow of the register ``source`` (`Registers.shadows`); ``None`` if it has none."""
    keys = binder.registers.keys(source)
    return binder.registers.shadows.get(keys[0]) if len(keys) == 1 else None


def _forget_unset(c: Cohort, piece: Piece, selectors: list[Selector], width: int, flags: list[int | None]) -> None:
    """Mark bytes as never written where the stored register was never written, such as the padding of a structure."""
    written = piece.target.view(width)[1]
    if written is None:
        return
    selectors_per_register = len(selectors) // len(flags)
    for number, at in enumerate(selectors):
        flag = flags[number // selectors_per_register]
        if flag is None:
            continue
        is_set = spread(c.env.get(flag, _UNSET), c.n)
        is_set = is_set if piece.lanes is None else is_set[piece.lanes]
        if not bool(is_set.all()):
            written[at] = np.where(is_set, written[at], 0)


_UNSET = np.zeros(1, bool)


# --- rows of bytes --------------------------------------------------------------------------------------------------


def load_bytes(c: Cohort, access: Access, addresses: Array, lanes: Array) -> Array:
    """The bytes that ``lanes`` (positions in the cohort) read at ``addresses``: one row for each lane."""
    data = np.zeros((lanes.size, access.nbytes), np.uint8)
    position = np.full(c.n, -1)
    position[lanes] = np.arange(lanes.size)
    pieces = access.pieces(c, addresses, lanes)
    for piece in pieces:
        access.check(c, piece)
        selectors = piece.selectors(access.width, access.count)
        loaded = np.stack([piece.target.load(index, access.width) for index in selectors], axis=1)
        loaded = np.broadcast_to(loaded, (len(_positions(piece, lanes)), access.count))
        data[position[_positions(piece, lanes)]] = (
            np.ascontiguousarray(loaded).view(np.uint8).reshape(-1, access.nbytes)
        )
    access.tally(c, pieces)
    return data


def store_bytes(c: Cohort, access: Access, addresses: Array, lanes: Array, data: Array) -> None:
    """``lanes`` (positions in the cohort) write their rows of ``data`` at ``addresses``."""
    values = np.ascontiguousarray(data).view(UINT[access.width])
    position = np.full(c.n, -1)
    position[lanes] = np.arange(lanes.size)
    pieces = access.pieces(c, addresses, lanes)
    for piece in pieces:
        store_piece(c, access, piece, values[position[_positions(piece, lanes)]])
    access.tally(c, pieces)


def store_piece(c: Cohort, access: Access, piece: Piece, values: Array) -> None:
    """Store ``values`` (lanes × elements) at the offsets of ``piece``, with the checks of the access."""
    selectors = piece.selectors(access.width, access.count)
    race = access.options.checks and access.is_raceable(piece)
    locations = access.check_races(c, piece, None, selectors) if race else []
    for index, elements in enumerate(selectors):
        piece.target.store(elements, access.width, values[:, index])
    if race:
        access.note_access(c, piece, None, selectors, locations)


def _positions(piece: Piece, lanes: Array) -> Array:
    return lanes if piece.lanes is None else piece.lanes


# --- cp.async --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Copy:
    """Asynchronous copies of several threads that were issued and have not been waited for."""

    instr: Instr
    threads: Array
    groups: Array
    addresses: Array
    data: Array
    access: Access

    def retain(self, keep: Array) -> None:
        """Remove the copies of all threads for which ``keep`` is false."""
        self.threads, self.groups = self.threads[keep], self.groups[keep]
        self.addresses, self.data = self.addresses[keep], self.data[keep]


@dataclass(slots=True)
class Pending:
    """The asynchronous copies of a batch; ``group`` has the number of groups that each thread has committed."""

    group: Array
    copies: list[Copy] = field(default_factory=list[Copy])


def _pending(batch: Batch) -> Pending:
    if batch.copies is None:
        batch.copies = Pending(np.zeros(batch.threads, np.int64))
    pending: Pending = batch.copies
    return pending


def _copy_async(image: Image, binder: Binder, instr: Instr) -> Step:
    operands = instr.operands
    size = operands[2]
    if not isinstance(size, Imm):
        raise Refused("a size that is not a constant")
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
        any_active, lanes = guarded_lanes(guard, c)
        if not any_active:
            return
        active = np.arange(c.n) if lanes is None else lanes
        addresses = spread(read_from(c), c.n)[active]
        sizes = np.full(active.size, nbytes, np.int64)
        if limit is not None:
            sizes = np.minimum(spread(limit(c), c.n)[active].astype(np.int64), nbytes)
        if ignore is not None:
            sizes = np.where(spread(ignore(c), c.n)[active], 0, sizes)
        data = np.zeros((active.size, nbytes), np.uint8)
        is_read = sizes > 0
        if bool(is_read.any()):
            data[is_read] = load_bytes(c, source, addresses[is_read], active[is_read])
        data[np.arange(nbytes) >= sizes[:, None]] = 0
        _issue(c, instr, target, active, spread(write_to(c), c.n)[active], data)

    return step


def _issue(c: Cohort, instr: Instr, target: Access, lanes: Array, addresses: Array, data: Array) -> None:
    pending = _pending(c.batch)
    threads = c.threads[lanes]
    for piece in target.pieces(c, addresses, lanes):
        for index in piece.selectors(target.width, target.count):
            written = piece.target.view(target.width)[1]
            if written is not None:
                written[index] = 0
    pending.copies.append(Copy(instr, threads, pending.group[threads].copy(), addresses, data, target))


def taken_copies(batch: Batch, thread: int) -> list[tuple[Access, Array, Array]]:
    """Remove and return the pending copies of ``thread``: access, addresses, data.

    They no longer belong to a group that a thread can wait for.
    """
    if batch.copies is None:
        return []
    taken: list[tuple[Access, Array, Array]] = []
    remaining: list[Copy] = []
    for copy in _pending(batch).copies:
        of_thread = copy.threads == thread
        if bool(of_thread.any()):
            taken.append((copy.access, copy.addresses[of_thread], copy.data[of_thread]))
            copy.retain(~of_thread)
        if copy.threads.size:
            remaining.append(copy)
    _pending(batch).copies = remaining
    return taken


def _commit(c: Cohort) -> None:
    _pending(c.batch).group[c.threads] += 1


def _wait(instr: Instr) -> Step:
    is_all = not instr.operands
    left = 0
    if not is_all:
        operand = instr.operands[0]
        if not isinstance(operand, Imm):
            raise Refused("a count that is not a constant")
        left = integer(operand.text, "a count")

    def step(c: Cohort) -> None:
        pending = _pending(c.batch)
        # A copy is in group g if its thread had committed g groups. The wait completes group g if g < committed - left.
        due = np.full(c.batch.threads, -1, np.int64)
        due[c.threads] = np.iinfo(np.int64).max if is_all else pending.group[c.threads] - left
        position = np.full(c.batch.threads, -1, np.int64)
        position[c.threads] = np.arange(c.n)
        remaining: list[Copy] = []
        for copy in pending.copies:
            done = copy.groups < due[copy.threads]
            if bool(done.any()):
                _finish(c, copy, position[copy.threads[done]], done)
            if not bool(done.all()):
                copy.retain(~done)
                remaining.append(copy)
        pending.copies = remaining

    return step


def _finish(c: Cohort, copy: Copy, lanes: Array, done: Array) -> None:
    access = copy.access
    addresses, data = copy.addresses[done], copy.data[done]
    order = np.argsort(lanes, kind="stable")
    store_bytes(c, access, addresses[order], lanes[order], data[order])
