"""Code motion and scalar replacement alternately, until scalar replacement changes nothing.

When scalar replacement removes a load from a loop, the arithmetic on its result can move, too. When code motion gives
an address one name, scalar replacement can answer more queries. So sscm runs, then ssrqp, and both run again while
ssrqp changed something.

Requires, refuses: as its two passes. Guarantees: ends after at most ``rounds`` repetitions.
Reference: thesis §4.2 and §4.3; Click and Cooper, "Combining Analyses, Combining Optimizations", TOPLAS 1995 (why one
fixed order is not enough).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...analysis.manager import Facts
from ...ptx import Kernel
from ..passes import option
from ..remarks import Remarks
from ..scalar_replacement.passes import SpeculativeScalarReplacement
from .sparse_code_motion import SpeculativeSparseCodeMotion

__all__ = ["MotionFixpoint"]


@dataclass(frozen=True)
class MotionFixpoint:
    """Repeats sscm and ssrqp until nothing changes."""

    rounds: int = option(3, "the most repetitions")
    threshold: int = option(4, "of ssrqp: keep a value in registers over at most this many loop iterations")
    forwarding: bool = option(True, "of ssrqp: let a load take its value from a store")

    name: ClassVar[str] = "motion"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Transform ``kernel``; whether anything changed."""
        moving = SpeculativeSparseCodeMotion()
        replacing = SpeculativeScalarReplacement(threshold=self.threshold, forwarding=self.forwarding)
        changed = False
        complete_version: int | None = None  # the version of the kernel in which ssrqp finds nothing
        for _ in range(self.rounds):
            changed |= moving.run(kernel, facts, remarks)
            if kernel.version == complete_version:
                break
            progress = replacing.replace(kernel, facts, remarks)
            if not progress.changed:
                break
            changed = True
            complete_version = kernel.version if progress.is_complete else None
        return changed
