"""Remarks that explain why a load is evaluated again: which instruction blocks its reuse.

Computes: for each load that some path evaluates again with the same operands, in a loop or at another place, the
nearest instruction on that path that may change the memory that the load reads. Adds a remark with the blocks of the
load and of that instruction. Searches backwards from the load through the control-flow graph, up to evaluations of the
same value and to definitions of its operands.

Requires: classes of `expressions.py`. Guarantees: changes nothing; linear in the code for each load. Runs only if
remarks are requested.
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
    """Add a remark for each load whose reuse is blocked."""
    for item in found.classes:
        if not item.is_mutable or item.is_unwritten:
            continue
        for occurrence in item.occurrences:
            blocker = _blocker(facts, found, item, occurrence.block, occurrence.instr)
            if blocker is not None:
                _report(kernel, facts, remarks, pass_name, occurrence.instr, occurrence.block, *blocker)


def _blocker(
    facts: Facts, found: Candidates, item: ExpressionClass, block: int, load: Instr
) -> tuple[Instr, int, str] | None:
    """The nearest instruction before the load that may change its memory, as (instruction, block number, id of the
    reason); ``None`` if no evaluation of the same value precedes the load."""
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


def _report(
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
    if why == "store":
        cause = f"{what} may write its memory"
    else:
        cause = f"it cannot be reused across {what}, which {REASONS.get(why, why)}"
    remarks.add(
        "Missed",
        pass_name,
        "LoadStays",
        kernel,
        f"'{load.form.text}' is evaluated again: {cause}",
        instr=load,
        reason=f"memory-{why}",
        sources=block_names(facts.cfg.blocks, [block]),
        targets=block_names(facts.cfg.blocks, [at]),
    )
