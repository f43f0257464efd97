"""Decides whether a load that is not redundant is hoisted above branches.

Where it is hoisted to is a query (`Hoisting`). Unless ``paper`` is set, it is hoisted only where another load becomes
redundant by that, or where the hoisted load can leave a loop.

Guarantees: no load is hoisted to where it may fault, or into a deeper loop. Reference: thesis §4.3.3, §4.5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...ptx import Instr
from .availability_solver import solve
from .block_answers import THROUGH, PlannedLoad, State
from .decisions import Component, FromPaths, Load, Refusal, Replacement
from .insertion_rules import InsertionRules
from .options import Options
from .queries import Queries
from .question_propagation import Reply
from .questions import Question
from .redundancy import RegisterBudget, is_deliverable
from .speculative_hoisting import Hoisting

__all__ = ["Speculation"]

#: How many other loads are tested for whether they become redundant.
MOST_OTHERS = 8


class Speculation:
    """The decisions of one attempt."""

    def __init__(self, options: Options, queries: Queries, rules: InsertionRules, budget: RegisterBudget) -> None:
        self._options = options
        self._queries = queries
        self._rules = rules
        self._budget = budget
        is_divergent = queries.divergence.is_divergent
        may_rise_above = is_divergent if options.hoists_above == "divergent" else None
        self._hoisting = Hoisting(queries.facts, queries.availability, queries.anticipation, may_rise_above)

    def decide(self, refusal: Refusal) -> Replacement | Refusal:
        """Hoist the load that was refused, or return a refusal."""
        load = refusal.load
        component = load.movable
        if component is None or not self._may_help(load, component.question):
            return refusal
        is_safe: Callable[[int], bool] | None = None
        if self._queries.facts.promise.inside is not None:
            is_safe = partial(self._rules.is_safe_at_end, question=component.question)
        is_convergent = partial(self._rules.is_convergent_block, home=load.block)
        places = self._hoisting.places(load.block, component.question, is_convergent, is_safe)
        if not places.may_rise or not places.blocks:
            return refusal
        depth = self._queries.facts.loops.depth
        for block in places.blocks:
            if depth[block] > depth[load.block]:
                return refusal
            if not self._rules.is_safe_at_end(block, component.question):
                return Refusal(load, "may-fault")
            if not self._rules.has_address(block, component.question):
                return Refusal(load, "address")
        planned = dict.fromkeys(places.blocks, component.question)
        if not self._options.paper and not self._helps(load, component.question, planned):
            return refusal
        return self._hoisted(refusal, component, planned)

    def _hoisted(self, refusal: Refusal, component: Component, planned: dict[int, Question]) -> Replacement | Refusal:
        load = refusal.load
        exploration = self._queries.availability.explore(load.block, component.question, planned)
        solution = solve(exploration, _no_insertion)
        if not solution.is_available:
            return refusal
        if not is_deliverable(component, exploration, solution):
            return Refusal(load, "conversion")
        hoisted_to = frozenset(
            reply.block
            for state in solution.support
            for reply in exploration.replies[state]
            if isinstance(reply.answer.provider, PlannedLoad)
        )
        sources = ((component, FromPaths(exploration, solution)),)
        return self._budget.checked(Replacement(load, sources, hoisted_to))

    def _may_help(self, load: Load, question: Question) -> bool:
        """Whether hoisting may help: nothing in the block above the load changes its bytes, and another access uses
        them, or the load reads them again in a loop. This test is quick, because it compares names only."""
        if self._queries.search.within(load.block, question, load.position) is not THROUGH:
            return False
        is_reused = self._queries.candidates.may_be_available(question, load.block)
        return self._options.paper or is_reused or bool(self._other_loads(load, question))

    def _other_loads(self, load: Load, question: Question) -> list[tuple[int, int, Instr]]:
        return [other for other in self._queries.candidates.loads_of(question) if other[2] is not load.instr]

    def _helps(self, load: Load, question: Question, planned: dict[int, Question]) -> bool:
        """Whether the planned loads can leave a loop, or make another load redundant."""
        if any(self._can_leave_loop(load, block, question, planned) for block in planned):
            return True
        for block, position, instr in self._other_loads(load, question)[:MOST_OTHERS]:
            own = self._queries.accesses.question(instr)
            if own is None or self._queries.search.within(block, own, position) is not THROUGH:
                continue
            is_redundant = self._would_be_redundant(instr, block, own, planned)
            if is_redundant and not self._would_be_redundant(instr, block, own, {}):
                return True
        return False

    def _can_leave_loop(self, load: Load, block: int, question: Question, planned: dict[int, Question]) -> bool:
        """Whether the planned load at the end of ``block`` reads the same bytes in each iteration, so that one load
        before the loop replaces it."""
        if self._queries.facts.loops.loop_of[block] < 0:
            return False
        if self._queries.availability.answers_to(question).at_end(block) is not THROUGH:
            return False
        exploration = self._queries.availability.explore(block, question, planned)

        def may_insert(reply: Reply, state: State, names: frozenset[Question]) -> str:
            if reply.question is None or not self._rules.is_convergent_edge(reply.block, state.block, load.block):
                return "divergent-insertion"
            return "" if self._rules.is_safe_on_edge(reply.block, state.block, reply.question) else "may-fault"

        return exploration.has_source and solve(exploration, may_insert).is_available

    def _would_be_redundant(self, instr: Instr, block: int, question: Question, planned: dict[int, Question]) -> bool:
        exploration = self._queries.availability.explore(block, question, planned)
        return exploration.has_source and solve(exploration, self._rules.for_load(instr, block)).is_available


def _no_insertion(reply: Reply, state: State, names: frozenset[Question]) -> str:
    return "not-anticipated"
