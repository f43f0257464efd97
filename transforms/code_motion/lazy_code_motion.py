"""Lazy code motion: partial redundancy elimination that is computationally and lifetime optimal.

Solves for all expression classes at once with bit vectors. antloc, comp, kill, pinch and phi_kill: `expressions.py`.

    transp_d(b)    = ¬(kill(b) ∪ pinch(b) ∪ endless(b))   an evaluation may move up across b (`endless_loops.py`)
    transp_u(b)    = ¬kill(b)                        a value stays valid down across b
    antin(b)       = antloc(b) ∪ (transp_d(b) ∩ antout(b))
    antout(b)      = ∩ over successors s of antin(s) \\ phi_kill(s);  ∅ where b may leave
    avin(b)        = (∩ over predecessors p of avout(p)) \\ phi_kill(b);  ∅ at the entry
    avout(b)       = comp(b) ∪ (transp_u(b) ∩ avin(b))
    earliest(i,j)  = antin(j) \\ (avout(i) \\ phi_kill(j)) ∩ (¬transp_d(i) ∪ ¬antout(i))
    later(i,j)     = earliest(i,j) ∪ (laterin(i) \\ antloc(i))
    laterin(j)     = ∩ over predecessors i of later(i,j)
    insert(i,j)    = later(i,j) \\ laterin(j)
    delete(j)      = antloc(j) \\ laterin(j)

This is the edge-based form (Drechsler and Stadel). It does not need critical edges to be split in advance; an edge is
split only where something is inserted. Because transp_d ⊆ transp_u, the usual proof holds: where delete holds, on every
path the value was evaluated or inserted after its operands last changed.

Guarantees: results stay bit-identical; no path evaluates an expression more often; a load is inserted only where its
address is dereferenced on every path onward. Refuses: insertion on an edge of a ``brx.idx``; classes that are not worth
moving.
Reference: Knoop, Rüthing, Steffen, *Lazy Code Motion*, PLDI 1992; Drechsler, Stadel, SIGPLAN Notices 1993; thesis §3.1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypedDict

from ...analysis.graph.dataflow import solve
from ...analysis.manager import Facts
from ...ptx import Instr, Kernel
from ..passes import option
from ..remarks import Remarks, block_names
from .blocked_loads import explain_loads
from .branch_divergence import BranchDivergence
from .edges import EdgeInserter
from .endless_loops import endless_at_headers
from .expressions import (
    ExpressionClass,
    LocalPredicates,
    candidates_by_name,
    candidates_by_value,
    rewritten_candidates,
)
from .replacement import end_round, evaluate_into, occurrences_of, replace_occurrences
from .total_redundancy import remove_redundancy

__all__ = ["LazyCodeMotion", "Placement", "solve_placement"]


class Where(TypedDict):
    """The names of blocks and edges in remarks."""

    sources: Sequence[str]
    targets: Sequence[str]


@dataclass(frozen=True, slots=True)
class Placement:
    """The solution: sets of class numbers by edge and by block."""

    insert: dict[tuple[int, int], int]
    delete: list[int]
    available: list[int]  #: avin


def solve_placement(facts: Facts, local: LocalPredicates, universe: int) -> Placement:
    """Solve the equations of the module's header."""
    cfg = facts.cfg
    count = len(cfg.blocks)
    # An infinite path inside these blocks may avoid every evaluation, so nothing is anticipated across them.
    endless = facts.cfg.never_leaving
    down_kill = [universe if b in endless else local.kill[b] | local.pinch[b] for b in range(count)]

    def anticipated() -> list[int]:
        return solve(
            cfg,
            direction="backward",
            meet="intersection",
            gen=[local.antloc[b] & ~local.phi_kill[b] for b in range(count)],
            kill=[down_kill[b] | local.phi_kill[b] for b in range(count)],
            boundary=0,
            universe=universe,
        ).exit

    antout = anticipated()
    if local.transfer.faulting:
        ahead = [antout[b] & ~down_kill[b] & local.transfer.faulting for b in range(count)]
        stuck = endless_at_headers(facts, local.antloc, ahead)
        if any(stuck):
            down_kill = [each | more for each, more in zip(down_kill, stuck, strict=True)]
            antout = anticipated()
    antin = [local.antloc[b] | (antout[b] & ~down_kill[b]) for b in range(count)]
    availability = solve(
        cfg,
        direction="forward",
        meet="intersection",
        gen=local.comp,
        kill=[local.kill[b] | local.phi_kill[b] for b in range(count)],
        boundary=0,
        universe=universe,
    )
    avout = availability.exit
    avin = [availability.entry[b] & ~local.phi_kill[b] for b in range(count)]
    earliest: dict[tuple[int, int], int] = {}
    for block in cfg.rpo:
        movable = antout[block] & ~down_kill[block]
        for successor in cfg.succ[block]:
            earliest[block, successor] = antin[successor] & ~(avout[block] & ~local.phi_kill[successor]) & ~movable
    laterin = _later(facts, local, earliest, antin, universe)
    insert: dict[tuple[int, int], int] = {}
    for (block, successor), edge in earliest.items():
        placed = (edge | (laterin[block] & ~local.antloc[block])) & ~laterin[successor]
        if placed:
            insert[block, successor] = placed
    delete = [0] * count
    for block in cfg.rpo:
        delete[block] = local.antloc[block] & ~laterin[block]
    return Placement(insert, delete, avin)


