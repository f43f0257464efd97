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

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import ClassVar

from ...analysis.manager import Facts
from ...analysis.memory.speculation import speculate_reference
from ...analysis.register_limit import register_limit
from ...analysis.values.pressure import units
from ...analysis.values.symbolic_values import Materializer
from ...ptx import Guard, Instr, Kernel, Reg, Sink
from ..cleanup.copy_propagation import CopyPropagation
from ..cleanup.dead_code import DeadCodeElimination
from ..code_motion.branch_divergence import BranchDivergence
from ..code_motion.edges import EdgeInserter
from ..code_motion.speculative_hoisting import Hoisting
from ..remarks import Remarks
from .access_index import Question, data_operands
from .decisions import REASONS, Early, Part, Plan
from .path_costs import Insertion, Payments
from .queries import Questions
from .question_propagation import PLANNED, THROUGH, Exploration, Reply, Solution, State, solve
from .register_chains import Chains, deliver, kind_of

__all__ = [
    "REASONS",
    "ExtendedScalarReplacement",
    "ScalarReplacement",
    "SpeculativeScalarReplacement",
    "SpeculativeScalarReplacementEverywhere",
]

#: How many other loads are asked whether speculation helps them.
MOST_ASKERS = 8
#: How often a round is asked again with loads that get no insertions, before none gets any.
MOST_ATTEMPTS = 3


