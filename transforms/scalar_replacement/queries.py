"""What answers the questions about the loads of a kernel, made once for a kernel as it is.

What has been found out holds until something is written, whichever loads are to be replaced: a round that is asked
again with other loads asks only what is new.
"""

from __future__ import annotations

from ...analysis.manager import Facts
from ...analysis.values.symbolic_values import SymbolicValues
from ..code_motion.anticipation import Anticipation
from ..code_motion.branch_divergence import BranchDivergence, Contexts
from .access_index import Accesses
from .question_propagation import Availability

__all__ = ["Questions"]


class Questions:
    """The options are those of `Availability`."""

    def __init__(
        self, facts: Facts, divergence: BranchDivergence | None, *, threshold: int, budget: int, forwarding: bool
    ) -> None:
        self.symbols = SymbolicValues(facts)
        self.accesses = Accesses(facts, self.symbols)
        self.availability = Availability(
            facts, self.symbols, self.accesses, threshold=threshold, budget=budget, forwarding=forwarding
        )
        self.anticipation = Anticipation(facts, self.symbols, self.accesses)
        self.divergence = divergence
        self.contexts = Contexts(divergence, facts) if divergence is not None else None
