"""Speculative hoisting: to which blocks may a load rise if divergent branches decide whether it is executed.

Computes, for a load in block m, the blocks at whose ends, before their branches, it may be evaluated instead
(Algorithms 2.1 and 2.2). The query (e, m, n) propagates backward. At block n, after its branch, the answer is (whether
e may rise, blocks in which to evaluate it):

    (1)  above the entry            (false, ∅)
    (2)  query visited before       (true, ∅)
    (3)  n changes e                (true, {n}) if n ends in a divergent branch on which m depends, else (false, ∅)
    (4)  n ends in a divergent branch: the answer of the predecessors, with m := n if m depends on the branch. If m
         depends on it and they answer false, (true, {n}).
    (5)  n ends in another branch: if e is down-safe there, the answer of the predecessors, with m := n if m depends on
         the branch; else (false, ∅)
    (6)  otherwise the answer of the predecessors

If predecessors disagree, e is evaluated at the end of those that answer false, if no further divergent branch decides
whether they are executed and e is down-safe at n. Where such a predecessor has other successors, its branch is
divergent, or e is down-safe before its branch. A block changes e at its start if the address depends on its φs.

A node of the paper holds one statement; a block here holds its statements and then its branch. If e is available the
answer is (true, ∅): nothing has to be evaluated on that path.

Requires: control dependence. Guarantees nothing about faults, nor that the blocks are sufficient; the caller has to
check both.
Reference: thesis §4.3.3 and §4.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from ...analysis.manager import Facts
from .anticipation import Anticipation
from .question_propagation import Availability
from .questions import Question

__all__ = ["Hoisting", "Places"]

MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Places:
    """Whether the load may rise, and the blocks at whose ends it must be evaluated then."""

    may_rise: bool
    blocks: frozenset[int] = frozenset()


NOWHERE = Places(False)
ELSEWHERE = Places(True)


class Hoisting:
    """Answers queries about speculative hoisting.

    ``may_rise_above``: whether a load may rise above the branch at the end of a block; by default above every branch.
    """

    def __init__(
        self,
        facts: Facts,
        availability: Availability,
        anticipation: Anticipation,
        may_rise_above: Callable[[int], bool] | None = None,
    ) -> None:
        self.cfg = facts.cfg
        self.controllers = facts.control_dependence.controllers
        self.availability = availability
        self.anticipation = anticipation
        self._may_rise_above = may_rise_above
        self._exits = frozenset(self.cfg.exits)
        #: By block: its reachable predecessors.
        self._reached: dict[int, list[int]] = {}
        #: By block: the result of `may_speculate`.
        self._may_speculate: dict[int, bool] = {}
        #: By number of a φ: the blocks that contain it.
        self._joins: dict[int, list[int]] = {}
        for block, phis in availability.symbols.phis.items():
            for phi in phis:
                self._joins.setdefault(phi, []).append(block)

    def places(
        self,
        block: int,
        question: Question,
        is_convergent: Callable[[int], bool],
        is_safe: Callable[[int], bool] | None = None,
    ) -> Places:
        """The blocks to which the load of ``question`` may rise from the start of ``block``. ``is_convergent``: whether
        a load at the end of a block is executed in no arm of a divergent branch in which the original load is not.
        ``is_safe``: whether it cannot fault at the end of a block; it does not rise above a branch to a place where it
        can."""
        return _Rise(self, question, is_convergent, is_safe).above(block, block, 0)

    def before(self, block: int) -> list[int]:
        """The reachable predecessors; none for the entry block, because control enters it from outside as well."""
        predecessors = self._reached.get(block)
        if predecessors is None:
            reachable = self.cfg.reachable
            predecessors = (
                [before for before in self.cfg.pred[block] if reachable[before]] if block != self.cfg.rpo[0] else []
            )
            self._reached[block] = predecessors
        return predecessors

    def may_speculate(self, block: int) -> bool:
        """Whether the block ends in a branch above which speculation is allowed."""
        may = self._may_speculate.get(block)
        if may is None:
            allows = self._may_rise_above
            may = self._may_speculate[block] = self.branches(block) and (allows is None or allows(block))
        return may

    def branches(self, block: int) -> bool:
        """Whether the block has several successors; the end of the thread counts as one."""
        return len(self.cfg.succ[block]) + (block in self._exits) > 1

    def is_evaluated_behind(self, block: int, question: Question) -> bool:
        """Whether every path from the end of ``block`` evaluates the load."""
        is_evaluated = self.anticipation.is_evaluated
        return block not in self._exits and all(is_evaluated(block, after, question) for after in self.cfg.succ[block])

    def joins(self, question: Question) -> Container[int]:
        """The blocks on whose φs the address depends; all blocks with φs if its parts are unknown."""
        symbols = self.availability.symbols
        leaves = symbols.leaves(question.base)
        if leaves is None:
            return symbols.phis
        return frozenset(block for leaf in leaves for block in self._joins.get(leaf, ()))


class _Rise:
    """The queries about one load; n and m as in the header of the module."""

    def __init__(
        self,
        hoisting: Hoisting,
        question: Question,
        is_convergent: Callable[[int], bool],
        is_safe: Callable[[int], bool] | None,
    ) -> None:
        self.hoisting = hoisting
        self.question = question
        self._is_convergent = is_convergent
        self._is_safe = is_safe
        self._answers_of_blocks = hoisting.availability.answers_to(question)
        self._joins = hoisting.joins(question)
        #: The answer by m, then by n (as in the header of the module); ``None`` while it is being computed.
        self._answers: dict[int, dict[int, Places | None]] = {}

    def above(self, m: int, n: int, depth: int) -> Places:
        """The answer of the predecessors of ``n`` (Algorithm 2.1)."""
        before = self.hoisting.before(n)
        if not before or n in self._joins:
            return NOWHERE
        return self._at(m, before[0], depth + 1) if len(before) == 1 else self._of_all(m, n, before, depth)

    def _of_all(self, m: int, n: int, before: list[int], depth: int) -> Places:
        """The combined answer of several predecessors of ``n``."""
        answers = {block: self._at(m, block, depth + 1) for block in before}
        places = frozenset[int]().union(*(answer.blocks for answer in answers.values()))
        refusing = [block for block, answer in answers.items() if not answer.may_rise]
        if not refusing:
            return Places(True, places)
        if len(refusing) == len(before) or not all(self._is_convergent(block) for block in refusing):
            return NOWHERE
        is_evaluated = self.hoisting.anticipation.is_evaluated
        if not all(is_evaluated(block, n, self.question) and self._may_end_with(block) for block in refusing):
            return NOWHERE
        return Places(True, places.union(refusing))

    def _may_end_with(self, block: int) -> bool:
        """Whether no warp executes the load at the end of ``block`` in vain, for another successor."""
        hoisting = self.hoisting
        if not hoisting.branches(block) or hoisting.may_speculate(block):
            return True
        return hoisting.is_evaluated_behind(block, self.question)

    def _at(self, m: int, n: int, depth: int) -> Places:
        """The answer at ``n`` (Algorithm 2.2). Iterates upwards while there is one predecessor; its answer is the
        answer of all blocks that were passed."""
        hoisting = self.hoisting
        passed: list[tuple[dict[int, Places | None], int]] = []
        while True:
            answers = self._answers.setdefault(m, {})
            if n in answers:
                places = answers[n] or ELSEWHERE
                break
            if depth > MAX_DEPTH:
                places = NOWHERE
                break
            answers[n] = None
            passed.append((answers, n))
            answer = self._own(m, n, depth)
            if answer is not None:
                places = answer
                break
            if n in hoisting.controllers[m] and hoisting.branches(n) and not hoisting.may_speculate(n):
                m = n
            before = hoisting.before(n)
            if len(before) != 1 or n in self._joins:
                places = self.above(m, n, depth)
                break
            n, depth = before[0], depth + 1
        for answers, block in passed:
            answers[block] = places
        return places

    def _own(self, m: int, n: int, depth: int) -> Places | None:
        """The answer at ``n``; ``None`` if it is the answer of its predecessors."""
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
            is_lower = self._is_safe is not None and not all(map(self._is_safe, higher.blocks))
            return higher if higher.may_rise and not is_lower else Places(True, frozenset([n]))
        return None if hoisting.is_evaluated_behind(n, self.question) else NOWHERE
