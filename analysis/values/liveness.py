"""Live registers.

Computes: for each block the registers that are live at its start and at its end. A register is live at a point if some
path from there reads it before it is certainly written:

    live_out(b) = ∪ live_in(s) over the successors s of b;    live_in(b) = exposed(b) ∪ (live_out(b) − written(b))

``exposed`` are the registers that the block reads before it certainly writes them. A guarded instruction, one that
writes a component of a vector register, one that writes later, and an opaque one do not certainly write.

Only registers that are live across some block boundary have a number; the others are live only within a block.

Requires: a `Cfg`. Guarantees: time and memory grow with the kernel and with the live ranges, not with blocks ×
registers: registers are solved in columns of `COLUMN` numbers, each over only the blocks in which one of them is live.
Unreachable blocks have empty sets.
Reference: PTX ISA 9.0, §9.3 (predicated execution); Cooper, Torczon, *Engineering a Compiler*, §8.6.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import overload

from ...ptx import Effect, Instr, Reg
from ..graph.cfg import Cfg
from ..graph.dataflow import bits

__all__ = ["COLUMN", "Liveness", "certain_defs"]

#: The number of registers in one column of bit vectors.
COLUMN = 1024


def certain_defs(instr: Instr) -> Sequence[Reg]:
    """The registers that ``instr`` certainly overwrites."""
    if instr.guard is not None or instr.form.effects & Effect.REGISTERS_LATER:
        return []
    found = instr.defs()
    kept = instr.partial_defs()
    return [reg for reg in found if reg not in kept] if kept else found


class Liveness:
    """Live registers at block boundaries.

    ``regs`` are the numbered registers, ``index`` their numbers. ``live_in[b]`` and ``live_out[b]`` are sets of numbers
    as bit vectors. If there are several columns, an access joins them, in time linear in their number.
    """

    def __init__(
        self, cfg: Cfg, among: Container[Reg] | None = None, mentions: Mapping[int, Sequence[Instr]] | None = None
    ) -> None:
        """``among``: the registers of interest, if not all. ``mentions`` has for each block the instructions that read
        or write one of them, if they are known."""
        self.cfg = cfg
        self.regs: list[Reg] = []
        self.index: dict[Reg, int] = {}
        count = len(cfg)
        exposed: dict[int, list[Reg]] = {}
        written: dict[int, set[Reg]] = {}
        regs, index = self.regs, self.index
        for block in cfg.rpo:
            instrs = cfg.blocks[block].instrs if mentions is None else mentions.get(block)
            if not instrs:
                continue
            first_read, gone = _scan(instrs, among)
            written[block] = gone
            if first_read:
                exposed[block] = first_read
                for reg in first_read:
                    if reg not in index:
                        index[reg] = len(regs)
                        regs.append(reg)
        columns = (len(regs) + COLUMN - 1) // COLUMN
        gen = _spread(exposed, index, columns)
        kill = _spread(written, index, columns)
        self.live_in: Sequence[int]
        self.live_out: Sequence[int]
        if columns == 1:
            ins, outs = [0] * count, [0] * count
            _solve(cfg, gen[0], kill[0], ins, outs)
            self.live_in, self.live_out = ins, outs
        else:
            solved = [_solve_sparse(cfg, gen[column], kill[column]) for column in range(columns)]
            self.live_in = _Rows([ins for ins, _ in solved], count)
            self.live_out = _Rows([outs for _, outs in solved], count)

    def registers(self, facts: int) -> list[Reg]:
        """The registers of a set, by number."""
        regs = self.regs
        return [regs[number] for number in bits(facts)]

    def is_live_in(self, reg: Reg, block: int) -> bool:
        number = self.index.get(reg)
        return number is not None and self.live_in[block] >> number & 1 != 0

    def is_live_out(self, reg: Reg, block: int) -> bool:
        number = self.index.get(reg)
        return number is not None and self.live_out[block] >> number & 1 != 0

    def backwards(self, block: int) -> Iterator[tuple[int, Instr, set[Reg]]]:
        """Position, instruction and the registers live after it, for each instruction from the last to the first.

        All steps yield the same set, which the next step changes: copy it to keep it. The instructions are those of the
        block when the iteration starts.
        """
        live = set(self.registers(self.live_out[block]))
        instrs = self.cfg.blocks[block].instrs
        for position in range(len(instrs) - 1, -1, -1):
            instr = instrs[position]
            if instr.is_directive:
                continue
            yield position, instr, live
            live.difference_update(certain_defs(instr))
            live.update(instr.uses())


def _scan(instrs: Sequence[Instr], among: Container[Reg] | None) -> tuple[list[Reg], set[Reg]]:
    """(registers read before they are certainly written, in text order; registers certainly written)."""
    first_read: dict[Reg, None] = {}
    gone: set[Reg] = set()
    for instr in instrs:
        for reg in instr.uses():
            if reg not in gone and (among is None or reg in among):
                first_read[reg] = None
        form = instr.form
        if form.dst_count == 1 and instr.guard is None and not form.effects & Effect.REGISTERS_LATER:
            target = instr.operands[0]
            if type(target) is Reg:  # most instructions
                if among is None or target in among:
                    gone.add(target)
                continue
        gone.update(certain_defs(instr))
    return list(first_read), gone


def _spread(by_block: Mapping[int, Iterable[Reg]], index: Mapping[Reg, int], columns: int) -> list[dict[int, int]]:
    """For each column and each block the bit vector of the registers. Empty vectors are left out."""
    spread: list[dict[int, int]] = [{} for _ in range(columns)]
    if columns == 1:
        only = spread[0]
        for block, regs in by_block.items():
            facts = 0
            for reg in regs:
                number = index.get(reg)
                if number is not None:
                    facts |= 1 << number
            if facts:
                only[block] = facts
        return spread
    for block, regs in by_block.items():
        for reg in regs:
            number = index.get(reg)
            if number is not None:
                column = spread[number // COLUMN]
                column[block] = column.get(block, 0) | 1 << number % COLUMN
    return spread


def _solve(cfg: Cfg, gen: Mapping[int, int], kill: Mapping[int, int], ins: list[int], outs: list[int]) -> list[int]:
    """Solve one column, from the reading blocks upwards. Returns the blocks that have a live register."""
    succ, pred, rpo, number, reachable = cfg.succ, cfg.pred, cfg.rpo, cfg.rpo_number, cfg.reachable
    work = [-number[block] for block in gen]
    heapq.heapify(work)
    waiting = set(gen)
    touched = set(gen)
    while work:
        block = rpo[-heapq.heappop(work)]
        waiting.discard(block)
        out = 0
        for after in succ[block]:
            out |= ins[after]
        outs[block] = out
        live = gen.get(block, 0) | (out & ~kill[block] if block in kill else out)
        if live == ins[block]:
            continue
        ins[block] = live
        for before in pred[block]:
            if before not in waiting and reachable[before]:
                waiting.add(before)
                touched.add(before)
                heapq.heappush(work, -number[before])
    return list(touched)


def _solve_sparse(cfg: Cfg, gen: Mapping[int, int], kill: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    ins, outs = [0] * len(cfg), [0] * len(cfg)
    touched = _solve(cfg, gen, kill, ins, outs)
    return {b: ins[b] for b in touched if ins[b]}, {b: outs[b] for b in touched if outs[b]}


class _Rows(Sequence[int]):
    """The bit vectors of all blocks, joined from their columns on access."""

    def __init__(self, columns: list[dict[int, int]], count: int) -> None:
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[block] for block in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        block = index % self._count
        row = bytearray()
        for number, column in enumerate(self._columns):
            facts = column.get(block)
            if facts:
                start = number * (COLUMN // 8)
                row.extend(bytes(start - len(row)))
                row.extend(facts.to_bytes(COLUMN // 8, "little"))
        return int.from_bytes(row, "little")
