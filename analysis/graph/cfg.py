"""The control flow graph of a kernel, over block numbers.

Computes: for the blocks of a kernel, in text order, their successors. They follow from the last instruction of a
block:

    (none of those below)   the next block; after the last block the thread ends
    bra L                   L; with a guard also the next block; with a constant guard only the selected one
    brx.idx r, T            the targets of the ``.branchtargets`` directive T; with a guard also the next block
    ret, exit, trap         the end of the thread; with a guard also the next block

A call is assumed to return. An opaque instruction whose text contains a label of the body may branch there: the graph
has that edge, and the instruction is listed in ``unmodelled``, so that transforms can refuse the kernel.

Requires: blocks that control enters only at their start and leaves only at their end, as the parser makes them.
Guarantees: linear time, no recursion; ``succ`` and ``pred`` without duplicates, fall-through first; the same numbers
for the same text.
Refuses: a branch to a label that is on no block of the kernel, and a ``brx.idx`` without its ``.branchtargets``, with
`BrokenBranch`. Kernels from the parser or the verifier contain neither.
Reference: PTX ISA 9.0, §9.7.13 (control flow instructions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from ...graphs import strongly_connected_components
from ...ptx import Block, Directive, Imm, Instr, Kernel, Label
from ...ptx.operations import Operation
from ...ptx.types import literal_value

__all__ = ["BrokenBranch", "Cfg", "Flow", "build_cfg", "reverse_postorder"]

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")


class BrokenBranch(ValueError):
    """A branch has no target block: a transform made an invalid kernel, or the kernel was never verified."""

    def __init__(self, message: str, instr: Instr) -> None:
        super().__init__(f"{message}: '{instr.text}'")
        self.instr = instr


class Flow:
    """The reachable blocks of a graph for a dataflow problem, forward or backward.

    ``order`` is reverse postorder of the direction; ``position`` maps a block to its index in it. Facts flow into a
    block from the blocks ``before`` and out of it to the blocks ``after``. ``only`` maps a block to the block before it
    if there is exactly one and the block is not at the ``boundary`` (block 0, or `Cfg.leaves`); else -1.
    """

    def __init__(self, cfg: Cfg, *, is_forward: bool) -> None:
        reachable = cfg.reachable
        before, after = (cfg.pred, cfg.succ) if is_forward else (cfg.succ, cfg.pred)
        if not all(reachable):
            before = [[other for other in others if reachable[other]] for others in before]
            after = [[other for other in others if reachable[other]] for others in after]
        self.order = cfg.rpo if is_forward else cfg.rpo[::-1]
        self.before = before
        self.after = after
        self.boundary = frozenset(cfg.rpo[:1] if is_forward else cfg.leaves)
        self.only = [
            others[0] if len(others) == 1 and block not in self.boundary else -1 for block, others in enumerate(before)
        ]
        self.position = [0] * len(cfg)
        for number, block in enumerate(self.order):
            self.position[block] = number


class Cfg:
    """Blocks by number, and the edges between them.

    ``succ[b]`` and ``pred[b]`` are block numbers, the fall-through first. ``rpo`` lists the blocks that are reachable
    from block 0 in reverse postorder. ``exits`` are the blocks in which a thread may end; they may have successors as
    well. Reachability ignores values: a branch on a register that is always true has two successors.
    """

    def __init__(
        self, blocks: list[Block], succ: list[list[int]], exits: list[int], unmodelled: Sequence[Instr] = ()
    ) -> None:
        self.blocks = blocks
        self.index: dict[Block, int] = {block: number for number, block in enumerate(blocks)}
        self.succ = succ
        self.pred = _reversed_edges(succ)
        self.exits = exits
        self.unmodelled: tuple[Instr, ...] = tuple(unmodelled)
        self.rpo = reverse_postorder(succ, 0) if blocks else []
        self.reachable = [False] * len(blocks)
        for number in self.rpo:
            self.reachable[number] = True

    def __len__(self) -> int:
        return len(self.blocks)

    @cached_property
    def rpo_number(self) -> list[int]:
        """By block: its index in ``rpo``; -1 for an unreachable block."""
        numbers = [-1] * len(self.blocks)
        for position, block in enumerate(self.rpo):
            numbers[block] = position
        return numbers

    @cached_property
    def never_leaving(self) -> set[int]:
        """The reachable blocks from which no exit can be reached."""
        leaving = {block for block in self.exits if self.reachable[block]}
        work = list(leaving)
        while work:
            for before in self.pred[work.pop()]:
                if before not in leaving and self.reachable[before]:
                    leaving.add(before)
                    work.append(before)
        return set(self.rpo) - leaving if len(leaving) < len(self.rpo) else set()

    @cached_property
    def endless(self) -> list[int]:
        """One block for each part of the reachable graph that control never leaves.

        Such a part is a strongly connected component without an outgoing edge and without an exit. Its last block in
        reverse postorder, usually the latch of a loop, serves as an exit for analyses in which every block must reach
        an exit.
        """
        remaining = self.never_leaving
        if not remaining:
            return []
        latches: list[int] = []
        number = self.rpo_number
        for component in strongly_connected_components(self.succ, [each for each in self.rpo if each in remaining]):
            members = set(component)
            if all(after in members for block in component for after in self.succ[block]):
                latches.append(max(component, key=number.__getitem__))
        return sorted(latches)

    @cached_property
    def forward(self) -> Flow:
        """The graph for forward problems."""
        return Flow(self, is_forward=True)

    @cached_property
    def backward(self) -> Flow:
        """The graph for backward problems."""
        return Flow(self, is_forward=False)

    @cached_property
    def leaves(self) -> list[int]:
        """The reachable blocks with an edge to the virtual exit: ``exits`` and ``endless``, ascending."""
        return sorted({block for block in self.exits if self.reachable[block]}.union(self.endless))


def build_cfg(kernel: Kernel) -> Cfg:
    """The control flow graph of ``kernel``. Raises `BrokenBranch` for a branch without a target block."""
    blocks = kernel.blocks
    targets = _Targets(kernel)
    last = len(blocks) - 1
    succ: list[list[int]] = []
    exits: list[int] = []
    for number, block in enumerate(blocks):
        instr = block.terminator
        falls, jumps, ends = True, [], False
        if instr is not None:
            operation = instr.form.operation
            taken, falls = _is_taken(instr)
            if not taken:
                pass
            elif operation is Operation.BRANCH:
                jumps = [targets.block(instr)]
            elif operation is Operation.INDEXED_BRANCH:
                jumps = targets.table(instr)
            else:
                ends = True
        after = [number + 1] if falls and number < last else []
        if (falls and number == last) or ends:
            exits.append(number)
        if jumps:
            after = list(dict.fromkeys([*after, *jumps]))
        succ.append(after)
    unmodelled = _opaque_branches(blocks, targets, succ)
    return Cfg(list(blocks), succ, exits, unmodelled)


def _is_taken(instr: Instr) -> tuple[bool, bool]:
    """(whether a branch may be taken, whether it may fall through)."""
    guard = instr.guard
    if guard is None:
        return True, False
    if isinstance(guard.reg, Imm):
        taken = (literal_value(guard.reg.text) != 0) != guard.negated
        return taken, not taken
    return True, True


class _Targets:
    """The blocks of labels. A lookup uses the label object first, then its name."""

    def __init__(self, kernel: Kernel) -> None:
        self.by_label: dict[Label, int] = {}
        self.by_name: dict[str, list[int]] = {}
        self.kernel = kernel
        for number, block in enumerate(kernel.blocks):
            if block.label is not None:
                self.by_label[block.label] = number
                self.by_name.setdefault(block.label.text, []).append(number)
        self.tables: dict[Label, Directive] | None = None

    def block(self, instr: Instr) -> int:
        label = instr.operands[-1]
        assert isinstance(label, Label), instr
        return self.find(label, instr)

    def find(self, label: Label, instr: Instr) -> int:
        number = self.by_label.get(label)
        if number is not None:
            return number
        named = self.by_name.get(label.text, ())
        if len(named) == 1:
            return named[0]
        what = "is ambiguous" if named else "is not defined"
        raise BrokenBranch(f"label '{label.text}' {what}", instr)

    def table(self, instr: Instr) -> list[int]:
        """The blocks that a ``brx.idx`` may jump to."""
        if self.tables is None:
            self.tables = {
                item.label: item
                for block in self.kernel.blocks
                for item in block.instrs
                if isinstance(item, Directive) and item.kind == "branchtargets" and item.label is not None
            }
        label = instr.operands[-1]
        assert isinstance(label, Label), instr
        directive = self.tables.get(label)
        if directive is None:
            named = [table for key, table in self.tables.items() if key.text == label.text]
            if len(named) != 1:
                raise BrokenBranch(f"'{label.text}' labels no .branchtargets", instr)
            directive = named[0]
        return [self.find(target, instr) for target in directive.targets]


def _opaque_branches(blocks: list[Block], targets: _Targets, succ: list[list[int]]) -> list[Instr]:
    """Add edges to every label in the text of an opaque instruction; returns these instructions."""
    branches: list[Instr] = []
    if not targets.by_name:
        return branches
    for number, block in enumerate(blocks):
        for instr in block.instrs:
            if not instr.form.is_opaque or instr.is_directive:
                continue
            text = ", ".join(operand.text for operand in instr.operands)
            named = [to for name in _NAME.findall(text) for to in targets.by_name.get(name, ())]
            if named:
                branches.append(instr)
                succ[number] = list(dict.fromkeys([*succ[number], *named]))
    return branches


def _reversed_edges(succ: Sequence[Sequence[int]]) -> list[list[int]]:
    """By block: its predecessors, the previous block in text order first, then ascending."""
    pred: list[list[int]] = [[] for _ in succ]
    for number, after in enumerate(succ):
        for to in after:
            pred[to].append(number)
    for to, before in enumerate(pred):
        if len(before) > 1 and before[0] != to - 1 and to - 1 in before:
            before.remove(to - 1)
            before.insert(0, to - 1)
    return pred


def reverse_postorder(succ: Sequence[Sequence[int]], root: int) -> list[int]:
    """The nodes that ``root`` reaches, in a reverse postorder that follows the order of ``succ`` where possible."""
    visited = bytearray(len(succ))
    visited[root] = 1
    order: list[int] = []
    stack = [root]
    pending = [list(succ[root])]
    while stack:
        todo = pending[-1]
        while todo:
            node = todo.pop()  # the last successor first, so that the first one is first in the result
            if not visited[node]:
                visited[node] = 1
                stack.append(node)
                pending.append(list(succ[node]))
                break
        else:
            pending.pop()
            order.append(stack.pop())
    order.reverse()
    return order
