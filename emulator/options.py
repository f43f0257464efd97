"""The options of an image: what its steps do in addition to the computation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """``checks``, ``counts`` and ``trace`` select what is recorded.

    ``fine``: segments end at memory accesses, for random schedules. ``by_block``: each block begins a segment, also an
    empty block, so that its iterations can be counted.
    """

    checks: bool = True
    counts: bool = True
    trace: bool = False
    fine: bool = False
    by_block: bool = False
