"""Copy propagation: replaces reads of a copy by reads of its source.

There are two cases. Where d and s of ``mov d, s`` each have one dominating definition, every read of d becomes a read
of s: dominance implies that s has not changed since the copy. Otherwise a copy is *available* at a program point if it
was executed on every path to the point, and neither d nor s was written after it:

    avin(b)  = ∩ over predecessors of avout(p)
    avout(b) = gen(b) ∪ (avin(b) \\ kill(b))

Guarantees: results stay bit-identical; only registers of one bank and width are exchanged. An instruction that does not
take the type of the source keeps the copy. The copies stay in the kernel until dead-code elimination removes them.
Reference: Aho, Lam, Sethi, Ullman, 2nd ed., §9.1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

from ...analysis.graph.dataflow import solve
from ...analysis.manager import Facts
from ...analysis.values.ssa import Ssa
from ...ptx import Guard, Instr, Kernel, Operand, Reg, ScalarType
from ...ptx.operand_rules import kind_of, problem
from ...ptx.operands import substitute
from ...ptx.operations import Operation
from ..remarks import Remarks

__all__ = ["CopyPropagation", "are_exchangeable", "exchangeable_as", "substitute_reads", "takes"]

#: The effect of an instruction on the available copies, as bits: (copies that it kills, the copy that it is).
_Step: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class CopyPropagation:
    """Replaces reads of a copy by reads of its source."""

    name: ClassVar[str] = "copyprop"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Propagate all copies of ``kernel``; whether anything changed."""
        # Replacing reads changes neither which instructions are copies nor which registers have one definition.
        copies = _copies(facts)
        if not copies:
            return False
        ssa = facts.single_definitions({reg for instr in copies for reg in (*instr.defs(), *instr.uses())})
        changed = self.single_definitions(kernel, facts, copies, ssa, remarks)
        return self.available_copies(kernel, facts, copies, ssa, remarks) or changed

    def single_definitions(self, kernel: Kernel, facts: Facts, copies: list[Instr], ssa: Ssa, remarks: Remarks) -> bool:
        """Replace reads of copies whose registers have one definition each; whether anything changed."""
        renamed: dict[Reg, Reg] = {}
        for instr in copies:
            target, source = instr.operands
            assert isinstance(target, Reg) and isinstance(source, Reg)
            if target is not source and ssa.is_single(target) and ssa.is_single(source) and remarks.may_rewrite():
                renamed[target] = source
        if not renamed:
            return False
        reads_none = renamed.keys().isdisjoint
        for block in facts.cfg.rpo:
            for instr in facts.cfg.blocks[block].instrs:
                if not reads_none(instr.uses()):
                    roots = {reg: _root(reg, renamed) for reg in instr.uses()}
                    if takes(instr, roots):
                        substitute_reads(kernel, instr, roots)
        remarks.count(kernel, self.name, "copies propagated", len(renamed))
        return True

    def available_copies(self, kernel: Kernel, facts: Facts, copies: list[Instr], ssa: Ssa, remarks: Remarks) -> bool:
        """Replace reads of the other ``copies`` where they are available on all paths; whether anything changed."""
        copies = [instr for instr in copies if _needs_dataflow(instr, ssa)]
        if not copies:
            return False
        numbers = {instr: number for number, instr in enumerate(copies)}
        # The operands before the rewriting: a copy may itself be rewritten below, but its kills are computed once.
        pairs = [cast("tuple[Reg, Reg]", instr.operands) for instr in copies]
        involved: dict[Reg, int] = {}
        for number, pair in enumerate(pairs):
            for reg in pair:
                involved[reg] = involved.get(reg, 0) | 1 << number
        cfg = facts.cfg
        gen, kill = [0] * len(cfg.blocks), [0] * len(cfg.blocks)
        effects: dict[Instr, _Step] = {}
        writes_none = involved.keys().isdisjoint
        for block in cfg.rpo:
            for instr in [each for each in cfg.blocks[block].instrs if not writes_none(each.defs())]:
                killed = 0
                for reg in instr.defs():
                    killed |= involved.get(reg, 0)
                number = numbers.get(instr)
                effects[instr] = step = (killed, 1 << number if number is not None else 0)
                gen[block], kill[block] = gen[block] & ~killed | step[1], (kill[block] | killed) & ~step[1]
        universe = (1 << len(copies)) - 1
        solution = solve(
            cfg, direction="forward", meet="intersection", gen=gen, kill=kill, boundary=0, universe=universe
        )
        changed = False
        reads_none = {target for target, _ in pairs}.isdisjoint
        for block in cfg.rpo:
            available = solution.entry[block]
            for instr in cfg.blocks[block].instrs:
                if available and not reads_none(instr.uses()):
                    changed |= self._rewrite(kernel, instr, available, involved, pairs, remarks)
                if instr in effects:
                    killed, own = effects[instr]
                    available = available & ~killed | own
        return changed

    def _rewrite(
        self,
        kernel: Kernel,
        instr: Instr,
        available: int,
        involved: dict[Reg, int],
        pairs: list[tuple[Reg, Reg]],
        remarks: Remarks,
    ) -> bool:
        renamed: dict[Reg, Reg] = {}
        for reg in instr.uses():
            bits = involved.get(reg, 0) & available
            while bits:
                low = bits & -bits
                bits ^= low
                target, source = pairs[low.bit_length() - 1]
                if target is reg and source is not reg:
                    renamed[reg] = source
                    break
        if not renamed or not takes(instr, renamed) or not remarks.may_rewrite():
            return False
        return substitute_reads(kernel, instr, renamed)


