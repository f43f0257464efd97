"""The classes that a thread may never evaluate after the header of a loop because it may stay in the loop forever.

A load that may fault is inserted only where every path onward reaches its address after finitely many steps. Otherwise
a kernel that waits in a loop, or never ends, would fault. The equations of code motion are solved for their greatest
solution, in which a property may hold around a loop without a reason. So for each loop without a proof that it ends
(`FiniteLoops`), this module finds the classes that some iteration does not evaluate. They do not count as anticipated
at the header of the loop.

Guarantees: if a class is anticipated although these sets are killed at the headers, no infinite path avoids its
evaluation. Proof: an infinite path stays in some loop without a proof of its end and passes the header of that loop
again and again without an evaluation in between (every cycle of a loop that does not pass its header lies in an inner
loop).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.graph.finite_loops import FiniteLoops
from ...analysis.graph.loops import Loop
from ...analysis.manager import Facts

__all__ = ["endless_at_headers"]


def endless_at_headers(facts: Facts, antloc: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """By block, if it is a loop header: the classes in ``wanted`` that a thread may never evaluate after its start.
    ``antloc`` and ``wanted`` are by block; ``antloc`` are the classes that the block evaluates. Classes are bits."""
    missed = [0] * len(facts.cfg)
    for loop in facts.loops.loops:
        header = loop.header
        candidates = wanted[header] & ~antloc[header]
        if candidates and not facts.get(FiniteLoops).is_finite(loop):
            missed[header] |= candidates & ~_evaluated_each_turn(facts, loop, antloc, candidates)
    return missed


def _evaluated_each_turn(facts: Facts, loop: Loop, antloc: Sequence[int], candidates: int) -> int:
    """The classes of ``candidates`` that every path from the header of the loop back to the header evaluates."""
    cfg, header = facts.cfg, loop.header
    number = cfg.rpo_number
    order = sorted(loop.blocks, key=lambda block: -number[block])
    reached = dict.fromkeys(order, candidates)
    changed = True
    while changed:
        changed = False
        for block in order:
            after = candidates
            for successor in cfg.succ[block]:
                if successor == header:
                    after = 0
                elif successor in reached:
                    after &= reached[successor]
            evaluated = after | antloc[block] & candidates
            if evaluated != reached[block]:
                reached[block] = evaluated
                changed = True
    return reached[header]
