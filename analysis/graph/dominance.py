"""Dominators and post-dominators.

Computes: the tree of immediate dominators of a rooted graph, by Lengauer and Tarjan's algorithm with path compression,
O(m log n); whether *a dominates b* in constant time, from preorder and postorder numbers of the tree; dominance
frontiers

    DF(a) = { b | a dominates a predecessor of b and does not strictly dominate b }

and iterated ones. Post-dominators are the dominators of the reversed graph, rooted at a virtual exit: node n of a graph
of n blocks. Every exit has an edge to it, and so has one block of each part of the graph that control never leaves
(`Cfg.endless`). So the result for an endless loop is as if its latch could leave the kernel.

Requires: a `Cfg`, or successor lists. Guarantees: no recursion; near-linear time except for the frontiers, whose size
may be quadratic. An unreachable block has no dominator, dominates only itself, and contributes no edge.
Reference: Lengauer, Tarjan, *A fast algorithm for finding dominators in a flowgraph*, TOPLAS 1979; Cytron et al.,
*Efficiently computing static single assignment form*, TOPLAS 1991; Sreedhar, Gao, *A linear time algorithm for placing
φ-nodes*, POPL 1995 (iterated frontiers).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from .cfg import Cfg

__all__ = ["Dominance", "dominators", "immediate_dominators", "post_dominators"]


class Dominance:
    """The dominator tree of a graph from ``root``. Nodes are block numbers, and n for the virtual exit.

    ``idom[a]`` is the immediate dominator, -1 for the root and for nodes that the root does not reach.
    """

    def __init__(self, succ: Sequence[Sequence[int]], pred: Sequence[Sequence[int]], root: int) -> None:
        self.root = root
        self._pred = pred
        self.idom = immediate_dominators(succ, pred, root)
        self.children: list[list[int]] = [[] for _ in self.idom]
        for node, parent in enumerate(self.idom):
            if parent >= 0:
                self.children[parent].append(node)
        self._number_tree()

    def _number_tree(self) -> None:
        count = len(self.idom)
        self._first = first = [-1] * count
        self._last = last = [-1] * count
        self.preorder: list[int] = []  #: the nodes that the root reaches, parents before children
        self.depth = depth = [-1] * count  #: edges of the tree from the root; -1 where not reached
        if not count:
            return
        depth[self.root] = 0
        children, preorder = self.children, self.preorder
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node < 0:
                last[~node] = len(preorder)
                continue
            first[node] = len(preorder)
            preorder.append(node)
            below = children[node]
            if not below:
                last[node] = len(preorder)
                continue
            level = depth[node] + 1
            stack.append(~node)
            for child in reversed(below):
                depth[child] = level
                stack.append(child)

    def dominates(self, a: int, b: int) -> bool:
        """Whether every path from the root to ``b`` contains ``a``; a node dominates itself."""
        return a == b or self._first[a] < self._first[b] < self._last[a]

    def is_reached(self, node: int) -> bool:
        """Whether the root reaches ``node``."""
        return self._first[node] >= 0

    def frontier(self) -> list[list[int]]:
        """The dominance frontier of each node, ascending."""
        return self._frontiers

    @cached_property
    def _frontiers(self) -> list[list[int]]:
        frontiers: list[list[int]] = [[] for _ in self.idom]
        idom = self.idom
        for node, before in enumerate(self._pred):
            # Only joins lie in a frontier, and the root, because control enters it from outside as well.
            if not self.is_reached(node) or (len(before) < 2 and node != self.root):
                continue
            for runner in before:
                if not self.is_reached(runner):
                    continue
                while runner >= 0 and runner != idom[node]:
                    if frontiers[runner] and frontiers[runner][-1] == node:
                        break  # its ancestors have the entry already
                    frontiers[runner].append(node)
                    runner = idom[runner]
        return frontiers


def dominators(cfg: Cfg) -> Dominance:
    """The dominator tree from block 0."""
    return Dominance(cfg.succ, cfg.pred, 0)


def post_dominators(cfg: Cfg) -> Dominance:
    """The post-dominator tree: its root is the virtual exit, number ``len(cfg)``."""
    count = len(cfg)
    reachable = cfg.reachable
    succ: list[Sequence[int]] = [*cfg.succ, ()]
    pred: list[Sequence[int]] = [
        before if all(reachable[node] for node in before) else [node for node in before if reachable[node]]
        for before in cfg.pred
    ]
    pred.append(cfg.leaves)
    for node in cfg.leaves:
        succ[node] = [*cfg.succ[node], count]
    # Blocks that block 0 does not reach are excluded, even if they reach an exit.
    for node, is_reachable in enumerate(reachable):
        if not is_reachable:
            succ[node] = pred[node] = ()
    return Dominance(pred, succ, count)


def immediate_dominators(succ: Sequence[Sequence[int]], pred: Sequence[Sequence[int]], root: int) -> list[int]:
    """The immediate dominator of each node, -1 for the root and for nodes that the root does not reach.

    Lengauer and Tarjan's simple version. All arrays but the result are indexed by depth-first number."""
    count = len(succ)
    idom = [-1] * count
    if not count:
        return idom
    vertex, number, parent = _depth_first(succ, root)
    reached = len(vertex)
    forest = _Forest(reached)
    semi, ancestor = forest.semi, forest.ancestor
    bucket: list[list[int]] = [[] for _ in range(reached)]
    dom = [0] * reached
    for node in range(reached - 1, 0, -1):
        best = node
        for before in pred[vertex[node]]:
            low = number[before]
            if low < 0:
                continue
            if low > node:
                low = semi[forest.evaluate(low)]
            if low < best:
                best = low
        semi[node] = best
        bucket[best].append(node)
        up = parent[node]
        ancestor[node] = up
        for start in bucket[up]:
            best = forest.evaluate(start)
            dom[start] = best if semi[best] < semi[start] else up
        bucket[up].clear()
    for node in range(1, reached):
        if dom[node] != semi[node]:
            dom[node] = dom[dom[node]]
        idom[vertex[node]] = vertex[dom[node]]
    return idom


