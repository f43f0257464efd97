"""The solution of an exploration: whether bytes are available, and on which edges a load has to be inserted.

Computes the greatest solution of

    avail(s) = ∏ over predecessors p of answer(p)
               or (some p is true and real, and every false p may get an insertion)

where a state is *real* when it reaches a source through available states: the least solution, so that no load is
inserted before a loop in which nothing is read (figure 4.10; rule 3 gives the greatest solution in the paper).
Algorithm 1.1 line 6 collects the predecessors that answered *true*. The prose and line 10 need those that answered
*false*, so these are taken here. Algorithm 1.2 lines 17 and 18 are taken to come after the loop over the instructions
of a block, not inside it.

Reference: thesis §4.3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from .block_answers import State
from .question_propagation import Exploration, Reply
from .questions import Question

__all__ = ["MayInsert", "Solution", "solve"]

#: Why no load may be inserted on the edge from the reply's block to the state's; empty where one may be inserted. The
#: third argument is `Exploration.names` of the state.
MayInsert: TypeAlias = Callable[[Reply, State, "frozenset[Question]"], str]


@dataclass(slots=True)
class Solution:
    """``support``: the states in which the value is needed and available, the root first. ``insertions``: the replies
    and states of the edges on which a load is inserted. ``refusals``: why edges got no insertion, each reason once."""

    is_available: bool
    support: list[State] = field(default_factory=list[State])
    insertions: list[tuple[Reply, State]] = field(default_factory=list["tuple[Reply, State]"])
    refusals: list[str] = field(default_factory=list[str])


def solve(exploration: Exploration, may_insert: MayInsert) -> Solution:
    """The greatest solution of the equation in the module's header, with the insertions that it needs."""
    solver = _Solver(exploration, may_insert)
    solver.run()
    return solver.result()


class _Solver:
    """Starts with all states true, and sets states false until the equation holds."""

    def __init__(self, exploration: Exploration, may_insert: MayInsert) -> None:
        self._exploration = exploration
        self._may_insert = may_insert
        self._replies = exploration.replies
        self._false: set[State] = set()
        #: State → the states whose replies lead to it. A state occurs once for each such reply.
        self._dependents: dict[State, list[State]] = {}
        #: State → the number of its replies that are false.
        self._missing: dict[State, int] = {}
        #: (state, predecessor) → why no load may be inserted on the edge, for the edges that were tested.
        self._refusals: dict[tuple[State, int], str] = {}
        for state, replies in self._replies.items():
            missing = 0
            for _, _, answer, following in replies:
                if following is not None:
                    self._dependents.setdefault(following, []).append(state)
                elif answer.provider is None:
                    missing += 1
            self._missing[state] = missing
        #: The states that reach a source through any states.
        self._reaching = self._real()

    def run(self) -> None:
        """Find the greatest solution."""
        states = list(self._replies)
        self._remove(states)
        while True:
            real = self._real()
            unreal = [
                state
                for state in states
                if self._missing[state] and state not in self._false and not self._has_gain(state, real)
            ]
            if not unreal:
                return
            for state in unreal:
                self._set_false(state)
            self._remove(dependent for state in unreal for dependent in self._dependents.get(state, ()))

    def _remove(self, states: Iterable[State]) -> None:
        """Set those of ``states`` false that do not hold, and then the states that depend on them."""
        work = list(states)
        while work:
            state = work.pop()
            if self._missing[state] and state not in self._false and not self._may_hold(state):
                self._set_false(state)
                work.extend(self._dependents.get(state, ()))

    def _set_false(self, state: State) -> None:
        self._false.add(state)
        for dependent in self._dependents.get(state, ()):
            self._missing[dependent] += 1

    def _may_hold(self, state: State) -> bool:
        """Whether a state can be true although some of its replies are false: insertions must replace these replies."""
        # The test for insertions takes longest, so it comes last.
        if state not in self._reaching or not self._has_gain(state, self._reaching):
            return False
        return all(self._is_true(reply) or not self._refusal(reply, state) for reply in self._replies[state])

    def _is_true(self, reply: Reply) -> bool:
        if reply.answer.provider is not None:
            return True
        return reply.state is not None and reply.state not in self._false

    def _refusal(self, reply: Reply, state: State) -> str:
        key = (state, reply.block)
        refusal = self._refusals.get(key)
        if refusal is None:
            if reply.question is None:
                refusal = reply.answer.reason
            else:
                refusal = self._may_insert(reply, state, self._exploration.names[state])
            self._refusals[key] = refusal
        return refusal

    def _real(self) -> set[State]:
        """The true states that reach a source through true states."""
        work = [state for state in self._exploration.sources if state not in self._false]
        real = set(work)
        while work:
            for dependent in self._dependents.get(work.pop(), ()):
                if dependent not in real and dependent not in self._false:
                    real.add(dependent)
                    work.append(dependent)
        return real

    def _has_gain(self, state: State, real: set[State]) -> bool:
        """Whether a state has a predecessor that is available and real."""
        return any(
            reply.answer.provider is not None or (reply.state in real and reply.state not in self._false)
            for reply in self._replies[state]
        )

    def result(self) -> Solution:
        """The solution of the equation for the root of the exploration."""
        refusals = list(dict.fromkeys(reason for reason in self._refusals.values() if reason))
        root = self._exploration.root
        if root in self._false or root not in self._real():
            return Solution(False, refusals=refusals)
        solution = Solution(True, [root], refusals=refusals)
        seen = {root}
        for state in solution.support:
            for reply in self._replies[state]:
                if not self._is_true(reply):
                    solution.insertions.append((reply, state))
                elif reply.state is not None and reply.state not in seen:
                    seen.add(reply.state)
                    solution.support.append(reply.state)
        return solution
