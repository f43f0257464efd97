"""The loop nest, irreducible regions included.

Computes: the loops of a control flow graph as a forest. A loop with header h is a maximal strongly connected region
whose first block in depth-first order is h. The loops inside it are the loops of the region without the edges to h. In
a reducible graph these are the natural loops, with loops of the same header merged. A loop that can be entered at
another block than its header is *irreducible*. Its header and its set of blocks then depend on the depth-first order.

Requires: a `Cfg`. Guarantees: almost linear time, no recursion, no set per loop: the blocks of a loop are a slice of
one list. Only reachable blocks lie in loops.
Reference: Havlak, *Nesting of reducible and irreducible loops*, TOPLAS 1997, in the almost linear form of Ramalingam,
*Identifying loops in almost linear time*, TOPLAS 1999: a forward or cross edge is deferred until the lowest common
ancestor of its ends in the depth-first tree is processed.
"""

from __future__ import annotations

from functools import cached_property

from .cfg import Cfg

__all__ = ["Loop", "Loops"]


class Loop:
    """One loop. Blocks are numbers; ``parent`` is the number of the loop around it, or -1; ``depth`` counts from 1."""

    def __init__(
        self, cfg: Cfg, order: list[int], position: list[int], index: int, header: int, latches: list[int]
    ) -> None:
        """``order`` and ``position`` are those of `Loops`. A reference to `Loops` itself would be cyclic, and would
        delay the release of the graph."""
        self._cfg = cfg
        self._order = order
        self._position = position
        self.index = index
        self.header = header
        self.latches = latches  #: the blocks with an edge to the header that lie in the loop, ascending
        self.parent = -1
        self.depth = 1
        self.is_irreducible = False
        self.start = self.end = 0  #: the blocks of the loop in ``Loops.order``

    def __contains__(self, block: int) -> bool:
        return self.start <= self._position[block] < self.end

    @cached_property
    def blocks(self) -> list[int]:
        """The blocks of the loop, those of inner loops included, ascending."""
        return sorted(self._order[self.start : self.end])

    @cached_property
    def exits(self) -> list[tuple[int, int]]:
        """The edges (block inside, block outside) that leave the loop. A `ret` in the loop is no edge."""
        succ = self._cfg.succ
        return [(block, to) for block in self.blocks for to in succ[block] if to not in self]

    @cached_property
    def entries(self) -> list[int]:
        """The blocks at which the loop can be entered, ascending: the header, and others if it is irreducible."""
        cfg = self._cfg
        entered = [b for b in self.blocks if any(cfg.reachable[p] and p not in self for p in cfg.pred[b])]
        return sorted({self.header, *entered}) if self.header == 0 else entered

    def __repr__(self) -> str:
        kind = "irreducible loop" if self.is_irreducible else "loop"
        return f"<{kind} {self.index}: header {self.header}, {self.end - self.start} blocks, depth {self.depth}>"


