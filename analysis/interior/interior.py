"""The interior of a grid: the blocks of threads in which the border checks of a kernel do nothing.

Computes: outcomes of the border checks of a kernel (`border_checks.py`), what follows from them (predicates, branches
that are never taken, selections), and the conditions under which they all hold. The conditions are polynomials over
``ctaid``, ``ntid``, ``nctaid`` and parameters, so they are the same for all threads of a block. An outcome may make the
operand of another check a polynomial, so the search is repeated until it finds nothing new. An outcome whose conditions
no block of a usual launch fulfils, together with those so far, is not used (`usual_launches.py`).

A loop such as ``while (x < 0) x += width`` does not run in the interior, or it runs once. So each loop is first assumed
to end before its second iteration. Where that does not follow from the outcomes, the search starts again without this
assumption.

Requires: facts of a kernel without nested scopes. Guarantees: if all conditions are at least 0 in a block, and its wide
parameters are small (`Needs`), then no thread of the block contradicts `Interior.outcomes`. Refuses: nothing; a check
without an outcome is in ``refused``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cost import loop_weight
from ...ptx import Effect, Instr, Not, Operand, Pair, Reg
from ...ptx.operations import EXITS, Operation
from ..effects import is_may_definition
from ..graph.cfg import Cfg
from ..manager import Facts
from ..values.polynomial import Poly
from .block_bounds import BlockBounds, Needs, Unbounded
from .border_checks import Checks, is_candidate
from .interior_forms import Choice, InteriorForms, Outcomes
from .usual_launches import is_usual

__all__ = ["Interior", "find_edges", "find_interior"]

#: The most rounds of one search. A round may decide checks that depend on those of the round before it.
_MOST_ROUNDS = 12
#: The most searches. Each one starts again, and assumes of fewer loops that they end in their first iteration.
_MOST_STARTS = 5


@dataclass(slots=True)
class Interior:
    """The ``outcomes`` in the interior, and the conditions ``needs`` that a block of the interior fulfils.

    ``guards``: the checks that depend on the block and only end the threads outside of the domain. ``borders``: the
    other checks that depend on the block, in the order of the code. ``refused``: by check the reason why it has no
    outcome. ``weight``: the number of ``borders``, each weighted by its loop depth.
    """

    outcomes: Outcomes
    needs: Needs
    borders: list[Instr] = field(default_factory=list[Instr])
    guards: list[Instr] = field(default_factory=list[Instr])
    refused: dict[Instr, str] = field(default_factory=dict[Instr, str])
    weight: float = 0.0


def find_interior(facts: Facts) -> Interior:
    """The interior of the kernel; a fact for `Facts.get`."""
    return _found(facts, None)


def find_edges(facts: Facts, interior: Interior) -> list[Interior]:
    """What holds in the blocks at one edge of the interior: one entry for each of its conditions, without this
    condition. An entry without border checks is left out.

    A condition such as ``ctaid.x*ntid.x - 2 >= 0`` stands for one edge of the grid. Blocks at this edge alone fulfil
    all other conditions.
    """
    conditions = interior.needs.conditions
    found = [_found(facts, [other for other in conditions if other != each]) for each in conditions]
    return [each for each in found if each.borders]


def _found(facts: Facts, allowed: list[Poly] | None) -> Interior:
    """The interior whose conditions follow from ``allowed``; None allows every condition."""
    assumed = _back_edges(facts)
    for _ in range(_MOST_STARTS):
        search = _Search(facts, assumed, allowed)
        search.run()
        wrong = {edge for edge in assumed if not search.is_dead(edge)}
        if not wrong:
            return search.result()
        assumed -= wrong
    search = _Search(facts, frozenset(), allowed)
    search.run()
    return search.result()


def _back_edges(facts: Facts) -> frozenset[tuple[int, int]]:
    return frozenset(
        (latch, loop.header) for loop in facts.loops.loops if not loop.is_irreducible for latch in loop.latches
    )


class _Search:
    def __init__(self, facts: Facts, assumed: frozenset[tuple[int, int]], allowed: list[Poly] | None) -> None:
        self.facts = facts
        self.assumed = assumed
        self.allowed = allowed
        self.bounds = BlockBounds(facts)
        self.outcomes = Outcomes()
        #: By decided check: what it needs, and whether it depends on the block.
        self.decided: dict[Instr, tuple[Needs, bool]] = {}
        self.refused: dict[Instr, str] = {}
        #: The conditions of all decisions so far, without those that follow from others.
        self.accepted: list[Poly] = []
        self.candidates = [
            instr
            for block in facts.cfg.rpo
            for instr in facts.cfg.blocks[block].instrs
            if not instr.is_directive and is_candidate(instr)
        ]
        self.checks: Checks | None = None

    # --- the search --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._walk()
        for _ in range(_MOST_ROUNDS):
            before = self._size()
            forms = InteriorForms(self.facts, self.outcomes)
            if self.checks is None:
                self.checks = Checks(self.facts, self.bounds, forms)
                self.checks.radii = self.checks.find_radii(self.candidates)
            self.checks.forms = self.bounds.forms = forms
            self.refused = {}
            for instr in self.candidates:
                self._decide(instr, self.checks)
            self._propagate()
            self._walk()
            if self._size() == before:
                return

    def _size(self) -> tuple[int, int, int]:
        return len(self.decided), len(self.outcomes.truths), len(self.outcomes.chosen)

    def _decide(self, instr: Instr, checks: Checks) -> None:
        if instr in self.decided or self._block(instr) not in self.outcomes.blocks:
            return
        try:
            decision = checks.decide(instr)
        except Unbounded as refusal:
            self.refused[instr] = refusal.reason
            return
        if decision is None:
            return
        if not self._is_allowed(decision.needs.conditions):
            return
        together = self.bounds.strongest([*self.accepted, *decision.needs.conditions])
        if not is_usual(together):
            self.refused[instr] = "unusual"
            return
        self.accepted = together
        self.decided[instr] = (decision.needs, decision.is_border)
        if isinstance(decision.outcome, Choice):
            self.outcomes.chosen[instr] = decision.outcome
        else:
            self.outcomes.compared[instr] = decision.outcome

    def _is_allowed(self, conditions: list[Poly]) -> bool:
        """Whether these conditions follow from the allowed ones."""
        if self.allowed is None:
            return True
        return set(self.bounds.strongest([*self.allowed, *conditions])) == set(self.allowed)

    def _block(self, instr: Instr) -> int:
        return self.facts.ssa.block[self.facts.ssa.defined(instr, instr.defs()[0])]

    def _propagate(self) -> None:
        """Find the values of predicates, and the selections that follow from them."""
        truths, ssa = self.outcomes.truths, self.facts.ssa
        changed = True
        while changed:
            changed = False
            for block in self.facts.cfg.rpo:
                if block not in self.outcomes.blocks:
                    continue
                for phi in ssa.phis[block]:
                    changed |= phi not in truths and self._join(phi, block)
                for instr in self.facts.cfg.blocks[block].instrs:
                    changed |= not instr.is_directive and not is_may_definition(instr) and self._value(instr)

    def _join(self, phi: int, block: int) -> bool:
        found = {
            self.outcomes.truths.get(value)
            for before, value in self.facts.ssa.phi_args.get(phi, ())
            if before in self.outcomes.blocks and (before, block) not in self.outcomes.dead
        }
        if len(found) != 1 or None in found:
            return False
        self.outcomes.truths[phi] = bool(found.pop())
        return True

    def _value(self, instr: Instr) -> bool:
        """Find the value of a predicate or selection; whether that is new."""
        form = instr.form
        if form.operation is Operation.SELECTION:
            truth = self.truth(instr, instr.operands[-1])
            if truth is None or instr in self.outcomes.chosen or len(instr.operands) != 4:
                return False
            self.outcomes.chosen[instr] = Choice(0 if truth else 1)
            return True
        result = instr.operands[0] if instr.operands and form.dst_count == 1 else None
        if not isinstance(result, Reg) or result.type.name != "pred" or result.lanes != 1:
            return False
        value = self.facts.ssa.defined(instr, result)
        if value in self.outcomes.truths:
            return False
        truth = self._computed(instr)
        if truth is None:
            return False
        self.outcomes.truths[value] = truth
        return True

    def _computed(self, instr: Instr) -> bool | None:
        operation = instr.form.operation
        if operation is Operation.COMPARISON:
            outcome = self.outcomes.compared.get(instr)
            if "bool" not in instr.form.mods:
                return outcome
            return _combined(instr.form.mods["bool"], outcome, self.truth(instr, instr.operands[3]))
        if operation in (Operation.AND, Operation.OR, Operation.XOR):
            left, right = (self.truth(instr, each) for each in instr.operands[1:])
            return _combined(operation.value, left, right)
        if operation in (Operation.NOT, Operation.COPY) and len(instr.operands) == 2:
            truth = self.truth(instr, instr.operands[1])
            return None if truth is None else truth == (operation is Operation.COPY)
        return None

    def truth(self, instr: Instr, operand: Operand) -> bool | None:
        """The value of a predicate that ``instr`` reads; `None` where it is not known."""
        if isinstance(operand, Not):
            inner = self.truth(instr, operand.operand)
            return None if inner is None else not inner
        if not isinstance(operand, Reg):
            return None
        return self.outcomes.truths.get(self.facts.ssa.read(instr, operand))

    def _walk(self) -> None:
        """Find the edges that are never taken, and the blocks that are executed."""
        cfg = self.facts.cfg
        dead = set(self.assumed)
        seen: set[int] = set()
        work = cfg.rpo[:1]
        while work:
            block = work.pop()
            if block in seen:
                continue
            seen.add(block)
            dead |= _untaken(cfg, block, self._guard(cfg.blocks[block].terminator))
            work += [after for after in cfg.succ[block] if (block, after) not in dead]
        self.outcomes.blocks, self.outcomes.dead = frozenset(seen), frozenset(dead)

    def _guard(self, last: Instr | None) -> bool | None:
        """Whether the branch ``last`` is taken; `None` where that is not known."""
        if last is None or last.guard is None or not isinstance(last.guard.reg, Reg):
            return None
        truth = self.outcomes.truths.get(self.facts.ssa.read(last, last.guard.reg))
        return None if truth is None else truth != last.guard.negated

    def is_dead(self, edge: tuple[int, int]) -> bool:
        """Whether the outcomes show that an edge is not taken, without the assumption about loops."""
        block = edge[0]
        if block not in self.outcomes.blocks:
            return True
        cfg = self.facts.cfg
        return edge in _untaken(cfg, block, self._guard(cfg.blocks[block].terminator))

    # --- the result --------------------------------------------------------------------------------------------------

    def result(self) -> Interior:
        blocks = self.outcomes.blocks
        needs = Needs()
        found = Interior(self.outcomes, needs)
        effective = self._not_only_guards()
        for instr in self.candidates:
            if instr not in self.decided or self._block(instr) not in blocks:
                continue
            own, is_border = self.decided[instr]
            needs.add(own)
            if is_border and (instr in effective or instr in self.outcomes.chosen):
                found.borders.append(instr)
                found.weight += loop_weight(self.facts.loops.depth[self._block(instr)])
            elif is_border:
                found.guards.append(instr)
        needs.conditions = self.bounds.strongest(needs.conditions)
        found.refused = {instr: why for instr, why in self.refused.items() if self._block(instr) in blocks}
        return found

    def _not_only_guards(self) -> set[Instr]:
        """The comparisons that decide something else than whether a thread ends at once."""
        work: list[tuple[Instr, Reg]] = []
        for block in self.outcomes.blocks:
            for instr in self.facts.cfg.blocks[block].instrs:
                read = [reg for reg in instr.uses() if reg.type.name == "pred"]
                if not read or (instr.guard is None and not _is_consumer(instr)) or self._only_ends(block, instr):
                    continue
                work += [(instr, reg) for reg in read]
        return self._comparisons_of(work)

    def _comparisons_of(self, work: list[tuple[Instr, Reg]]) -> set[Instr]:
        """The comparisons from which the predicates ``work`` are computed."""
        ssa = self.facts.ssa
        values = [ssa.read(instr, reg) for instr, reg in work]
        seen: set[int] = set()
        found: set[Instr] = set()
        while values:
            value = values.pop()
            if value in seen or ssa.reg[value].type.name != "pred":
                continue
            seen.add(value)
            values += [before for _, before in ssa.phi_args.get(value, ())]
            definition = ssa.instr[value]
            if definition is not None:
                if definition.form.operation is Operation.COMPARISON:
                    found.add(definition)
                values += [ssa.read(definition, reg) for reg in definition.uses()]
        return found

    def _only_ends(self, block: int, instr: Instr) -> bool:
        """Whether the branch or exit ``instr`` does nothing where its guard has the other value than in the interior,
        except that it ends the thread."""
        if not instr.is_terminator:
            return False
        if instr.form.operation in EXITS:
            return True
        cfg = self.facts.cfg
        return any(_ends_at_once(cfg, after) for after in cfg.succ[block] if (block, after) in self.outcomes.dead)


def _ends_at_once(cfg: Cfg, block: int) -> bool:
    instrs = [instr for instr in cfg.blocks[block].instrs if not instr.is_directive]
    return not cfg.succ[block] and len(instrs) <= 1 and all(each.form.operation in EXITS for each in instrs)


def _untaken(cfg: Cfg, block: int, is_taken: bool | None) -> set[tuple[int, int]]:
    """The edges out of ``block`` that are not taken if its last branch is, or is not, taken."""
    last = cfg.blocks[block].terminator
    if is_taken is None or last is None:
        return set()
    after = cfg.succ[block]
    if last.form.operation in EXITS:
        return {(block, to) for to in after} if is_taken else set()
    if last.form.operation is not Operation.BRANCH:
        return set()
    targets = {(block, to) for to in after if cfg.blocks[to].label is last.operands[-1]}
    if len(after) != 2 or len(targets) != 1:
        return set()
    return {(block, to) for to in after} - targets if is_taken else targets


def _is_consumer(instr: Instr) -> bool:
    """Whether the instruction uses predicates for something else than to compute predicates."""
    result = instr.operands[0] if instr.operands and instr.form.dst_count else None
    first = result.first if isinstance(result, Pair) else result
    is_predicate = isinstance(first, Reg) and first.type.name == "pred"
    return not is_predicate or bool(instr.form.effects & ~Effect.CONTROL)


def _combined(how: str, left: bool | None, right: bool | None) -> bool | None:
    """The result of a Boolean operation, where it is known."""
    if how == "and":
        return False if left is False or right is False else None if left is None or right is None else True
    if how == "or":
        return True if left is True or right is True else None if left is None or right is None else False
    return None if left is None or right is None else left != right
