"""All queries about the loads of one version of a kernel.

Every answer is memoized. The answers stay valid until the kernel changes, and do not depend on which loads are to be
replaced. So all attempts of a round share one `Queries`.
"""

from __future__ import annotations

from ...analysis.manager import Facts
from ...analysis.values.symbolic_values import SymbolicValues
from ..code_motion.branch_divergence import BranchDivergence, Contexts
from .access_index import Accesses
from .anticipation import Anticipation
from .options import Options
from .question_propagation import Availability

__all__ = ["Queries"]


class Queries:
    """The queries that decisions under ``options`` need."""

    def __init__(self, facts: Facts, options: Options) -> None:
        self.facts = facts
        self.symbols = symbols = SymbolicValues(facts)
        self.accesses = accesses = Accesses(facts, symbols)
        self.availability = Availability(
            facts,
            symbols,
            accesses,
            threshold=1 if options.paper else options.threshold,
            budget=options.budget,
            forwarding=options.forwarding and not options.paper,
        )
        self.search = self.availability.search
        self.names = self.availability.names
        self.candidates = self.availability.candidates
        self.anticipation = Anticipation(facts, symbols, accesses)
        self.divergence = BranchDivergence(facts)
        self.contexts = Contexts(self.divergence, facts)
