"""Iteration space partitioning: blocks in the interior of the grid run a copy of the body without border checks.

A stencil reads neighbours of its point. At the border of the domain they do not exist, so its code clamps indices, or
tests them. In most blocks of a large grid this does nothing. The pass puts a test at the entry of the kernel. It is the
same for all threads of a block. Where it is true, the block runs a copy of the body from which the checks are removed;
otherwise it runs the body as it was. With the option ``edges``, blocks that fail one condition of the test run a copy
that keeps only the checks of this condition; blocks in the corners run the body as it was.

Requires: facts of an entry without nested scopes. Guarantees: each thread computes the same, with the same stores,
barriers, atomics and loads in the same order; all threads of a block run the same copy. Products of copied
floating-point instructions are contracted as those of the originals (`contraction_audit.py`, with `Facts.copies`).
Refuses, with a reason: functions; kernels with fewer checks than ``least``, weighted by loop depth, or with more
instructions than ``most``; debug modules; branch tables; unknown opcodes.
Reference: Qiao, Teich, Hannig, *An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning*, IPDPSW 2021. The paper generates nine regions from source code in its own language. This pass makes
them from PTX, with one region for all corners.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...analysis.interior.block_bounds import BlockBounds
from ...analysis.interior.interior import Interior, find_edges, find_interior
from ...analysis.manager import Facts
from ...ptx import Block, Guard, Kernel
from ...ptx.builder import Builder
from ..code_motion.branch_divergence import divergent_blocks
from ..passes import option
from ..remarks import Remarks
from .interior_conditions import InteriorTest
from .interior_copy import BORDER, InteriorCopy, copy_interior, unsupported

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
    edges: int = option(0, "the largest number of instructions of all copies for blocks at one edge")
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
        edges = self._edges(size, facts, interior)
        self._split(kernel, facts, interior, edges)
        self._report(kernel, interior, edges, remarks)
        return True

    def _edges(self, size: int, facts: Facts, interior: Interior) -> list[Interior]:
        """The edges whose blocks get a copy: those at which most checks are removed, as far as `edges` allows."""
        if size > self.edges or len(interior.needs.conditions) < 2:
            return []
        found = [each for each in find_edges(facts, interior) if each.weight >= self.least]
        return sorted(found, key=lambda each: -each.weight)[: self.edges // size]

    def _split(self, kernel: Kernel, facts: Facts, interior: Interior, edges: list[Interior]) -> None:
        fixed = facts.fixed
        copies = [copy_interior(kernel, facts, each) for each in (interior, *edges)]
        tests = InteriorTest(kernel, BlockBounds(facts))
        border = Block(kernel.new_label(BORDER))
        kernel.rare = border.label
        entry = Block()
        _branch(kernel, entry, Guard(tests.emit(entry, interior.needs), negated=True), border)
        parts = [entry, *copies[0].blocks, border]
        if edges:
            body = Block(kernel.new_label("$L_isp_body"))
            parts += _edge_blocks(kernel, tests, border, body, edges, copies[1:])
        for index, block in enumerate(parts):
            kernel.insert_block(index, block)
        facts.forget(divergent_blocks)  # the copies have branches, too
        for copy in copies:
            facts.copies.update(copy.originals)
            if fixed is not None:
                fixed |= {new for new, old in copy.originals.items() if old in fixed}
        if fixed is not None:
            facts.fixed = fixed

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

    def _report(self, kernel: Kernel, interior: Interior, edges: list[Interior], remarks: Remarks) -> None:
        counted: Counter[str] = Counter(instr.form.op.base for instr in interior.borders)
        which = ", ".join(f"{number} {base}" for base, number in sorted(counted.items()))
        conditions = ", ".join(f"{each} >= 0" for each in interior.needs.conditions)
        message = f"{len(interior.borders)} border checks ({which}) are removed in blocks with {conditions}"
        if edges:
            removed = ", ".join(str(len(each.borders)) for each in edges)
            message += f", and {removed} in blocks at one edge"
        first: Instr = interior.borders[0]
        remarks.add("Passed", self.name, "Split", kernel, message, instr=first)
        remarks.count(kernel, self.name, "checks removed", len(interior.borders))
        remarks.count(kernel, self.name, "split")
        if edges:
            remarks.count(kernel, self.name, "copies for edges", len(edges))


def _edge_blocks(
    kernel: Kernel,
    tests: InteriorTest,
    border: Block,
    body: Block,
    edges: list[Interior],
    copies: list[InteriorCopy],
) -> list[Block]:
    """Append the test of the first edge to ``border``; the blocks that follow it: the tests of the other edges, the
    copies, and ``body``, an empty block in front of the body of the kernel."""
    switch, block = [border], border
    for edge, copy in zip(edges, copies, strict=True):
        first = copy.blocks[0]
        if first.label is None:
            first.label = kernel.new_label("$L_isp_edge")
        _branch(kernel, block, Guard(tests.emit(block, edge.needs), negated=False), first)
        block = Block()
        switch.append(block)
    _branch(kernel, block, None, body)
    return [*switch[1:], *(each for copy in copies for each in copy.blocks), body]


def _branch(kernel: Kernel, block: Block, guard: Guard | None, target: Block) -> None:
    """Append a branch that all threads of a block of threads take, or none."""
    builder = Builder(kernel, block)
    builder.guard = guard
    builder.emit("bra", target)
