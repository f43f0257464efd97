"""The options of scalar replacement, and what its variants differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """``threshold``: over how many iterations of a loop a value may be kept. ``forwarding``: loads take what stores
    wrote. ``guarded``: a load that is not replaced is issued at the end of the block above, under the predicate of its
    branch. ``registers``: the limit on the estimated register pressure (0: what the kernel's directives leave a
    thread). ``rounds``: the most repetitions. ``budget``: the most states of one exploration. ``readable``: promises
    that every address that the kernel computes for a load may be read at any time. ``paper``: the paper's behaviour
    where ours differs; `passes.py` lists the differences.
    """

    threshold: int = 4
    forwarding: bool = True
    guarded: bool = False
    registers: int = 0
    rounds: int = 3
    budget: int = 200
    readable: bool = False
    paper: bool = False

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
