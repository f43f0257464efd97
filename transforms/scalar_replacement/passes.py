"""Scalar replacement by question propagation: SRQP, ESRQP, SSRQP_S, SSRQP (thesis §4.3, §4.5).

For each load, the question whether its bytes are available is propagated backward. Where they are available on every
path, the value stays in registers (`register_chains.py`) and the load is removed. Where they are available on some
paths only, a load is inserted on the others, if the bytes are read on every path from there. The four variants:

    srqp      inserts loads on any edge
    esrqp     does not insert in an arm of a divergent branch that the load itself is not in
    ssrqp_s   as esrqp, and hoists loads that are not redundant above any branch on which they depend
    ssrqp     as ssrqp_s, but above divergent branches only

Where this differs from the paper, ``paper=true`` gives the paper's behaviour: values are kept for one iteration of a
loop instead of ``threshold``; the CDRND is taken literally (a load in an arm of a divergent branch then never gets an
insertion before a loop in the same arm); stores are not forwarded; loads are hoisted even where no other load becomes
redundant. In every mode an inserted load must not be able to fault: the address is dereferenced on every path from
there, or lies in a declared object. Other insertions are refused (``may-fault``), unless ``readable=true`` promises
that every address that the kernel computes for a load may be read at any time.

Guarantees: results stay bit-identical. In ``srqp`` and ``esrqp`` no thread executes more loads on any path, unless
``paper`` or ``readable`` is set: then the last iteration of a loop may load what a next one would need. Volatile,
atomic and ordered accesses are not changed. Like barriers, fences and calls, they kill every question about memory that
may be written. Refuses: see `REASONS`.
Reference: thesis §4.3 and §4.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...analysis.manager import Facts
from ...ptx import Instr, Kernel
from ..cleanup.copy_propagation import CopyPropagation
from ..cleanup.dead_code import DeadCodeElimination
from ..remarks import Remarks
from .decisions import REASONS
from .options import Options
from .queries import Queries
from .round import Round, is_candidate

__all__ = [
    "REASONS",
    "ExtendedScalarReplacement",
    "Progress",
    "ScalarReplacement",
    "SpeculativeScalarReplacement",
    "SpeculativeScalarReplacementEverywhere",
]

#: The largest number of attempts of a round. Each attempt may exclude more loads from insertions; after the last one,
#: no load gets any.
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """``changed``: whether the kernel changed. ``is_complete``: whether another run over the kernel as it is now would
    change nothing."""

    changed: bool
    is_complete: bool


@dataclass(frozen=True)
class ScalarReplacement(Options):
    """Scalar replacement: keeps loaded and stored values in registers; inserts loads on other paths."""

    name: ClassVar[str] = "srqp"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Replace loads in ``kernel``; whether anything changed."""
        return self.replace(kernel, facts, remarks).changed

    def replace(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> Progress:
        """Replace loads in ``kernel`` in at most ``rounds`` rounds."""
        if not self._has_candidate(kernel, remarks):
            return Progress(changed=False, is_complete=True)
        changed = False
        for number in range(self.rounds):
            current = self._decided_round(kernel, facts, remarks)
            current.rewrite()
            if not current.accepted or number == self.rounds - 1:
                current.report_refusals()  # not before: a later round may replace what an earlier round refused
            if not current.accepted:
                return Progress(changed, is_complete=True)
            changed = True
            CopyPropagation().run(kernel, facts, remarks)
            DeadCodeElimination().run(kernel, facts, remarks)
            if not self._has_candidate(kernel, remarks):
                return Progress(changed, is_complete=True)
        return Progress(changed, is_complete=False)

    def _has_candidate(self, kernel: Kernel, remarks: Remarks) -> bool:
        return any(is_candidate(instr) and remarks.allows(self.name, instr) for instr in kernel.instructions())

    def _decided_round(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> Round:
        """A round whose decisions add no loads to any path, ready to be written."""
        queries = Queries(facts, self)
        excluded: set[Instr] = set()
        rewrites, keys = remarks.rewrites, dict(remarks.keys)
        for _ in range(MOST_ATTEMPTS):
            current = Round(self, kernel, queries, remarks, excluded)
            unbalanced = current.decide()
            if not unbalanced:
                return current
            excluded |= unbalanced
            remarks.rewrites, remarks.keys = rewrites, dict(keys)
        current = Round(self, kernel, queries, remarks, frozenset(kernel.instructions()))
        current.decide()
        return current


@dataclass(frozen=True)
class ExtendedScalarReplacement(ScalarReplacement):
    """As srqp, but inserts no load in an arm of a divergent branch."""

    name: ClassVar[str] = "esrqp"
    avoids_divergent_arms: ClassVar[bool] = True


@dataclass(frozen=True)
class SpeculativeScalarReplacementEverywhere(ExtendedScalarReplacement):
    """As esrqp; loads may also move above every branch."""

    name: ClassVar[str] = "ssrqp_s"
    hoists_above: ClassVar[str] = "all"


@dataclass(frozen=True)
class SpeculativeScalarReplacement(ExtendedScalarReplacement):
    """As esrqp; loads may also move above divergent branches."""

    name: ClassVar[str] = "ssrqp"
    hoists_above: ClassVar[str] = "divergent"