def _copies(facts: Facts) -> list[Instr]:
    """Unguarded register copies that keep all bits, in reverse postorder."""
    blocks = facts.cfg.blocks
    moves = [
        instr
        for block in facts.cfg.rpo
        for instr in blocks[block].instrs
        if instr.form.operation is Operation.COPY and instr.guard is None and len(instr.operands) == 2
    ]
    copies = [instr for instr in moves if _keeps_all_bits(*instr.operands)]
    if not copies:
        return []
    late = facts.late_registers
    return [instr for instr in copies if late.isdisjoint((*instr.defs(), *instr.uses()))] if late else copies


def _keeps_all_bits(target: Operand, source: Operand) -> bool:
    """Whether a ``mov`` copies a register to another one that can replace it (`are_exchangeable`)."""
    if not isinstance(target, Reg) or not isinstance(source, Reg) or not target.lanes == source.lanes == 1:
        return False
    return are_exchangeable(target.type, source.type)


def exchangeable_as(scalar: ScalarType) -> int | ScalarType:
    """A key that two types share if their registers can replace each other in every instruction that `takes` them."""
    return scalar.bits if scalar.kind in "usb" else scalar


def are_exchangeable(left: ScalarType, right: ScalarType) -> bool:
    """Whether registers of the two types can replace each other in every instruction that `takes` them."""
    return left is right or exchangeable_as(left) == exchangeable_as(right)


def _needs_dataflow(instr: Instr, ssa: Ssa) -> bool:
    target, source = instr.operands
    assert isinstance(target, Reg) and isinstance(source, Reg)
    return not (ssa.is_single(target) and ssa.is_single(source))


def _root(reg: Reg, renamed: dict[Reg, Reg]) -> Reg:
    while reg in renamed:
        reg = renamed[reg]
    return reg


def takes(instr: Instr, renamed: Mapping[Reg, Reg]) -> bool:
    """Whether the instruction may read the registers of ``renamed`` instead of its own.

    Every operand that takes an integer takes a register of type ``.b32``. The reverse does not hold: a sum of
    ``.f16x2`` takes ``.b32``, but not ``.u32``. Where the opcode table does not state the types of the operands, as of
    ``mma``, the answer is no.
    """
    if all(new.type is old.type or new.type.kind == "b" for old, new in renamed.items()):
        return True
    if instr.form.is_opaque or instr.form.op.wildcard:
        return False
    count, operands = instr.form.dst_count, instr.operands
    sources = [substitute(operand, cast("Mapping[Operand, Operand]", renamed)) for operand in operands[count:]]
    return problem(instr.form, tuple([kind_of(operand) for operand in (*operands[:count], *sources)])) is None


def substitute_reads(kernel: Kernel, instr: Instr, renamed: Mapping[Reg, Reg]) -> bool:
    """Replace registers that the instruction reads, except `Instr.fixed_uses`; whether anything changed. The
    instruction must take the new registers (`takes`)."""
    if instr.form.inout or instr.form.is_call:
        return False
    count = instr.form.dst_count
    operands = instr.operands
    other = cast("Mapping[Operand, Operand]", renamed)
    sources = tuple(substitute(operand, other) for operand in operands[count:])
    changed = any(new is not old for new, old in zip(sources, operands[count:], strict=True))
    if changed:
        kernel.replace_operands(instr, (*operands[:count], *sources))
    guard = instr.guard
    if guard is not None and isinstance(guard.reg, Reg) and guard.reg in renamed:
        reg = renamed[guard.reg]
        if reg is not guard.reg:
            kernel.replace_guard(instr, Guard(reg, negated=guard.negated))
            changed = True
    return changed
