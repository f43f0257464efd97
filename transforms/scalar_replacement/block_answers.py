"""The answers of single blocks to a question about the availability of bytes.

A block is searched backward from a position. The answer is

    available    a load or store of exactly these bytes, and nothing after it that may change them         (rule 5)
    killed       an instruction that may change them, or the definition of a value that the address is
                 computed from, comes later than such a load or store                                       (rule 4)
    through      neither: the question is propagated to the predecessors                                    (rule 7)

Requires: a kernel that does not change. Reference: thesis §4.3.2.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ...analysis.graph.cfg import Cfg
from ...analysis.values.symbolic_values import SymbolicValues
from .access_index import Accesses, Provider
from .questions import Question

__all__ = ["THROUGH", "Answer", "BlockAnswers", "BlockSearch", "PlannedLoad", "State"]


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """A load that speculation may insert at the end of a block. It provides the bytes there."""


class Answer(NamedTuple):
    """``provider`` where the bytes are available, ``reason`` where they are killed; neither where the question goes
    through the block."""

    provider: Provider | PlannedLoad | None = None
    reason: str = ""


THROUGH = Answer()


@dataclass(eq=False, frozen=True, slots=True)
class State:
    """A question at the start of a block. There is one object for each, so states are compared by identity."""

    block: int
    question: Question


@dataclass(frozen=True, slots=True)
class BlockSearch:
    """Searches blocks of one kernel. ``forwarding``: whether stores provide what they write."""

    cfg: Cfg
    symbols: SymbolicValues
    accesses: Accesses
    forwarding: bool

    def within(self, block: int, question: Question, end: int) -> Answer:
        """The answer of the instructions of ``block`` before position ``end``."""
        leaves = self.symbols.leaves(question.base)
        if leaves is None:
            return Answer(reason="operand")
        definition = self._last_definition(block, leaves, end)
        provider = self._last_provider(block, question, definition, end)
        after = provider.position if provider is not None else definition
        reason = self.accesses.last_kill(block, question, after, end)
        if reason:
            return Answer(reason=reason)
        if provider is not None:
            return Answer(provider)
        return Answer(reason="operand") if definition >= 0 else THROUGH

    def _last_definition(self, block: int, leaves: Set[int], end: int) -> int:
        """The last position before ``end`` that defines one of these values; -1 where none does."""
        last = -1
        for leaf in leaves:
            place = self.symbols.places.get(leaf)
            if place is not None and place.block == block and last < place.position < end:
                last = place.position
        return last

    def _last_provider(self, block: int, question: Question, after: int, end: int) -> Provider | None:
        for provider in reversed(self.accesses.providers(block, question)):
            if provider.position < end and self._may_provide(provider, question):
                return provider if provider.position > after else None
        return None

    def _may_provide(self, provider: Provider, question: Question) -> bool:
        return not provider.is_store or (self.forwarding and not question.is_constant)


@dataclass(slots=True)
class BlockAnswers:
    """The answers of whole blocks to one question, and its states."""

    question: Question
    search: BlockSearch
    #: The blocks that provide the bytes or define a value that the address is computed from. The other blocks let the
    #: question through unless they write memory.
    _concerning: set[int] = field(init=False)
    #: Block → its answer, for blocks that may not let the question through.
    _answers: dict[int, Answer] = field(default_factory=dict[int, Answer], init=False)
    #: Block → the state of the question at its start.
    _states: dict[int, State] = field(default_factory=dict[int, State], init=False)

    def __post_init__(self) -> None:
        self._concerning = self.search.accesses.concerning(self.question)

    def at_end(self, block: int) -> Answer:
        """The answer of the whole of ``block``."""
        search = self.search
        if block not in self._concerning and block not in search.accesses.writing:
            return THROUGH
        answer = self._answers.get(block)
        if answer is None:
            answer = search.within(block, self.question, len(search.cfg.blocks[block].instrs))
            self._answers[block] = answer
        return answer

    def state(self, block: int) -> State:
        """The state of the question at the start of ``block``."""
        state = self._states.get(block)
        if state is None:
            state = self._states[block] = State(block, self.question)
        return state
