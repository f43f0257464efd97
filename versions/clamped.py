"""Clamps the indices of loads to the extents of their buffers, so that the loads may be executed early.

A load such as ``a[b[i]]`` has an index that only memory knows, so no comparison at the launch shows where it reads. A
version may clamp the index: ``min.u32(index, limit)``, where ``limit`` is the index of the last element that lies in
the buffer. It is one more parameter of the version, and the launch computes it.

One clamp serves all loads of a block that have the same index, also of several buffers. Its limit is the least of their
limits. A thread that executes one of these loads executes all of them.

Where the kernel executes the loads, the index is at most the limit, since the loads are in their buffers (the
assumption of `points_to`). So the clamp changes nothing there, if three things hold:

- the access lies in one element, at an offset of less than the stride, so a larger index is outside;
- a negative index is outside. This is so if the elements start where the buffer does. It is also so if a comparison has
  shown that the index, or what the launch adds to a scalar to get it, is not negative: then it is negative only where
  the sum wraps around, and far away. An index that is extended as an unsigned number is never negative;
- the rest behind the last whole element has no room for the access: an access has the size of an element, or the buffer
  ends where an element ends.

Elsewhere, the load is in the buffer for any index.

Requires: an entry without nested scopes. Guarantees: in a launch for which `limit_conditions` hold and in which each
limit has the value of `limit_values`, the kernel computes the same as before. Refuses: indices of 64 bits that no load
has extended, addresses with several indices, guarded loads and vectors, registers whose definition does not dominate
the load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..analysis.effects import may_move, may_not_return
from ..analysis.manager import Facts
from ..analysis.memory.access_ranges import AccessRanges
from ..analysis.memory.assumptions import Elements, Limit
from ..analysis.memory.clamped_indices import CLAMP, Indexed, indices_of
from ..analysis.values.symbolic_values import Materializer, SymbolicValues
from ..contract import Condition, Expression, Holds, Number
from ..contract.expressions import argument, begin, compare, end, minimum
from ..ptx import TYPES, Block, Instr, Kernel, Mem, Param, Reg, Sym, decode
from ..ptx.operands import Imm
from ..ptx.operations import Operation

if TYPE_CHECKING:
    from ..analysis.memory.alias import Reference

__all__ = ["Clamped", "clamp_indices", "limit_conditions", "limit_values"]

#: The most limits of a version. Each is a parameter.
_MOST_LIMITS = 8
#: The most loads whose index is clamped.
_MOST_LOADS = 64


@dataclass(frozen=True)
class Clamped:
    """A kernel with clamped indices. ``positions``: the offsets in the source of the loads whose index is clamped."""

    kernel: Kernel
    limits: tuple[Limit, ...]
    positions: frozenset[int]


def clamp_indices(facts: Facts, wanted: Collection[int]) -> Clamped | None:
    """Clamp indices of the kernel of ``facts``; ``None`` if no load has an index to clamp. ``wanted``: the offsets in
    the source of the loads whose index may be clamped."""
    if not wanted:
        return None
    candidates = list(_candidates(facts, wanted))
    if not candidates:
        return None
    writer = _Writer(facts)
    for load in candidates:
        writer.add(load)
    return writer.write()


def limit_values(limits: Iterable[Limit]) -> tuple[Expression, ...]:
    """The values of the parameters, in their order."""
    return tuple(minimum(*map(_last, limit.buffers), _largest(limit.buffers)) for limit in limits)


def _last(each: Elements) -> Expression:
    """The index of the last element."""
    return (end(each.pointer) - _start(each)) // each.stride - 1


def _largest(buffers: Iterable[Elements]) -> int:
    """The largest index that is not negative once it is extended."""
    return (1 << (31 if any(each.kind == "s" for each in buffers) else 32)) - 1


def _start(each: Elements) -> Expression:
    return argument(each.pointer) + each.shift


def limit_conditions(limits: Iterable[Limit]) -> tuple[Condition, ...]:
    """The conditions of the launch under which the clamps change nothing, and under which the clamped loads are inside
    their buffers and aligned."""
    found: dict[Condition, None] = {}
    for each in (each for limit in limits for each in limit.buffers):
        start = _start(each)
        found.update(dict.fromkeys(_negative_outside(each, start)))
        found[Holds(compare(">=", end(each.pointer) - start, each.stride))] = None
        if each.align > 1:
            found[Holds(compare("==", start % each.align, 0))] = None
        if each.is_whole:
            found[Holds(compare("==", (end(each.pointer) - start) % each.stride, 0))] = None
    return tuple(found)


def _negative_outside(each: Elements, start: Expression) -> Iterator[Condition]:
    """The conditions that an access with a negative index would be outside of the buffer, and that index 0 is not in
    front of it."""
    least = begin(each.pointer)
    if each.kind == "s" and each.beyond is None:
        yield Holds(compare("==", start, least))
        return
    yield Holds(compare(">=", start, least))
    if each.kind == "s" and each.beyond is not None and each.beyond != Number(0):
        # The largest index that is negative, because the sum wraps around: beyond + (2^31 - 1) - 2^32.
        yield Holds(compare(">=", each.beyond, 0))
        yield Holds(compare("<=", each.beyond, 1 << 31))
        yield Holds(compare("<=", start + (each.beyond - (1 << 31)) * each.stride, least))


class _Key(NamedTuple):
    """What two loads from the elements of the same buffer have in common."""

    pointer: int
    shift: Expression
    stride: int
    kind: str
    beyond: Expression | None


@dataclass(frozen=True, slots=True)
class _Load:
    """A load with an index to clamp. ``part``: the number of the part of its block; all instructions of a part are
    executed if one of them is."""

    instr: Instr
    block: int
    part: int
    reference: Reference
    indexed: Indexed
    key: _Key


def _candidates(facts: Facts, wanted: Collection[int]) -> Iterator[_Load]:
    """The loads behind the first block, at offsets in the source that are ``wanted``, which may get a clamp."""
    for block in facts.cfg.rpo[1:]:
        part = 0
        for instr in facts.cfg.blocks[block].instrs:
            if not instr.is_directive and may_not_return(instr.form):
                part += 1
            if instr.pos not in wanted:
                continue
            form = instr.form
            if form.operation is not Operation.LOAD or form.space not in ("global", "generic") or form.lanes != 1:
                continue
            reference = facts.memory.reference(instr)
            if reference is None or instr.guard is not None or may_move(instr).reason:
                continue
            # The later questions are slower.
            found = _indexed(facts, reference)
            if found is not None and facts.get(AccessRanges).of(instr) is None:
                yield _Load(instr, block, part, reference, found[0], _key(facts, *found, block))


def _indexed(facts: Facts, reference: Reference) -> tuple[Indexed, int, Expression] | None:
    """The index of a reference, and its buffer: the number of the pointer and what the launch adds to it."""
    ranges, params = facts.get(AccessRanges), list(facts.kernel.params or ())
    size = reference.bytes
    for indexed in indices_of(facts, reference):
        start, stride = ranges.shifted_pointer(indexed.start), indexed.stride
        if start is None or reference.objects != frozenset[Param]([params[start[0]]]):
            continue
        if 0 <= reference.offset <= stride - size and stride % size == 0 and reference.offset % size == 0:
            return indexed, *start
    return None


def _key(facts: Facts, indexed: Indexed, pointer: int, shift: Expression, block: int) -> _Key:
    """What identifies the buffer of a load in a block."""
    is_signed = indexed.kind == "s"
    beyond = facts.get(AccessRanges).beyond(indexed.index, indexed.bits, block) if is_signed else None
    return _Key(pointer, shift, indexed.stride, indexed.kind, beyond)


#: The loads that one clamp serves: block, part of the block, SSA value of the index, how the index is extended.
_Group = tuple[int, int, int, str]


class _Writer:
    """Collects loads, and writes the clamps. The facts are those of the kernel before."""

    def __init__(self, facts: Facts) -> None:
        self._kernel = facts.kernel
        # Facts are computed again once the kernel has changed.
        self._ssa, self._cfg, self._values, self._dominance = facts.ssa, facts.cfg, facts.values, facts.dominance
        #: Computes the starts of the elements at the end of the first block.
        self._maker = Materializer(SymbolicValues(facts), facts.cfg.rpo[0])
        #: By class of values: the register of `_start`.
        self._starts: dict[int, Reg | None] = {}
        #: The loads of each group, with the registers that hold the starts of their elements.
        self._groups: dict[_Group, list[tuple[_Load, Reg]]] = {}
        self._count = 0

    def add(self, load: _Load) -> None:
        """Plan the clamp of a load, if its index is in a register."""
        value = self._value(load)
        start = self._start(load.indexed.start) if value is not None else None
        if value is not None and start is not None and self._count < _MOST_LOADS:
            self._groups.setdefault((load.block, load.part, value, load.indexed.kind), []).append((load, start))
            self._count += 1

    def _start(self, number: int) -> Reg | None:
        """A register that has a value of 64 bits from the end of the first block on. One of the kernel may be
        overwritten before the load, so its value is copied."""
        if number not in self._starts:
            register = self._maker.register(number, 64)
            if register is not None and sum(register in instr.defs() for instr in self._kernel.instructions()) > 1:
                copied = self._kernel.new_reg("b64")
                self._maker.code.append(Instr(decode("mov.b64", 2), (copied, register)))
                register = copied
            self._starts[number] = register
        return self._starts[number]

    def write(self) -> Clamped | None:
        """Write all clamps; the kernel with them, or ``None`` if there is none."""
        limits: dict[frozenset[_Key], Limit] = {}
        written: list[tuple[_Group, frozenset[_Key]]] = []
        for group, loads in self._groups.items():
            keys = frozenset(load.key for load, _ in loads)
            if keys not in limits and len(limits) == _MOST_LIMITS:
                continue
            name = limits[keys].name if keys in limits else self._name(len(limits))
            limits[keys] = _limit(name, [load for load, _ in loads], limits.get(keys))
            written.append((group, keys))
        if not written:
            return None
        return self._written(limits, written)

    def _written(self, limits: dict[frozenset[_Key], Limit], written: list[tuple[_Group, frozenset[_Key]]]) -> Clamped:
        kernel = self._kernel
        entry = self._cfg.blocks[self._cfg.rpo[0]]
        self._insert(entry, len(entry.instrs) - (entry.terminator is not None), self._maker.code)
        first: list[Instr] = []
        registers: dict[frozenset[_Key], Reg] = {}
        params = list(kernel.params or ())
        for keys, limit in limits.items():
            param = Param(limit.name, "param", TYPES["u32"])
            params.append(param)
            registers[keys] = kernel.new_reg("b32")
            first.append(Instr(decode("ld.param.u32", 2), (registers[keys], Mem(Sym(limit.name, param)))))
        #: By SSA value of an index and its limit: the register of the clamped index.
        clamped: dict[tuple[int, frozenset[_Key]], Reg] = {}
        positions: set[int] = set()
        for group, keys in written:
            value = group[2]
            if (value, keys) not in clamped:
                clamped[value, keys] = self._clamp(value, registers[keys])
            self._rewrite(self._groups[group], clamped[value, keys])
            positions.update(load.instr.pos for load, _ in self._groups[group])
        kernel.params = params
        self._insert(entry, 0, first)
        return Clamped(kernel, tuple(limits.values()), frozenset(positions))

    def _rewrite(self, loads: list[tuple[_Load, Reg]], index: Reg) -> None:
        """Give the loads of a group addresses with the clamped index."""
        #: By base of an address: the register of the address with the clamped index.
        made: dict[int, Reg] = {}
        for load, start in loads:
            address = made.get(load.reference.base)
            if address is None:
                address = made[load.reference.base] = self._address(load, index, start)
            # A load may have a policy of the cache behind its address.
            result, _, *others = load.instr.operands
            self._kernel.replace_operands(load.instr, (result, Mem(address, load.reference.offset), *others))

    def _name(self, number: int) -> str:
        name = f"{self._kernel.name}_limit_{number}"
        names = {*self._kernel.names, *(param.name for param in self._kernel.params or ())}
        while name in names:
            name += "_"
        return name

    def _clamp(self, value: int, limit: Reg) -> Reg:
        """Write the clamp of an SSA value directly behind its definition; its result."""
        ssa = self._ssa
        index, code = ssa.reg[value], list[Instr]()
        if index.type.bits == 64:
            index = self._kernel.new_reg("b32")
            code.append(Instr(decode("cvt.u32.u64", 2), (index, ssa.reg[value])))
        result = self._kernel.new_reg("b32")
        code.append(Instr(decode(CLAMP, 3), (result, index, limit)))
        block = self._cfg.blocks[ssa.block[value]]
        definition = ssa.instr[value]
        # A φ has no instruction: its value is in the register at the start of the block.
        self._insert(block, 0 if definition is None else block.instrs.index(definition) + 1, code)
        return result

    def _address(self, load: _Load, index: Reg, start: Reg) -> Reg:
        block = self._cfg.blocks[load.block]
        distance, address = self._kernel.new_reg("b64"), self._kernel.new_reg("b64")
        operands = (distance, index, Imm(str(load.indexed.stride)))
        product = Instr(decode(f"mul.wide.{load.indexed.kind}32", 3), operands, loc=load.instr.loc)
        total = Instr(decode("add.s64", 3), (address, start, distance), loc=load.instr.loc)
        self._insert(block, block.instrs.index(load.instr), [product, total])
        return address

    def _insert(self, block: Block, position: int, code: list[Instr]) -> None:
        self._kernel.set_instrs(block, [*block.instrs[:position], *code, *block.instrs[position:]])

    def _value(self, load: _Load) -> int | None:
        """An SSA value of the index of a load in a register, whose definition dominates the load."""
        ssa = self._ssa
        for value, own in enumerate(self._values.number):
            reg = ssa.reg[value]
            if own != load.indexed.index or reg.type.bits != load.indexed.bits or reg.lanes != 1 or reg.type.lanes != 1:
                continue
            if reg.type.kind in "bus" and reg not in self._values.late and self._dominates(value, load):
                return value
        return None

    def _dominates(self, value: int, load: _Load) -> bool:
        """Whether the definition of an SSA value is a φ or a whole instruction, and dominates the load."""
        definition, block = self._ssa.instr[value], self._ssa.block[value]
        if definition is None:
            if value not in self._ssa.phi_args:
                return False
        elif definition.guard is not None or definition.form.dst_count != 1 or definition.form.is_call:
            return False
        if block == load.block and definition is not None:
            instrs = self._cfg.blocks[block].instrs
            return instrs.index(definition) < instrs.index(load.instr)
        return block == load.block or self._dominance.dominates(block, load.block)


def _limit(name: str, loads: list[_Load], earlier: Limit | None) -> Limit:
    """The limit of a group of loads; ``earlier`` is that of groups with the same buffers."""
    found: dict[_Key, Elements] = {_key_of(each): each for each in earlier.buffers} if earlier is not None else {}
    for load in loads:
        size = load.reference.bytes
        each = found.get(load.key) or Elements(*load.key, size, is_whole=False)
        is_whole = each.is_whole or size != load.indexed.stride
        found[load.key] = replace(each, align=max(each.align, size), is_whole=is_whole)
    return Limit(name, tuple(found.values()))


def _key_of(each: Elements) -> _Key:
    return _Key(each.pointer, each.shift, each.stride, each.kind, each.beyond)
