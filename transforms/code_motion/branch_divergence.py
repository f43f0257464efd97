"""Which branches diverge, found once for a kernel and kept while code moves in it, by all passes that run over it.

Code motion changes neither what a branch depends on nor which threads take it; so the answer for the kernel as it was
given holds for each of its blocks afterwards, and synthetic blocks end in no conditional branch.

It is the *expected* divergence, measured where the facts have a profile: what is asked here decides what an evaluation
costs (SSCM's ∪, the CDRND for insertions), never whether a motion is correct.

Guarantees: `cdrnd` is that of the graph as it is now, with the branches that were found divergent.
"""

from __future__ import annotations

from ...analysis.graph.control_dependence import ENTRY
from ...analysis.manager import Facts
from ...ptx import Block

__all__ = ["BranchDivergence", "Contexts"]


class BranchDivergence:
    """The divergent branches of the kernel that ``facts`` is about."""

    def __init__(self, facts: Facts, *, is_deferred: bool = False) -> None:
        """``is_deferred``: found when first asked for, since many kernels are left as they are and nobody asks. Then
        `settle` is called before the kernel changes."""
        self._facts = facts
        self._version = facts.kernel.version
        self._found: frozenset[Block] | None = facts.lasting.get(BranchDivergence)
        if not is_deferred:
            self.settle()

    def settle(self) -> None:
        """Find out now, since the kernel is about to change."""
        _ = self._divergent

    @property
    def is_settled(self) -> bool:
        """Whether it has been found out."""
        return self._found is not None

    @property
    def _divergent(self) -> frozenset[Block]:
        if self._found is None:
            facts = self._facts
            if facts.kernel.version != self._version:
                raise RuntimeError(f"the divergence of '{facts.kernel.name}' was not settled before it changed")
            blocks = facts.cfg.blocks
            self._found = frozenset(blocks[b] for b in facts.expected_divergence.divergent_branches)
            facts.lasting[BranchDivergence] = self._found
        return self._found

    def is_divergent(self, facts: Facts, block: int) -> bool:
        """Whether lanes may part at the end of block number ``block``."""
        return facts.cfg.blocks[block] in self._divergent

    def blocks(self, facts: Facts) -> list[int]:
        """The numbers of the blocks that end in a divergent branch, ascending."""
        divergent = self._divergent
        return [number for number, block in enumerate(facts.cfg.blocks) if block in divergent]

    def cdrnd(self, facts: Facts) -> list[bool]:
        """For each block whether it lies in the control dependence region of non-divergence (thesis §4.3)."""
        return facts.control_dependence.cdrnd(self.blocks(facts))


class Contexts:
    """By block, the divergent branches that decide whether it is executed, directly or through others."""

    def __init__(self, divergence: BranchDivergence, facts: Facts) -> None:
        self._divergence = divergence
        self._facts = facts
        self._found: dict[int, frozenset[int]] = {}

    def of(self, block: int) -> frozenset[int]:
        """Those of ``block``, as the numbers of the blocks that they end."""
        known = self._found.get(block)
        if known is not None:
            return known
        controllers = self._facts.control_dependence.controllers
        found: set[int] = set()
        seen = {block}
        work = [block]
        for each in work:
            for branch in controllers[each]:
                if branch == ENTRY:
                    continue
                if self._divergence.is_divergent(self._facts, branch):
                    found.add(branch)
                if branch not in seen:
                    seen.add(branch)
                    work.append(branch)
        result = self._found[block] = frozenset(found)
        return result