def _later(
    facts: Facts, local: LocalPredicates, earliest: dict[tuple[int, int], int], antin: list[int], universe: int
) -> list[int]:
    """The greatest solution of laterin. The entry has a virtual incoming edge, on which every anticipated expression is
    earliest."""
    cfg, antloc = facts.cfg, local.antloc
    laterin = [universe] * len(cfg.blocks)
    entry = cfg.rpo[0]
    incoming: list[list[tuple[int, int]]] = [[] for _ in cfg.blocks]
    for (block, successor), edge in earliest.items():
        incoming[successor].append((block, edge))
    changed = True
    while changed:
        changed = False
        for block in cfg.rpo:
            value = antin[block] if block == entry else universe
            for predecessor, edge in incoming[block]:
                value &= edge | (laterin[predecessor] & ~antloc[predecessor])
            if value != laterin[block]:
                laterin[block] = value
                changed = True
    return laterin


@dataclass(frozen=True)
class LazyCodeMotion:
    """Lazy code motion: partial redundancy elimination; no path evaluates an expression more often.

    An expression that is redundant without an insertion is removed even if it costs less than ``min_cost``. Repetitions
    let an expression follow its operands. ``cdrnd_insertion``: thesis §7.2.
    """

    naming: str = option("both", "when expressions are equal: lexical (same operands), value (same value), or both")
    min_cost: int = option(2, "move only expressions with at least this cost in the opcode table")
    rounds: int = option(3, "the most repetitions")
    cdrnd_insertion: bool = option(False, "insert nothing in an arm of a divergent branch")

    name: ClassVar[str] = "lcm"

    def __post_init__(self) -> None:
        if self.naming not in ("lexical", "value", "both"):
            raise ValueError(f"option 'naming' of pass 'lcm' is lexical, value or both, not '{self.naming}'")

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Move code in ``kernel``; whether anything changed."""
        changed = False
        if self.naming in ("value", "both"):
            changed = remove_redundancy(kernel, facts, remarks, self.name)
            for _ in range(self.rounds):
                if not self.round(kernel, facts, remarks, by_value=True):
                    break
                changed = True
        if self.naming in ("lexical", "both"):
            changed |= self.round(kernel, facts, remarks, by_value=False)
        if remarks.explains:
            explain_loads(kernel, facts, facts.get(candidates_by_value), remarks, self.name)
        return changed

    def round(self, kernel: Kernel, facts: Facts, remarks: Remarks, *, by_value: bool) -> bool:
        """Solve the equations once, rewrite and clean up; whether anything changed."""
        if not remarks.allows(self.name):
            return False
        by_name = candidates_by_name if self.naming == "lexical" else rewritten_candidates
        found = facts.get(candidates_by_value if by_value else by_name)
        classes, local = found.classes, found.local
        how = "by value" if by_value else "lexically"
        if not any(remarks.allows(self.name, item.instr) for item in classes):
            return False
        placement = solve_placement(facts, local, (1 << len(classes)) - 1)
        chosen, in_place = self.choose(kernel, facts, remarks, classes, local, placement)
        remarks.count(kernel, self.name, f"candidates {how}", len(classes))
        if not chosen:
            return False
        self.rewrite(kernel, facts, classes, local, placement, chosen, in_place)
        end_round(kernel, facts, remarks, self.name, chosen.bit_count(), by_value=by_value)
        return True

    def choose(
        self,
        kernel: Kernel,
        facts: Facts,
        remarks: Remarks,
        classes: list[ExpressionClass],
        local: LocalPredicates,
        placement: Placement,
    ) -> tuple[int, int]:
        """The classes to rewrite, and the subset of which only occurrences are replaced that are redundant without an
        insertion, because insertions are not allowed. Both are bits of class numbers. Adds a remark for each class with
        a possible gain."""
        deleted = inserted = fixed = 0
        for bits in placement.delete:
            deleted |= bits
        inserter = EdgeInserter(kernel, facts.cfg)
        divergent = 0
        divergence = BranchDivergence(facts) if self.cdrnd_insertion and placement.insert else None
        cdrnd = divergence.cdrnd() if divergence is not None else []
        for (block, successor), bits in placement.insert.items():
            inserted |= bits
            if not inserter.is_possible(block, successor):
                fixed |= bits
            elif divergence is not None and not _is_in_cdrnd(facts, divergence, cdrnd, block, successor):
                divergent |= bits
        redundant = _totally_redundant(facts, classes, local, placement)
        if not deleted | redundant:
            return 0, 0
        chosen = in_place = 0
        feeding = self.feeding_names(classes)
        places = _Places(facts, placement)
        for item in classes:
            bit = 1 << item.number
            if not (deleted | redundant) & bit:
                continue
            reason = ""
            if fixed & bit:
                reason = "indirect-branch-edge"
            elif divergent & bit:
                reason = "divergent-insertion"
            elif inserted & bit and item.cost < self.min_cost and item.result not in feeding:
                reason = "not-worth-moving"
            if reason:
                message = f"'{item.instr.form.text}' is not moved: {_REFUSALS[reason]}"
                where = places.of(item)
                remarks.add("Missed", self.name, "NotMoved", kernel, message, instr=item.instr, reason=reason, **where)
                remarks.count(kernel, self.name, f"refused: {reason}")
                if not redundant & bit:
                    continue
            if remarks.may_rewrite(self.name, item.instr):
                chosen |= bit
                in_place |= bit if reason else 0
                places.report(kernel, remarks, self.name, item, in_place=bool(reason))
        return chosen, in_place

    def feeding_names(self, classes: list[ExpressionClass]) -> set[Hashable]:
        """The names of the operands of expressions that are worth moving. A cheap expression that computes such an
        operand is worth moving, too, because an expression can only move to where its operands are available."""
        return {name for item in classes if item.cost >= self.min_cost for name in item.names}

    def rewrite(
        self,
        kernel: Kernel,
        facts: Facts,
        classes: list[ExpressionClass],
        local: LocalPredicates,
        placement: Placement,
        chosen: int,
        in_place: int,
    ) -> None:
        """Insert on edges, except for the classes ``in_place``, and replace occurrences of the ``chosen`` classes."""
        cfg = facts.cfg
        temporaries = {item.number: kernel.new_reg(item.type) for item in classes if chosen >> item.number & 1}
        inserter = EdgeInserter(kernel, cfg)
        for (block, successor), bits in placement.insert.items():
            for number in members(bits & chosen & ~in_place):
                source = _reached_occurrence(facts, classes[number], successor, local)
                inserter.insert(block, successor, evaluate_into(temporaries[number], source))
        number_of = occurrences_of(classes, temporaries)
        for block in cfg.rpo:
            present = (placement.available[block] | (placement.delete[block] & ~in_place)) & chosen
            replace_occurrences(kernel, cfg.blocks[block], present, number_of, temporaries, local.transfer)
        inserter.commit()


def _is_in_cdrnd(facts: Facts, divergence: BranchDivergence, cdrnd: list[bool], block: int, successor: int) -> bool:
    """Whether an edge lies in the control dependence region of non-divergence: its source lies there and ends in no
    divergent branch, or its target lies there and has no other incoming edge."""
    if cdrnd[block] and not divergence.is_divergent(block):
        return True
    return cdrnd[successor] and len(facts.cfg.pred[successor]) == 1


_REFUSALS = {
    "divergent-insertion": "it would have to be evaluated in an arm of a divergent branch",
    "indirect-branch-edge": "it would have to be evaluated on an edge of an indirect branch, which cannot be split",
    "not-worth-moving": "recomputing it costs no more",
}


def members(bits: int) -> list[int]:
    """The numbers of the bits that are set, ascending."""
    found: list[int] = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _totally_redundant(
    facts: Facts, classes: list[ExpressionClass], local: LocalPredicates, placement: Placement
) -> int:
    """Classes with an occurrence that is preceded by another one, in the same block or on every path to it, without a
    kill between them. The delete set of LCM contains only entry computations; these occurrences need no insertion."""
    cfg = facts.cfg
    bit_of = {occurrence.instr: 1 << item.number for item in classes for occurrence in item.occurrences}
    blocks = {occurrence.block for item in classes for occurrence in item.occurrences}
    kills = local.transfer.kills
    redundant = 0
    for block in blocks:
        present = placement.available[block]
        for instr in [each for each in cfg.blocks[block].instrs if each in bit_of or each in kills]:
            bit = bit_of.get(instr, 0)
            redundant |= bit & present
            present = (present | bit) & ~kills.get(instr, 0)
    return redundant


def _reached_occurrence(facts: Facts, item: ExpressionClass, start: int, local: LocalPredicates) -> Instr:
    """An occurrence that is reachable from the start of block ``start`` without a kill before it. So its registers hold
    the operands at that start. It exists because the class is anticipated."""
    bit = 1 << item.number
    in_block: dict[int, Instr] = {}
    for occurrence in reversed(item.occurrences):
        in_block[occurrence.block] = occurrence.instr
    seen = {start}
    work = [start]
    while work:
        block = work.pop()
        if local.antloc[block] & bit:
            return in_block[block]
        for successor in facts.cfg.succ[block]:
            if successor not in seen:
                seen.add(successor)
                work.append(successor)
    raise AssertionError("an anticipated expression has no occurrence")


class _Places:
    """The edges on which each class is inserted and the blocks from which it is deleted, for remarks."""

    def __init__(self, facts: Facts, placement: Placement) -> None:
        self.blocks = facts.cfg.blocks
        #: By class number: the names of the edges and of the blocks.
        self.inserted: dict[int, list[str]] = {}
        self.deleted: dict[int, list[str]] = {}
        for edge, bits in placement.insert.items():
            where = "→".join(block_names(self.blocks, edge))
            for number in members(bits):
                self.inserted.setdefault(number, []).append(where)
        for block in facts.cfg.rpo:
            (name,) = block_names(self.blocks, [block])
            for number in members(placement.delete[block]):
                self.deleted.setdefault(number, []).append(name)

    def of(self, item: ExpressionClass) -> Where:
        """Where the class is removed and where it is inserted."""
        edges = self.inserted.get(item.number, [])
        blocks = dict.fromkeys(occurrence.block for occurrence in item.occurrences)
        sources = self.deleted.get(item.number, []) if edges else block_names(self.blocks, blocks)
        return {"sources": sources, "targets": edges}

    def report(
        self, kernel: Kernel, remarks: Remarks, pass_name: str, item: ExpressionClass, *, in_place: bool
    ) -> None:
        """Add the remark that the class was moved, or that it is redundant."""
        what = f"'{item.instr.form.text}'"
        edges, deleted = self.inserted.get(item.number), self.deleted.get(item.number)
        if in_place:
            where = block_names(self.blocks, dict.fromkeys(occurrence.block for occurrence in item.occurrences))
            message = f"{what} is redundant where it has been evaluated before"
            remarks.add("Passed", pass_name, "Redundant", kernel, message, instr=item.instr, sources=where)
            return
        if edges:
            message = f"{what} moved to {', '.join(edges)}"
            if deleted:
                message += f"; removed from {', '.join(deleted)}"
        else:
            message = f"{what} is redundant; {len(item.occurrences)} occurrences share one evaluation"
        name = "Moved" if edges else "Redundant"
        remarks.add("Passed", pass_name, name, kernel, message, instr=item.instr, **self.of(item))
