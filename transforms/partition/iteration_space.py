"""Iteration space partitioning: blocks in the interior of the grid run a copy of the body without border checks.

A stencil reads neighbours of its point. At the border of the domain they do not exist, so its code clamps indices, or
tests them. In most blocks of a large grid this does nothing. The pass puts a test at the entry of the kernel. It is the
same for all threads of a block. Where it is true, the block runs a copy of the body from which the checks are removed;
otherwise it runs the body as it was.

Requires: facts of an entry without nested scopes. Guarantees: each thread computes the same, with the same stores,
barriers, atomics and loads in the same order; all threads of a block run the same copy. Products of copied
floating-point instructions are contracted as those of the originals (`contraction_audit.py`, with `Facts.copies`).
Refuses, with a reason: functions; kernels with fewer checks than ``least``, weighted by loop depth, or with more
instructions than ``most``; debug modules; branch tables; unknown opcodes.
Reference: Qiao, Teich, Hannig, *An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning*, IPDPSW 2021. The paper generates nine regions from source code in its own language. This pass makes
two from PTX.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...analysis.interior import Interior, find_interior
from ...analysis.manager import Facts
from ...analysis.values.block_bounds import BlockBounds
from ...ptx import Block, Guard, Kernel
from ...ptx.builder import Builder
from ..code_motion.branch_divergence import divergent_blocks
from ..passes import option
from ..remarks import Remarks
from .interior_copy import BORDER, copy_interior, unsupported
from .interior_test import emit_test

if TYPE_CHECKING:
    from ...ptx import Instr

__all__ = ["REASONS", "IterationSpacePartitioning"]

#: By reason id: its text in remarks.
REASONS = {
    "split": "a pass has already split it",
    "no-checks": "it has no border checks",
    "too-few": "it has too few border checks",
    "too-long": "it is too long to be copied",
    "debug": "it has debug information of 'nvcc -G'",
    "opaque": "it has an opcode that is not known",
    "directive": "it has a branch table, a prototype, a pragma, or a scope of several blocks",
    "no-block": "its conditions hold in every block",
    "not-affine": "its operands are no polynomials of coordinates and parameters with known bounds",
    "loop-bound": "it depends on the counter of a loop whose number of iterations is not known",
    "direction": "its difference grows and falls with the number of the block",
    "too-large": "its operands may be too large for a test in 64 bits",
    "unusual": "the blocks in which it does nothing occur only in unusual launches",
    "never": "it does something in every block",
}


@dataclass(frozen=True)
class IterationSpacePartitioning:
    """Blocks of threads in the interior of the grid run a copy of the body without border checks."""

    least: int = option(4, "the least number of border checks, each weighted by 8 to the power of its loop depth")
    most: int = option(20000, "the largest number of instructions of a kernel that is copied")
    name: ClassVar[str] = "isp"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Split the kernel in place; whether it was."""
        if not kernel.is_entry:
            return False
        size = sum(1 for _ in kernel.instructions())
        if size > self.most:
            return self._refuse(kernel, remarks, "too-long")
        if facts.module is not None and "debug" in facts.module.target:
            return self._refuse(kernel, remarks, "debug")
        reason = unsupported(kernel, facts)
        if reason:
            return self._refuse(kernel, remarks, reason)
        interior = facts.get(find_interior)
        self._explain(kernel, interior, remarks)
        if not interior.borders:
            return self._refuse(kernel, remarks, "no-checks")
        if interior.weight < self.least:
            return self._refuse(kernel, remarks, "too-few")
        if not interior.needs.conditions:
            return self._refuse(kernel, remarks, "no-block")
        if not remarks.may_rewrite(self.name, interior.borders[0]):
            return False
        self._split(kernel, facts, interior)
        self._report(kernel, interior, remarks)
        return True

    def _split(self, kernel: Kernel, facts: Facts, interior: Interior) -> None:
        fixed = facts.fixed
        copy = copy_interior(kernel, facts, interior)
        bounds = BlockBounds(facts)
        border = Block(kernel.new_label(BORDER))
        kernel.rare = border.label
        entry = Block()
        is_inside = emit_test(kernel, entry, bounds, interior.needs)
        builder = Builder(kernel, entry)
        builder.guard = Guard(is_inside, negated=True)
        builder.emit("bra", border)
        for index, block in enumerate([entry, *copy.blocks, border]):
            kernel.insert_block(index, block)
        facts.forget(divergent_blocks)  # the copies have branches, too
        facts.copies.update(copy.originals)
        if fixed is not None:
            facts.fixed = fixed | {new for new, old in copy.originals.items() if old in fixed}

    # --- remarks -----------------------------------------------------------------------------------------------------

    def _refuse(self, kernel: Kernel, remarks: Remarks, reason: str) -> bool:
        message = f"the kernel is not split, because {REASONS[reason]}"
        remarks.add("Missed", self.name, "Refused", kernel, message, reason=reason)
        remarks.count(kernel, self.name, reason)
        return False

    def _explain(self, kernel: Kernel, interior: Interior, remarks: Remarks) -> None:
        """Report each check without an outcome."""
        for instr, reason in interior.refused.items():
            message = f"'{instr.form.text}' is not removed: {REASONS[reason]}"
            remarks.add("Missed", self.name, "Kept", kernel, message, instr=instr, reason=reason)

    def _report(self, kernel: Kernel, interior: Interior, remarks: Remarks) -> None:
        counted: Counter[str] = Counter(instr.form.op.base for instr in interior.borders)
        which = ", ".join(f"{number} {base}" for base, number in sorted(counted.items()))
        conditions = ", ".join(f"{each} >= 0" for each in interior.needs.conditions)
        message = f"{len(interior.borders)} border checks ({which}) are removed in blocks with {conditions}"
        first: Instr = interior.borders[0]
        remarks.add("Passed", self.name, "Split", kernel, message, instr=first)
        remarks.count(kernel, self.name, "checks removed", len(interior.borders))
        remarks.count(kernel, self.name, "split")
