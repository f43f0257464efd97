"""Where lanes that diverged at a branch may meet again after they took different paths.

Computes, while branches are found to be divergent one by one,

- the *divergent joins*: blocks at which lanes of a warp arrive together, but over different edges, so that a φ there
  selects different arguments for them (sync divergence);
- the loops with a *divergent exit*: lanes leave them in different iterations or over different edges, so that a value
  that changes between iterations differs between lanes after the loop (temporal divergence).

Lanes are compared when they execute the same *dynamic instance* of a block: the same iteration of each loop around it.
So each loop is analyzed separately, as an acyclic graph with its own blocks, each inner loop as one node, one end node
for the edges back to the header, and one end node for each edge out of the loop. Outside all loops the graph is that of
the whole kernel, with the outermost loops as nodes.

               header ◄──┐                     header
               ╱    ╲    │                     ╱    ╲            In the graph of the loop, lanes that diverge at the
            inner    x   │      becomes     [inner]   x          header meet at y (a join). Lanes that diverge at y
             ⟲  ╲   ╱    │                     ╲    ╱            reach different ends, so the loop has a divergent exit.
                  y ─────┘                       y
                  │                            ╱    ╲
                 out                       ‹back›  ‹out›

In such a graph let d be the immediate dominator of a join j, and R the nodes on the paths from d to j. Lanes that meet
at j were at d together. They can arrive over different edges only if there is a node b, in R or d itself, that

    is divergent,  has at least two edges into R or to j,  and has an immediate post-dominator that is not in R

Proof: if the first node after d at which two lanes take different edges had its post-dominator z in R, both lanes would
reach z, and the argument is repeated from there. A loop has a divergent exit if only the common end of all end nodes
post-dominates a divergent node b. Paths that lead only to a ``ret`` are excluded: no other lanes meet the lanes on
them. An inner loop with a divergent exit is a divergent node. Two edges between the same two nodes (two exits of an
inner loop to one block) are distinguished by an additional node on one of them.

In an irreducible loop "the same iteration" has no meaning. If lanes may enter it over different edges, or a branch in
it is divergent, all its joins are divergent, and so are its exits and those of the loops inside it (*tangled*).

Requires: a CFG and its loops. Guarantees: over-approximates. The test of a join takes at most time in the size of R,
and none if no divergent node lies between d and j. The graph of a loop is built when its first branch is found
divergent. Reference: Coutinho, Sampaio, Pereira, Meira, *Divergence Analysis and Optimizations*, PACT 2011; Rosemann,
Moll, Hack, *An Abstract Interpretation for SPMD Divergence on Reducible Control Flow Graphs*, POPL 2021 (the three
causes, and disjoint paths as what makes a join divergent).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import cached_property

from ..graph.cfg import Cfg, reverse_postorder
from ..graph.dominance import immediate_dominators
from ..graph.loops import Loops

__all__ = ["Reconvergence"]

#: The number of the graph of the blocks outside all loops.
_OUTSIDE = -1


class Reconvergence:
    """The state of the propagation. ``join_cause``: by block that is a divergent join, and ``loop_cause``: by loop with
    a divergent exit, the block of the divergent branch that is the cause. ``tangled``: numbers of loops."""

    def __init__(self, cfg: Cfg, loops: Loops) -> None:
        self.cfg = cfg
        self.loops = loops
        self.join_cause: dict[int, int] = {}
        self.loop_cause: dict[int, int] = {}
        self.tangled: set[int] = set()
        self._divergent = bytearray(len(cfg))
        self._levels: dict[int, _Level] = {}
        self._inner: dict[int, list[int]] = {}
        for loop in loops.loops:
            self._inner.setdefault(loop.parent, []).append(loop.index)

    def diverge(self, branch: int) -> list[int]:
        """Record that the branch at the end of block ``branch`` is divergent. Returns the loops whose exits become
        divergent by that, outermost last. `is_divergent_join` finds the joins."""
        with_divergent_exits: list[int] = []
        if self._divergent[branch]:
            return with_divergent_exits
        self._divergent[branch] = 1
        index = self.loops.loop_of[branch]
        outermost = _OUTSIDE
        while index >= 0:
            if self.loops.loops[index].is_irreducible:
                outermost = index
            index = self.loops.loops[index].parent
        if outermost >= 0:
            self._tangle(outermost, branch, with_divergent_exits)
        else:
            index = self.loops.loop_of[branch]
            level = self._level(index)
            self._diverge_node(index, level, level.node(branch), branch, with_divergent_exits)
        return with_divergent_exits

    def _diverge_node(self, index: int, level: _Level, node: int, cause: int, found: list[int]) -> None:
        """Record that a node of one graph is divergent; appends loops with newly divergent exits to ``found``."""
        while level.diverge(node, cause) and index >= 0 and index not in self.loop_cause:
            self.loop_cause[index] = cause
            found.append(index)
            inner = index
            index = self.loops.loops[index].parent
            if index >= 0 and self.loops.loops[index].is_irreducible:
                return  # it is tangled, because a branch in it is divergent
            level = self._level(index)
            node = level.of_loop[inner]

    def is_divergent_join(self, block: int) -> bool:
        """Whether lanes may reach ``block`` together over different edges, for the divergent branches recorded so far.

        False for the header of an irreducible loop that is not tangled; see `test_entries`.
        """
        if block in self.join_cause:
            return True
        index = self.loops.loop_of[block]
        loop = self.loops.loops[index] if index >= 0 else None
        if loop is not None and loop.header == block:
            if loop.is_irreducible:
                return False
            level = self._levels.get(index)
            if level is not None and self._test(block, level, level.back):
                return True
            level = self._levels.get(loop.parent)
            return level is not None and self._test(block, level, level.of_loop[index])
        level = self._levels.get(index)
        return level is not None and self._test(block, level, level.node(block))

    def test_entries(self, index: int) -> list[int]:
        """Test whether lanes may enter an irreducible loop over different edges, so that it is tangled. Returns the
        loops whose exits become divergent by that, as `diverge` does."""
        with_divergent_exits: list[int] = []
        parent = self.loops.loops[index].parent
        level = self._levels.get(parent)
        if index not in self.tangled and level is not None:
            cause = level.test(level.of_loop[index])
            if cause >= 0:
                self._tangle(index, cause, with_divergent_exits)
        return with_divergent_exits

    def _test(self, block: int, level: _Level, node: int) -> bool:
        cause = level.test(node)
        if cause >= 0:
            self.join_cause[block] = cause
        return cause >= 0

    def _level(self, index: int) -> _Level:
        level = self._levels.get(index)
        if level is None:
            level = self._levels[index] = _Level(self.cfg, self.loops, index, self._inner.get(index, []))
        return level

    def _tangle(self, index: int, cause: int, found: list[int]) -> None:
        """Record that the loop is tangled: all its joins, its exits and those of the loops inside it are divergent."""
        if index in self.tangled:
            return
        work = [index]
        while work:
            inner = work.pop()
            work.extend(self._inner.get(inner, ()))
            self.tangled.add(inner)
            if inner not in self.loop_cause:
                self.loop_cause[inner] = cause
                found.append(inner)
        for block in self.loops.loops[index].blocks:
            if len(self.cfg.pred[block]) > 1:
                self.join_cause.setdefault(block, cause)
        parent = self.loops.loops[index].parent
        if parent < 0 or not self.loops.loops[parent].is_irreducible:
            level = self._level(parent)
            self._diverge_node(parent, level, level.of_loop[index], cause, found)


class _Level:
    """The acyclic graph of one loop, or of the blocks outside all loops. Nodes are numbers; the last one is the common
    end."""

    def __init__(self, cfg: Cfg, loops: Loops, index: int, inner: Sequence[int]) -> None:
        self._loops = loops
        self._index = index
        self.of_loop: dict[int, int] = {}
        self._of_block: dict[int, int] = {}
        self._succ: list[list[int]] = []
        own = [block for block in _blocks(cfg, loops, index) if loops.loop_of[block] == index]
        for block in own:
            self._of_block[block] = self._new_node()
        self._irreducible: set[int] = set()
        for child in inner:
            self.of_loop[child] = node = self._new_node()
            if loops.loops[child].is_irreducible:
                self._irreducible.add(node)
        #: The end node of the edges back to the header.
        self.back = self._new_node() if index >= 0 else -1
        self._ends: list[int] = [self.back] if index >= 0 else []
        edges = [(block, to) for block in own for to in cfg.succ[block]]
        for child in inner:
            edges += loops.loops[child].exits
        seen: set[tuple[int, int]] = set()
        for block, to in edges:
            self._connect(block, to, seen)
        if index < 0:
            leaving = {self.node(block) for block in cfg.leaves}
            self._ends += sorted(leaving | {node for node, after in enumerate(self._succ) if not after})
        self._finish(self.node(loops.loops[index].header if index >= 0 else cfg.rpo[0]))
        #: (position, node, cause) of the divergent nodes with several successors, ascending; and the nodes.
        self._divergent_nodes: list[tuple[int, int, int]] = []
        self._is_divergent: set[int] = set()
        #: By node that a test found to be no divergent join: the number of divergent nodes at the time of the test.
        self._tested: dict[int, int] = {}

    def _new_node(self) -> int:
        self._succ.append([])
        return len(self._succ) - 1

    def node(self, block: int) -> int:
        """The node of a block of the loop: its own, or that of the inner loop around it."""
        node = self._of_block.get(block)
        if node is not None:
            return node
        loops = self._loops
        loop = loops.loops[loops.loop_of[block]]
        while loop.parent != self._index:
            loop = loops.loops[loop.parent]
        return self.of_loop[loop.index]

    def _connect(self, block: int, to: int, seen: set[tuple[int, int]]) -> None:
        loop = self._loops.loops[self._index] if self._index >= 0 else None
        source = self.node(block)
        if loop is not None and to not in loop:
            target = self._new_node()
            self._ends.append(target)
        else:
            target = self.back if loop is not None and to == loop.header else self.node(to)
        if (source, target) in seen or target in self._irreducible:
            between = self._new_node()
            self._succ[source].append(between)
            self._succ[between].append(target)
        else:
            seen.add((source, target))
            self._succ[source].append(target)

    def _finish(self, entry: int) -> None:
        """Exclude nodes that lead only to a ``ret``, and compute post-dominators and an order."""
        count = len(self._succ)
        self._end = count
        succ = [*self._succ, []]
        for node in self._ends:
            succ[node] = [*succ[node], count]
        pred: list[list[int]] = [[] for _ in succ]
        for node, after in enumerate(succ):
            for to in after:
                pred[to].append(node)
        is_live = bytearray(len(succ))
        is_live[count] = 1
        work = [count]
        while work:
            for before in pred[work.pop()]:
                if not is_live[before]:
                    is_live[before] = 1
                    work.append(before)
        self._succ = [[to for to in after if is_live[to]] if is_live[node] else [] for node, after in enumerate(succ)]
        self._pred = [[b for b in before if is_live[b]] if is_live[node] else [] for node, before in enumerate(pred)]
        self._entry = entry
        self._post_idom = immediate_dominators(self._pred, self._succ, count)
        self._position = [-1] * len(succ)
        for position, node in enumerate(reverse_postorder(self._succ, entry)):
            self._position[node] = position

    def diverge(self, node: int, cause: int) -> bool:
        """Record that a node is divergent. Returns whether lanes that diverge there may reach different end nodes."""
        if node in self._is_divergent or self._position[node] < 0 or len(self._succ[node]) < 2:
            return False
        self._is_divergent.add(node)
        insort(self._divergent_nodes, (self._position[node], node, cause))
        return self._post_idom[node] == self._end

    @cached_property
    def _idom(self) -> list[int]:
        """The immediate dominators; only the test of a join after a divergent node needs them."""
        return immediate_dominators(self._succ, self._pred, self._entry)

    def test(self, join: int) -> int:
        """The cause if ``join`` is a divergent join; else -1."""
        if (
            not self._divergent_nodes
            or len(self._pred[join]) < 2
            or self._tested.get(join) == len(self._divergent_nodes)
        ):
            return -1
        self._tested[join] = len(self._divergent_nodes)
        position = self._position
        top = self._idom[join]
        if top < 0:
            return -1
        first = bisect_left(self._divergent_nodes, (position[top],))
        last = bisect_left(self._divergent_nodes, (position[join],))
        if first == last:
            return -1
        region = {top}
        work = [join]
        while work:
            for before in self._pred[work.pop()]:
                if before not in region and position[before] >= 0:
                    region.add(before)
                    work.append(before)
        post = self._post_idom
        for _, node, cause in self._divergent_nodes[first:last]:
            if node not in region or (post[node] in region and post[node] != join):
                continue
            if sum(to == join or (to in region and to != top) for to in self._succ[node]) > 1:
                return cause
        return -1


def _blocks(cfg: Cfg, loops: Loops, index: int) -> list[int]:
    return cfg.rpo if index < 0 else loops.loops[index].blocks
