"""Availability of bytes in memory by question propagation.

A question holds at the start of a block and is propagated to all predecessors. Over an edge, φs become their arguments,
so that ``A[i]`` becomes ``A[i + 1]`` (rule 6). Each block answers as in `block_answers.py`. A question is killed at the
entry of the kernel (rule 1), and where a block would be visited with more than ``threshold + 1`` different questions
(rule 2). The states (block, question) and the answers of their predecessors are an `Exploration`; `availability_solver`
finds its solution.

Requires: `SymbolicValues`, `Accesses`. Guarantees: an exploration has at most ``budget`` states, and each question
visits a block at most ``threshold + 1`` times under different names. So N questions take
O(N · min(budget, threshold · blocks)) steps. A step looks at the accesses of one block. Where a load is missing on an
edge, `Anticipation` is queried at most twice, over at most 64 states, and looks at a block for each state. So the worst
case is N · budget · predecessors · 2 · 64 looks at a block: linear in the loads, but quadratic where one block has all
loads and stores. A question that is not answered within these bounds counts as killed.
Reference: thesis §4.3.1, §4.3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ...analysis.manager import Facts
from ...analysis.memoized import memoized
from ...analysis.values.symbolic_values import SymbolicValues
from .access_index import Accesses
from .address_translation import AddressNames
from .block_answers import THROUGH, Answer, BlockAnswers, BlockSearch, PlannedLoad, State
from .questions import Question
from .reuse_candidates import ReuseCandidates

__all__ = ["Availability", "Exploration", "Reply"]

#: No load is planned.
NOTHING_PLANNED: Mapping[int, Question] = MappingProxyType({})

_PLANNED = Answer(PlannedLoad())
_OVER_THRESHOLD = Answer(reason="threshold")
_OVER_BUDGET = Answer(reason="budget")
_NOTHING_EARLIER = Answer(reason="no-earlier-access")
_UNKNOWN_ADDRESS = Answer(reason="operand")


class Reply(NamedTuple):
    """The answer of predecessor ``block`` to ``question``, which is named as at the end of that block.

    ``question`` is `None` where the address is not known there. ``state`` is explored next where the question goes
    through the block.
    """

    block: int
    question: Question | None
    answer: Answer
    state: State | None = None


#: The reply to a question at the entry of the kernel.
_AT_ENTRY = Reply(-1, None, Answer(reason="entry"))


@dataclass(slots=True)
class Exploration:
    """The states that a question is propagated to. The fields with states as keys have one entry for each state."""

    root: State
    #: State → the replies of its predecessors.
    replies: dict[State, list[Reply]] = field(default_factory=dict[State, list[Reply]])
    #: State → the number of back edges over which the question has changed its name on the way from the root.
    back_edges: dict[State, int] = field(default_factory=dict[State, int])
    #: State → the names that the question has had on the way from the root, with its own.
    names: dict[State, frozenset[Question]] = field(default_factory=dict[State, "frozenset[Question]"])
    #: The states with a predecessor that provides the bytes.
    sources: list[State] = field(default_factory=list[State])

    @property
    def has_source(self) -> bool:
        """Whether any path provides the bytes."""
        return bool(self.sources)

    @property
    def reasons(self) -> list[str]:
        """Why paths do not provide the bytes: each reason once, the nearest first."""
        reasons = dict.fromkeys(reply.answer.reason for replies in self.replies.values() for reply in replies)
        return [reason for reason in reasons if reason]


class Availability:
    """Propagates questions through one kernel.

    ``threshold`` is the number of iterations over which a value may be carried (1 in the paper). ``budget`` bounds the
    states of an exploration. ``forwarding``: whether stores provide what they write.
    """

    def __init__(
        self,
        facts: Facts,
        symbols: SymbolicValues,
        accesses: Accesses,
        *,
        threshold: int = 4,
        budget: int = 200,
        forwarding: bool = True,
    ) -> None:
        self.cfg = facts.cfg
        self.symbols = symbols
        self.search = BlockSearch(facts.cfg, symbols, accesses, forwarding)
        self.names = AddressNames(facts.cfg, symbols, accesses, threshold)
        self.candidates = ReuseCandidates(facts.loops, symbols, accesses, self.names)
        self.threshold = threshold
        self.budget = budget

    @memoized
    def answers_to(self, question: Question) -> BlockAnswers:
        """The answers of whole blocks to ``question``."""
        return BlockAnswers(question, self.search)

    def explore(self, block: int, question: Question, planned: Mapping[int, Question] = NOTHING_PLANNED) -> Exploration:
        """Propagate ``question`` from the start of ``block``.

        ``planned`` maps a block to the bytes that a planned load at its end provides. Their address is in terms of the
        values there.
        """
        propagation = _Propagation(self, self.answers_to(question).state(block), planned)
        propagation.run()
        return propagation.exploration

    @memoized
    def replies(self, state: State) -> list[Reply]:
        """The replies of the predecessors of a state, without bounds and planned loads: they depend on nothing but the
        state."""
        answers = self.answers_to(state.question)
        leaves = self.symbols.leaves(state.question.base)
        phis = self.symbols.phis.get(state.block)
        keeps_name = not phis or (leaves is not None and leaves.isdisjoint(phis))
        reachable = self.cfg.reachable
        return [
            self._reply(before, answers) if keeps_name else self._renamed_reply(before, state, answers)
            for before in self.cfg.pred[state.block]
            if reachable[before]
        ]

    def _renamed_reply(self, before: int, state: State, answers: BlockAnswers) -> Reply:
        question = self.names.before_edge(state.question, before, state.block)
        if question is None:
            return Reply(before, None, _UNKNOWN_ADDRESS)
        return self._reply(before, answers if question is state.question else self.answers_to(question))

    def _reply(self, before: int, answers: BlockAnswers) -> Reply:
        answer = answers.at_end(before)
        return Reply(before, answers.question, answer, answers.state(before) if answer is THROUGH else None)


class _Propagation:
    """One exploration in progress: applies the bounds and the planned loads."""

    def __init__(self, availability: Availability, root: State, planned: Mapping[int, Question]) -> None:
        self.exploration = Exploration(root, names={root: frozenset([root.question])}, back_edges={root: 0})
        self._availability = availability
        self._entry = availability.cfg.rpo[0]
        self._planned = planned
        #: Block → the number of questions that it has been visited with.
        self._visits: dict[int, int] = {root.block: 1}
        self._work = [root]

    def run(self) -> None:
        """Visit the root and all states that follow."""
        for state in self._work:
            self._visit(state)

    def _visit(self, state: State) -> None:
        exploration = self.exploration
        replies = exploration.replies[state] = []
        if state.block == self._entry:
            replies.append(_AT_ENTRY)
        is_source = False
        for reply in self._availability.replies(state):
            if self._planned or reply.question is not state.question:
                reply = self._cut_off(reply, state) or reply
            following = reply.state
            if following is None:
                is_source |= reply.answer.provider is not None
            elif following not in exploration.back_edges:
                reply = self._out_of_bounds(reply, following) or reply
                if reply.state is not None:
                    self._enter(following, state)
            replies.append(reply)
        if is_source:
            exploration.sources.append(state)

    def _cut_off(self, reply: Reply, state: State) -> Reply | None:
        """The reply that replaces ``reply``: killed if a bound is reached or no earlier access provides the bytes,
        available if a planned load provides them. `None` if ``reply`` is not replaced."""
        before, question, _, following = reply
        if question is None:
            return None
        availability = self._availability
        is_renamed = question is not state.question
        is_limit_reached = is_renamed and self.exploration.back_edges[state] >= availability.threshold
        if is_limit_reached and availability.names.is_back_edge(before, state.block):
            return Reply(before, question, _OVER_THRESHOLD)
        if self._planned:
            return Reply(before, question, _PLANNED) if self._planned.get(before) == question else None
        # Nothing would be found, and in a loop each iteration would visit all blocks again.
        if is_renamed and following is not None and not availability.candidates.is_provided(following.question):
            return Reply(before, question, _NOTHING_EARLIER)
        return None

    def _out_of_bounds(self, reply: Reply, following: State) -> Reply | None:
        if self._visits.get(following.block, 0) > self._availability.threshold:
            return Reply(reply.block, reply.question, _OVER_THRESHOLD)
        if len(self._work) >= self._availability.budget:
            return Reply(reply.block, reply.question, _OVER_BUDGET)
        return None

    def _enter(self, following: State, state: State) -> None:
        exploration, block = self.exploration, following.block
        self._visits[block] = self._visits.get(block, 0) + 1
        names, back_edges = exploration.names[state], exploration.back_edges[state]
        if following.question is not state.question:
            back_edges += self._availability.names.is_back_edge(block, state.block)
            if following.question not in names:
                names |= {following.question}
        exploration.back_edges[following] = back_edges
        exploration.names[following] = names
        self._work.append(following)
