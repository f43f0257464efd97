"""Remarks about the decisions of scalar replacement."""

from __future__ import annotations

from ...analysis.graph.cfg import Cfg
from ...ptx import Kernel
from ..remarks import Remarks, block_names
from .decisions import REASONS, EarlyIssue, Refusal, Replacement

__all__ = ["Reporter"]


class Reporter:
    """Adds remarks of pass ``name`` about ``kernel``, whose graph is ``cfg``."""

    def __init__(self, name: str, kernel: Kernel, cfg: Cfg, remarks: Remarks) -> None:
        self._name = name
        self._kernel = kernel
        self._cfg = cfg
        self._remarks = remarks

    def refused(self, refusal: Refusal) -> None:
        """Report why a load is not replaced."""
        instr, reason = refusal.load.instr, refusal.reason
        message = f"'{instr.form.text}' is not replaced: {REASONS[reason]}"
        self._remarks.add("Missed", self._name, "NotReplaced", self._kernel, message, instr=instr, reason=reason)
        self._count(f"refused: {reason}")

    def issued_early(self, decision: EarlyIssue) -> None:
        """Report a load that is issued early."""
        instr = decision.load.instr
        where = self._block(decision.block)
        message = f"'{instr.form.text}' is issued at the end of {where}, under the predicate of the branch there"
        self._remarks.add("Passed", self._name, "Early", self._kernel, message, instr=instr)
        self._count("loads issued early")

    def replaced(self, decision: Replacement) -> None:
        """Report a load that is replaced, and where its bytes are loaded instead."""
        instr, insertions, blocks = decision.load.instr, decision.insertions, sorted(decision.hoisted_to)
        name, where = "Redundant", ""
        if blocks:
            name, where = "Hoisted", f"; loaded at the end of {', '.join(map(self._block, blocks))}"
        elif insertions:
            edges = ["→".join(map(self._block, edge)) for edge in dict.fromkeys(insertions)]
            name, where = "Moved", f"; loaded on {', '.join(edges)}"
        message = f"'{instr.form.text}' is replaced by a register{where}"
        self._remarks.add("Passed", self._name, name, self._kernel, message, instr=instr)
        self._count("loads removed")
        self._count("loads inserted", len(set(insertions)))
        self._count("loads hoisted", len(blocks))

    def _count(self, what: str, number: int = 1) -> None:
        self._remarks.count(self._kernel, self._name, what, number)

    def _block(self, number: int) -> str:
        return block_names(self._cfg.blocks, [number])[0]
