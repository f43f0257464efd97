"""How much redundancy a given kernel has: found by operand names, and found by value.

Computes: for each of the two namings of `expressions.py`, the number of classes of expressions with an occurrence that
lazy code motion could delete (the equations' ``delete``, or a value that is available directly before the occurrence),
and the number of these occurrences. Costs do not matter here: the passes decide what is worth moving.

Requires: a verified kernel; its scopes are flattened. Refuses: a kernel with an opaque instruction that may branch; its
counts are `None`.
Reference: Knoop, Rüthing, Steffen, *Lazy Code Motion*, PLDI 1992.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass

from ..analysis.effects import may_move
from ..analysis.manager import Facts
from ..analysis.memory.alias import is_mutable_read
from ..analysis.values.value_numbering import Values
from ..ptx import Instr, Kernel, Module, flatten_scopes
from .code_motion.expressions import Naming, collect, local_predicates
from .code_motion.lazy_code_motion import solve_placement

__all__ = ["Opportunities", "RedundancyCount", "opportunities"]


@dataclass(frozen=True, slots=True)
class RedundancyCount:
    """The number of ``classes`` of expressions with a redundant occurrence, of ``occurrences`` that could be deleted,
    and of classes whose value is read from memory that may be written (``loads``)."""

    classes: int = 0
    occurrences: int = 0
    loads: int = 0


@dataclass(frozen=True, slots=True)
class Opportunities:
    """The counts of each naming; `None` where the kernel is refused."""

    lexically: RedundancyCount | None
    by_value: RedundancyCount | None

    def to_json(self) -> dict[str, dict[str, int] | None]:
        """The counts under the names that `--stats-json` gives them."""
        return {
            "lexically": asdict(self.lexically) if self.lexically is not None else None,
            "by value": asdict(self.by_value) if self.by_value is not None else None,
        }


def opportunities(kernel: Kernel, module: Module) -> Opportunities:
    """Count what is redundant in ``kernel`` under both namings."""
    flatten_scopes(kernel)
    facts = Facts(kernel, module)
    if facts.cfg.unmodelled or not facts.cfg.rpo:
        return Opportunities(None, None)
    return Opportunities(_redundancy(facts, by_value=False), _redundancy(facts, by_value=True))


def _redundancy(facts: Facts, *, by_value: bool) -> RedundancyCount:
    values = facts.values
    naming = _WholeChains(facts, values) if by_value else Naming(values, by_value=False)
    classes = collect(facts, naming)
    if not classes:
        return RedundancyCount()
    local = local_predicates(facts, classes, naming)
    placement = solve_placement(facts, local, (1 << len(classes)) - 1)
    bit_of = {occurrence.instr: 1 << item.number for item in classes for occurrence in item.occurrences}
    cfg = facts.cfg
    redundant = occurrences = 0  # classes, as bits, and occurrences
    for block in cfg.rpo:
        present = placement.available[block]
        entering = placement.delete[block]  # the first occurrence of these in the block is redundant
        for instr in cfg.blocks[block].instrs:
            bit = bit_of.get(instr, 0)
            if bit & (present | entering):
                redundant |= bit
                occurrences += 1
                entering &= ~bit
            present |= bit
            if present:
                present &= ~local.transfer.kill(instr)
    loads = sum(1 for item in classes if item.is_mutable and redundant >> item.number & 1)
    return RedundancyCount(redundant.bit_count(), occurrences, loads)


class _WholeChains(Naming):
    """Naming by value. The names of an operand are the values that it is computed from in the end, not its own."""

    def __init__(self, facts: Facts, values: Values) -> None:
        super().__init__(values, by_value=True)
        #: Value number → the numbers that it is computed from. A number without an entry stands for itself.
        self._origins: dict[int, frozenset[int]] = {}
        number, defined, read = values.number, values.ssa.defined, values.ssa.read
        cfg, loop_of = facts.cfg, facts.loops.loop_of
        for block in cfg.rpo:
            # A value that is defined outside of loops is defined once, and before all of its readers.
            is_once = loop_of[block] < 0
            for phi in values.ssa.phis[block]:
                if is_once:
                    self._origins.setdefault(number[phi], frozenset())
            for instr in cfg.blocks[block].instrs:
                if instr.is_directive:
                    continue
                is_computed = bool(may_move(instr)) and not is_mutable_read(instr)
                for reg in instr.defs():
                    value = number[defined(instr, reg)]
                    if value in self._origins:
                        continue
                    if is_computed:
                        sets = [self._of(number[read(instr, use)]) for use in instr.uses()]
                        self._origins[value] = frozenset[int]().union(*sets)
                    elif is_once:
                        self._origins[value] = frozenset()

    def _of(self, value: int) -> frozenset[int]:
        origins = self._origins.get(value)
        return frozenset([value]) if origins is None else origins

    def operand_names(self, instr: Instr) -> Iterable[Hashable]:
        number, read = self.values.number, self.ssa.read
        return frozenset[int]().union(*(self._of(number[read(instr, reg)]) for reg in instr.uses()))

    def defined_names(self, instr: Instr) -> Sequence[Hashable]:
        # A computed value is no operand's name, so its definition kills nothing.
        return [name if name not in self._origins else ("computed", name) for name in super().defined_names(instr)]
