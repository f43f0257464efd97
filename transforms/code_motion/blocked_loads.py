"""Why a load that is evaluated again stays where it is: what stands between it and the evaluation before.

Computes: for each load that a way through the kernel evaluates again with the same operands, round a loop or in another
place, the nearest instruction on that way that may change what it reads, as a remark, from the load's block to that of
the obstacle. Walks backwards from the load
through the control-flow graph, across whatever touches memory, up to evaluations of the same value and to definitions
of its operands.

Requires: classes of `expressions.py`. Guarantees: nothing is changed; linear in the code for each load. It is asked for
only where somebody reads remarks.
"""

from __future__ import annotations

from collections import deque

from ...analysis.effects import REASONS
from ...analysis.manager import Facts
from ...ptx import Instr, Kernel
from ..remarks import Remarks, block_names
from .expressions import Candidates, ExpressionClass

__all__ = ["explain_loads"]


def explain_loads(kernel: Kernel, facts: Facts, found: Candidates, remarks: Remarks, pass_name: str) -> None:
    """Add a remark for each load that is kept from being reused."""
    for item in found.classes:
        if not item.is_mutable or item.is_unwritten:
            continue
        for occurrence in item.occurrences:
            blocker = _blocker(facts, found, item, occurrence.block, occurrence.instr)
            if blocker is not None:
                _say(kernel, facts, remarks, pass_name, occurrence.instr, occurrence.block, *blocker)


def _blocker(
    facts: Facts, found: Candidates, item: ExpressionClass, block: int, load: Instr
) -> tuple[Instr, int, str] | None:
    """The nearest instruction before the load that may change it, with its block and the id of the reason; none where
    no evaluation of the same value comes before."""
    same = {occurrence.instr for occurrence in item.occurrences}
    nearest: tuple[Instr, int, str] | None = None
    is_evaluated_before = False
    instrs = facts.cfg.blocks[block].instrs
    work = deque([(block, instrs[: instrs.index(load)])])
    seen: set[int] = set()
    while work:
        here, code = work.popleft()
        ends = False
        for instr in reversed(code):
            is_evaluated_before |= instr in same
            ends = instr in same or not item.names.isdisjoint(found.naming.defined_names(instr))
            if ends:
                break
            why = facts.memory.kills(instr, load) if nearest is None else ""
            if why:
                nearest = (instr, here, why)
        if ends or not item.names.isdisjoint(found.naming.phi_names(here)):
            continue
        for before in facts.cfg.pred[here]:
            if before not in seen and facts.cfg.reachable[before]:
                seen.add(before)
                work.append((before, facts.cfg.blocks[before].instrs))
    return nearest if is_evaluated_before else None


def _say(
    kernel: Kernel,
    facts: Facts,
    remarks: Remarks,
    pass_name: str,
    load: Instr,
    block: int,
    blocker: Instr,
    at: int,
    why: str,
) -> None:
    file, line, _ = remarks.place(blocker)
    place = f" at {file.rpartition('/')[2]}:{line}" if line else ""
    what = f"'{blocker.form.text}'{place}"
    told = f"may be written by {what}" if why == "store" else f"would cross {what}, which {REASONS.get(why, why)}"
    remarks.add(
        "Missed",
        pass_name,
        "LoadStays",
        kernel,
        f"'{load.form.text}' is evaluated again: it {told}",
        instr=load,
        reason=f"memory-{why}",
        sources=block_names(facts.cfg.blocks, [block]),
        targets=block_names(facts.cfg.blocks, [at]),
    )
