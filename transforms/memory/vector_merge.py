"""Merges adjacent loads of a thread into one vector load, ``v2`` or ``v4``.

Loads of one block with one base and one opcode that are adjacent in memory are executed together, at the position of
the first of them. Between that position and their own, no instruction may write the bytes that they read, order memory,
exchange lanes, leave the block, or use or define their results.

A vector load must be aligned to its size, while its parts need not be. So the alignment is proven (`Alignments`), from
``.align`` of variables and parameters and the factors of the indices. ``aligned`` is what the user promises of all
pointer parameters (256 is true of all addresses that ``cudaMalloc`` returns). The promise is not checked here.

Loops that read many constants are left as they are (docs/experiments/gate.md). In one kernel, merged loads led to eight
times as many stalls for misses of the first-level cache of constants, and it took up to twice as long. In a loop that
was made to test this, kernels that fill the GPU took four times as long from 768 bytes of constants on, and gained with
384 bytes. It may be that warps which wait for fewer global loads are no longer in the same iteration.

Requires: value numbers, `Facts.memory`. Guarantees: the same bytes are read into the same registers; no new faults.
Refuses: guarded, volatile, asynchronous loads, parameters, loads that a pragma describes; global loads in loops that
read a constant variable of more than `constants` bytes at an address in a register.
Reference: LLVM's LoadStoreVectorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...analysis.effects import may_move
from ...analysis.manager import Facts
from ...analysis.memory.alias import Memory, Promise, RecordingPromise, Reference
from ...analysis.values.alignment import Alignments
from ...ptx import Block, Effect, Instr, Kernel, Mem, Reg, Variable, Vec
from ...ptx.decoding import form_of
from ...ptx.operations import Operation
from ..code_motion.expressions import is_described_by_pragma
from ..passes import option
from ..remarks import Remarks

__all__ = ["VectorMerge"]

#: The most bytes of one access of a thread.
_MOST_BYTES = 16
#: The most instructions over which a load is moved up. Its register is live that much longer.
_FURTHEST = 200
#: The most bytes of constants with which merged loads in a loop were measured never to be slower.
_FEW_CONSTANTS = 384
#: The most parameters that are tried one by one for `RecordingPromise.merges`.
_MOST_TRIALS = 24
#: The largest power of two that is known to divide the address of a reference.
_Alignment = Callable[[Reference], int]
_ORDERS = Effect.CONTROL | Effect.BARRIER | Effect.CROSS_LANE | Effect.ORDERED | Effect.ASYNC | Effect.STATE
_PLAIN = frozenset(["space", "cop", "type", "sem"])


@dataclass(frozen=True, slots=True)
class _Load:
    """A load that may be merged, and its position in the block."""

    position: int
    instr: Instr
    reference: Reference
    result: Reg


@dataclass(frozen=True, slots=True)
class _Range:
    """Loads of a block, whose instructions are ``instrs``, between two instructions that order memory or control.
    ``keeps_global``: those from global memory are not merged."""

    instrs: list[Instr]
    loads: list[_Load]
    keeps_global: bool


@dataclass(frozen=True)
class VectorMerge:
    """Merges adjacent loads into vector loads (v2, v4) where the alignment is proven."""

    aligned: int = option(1, "assume that pointer parameters are multiples of this power of two (bytes)")
    constants: int = option(
        _FEW_CONSTANTS, "leave global loads in loops that read a constant variable of more than so many bytes"
    )

    name: ClassVar[str] = "vectormerge"

    def __post_init__(self) -> None:
        if self.aligned < 1 or self.aligned & (self.aligned - 1):
            raise ValueError(f"option 'aligned' of pass '{self.name}' is a power of two, not {self.aligned}")
        if self.constants < 0:
            raise ValueError(f"option 'constants' of pass '{self.name}' is at least 0, not {self.constants}")

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Merge loads; whether there were any to merge."""
        if not remarks.allows(self.name):
            return False
        self._record_needed(kernel, facts)
        alignment = self._alignment(facts)
        merged = 0
        left = _loops_with_many_constants(facts, self.constants)
        # Blocks are rewritten at the end: after the first change all facts are computed again, with other numbers.
        rewritten: list[tuple[Block, list[Instr]]] = []
        for block in facts.cfg.rpo:
            instrs = facts.cfg.blocks[block].instrs
            replaced: dict[Instr, Instr | None] = {}
            for loads in _unordered_ranges(instrs, facts):
                for group in self._groups(loads, instrs, facts, alignment):
                    if facts.loops.loop_of[block] in left and _is_global(group):
                        message = f"{len(group)} adjacent loads are not merged: the loop reads many constants"
                        remarks.add("Missed", self.name, "NotMerged", kernel, message, instr=group[0].instr)
                        continue
                    if not remarks.may_rewrite(self.name, group[0].instr):
                        continue
                    first = min(group, key=lambda load: load.position)
                    vector = _vector(group, first)
                    message = f"'{vector.form.text}' replaces {len(group)} adjacent loads"
                    remarks.add("Passed", self.name, "Merged", kernel, message, instr=first.instr)
                    replaced.update((load.instr, None) for load in group)
                    replaced[first.instr] = vector
                    merged += len(group)
            if replaced:
                rest = [replaced.get(instr, instr) for instr in instrs]
                rewritten.append((facts.cfg.blocks[block], [instr for instr in rest if instr is not None]))
        for changed, rest in rewritten:
            kernel.set_instrs(changed, rest)
        remarks.count(kernel, self.name, "loads merged", merged)
        return merged > 0

    def _record_needed(self, kernel: Kernel, facts: Facts) -> None:
        """Record which alignments loads need, if the promise wants to know (`RecordingPromise.merges`)."""
        promise = facts.promise
        if not isinstance(promise, RecordingPromise) or promise.assumes is None:
            return
        needed = self._needed(facts, promise.assumes(facts))
        promise.merges[kernel.name] = needed | promise.merges.get(kernel.name, frozenset())

    def _needed(self, facts: Facts, assumed: frozenset[tuple[str, str, int]]) -> frozenset[tuple[str, str, int]]:
        """A small part of ``assumed`` under which the same loads are merged as under all of it; nothing if these are no
        more than without it."""
        if not assumed:
            return frozenset()
        ranges = self._ranges(facts)
        given = self._all_groups(facts, ranges, self._alignment(facts))
        # To find what divides values takes time. So it is first found what would be merged at aligned addresses.
        if self._all_groups(facts, ranges, lambda _: _MOST_BYTES) == given:
            return frozenset()
        groups = self._all_groups(facts, ranges, self._alignment(facts, assumed))
        if groups == given:
            return frozenset()
        for trial in sorted(assumed, key=lambda each: (each[2], each))[:_MOST_TRIALS]:
            fewer = assumed - {trial}
            if self._all_groups(facts, ranges, self._alignment(facts, fewer)) == groups:
                assumed = fewer
        return assumed

    def _alignment(self, facts: Facts, assumed: frozenset[tuple[str, str, int]] | None = None) -> _Alignment:
        """The alignments of references under the promise of the facts, or under ``assumed`` alone."""
        if assumed is None:
            return lambda reference: facts.get(Alignments).of(reference, self.aligned)
        alignments = Alignments(facts, Promise(aligned=assumed))
        return lambda reference: alignments.of(reference, self.aligned)

    def _ranges(self, facts: Facts) -> list[_Range]:
        """The loads of the whole kernel that may be merged with each other."""
        left = _loops_with_many_constants(facts, self.constants)
        return [
            _Range(facts.cfg.blocks[block].instrs, loads, facts.loops.loop_of[block] in left)
            for block in facts.cfg.rpo
            for loads in _unordered_ranges(facts.cfg.blocks[block].instrs, facts)
        ]

    def _all_groups(self, facts: Facts, ranges: Iterable[_Range], alignment: _Alignment) -> list[list[_Load]]:
        """What would be merged in the whole kernel."""
        return [
            group
            for each in ranges
            for group in self._groups(each.loads, each.instrs, facts, alignment)
            if not (each.keeps_global and _is_global(group))
        ]

    def _groups(
        self, loads: list[_Load], instrs: list[Instr], facts: Facts, alignment: _Alignment
    ) -> Iterator[list[_Load]]:
        """Disjoint groups of loads that are adjacent and together aligned: first groups of four, then of two."""
        by_kind: dict[tuple[str, int, str], dict[int, _Load]] = {}
        for load in loads:
            kind = (load.instr.form.text, load.reference.base, load.result.type.name)
            by_kind.setdefault(kind, {}).setdefault(load.reference.offset, load)
        for by_offset in by_kind.values():
            if len(by_offset) < 2:
                continue
            size = next(iter(by_offset.values())).reference.bytes  # all have one opcode
            for lanes in (4, 2):
                if lanes * size > _MOST_BYTES:
                    continue
                for offset in sorted(by_offset):
                    if offset not in by_offset or offset + size not in by_offset:
                        continue
                    adjacent = [by_offset.get(offset + number * size) for number in range(lanes)]
                    group = [load for load in adjacent if load is not None]
                    if len(group) < lanes or len({load.result for load in group}) < lanes:
                        continue
                    if alignment(group[0].reference) % (lanes * size):
                        continue
                    if _may_merge(instrs, group, facts.memory):
                        yield group
                        for load in group:
                            del by_offset[load.reference.offset]


