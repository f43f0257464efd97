"""The polynomials of a kernel in those blocks of threads in which its border checks do nothing.

Computes: `LaunchForms`, where some instructions are known to give one of their operands (a clamp, a selection), and
where some edges of the graph are known not to be taken. A φ has only the arguments of the other edges.

Requires: facts of a kernel without nested scopes; `Outcomes` that hold in the launch, for all threads of a block.
Guarantees: as `LaunchForms`, for the evaluations in these blocks of threads. Refuses: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from ...ptx import Instr
from ..manager import Facts
from ..values.launch_forms import LaunchForms
from ..values.polynomial import ZERO, Atom, Poly, centered, constant, variable

__all__ = ["NOTHING", "Choice", "InteriorForms", "LoopTest", "Outcomes"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of an instruction: its source number ``source``, less ``times`` its other source; 0 if ``source`` is
    `NOTHING`."""

    source: int
    times: int = 0


#: The source of a result that is 0.
NOTHING = -1


@dataclass(slots=True)
class Outcomes:
    """What is known of the instructions and edges of a kernel.

    ``compared``: by ``setp`` the outcome of its comparison. ``chosen``: by instruction with an integer result, its
    result. ``blocks`` are the blocks that are executed. ``dead`` are edges (block, next block) that are never
    taken. ``truths``: by SSA value of a predicate, its value.
    """

    compared: dict[Instr, bool] = field(default_factory=dict[Instr, bool])
    chosen: dict[Instr, Choice] = field(default_factory=dict[Instr, Choice])
    truths: dict[int, bool] = field(default_factory=dict[int, bool])
    blocks: Set[int] = frozenset()
    dead: Set[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class LoopTest:
    """A loop continues after iteration ``t``, counted from 0, while the word ``first + t`` is in ``relation`` to
    ``limit``; both are words of 32 bits of type ``kind``."""

    first: Poly
    relation: str
    limit: Poly
    kind: str


class InteriorForms(LaunchForms):
    """The polynomials under ``outcomes``."""

    def __init__(self, facts: Facts, outcomes: Outcomes) -> None:
        self.chosen: Mapping[Instr, Choice] = outcomes.chosen
        self._blocks = outcomes.blocks
        self._dead = outcomes.dead
        super().__init__(facts)

    def _block(self, block: int) -> None:
        if block in self._blocks:
            super()._block(block)

    def _arguments(self, phi: int) -> list[tuple[int, int]]:
        block = self._ssa.block[phi]
        return [
            (before, value)
            for before, value in super()._arguments(phi)
            if before in self._blocks and (before, block) not in self._dead
        ]

    def _operation(self, instr: Instr, bits: int) -> Poly | None:
        choice = self.chosen.get(instr)
        if choice is None:
            return super()._operation(instr, bits)
        if choice.source == NOTHING:
            return ZERO
        form = self._operand(instr, instr.operands[1 + choice.source], bits)
        if choice.times:
            form -= self._operand(instr, instr.operands[2 - choice.source], bits) * choice.times
        return form

    def loop_test(self, turn: Atom) -> LoopTest | None:
        """The test at the end of the loop whose iterations ``turn`` counts, if its counter has the step 1."""
        head = next(block for block, atom in self.turns.items() if atom == turn)
        found = self._latch_test(head)
        if found is None or found[1] not in ("lt", "le", "ne"):
            return None
        compare, relation = found
        scalar = compare.form.type
        assert scalar is not None
        counter, limit = (centered(self.word(compare, operand, 32), 32) for operand in compare.operands[1:])
        if counter.coefficient(turn) != constant(1) or turn in limit.atoms:
            return None
        return LoopTest(counter - variable(turn), relation, limit, "s" if scalar.kind == "s" else "u")
