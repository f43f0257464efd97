"""What the steps of an image do besides computing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """``fine``: segments end at memory accesses, for random schedules; ``by_block``: each block begins one, also an
    empty one, so that its rounds can be counted."""

    checks: bool = True
    counts: bool = True
    trace: bool = False
    fine: bool = False
    by_block: bool = False
