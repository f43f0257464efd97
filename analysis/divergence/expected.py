"""Which branches are expected to diverge: measured if there is a profile, else as `Divergence` says.

Computes: for each block whether the branch at its end is expected to diverge, and the CDRND of these branches. A branch
that is proved uniform is never expected to diverge. Of the other branches, a measured one is expected to diverge if
warps diverged in more than `RARELY` of its executions. One that was not executed or not measured is expected to
diverge.

For estimates of cost only. A branch that never diverged in one run may diverge in the next. An analysis that depends on
lanes being together must use `Divergence` (see `profile.py`).
Reference: Fukuhara's thesis, §4.3 (CDRND), §7.2 (dynamic divergence).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..profile import Profile
from .divergence import Divergence

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["RARELY", "ExpectedDivergence"]

#: Up to this share of divergent executions a branch counts as uniform: at a bounds check one warp of the grid diverges.
RARELY = 1 / 32


class ExpectedDivergence:
    """The expected divergence of the kernel of ``divergence``. Without ``profile`` both are equal."""

    def __init__(self, divergence: Divergence, profile: Profile | None) -> None:
        self.divergence = divergence
        self.profile = profile

    @classmethod
    def of(cls, facts: Facts) -> ExpectedDivergence:
        """The expected divergence of the kernel of ``facts``, with the profile of ``facts``."""
        return cls(facts.branch_divergence, facts.profile)

    def measured(self, block: int) -> tuple[int, int] | None:
        """(executions of the branch at the end of ``block`` by warps, those that diverged); ``None`` if not
        measured."""
        terminator = self.divergence.cfg.blocks[block].terminator
        return self.profile.branch(terminator) if self.profile is not None and terminator is not None else None

    def is_divergent(self, block: int) -> bool:
        """Whether the branch at the end of ``block`` is expected to diverge."""
        if not self.divergence.is_divergent(block):
            return False
        counts = self.measured(block)
        return counts is None or counts[1] > RARELY * counts[0]

    @cached_property
    def divergent_branches(self) -> list[int]:
        """The blocks that end in a branch that is expected to diverge, ascending."""
        return [block for block in self.divergence.divergent_branches if self.is_divergent(block)]

    @cached_property
    def cdrnd(self) -> list[bool]:
        """By block: whether it is control-dependent on no branch that is expected to diverge."""
        return self.divergence.dependence.cdrnd(self.divergent_branches)
