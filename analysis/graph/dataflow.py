"""The bit-vector dataflow solver.

A problem consists of a direction, a meet, the facts that each block generates and kills, and the facts that hold at the
boundary. Sets are Python integers, bit i for fact i, so that all facts are solved at once:

    forward     entry(b) = meet of exit(p) over the predecessors p;  exit(b) = gen(b) ∪ (entry(b) − kill(b))
    backward    exit(b) = meet of entry(s) over the successors s;    entry(b) = gen(b) ∪ (exit(b) − kill(b))

In a forward problem the boundary is part of the meet of block 0. In a backward problem it is part of the meet of each
block in which a thread may end, even if it has successors, and of `Cfg.endless`: otherwise every fact would be
anticipated at an endless loop.

Requires: gen and kill of every block are subsets of the universe.
Guarantees: the greatest fixed point if all meets are intersections, the least one if all are unions. If they are mixed,
by block or by block and fact, as in the down-safety of SSCM, neither is right: in the greatest one, any fact would hold
without a reason in a loop whose exit is a union block; in the least one, no fact would hold in an ordinary loop. The
result is then the least fixed point in the union blocks over the greatest in the others, above the solution in which
every meet is an intersection. So a fact holds at a union block only if a chain of successors (backward) leads to a
block where it holds for another reason.
Blocks are processed in reverse postorder of the direction.
Unreachable blocks are not processed. Both their sets are the neutral set of their meet (empty for a union, the universe
for an intersection).
Reference: Kam, Ullman, *Global data flow analysis and iterative algorithms*, JACM 1976.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from .cfg import Cfg, Flow

__all__ = ["Direction", "Meet", "Solution", "bits", "solve"]

Direction = Literal["forward", "backward"]
Meet = Literal["union", "intersection"]


class Solution(NamedTuple):
    """The facts at the start and at the end of each block, whatever the direction."""

    entry: list[int]
    exit: list[int]


def solve(
    cfg: Cfg,
    *,
    direction: Direction,
    meet: Meet,
    gen: Sequence[int],
    kill: Sequence[int],
    boundary: int,
    universe: int,
    meets: Sequence[Meet] | None = None,
    unions: Sequence[int] | None = None,
    strict: Solution | None = None,
) -> Solution:
    """Solve one problem. ``meets`` has the meet of each block, instead of ``meet`` for all. ``unions`` has for each
    block the facts whose meet is the union; for all other facts it is the intersection. ``strict``: the solution in
    which every meet is the intersection, if it is known.

    >>> from ptxmotion.analysis.graph.cfg import Cfg
    >>> from ptxmotion.ptx import Block
    >>> ring = Cfg([Block(), Block()], [[1], [1]], [1])
    >>> solve(ring, direction="forward", meet="union", gen=[1, 2], kill=[0, 1], boundary=0, universe=3)
    Solution(entry=[0, 3], exit=[1, 2])
    """
    equations = _Equations(cfg.forward if direction == "forward" else cfg.backward, gen, kill, boundary)
    if unions is None:
        each_meet = meets if meets is not None else [meet] * len(cfg)
        unions = [-1 if each == "union" else 0 for each in each_meet]
    # Unreachable blocks keep their neutral set; no other block reads it.
    source = [universe & ~facts for facts in unions]
    result = list(source)
    order = equations.flow.order
    mixed = [block for block in order if unions[block]]
    if not mixed or all(unions[block] == -1 for block in order):
        start = 0 if mixed else universe
        for block in order:
            result[block] = start
        equations.settle(unions, source, result)
    else:
        if strict is None:
            for block in order:
                result[block] = universe
            equations.settle([0] * len(unions), source, result)
        else:
            known = strict.exit if direction == "forward" else strict.entry
            for block in order:
                result[block] = known[block]
        _settle_mixed(equations, unions, mixed, universe, source, result)
    return Solution(source, result) if direction == "forward" else Solution(result, source)


def _settle_mixed(
    equations: _Equations, unions: Sequence[int], mixed: list[int], universe: int, source: list[int], result: list[int]
) -> None:
    """Solve mixed meets; see the header of the module. ``mixed`` are the blocks with unions; ``result`` is the solution
    in which every meet is an intersection. The sets only grow from round to round, so this ends."""
    while True:
        # Upward: the facts that follow without circular reasoning.
        equations.settle(unions, source, result)
        held = {block: result[block] & unions[block] for block in mixed}
        # Downward from the universe: a cycle may support its own facts only through intersections.
        for block in equations.flow.order:
            result[block] = universe & ~unions[block] | held.get(block, 0)
        equations.settle(unions, source, result, held)
        if all(equations.through(block, unions, source, result) & unions[block] == held[block] for block in mixed):
            return


class _Equations:
    """The equations of one problem, and the iteration over them."""

    def __init__(self, flow: Flow, gen: Sequence[int], kill: Sequence[int], boundary: int) -> None:
        self.flow = flow
        self.gen = gen
        self.kill = kill
        self.boundary = boundary

    def through(self, block: int, unions: Sequence[int], source: list[int], result: Sequence[int]) -> int:
        """The facts that flow out of ``block``. The facts that flow in are stored in ``source[block]``."""
        before, is_boundary = self.flow.before[block], block in self.flow.boundary
        union = unions[block]
        if union != -1:
            facts = self.boundary if is_boundary else -1
            for other in before:
                facts &= result[other]
        else:
            facts = 0
        if union:
            some = self.boundary if is_boundary else 0
            for other in before:
                some |= result[other]
            facts |= some & union
        source[block] = facts
        return self.gen[block] | (facts & ~self.kill[block])

    def settle(
        self, unions: Sequence[int], source: list[int], result: list[int], held: Mapping[int, int] | None = None
    ) -> None:
        """Iterate ``result`` to a fixed point.

        ``held`` has for each block the value that the facts with a union meet keep.
        """
        gen, kill, through = self.gen, self.kill, self.through
        only, order, position, after = self.flow.only, self.flow.order, self.flow.position, self.flow.after
        work: list[int] = []
        is_waiting = bytearray(len(position))

        def settled(block: int) -> bool:
            other = only[block]
            if other >= 0:  # a fast path, because most blocks have one predecessor
                facts = source[block] = result[other]
                facts = gen[block] | (facts & ~kill[block])
            else:
                facts = through(block, unions, source, result)
            if held is not None and unions[block]:
                facts = facts & ~unions[block] | held[block]
            if facts == result[block]:
                return True
            result[block] = facts
            return False

        for number, block in enumerate(order):
            if not settled(block):
                for other in after[block]:
                    # Later blocks are still to be processed in this first round.
                    if position[other] <= number and not is_waiting[other]:
                        is_waiting[other] = 1
                        work.append(position[other])
        heapq.heapify(work)
        while work:
            block = order[heapq.heappop(work)]
            is_waiting[block] = 0
            if not settled(block):
                for other in after[block]:
                    if not is_waiting[other]:
                        is_waiting[other] = 1
                        heapq.heappush(work, position[other])


def bits(facts: int) -> list[int]:
    """The numbers of the facts in a set, ascending, in time linear in its width and size.

    >>> bits(0b1011)
    [0, 1, 3]
    """
    numbers: list[int] = []
    if facts.bit_length() <= 256:
        while facts:
            lowest = facts & -facts
            numbers.append(lowest.bit_length() - 1)
            facts ^= lowest
        return numbers
    # On a wide set each step of the loop above would copy the whole integer.
    for offset, byte in enumerate(facts.to_bytes((facts.bit_length() + 7) // 8, "little")):
        while byte:
            lowest = byte & -byte
            numbers.append(8 * offset + lowest.bit_length() - 1)
            byte ^= lowest
    return numbers
