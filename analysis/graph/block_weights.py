"""How often each block runs, for each time that a warp enters the kernel: measured, or estimated by loop depth.

Computes: for each block a weight. Without a profile that matches it is `cost.loop_weight` of its depth. With one it is
the number of times that warps entered the block, divided by those that entered the kernel; a
block that a transform has made has what its predecessors or successors allow, whichever is less; one that was never
entered has `NEVER`, so that it costs something still.

Guarantees: weights are positive; those of one kernel are all measured or all estimated. For profitability only
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
    """The weight of each block of the kernel that ``facts`` is about."""
    estimate = [loop_weight(depth) for depth in facts.loops.depth]
    profile = facts.profile
    if profile is None or profile.match(facts.kernel):
        return estimate
    cfg = facts.cfg
    counts = [profile.block(block) for block in cfg.blocks]
    first = next((count for count in (counts[block] for block in cfg.rpo) if count is not None), None)
    if not first:
        return estimate  # it was never entered
    for block, count in enumerate(counts):
        if count is None:
            counts[block] = _between(counts, cfg.pred[block], cfg.succ[block])
    return [max(count / first, NEVER) if count is not None else NEVER for count in counts]


def _between(counts: list[int | None], before: list[int], after: list[int]) -> int | None:
    """What may have passed: no more than came, and no more than went on; ``None`` where neither is known."""
    sums: list[int] = []
    for neighbours in (before, after):
        known = [counts[block] for block in neighbours]
        numbers = [count for count in known if count is not None]
        if known and len(numbers) == len(known):
            sums.append(sum(numbers))
    return min(sums) if sums else None
