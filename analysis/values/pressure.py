"""An estimate of register pressure.

Computes: for each block the largest number of 32-bit registers that are live at once, and of predicates, which have
their own register file. A 64-bit register counts as two, a 128-bit one as four, a narrower one than 32 bits as one. At
an instruction two sets count: its operands with all registers that are live before it, and its results with all
registers that are live after it.

This is the pressure of the virtual registers in text order. ptxas reorders, rematerializes and keeps uniform values in
separate registers. So only the difference between two versions of one kernel is meaningful, and the count of ptxas
decides.

Requires: `Liveness`, and that the kernel does not change. Guarantees: time linear in the queried blocks and their live
ranges. Unreachable blocks have pressure 0.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ptx import Reg
from .liveness import Liveness, certain_defs

__all__ = ["Pressure", "Units", "units"]


class Units(NamedTuple):
    """Registers in units of 32 bits, and predicates."""

    words: int
    predicates: int


def units(reg: Reg) -> Units:
    """The size of one register.

    >>> from ptxmotion.ptx import TYPES
    >>> units(Reg("%rd1", TYPES["b64"])), units(Reg("%p1", TYPES["pred"]))
    (Units(words=2, predicates=0), Units(words=0, predicates=1))
    """
    if reg.type.kind == "p":
        return Units(0, reg.lanes)
    return Units(max(1, -(-reg.type.bits * reg.lanes // 32)), 0)


class Pressure:
    """The pressure of each block of one kernel, computed on demand. Words and predicates are independent maxima."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._sizes: dict[Reg, Units] = {}
        #: By block: its largest pressure.
        self._found: dict[int, Units] = {}

    def of_block(self, block: int) -> Units:
        """The largest pressure within the block."""
        units = self._found.get(block)
        if units is None:
            liveness = self._liveness
            units = self._of_block(liveness, block) if liveness.cfg.reachable[block] else Units(0, 0)
            self._found[block] = units
        return units

    @property
    def maximum(self) -> Units:
        """The largest pressure of the kernel."""
        units = [self.of_block(block) for block in self._liveness.cfg.rpo]
        words = max((each.words for each in units), default=0)
        return Units(words, max((each.predicates for each in units), default=0))

    def _size(self, reg: Reg) -> Units:
        size = self._sizes.get(reg)
        if size is None:
            size = self._sizes[reg] = units(reg)
        return size

    def _of_block(self, liveness: Liveness, block: int) -> Units:
        live = set(liveness.registers(liveness.live_out[block]))
        words = predicates = 0
        for reg in live:
            size = self._size(reg)
            words += size.words
            predicates += size.predicates
        most_words, most_predicates = words, predicates
        for instr in reversed(liveness.cfg.blocks[block].instrs):
            if instr.is_directive:
                continue
            # After the instruction its results exist, even those that nothing reads.
            results = instr.defs()
            dead = [self._size(reg) for reg in set(results) if reg not in live] if results else []
            if dead:
                most_words = max(most_words, words + sum(size.words for size in dead))
                most_predicates = max(most_predicates, predicates + sum(size.predicates for size in dead))
            for reg in certain_defs(instr) if results else ():
                if reg in live:
                    live.remove(reg)
                    size = self._size(reg)
                    words -= size.words
                    predicates -= size.predicates
            for reg in instr.uses():
                if reg not in live:
                    live.add(reg)
                    size = self._size(reg)
                    words += size.words
                    predicates += size.predicates
            most_words = max(most_words, words)
            most_predicates = max(most_predicates, predicates)
        return Units(most_words, most_predicates)
