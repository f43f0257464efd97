"""Total redundancy by value number: an instruction that a dominating one makes superfluous.

Where x dominates y, both have one value number and x's register has one definition, y's reads become reads of x. One
walk over the dominator tree settles whole chains, so that lazy code motion, which sees one level of operands at a time,
starts from equal names for equal values.

Requires: SSA view, value numbers. Guarantees: bits stay the same; no path evaluates more. Refuses: loads from memory
that may be written (lazy code motion follows the stores), copies, registers with several definitions.
Reference: Briggs, Cooper, Simpson, "Value Numbering", SPE 1997, §4 (dominator-based).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from ..analysis.alias import is_mutable_read
from ..analysis.effects import may_move
from ..analysis.manager import Facts
from ..analysis.value_numbering import value_numbers
from ..ptx import Instr, Kernel, Reg
from .copy_propagation import are_exchangeable, substitute_reads
from .expressions import is_spoken_of
from .remarks import Remarks

__all__ = ["TotalRedundancy"]


@dataclass(frozen=True)
class TotalRedundancy:
    """Without options."""

    name: ClassVar[str] = "cse"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove redundant evaluations; whether there were any."""
        replaced = self.find(kernel, facts, remarks)
        if not replaced:
            return False
        cfg = facts.cfg
        for block in cfg.rpo:
            instrs = cfg.blocks[block].instrs
            kept: list[Instr] = []
            for instr in instrs:
                if not instr.is_directive:
                    reads = instr.uses()
                    if any(reg in replaced for reg in reads):
                        substitute_reads(kernel, instr, {reg: replaced.get(reg, reg) for reg in reads})
                    result = instr.operands[0] if instr.operands else None
                    if isinstance(result, Reg) and result in replaced and result not in reads:
                        if instr.form.dst_count == 1:
                            continue
                kept.append(instr)
            if len(kept) != len(instrs):
                kernel.set_instrs(cfg.blocks[block], kept)
        remarks.count(kernel, self.name, "redundant", len(replaced))
        return True

    def find(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> dict[Reg, Reg]:
        """For each redundant register the one to read instead."""
        values = facts.get(value_numbers)
        ssa, cfg, dominance = values.ssa, facts.cfg, facts.dominance
        holders: dict[int, list[tuple[int, Reg]]] = {}
        replaced: dict[Reg, Reg] = {}
        is_read_in_place = _read_in_place(facts)
        for block in cfg.rpo:
            instrs = cfg.blocks[block].instrs
            for position, instr in enumerate(instrs):
                if instr.form.op.cost == 0 or not may_move(instr) or is_mutable_read(instr):
                    continue
                result = instr.operands[0]
                assert isinstance(result, Reg)
                if not ssa.is_single(result) or is_spoken_of(instrs, position):
                    continue
                number = values.number[ssa.defined(instr, result)]
                holder = _dominating(holders.get(number, ()), block, result, dominance.dominates)
                if holder is None:
                    holders.setdefault(number, []).append((block, result))
                elif result not in is_read_in_place and remarks.may_rewrite():
                    replaced[result] = holder
                    what = f"'{instr.form.text}' is redundant: {holder.text} has the value"
                    remarks.add("Passed", self.name, "Redundant", kernel, what, instr=instr)
        return replaced


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
