"""What is not certain to be reached behind the start of a loop, since a thread may go round in the loop for ever.

A load that may fault is inserted only where every way on reaches its address after finitely many steps: else a kernel
that waits in a loop, or never ends, would fault instead. The equations of code motion are solved for their greatest
solution, in which a fact may hold around a loop by itself. So for each loop that is not shown to end (`FiniteLoops`)
the classes are found that some turn does not evaluate; they do not count as anticipated at the loop's header.

Guarantees: where a class is anticipated with these sets killed at the headers, no way goes on for ever without an
evaluation of it. For an endless way would stay in some loop that is not shown to end and pass its header again and
again, without an evaluation in between (every cycle of a loop that does not pass its header lies in an inner loop).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.graph.finite_loops import FiniteLoops
from ...analysis.graph.loops import Loop
from ...analysis.manager import Facts

__all__ = ["endless_at_headers"]


def endless_at_headers(facts: Facts, antloc: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """By block, the classes that are not certain to be reached behind its start because it is the header of a loop.
    ``antloc`` are the classes that each block evaluates, ``wanted`` those that are asked about, as bits."""
    found = [0] * len(facts.cfg)
    for loop in facts.loops.loops:
        header = loop.header
        asked = wanted[header] & ~antloc[header]
        if asked and not facts.get(FiniteLoops).is_finite(loop):
            found[header] |= asked & ~_evaluated_each_turn(facts, loop, antloc, asked)
    return found


def _evaluated_each_turn(facts: Facts, loop: Loop, antloc: Sequence[int], asked: int) -> int:
    """The classes of ``asked`` that every way from the header of the loop back to it evaluates."""
    cfg, header = facts.cfg, loop.header
    number = cfg.rpo_number
    order = sorted(loop.blocks, key=lambda block: -number[block])
    reached = dict.fromkeys(order, asked)
    changed = True
    while changed:
        changed = False
        for block in order:
            behind = asked
            for successor in cfg.succ[block]:
                if successor == header:
                    behind = 0
                elif successor in reached:
                    behind &= reached[successor]
            now = behind | antloc[block] & asked
            if now != reached[block]:
                reached[block] = now
                changed = True
    return reached[header]
