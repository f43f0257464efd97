"""Scalar replacement by question propagation: SRQP, ESRQP, SSRQP_S, SSRQP (thesis §4.3, §4.5).

Each load asks whether what it reads is available; where it is, on every way, the value stays in registers
(`register_chains.py`) and the load goes. Where it is on some ways only, a load is inserted on the others, if the
expression is anticipated there. The four variants:

    srqp      inserts wherever the graph allows it
    esrqp     not on an edge in an arm of a divergent branch that the load itself does not stand in
    ssrqp_s   as esrqp; a load that stays is asked whether it can rise above any branch that decides about it
    ssrqp     as esrqp; the same, above divergent branches only

Where this differs from the paper, ``paper=true`` gives the paper's behaviour: values are kept for one turn of a loop
instead of ``threshold``; the CDRND is taken to the letter (a load in an arm of a divergent branch then never gets an
insertion in front of a loop in the same arm); nothing is forwarded; loads rise even where no other load becomes
redundant by it. In every mode an inserted load must not be able to fault: the address is dereferenced on every way on,
or lies in a declared object; everything else is refused (``may-fault``), unless ``readable=true`` promises that every
address that the kernel computes for a load may be read at any time.

Guarantees: results stay bit-identical; no thread executes more loads on any path in ``srqp`` and ``esrqp``, unless
``paper`` or ``readable`` is set: then the last turn of a loop may load what a next one would need. Volatile, atomic and
ordered accesses are left alone and, like barriers, fences and calls, end every question about memory that may be
written. Refuses: see `REASONS`.
Reference: thesis §4.3 and §4.5; shared notes on code motion, §5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from ..analysis.control_dependence import ENTRY
from ..analysis.manager import Facts
from ..analysis.pressure import units
from ..analysis.speculation import speculate_reference
from ..analysis.symbolic_values import Materializer, SymbolicValues
from ..ptx import Guard, Instr, Kernel, Reg, Sink
from .anticipation import Anticipation
from .branch_divergence import BranchDivergence
from .copy_propagation import CopyPropagation
from .dead_code import DeadCodeElimination
from .edges import EdgeInserter
from .memory_accesses import Accesses, Question, data_operands
from .question_propagation import PLANNED, THROUGH, Availability, Exploration, Reply, Solution, State, solve
from .register_chains import Chains, Kind, deliver, kind_of
from .register_limit import register_limit
from .remarks import Remarks
from .speculative_hoisting import Hoisting

__all__ = [
    "REASONS",
    "ExtendedScalarReplacement",
    "ScalarReplacement",
    "SpeculativeScalarReplacement",
    "SpeculativeScalarReplacementEverywhere",
]

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


#: How many other loads are asked whether speculation helps them.
MOST_ASKERS = 8


@dataclass(slots=True)
class _Part:
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
    parts: list[_Part] = field(default_factory=list[_Part])
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


class Round:
    """One round over a kernel: all questions are asked of the kernel as it is, then everything is written."""

    def __init__(self, options: ScalarReplacement, kernel: Kernel, facts: Facts, remarks: Remarks) -> None:
        self.options = options
        self.kernel = kernel
        self.facts = facts
        self.remarks = remarks
        self.symbols = SymbolicValues(facts)
        self.accesses = Accesses(facts, self.symbols)
        paper = options.paper
        self.availability = Availability(
            facts,
            self.symbols,
            self.accesses,
            threshold=1 if paper else options.threshold,
            budget=options.budget,
            forwarding=options.forwarding and not paper,
        )
        self.anticipation = Anticipation(facts, self.symbols, self.accesses)
        self.inserter = EdgeInserter(kernel, facts.cfg)
        self.chains = Chains(kernel, self.symbols, self.inserter)
        self.divergence = options.divergence(facts)
        self._cdrnd = self.divergence.cdrnd(facts) if self.divergence is not None else []
        self._contexts: dict[int, frozenset[int]] = {}
        self._pending: dict[int, int] = {}
        self.refused: list[tuple[Instr, str]] = []
        self._limit = options.registers or register_limit(kernel)
        self._origin: frozenset[int] = frozenset()
        parts = options.parts(self.divergence, facts)
        self._hoisting = (
            Hoisting(facts, self.availability, self.anticipation, parts, self._is_convergent_block)
            if parts is not None
            else None
        )

    def report(self) -> None:
        """Say of each load that stays why."""
        for instr, reason in self.refused:
            message = f"'{instr.form.text}' stays: {REASONS[reason]}"
            name = self.options.name
            self.remarks.add("Missed", name, "NotReplaced", self.kernel, message, instr=instr, reason=reason)
            self.remarks.count(self.kernel, name, f"refused: {reason}")

    def run(self) -> bool:
        """Ask for every load, and write what was accepted; whether anything was."""
        changed = False
        for block in self.facts.cfg.rpo:
            for position, instr in self.accesses.blocks[block].loads:
                if instr.form.space in ("param", "const"):
                    continue  # the assembler reads these as operands
                changed |= self._treat(Plan(instr, block, position))
        if changed:
            self.chains.write()
        return changed

    def _treat(self, plan: Plan) -> bool:
        reason = self._ask(plan)
        if reason and self._hoisting is not None:
            reason = self._rise(plan, reason, self._hoisting)
        if reason and self.options.guarded:
            reason = self._issue_early(plan, reason)
        kernel, remarks, name = self.kernel, self.remarks, self.options.name
        what = f"'{plan.instr.form.text}'"
        if reason:
            self.refused.append((plan.instr, reason))
            return False
        if not remarks.may_rewrite(name, plan.instr):
            return False
        if plan.early is not None:
            self.chains.issue_early(plan.early.block, plan.early.question, plan.instr, plan.early.guard)
            message = (
                f"{what} is issued early, at the end of {self._name(plan.early.block)}, under its branch's predicate"
            )
            remarks.add("Passed", name, "Early", kernel, message, instr=plan.instr)
            remarks.count(kernel, name, "loads issued early")
            return True
        self._accept(plan)
        edges = [self._edge_name(edge) for edge in dict.fromkeys(plan.insertions)]
        where = f"; loaded on {', '.join(edges)}" if edges else ""
        if plan.risen:
            where = f"; loaded at the end of {', '.join(self._name(block) for block in sorted(plan.risen))}"
        kind = "Hoisted" if plan.risen else "Moved" if edges else "Redundant"
        message = f"{what} reads what registers keep{where}"
        remarks.add("Passed", name, kind, kernel, message, instr=plan.instr)
        remarks.count(kernel, name, "loads removed")
        remarks.count(kernel, name, "loads inserted", len(edges))
        remarks.count(kernel, name, "loads hoisted", len(plan.risen))
        return True

    def _name(self, block: int) -> str:
        label = self.facts.cfg.blocks[block].label
        return label.text if label is not None else f"block {block}"

    def _edge_name(self, edge: tuple[int, int]) -> str:
        return "→".join(self._name(block) for block in edge)

    # --- questions -------------------------------------------------------------------------------------------------

    def _ask(self, plan: Plan) -> str:
        """Answer the questions of a load; why it stays, or an empty string."""
        instr = plan.instr
        question = self.accesses.question(instr)
        scalar = instr.form.type
        assert scalar is not None
        if question is None or len(instr.operands) != 2:
            return "operand"
        for number, operand in enumerate(data_operands(instr)):
            if isinstance(operand, Sink):
                continue
            if not isinstance(operand, Reg) or operand.type.bits not in (16, 32, 64) or operand.lanes != 1:
                return "conversion"
            own = question.at(question.base, question.offset + number * scalar.bytes)
            part = _Part(operand, own, kind_of(instr, operand))
            plan.parts.append(part)
            reason = self._answer(plan, part)
            if reason:
                return reason
        if not plan.parts:
            return "conversion"
        return self._pressure_reason(plan)

    def _answer(self, plan: Plan, part: _Part) -> str:
        answer = self.availability.within(plan.block, part.question, plan.position)
        if answer.provider is not None:
            part.local = True
            made = deliver(part.result, part.kind, part.question.bytes, answer.provider, None)
            return "" if made is not None else "conversion"
        if answer.reason:
            return answer.reason
        if not self.availability.may_be_answered(part.question, plan.block):
            return "no-earlier-access"
        found = part.exploration = self.availability.explore(plan.block, part.question)
        if not found.has_source:
            return _reason_of(found)
        context = self._context(plan.block) if self.divergence is not None else frozenset[int]()
        solution = part.solution = solve(
            found, lambda reply, state, names: self._may_insert(plan, reply, state, names, context)
        )
        if not solution.is_available:
            refusals = [reason for reason in solution.refusals if reason != "entry"]
            return refusals[0] if refusals else _reason_of(found)
        return "" if self._is_deliverable(part, solution) else "conversion"

    def _is_deliverable(self, part: _Part, solution: Solution) -> bool:
        assert part.exploration is not None
        for state in solution.support:
            for reply in part.exploration.replies[state]:
                provider = reply.answer.provider
                if provider is not None and provider is not PLANNED:
                    made = deliver(part.result, part.kind, part.question.bytes, provider, None)
                    if made is None:
                        return False
        return True

    # --- speculation -----------------------------------------------------------------------------------------------

    def _rise(self, plan: Plan, reason: str, hoisting: Hoisting) -> str:
        """Let a load that is not redundant rise above branches; why it stays, or an empty string."""
        instr = plan.instr
        if instr.guard is not None or instr.form.lanes > 1 or len(plan.parts) != 1:
            return reason
        part = plan.parts[0]
        if part.local or self.availability.within(plan.block, part.question, plan.position) is not THROUGH:
            return reason
        self._origin = self._context(plan.block)
        places = hoisting.places(plan.block, part.question)
        if not places.may_rise or not places.blocks:
            return reason
        depth = self.facts.loops.depth
        for block in places.blocks:
            if depth[block] > depth[plan.block]:
                return reason
            if not self._is_safe_at_end(block, part.question):
                return "may-fault"
            maker = Materializer(self.symbols, block, is_trial=True)
            if maker.address(part.question.base, part.question.offset, part.question.width) is None:
                return "address"
        planned = dict.fromkeys(places.blocks, part.question)
        if not self.options.paper and not self._helps(plan, part.question, planned):
            return reason
        found = part.exploration = self.availability.explore(plan.block, part.question, planned)
        solution = part.solution = solve(found, lambda reply, state, names: "not-anticipated")
        if not solution.is_available:
            return reason
        if not self._is_deliverable(part, solution):
            return "conversion"
        plan.risen = frozenset(
            reply.block
            for state in solution.support
            for reply in found.replies[state]
            if reply.answer.provider is PLANNED
        )
        return self._pressure_reason(plan)

    def _helps(self, plan: Plan, question: Question, planned: dict[int, Question]) -> bool:
        """Whether another load becomes redundant by evaluating ``question`` at the ends of the ``planned`` blocks, or
        these evaluations can leave a loop."""
        if any(self._can_leave(plan, block, question, planned) for block in planned):
            return True
        for block, position, instr in self.availability.askers(question, plan.instr)[:MOST_ASKERS]:
            own = self.accesses.question(instr)
            if own is None or self.availability.within(block, own, position) is not THROUGH:
                continue
            other = Plan(instr, block, position)
            if self._would_be_available(other, own, planned) and not self._would_be_available(other, own, {}):
                return True
        return False

    def _can_leave(self, plan: Plan, block: int, question: Question, planned: dict[int, Question]) -> bool:
        """Whether an evaluation at the end of ``block`` has what the last turn of a loop has evaluated there, once the
        first turn's is made in front of the loop."""
        if self.facts.loops.loop_of[block] < 0 or self.availability.at_end(block, question) is not THROUGH:
            return False
        found = self.availability.explore(block, question, planned)
        context = self._context(plan.block)

        def may_insert(reply: Reply, state: State, names: frozenset[Question]) -> str:
            if reply.question is None or not self._is_convergent(reply.block, state.block, context):
                return "divergent-insertion"
            return "" if self._is_safe(reply.block, state.block, reply.question) else "may-fault"

        return found.has_source and solve(found, may_insert).is_available

    def _would_be_available(self, plan: Plan, question: Question, planned: dict[int, Question]) -> bool:
        found = self.availability.explore(plan.block, question, planned)
        context = self._context(plan.block)
        if not found.has_source:
            return False
        return solve(
            found, lambda reply, state, names: self._may_insert(plan, reply, state, names, context)
        ).is_available

    def _issue_early(self, plan: Plan, reason: str) -> str:
        """Issue a load at the end of the block above, under the predicate of the branch there: it is executed as often
        as before, and earlier. Why it stays, or an empty string."""
        cfg = self.facts.cfg
        above = cfg.pred[plan.block]
        if plan.instr.guard is not None or plan.instr.form.lanes > 1 or len(plan.parts) != 1 or len(above) != 1:
            return reason
        part, (block,) = plan.parts[0], above
        branch = cfg.blocks[block].terminator
        if branch is None or branch.form.op.base != "bra" or branch.guard is None or len(cfg.succ[block]) != 2:
            return reason
        if any(position < plan.position for position in self.accesses.pinches.get(plan.block, ())):
            return reason
        if part.local or self.availability.within(plan.block, part.question, plan.position) is not THROUGH:
            return reason
        question = self.availability.before(part.question, block, plan.block)
        maker = Materializer(self.symbols, block, is_trial=True)
        if question is None:
            return reason
        if maker.address(question.base, question.offset, question.width) is None or maker.code:
            return reason
        is_taken = cfg.blocks[plan.block].label is branch.operands[0]
        guard = Guard(branch.guard.reg, negated=branch.guard.negated == is_taken)
        plan.early = Early(block, question, guard)
        return ""

    def _is_safe_at_end(self, block: int, question: Question) -> bool:
        """Whether reading the address at the end of ``block`` cannot fault where the kernel as it is does not."""
        if self.options.readable or self.anticipation.is_dereferenced_behind(block, question):
            return True
        return speculate_reference(self.facts, question.reference, self.facts.cfg.blocks[block]).kind == "proven"

    def _is_convergent_block(self, block: int) -> bool:
        return self._cdrnd[block] if self.options.paper else self._context(block) <= self._origin

    # --- insertion -------------------------------------------------------------------------------------------------

    def _may_insert(
        self, plan: Plan, reply: Reply, state: State, names: frozenset[Question], context: frozenset[int]
    ) -> str:
        """Why no load may stand on the edge, or an empty string."""
        block, successor, question = reply.block, state.block, reply.question
        if question is None:
            return reply.answer.reason
        if len(plan.instr.form.specs) and plan.instr.form.lanes > 1:
            return "not-anticipated"  # several loads would take the place of one
        if not self.inserter.is_possible(block, successor):
            return "indirect-branch-edge"
        if self.divergence is not None and not self._is_convergent(block, successor, context):
            return "divergent-insertion"
        if not self.anticipation.is_evaluated(block, successor, question):
            # Where only an earlier name is anticipated, as in figure 4.11, the last turn loads what no turn needs.
            is_lax = self.options.paper or self.options.readable
            if not is_lax or not any(self._is_anticipated(name, block, successor) for name in names):
                return "not-anticipated"
            if not self._is_safe(block, successor, question):
                return "may-fault"
        maker = Materializer(self.symbols, block, is_trial=True)
        if maker.address(question.base, question.offset, question.width) is None:
            return "address"
        return ""

    def _is_anticipated(self, name: Question, block: int, successor: int) -> bool:
        renamed = self.availability.before(name, block, successor)
        return renamed is not None and self.anticipation.is_evaluated(block, successor, renamed)

    def _is_safe(self, block: int, successor: int, question: Question) -> bool:
        """Whether reading the address on the edge cannot fault where the kernel as it is does not."""
        if self.options.readable or self.anticipation.is_dereferenced(block, successor, question):
            return True
        return speculate_reference(self.facts, question.reference, self.facts.cfg.blocks[block]).kind == "proven"

    def _is_convergent(self, block: int, successor: int, context: frozenset[int]) -> bool:
        """Whether a load on the edge adds nothing to an arm of a divergent branch that ``context`` is not in."""
        assert self.divergence is not None
        parts = self.divergence.is_divergent(self.facts, block)
        if self.options.paper:
            if self._cdrnd[block] and not parts:
                return True
            return self._cdrnd[successor] and len(self.facts.cfg.pred[successor]) == 1
        return self._context(block) <= context and (not parts or block in context)

    def _context(self, block: int) -> frozenset[int]:
        """The divergent branches that decide whether ``block`` is executed, directly or through others."""
        known = self._contexts.get(block)
        if known is not None:
            return known
        assert self.divergence is not None
        controllers = self.facts.control_dependence.controllers
        found: set[int] = set()
        seen = {block}
        work = [block]
        for each in work:
            for branch in controllers[each]:
                if branch == ENTRY:
                    continue
                if self.divergence.is_divergent(self.facts, branch):
                    found.add(branch)
                if branch not in seen:
                    seen.add(branch)
                    work.append(branch)
        result = self._contexts[block] = frozenset(found)
        return result

    # --- acceptance ------------------------------------------------------------------------------------------------

    def _pressure_reason(self, plan: Plan) -> str:
        """Whether the registers that carry the values fit in beside what is live anyway."""
        added: dict[int, int] = {}
        for part in plan.parts:
            for state in part.solution.support if part.solution is not None else ():
                if not self.chains.is_carried(state.question, part.kind):
                    added[state.block] = added.get(state.block, 0) + units(part.result).words
        pressure = self.facts.pressure.blocks
        for block, words in added.items():
            if pressure[block].words + self._pending.get(block, 0) + words > self._limit:
                return "pressure"
        return ""

    def _accept(self, plan: Plan) -> None:
        for part in plan.parts:
            kind = part.kind
            if part.local:
                answer = self.availability.within(plan.block, part.question, plan.position)
                assert answer.provider is not None
                self.chains.fill(part.question, kind, answer.provider)
                continue
            assert part.solution is not None and part.exploration is not None
            missing = {(reply.block, state): reply for reply, state in part.solution.insertions}
            for state in part.solution.support:
                if not self.chains.is_carried(state.question, kind):
                    words = units(part.result).words
                    self._pending[state.block] = self._pending.get(state.block, 0) + words
                self.chains.need(state.block, state.question, kind)
                for reply in part.exploration.replies[state]:
                    question = reply.question
                    assert question is not None
                    edge = (reply.block, state.block)
                    if (reply.block, state) in missing:
                        self.chains.insert(edge, state.question, question, kind, plan.instr)
                        continue
                    if reply.answer.provider is PLANNED:
                        self.chains.insert_at_end(reply.block, question, kind, plan.instr)
                    elif reply.answer.provider is not None:
                        self.chains.fill(question, kind, reply.answer.provider)
                    if question != state.question:
                        self.chains.rename(edge, state.question, question, kind)
        self.chains.replace(plan.instr, [(part.result, part.question, part.kind) for part in plan.parts])


