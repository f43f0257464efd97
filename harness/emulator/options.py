"""What the steps of an image do besides computing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """``fine``: segments end at memory accesses, for random schedules."""

    checks: bool = True
    counts: bool = True
    trace: bool = False
    fine: bool = False