class Round:
    """One round over a kernel: all questions are asked of the kernel as it is, then everything is written."""

    def __init__(
        self,
        options: ScalarReplacement,
        kernel: Kernel,
        facts: Facts,
        remarks: Remarks,
        questions: Questions,
        without: Container[Instr] = frozenset(),
    ) -> None:
        self.options = options
        #: Loads that get no insertions.
        self.without = without
        self.kernel = kernel
        self.facts = facts
        self.remarks = remarks
        self.symbols = questions.symbols
        self.accesses = questions.accesses
        self.availability = questions.availability
        self.anticipation = questions.anticipation
        self.inserter = EdgeInserter(kernel, facts.cfg)
        self.chains = Chains(kernel, self.symbols, self.inserter)
        self.divergence = questions.divergence
        self._cdrnd = self.divergence.cdrnd() if self.divergence is not None and options.paper else []
        self._contexts = questions.contexts
        self._pending: dict[int, int] = {}
        self.accepted: list[Plan] = []
        self.payments = Payments(facts.cfg, max(facts.loops.depth, default=0))
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

    def run(self) -> set[Instr]:
        """Ask for every load, and write what was accepted, unless loads are returned: nothing pays for the insertions
        that these ask for."""
        for block in self.facts.cfg.rpo:
            for position, instr in self.accesses.blocks[block].loads:
                if instr.form.space in ("param", "const"):
                    continue  # the assembler reads these as operands
                self._treat(Plan(instr, block, position))
        is_lax = self.options.paper or self.options.readable
        unpaid = set[Instr]() if is_lax else self.payments.unpaid(self._is_paid_in_turns)
        if self.accepted and not unpaid:
            for plan in self.accepted:
                self._tell(plan)
            self.chains.write()
        self._hoisting = None  # which refers back to this: what goes round in a circle waits for the collector
        return unpaid

    def _is_paid_in_turns(self, group: list[Instr], insertions: set[Insertion]) -> bool:
        """Whether each insertion of the group is certain to be paid for by a load of its own, though the graph has
        shorter ways: all stand on one edge, behind which all their places are certain to be read, these places differ,
        and every load that may read one of them goes."""
        edges = {edge for edge, _ in insertions}
        if len(edges) != 1 or any(
            load.form.lanes > 1 for accesses in self.accesses.blocks.values() for _, load in accesses.loads
        ):
            return False
        questions = [self.chains.inserted(edge, reg) for edge, reg in insertions]
        first = questions[0]
        places = {question.offset // first.bytes for question in questions if question.offset % first.bytes == 0}
        if len(places) < len(questions) or any(
            (question.base, question.space, question.bytes) != (first.base, first.space, first.bytes)
            for question in questions
        ):
            return False
        gone = {plan.instr for plan in self.accepted if plan.instr.guard is None}
        own = set(group)
        if not own <= gone:
            return False
        return all(load in gone for each in questions for load in self.availability.readers(each))

    def _treat(self, plan: Plan) -> None:
        if not self.remarks.allows(self.options.name, plan.instr):
            return
        reason = self._ask(plan)
        if reason and self._hoisting is not None:
            reason = self._rise(plan, reason, self._hoisting)
        if reason and self.options.guarded:
            reason = self._issue_early(plan, reason)
        if reason:
            self.refused.append((plan.instr, reason))
        elif self.remarks.may_rewrite(self.options.name, plan.instr):
            self.accepted.append(plan)
            if plan.early is not None:
                self.chains.issue_early(plan.early.block, plan.early.question, plan.instr, plan.early.guard)
            else:
                self._accept(plan)

    def _tell(self, plan: Plan) -> None:
        """Say what becomes of a load."""
        kernel, remarks, name = self.kernel, self.remarks, self.options.name
        what = f"'{plan.instr.form.text}'"
        if plan.early is not None:
            message = (
                f"{what} is issued early, at the end of {self._name(plan.early.block)}, under its branch's predicate"
            )
            remarks.add("Passed", name, "Early", kernel, message, instr=plan.instr)
            remarks.count(kernel, name, "loads issued early")
            return
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
            part = Part(operand, own, kind_of(instr, operand))
            plan.parts.append(part)
            reason = self._answer(plan, part)
            if reason:
                return reason
        if not plan.parts:
            return "conversion"
        return self._pressure_reason(plan)

    def _answer(self, plan: Plan, part: Part) -> str:
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

    def _is_deliverable(self, part: Part, solution: Solution) -> bool:
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
        if not self.options.paper and not self._might_help(plan, part.question):
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

    def _might_help(self, plan: Plan, question: Question) -> bool:
        """Whether anything reads the bytes besides the load, or it reads them again in a loop: else nothing becomes
        redundant, wherever they are read. Looks at names only, before the long questions."""
        availability = self.availability
        return availability.may_be_answered(question, plan.block) or bool(availability.askers(question, plan.instr))

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
        if plan.instr in self.without:
            return "not-anticipated"  # another load reads the value there, and has to stay
        if self.divergence is not None and not self._is_convergent(block, successor, context):
            return "divergent-insertion"
        if not self.anticipation.is_evaluated(block, successor, question):
            # Where only an earlier name is anticipated, as in figure 4.11, the last turn loads what no turn needs.
            is_lax = self.options.paper or self.options.readable
            if not is_lax or not any(self._is_anticipated(name, block, successor) for name in names):
                return "not-anticipated"
        # What is read on every way that comes to an end may yet never be: a loop or a barrier may come before it.
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
        parts = self.divergence.is_divergent(block)
        if self.options.paper:
            if self._cdrnd[block] and not parts:
                return True
            return self._cdrnd[successor] and len(self.facts.cfg.pred[successor]) == 1
        return self._context(block) <= context and (not parts or block in context)

    def _context(self, block: int) -> frozenset[int]:
        assert self._contexts is not None
        return self._contexts.of(block)

    # --- acceptance ------------------------------------------------------------------------------------------------

    def _pressure_reason(self, plan: Plan) -> str:
        """Whether the registers that carry the values fit in beside what is live anyway."""
        added: dict[int, int] = {}
        for part in plan.parts:
            for state in part.solution.support if part.solution is not None else ():
                if not self.chains.is_carried(state.question, part.kind):
                    added[state.block] = added.get(state.block, 0) + units(part.result).words
        for block, words in added.items():
            if self.facts.pressure.of_block(block).words + self._pending.get(block, 0) + words > self._limit:
                return "pressure"
        return ""

    def _accept(self, plan: Plan) -> None:
        insertions: list[Insertion] = []
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
                        insertions.append((edge, self.chains.register(state.question, kind)))
                        continue
                    if reply.answer.provider is PLANNED:
                        self.chains.insert_at_end(reply.block, question, kind, plan.instr)
                    elif reply.answer.provider is not None:
                        self.chains.fill(question, kind, reply.answer.provider)
                    if question != state.question:
                        self.chains.rename(edge, state.question, question, kind)
        if not plan.risen:  # what rises is loaded by other threads, too
            self.payments.add(plan.instr, plan.block, insertions)
        self.chains.replace(plan.instr, [(part.result, part.question, part.kind) for part in plan.parts])


def is_asked_for(instr: Instr) -> bool:
    """Whether the instruction might be a load that a round asks for."""
    return instr.form.op.base == "ld" and instr.form.space not in ("param", "const")


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
        if self in facts.get(_without_effect):
            return False  # the last round, over this very code, found nothing
        changed = False
        for number in range(self.rounds):
            if not any(is_asked_for(instr) and remarks.allows(self.name, instr) for instr in kernel.instructions()):
                break
            current = self._round(kernel, facts, remarks)
            if not current.accepted or number == self.rounds - 1:
                current.report()  # what an earlier round refused, a later one may have done
            if not current.accepted:
                facts.get(_without_effect).add(self)
                break
            changed = True
            CopyPropagation().run(kernel, facts, remarks)
            DeadCodeElimination().run(kernel, facts, remarks)
        return changed

    def questions(self, facts: Facts) -> Questions:
        """What answers the questions of a round."""
        return Questions(
            facts,
            self.divergence(facts),
            threshold=1 if self.paper else self.threshold,
            budget=self.budget,
            forwarding=self.forwarding and not self.paper,
        )

    def _round(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> Round:
        """One round, asked again while insertions are not paid for."""
        without: set[Instr] = set()
        questions = self.questions(facts)
        rewrites, keys = remarks.rewrites, dict(remarks.keys)
        for _ in range(MOST_ATTEMPTS):
            current = Round(self, kernel, facts, remarks, questions, without)
            unpaid = current.run()
            if not unpaid:
                return current
            without |= unpaid
            remarks.rewrites, remarks.keys = rewrites, dict(keys)
        current = Round(self, kernel, facts, remarks, questions, frozenset(kernel.instructions()))
        current.run()
        return current


def _without_effect(facts: Facts) -> set[ScalarReplacement]:
    """The passes, with their options, of which a round over the kernel as it is now replaced nothing."""
    del facts
    return set()


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
        return lambda block: divergence.is_divergent(block)
