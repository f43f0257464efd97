"""Issues loads in loops before the barriers that precede them, so that their latency overlaps with the work there.

In ``load; store to shared memory; barrier; compute; barrier``, the shape of loops over tiles or planes, no load is
issued while the threads compute, because ptxas moves no load over a barrier but those that `readonly` marks, and none
into the iteration before. A load of memory that nothing writes during the kernel may move. It is issued at the end of
an earlier block, into a new register, and at its old place is a copy. The earlier block is one of the same iteration,
as in unrolled loops, or of the iteration before; then the load is also issued in front of the loop. A load in the arm
of a branch is issued under the condition of the branch, and one for the next iteration under the condition that there
is one. The register is set to 0 before a predicated load: otherwise it would be live around the whole loop for ptxas.

A block also ends before a barrier here. The earlier block is the nearest one above for which at least ``distance``
instructions, counted from its barrier, precede the load on the blocks that every iteration executes; or the last one
above where address and conditions are known. A load that moves over no barrier stays.

Requires: value numbers, dominance, `Facts.memory`. Guarantees: each thread executes the same loads of the same
addresses, no load more. Refuses: guarded, vector, ordered loads; loads with a cache policy; results in registers of 8
bits, which ``mov`` cannot copy; loads of memory that may be written, that a pragma describes, or whose address is the
same in all iterations, which code motion and ptxas take out of the loop; iterations that a thread may leave between the
two places, with calls, ``griddepcontrol``, or inner loops between them; into the iteration before, loops that are left
or continued at several places; what `early_code` refuses.
Reference: Lam, "Software pipelining", PLDI 1988, of which this is the part for loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

from ...analysis.graph.loops import Loop
from ...analysis.manager import Facts
from ...analysis.values.symbolic_values import SymbolicValues
from ...ptx import Block, Effect, Instr, Kernel, Reg
from ...ptx.operations import Operation
from ..code_motion.edges import EdgeInserter
from ..code_motion.expressions import is_described_by_pragma
from ..passes import option
from ..remarks import Remarks
from ..scalar_replacement.value_copies import copy_of
from .early_code import Condition, Early, EarlyCode

__all__ = ["EarlyLoads"]

#: Bits of the narrowest registers that ``mov`` copies.
_LEAST_COPIED = 16


@dataclass(frozen=True, slots=True)
class _Load:
    """A load that may move: its place, its result, and the block ``above`` whose branch decides about it (its own
    block, if it is executed in each iteration)."""

    early: Early
    result: Reg
    block: int
    position: int
    above: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a load is issued: at the end of ``block``; in the iteration before, and in front of the loop, if ``loop``
    is given."""

    block: int
    loop: _Rotated | None = None


@dataclass(frozen=True, slots=True)
class _Rotated:
    """A loop that is left and continued at the end of one block only, the ``latch``, where it is continued if
    ``continues`` holds. ``entries``: the blocks outside with an edge to the header."""

    header: int
    latch: int
    entries: tuple[int, ...]
    continues: Condition


