"""Insertion of code on the edges of the control flow graph.

Code for an edge i→j goes to the start of j if j has no other predecessor, to the end of i if i has no other successor,
and otherwise into a synthetic block that splits the edge. The order of the existing blocks does not change. The block
for a fall-through edge is placed between the two blocks. The block for a taken edge is placed before its target if no
block falls through into the target. Otherwise it is placed at the end of the kernel, after a new ``ret`` if the last
block falls through.

Guarantees: no other edge changes; no synthetic block is empty.
Refuses: an edge of ``brx.idx`` that would have to be split.
"""

from __future__ import annotations

from ...analysis.graph.cfg import Cfg
from ...ptx import Block, Directive, Instr, Kernel, decode
from ...ptx.operations import Operation

__all__ = ["SYNTHETIC", "EdgeInserter"]

#: Labels of synthetic blocks start with this.
SYNTHETIC = "$edge_"


class EdgeInserter:
    """Collects insertions. `commit` does all of them at once, so that block numbers stay valid until then."""

    def __init__(self, kernel: Kernel, cfg: Cfg) -> None:
        self.kernel = kernel
        self.cfg = cfg
        self._exits = frozenset(cfg.exits)
        #: By edge (block, successor): the code to insert on it.
        self._code: dict[tuple[int, int], list[Instr]] = {}

    def is_possible(self, block: int, successor: int) -> bool:
        """Whether code can be inserted on the edge."""
        if self._is_at_start(successor) or self._is_at_end(block):
            return True
        terminator = self.cfg.blocks[block].terminator
        return terminator is None or terminator.form.operation is not Operation.INDEXED_BRANCH

    def insert(self, block: int, successor: int, instr: Instr) -> None:
        """Insert ``instr`` on the edge, after the earlier insertions there."""
        self._code.setdefault((block, successor), []).append(instr)

    def commit(self) -> None:
        """Do the insertions."""
        starts: dict[int, list[Instr]] = {}
        splits: list[tuple[int, int, list[Instr]]] = []
        for (block, successor), code in self._code.items():
            if self._is_at_start(successor):
                starts.setdefault(successor, []).extend(code)
            elif self._is_at_end(block):
                self._append(self.cfg.blocks[block], code)
            else:
                splits.append((block, successor, code))
        for number, code in starts.items():
            self._prepend(self.cfg.blocks[number], code)
        for block, successor, code in splits:
            self._split(self.cfg.blocks[block], self.cfg.blocks[successor], block + 1 == successor, code)
        self._code.clear()

    def _is_at_start(self, successor: int) -> bool:
        return len(self.cfg.pred[successor]) == 1 and successor != self.cfg.rpo[0]

    def _is_at_end(self, block: int) -> bool:
        return len(self.cfg.succ[block]) == 1 and block not in self._exits

    def _append(self, block: Block, code: list[Instr]) -> None:
        terminator = block.terminator
        instrs = list(block.instrs)
        at = instrs.index(terminator) if terminator is not None else len(instrs)
        self.kernel.set_instrs(block, [*instrs[:at], *code, *instrs[at:]])

    def _prepend(self, block: Block, code: list[Instr]) -> None:
        # A loop pragma stays at the start of the block. A pragma that describes a load stays directly before that load.
        at = 0
        while at < len(block.instrs) and _is_loop_pragma(block.instrs[at]):
            at += 1
        self.kernel.set_instrs(block, [*block.instrs[:at], *code, *block.instrs[at:]])

    def _split(self, source: Block, target: Block, follows: bool, code: list[Instr]) -> None:
        """Split the edge by a synthetic block. ``follows``: the target is the next block in the text."""
        kernel = self.kernel
        terminator = source.terminator
        taken = (
            terminator is not None
            and terminator.form.operation is Operation.BRANCH
            and target.label in terminator.operands
        )
        if follows and not taken:
            kernel.insert_block(kernel.blocks.index(target), Block(None, code))
            return
        assert terminator is not None and target.label is not None
        label = kernel.new_label(SYNTHETIC)
        at = kernel.blocks.index(target)
        if kernel.blocks[at - 1].falls_through:
            if kernel.blocks[-1].falls_through:
                # Control falls off the end of the kernel, which is a return. It must not enter the new block.
                kernel.blocks.append(Block(None, [Instr(decode("ret", 0), ())]))
            kernel.blocks.append(Block(label, [*code, Instr(decode("bra.uni", 1), (target.label,))]))
            kernel.cfg_changed()
        else:
            kernel.insert_block(at, Block(label, code))
        operands = tuple(label if operand is target.label else operand for operand in terminator.operands)
        kernel.replace_operands(terminator, operands)


def _is_loop_pragma(instr: Instr) -> bool:
    return isinstance(instr, Directive) and instr.kind == "pragma" and "used_bytes_mask" not in instr.payload
