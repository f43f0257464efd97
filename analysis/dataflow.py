"""The bit-vector dataflow solver.

A problem is its fields: a direction, a meet, and for each block the facts that it generates and kills; with the facts
that hold at the boundary. Sets are Python integers, bit i for fact i, so that all facts are solved at once:

    forward     entry(b) = meet of exit(p) over the predecessors p;  exit(b) = gen(b) ∪ (entry(b) − kill(b))
    backward    exit(b) = meet of entry(s) over the successors s;    entry(b) = gen(b) ∪ (exit(b) − kill(b))

Forward, the boundary enters the meet of block 0; backward, that of each block in which a thread may end, those with
other successors included, and of `Cfg.endless`: otherwise everything would be anticipated at an endless loop.

Requires: gen and kill of every block within the universe.
Guarantees: the greatest fixed point where all meets are intersections, the least one where all are unions. Where they
are mixed, by block or by block and fact, as in the down-safety of SSCM, neither will do: with the greatest, a loop that
leaves by a union block would hold up any fact by itself, and with the least, no fact would hold in an ordinary loop.
There it is the least fixed point in the union blocks over the greatest in the others, above the solution in which every
meet is an intersection: a fact holds at a union block only if a chain of successors (backward) leads to where it holds
for another reason.
Blocks are taken in reverse postorder of the direction, the first that needs it first.
Blocks that block 0 does not reach take no part: they hold their meet's neutral set (nothing for a union, the universe
for an intersection) at both ends, which is vacuously right there.
Reference: Kam, Ullman, *Global data flow analysis and iterative algorithms*, JACM 1976.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from .cfg import Cfg

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
    """Solve one problem. ``meets`` gives each block a meet of its own instead of ``meet``; or ``unions`` gives for each
    block the facts whose meet is the union there, while that of all others is the intersection. ``strict`` is the
    solution in which every meet is the intersection, where it is known.

    >>> from ptxmotion.analysis.cfg import Cfg
    >>> from ptxmotion.ptx import Block
    >>> ring = Cfg([Block(), Block()], [[1], [1]], [1])
    >>> solve(ring, direction="forward", meet="union", gen=[1, 2], kill=[0, 1], boundary=0, universe=3)
    Solution(entry=[0, 3], exit=[1, 2])
    """
    equations = _Equations(cfg, direction == "forward", gen, kill, boundary)
    if unions is None:
        each_meet = meets if meets is not None else [meet] * len(cfg)
        unions = [-1 if each == "union" else 0 for each in each_meet]
    # What does not take part holds its neutral set; nothing reads it.
    source = [universe & ~facts for facts in unions]
    result = list(source)
    mixed = [block for block in equations.order if unions[block]]
    if not mixed or all(unions[block] == -1 for block in equations.order):
        start = 0 if mixed else universe
        for block in equations.order:
            result[block] = start
        equations.settle(unions, source, result)
    else:
        if strict is None:
            for block in equations.order:
                result[block] = universe
            equations.settle([0] * len(unions), source, result)
        else:
            known = strict.exit if direction == "forward" else strict.entry
            for block in equations.order:
                result[block] = known[block]
        _settle_mixed(equations, unions, mixed, universe, source, result)
    return Solution(source, result) if direction == "forward" else Solution(result, source)


def _settle_mixed(
    equations: _Equations, unions: Sequence[int], mixed: list[int], universe: int, source: list[int], result: list[int]
) -> None:
    """See the module's header; ``mixed`` are the blocks with unions, and ``result`` is the solution in which every meet
    is an intersection. Values only grow from round to round, so that there is an end."""
    while True:
        # Upward: all that follows without going round in a circle.
        equations.settle(unions, source, result)
        held = {block: result[block] & unions[block] for block in mixed}
        # Downward from the universe: circles through intersections only may hold up a fact.
        for block in equations.order:
            result[block] = universe & ~unions[block] | held.get(block, 0)
        equations.settle(unions, source, result, held)
        if all(equations.flow(block, unions, source, result) & unions[block] == held[block] for block in mixed):
            return


class _Equations:
    """The equations of one problem, and the iteration over them."""

    def __init__(self, cfg: Cfg, is_forward: bool, gen: Sequence[int], kill: Sequence[int], boundary: int) -> None:
        self.gen = gen
        self.kill = kill
        self.boundary = boundary
        self.order = cfg.rpo if is_forward else cfg.rpo[::-1]
        before = cfg.pred if is_forward else cfg.succ
        self.after = cfg.succ if is_forward else cfg.pred
        self.reachable = reachable = cfg.reachable
        if not all(reachable):
            before = [[other for other in others if reachable[other]] for others in before]
        self.before = before
        self.at_boundary = bytearray(len(cfg))
        for block in cfg.rpo[:1] if is_forward else cfg.leaves:
            self.at_boundary[block] = 1
        self.position = [0] * len(cfg)
        for number, block in enumerate(self.order):
            self.position[block] = number

    def flow(self, block: int, unions: Sequence[int], source: list[int], result: Sequence[int]) -> int:
        """What flows out of ``block``; what flows in is noted in ``source``."""
        before = self.before[block]
        if len(before) == 1 and not self.at_boundary[block]:
            facts = result[before[0]]
        else:
            union = unions[block]
            if union != -1:
                facts = self.boundary if self.at_boundary[block] else -1
                for other in before:
                    facts &= result[other]
            else:
                facts = 0
            if union:
                some = self.boundary if self.at_boundary[block] else 0
                for other in before:
                    some |= result[other]
                facts |= some & union
        source[block] = facts
        return self.gen[block] | (facts & ~self.kill[block])

    def settle(
        self, unions: Sequence[int], source: list[int], result: list[int], held: Mapping[int, int] | None = None
    ) -> None:
        """Bring ``result`` to a fixed point from where it is; with ``held``, facts whose meet is the union keep what is
        held of them."""
        order, position, after, reachable = self.order, self.position, self.after, self.reachable
        work: list[int] = []
        is_waiting = bytearray(len(position))
        for number, block in enumerate(order):
            facts = self.flow(block, unions, source, result)
            if held is not None and unions[block]:
                facts = facts & ~unions[block] | held[block]
            if facts != result[block]:
                result[block] = facts
                for other in after[block]:
                    # What stands later is still to come in this first round.
                    if reachable[other] and position[other] <= number and not is_waiting[other]:
                        is_waiting[other] = 1
                        work.append(position[other])
        heapq.heapify(work)
        while work:
            block = order[heapq.heappop(work)]
            is_waiting[block] = 0
            facts = self.flow(block, unions, source, result)
            if held is not None and unions[block]:
                facts = facts & ~unions[block] | held[block]
            if facts == result[block]:
                continue
            result[block] = facts
            for other in after[block]:
                if reachable[other] and not is_waiting[other]:
                    is_waiting[other] = 1
                    heapq.heappush(work, position[other])


def bits(facts: int) -> list[int]:
    """The numbers of the facts in a set, ascending, in time linear in its width and size.

    >>> bits(0b1011)
    [0, 1, 3]
    """
    found: list[int] = []
    if facts.bit_length() <= 256:
        while facts:
            lowest = facts & -facts
            found.append(lowest.bit_length() - 1)
            facts ^= lowest
        return found
    # On a wide set each step of that loop would copy the whole of it.
    for offset, byte in enumerate(facts.to_bytes((facts.bit_length() + 7) // 8, "little")):
        while byte:
            lowest = byte & -byte
            found.append(8 * offset + lowest.bit_length() - 1)
            byte ^= lowest
    return found