class Loops:
    """The loops of a graph; each loop comes before the loops inside it.

    ``loop_of[b]`` is the number of the innermost loop around block b, -1 if there is none. ``depth[b]`` is the number
    of loops around it.
    """

    def __init__(self, cfg: Cfg) -> None:
        self.cfg = cfg
        self.loops: list[Loop] = []
        self.loop_of = [-1] * len(cfg)
        self.depth = [0] * len(cfg)
        self.order: list[int] = []  #: blocks in loops, so that every loop is a slice
        self.position = [-1] * len(cfg)  #: By block: its index in ``order``
        if cfg.rpo:
            self._find(_DepthFirst(cfg))
            self._lay_out()
            self._mark_irreducible()

    def around(self, block: int) -> list[Loop]:
        """The loops around ``block``, outermost first."""
        outer: list[Loop] = []
        index = self.loop_of[block]
        while index >= 0:
            outer.append(self.loops[index])
            index = outer[-1].parent
        outer.reverse()
        return outer

    def _find(self, tree: _DepthFirst) -> None:
        """Treat possible headers from the last to the first, and collapse each loop into its header."""
        count = len(self.cfg)
        top = list(range(count))  # union-find: the header into which a block is collapsed
        entering: list[list[int]] = [[] for _ in range(count)]
        inside: dict[int, list[int]] = {}  # by header its members; an inner loop is represented by its header
        parent = tree.parent

        def find(node: int) -> int:
            while top[node] != node:
                top[node] = top[top[node]]
                node = top[node]
            return node

        for header in reversed(tree.order):
            for before, to in tree.deferred.get(header, ()):
                entering[find(to)].append(before)
            latches = tree.back.get(header)
            if latches is None:
                continue
            body: set[int] = set()
            work: list[int] = []
            for latch in latches:
                node = find(latch)
                if node != header and node not in body:
                    body.add(node)
                    work.append(node)
            while work:
                node = work.pop()
                for before in (parent[node], *entering[node]):
                    before = find(before)
                    if before != header and before not in body:
                        body.add(before)
                        work.append(before)
            for node in body:
                top[node] = header
            inside[header] = sorted(body)
        # Inner loops were found first; the result has outer loops first.
        number = {header: index for index, header in enumerate(reversed(inside))}
        self.loops = [
            Loop(self.cfg, self.order, self.position, index, header, sorted(tree.back[header]))
            for header, index in number.items()
        ]
        for header, members in inside.items():
            index = number[header]
            self.loop_of[header] = index
            for node in members:
                if node in number:
                    self.loops[number[node]].parent = index
                else:
                    self.loop_of[node] = index

    def _lay_out(self) -> None:
        """Compute the depths, and a slice of ``order`` for each loop: its own blocks, then its inner loops."""
        loops = self.loops
        own: list[list[int]] = [[] for _ in loops]
        size = [0] * len(loops)
        for loop in loops:
            if loop.parent >= 0:
                loop.depth = loops[loop.parent].depth + 1
        for block, index in enumerate(self.loop_of):
            if index >= 0:
                own[index].append(block)
                self.depth[block] = loops[index].depth
        for loop in reversed(loops):
            size[loop.index] += len(own[loop.index])
            if loop.parent >= 0:
                size[loop.parent] += size[loop.index]
        free = [0] * len(loops)  # where the next inner loop of a loop starts
        top = 0
        self.order += [-1] * sum(len(blocks) for blocks in own)
        for loop in loops:
            index = loop.index
            if loop.parent >= 0:
                loop.start = free[loop.parent]
                free[loop.parent] += size[index]
            else:
                loop.start = top
                top += size[index]
            loop.end = loop.start + size[index]
            free[index] = loop.start + len(own[index])
            for offset, block in enumerate(own[index], loop.start):
                self.order[offset] = block
                self.position[block] = offset

    def _mark_irreducible(self) -> None:
        """Mark each loop into which an edge leads to another block than its header."""
        cfg, loops, loop_of = self.cfg, self.loops, self.loop_of
        for to in cfg.rpo:
            innermost = loop_of[to]
            if innermost < 0:
                continue
            before = cfg.pred[to]
            if to == 0:
                before = [*before, -1]
            for node in before:
                if node >= 0 and (loop_of[node] == innermost or not cfg.reachable[node]):
                    continue
                index = innermost
                while index >= 0 and (node < 0 or node not in loops[index]):
                    if loops[index].header != to:
                        loops[index].is_irreducible = True
                    index = loops[index].parent


class _DepthFirst:
    """A depth-first tree and the other edges by kind.

    ``back[h]``: the blocks with an edge to h that are descendants of h in the tree, or h itself. ``deferred[a]``: the
    forward and cross edges whose ends have the lowest common ancestor a.
    """

    def __init__(self, cfg: Cfg) -> None:
        count = len(cfg)
        succ = cfg.succ
        self.order: list[int] = [0]
        self.parent = parent = [-1] * count
        self.back: dict[int, list[int]] = {}
        self.deferred: dict[int, list[tuple[int, int]]] = {}
        state = bytearray(count)  # 0 new, 1 on the path from the root, 2 done
        alive = list(range(count))  # union-find: the lowest ancestor of a done node that is still on the path
        state[0] = 1
        path = [0]
        edges = [iter(succ[0])]
        while path:
            node = path[-1]
            for to in edges[-1]:
                if not state[to]:
                    state[to] = 1
                    parent[to] = node
                    self.order.append(to)
                    path.append(to)
                    edges.append(iter(succ[to]))
                    break
                if state[to] == 1:
                    self.back.setdefault(to, []).append(node)
                else:
                    above = to
                    while alive[above] != above:
                        alive[above] = alive[alive[above]]
                        above = alive[above]
                    self.deferred.setdefault(above, []).append((node, to))
            else:
                state[node] = 2
                path.pop()
                edges.pop()
                if path:
                    alive[node] = path[-1]
