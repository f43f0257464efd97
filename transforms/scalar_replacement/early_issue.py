"""Decides whether a load is issued earlier: at the end of the block above, under the predicate of the branch there.

It is executed as often as before. More of its latency overlaps with other work.
"""

from __future__ import annotations

from ...analysis.values.symbolic_values import Materializer
from ...ptx import Guard
from ...ptx.operations import Operation
from .block_answers import THROUGH
from .decisions import EarlyIssue, Load
from .queries import Queries

__all__ = ["issue_early"]


def issue_early(load: Load, queries: Queries) -> EarlyIssue | None:
    """How ``load`` can be issued at the end of the block above; `None` if this is not possible.

    The block above must be the only predecessor and end in a conditional branch. Nothing between its end and the load
    may stop the load (a pinch) or answer its question, and the address must be computable there.
    """
    cfg = queries.facts.cfg
    component, predecessors = load.movable, cfg.pred[load.block]
    if component is None or len(predecessors) != 1:
        return None
    (above,) = predecessors
    branch = cfg.blocks[above].terminator
    if (
        branch is None
        or branch.form.operation is not Operation.BRANCH
        or branch.guard is None
        or len(cfg.succ[above]) != 2
    ):
        return None
    if any(position < load.position for position in queries.accesses.pinches.get(load.block, ())):
        return None
    if queries.search.within(load.block, component.question, load.position) is not THROUGH:
        return None
    question = queries.names.before_edge(component.question, above, load.block)
    if question is None:
        return None
    maker = Materializer(queries.symbols, above, is_trial=True)
    if maker.address(question.base, question.offset, question.width) is None or maker.code:
        return None
    is_taken = cfg.blocks[load.block].label is branch.operands[0]
    guard = Guard(branch.guard.reg, negated=branch.guard.negated == is_taken)
    return EarlyIssue(load, above, question, guard)
