"""How often each block runs per execution of the kernel by a warp: measured, or estimated from the loop depth.

Computes: a weight for each block. Without a matching profile it is `cost.loop_weight` of the loop depth. With a profile
it is the number of times that warps entered the block, divided by the number of times that they entered the kernel. For
a block that a transform made, the count is the smaller of the sums over its predecessors and over its successors. A
block that was never entered has the weight `NEVER`, so that its code is not free.

Guarantees: weights are positive; those of one kernel are all measured or all estimated. For estimates of cost only
(`profile.py`).
Reference: LLVM's ``BlockFrequencyInfo``, which has the same purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...cost import loop_weight

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["NEVER", "block_weights"]

NEVER = 1 / 1024


def block_weights(facts: Facts) -> list[float]:
    """The weight of each block of the kernel of ``facts``, by block."""
    estimate = [loop_weight(depth) for depth in facts.loops.depth]
    profile = facts.profile
    if profile is None or profile.match(facts.kernel):
        return estimate
    cfg = facts.cfg
    counts = [profile.block(block) for block in cfg.blocks]
    first = next((count for count in (counts[block] for block in cfg.rpo) if count is not None), None)
    if not first:
        return estimate  # the kernel was never entered
    for block, count in enumerate(counts):
        if count is None:
            counts[block] = _between(counts, cfg.pred[block], cfg.succ[block])
    return [max(count / first, NEVER) if count is not None else NEVER for count in counts]


def _between(counts: list[int | None], before: list[int], after: list[int]) -> int | None:
    """An upper bound of the count of a block: the sum over its predecessors, and over its successors, if all of their
    counts are known; ``None`` if neither sum is known."""
    sums: list[int] = []
    for neighbours in (before, after):
        neighbour_counts = [counts[block] for block in neighbours]
        numbers = [count for count in neighbour_counts if count is not None]
        if neighbour_counts and len(numbers) == len(neighbour_counts):
            sums.append(sum(numbers))
    return min(sums) if sums else None
