"""An estimate of register pressure.

Computes: for each block the largest number of 32-bit registers that are live at once in it, and of predicates, which
have a file of their own. A 64-bit register counts as two, a 128-bit one as four, anything narrower than 32 bits as one.
The largest number at a point is that of the values that go through an instruction: its operands while it reads them,
and its results with all that lives on.

This is the pressure of the virtual registers in the order of the text. ptxas reorders, rematerializes and keeps uniform
values in registers of their own, so only differences between two versions of one kernel say something, and its own
count decides.

Requires: `Liveness`, and that the kernel stays as it is. Guarantees: linear in the blocks that are asked for and their
live ranges. Refuses: nothing; blocks that cannot be reached have pressure 0.
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
    """What one register takes up.

    >>> from ptxmotion.ptx import TYPES
    >>> units(Reg("%rd1", TYPES["b64"])), units(Reg("%p1", TYPES["pred"]))
    (Units(words=2, predicates=0), Units(words=0, predicates=1))
    """
    if reg.type.kind == "p":
        return Units(0, reg.lanes)
    return Units(max(1, -(-reg.type.bits * reg.lanes // 32)), 0)


class Pressure:
    """Pressures of one kernel, block by block as they are asked for; words and predicates each on their own."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._sizes: dict[Reg, Units] = {}
        self._found: dict[int, Units] = {}

    def of_block(self, block: int) -> Units:
        """The largest pressure within the block."""
        found = self._found.get(block)
        if found is None:
            liveness = self._liveness
            found = self._of_block(liveness, block) if liveness.cfg.reachable[block] else Units(0, 0)
            self._found[block] = found
        return found

    @property
    def maximum(self) -> Units:
        """The largest pressure of the kernel."""
        found = [self.of_block(block) for block in self._liveness.cfg.rpo]
        words = max((each.words for each in found), default=0)
        return Units(words, max((each.predicates for each in found), default=0))

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
            # Behind the instruction its results exist, even those that nobody reads.
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
