"""Dead code and empty blocks.

An instruction is removed if `effects.may_remove` allows it and no instruction of the kernel reads its results. The
flow of control is not considered. The removal may make other instructions unread, which are then removed as well. A
synthetic block that is empty is removed, which restores its edge.

Guarantees: removes no instruction that writes memory, traps on purpose, orders memory or depends on convergence. Keeps
the blocks and labels of the input: a pragma or the debug information may need them, and the unroller of the assembler
depends on their shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from ...analysis.effects import may_remove
from ...analysis.manager import Facts
from ...ptx import Block, Directive, Instr, Kernel, Label, Reg
from ..code_motion.edges import SYNTHETIC
from ..code_motion.expressions import is_described_by_pragma
from ..remarks import Remarks

__all__ = ["DeadCodeElimination", "EmptyBlocks"]


@dataclass(frozen=True)
class DeadCodeElimination:
    """Removes instructions whose results are not used."""

    name: ClassVar[str] = "dce"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove dead instructions; whether there were any."""
        unread = facts.get(_Unread.of)
        if not unread.removable:
            return False
        dead = _dead(kernel, remarks, unread)
        for block in kernel.blocks:
            kept = [instr for instr in block.instrs if instr not in dead]
            if len(kept) != len(block.instrs):
                kernel.set_instrs(block, kept)
        if dead:
            remarks.count(kernel, self.name, "removed", len(dead))
        return bool(dead)


@dataclass(frozen=True, slots=True)
class _Unread:
    """The instructions that may be removed because nothing reads their results.

    ``reads`` counts the reads of each register in the kernel. ``described``: see `_described_by_pragma`.
    """

    removable: list[Instr]
    reads: Counter[Reg]
    described: set[Instr]

    @classmethod
    def of(cls, facts: Facts) -> _Unread:
        """A fact for `Facts.get`."""
        instrs = [instr for block in facts.kernel.blocks for instr in block.instrs]
        reads = Counter(chain.from_iterable([instr.uses() for instr in instrs]))
        unread = set(chain.from_iterable([instr.defs() for instr in instrs])) - reads.keys()
        if not unread:
            return cls([], reads, set())
        described = _described_by_pragma(facts.kernel)
        removable = [
            instr
            for instr in chain.from_iterable(_definitions(instrs, unread).values())
            if instr not in described and not any(map(reads.__contains__, instr.defs())) and may_remove(instr)
        ]
        return cls(removable, reads, described)


def _dead(kernel: Kernel, remarks: Remarks, unread: _Unread) -> set[Instr]:
    """The instructions to remove: those in ``unread``, and those that become unread by the removal. ``remarks`` may
    forbid some of them."""
    dead: set[Instr] = set()
    reads, described = unread.reads.copy(), unread.described
    #: The definitions of each register. Computed on demand, because most removals make no other register unread.
    definitions: dict[Reg, list[Instr]] | None = None
    work = list(unread.removable)
    while work:
        instr = work.pop()
        if instr in dead or instr in described or any(reads.get(reg) for reg in instr.defs()):
            continue
        if not may_remove(instr) or not remarks.may_rewrite():
            continue
        dead.add(instr)
        for reg in instr.uses():
            reads[reg] -= 1
            if not reads[reg]:
                if definitions is None:
                    definitions = _definitions(list(kernel.instructions()), reads)
                work.extend(definitions.get(reg, ()))
    return dead


def _definitions(instrs: list[Instr], wanted: Container[Reg]) -> dict[Reg, list[Instr]]:
    """The instructions that write each of the registers ``wanted``."""
    definitions: dict[Reg, list[Instr]] = {}
    for instr in instrs:
        for reg in instr.defs():
            if reg in wanted:
                definitions.setdefault(reg, []).append(instr)
    return definitions


def _described_by_pragma(kernel: Kernel) -> set[Instr]:
    """The instructions that a pragma describes."""
    return {
        instrs[at]
        for instrs in (block.instrs for block in kernel.blocks)
        for at, before in enumerate(instrs[:-1], 1)
        if before.is_directive and is_described_by_pragma(instrs, at)
    }


@dataclass(frozen=True)
class EmptyBlocks:
    """Removes empty blocks that other passes inserted."""

    name: ClassVar[str] = "emptyblocks"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Remove synthetic blocks that have become empty; whether there were any."""
        del facts, remarks
        # A table of an indirect branch names blocks of the input only, which may bear any name.
        directives = [each for block in kernel.blocks for each in block.instrs if isinstance(each, Directive)]
        kept = {label for directive in directives for label in directive.targets}
        targets: dict[Label, Label] = {}
        doomed: dict[Label, Block] = {}
        for number, block in enumerate(kernel.blocks):
            target = _forwarded_to(kernel, number, block)
            if target is not None and block.label is not None and block.label not in kept:
                targets[block.label] = target
                doomed[block.label] = block
        # One that leads to another, or to itself, stays.
        for label in [label for label, target in targets.items() if target in doomed]:
            del targets[label], doomed[label]
        if not doomed:
            return False
        for instr in kernel.instructions():
            if any(isinstance(operand, Label) and operand in targets for operand in instr.operands):
                operands = (targets.get(op, op) if isinstance(op, Label) else op for op in instr.operands)
                kernel.replace_operands(instr, tuple(operands))
        gone = set(doomed.values())
        kernel.blocks = [block for block in kernel.blocks if block not in gone]
        kernel.cfg_changed()
        return True


def _forwarded_to(kernel: Kernel, number: int, block: Block) -> Label | None:
    """The label that an empty synthetic block leads to."""
    if block.label is None or not block.label.text.startswith(SYNTHETIC):
        return None
    if len(block.instrs) == 1 and block.instrs[0].form.text == "bra.uni":
        target = block.instrs[0].operands[0]
        return target if isinstance(target, Label) else None
    if not block.instrs and number + 1 < len(kernel.blocks):
        return kernel.blocks[number + 1].label
    return None
