"""Which branches are expected to part warps: measured where there is a profile, called divergent elsewhere.

Computes: for each block whether the branch at its end is expected to diverge, and the CDRND of these branches. A
branch that is proved uniform never is. Of those that are called divergent, one that has been measured counts as
divergent where it parted a warp in more than `RARELY` of its executions; one that was not executed, or of which no
profile tells, keeps the pessimistic answer.

For profitability only. A branch that never diverged in a run may diverge in the next: what rests on lanes being
together asks `Divergence` (see `profile.py` for who may use what).
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

#: The share of executions up to which a branch that parts warps is taken for one that does not: a bounds check parts
#: one warp of the grid.
RARELY = 1 / 32


class ExpectedDivergence:
    """Expected divergence of the kernel that ``divergence`` is about; without ``profile`` it is the same."""

    def __init__(self, divergence: Divergence, profile: Profile | None) -> None:
        self.divergence = divergence
        self.profile = profile

    @classmethod
    def of(cls, facts: Facts) -> ExpectedDivergence:
        """The expected divergence of the kernel that ``facts`` is about, by the profile given there."""
        return cls(facts.branch_divergence, facts.profile)

    def measured(self, block: int) -> tuple[int, int] | None:
        """How often the branch at the end of ``block`` was executed and parted a warp, where that was measured."""
        terminator = self.divergence.cfg.blocks[block].terminator
        return self.profile.branch(terminator) if self.profile is not None and terminator is not None else None

    def is_divergent(self, block: int) -> bool:
        """Whether the branch at the end of ``block`` is expected to part warps."""
        if not self.divergence.is_divergent(block):
            return False
        counts = self.measured(block)
        return counts is None or counts[1] > RARELY * counts[0]

    @cached_property
    def divergent_branches(self) -> list[int]:
        """The blocks that end in a branch that is expected to part warps, ascending."""
        return [block for block in self.divergence.divergent_branches if self.is_divergent(block)]

    @cached_property
    def cdrnd(self) -> list[bool]:
        """For each block whether it depends on no branch that is expected to part warps."""
        return self.divergence.dependence.cdrnd(self.divergent_branches)