class _Forest:
    """The nodes that were visited, as trees. ``semi``: the semidominator of each node, or the node itself if it has
    none yet. ``ancestor``: a node above in the same tree, -1 for the root of a tree. ``label``: the node with the least
    semidominator between a node and its ancestor. All are indexed by depth-first number."""

    __slots__ = ("_path", "ancestor", "label", "semi")

    def __init__(self, count: int) -> None:
        self.semi = list(range(count))
        self.label = list(range(count))
        self.ancestor = [-1] * count
        self._path: list[int] = []

    def evaluate(self, node: int) -> int:
        """The node with the least semidominator from ``node`` up to the root of its tree, which is excluded. Shortens
        the path to the root."""
        semi, label, ancestor, path = self.semi, self.label, self.ancestor, self._path
        above = ancestor[node]
        while ancestor[above] >= 0:
            path.append(node)
            node, above = above, ancestor[above]
        while path:
            below = path.pop()
            if semi[label[node]] < semi[label[below]]:
                label[below] = label[node]
            ancestor[below] = above
            node = below
        return label[node]


def _depth_first(succ: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int], list[int]]:
    """Nodes by preorder number, preorder numbers by node (-1: not reached), and parent numbers by preorder number."""
    number = [-1] * len(succ)
    vertex: list[int] = []
    parent: list[int] = []
    stack = [root]
    above = [-1]
    while stack:
        node = stack.pop()
        up = above.pop()
        if number[node] >= 0:
            continue
        number[node] = here = len(vertex)
        vertex.append(node)
        parent.append(up)
        for to in succ[node]:
            if number[to] < 0:
                stack.append(to)
                above.append(here)
    return vertex, number, parent
