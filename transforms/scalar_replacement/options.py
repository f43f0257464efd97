"""The options of scalar replacement, and what its variants differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..passes import option

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The options of the four passes. ``readable`` is a promise of the user. `passes.py` says what ``paper`` does."""

    threshold: int = option(4, "keep a value in registers over at most this many loop iterations")
    forwarding: bool = option(True, "let a load take its value from a store")
    guarded: bool = option(False, "issue a load that stays in the block above, under the predicate of its branch")
    registers: int = option(0, "the limit of estimated register pressure; 0: from the directives of the kernel")
    rounds: int = option(3, "the most repetitions")
    budget: int = option(200, "the most states that the analysis visits for one load")
    readable: bool = option(False, "assume that every address that the kernel computes for a load is always readable")
    paper: bool = option(False, "behave as the paper describes, for comparison")

    #: The name of the pass.
    name: ClassVar[str] = ""
    #: Whether a load is inserted in an arm of a divergent branch only where the replaced load is in that arm.
    avoids_divergent_arms: ClassVar[bool] = False
    #: Above which branches loads are hoisted: ``no`` branch, ``divergent`` ones, or ``all``.
    hoists_above: ClassVar[str] = "no"

    @property
    def may_add_loads(self) -> bool:
        """Whether a path may execute more loads than before."""
        return self.paper or self.readable
