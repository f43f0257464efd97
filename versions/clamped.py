"""Clamps the indices of loads to the extents of their buffers, so that the loads may be executed early.

A load such as ``a[b[i]]`` has an index that only memory knows, so no comparison at the launch shows where it reads. A
version may clamp the index: ``min.u32(index, limit)``, where ``limit`` is the index of the last element that lies in
the buffer. It is one more parameter of the version, and the launch computes it. One clamp of an index serves all loads
with this index, stride and pointer.

Where the kernel executes the load, the index is at most the limit, since the load is in the buffer (the assumption of
`points_to`). So the clamp changes nothing there, if three things hold:

- the access lies in one element, at an offset of less than the stride, so a larger index is outside;
- the index is not negative, or the pointer is the start of the buffer, so that a negative index is outside;
- the rest behind the last whole element has no room for the access: an access has the size of an element, or the buffer
  consists of whole elements.

Elsewhere, the load is in the buffer for any index.

Requires: an entry without nested scopes. Guarantees: in a launch for which `limit_conditions` hold and in which each
limit has the value of `limit_values`, the kernel computes the same as before. Refuses: indices that are not 32 bits
wide, addresses with several indices, guarded loads and vectors, registers whose definition does not dominate the load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.effects import may_move
from ..analysis.manager import Facts
from ..analysis.memory.access_ranges import AccessRanges
from ..analysis.memory.assumptions import Limit
from ..analysis.memory.clamped_indices import CLAMP, Indexed, index_of
from ..analysis.values.polynomial import constant
from ..contract import Condition, Expression, Holds
from ..contract.expressions import argument, begin, compare, end, minimum
from ..ptx import TYPES, Block, Instr, Kernel, Mem, Module, Param, Reg, Sym, decode
from ..ptx.operands import Imm
from ..ptx.operations import Operation

if TYPE_CHECKING:
    from ..analysis.memory.alias import Reference

__all__ = ["Clamped", "clamp_indices", "limit_conditions", "limit_values"]

#: The most limits of a version. Each is a parameter.
_MOST_LIMITS = 8


@dataclass(frozen=True)
class Clamped:
    """A kernel with clamped indices. ``positions``: the offsets in the source of the loads whose index is clamped."""

    kernel: Kernel
    limits: tuple[Limit, ...]
    positions: frozenset[int]


def clamp_indices(module: Module, given: Kernel, wanted: Collection[int] | None = None) -> Clamped | None:
    """A copy of the kernel with clamped indices; ``None`` if no load has an index to clamp. ``wanted``: only the loads
    at these offsets in the source."""
    kernel = given.clone()
    facts = Facts(kernel, module)
    writer = _Writer(facts)
    for load in _candidates(facts):
        if wanted is None or load.instr.pos in wanted:
            writer.add(load)
    return writer.write()


def limit_values(limits: Iterable[Limit]) -> tuple[Expression, ...]:
    """The values of the parameters, in their order."""
    return tuple(
        minimum((end(each.pointer) - argument(each.pointer)) // each.stride - 1, (1 << (31 if each.kind == "s" else 32)) - 1)
        for each in limits
    )


def limit_conditions(limits: Iterable[Limit]) -> tuple[Condition, ...]:
    """The conditions of the launch under which the clamps change nothing, and under which the clamped loads are inside
    their buffers and aligned."""
    found: dict[Condition, None] = {}
    for each in limits:
        pointer = argument(each.pointer)
        found[Holds(compare(">=", end(each.pointer) - pointer, each.stride))] = None
        if each.align > 1:
            found[Holds(compare("==", pointer % each.align, 0))] = None
        if each.kind == "s":
            found[Holds(compare("==", pointer, begin(each.pointer)))] = None
        if each.is_whole:
            found[Holds(compare("==", (end(each.pointer) - pointer) % each.stride, 0))] = None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Load:
    """A load with an index to clamp: its place, and its address in parts. ``pointer`` is the number of the parameter."""

    instr: Instr
    block: int
    reference: Reference
    indexed: Indexed
    pointer: int


def _candidates(facts: Facts) -> Iterable[_Load]:
    ranges = facts.get(AccessRanges)
    params = list(facts.kernel.params or ())
    for block in facts.cfg.rpo:
        for instr in facts.cfg.blocks[block].instrs:
            form = instr.form
            if form.operation is not Operation.LOAD or form.space not in ("global", "generic") or form.lanes != 1:
                continue
            reference = facts.memory.reference(instr)
            if reference is None or instr.guard is not None or may_move(instr).reason or ranges.of(instr) is not None:
                continue
            indexed = index_of(facts, reference)
            address = ranges.address(indexed[0]) if indexed is not None else None
            found = ranges.pointer_in(address) if address is not None else None
            if indexed is None or found is None or found[1] != constant(0):
                continue
            if reference.objects == frozenset[Param]([params[found[0]]]) and _is_in_element(reference, indexed[2]):
                yield _Load(instr, block, reference, indexed, found[0])


def _is_in_element(reference: Reference, stride: int) -> bool:
    size = reference.bytes
    return 0 <= reference.offset <= stride - size and stride % size == 0 and reference.offset % size == 0


class _Writer:
    """Collects loads, and writes the clamps. The facts are those of the kernel before."""

    def __init__(self, facts: Facts) -> None:
        self._kernel = facts.kernel
        # Facts are computed again once the kernel has changed.
        self._ssa, self._cfg, self._values, self._dominance = facts.ssa, facts.cfg, facts.values, facts.dominance
        #: By (pointer, stride, kind of the index): its limit, whose parameter comes last.
        self._limits: dict[tuple[int, int, str], Limit] = {}
        self._loads: list[tuple[_Load, int, Reg]] = []

    def add(self, load: _Load) -> None:
        """Plan the clamp of a load, if its index and its pointer are in registers."""
        pointer, index, stride, kind = load.indexed
        value, base = self._value(index, load, 32), self._register(pointer, load)
        key = (load.pointer, stride, kind)
        if value is None or base is None or (key not in self._limits and len(self._limits) == _MOST_LIMITS):
            return
        size = load.reference.bytes
        limit = self._limits.get(key)
        if limit is None:
            limit = Limit(self._name(len(self._limits)), load.pointer, stride, kind, size, is_whole=False)
        is_whole = limit.is_whole or size != stride
        self._limits[key] = replace(limit, align=max(limit.align, size), is_whole=is_whole)
        self._loads.append((load, value, base))

    def write(self) -> Clamped | None:
        """Write all clamps; the kernel with them, or ``None`` if there is none."""
        if not self._loads:
            return None
        kernel = self._kernel
        blocks = self._cfg.blocks
        loaded = {key: kernel.new_reg("b32") for key in self._limits}
        #: By SSA value of an index and key of a limit: the register of the clamped index.
        clamped: dict[tuple[int, tuple[int, int, str]], Reg] = {}
        #: By block and base of an address: the register of the address with the clamped index.
        made: dict[tuple[int, int], Reg] = {}
        for load, value, base in self._loads:
            key = (load.pointer, *load.indexed[2:])
            if (value, key) not in clamped:
                clamped[value, key] = self._clamp(value, loaded[key])
            address = made.get((load.block, load.reference.base))
            if address is None:
                address = self._address(blocks[load.block], load, clamped[value, key], base)
                made[load.block, load.reference.base] = address
            operands = (load.instr.operands[0], Mem(address, load.reference.offset))
            kernel.replace_operands(load.instr, operands)
        entry = blocks[self._cfg.rpo[0]]
        params = list(kernel.params or ())
        first: list[Instr] = []
        for key, limit in self._limits.items():
            param = Param(limit.name, "param", TYPES["u32"])
            params.append(param)
            first.append(Instr(decode("ld.param.u32", 2), (loaded[key], Mem(Sym(limit.name, param)))))
        kernel.params = params
        kernel.set_instrs(entry, [*first, *entry.instrs])
        positions = frozenset(load.instr.pos for load, _, _ in self._loads)
        return Clamped(kernel, tuple(self._limits.values()), positions)

    def _name(self, number: int) -> str:
        name = f"{self._kernel.name}_limit_{number}"
        names = {*self._kernel.names, *(param.name for param in self._kernel.params or ())}
        while name in names:
            name += "_"
        return name

    def _clamp(self, value: int, limit: Reg) -> Reg:
        """Write the clamp of an SSA value directly behind its definition; its result."""
        ssa = self._ssa
        result = self._kernel.new_reg("b32")
        instr = Instr(decode(CLAMP, 3), (result, ssa.reg[value], limit))
        block = self._cfg.blocks[ssa.block[value]]
        definition = ssa.instr[value]
        # A φ has no instruction: its value is in the register at the start of the block.
        position = 0 if definition is None else block.instrs.index(definition) + 1
        self._insert(block, position, [instr])
        return result

    def _address(self, block: Block, load: _Load, index: Reg, base: Reg) -> Reg:
        _, _, stride, kind = load.indexed
        distance, address = self._kernel.new_reg("b64"), self._kernel.new_reg("b64")
        product = Instr(decode(f"mul.wide.{kind}32", 3), (distance, index, Imm(str(stride))), loc=load.instr.loc)
        total = Instr(decode("add.s64", 3), (address, base, distance), loc=load.instr.loc)
        self._insert(block, block.instrs.index(load.instr), [product, total])
        return address

    def _insert(self, block: Block, position: int, code: list[Instr]) -> None:
        self._kernel.set_instrs(block, [*block.instrs[:position], *code, *block.instrs[position:]])

    def _value(self, number: int, load: _Load, bits: int) -> int | None:
        """An SSA value of a class in a register of so many bits, whose definition dominates the load."""
        ssa, cfg = self._ssa, self._cfg
        for value, own in enumerate(self._values.number):
            reg = ssa.reg[value]
            if own != number or reg.type.bits != bits or reg.lanes != 1 or reg.type.lanes != 1:
                continue
            if reg.type.kind not in "bus" or reg in self._values.late:
                continue
            definition = ssa.instr[value]
            if definition is None:
                if value not in ssa.phi_args:
                    continue
            elif definition.guard is not None or definition.form.dst_count != 1 or definition.form.is_call:
                continue
            block = ssa.block[value]
            if block == load.block and definition is not None:
                instrs = cfg.blocks[block].instrs
                if instrs.index(definition) >= instrs.index(load.instr):
                    continue
            if block == load.block or self._dominance.dominates(block, load.block):
                return value
        return None

    def _register(self, number: int, load: _Load) -> Reg | None:
        """A register with one definition that holds a pointer at the load."""
        value = self._value(number, load, 64)
        if value is None:
            return None
        reg = self._ssa.reg[value]
        return reg if self._ssa.is_single(reg) else None
