"""A kernel divided into segments, which run without a decision of the scheduler, and where threads reconverge.

Computes: segments (straight-line code that ends at a branch, call or barrier, or before a `*.sync` instruction); the
    segment where threads that diverged reconverge (immediate post-dominator); reverse postorder ranks.
Requires: a kernel with a body. Scopes may be nested. Registers and labels are compared by identity.
Guarantees: a guarded instruction that ends a segment (`@p ret`, `@p bar.sync`) is alone in a segment, after one that
    branches on the guard. So the end of a segment has no guard, unless it is a branch. With ``fine``, every memory
    access begins a segment, so that a random schedule can interleave there. With ``by_block``, each block begins a
    segment.
The post-dominators are computed here and not by `analysis`, because tests compare the analyses with the emulator, and
    because segments are smaller than blocks. Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001,
    on the reversed graph; the virtual exit is ``None``. Where control cannot reach an exit, an edge to it is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ptx.instructions import Directive, Instr
from ..ptx.ir import Kernel
from ..ptx.operands import Label, Sym

__all__ = ["Segment", "cut"]

_ENDS = {
    "control_bra": "bra",
    "control_brx": "brx",
    "control_call": "call",
    "control_ret": "ret",
    "control_exit": "exit",
    "control_trap": "trap",
    "sync_bar": "bar",
    "sync_bar_red": "bar",
    "sync_bar_red_popc": "bar",
}
#: Instructions that exchange values or wait inside a warp.
_WARP = frozenset(
    "sync_warp sync_ballot sync_vote sync_match_any sync_match_all sync_activemask sync_redux sync_elect "
    "sync_shfl matrix_mma matrix_load matrix_store".split()
)
_MEMORY = frozenset("memory_ld memory_st memory_atom memory_atom_cas memory_red memory_cp_async".split())


@dataclass(eq=False, slots=True)
class Segment:
    """Instructions that run in order (``body``), and ``end``, which decides what runs next.

    ``kind`` is ``fall bra brx call ret exit trap bar guard``. ``targets``: of ``bra`` and ``guard`` the segments if the
    predicate holds and if it does not; of ``brx`` the table; of the others the segment that follows. ``join`` is where
    threads reconverge; ``None`` is the end of the function.
    """

    kernel: Kernel
    block: int
    body: list[Instr] = field(default_factory=list[Instr])
    end: Instr | None = None
    kind: str = "fall"
    targets: tuple[Segment, ...] = ()
    join: Segment | None = None
    is_warp_sync: bool = False  #: the first instruction waits for other lanes of its warp
    receives: Instr | None = None  #: the reduction barrier or call whose results this segment takes at its start
    rank: int = 0
    index: int = -1


def semantics(instr: Instr) -> str:
    """The semantics in the row of the instruction; empty if it has no row."""
    return "" if instr.form.is_opaque else instr.form.op.semantics


def waits_for_lanes(instr: Instr) -> bool:
    """Whether a warp instruction waits for the lanes of its membermask, or for the whole warp."""
    name = semantics(instr)
    if name not in _WARP or name == "sync_activemask":
        return False
    return names_whole_warp(instr) or name == "sync_warp" or "sync" in instr.form.text.split(".")


def names_whole_warp(instr: Instr) -> bool:
    """Whether a warp instruction has no membermask and waits for all lanes."""
    return semantics(instr).startswith("matrix_")


class _Cutter:
    def __init__(self, kernel: Kernel, fine: bool, by_block: bool) -> None:
        self.kernel = kernel
        self.fine = fine
        self.by_block = by_block
        self.segments: list[Segment] = []
        self.by_label: dict[Label, Segment] = {}
        self.block = 0
        self.now = self.start()

    def start(self) -> Segment:
        segment = Segment(self.kernel, self.block)
        self.segments.append(segment)
        self.now = segment
        return segment

    def run(self) -> list[Segment]:
        for index, block in enumerate(self.kernel.blocks):
            self.block = index
            is_taken = self.by_block and index > 0 and self._is_empty(index - 1)
            if self.now.body or self.now.receives is not None or is_taken:
                self.start()
            self.now.block = index
            if block.label is not None:
                self.by_label[block.label] = self.now
            for instr in block.instrs:
                if not instr.is_directive:
                    self.add(instr)
        self.finish()
        return self.segments

    def add(self, instr: Instr) -> None:
        name = semantics(instr)
        kind = _ENDS.get(name)
        if kind is not None:
            if instr.guard is not None and kind != "bra":
                self.branch_on_guard(instr)
            self.now.end = instr
            self.now.kind = kind
            self.start()
            if name in ("sync_bar_red", "sync_bar_red_popc", "control_call"):
                self.now.receives = instr
                if instr.guard is not None:
                    # Threads for which the guard is false receive no results. They continue at the next segment.
                    self.start()
        elif name in _WARP:
            if instr.guard is not None:
                self.branch_on_guard(instr)
            elif waits_for_lanes(instr) and (self.now.body or self.now.receives is not None):
                self.start()
            self.now.is_warp_sync = waits_for_lanes(instr)
            self.now.body.append(instr)
            if instr.guard is not None:
                self.start()
        else:
            if (
                self.fine
                and (name in _MEMORY or name.startswith("mbarrier_"))
                and (self.now.body or self.now.receives is not None)
            ):
                self.start()
            self.now.body.append(instr)

    def _is_empty(self, block: int) -> bool:
        return all(instr.is_directive for instr in self.kernel.blocks[block].instrs)

    def branch_on_guard(self, instr: Instr) -> None:
        self.now.end = instr
        self.now.kind = "guard"
        self.start()

    def finish(self) -> None:
        """Set the targets. At the end of the text, control returns."""
        segments = self.segments
        for position, segment in enumerate(segments):
            following = segments[position + 1] if position + 1 < len(segments) else None
            end = segment.end
            if segment.kind == "bra":
                assert end is not None
                target = self.target(end.operands[-1])
                if end.guard is None:
                    segment.targets = (target, target)
                elif following is None:
                    segment.targets = (target, self.add_return())
                else:
                    segment.targets = (target, following)
            elif segment.kind == "brx":
                assert end is not None
                segment.targets = tuple(self.target(label) for label in self.table(end.operands[1]))
            elif segment.kind == "guard":
                assert following is not None
                skip = 2
                if position + 2 < len(segments) and segments[position + 2].receives is end:
                    skip = 3
                after = segments[position + skip] if position + skip < len(segments) else self.add_return()
                segment.targets = (following, after)
            elif segment.kind in ("fall", "call", "bar"):
                if following is None and segment.kind == "fall":
                    segment.kind = "ret"
                else:
                    segment.targets = (following if following is not None else self.add_return(),)

    def add_return(self) -> Segment:
        segment = Segment(self.kernel, max(len(self.kernel.blocks) - 1, 0), kind="ret")
        self.segments.append(segment)
        return segment

    def target(self, operand: object) -> Segment:
        assert isinstance(operand, Label)
        return self.by_label[operand]

    def table(self, operand: object) -> tuple[Label, ...]:
        for block in self.kernel.blocks:
            for instr in block.instrs:
                if isinstance(instr, Directive) and instr.kind == "branchtargets" and instr.label is operand:
                    return instr.targets
        raise KeyError(getattr(operand, "text", operand))


def cut(kernel: Kernel, *, fine: bool = False, by_block: bool = False) -> list[Segment]:
    """The segments of ``kernel`` that control can reach, the first one first, with joins and ranks."""
    segments = _Cutter(kernel, fine, by_block).run()
    order = _reverse_postorder(segments[0])
    for rank, segment in enumerate(order):
        segment.rank = rank
    _set_joins(order)
    return order


def _reverse_postorder(entry: Segment) -> list[Segment]:
    """Depth first, the later target first, so that segments are in the order of the text where possible."""
    done: list[Segment] = []
    visited = {entry}
    stack = [(entry, iter(entry.targets))]
    while stack:
        segment, remaining = stack[-1]
        for target in remaining:
            if target not in visited:
                visited.add(target)
                stack.append((target, iter(target.targets)))
                break
        else:
            done.append(segment)
            stack.pop()
    done.reverse()
    return done


def _set_joins(order: list[Segment]) -> None:
    """Immediate post-dominators, by node number; the virtual exit is ``len(order)``."""
    count = len(order)
    successors = [[target.rank for target in dict.fromkeys(segment.targets)] for segment in order]
    predecessors: list[list[int]] = [[] for _ in range(count + 1)]
    for node, targets in enumerate(successors):
        if not targets:
            targets.append(count)
        for target in targets:
            predecessors[target].append(node)
    sequence = _from_exit(predecessors, count)
    for node in range(count - 1, -1, -1):
        if node not in sequence:
            # An endless loop: assume an edge from its last segment to the exit.
            successors[node].append(count)
            predecessors[count].append(node)
            sequence = _from_exit(predecessors, count)
    numbers = {node: number for number, node in enumerate(sequence)}
    idom: dict[int, int] = {count: count}
    changed = True
    while changed:
        changed = False
        for node in sequence:
            if node == count:
                continue
            best = -1
            for target in successors[node]:
                if target in idom:
                    best = target if best < 0 else _meet(best, target, idom, numbers)
            if idom.get(node) != best:
                idom[node] = best
                changed = True
    for node, segment in enumerate(order):
        join = order[idom[node]] if idom[node] < count else None
        # Threads do not reconverge only to leave: ptxas replaces a branch to `ret` by an exit.
        segment.join = None if join is not None and join.kind in ("ret", "exit") and not join.body else join


def _from_exit(predecessors: list[list[int]], exit_node: int) -> dict[int, None]:
    """Reverse postorder of the reversed graph, as the order of the keys."""
    done: list[int] = []
    visited = {exit_node}
    stack = [(exit_node, iter(predecessors[exit_node]))]
    while stack:
        node, remaining = stack[-1]
        for source in remaining:
            if source not in visited:
                visited.add(source)
                stack.append((source, iter(predecessors[source])))
                break
        else:
            done.append(node)
            stack.pop()
    return dict.fromkeys(reversed(done))


def _meet(a: int, b: int, idom: dict[int, int], numbers: dict[int, int]) -> int:
    while a != b:
        while numbers[a] > numbers[b]:
            a = idom[a]
        while numbers[b] > numbers[a]:
            b = idom[b]
    return a


def called_names(kernel: Kernel) -> set[str]:
    """The functions that ``kernel`` names, in calls or to take their address."""
    names: set[str] = set()
    for instr in kernel.instructions():
        for operand in instr.operands:
            if isinstance(operand, Sym) and isinstance(operand.declaration, Kernel):
                names.add(operand.name)
    return names
