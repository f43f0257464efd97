"""Adjacent loads of a thread become one vector load, ``v2`` or ``v4``.

Loads of one block with one base, next to each other in memory, of one opcode, are done at once where the first of them
stands. Between there and where the others stood, nothing may write what they read, order memory, exchange lanes or
leave the block, and nothing may use or define their results.

A vector load has to be aligned to its size, while its parts need not be. So the alignment is proven (`alignment.py`),
from ``.align`` of variables and parameters and the factors of the indices; ``aligned`` is what the user promises of all
pointer parameters beyond that (256 is true of whatever ``cudaMalloc`` returned). Nobody checks that promise here.

Requires: value numbers, `Facts.memory`. Guarantees: the same bytes are read into the same registers; no fault that
there was not before. Refuses: guarded, volatile, asynchronous loads, parameters, loads that a pragma speaks of.
Reference: LLVM's LoadStoreVectorizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...analysis.effects import may_move
from ...analysis.manager import Facts
from ...analysis.memory.alias import Memory, Reference
from ...analysis.values.alignment import Alignments
from ...ptx import Block, Effect, Instr, Kernel, Mem, Reg, Vec
from ...ptx.decoding import form_of
from ...ptx.operations import Operation
from ..code_motion.expressions import is_spoken_of
from ..remarks import Remarks

__all__ = ["VectorMerge"]

#: Bytes that one access of a thread has at most.
_MOST_BYTES = 16
#: Instructions over which a load is moved up, at most: its register lives that much longer.
_FURTHEST = 200
_ORDERS = Effect.CONTROL | Effect.BARRIER | Effect.CROSS_LANE | Effect.ORDERED | Effect.ASYNC | Effect.STATE
_PLAIN = frozenset(["space", "cop", "type", "sem"])


@dataclass(frozen=True, slots=True)
class _Load:
    position: int
    instr: Instr
    reference: Reference
    result: Reg


@dataclass(frozen=True)
class VectorMerge:
    """Merges adjacent loads into vector loads; ``aligned`` is what pointer parameters are promised to be aligned to."""

    aligned: int = 1

    name: ClassVar[str] = "vectormerge"

    def __post_init__(self) -> None:
        if self.aligned < 1 or self.aligned & (self.aligned - 1):
            raise ValueError(f"option 'aligned' of pass '{self.name}' is a power of two, not {self.aligned}")

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Merge loads; whether there were any to merge."""
        if not remarks.allows(self.name):
            return False
        merged = 0
        # Written at the end: with the first change all facts are made anew, and classes of values get other numbers.
        written: list[tuple[Block, list[Instr]]] = []
        for block in facts.cfg.rpo:
            instrs = facts.cfg.blocks[block].instrs
            replaced: dict[Instr, Instr | None] = {}
            for stretch in _stretches(instrs, facts):
                for group in self._groups(stretch, instrs, facts):
                    if not remarks.may_rewrite(self.name, group[0].instr):
                        continue
                    first = min(group, key=lambda load: load.position)
                    vector = _vector(group, first)
                    message = f"'{vector.form.text}' for {len(group)} adjacent loads"
                    remarks.add("Passed", self.name, "Merged", kernel, message, instr=first.instr)
                    replaced.update((load.instr, None) for load in group)
                    replaced[first.instr] = vector
                    merged += len(group)
            if replaced:
                rest = [replaced.get(instr, instr) for instr in instrs]
                written.append((facts.cfg.blocks[block], [instr for instr in rest if instr is not None]))
        for changed, rest in written:
            kernel.set_instrs(changed, rest)
        remarks.count(kernel, self.name, "loads merged", merged)
        return merged > 0

    def _groups(self, loads: list[_Load], instrs: list[Instr], facts: Facts) -> Iterator[list[_Load]]:
        """Loads that are adjacent and together aligned, each in one group at most; four before two."""
        by_kind: dict[tuple[str, int, str], dict[int, _Load]] = {}
        for load in loads:
            kind = (load.instr.form.text, load.reference.base, load.result.type.name)
            by_kind.setdefault(kind, {}).setdefault(load.reference.offset, load)
        for at in by_kind.values():
            if len(at) < 2:
                continue
            size = next(iter(at.values())).reference.bytes  # of all: they have one opcode
            for lanes in (4, 2):
                if lanes * size > _MOST_BYTES:
                    continue
                for offset in sorted(at):
                    if offset not in at or offset + size not in at:
                        continue
                    group = [at.get(offset + number * size) for number in range(lanes)]
                    found = [load for load in group if load is not None]
                    if len(found) < lanes or len({load.result for load in found}) < lanes:
                        continue
                    if facts.get(Alignments).of(found[0].reference, self.aligned) % (lanes * size):
                        continue
                    if _may_merge(instrs, found, facts.memory):
                        yield found
                        for load in found:
                            del at[load.reference.offset]


def _stretches(instrs: list[Instr], facts: Facts) -> Iterator[list[_Load]]:
    """The candidates between one instruction that orders something and the next."""
    loads = [
        at for at, instr in enumerate(instrs) if instr.form.operation is Operation.LOAD and instr.form.space != "param"
    ]
    # Loads of different opcodes are not merged, whatever they read.
    if len({instrs[at].form.text for at in loads}) == len(loads):
        return
    memory, values = facts.memory, facts.values
    found: list[_Load] = []
    for position in range(loads[0], loads[-1] + 1):
        instr = instrs[position]
        if instr.is_directive:
            continue
        if instr.form.is_opaque or instr.form.is_call or instr.form.effects & _ORDERS:
            if len(found) > 1:
                yield found
            found = []
        elif instr.form.operation is Operation.LOAD and _is_candidate(instr) and not is_spoken_of(instrs, position):
            reference, result = memory.reference(instr), instr.operands[0]
            if reference is not None and isinstance(result, Reg) and not values.is_late(instr):
                found.append(_Load(position, instr, reference, result))
    if len(found) > 1:
        yield found


def _is_candidate(instr: Instr) -> bool:
    form = instr.form
    if not may_move(instr) or len(instr.operands) != 2 or form.space == "param" or form.lanes != 1:
        return False
    is_plain = form.flags <= {"nc"} and form.mods.keys() <= _PLAIN and form.mods.get("sem", "weak") == "weak"
    return is_plain and form.type is not None and form.type.bytes in (1, 2, 4, 8)


def _may_merge(instrs: list[Instr], group: list[_Load], memory: Memory) -> bool:
    """Whether all loads may be done where the first of them stands."""
    first, last = min(load.position for load in group), max(load.position for load in group)
    if last - first > _FURTHEST:
        return False
    members = {load.instr for load in group}
    for load in group:
        for position in range(first, load.position):
            instr = instrs[position]
            if instr.is_directive:
                continue
            if load.result in instr.defs() or (position > first and load.result in instr.uses()):
                return False
            if instr not in members and memory.kills(instr, load.instr):
                return False
    return True


def _vector(group: list[_Load], first: _Load) -> Instr:
    """The vector load, by the address register of the first load."""
    address = first.instr.address
    assert address is not None
    offset = address.offset + group[0].reference.offset - first.reference.offset
    *words, scalar = first.instr.form.text.split(".")
    operands = (Vec(tuple(load.result for load in group)), Mem(address.base, offset))
    form = form_of(".".join([*words, f"v{len(group)}", scalar]), operands)
    return Instr(form, operands, None, first.instr.loc, first.instr.pos)
