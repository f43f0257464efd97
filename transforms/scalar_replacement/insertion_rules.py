"""Where loads may be inserted.

A load may be inserted on an edge only if all of these hold:

- every path from there evaluates a load of the same bytes anyway (with ``paper`` or ``readable``, it only has to read
  the bytes);
- it cannot fault there, unless the original kernel does;
- its address can be computed there;
- it is not in an arm of a divergent branch that the replaced load is not in.

Requires: a kernel that does not change. Reference: thesis §4.3.1, §4.3.2.
"""

from __future__ import annotations

from collections.abc import Container

from ...analysis.memoized import memoized
from ...analysis.memory.speculation import speculate_reference
from ...analysis.values.symbolic_values import Materializer
from ...ptx import Instr
from ..code_motion.edges import EdgeInserter
from .availability_solver import MayInsert
from .block_answers import State
from .options import Options
from .queries import Queries
from .question_propagation import Reply
from .questions import Question

__all__ = ["InsertionRules"]


class InsertionRules:
    """The rules for one attempt. ``excluded`` are the loads that get no insertions."""

    def __init__(self, options: Options, queries: Queries, inserter: EdgeInserter, excluded: Container[Instr]) -> None:
        self._options = options
        self._queries = queries
        self._facts = queries.facts
        self._inserter = inserter
        self._excluded = excluded

    def for_load(self, instr: Instr, block: int) -> MayInsert:
        """The test whether a load that replaces ``instr`` of ``block`` may be inserted on an edge."""

        def may_insert(reply: Reply, state: State, names: frozenset[Question]) -> str:
            return self._refusal(instr, block, reply, state, names)

        return may_insert

    def _refusal(self, instr: Instr, home: int, reply: Reply, state: State, names: frozenset[Question]) -> str:
        block, successor, question = reply.block, state.block, reply.question
        if question is None:
            return reply.answer.reason
        if instr.form.lanes > 1:
            return "not-anticipated"  # several loads would replace one
        if not self._inserter.is_possible(block, successor):
            return "indirect-branch-edge"
        if instr in self._excluded:
            return "not-anticipated"  # another load reads the value there, and is not replaced
        if not self.is_convergent_edge(block, successor, home):
            return "divergent-insertion"
        if not self._is_evaluated(block, successor, question, names):
            return "not-anticipated"
        # That every path to an exit reads the bytes does not suffice: a loop or a barrier may come before the read.
        if not self.is_safe_on_edge(block, successor, question):
            return "may-fault"
        return "" if self.has_address(block, question) else "address"

    def _is_evaluated(self, block: int, successor: int, question: Question, names: frozenset[Question]) -> bool:
        is_evaluated = self._queries.anticipation.is_evaluated
        if is_evaluated(block, successor, question):
            return True
        if not self._options.may_add_loads:
            return False
        # Where only an earlier name is anticipated, as in figure 4.11, the last iteration loads what is not needed.
        before_edge = self._queries.names.before_edge
        earlier = (before_edge(name, block, successor) for name in names)
        return any(name is not None and is_evaluated(block, successor, name) for name in earlier)

    def is_safe_on_edge(self, block: int, successor: int, question: Question) -> bool:
        """Whether a read of the bytes on the edge cannot fault, unless the original kernel faults as well."""
        if self._options.readable or self._queries.anticipation.is_dereferenced(block, successor, question):
            return True
        return self._is_proven(block, question)

    def is_safe_at_end(self, block: int, question: Question) -> bool:
        """The same at the end of ``block``."""
        if self._options.readable or self._queries.anticipation.is_dereferenced_behind(block, question):
            return True
        return self._is_proven(block, question)

    def _is_proven(self, block: int, question: Question) -> bool:
        instrs = self._facts.cfg.blocks[block]
        return speculate_reference(self._facts, question.reference, instrs).kind == "proven"

    def has_address(self, block: int, question: Question) -> bool:
        """Whether the address can be computed at the end of ``block``."""
        maker = Materializer(self._queries.symbols, block, is_trial=True)
        return maker.address(question.base, question.offset, question.width) is not None

    def is_convergent_edge(self, block: int, successor: int, home: int) -> bool:
        """Whether a load on the edge is in no arm of a divergent branch that block ``home`` is not in; always true
        for variants that do not avoid these arms."""
        if not self._options.avoids_divergent_arms:
            return True
        is_divergent = self._queries.divergence.is_divergent(block)
        if self._options.paper:
            cdrnd = self._cdrnd()
            if cdrnd[block] and not is_divergent:
                return True
            return cdrnd[successor] and len(self._facts.cfg.pred[successor]) == 1
        branches = self._branches_over(home)
        return self._branches_over(block) <= branches and (not is_divergent or block in branches)

    def is_convergent_block(self, block: int, home: int) -> bool:
        """The same for a load in ``block``."""
        return self._cdrnd()[block] if self._options.paper else self._branches_over(block) <= self._branches_over(home)

    def _branches_over(self, block: int) -> frozenset[int]:
        """The divergent branches that decide whether ``block`` is executed."""
        return self._queries.contexts.of(block)

    @memoized
    def _cdrnd(self) -> list[bool]:
        return self._queries.divergence.cdrnd()