@dataclass(frozen=True)
class EarlyLoads:
    """Issues loads in loops before the barriers that precede them, also those of the next iteration."""

    distance: int = option(64, "move a load up until it is issued at least so many instructions earlier")

    name: ClassVar[str] = "earlyloads"

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise ValueError(f"option 'distance' of pass '{self.name}' is at least 1, not {self.distance}")

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Move loads; whether any moved."""
        if not remarks.allows(self.name) or not _has_barrier_in_loop(facts):
            return False
        pieces = _split_before_barriers(kernel, facts)
        places = _Places(facts, self.distance)
        writer = _Writer(kernel, facts, places.symbols)
        for load in _loads(facts, places.symbols):
            place = places.find(load)
            if place is None or not remarks.may_rewrite(self.name, load.early.instr):
                continue
            writer.move(load, place)
            where = "in the iteration before" if place.loop is not None else "earlier in the iteration"
            message = f"'{load.early.instr.form.text}' is issued {where}, before the barriers that precede it"
            remarks.add("Passed", self.name, "Moved", kernel, message, instr=load.early.instr)
        writer.write()
        _join(kernel, pieces)
        remarks.count(kernel, self.name, "loads moved", len(writer.copies))
        return bool(writer.copies)


class _Writer:
    """Collects the new code, and writes it at the end: all facts are those of the kernel as it was given."""

    def __init__(self, kernel: Kernel, facts: Facts, symbols: SymbolicValues) -> None:
        self.kernel = kernel
        self.symbols = symbols
        self.blocks = list(facts.cfg.blocks)
        self.inserter = EdgeInserter(kernel, facts.cfg)
        #: By load that moves: the copy that replaces it.
        self.copies: dict[Instr, Instr] = {}
        #: By block: the code at its end.
        self._ends: dict[int, list[Instr]] = {}

    def move(self, load: _Load, place: _Place) -> None:
        """Issue a load at its place, and replace it by a copy."""
        register = self.kernel.new_reg(load.result.type, "%e")
        loop, early = place.loop, load.early
        edge = (loop.latch, loop.header) if loop is not None else None
        code = self._code(place.block).of_load(early, register, edge, loop.continues if loop is not None else None)
        assert code is not None, "the trial found it"
        self._ends.setdefault(place.block, []).extend(code)
        for entry in loop.entries if loop is not None else ():
            header = cast("_Rotated", loop).header
            first = self._code(entry).of_load(early, register, (entry, header), None)
            assert first is not None, "the trial found it"
            for instr in first:
                self.inserter.insert(entry, header, instr)
        self.copies[early.instr] = copy_of(load.result, register, early.instr.loc)

    def _code(self, block: int) -> EarlyCode:
        return EarlyCode(self.symbols, block)

    def write(self) -> None:
        """Write everything into the kernel."""
        for number, block in enumerate(self.blocks):
            instrs = [self.copies.get(instr, instr) for instr in block.instrs]
            if number in self._ends:
                end = len(instrs) - (block.terminator is not None)
                instrs[end:end] = self._ends[number]
            if instrs != block.instrs:
                self.kernel.set_instrs(block, instrs)
        self.inserter.commit()


def _has_barrier_in_loop(facts: Facts) -> bool:
    return any(
        facts.loops.loop_of[block] >= 0 and any(map(_is_barrier, facts.cfg.blocks[block].instrs))
        for block in facts.cfg.rpo
    )


def _split_before_barriers(kernel: Kernel, facts: Facts) -> list[tuple[Block, Block]]:
    """Split the blocks of loops before each barrier, because loads are issued at the ends of blocks. The result is each
    shortened block with the new block that follows it, in the order in which they were split."""
    pairs: list[tuple[Block, Block]] = []
    for block in [facts.cfg.blocks[number] for number in facts.cfg.rpo if facts.loops.loop_of[number] >= 0]:
        while (at := next((n for n, instr in enumerate(block.instrs) if n and _is_barrier(instr)), 0)) > 0:
            rest = Block(None, block.instrs[at:])
            kernel.set_instrs(block, block.instrs[:at])
            kernel.insert_block(kernel.blocks.index(block) + 1, rest)
            pairs.append((block, rest))
            block = rest
    return pairs


def _join(kernel: Kernel, pairs: list[tuple[Block, Block]]) -> None:
    """Undo `_split_before_barriers`."""
    for block, rest in reversed(pairs):
        kernel.set_instrs(block, [*block.instrs, *rest.instrs])
        kernel.blocks.remove(rest)
    kernel.cfg_changed()


def _is_barrier(instr: Instr) -> bool:
    # A directive such as ``.pragma "nounroll"`` has all effects in the table, but is no instruction.
    return bool(instr.form.effects & Effect.BARRIER) and not instr.is_directive


def _stops_motion(instr: Instr) -> bool:
    """Whether the thread may not come to the next instruction, or to that where a branch goes; or whether another grid,
    for which it waits, may write before it."""
    form = instr.form
    if instr.is_directive:
        return False
    is_control = bool(form.effects & Effect.CONTROL)
    is_wait = form.operation is Operation.GRID_DEPENDENCY
    return form.is_opaque or form.is_call or is_wait or (is_control and form.operation is not Operation.BRANCH)


def _is_invariant(number: int, block: int, symbols: SymbolicValues) -> bool:
    """Whether a class has one value in all iterations of the loop around the block."""
    leaves, loops = symbols.leaves(number), symbols.facts.loops
    loop = loops.loops[loops.loop_of[block]]
    places = [symbols.places[leaf] for leaf in leaves or () if leaf in symbols.places]
    return leaves is not None and all(place.block not in loop for place in places)


def _loads(facts: Facts, symbols: SymbolicValues) -> Iterator[_Load]:
    """The loads in loops that may move, in order."""
    cfg, fixed = facts.cfg, facts.fixed_instructions
    for block in cfg.rpo:
        if facts.loops.loop_of[block] < 0:
            continue
        instrs = cfg.blocks[block].instrs
        for position, instr in enumerate(instrs):
            if _stops_motion(instr):
                break
            if not _is_candidate(instr) or instr in fixed or is_described_by_pragma(instrs, position):
                continue
            result, address = instr.operands[0], instr.address
            if not isinstance(result, Reg) or result.lanes != 1 or result.type.bits < _LEAST_COPIED:
                continue
            if address is None or facts.values.is_late(instr):
                continue
            where = facts.values.address(instr, address)
            if facts.memory.is_unwritten(instr) and not _is_invariant(where[0], block, symbols):
                above, condition = _decided_at(facts, block)
                width = address.base.type.bits if isinstance(address.base, Reg) else 64
                early = Early(instr, where, width, condition)
                yield _Load(early, result, block, position, above)


def _is_candidate(instr: Instr) -> bool:
    form = instr.form
    return (
        form.operation is Operation.LOAD
        and form.space == "global"
        and form.lanes == 1
        and len(instr.operands) == 2
        and instr.guard is None
        and not form.effects & Effect.ORDERED
    )


def _decided_at(facts: Facts, block: int) -> tuple[int, Condition | None]:
    """The block above whose branch alone decides whether ``block`` is executed, and under which condition; the block
    itself if there is none."""
    cfg = facts.cfg
    if len(cfg.pred[block]) != 1:
        return block, None
    (above,) = cfg.pred[block]
    if facts.loops.loop_of[above] != facts.loops.loop_of[block]:
        return block, None
    condition = _condition(facts, above, block)
    return (block, None) if condition is None else (above, condition)


def _condition(facts: Facts, block: int, successor: int) -> Condition | None:
    """The condition under which the branch at the end of ``block`` goes to ``successor``; `None` if there is none."""
    cfg = facts.cfg
    branch = cfg.blocks[block].terminator
    if (
        len(cfg.succ[block]) != 2
        or branch is None
        or branch.form.operation is not Operation.BRANCH
        or branch.guard is None
        or not isinstance(branch.guard.reg, Reg)
        or branch.guard.reg in facts.late_registers
    ):
        return None
    is_taken = cfg.blocks[successor].label is branch.operands[0]
    number = facts.values.of_register(branch, branch.guard.reg)
    return Condition(number, branch.guard.negated == is_taken)


class _Places:
    """Where loads can be issued."""

    def __init__(self, facts: Facts, distance: int) -> None:
        self.facts = facts
        self.distance = distance
        self.symbols = SymbolicValues(facts)
        self._rotated = {loop.index: self._rotation(loop) for loop in facts.loops.loops}

    def find(self, load: _Load) -> _Place | None:
        """Where the load is issued; `None` if it stays."""
        loops = self.facts.loops
        loop = loops.loops[loops.loop_of[load.block]]
        if loop.is_irreducible:
            return None
        found: _Place | None = None
        ahead = load.position
        is_over_barrier = any(map(_is_barrier, self._instrs(load.block)[: load.position]))
        rotated = None
        for block in self._around(load, loop):
            if block is None:
                rotated = self._rotated[loop.index]
                continue
            place = _Place(block, rotated)
            is_known = self._is_known(load, place)
            # In the iteration before, a counter may be known before its increment only.
            if not is_known and rotated is None:
                break
            if is_known and is_over_barrier:
                found = place
                if ahead + self._after_last_barrier(block) >= self.distance:
                    break
            ahead += len(self._instrs(block))
            is_over_barrier = is_over_barrier or any(map(_is_barrier, self._instrs(block)))
        return found

    def _around(self, load: _Load, loop: Loop) -> Iterator[int | None]:
        """The blocks of which each one is executed before the load, nearest first: those above it, `None` for the edge
        to the header, and those behind it, in the iteration before."""
        block = load.above
        if block != load.block:
            yield block
        for block in self._above(load.above, loop):
            yield block
        rotated = self._rotated[loop.index]
        if block != loop.header or rotated is None:
            return
        # In the block of the load, only what precedes the load matters; `_loads` has looked at that.
        if block != load.block and any(map(_stops_motion, self._instrs(block))):
            return
        yield None
        for each in (rotated.latch, *self._above(rotated.latch, loop)):
            if each == load.above and each != load.block:
                return
            if not self.facts.dominance.dominates(load.above, each):
                return
            yield each
            if each == load.block:
                return

    def _above(self, block: int, loop: Loop) -> Iterator[int]:
        """The blocks above ``block`` from which each iteration comes to it, nearest first."""
        while block != loop.header:
            above = self.facts.dominance.idom[block]
            if self.facts.loops.loop_of[above] != loop.index or not self._always_comes(above, block, loop):
                return
            yield above
            block = above

    def _always_comes(self, above: int, block: int, loop: Loop) -> bool:
        """Whether each thread comes from the end of ``above`` to the end of ``block``, in the same iteration and
        without an inner loop between them. ``above`` dominates ``block``."""
        cfg, loop_of = self.facts.cfg, self.facts.loops.loop_of
        work, seen = [*cfg.succ[above]], {block}
        end = cfg.blocks[above].terminator
        if (end is not None and _stops_motion(end)) or any(map(_stops_motion, self._instrs(block))):
            return False
        while work:
            here = work.pop()
            if here in seen:
                continue
            seen.add(here)
            if here in (loop.header, above) or loop_of[here] != loop.index or not cfg.succ[here]:
                return False
            if any(map(_stops_motion, self._instrs(here))):
                return False
            work += cfg.succ[here]
        return True

    def _rotation(self, loop: Loop) -> _Rotated | None:
        """How the loop is continued, if it is left and continued at one place only."""
        cfg = self.facts.cfg
        if loop.is_irreducible or len(loop.latches) != 1:
            return None
        (latch,) = loop.latches
        if self.facts.loops.loop_of[latch] != loop.index or [block for block, _ in loop.exits] != [latch]:
            return None
        continues = _condition(self.facts, latch, loop.header)
        entries = tuple(block for block in cfg.pred[loop.header] if block not in loop and cfg.reachable[block])
        if continues is None or not entries or loop.header == cfg.rpo[0]:
            return None
        return _Rotated(loop.header, latch, entries, continues)

    def _is_known(self, load: _Load, place: _Place) -> bool:
        """Whether address and conditions of the load are known there."""
        loop, trial = place.loop, EarlyCode(self.symbols, place.block, is_trial=True)
        if loop is None:
            return trial.of_load(load.early, load.result, None, None) is not None
        if trial.of_load(load.early, load.result, (loop.latch, loop.header), loop.continues) is None:
            return False
        inserter = EdgeInserter(self.facts.kernel, self.facts.cfg)
        for entry in loop.entries:
            first = EarlyCode(self.symbols, entry, is_trial=True)
            if not inserter.is_possible(entry, loop.header):
                return False
            if first.of_load(load.early, load.result, (entry, loop.header), None) is None:
                return False
        return True

    def _instrs(self, block: int) -> list[Instr]:
        return self.facts.cfg.blocks[block].instrs

    def _after_last_barrier(self, block: int) -> int:
        instrs = self._instrs(block)
        last = max((at for at, instr in enumerate(instrs) if _is_barrier(instr)), default=-1)
        return len(instrs) - 1 - last