def _reason_of(found: Exploration) -> str:
    """Why nothing answers: what stands nearest, or that there is nothing."""
    reasons = [reason for reason in found.reasons if reason != "entry"]
    return reasons[0] if reasons else "no-earlier-access"


@dataclass(frozen=True)
class ScalarReplacement:
    """Options: ``threshold`` is over how many turns of a loop a value may be kept; ``forwarding`` lets loads take what
    was stored; ``guarded`` issues loads that stay at the end of the block above, under the predicate of its branch;
    ``registers`` bounds the estimated pressure (0: what the kernel's directives leave a thread);
    ``rounds`` bounds the repetitions; ``budget`` bounds the states of a question; ``paper`` and ``readable`` as in the
    module's header."""

    threshold: int = 4
    forwarding: bool = True
    guarded: bool = False
    registers: int = 0
    rounds: int = 3
    budget: int = 200
    readable: bool = False
    paper: bool = False

    name: ClassVar[str] = "srqp"

    def divergence(self, facts: Facts) -> BranchDivergence | None:
        """The divergent branches in whose arms nothing is to be inserted; ``None`` to insert anywhere."""
        del facts
        return None

    def parts(self, divergence: BranchDivergence | None, facts: Facts) -> Callable[[int], bool] | None:
        """Whether a load may speculatively rise above the branch at the end of a block; ``None``: above no branch."""
        del divergence, facts
        return None

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Replace loads in ``kernel``; whether anything changed."""
        changed = False
        for number in range(self.rounds):
            current = Round(self, kernel, facts, remarks)
            found = current.run()
            if not found or number == self.rounds - 1:
                current.report()  # what an earlier round refused, a later one may have done
            if not found:
                break
            changed = True
            CopyPropagation().run(kernel, facts, remarks)
            DeadCodeElimination().run(kernel, facts, remarks)
        return changed


@dataclass(frozen=True)
class ExtendedScalarReplacement(ScalarReplacement):
    """The options of srqp."""

    name: ClassVar[str] = "esrqp"

    def divergence(self, facts: Facts) -> BranchDivergence | None:
        return BranchDivergence(facts)


@dataclass(frozen=True)
class SpeculativeScalarReplacementEverywhere(ExtendedScalarReplacement):
    """The options of srqp."""

    name: ClassVar[str] = "ssrqp_s"

    def parts(self, divergence: BranchDivergence | None, facts: Facts) -> Callable[[int], bool] | None:
        return lambda block: True


@dataclass(frozen=True)
class SpeculativeScalarReplacement(ExtendedScalarReplacement):
    """The options of srqp."""

    name: ClassVar[str] = "ssrqp"

    def parts(self, divergence: BranchDivergence | None, facts: Facts) -> Callable[[int], bool] | None:
        assert divergence is not None
        return lambda block: divergence.is_divergent(facts, block)
