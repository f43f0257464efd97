"""Questions about speculation: to which blocks may a load rise that divergent branches decide about.

Computes, for a load in block m, the blocks at whose ends, before their branches, it is to be evaluated instead
(Algorithms 2.1 and 2.2). The query (e, m, n) goes backward; at block n, after its branch, the answer is (whether e may
rise, to which blocks):

    (1)  past the entry             (false, ∅)
    (2)  asked here already         (true, ∅)
    (3)  n changes e                (true, {n}) where n ends in a divergent branch that m depends on, else (false, ∅)
    (4)  n ends in a divergent branch: as its predecessors answer with m := n if m depends on it, and (true, {n}) where
         they say no; else as they answer
    (5)  n ends in another branch: where e is down-safe there, as its predecessors answer, with m := n if m depends on
         it; else (false, ∅)
    (6)  otherwise as its predecessors answer

Predecessors that disagree: those that say no become places to evaluate e, if they lie where no further divergent branch
decides about them and n is down-safe. A block whose φs the address is made of changes e at its start.

Nodes of the paper hold one statement; a block here is its statements and then its branch. Where e is available already
the answer is (true, ∅): nothing has to be evaluated on that way.

Requires: control dependence. Guarantees: nothing about faults, nor that the places suffice; who asks has to check both.
Reference: thesis §4.3.3 and §4.5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..analysis.manager import Facts
from .anticipation import Anticipation
from .memory_accesses import Question
from .question_propagation import Availability

__all__ = ["Hoisting", "Places"]

MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Places:
    """Whether the load may rise, and the blocks at whose ends it is to be evaluated."""

    may_rise: bool
    blocks: frozenset[int] = frozenset()


NOWHERE = Places(False)
ELSEWHERE = Places(True)


class Hoisting:
    """Answers questions about speculation.

    ``parts`` says of a block whether it ends in a branch above which one may speculate; ``is_convergent`` whether a
    load at its end adds nothing to an arm that the load is not in.
    """

    def __init__(
        self,
        facts: Facts,
        availability: Availability,
        anticipation: Anticipation,
        parts: Callable[[int], bool],
        is_convergent: Callable[[int], bool],
    ) -> None:
        self.cfg = facts.cfg
        self.controllers = facts.control_dependence.controllers
        self.availability = availability
        self.anticipation = anticipation
        self.parts = parts
        self.is_convergent = is_convergent
        self._answers: dict[tuple[int, int], Places | None] = {}
        self._reached: dict[int, list[int]] = {}

    def places(self, block: int, question: Question) -> Places:
        """Where the load of ``question``, asked at the start of ``block``, may rise to."""
        self._answers.clear()
        return self._above(question, block, block, 0)

    def _above(self, question: Question, m: int, n: int, depth: int) -> Places:
        """What the predecessors of ``n`` answer (Algorithm 2.1)."""
        before = self._before(n)
        if not before or n == self.cfg.rpo[0] or self._is_named_anew(question, n):
            return NOWHERE
        if len(before) == 1:
            return self._at(question, m, before[0], depth + 1)
        answers = {block: self._at(question, m, block, depth + 1) for block in before}
        places = frozenset[int]().union(*(answer.blocks for answer in answers.values()))
        refusing = [block for block, answer in answers.items() if not answer.may_rise]
        if not refusing:
            return Places(True, places)
        if len(refusing) == len(before) or not all(self.is_convergent(block) for block in refusing):
            return NOWHERE
        if not all(self.anticipation.is_evaluated(block, n, question) for block in refusing):
            return NOWHERE
        return Places(True, places.union(refusing))

    def _before(self, block: int) -> list[int]:
        """The predecessors that are reached."""
        found = self._reached.get(block)
        if found is None:
            reachable = self.cfg.reachable
            found = self._reached[block] = [before for before in self.cfg.pred[block] if reachable[before]]
        return found

    def _is_named_anew(self, question: Question, n: int) -> bool:
        phis = self.availability.symbols.phis.get(n)
        if not phis:
            return False
        leaves = self.availability.symbols.leaves(question.base)
        return leaves is None or not leaves.isdisjoint(phis)

    def _at(self, question: Question, m: int, n: int, depth: int) -> Places:
        """What ``n`` answers (Algorithm 2.2)."""
        key = (m, n)
        if key in self._answers:
            return self._answers[key] or ELSEWHERE
        if depth > MAX_DEPTH:
            return NOWHERE
        self._answers[key] = None
        answer = self._answers[key] = self._find(question, m, n, depth)
        return answer

    def _find(self, question: Question, m: int, n: int, depth: int) -> Places:
        said = self.availability.at_end(n, question)
        if said.provider is not None:
            return ELSEWHERE
        ways = len(self.cfg.succ[n]) + (n in self.cfg.exits)
        depends = n in self.controllers[m]
        may_speculate = ways > 1 and self.parts(n)
        if said.reason:
            return Places(True, frozenset([n])) if may_speculate and depends else NOWHERE
        if may_speculate:
            if not depends:
                return self._above(question, m, n, depth)
            higher = self._above(question, n, n, depth)
            return higher if higher.may_rise else Places(True, frozenset([n]))
        if ways > 1:
            if n in self.cfg.exits or not all(
                self.anticipation.is_evaluated(n, successor, question) for successor in self.cfg.succ[n]
            ):
                return NOWHERE
            return self._above(question, n if depends else m, n, depth)
        return self._above(question, m, n, depth)
