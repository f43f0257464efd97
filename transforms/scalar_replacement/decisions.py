"""What is to be done about one load, and the reasons why nothing is.

Computes nothing: the records that `passes.py` fills in while it asks for a load, and the texts of remarks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ptx import Guard, Instr, Reg
from .access_index import Question
from .question_propagation import Exploration, Solution
from .register_chains import Kind

__all__ = ["REASONS", "Early", "Part", "Plan"]

#: Reason ids of loads that stay, and what a person is told.
REASONS = {
    "no-earlier-access": "nothing on the ways to it reads or writes the same bytes",
    "store": "a store that may write the same bytes is nearer",
    "barrier": "a barrier or fence lets other threads write in between",
    "ordered": "an atomic, volatile or otherwise ordered access is nearer",
    "call": "a call that may write memory is nearer",
    "opaque": "an unknown instruction is nearer",
    "async": "something that completes later is nearer",
    "grid-dependency": "another grid may write in between",
    "griddepcontrol": "another grid may write before it",
    "operand": "its address is computed from a value that is not known before",
    "threshold": "the value would have to be kept for more turns than allowed",
    "budget": "too many ways lead to it",
    "indirect-branch-edge": "a load would be needed on an edge of an indirect branch, which cannot be split",
    "divergent-insertion": "a load would be needed in an arm of a divergent branch",
    "not-anticipated": "a load would be needed where the value may not be read",
    "may-fault": "a load would be needed where its address may be out of bounds",
    "address": "the address cannot be computed where a load would be needed",
    "pressure": "keeping the value would take more registers than there are",
    "conversion": "the value is not at hand in a form that the load's result can take",
    "guarded": "it is predicated",
}


@dataclass(slots=True)
class Part:
    """One component of a load: its result, its question, and how it is answered."""

    result: Reg
    question: Question
    kind: Kind
    #: The provider in the load's own block; else the solution of the question at its start.
    local: bool = False
    solution: Solution | None = None
    exploration: Exploration | None = None


@dataclass(frozen=True, slots=True)
class Early:
    """A load is issued at the end of ``block``, under ``guard``; its address is that of ``question`` there."""

    block: int
    question: Question
    guard: Guard


@dataclass(slots=True)
class Plan:
    """What is to be done about one load."""

    instr: Instr
    block: int
    position: int
    parts: list[Part] = field(default_factory=list[Part])
    #: The blocks at whose ends it is loaded, where it has risen above branches.
    risen: frozenset[int] = frozenset()
    early: Early | None = None

    @property
    def insertions(self) -> list[tuple[int, int]]:
        """The edges on which loads are inserted."""
        return [
            (reply.block, state.block)
            for part in self.parts
            if part.solution is not None
            for reply, state in part.solution.insertions
        ]
