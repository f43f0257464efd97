"""One attempt of one round: decide about all loads of a kernel, then rewrite it.

    query      Queries, which the attempts of a round share
    decide     Redundancy, Speculation, issue_early: one decision for each load
    check      PathCosts: which insertions would add loads to a path
    rewrite    ChainPlan collects what accepted decisions need, ChainWriter writes it

Guarantees: the kernel does not change before `Round.rewrite`, so all decisions are about the kernel as it was given.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ...analysis.register_limit import register_limit
from ...ptx import Instr, Kernel
from ...ptx.operations import Operation
from ..code_motion.edges import EdgeInserter
from ..remarks import Remarks
from .decisions import Decision, EarlyIssue, Load, Refusal, Replacement
from .early_issue import issue_early
from .insertion_rules import InsertionRules
from .options import Options
from .path_costs import Insertion, PathCosts
from .queries import Queries
from .redundancy import Redundancy, RegisterBudget
from .register_chains import ChainPlan, ChainWriter
from .reports import Reporter
from .speculation import Speculation

__all__ = ["Round", "is_candidate"]


class Round:
    """One attempt of one pass. ``excluded`` are the loads that get no insertions."""

    def __init__(
        self, options: Options, kernel: Kernel, queries: Queries, remarks: Remarks, excluded: Container[Instr]
    ) -> None:
        facts = queries.facts
        self.accepted: list[Replacement | EarlyIssue] = []
        self.refused: list[Refusal] = []
        self._options = options
        self._queries = queries
        self._remarks = remarks
        self._cfg = facts.cfg
        self._inserter = EdgeInserter(kernel, facts.cfg)
        self._plan = ChainPlan(kernel)
        self._costs = PathCosts(facts.cfg, max(facts.loops.depth, default=0))
        self._reporter = Reporter(options.name, kernel, facts.cfg, remarks)
        rules = InsertionRules(options, queries, self._inserter, excluded)
        budget = RegisterBudget(facts.pressure, self._plan, options.registers or register_limit(kernel))
        self._redundancy = Redundancy(queries, rules, budget)
        self._speculation = Speculation(options, queries, rules, budget) if options.hoists_above != "no" else None

    def decide(self) -> set[Instr]:
        """Decide about every load. Returns the loads whose insertions would make a path execute more loads; if there
        are any, the decisions must not be carried out."""
        for load in self._loads():
            if not self._remarks.allows(self._options.name, load.instr):
                continue
            decision = self._decide(load)
            if isinstance(decision, Refusal):
                self.refused.append(decision)
            elif self._remarks.may_rewrite(self._options.name, load.instr):
                self.accepted.append(decision)
                self._accept(decision)
        if self._options.may_add_loads:
            return set()
        groups = self._costs.unbalanced()
        heavy = [loads for loads, insertions in groups if not self._is_offset_over_iterations(loads, insertions)]
        return {load for loads in heavy for load in loads}

    def rewrite(self) -> None:
        """Report the accepted decisions and carry them out."""
        for decision in self.accepted:
            if isinstance(decision, EarlyIssue):
                self._reporter.issued_early(decision)
            else:
                self._reporter.replaced(decision)
        if self.accepted:
            ChainWriter(self._plan, self._queries.symbols, self._inserter).write()

    def report_refusals(self) -> None:
        """Report why the other loads are not replaced."""
        for refusal in self.refused:
            self._reporter.refused(refusal)

    def _loads(self) -> Iterator[Load]:
        accesses = self._queries.accesses
        for block in self._cfg.rpo:
            for position, instr in accesses.blocks[block].loads:
                if is_candidate(instr):
                    yield Load.of(instr, block, position, accesses)

    def _decide(self, load: Load) -> Decision:
        decision: Decision = self._redundancy.decide(load)
        if isinstance(decision, Refusal) and self._speculation is not None:
            decision = self._speculation.decide(decision)
        if isinstance(decision, Refusal) and self._options.guarded:
            decision = issue_early(load, self._queries) or decision
        return decision

    def _accept(self, decision: Replacement | EarlyIssue) -> None:
        if isinstance(decision, EarlyIssue):
            self._plan.issue_early(decision)
            return
        insertions = self._plan.carry(decision)
        if not decision.hoisted_to:  # threads that do not execute the load execute a hoisted one
            self._costs.add(decision.load.instr, decision.load.block, insertions)

    def _is_offset_over_iterations(self, loads: list[Instr], insertions: set[Insertion]) -> bool:
        """Whether each insertion is certain to be offset by a removed load of its own, in some iteration of a loop.

        This holds where all insertions are on one edge, after which all their bytes are certain to be read, no two of
        them read a common byte, and every load that may read the bytes is removed.
        """
        edges = {edge for edge, _ in insertions}
        accesses = self._queries.accesses.blocks.values()
        if len(edges) != 1 or any(load.form.lanes > 1 for each in accesses for _, load in each.loads):
            return False
        questions = [self._plan.edge_loads[edge][register].question for edge, register in insertions]
        first = questions[0]
        places = {question.offset // first.bytes for question in questions if question.offset % first.bytes == 0}
        if len(places) < len(questions) or any(
            (question.base, question.space, question.bytes) != (first.base, first.space, first.bytes)
            for question in questions
        ):
            return False
        removed = {decision.load.instr for decision in self.accepted if decision.load.instr.guard is None}
        readers = self._queries.candidates.readers
        return removed.issuperset(loads) and all(
            load in removed for question in questions for load in readers(question)
        )


def is_candidate(instr: Instr) -> bool:
    """Whether the instruction may be a load that is replaced. Loads of parameters and constants are not: ptxas makes
    operands of them."""
    return instr.form.operation is Operation.LOAD and instr.form.space not in ("param", "const")
