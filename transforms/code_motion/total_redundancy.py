"""Total redundancy by value number: removes an instruction if a dominating one computes the same value.

If x dominates y, both have one value number and the register of x has one definition, reads of y become reads of x. One
walk over the dominator tree handles whole chains of instructions. Lazy code motion handles one level of operands per
round; after this pass, equal values have equal names.

Requires: SSA view, value numbers. Guarantees: results stay bit-identical; no path evaluates more expressions. Refuses:
loads from memory that may be written (lazy code motion considers the stores), copies, registers with several
definitions, and results that an instruction reads that does not take the type of the other register.
Reference: Briggs, Cooper, Simpson, "Value Numbering", SPE 1997, §4 (dominator-based).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

from ...analysis.graph.dominance import Dominance
from ...analysis.manager import Facts
from ...analysis.memory.alias import is_mutable_read
from ...analysis.values.value_numbering import Values
from ...ptx import Effect, Instr, Kernel, Reg
from ..cleanup.copy_propagation import exchangeable_as, substitute_reads, takes
from ..remarks import Remarks, block_names
from .expressions import movable

__all__ = ["Holders", "TotalRedundancy", "remove_redundancy"]


@dataclass(frozen=True)
class TotalRedundancy:
    """Removes an instruction if a dominating one computes the same value."""

    name: ClassVar[str] = "cse"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove redundant evaluations; whether there were any."""
        return remove_redundancy(kernel, facts, remarks, self.name)


def remove_redundancy(kernel: Kernel, facts: Facts, remarks: Remarks, pass_name: str) -> bool:
    """Remove redundant evaluations; whether there were any."""
    if not remarks.allows(pass_name):
        return False
    values = facts.values
    replaced = _find(kernel, facts, values, remarks, pass_name)
    if not replaced:
        return False
    cfg = facts.cfg
    reads_none = replaced.keys().isdisjoint
    for block in cfg.rpo:
        instrs = cfg.blocks[block].instrs
        kept: list[Instr] = []
        for instr in instrs:
            reads = instr.uses()
            if not reads_none(reads):
                substitute_reads(kernel, instr, {reg: replaced.get(reg, reg) for reg in reads})
            defs = instr.defs()
            if not (len(defs) == 1 and defs[0] in replaced):
                kept.append(instr)
        if len(kept) != len(instrs):
            kernel.set_instrs(cfg.blocks[block], kept)
    remarks.count(kernel, pass_name, "redundant", len(replaced))
    return True


def _find(kernel: Kernel, facts: Facts, values: Values, remarks: Remarks, pass_name: str) -> dict[Reg, Reg]:
    """By redundant register: the register to read instead."""
    cfg = facts.cfg
    holders = Holders(facts.dominance)
    replaced: dict[Reg, Reg] = {}
    is_read_in_place: set[Reg] | None = None
    readers: dict[Reg, list[Instr]] = {}
    for block, instr in _removable(facts, values):
        result = instr.operands[0]
        assert isinstance(result, Reg)
        holder = holders.dominating(values.result[instr], block, result)
        if holder is None:
            continue
        if is_read_in_place is None:
            is_read_in_place = _read_in_place(facts)
        if holder.type is not result.type:
            readers = readers or _readers(facts)
            if not all(takes(reader, {result: holder}) for reader in readers.get(result, ())):
                continue
        if result not in is_read_in_place and remarks.may_rewrite(pass_name, instr):
            replaced[result] = holder
            what = f"'{instr.form.text}' is redundant: {holder.text} has the value"
            where = block_names(cfg.blocks, [block])
            remarks.add("Passed", pass_name, "Redundant", kernel, what, instr=instr, sources=where)
    return replaced


def _removable(facts: Facts, values: Values) -> Iterator[tuple[int, Instr]]:
    """The instructions, with their blocks, that may be redundant or may make another one redundant."""
    is_single = values.ssa.is_single
    for block, instrs in facts.get(movable):
        for instr in instrs:
            result = instr.operands[0]
            assert isinstance(result, Reg)
            if not is_single(result) or (instr.form.effects & Effect.READ and is_mutable_read(instr)):
                continue
            if not (values.late and values.is_late(instr)):
                yield block, instr


class Holders:
    """For each value the registers that hold it, in blocks none of which dominates another.

    Queries must come in reverse postorder of the blocks, so that a dominating block comes first. The subtrees of the
    blocks of one value in the dominator tree are disjoint. So only the last of them in preorder that does not come
    after a given block can dominate it.
    """

    def __init__(self, dominance: Dominance) -> None:
        self._dominates = dominance.dominates
        self._position = {block: position for position, block in enumerate(dominance.preorder)}
        #: By (value number, `exchangeable_as` of the register): the first (block, register).
        self._single: dict[tuple[int, object], tuple[int, Reg]] = {}
        #: By the same key, once there are two: all (position of the block in preorder, block, register), ascending.
        self._several: dict[tuple[int, object], list[tuple[int, int, Reg]]] = {}

    def dominating(self, number: int, block: int, result: Reg) -> Reg | None:
        """A register that holds value ``number`` whenever control is at ``block``. If there is none, ``result`` is
        recorded as one for later queries."""
        key = (number, exchangeable_as(result.type))
        first = self._single.setdefault(key, (block, result))
        if first[1] is result:
            return None
        if self._dominates(first[0], block):
            return first[1]
        position = self._position[block]
        several = self._several.setdefault(key, [(self._position[first[0]], *first)])
        at = bisect_right(several, position, key=itemgetter(0))
        if at:
            _, other, reg = several[at - 1]
            if self._dominates(other, block):
                return reg
        several.insert(at, (position, block, result))
        return None


def _readers(facts: Facts) -> dict[Reg, list[Instr]]:
    """By register: the instructions that read it."""
    readers: dict[Reg, list[Instr]] = {}
    for block in facts.cfg.rpo:
        for instr in facts.cfg.blocks[block].instrs:
            for reg in instr.uses():
                readers.setdefault(reg, []).append(instr)
    return readers


def _read_in_place(facts: Facts) -> set[Reg]:
    """Registers with a read that cannot be replaced."""
    blocks = facts.cfg.blocks
    return {reg for block in facts.cfg.rpo for instr in blocks[block].instrs for reg in instr.fixed_uses()}
