"""The control flow graph of a kernel, over block numbers.

Computes: for the blocks of a kernel in the order of the text, who follows whom, by what PTX says of the last
instruction of a block:

    (none of the below)     falls through to the next block; behind the last one the thread ends
    bra L                   L; with a guard also the next block; with a constant guard only the one that it selects
    brx.idx r, T            the targets of the ``.branchtargets`` directive labelled T; with a guard also the next
    ret, exit, trap         leaves; with a guard also the next block

A call comes back, as far as is known here. An opaque instruction whose text mentions a label of the body might branch
there: the edge is drawn, and the instruction is listed in ``unmodelled``, for transforms to refuse the kernel.

Requires: blocks that control enters at their start and leaves at their end only, as the parser makes them.
Guarantees: linear time, no recursion; ``succ`` and ``pred`` without duplicates, fall-through first; the same numbers
for the same text.
Refuses: a branch to a label that no block of the kernel bears, and a ``brx.idx`` without its ``.branchtargets``, with
`BrokenBranch`; neither comes out of the parser or the verifier.
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
    """A branch leads to no block: a transform has broken the kernel, or it was never verified."""

    def __init__(self, message: str, instr: Instr) -> None:
        super().__init__(f"{message}: '{instr.text}'")
        self.instr = instr


class Flow:
    """The reachable blocks of a graph as facts pass through them, forward or backward.

    ``order`` is reverse postorder of the direction, ``position`` that of each block in it; facts come to a block from
    ``before`` and go on to ``after``. ``only`` is the one block that facts come from, -1 at the ``boundary`` (block 0,
    or `Cfg.leaves`) and where there are several or none.
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
    from block 0 in reverse postorder. ``exits`` are the blocks in which a thread may end, also those that it may
    leave in another way. Reachability is that of the graph: a branch on a register that is always true has two ends.
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
        """The position of each block in ``rpo``; -1 where it is not reachable."""
        numbers = [-1] * len(self.blocks)
        for position, block in enumerate(self.rpo):
            numbers[block] = position
        return numbers

    @cached_property
    def endless(self) -> list[int]:
        """One block for each part of the reachable graph that, once entered, is never left.

        Such a part is a strongly connected component without an edge out of it and without an exit. Its last block
        in reverse postorder, in a loop written in the usual way its latch, stands for an exit wherever an analysis
        needs every block to reach one.
        """
        reaches = [False] * len(self.blocks)
        work = [block for block in self.exits if self.reachable[block]]
        for block in work:
            reaches[block] = True
        left = len(self.rpo) - len(work)
        while work:
            for before in self.pred[work.pop()]:
                if not reaches[before] and self.reachable[before]:
                    reaches[before] = True
                    left -= 1
                    work.append(before)
        if not left:
            return []
        found: list[int] = []
        number = self.rpo_number
        captive = [block for block in self.rpo if not reaches[block]]
        for component in strongly_connected_components(self.succ, captive):
            members = set(component)
            if all(after in members for block in component for after in self.succ[block]):
                found.append(max(component, key=number.__getitem__))
        return sorted(found)

    @cached_property
    def forward(self) -> Flow:
        """How facts pass forward."""
        return Flow(self, is_forward=True)

    @cached_property
    def backward(self) -> Flow:
        """How facts pass backward."""
        return Flow(self, is_forward=False)

    @cached_property
    def leaves(self) -> list[int]:
        """The reachable blocks with an edge to the virtual exit: ``exits`` and ``endless``, ascending."""
        return sorted({block for block in self.exits if self.reachable[block]}.union(self.endless))


def build_cfg(kernel: Kernel) -> Cfg:
    """The control flow graph of ``kernel``; `BrokenBranch` where a branch leads nowhere."""
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
    """Whether a branch may be taken, and whether it may not."""
    guard = instr.guard
    if guard is None:
        return True, False
    if isinstance(guard.reg, Imm):
        taken = (literal_value(guard.reg.text) != 0) != guard.negated
        return taken, not taken
    return True, True


class _Targets:
    """Labels of a kernel to block numbers. A label object is looked up first, its name only where that fails."""

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
    """Draw edges to every label that an opaque instruction mentions; returns these instructions."""
    found: list[Instr] = []
    if not targets.by_name:
        return found
    for number, block in enumerate(blocks):
        for instr in block.instrs:
            if not instr.form.is_opaque or instr.is_directive:
                continue
            text = ", ".join(operand.text for operand in instr.operands)
            named = [to for name in _NAME.findall(text) for to in targets.by_name.get(name, ())]
            if named:
                found.append(instr)
                succ[number] = list(dict.fromkeys([*succ[number], *named]))
    return found


def _reversed_edges(succ: Sequence[Sequence[int]]) -> list[list[int]]:
    """Predecessors, the block before in the text first, then ascending."""
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
    """The nodes that ``root`` reaches, in a reverse postorder that keeps to the order of ``succ`` where it can."""
    seen = bytearray(len(succ))
    seen[root] = 1
    order: list[int] = []
    stack = [root]
    pending = [list(succ[root])]
    while stack:
        todo = pending[-1]
        while todo:
            node = todo.pop()  # the last successor first, so that the first one comes out first
            if not seen[node]:
                seen[node] = 1
                stack.append(node)
                pending.append(list(succ[node]))
                break
        else:
            pending.pop()
            order.append(stack.pop())
    order.reverse()
    return order
