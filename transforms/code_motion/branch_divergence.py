"""Which branches diverge, for decisions of the passes about cost.

This is the *expected* divergence, which is measured if the facts have a profile. It decides what an evaluation costs
(the ∪ of SSCM, the CDRND for insertions), never whether a motion is correct.

The driver preserves `divergent_blocks` over the passes of this package (`Facts.preserve`). These passes keep each
conditional branch, and its condition keeps its value. A synthetic block ends in no conditional branch.
"""

from __future__ import annotations

from ...analysis.graph.control_dependence import ENTRY
from ...analysis.manager import Facts
from ...ptx import Block

__all__ = ["BranchDivergence", "Contexts", "agree", "divergent_blocks"]


def divergent_blocks(facts: Facts) -> frozenset[Block]:
    """The blocks that end in a divergent branch; a fact for `Facts.get`. A block is its object, so that the value stays
    valid where blocks are inserted."""
    blocks = facts.cfg.blocks
    return frozenset([blocks[number] for number in facts.expected_divergence.divergent_branches])


def agree(preserved: frozenset[Block], recomputed: frozenset[Block]) -> bool:
    """Whether a preserved `divergent_blocks` may be kept although a new one may differ.

    Both contain every branch that really diverges, since the conditions keep their values. A pass may make the analysis
    less precise (equal values of several paths get one register) or more precise (a loaded value is taken from a
    register). If the two sets differ in both directions, the fact is reported as not preserved.
    """
    return preserved <= recomputed or recomputed <= preserved


class BranchDivergence:
    """The divergent branches of the kernel of ``facts``. Each query reads the facts, so its answer is up to date, and
    making this object costs nothing."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def is_divergent(self, block: int) -> bool:
        """Whether lanes may diverge at the end of block number ``block``."""
        return self._facts.cfg.blocks[block] in self._facts.get(divergent_blocks)

    def blocks(self) -> list[int]:
        """The numbers of the blocks that end in a divergent branch, ascending."""
        divergent = self._facts.get(divergent_blocks)
        return [number for number, block in enumerate(self._facts.cfg.blocks) if block in divergent]

    def cdrnd(self) -> list[bool]:
        """For each block whether it lies in the control dependence region of non-divergence (thesis §4.3)."""
        return self._facts.control_dependence.cdrnd(self.blocks())


class Contexts:
    """For a block, the divergent branches that decide, directly or through other branches, whether it is executed."""

    def __init__(self, divergence: BranchDivergence, facts: Facts) -> None:
        self._divergence = divergence
        self._facts = facts
        #: By block number: the numbers of the blocks that these branches end.
        self._contexts: dict[int, frozenset[int]] = {}

    def of(self, block: int) -> frozenset[int]:
        """The numbers of the blocks that end in a divergent branch on which ``block`` depends."""
        context = self._contexts.get(block)
        if context is None:
            context = self._contexts[block] = self._find(block)
        return context

    def _find(self, block: int) -> frozenset[int]:
        controllers = self._facts.control_dependence.controllers
        divergent: set[int] = set()
        visited = {block}
        work = [block]
        for dependent in work:
            for branch in controllers[dependent]:
                if branch == ENTRY:
                    continue
                if self._divergence.is_divergent(branch):
                    divergent.add(branch)
                if branch not in visited:
                    visited.add(branch)
                    work.append(branch)
        return frozenset(divergent)