def _loops_with_many_constants(facts: Facts, most: int) -> frozenset[int]:
    """The numbers of the loops that themselves, not in inner loops, read a constant variable of more than ``most``
    bytes at an address in a register."""
    return frozenset(
        loop
        for block, loop in enumerate(facts.loops.loop_of)
        if loop >= 0 and any(_reads_many_constants(instr, facts, most) for instr in facts.cfg.blocks[block].instrs)
    )


def _reads_many_constants(instr: Instr, facts: Facts, most: int) -> bool:
    if instr.form.operation is not Operation.LOAD or instr.form.space != "const":
        return False
    address = instr.address
    if address is None or not isinstance(address.base, Reg):
        return False
    reference = facts.memory.reference(instr)
    objects = reference.objects if reference is not None else None
    sizes = [each.bytes if isinstance(each, Variable) else None for each in objects or (None,)]
    return any(size is None or size > most for size in sizes)


def _is_global(group: list[_Load]) -> bool:
    return group[0].reference.space in ("global", "generic")


def _unordered_ranges(instrs: list[Instr], facts: Facts) -> Iterator[list[_Load]]:
    """The loads between two instructions that order memory or control, where there are at least two."""
    loads = [
        at for at, instr in enumerate(instrs) if instr.form.operation is Operation.LOAD and instr.form.space != "param"
    ]
    # Loads of different opcodes are never merged.
    if len({instrs[at].form.text for at in loads}) == len(loads):
        return
    memory, values = facts.memory, facts.values
    candidates: list[_Load] = []
    for position in range(loads[0], loads[-1] + 1):
        instr = instrs[position]
        if instr.is_directive:
            continue
        if instr.form.is_opaque or instr.form.is_call or instr.form.effects & _ORDERS:
            if len(candidates) > 1:
                yield candidates
            candidates = []
        elif (
            instr.form.operation is Operation.LOAD
            and _is_candidate(instr)
            and not is_described_by_pragma(instrs, position)
        ):
            reference, result = memory.reference(instr), instr.operands[0]
            if reference is not None and isinstance(result, Reg) and not values.is_late(instr):
                candidates.append(_Load(position, instr, reference, result))
    if len(candidates) > 1:
        yield candidates


def _is_candidate(instr: Instr) -> bool:
    form = instr.form
    if not may_move(instr) or len(instr.operands) != 2 or form.space == "param" or form.lanes != 1:
        return False
    is_plain = form.flags <= {"nc"} and form.mods.keys() <= _PLAIN and form.mods.get("sem", "weak") == "weak"
    return is_plain and form.type is not None and form.type.bytes in (1, 2, 4, 8)


def _may_merge(instrs: list[Instr], group: list[_Load], memory: Memory) -> bool:
    """Whether all loads may be executed at the position of the first of them."""
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
    """The vector load. Its address is computed from the register of the first load."""
    address = first.instr.address
    assert address is not None
    offset = address.offset + group[0].reference.offset - first.reference.offset
    *words, scalar = first.instr.form.text.split(".")
    operands = (Vec(tuple(load.result for load in group)), Mem(address.base, offset))
    form = form_of(".".join([*words, f"v{len(group)}", scalar]), operands)
    return Instr(form, operands, None, first.instr.loc, first.instr.pos)
