"""The copy of a kernel's body that the blocks in the interior execute: without border checks.

Computes: copies of the blocks that the interior executes. A check with a known outcome becomes a ``mov``, a branch that
is always taken loses its guard, an instruction with a false guard and a branch that is never taken are left out.
Predicates with a known value are still written, because an instruction that stays may read them; `dce` removes the
others. Blocks between which no branch is left are joined, so that the control flow graph shows the blocks that ptxas
will see.

Requires: a kernel without nested scopes except those of calls, and the `Interior` of its current version; no branch
tables, no prototypes, no pragmas about the kernel (`unsupported`). Guarantees: in a block in which the conditions of
the interior hold, the copy does what the body does. Registers and labels are new; variables, parameters and lines are
shared.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import pairwise

from ...analysis.interior.interior import Interior
from ...analysis.interior.interior_forms import NOTHING
from ...analysis.manager import Facts
from ...ptx import Block, Directive, Guard, Imm, Instr, Kernel, Label, Operand, Reg, Sym, Variable, substitute
from ...ptx.decoding import decode, form_of
from ...ptx.ir import Declaration
from ...ptx.operands import walk
from ...ptx.operations import Operation

__all__ = ["BORDER", "InteriorCopy", "copy_interior", "unsupported"]

#: The start of the label in front of the body of a kernel that is split.
BORDER = "$L_isp_border"

#: Directives that name places of the code, or that other instructions name.
_NAMED = frozenset(["branchtargets", "calltargets", "callprototype", "other"])
#: Pragmas about the basic block or the instruction after them.
_LOCAL_PRAGMAS = ("nounroll", "used_bytes_mask", "frequency")


@dataclass(slots=True)
class InteriorCopy:
    """The copied ``blocks``, and by copy its original. A replaced instruction has no copy in ``originals``."""

    blocks: list[Block] = field(default_factory=list[Block])
    originals: dict[Instr, Instr] = field(default_factory=dict[Instr, Instr])


def unsupported(kernel: Kernel, facts: Facts) -> str:
    """Why the body cannot be copied; empty if it can."""
    if facts.cfg.unmodelled:
        return "opaque"
    for block in kernel.blocks:
        if block.label is not None and block.label.text.startswith(BORDER):
            return "split"
        depth = 0
        for instr in block.instrs:
            if isinstance(instr, Directive):
                if instr.kind in _NAMED or instr.label is not None or not _may_repeat(instr):
                    return "directive"
                depth += (instr.kind == "{") - (instr.kind == "}")
            elif instr.form.operation is Operation.INDEXED_BRANCH:
                return "directive"
            elif instr.form.is_opaque:
                return "opaque"
        if depth:
            return "directive"
    return ""


def copy_interior(kernel: Kernel, facts: Facts, interior: Interior) -> InteriorCopy:
    """The copy. Its blocks are not in the kernel; its registers are declared."""
    return _Copier(kernel, facts, interior).copy()


class _Copier:
    def __init__(self, kernel: Kernel, facts: Facts, interior: Interior) -> None:
        self.kernel = kernel
        self.ssa = facts.ssa
        self.cfg = facts.cfg
        self.outcomes = interior.outcomes
        self.result = InteriorCopy()
        #: By operand of the original, what it is in the copy.
        self.replaced: dict[Operand, Operand] = {}
        #: By variable of the scope of a call, its copy.
        self.variables: dict[Declaration, Variable] = {}

    def copy(self) -> InteriorCopy:
        for number in sorted(self.outcomes.blocks):
            self.result.blocks.append(self._block(self.cfg.blocks[number]))
        self._join()
        last = self.result.blocks[-1]
        if last.falls_through:
            last.instrs.append(Instr(decode("ret"), ()))
        return self.result

    def _block(self, block: Block) -> Block:
        copied = Block(self._label(block.label) if block.label is not None else None)
        for instr in block.instrs:
            if isinstance(instr, Directive):
                copied.instrs.append(self._directive(instr))
                continue
            new = self._instr(instr)
            if new is not None:
                copied.instrs.append(new)
            elif copied.instrs and _is_of_next(copied.instrs[-1]):
                copied.instrs.pop()
        return copied

    def _instr(self, instr: Instr) -> Instr | None:
        guard = instr.guard
        if guard is not None and isinstance(guard.reg, Reg):
            truth = self.outcomes.truths.get(self.ssa.read(instr, guard.reg))
            if truth is not None and truth == guard.negated:
                return None
            guard = Guard(self._register(guard.reg), negated=guard.negated) if truth is None else None
        replaced = self._replaced(instr)
        if replaced is not None:
            mnemonic, operands = replaced
            copied = tuple([self._operand(each) for each in operands])
            return Instr(form_of(mnemonic, copied), copied, guard, instr.loc)
        new = Instr(instr.form, tuple([self._operand(each) for each in instr.operands]), guard, instr.loc, instr.pos)
        self.result.originals[new] = instr
        return new

    def _replaced(self, instr: Instr) -> tuple[str, tuple[Operand, ...]] | None:
        """The mnemonic and operands, in registers of the original, of what a check becomes."""
        if len(instr.operands) < 2:
            return None
        result = instr.operands[0]
        choice = self.outcomes.chosen.get(instr)
        scalar = instr.form.scalar("type")
        if choice is not None:
            if scalar is None or scalar.bits == 128:
                return None
            chosen = instr.operands[1 + choice.source] if choice.source != NOTHING else Imm(0)
            if not choice.times:
                return f"mov.{scalar.name}", (result, chosen)
            return f"sub.{scalar.name}", (result, chosen, instr.operands[2 - choice.source])
        if instr.guard is None and isinstance(result, Reg) and result in instr.defs():
            truth = self.outcomes.truths.get(self.ssa.defined(instr, result))
            if truth is not None:
                return "mov.pred", (result, Imm(int(truth)))
        return None

    def _directive(self, instr: Directive) -> Directive:
        declaration = instr.declaration
        if isinstance(declaration, Variable):
            declaration = dataclasses.replace(declaration)
            self.variables[instr.declaration] = declaration  # pyright: ignore[reportArgumentType]
        return Directive(instr.kind, instr.payload, declaration=declaration)

    # --- operands ----------------------------------------------------------------------------------------------------

    def _operand(self, operand: Operand) -> Operand:
        for part in walk(operand):
            if part in self.replaced:
                continue
            if isinstance(part, Reg):
                self._register(part)
            elif isinstance(part, Label):
                self._label(part)
        scoped = {part: self._symbol(part) for part in walk(operand) if self._is_scoped(part)}
        return substitute(operand, {**self.replaced, **scoped} if scoped else self.replaced)

    def _is_scoped(self, part: Operand) -> bool:
        return isinstance(part, Sym) and part.declaration is not None and part.declaration in self.variables

    def _symbol(self, part: Operand) -> Sym:
        assert isinstance(part, Sym) and part.declaration is not None
        return Sym(part.name, self.variables[part.declaration], part.offset, has_zero=part.has_zero)

    def _register(self, reg: Reg) -> Reg:
        copied = self.replaced.get(reg)
        if copied is None:
            # A vector register is shared with the body. A thread executes only one of the two.
            copied = self.kernel.new_reg(reg.type, "%isp") if reg.lanes == 1 else reg
            self.replaced[reg] = copied
        assert isinstance(copied, Reg)
        return copied

    def _label(self, label: Label) -> Label:
        copied = self.replaced.get(label)
        if copied is None:
            copied = self.replaced[label] = self.kernel.new_label(f"{label.text}_isp")
        assert isinstance(copied, Label)
        return copied

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Remove branches to the next block, and join blocks that only the block before them reaches."""
        blocks = self.result.blocks
        for block, after in pairwise(blocks):
            last = block.terminator
            if last is None or last.guard is not None or last.form.operation is not Operation.BRANCH:
                continue
            if after.label is not None and last.operands[-1] is after.label:
                block.instrs.remove(last)
                self.result.originals.pop(last, None)
        targets = {part for block in blocks for instr in block.instrs for part in instr.operands}
        joined = [blocks[0]]
        for block in blocks[1:]:
            if joined[-1].terminator is None and (block.label is None or block.label not in targets):
                joined[-1].instrs += block.instrs
            else:
                joined.append(block)
        self.result.blocks = joined


def _may_repeat(instr: Directive) -> bool:
    """Whether a directive means the same at its place in a copy. Some pragmas are about the whole kernel."""
    return instr.kind != "pragma" or any(word in instr.payload for word in _LOCAL_PRAGMAS)


def _is_of_next(instr: Instr) -> bool:
    """Whether a directive describes the instruction after it."""
    return isinstance(instr, Directive) and instr.kind == "pragma" and "used_bytes_mask" in instr.payload
