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

from collections.abc import Callable, Container
from dataclasses import dataclass

from ...analysis.manager import Facts
from ..scalar_replacement.question_propagation import Availability
from ..scalar_replacement.questions import Question
from .anticipation import Anticipation

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

    ``parts`` says of a block whether it ends in a branch above which one may speculate.
    """

    def __init__(
        self,
        facts: Facts,
        availability: Availability,
        anticipation: Anticipation,
        parts: Callable[[int], bool],
    ) -> None:
        self.cfg = facts.cfg
        self.controllers = facts.control_dependence.controllers
        self.availability = availability
        self.anticipation = anticipation
        self._parts = parts
        self._exits = frozenset(self.cfg.exits)
        self._reached: dict[int, list[int]] = {}
        self._may_part: dict[int, bool] = {}
        #: By the number of a φ, the blocks that have it.
        self._joins: dict[int, list[int]] = {}
        for block, phis in availability.symbols.phis.items():
            for phi in phis:
                self._joins.setdefault(phi, []).append(block)

    def places(self, block: int, question: Question, is_convergent: Callable[[int], bool]) -> Places:
        """Where the load of ``question``, asked at the start of ``block``, may rise to. ``is_convergent``: whether a
        load at the end of a block adds nothing to an arm that the load of ``question`` is not in."""
        return _Rise(self, question, is_convergent).above(block, block, 0)

    def before(self, block: int) -> list[int]:
        """The predecessors that are reached; none of the first block, to which control comes from outside."""
        found = self._reached.get(block)
        if found is None:
            reachable = self.cfg.reachable
            found = [before for before in self.cfg.pred[block] if reachable[before]] if block != self.cfg.rpo[0] else []
            self._reached[block] = found
        return found

    def may_speculate(self, block: int) -> bool:
        """Whether the block ends in a branch above which one may speculate."""
        found = self._may_part.get(block)
        if found is None:
            found = self._may_part[block] = self.branches(block) and self._parts(block)
        return found

    def branches(self, block: int) -> bool:
        """Whether there are several ways on from the block, the end of the thread among them."""
        return len(self.cfg.succ[block]) + (block in self._exits) > 1

    def is_evaluated_behind(self, block: int, question: Question) -> bool:
        """Whether all ways on from the end of ``block`` evaluate the load."""
        is_evaluated = self.anticipation.is_evaluated
        return block not in self._exits and all(is_evaluated(block, after, question) for after in self.cfg.succ[block])

    def joins(self, question: Question) -> Container[int]:
        """The blocks whose φs the address is made of; all that have some, where it is not known what it is made of."""
        symbols = self.availability.symbols
        leaves = symbols.leaves(question.base)
        if leaves is None:
            return symbols.phis
        return frozenset(block for leaf in leaves for block in self._joins.get(leaf, ()))


class _Rise:
    """The query about one load; n and m as in the module's header."""

    def __init__(self, hoisting: Hoisting, question: Question, is_convergent: Callable[[int], bool]) -> None:
        self.hoisting = hoisting
        self.question = question
        self._is_convergent = is_convergent
        self._answers_of_blocks = hoisting.availability.answers_to(question)
        self._joins = hoisting.joins(question)
        #: By m and n; ``None`` while the answer is being found.
        self._answers: dict[int, dict[int, Places | None]] = {}

    def above(self, m: int, n: int, depth: int) -> Places:
        """What the predecessors of ``n`` answer (Algorithm 2.1)."""
        before = self.hoisting.before(n)
        if not before or n in self._joins:
            return NOWHERE
        return self._at(m, before[0], depth + 1) if len(before) == 1 else self._of_all(m, n, before, depth)

    def _of_all(self, m: int, n: int, before: list[int], depth: int) -> Places:
        """What the predecessors of ``n`` answer together."""
        answers = {block: self._at(m, block, depth + 1) for block in before}
        places = frozenset[int]().union(*(answer.blocks for answer in answers.values()))
        refusing = [block for block, answer in answers.items() if not answer.may_rise]
        if not refusing:
            return Places(True, places)
        if len(refusing) == len(before) or not all(self._is_convergent(block) for block in refusing):
            return NOWHERE
        is_evaluated = self.hoisting.anticipation.is_evaluated
        if not all(is_evaluated(block, n, self.question) for block in refusing):
            return NOWHERE
        return Places(True, places.union(refusing))

    def _at(self, m: int, n: int, depth: int) -> Places:
        """What ``n`` answers (Algorithm 2.2). Goes up in a loop as long as there is one predecessor, whose answer is
        that of all blocks that were passed."""
        hoisting = self.hoisting
        passed: list[tuple[dict[int, Places | None], int]] = []
        while True:
            answers = self._answers.setdefault(m, {})
            if n in answers:
                found = answers[n] or ELSEWHERE
                break
            if depth > MAX_DEPTH:
                found = NOWHERE
                break
            answers[n] = None
            passed.append((answers, n))
            answer = self._own(m, n, depth)
            if answer is not None:
                found = answer
                break
            if n in hoisting.controllers[m] and hoisting.branches(n) and not hoisting.may_speculate(n):
                m = n
            before = hoisting.before(n)
            if len(before) != 1 or n in self._joins:
                found = self.above(m, n, depth)
                break
            n, depth = before[0], depth + 1
        for answers, block in passed:
            answers[block] = found
        return found

    def _own(self, m: int, n: int, depth: int) -> Places | None:
        """What ``n`` answers, unless it is what its predecessors do."""
        hoisting = self.hoisting
        answer = self._answers_of_blocks.at_end(n)
        if answer.provider is not None:
            return ELSEWHERE
        if answer.reason:
            is_above = n in hoisting.controllers[m] and hoisting.may_speculate(n)
            return Places(True, frozenset([n])) if is_above else NOWHERE
        if not hoisting.branches(n):
            return None
        if hoisting.may_speculate(n):
            if n not in hoisting.controllers[m]:
                return None
            higher = self.above(n, n, depth)
            return higher if higher.may_rise else Places(True, frozenset([n]))
        return None if hoisting.is_evaluated_behind(n, self.question) else NOWHERE
