"""What is decided about one load: a replacement, an early issue, or a refusal. Reasons and their texts for remarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...ptx import Guard, Instr, Reg, Sink
from .access_index import Accesses, Provider, data_operands
from .availability_solver import Solution
from .question_propagation import Exploration
from .questions import Question
from .value_copies import Kind, kind_of

__all__ = [
    "REASONS",
    "Component",
    "Decision",
    "EarlyIssue",
    "FromPaths",
    "Load",
    "Local",
    "Refusal",
    "Replacement",
    "Source",
]

#: Reason id → text, of loads that are not replaced.
REASONS = {
    "no-earlier-access": "no path to it reads or writes the same bytes",
    "store": "a store between may write the same bytes",
    "barrier": "a barrier or fence between lets other threads write",
    "ordered": "there is an atomic, volatile or otherwise ordered access between",
    "call": "a call between may write memory",
    "opaque": "there is an unknown instruction between",
    "async": "an operation between completes later",
    "grid-dependency": "another grid may write between",
    "griddepcontrol": "another grid may write before it",
    "operand": "its address is computed from a value that is not known earlier",
    "threshold": "the value would have to be kept for more iterations than allowed",
    "budget": "too many paths lead to it",
    "indirect-branch-edge": "a load would have to be inserted on an edge of an indirect branch, which cannot be split",
    "divergent-insertion": "a load would have to be inserted in an arm of a divergent branch",
    "not-anticipated": "a load would have to be inserted where the value may not be read",
    "may-fault": "a load would have to be inserted where its address may be out of bounds",
    "address": "a load would have to be inserted where its address cannot be computed",
    "pressure": "to keep the value would take more registers than a thread has",
    "conversion": "no single instruction converts the available value to the result of the load",
}


@dataclass(frozen=True, slots=True)
class Component:
    """One result register of a load, the bytes that it gets, and how the load fills it."""

    result: Reg
    question: Question
    kind: Kind


@dataclass(frozen=True, slots=True)
class Load:
    """A load with the number of its block and its position there.

    ``components`` ends before the first component that cannot be replaced; ``refusal`` is the reason for that one.
    """

    instr: Instr
    block: int
    position: int
    components: tuple[Component, ...]
    refusal: str

    @classmethod
    def of(cls, instr: Instr, block: int, position: int, accesses: Accesses) -> Load:
        """The load with its components."""
        question = accesses.question(instr)
        if question is None or len(instr.operands) != 2:
            return cls(instr, block, position, (), "operand")
        scalar = instr.form.type
        assert scalar is not None
        components: list[Component] = []
        for number, operand in enumerate(data_operands(instr)):
            if isinstance(operand, Sink):
                continue
            if not isinstance(operand, Reg) or operand.type.bits not in (16, 32, 64) or operand.lanes != 1:
                return cls(instr, block, position, tuple(components), "conversion")
            own = question.at(question.base, question.offset + number * scalar.bytes)
            components.append(Component(operand, own, kind_of(instr, operand)))
        return cls(instr, block, position, tuple(components), "" if components else "conversion")

    @property
    def movable(self) -> Component | None:
        """The only component of a load that may be moved: one without a guard, and no vector load."""
        is_movable = self.instr.guard is None and self.instr.form.lanes == 1 and len(self.components) == 1
        return self.components[0] if is_movable else None


@dataclass(frozen=True, slots=True)
class Local:
    """The bytes are available from an access of the load's own block."""

    provider: Provider


@dataclass(frozen=True, slots=True)
class FromPaths:
    """The bytes are available at the start of the load's block, once the insertions of the solution are made."""

    exploration: Exploration
    solution: Solution


Source: TypeAlias = Local | FromPaths


@dataclass(frozen=True, slots=True)
class Replacement:
    """The load becomes copies. ``hoisted_to`` are the blocks at whose ends it is loaded instead, above branches."""

    load: Load
    sources: tuple[tuple[Component, Source], ...]
    hoisted_to: frozenset[int] = frozenset()

    @property
    def insertions(self) -> list[tuple[int, int]]:
        """The edges on which loads are inserted."""
        return [
            (reply.block, state.block)
            for _, source in self.sources
            if isinstance(source, FromPaths)
            for reply, state in source.solution.insertions
        ]


@dataclass(frozen=True, slots=True)
class EarlyIssue:
    """The load is issued at the end of ``block``, under ``guard``; its address is that of ``question`` there."""

    load: Load
    block: int
    question: Question
    guard: Guard


@dataclass(frozen=True, slots=True)
class Refusal:
    """The load is not replaced; ``reason`` is a key of `REASONS`."""

    load: Load
    reason: str


Decision: TypeAlias = Replacement | EarlyIssue | Refusal
