"""Decides whether a load is redundant: whether registers hold its bytes, or can hold them after insertions."""

from __future__ import annotations

from ...analysis.values.pressure import Pressure, units
from .access_index import Provider
from .availability_solver import Solution, solve
from .block_answers import PlannedLoad
from .decisions import Component, FromPaths, Load, Local, Refusal, Replacement, Source
from .insertion_rules import InsertionRules
from .queries import Queries
from .question_propagation import Exploration
from .register_chains import ChainPlan
from .value_copies import deliver

__all__ = ["Redundancy", "RegisterBudget", "is_deliverable"]


class RegisterBudget:
    """Decides whether the registers that carry values fit beside the values that are live anyway.

    ``limit`` is in 32-bit registers of a thread; ``chains`` are the registers of the loads that are replaced already.
    """

    def __init__(self, pressure: Pressure, chains: ChainPlan, limit: int) -> None:
        self._pressure = pressure
        self._chains = chains
        self._limit = limit

    def checked(self, replacement: Replacement) -> Replacement | Refusal:
        """``replacement``, or the refusal of one that takes too many registers."""
        words: dict[int, int] = {}
        for component, source in replacement.sources:
            for state in source.solution.support if isinstance(source, FromPaths) else ():
                if not self._chains.is_needed(state.block, state.question, component.kind):
                    words[state.block] = words.get(state.block, 0) + units(component.result).words
        for block, added in words.items():
            live = self._pressure.of_block(block).words
            if live + self._chains.words(block) + added > self._limit:
                return Refusal(replacement.load, "pressure")
        return replacement


class Redundancy:
    """The decisions of one attempt."""

    def __init__(self, queries: Queries, rules: InsertionRules, budget: RegisterBudget) -> None:
        self._queries = queries
        self._rules = rules
        self._budget = budget

    def decide(self, load: Load) -> Replacement | Refusal:
        """Replace ``load`` where all of its components are available."""
        sources: list[tuple[Component, Source]] = []
        for component in load.components:
            source = self._source(load, component)
            if isinstance(source, Refusal):
                return source
            sources.append((component, source))
        if load.refusal:
            return Refusal(load, load.refusal)
        return self._budget.checked(Replacement(load, tuple(sources)))

    def _source(self, load: Load, component: Component) -> Source | Refusal:
        queries, question = self._queries, component.question
        answer = queries.search.within(load.block, question, load.position)
        if answer.reason:
            return Refusal(load, answer.reason)
        if isinstance(answer.provider, Provider):
            is_possible = deliver(component.result, component.kind, question.bytes, answer.provider, None) is not None
            return Local(answer.provider) if is_possible else Refusal(load, "conversion")
        if not queries.candidates.may_be_available(question, load.block):
            return Refusal(load, "no-earlier-access")
        exploration = queries.availability.explore(load.block, question)
        if not exploration.has_source:
            return Refusal(load, _nearest_reason(exploration))
        solution = solve(exploration, self._rules.for_load(load.instr, load.block))
        if not solution.is_available:
            reasons = [reason for reason in solution.refusals if reason != "entry"]
            return Refusal(load, reasons[0] if reasons else _nearest_reason(exploration))
        if not is_deliverable(component, exploration, solution):
            return Refusal(load, "conversion")
        return FromPaths(exploration, solution)


def _nearest_reason(exploration: Exploration) -> str:
    """Why no path provides the bytes."""
    reasons = [reason for reason in exploration.reasons if reason != "entry"]
    return reasons[0] if reasons else "no-earlier-access"


def is_deliverable(component: Component, exploration: Exploration, solution: Solution) -> bool:
    """Whether the value of each provider can be put into the result of the load by one instruction."""
    for state in solution.support:
        for reply in exploration.replies[state]:
            provider = reply.answer.provider
            if provider is None or isinstance(provider, PlannedLoad):
                continue
            if deliver(component.result, component.kind, component.question.bytes, provider, None) is None:
                return False
    return True
