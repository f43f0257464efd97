"""Total redundancy by value number: an instruction that a dominating one makes superfluous.

Where x dominates y, both have one value number and x's register has one definition, y's reads become reads of x. One
walk over the dominator tree settles whole chains, so that lazy code motion, which sees one level of operands at a time,
starts from equal names for equal values.

Requires: SSA view, value numbers. Guarantees: bits stay the same; no path evaluates more. Refuses: loads from memory
that may be written (lazy code motion follows the stores), copies, registers with several definitions.
Reference: Briggs, Cooper, Simpson, "Value Numbering", SPE 1997, §4 (dominator-based).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..analysis.alias import is_mutable_read
from ..analysis.manager import Facts
from ..analysis.value_numbering import Values
from ..ptx import Effect, Instr, Kernel, Reg
from .branch_divergence import BranchDivergence
from .copy_propagation import are_exchangeable, substitute_reads
from .expressions import motion_values, movable
from .remarks import Remarks, block_names

__all__ = ["TotalRedundancy", "remove_redundancy"]


@dataclass(frozen=True)
class TotalRedundancy:
    """Without options."""

    name: ClassVar[str] = "cse"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove redundant evaluations; whether there were any."""
        return remove_redundancy(kernel, facts, remarks, self.name)


def remove_redundancy(
    kernel: Kernel, facts: Facts, remarks: Remarks, pass_name: str, divergence: BranchDivergence | None = None
) -> bool:
    """Remove redundant evaluations; whether there were any.

    The values hold for the kernel as it is afterwards, too, and are kept for code motion: registers of one class were
    exchanged, nothing else.
    """
    if not remarks.allows(pass_name):
        return False
    values = facts.values
    replaced = _find(kernel, facts, values, remarks, pass_name)
    if not replaced:
        return False
    if divergence is not None:
        divergence.settle()
    cfg = facts.cfg
    reads_none = replaced.keys().isdisjoint
    for block in cfg.rpo:
        instrs = cfg.blocks[block].instrs
        kept: list[Instr] = []
        for instr in instrs:
            reads = instr.uses()
            if not reads_none(reads):
                substitute_reads(kernel, instr, {each: replaced.get(each, each) for each in reads})
            defs = instr.defs()
            if not (len(defs) == 1 and defs[0] in replaced):
                kept.append(instr)
        if len(kept) != len(instrs):
            kernel.set_instrs(cfg.blocks[block], kept)
    remarks.count(kernel, pass_name, "redundant", len(replaced))
    facts.keep(motion_values, values)
    return True


def _find(kernel: Kernel, facts: Facts, values: Values, remarks: Remarks, pass_name: str) -> dict[Reg, Reg]:
    """For each redundant register the one to read instead."""
    cfg, dominance = facts.cfg, facts.dominance
    holders: dict[int, list[tuple[int, Reg]]] = {}
    replaced: dict[Reg, Reg] = {}
    is_read_in_place: set[Reg] | None = None
    for block, instr in _removable(facts, values):
        result = instr.operands[0]
        assert isinstance(result, Reg)
        number = values.result[instr]
        known = holders.get(number)
        if known is None:
            holders[number] = [(block, result)]
            continue
        holder = _dominating(known, block, result, dominance.dominates)
        if holder is None:
            known.append((block, result))
            continue
        if is_read_in_place is None:
            is_read_in_place = _read_in_place(facts)
        if result not in is_read_in_place and remarks.may_rewrite(pass_name, instr):
            replaced[result] = holder
            what = f"'{instr.form.text}' is redundant: {holder.text} has the value"
            where = block_names(cfg.blocks, [block])
            remarks.add("Passed", pass_name, "Redundant", kernel, what, instr=instr, sources=where)
    return replaced


def _removable(facts: Facts, values: Values) -> Iterator[tuple[int, Instr]]:
    """The instructions whose value another one may have, and that may have another one's, with their blocks."""
    is_single = values.ssa.is_single
    for block, instrs in facts.get(movable):
        for instr in instrs:
            result = instr.operands[0]
            assert isinstance(result, Reg)
            if not is_single(result) or (instr.form.effects & Effect.READ and is_mutable_read(instr)):
                continue
            if not (values.late and values.is_late(instr)):
                yield block, instr


def _dominating(
    holders: Iterable[tuple[int, Reg]], block: int, result: Reg, dominates: Callable[[int, int], bool]
) -> Reg | None:
    """A register that already has the value wherever control is at ``block``."""
    for other, reg in holders:
        if are_exchangeable(reg.type, result.type) and dominates(other, block):
            return reg
    return None


def _read_in_place(facts: Facts) -> set[Reg]:
    """Registers whose reads cannot be exchanged: operands of calls and of read-modify-write forms."""
    found: set[Reg] = set()
    for block in facts.cfg.rpo:
        for instr in facts.cfg.blocks[block].instrs:
            if instr.form.inout or instr.form.op.base == "call":
                found.update(instr.uses())
    return found
