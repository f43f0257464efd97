"""Control dependence, and the region of non-divergence.

Computes: which blocks are control-dependent on which branches. Block m is control-dependent on branch n if there is a
non-empty path from n to m such that m post-dominates every node of it except n (thesis §2.1). By Ferrante, Ottenstein
and Warren these m are, for each edge n → s, the nodes of the post-dominator tree from s up to, but without, the
immediate post-dominator of n.

The graph is the augmented one: it has a node ENTRY with an edge to the first block and one to the end. So the blocks
that post-dominate the first block depend on ENTRY, which never diverges. ENTRY has the number -1 here; the end is the
virtual exit. An exit, even a guarded one, is an edge to the end, so that a block after ``@p ret`` depends on it.

The *control dependence region of non-divergence* (CDRND) is the set of nodes that are control-dependent on
non-divergent branches only (§4.3). By that definition it contains a node that depends on a uniform branch which itself
depends on a divergent one, although lanes have already diverged there. But the thesis introduces the region as the one
in which an insertion cannot add divergence. So by default a branch that depends on a divergent one counts as divergent,
too. ``direct`` uses the definition of the thesis. Both agree on figure 4.11.

Requires: the CFG and its post-dominators. Guarantees: `cdrnd` takes near-linear time. `on` and `controllers` take time
in the size of the relation, which is quadratic for nested loops that all have their tests at their ends.
Reference: Ferrante, Ottenstein, Warren, *The program dependence graph and its use in optimization*, TOPLAS 1987.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from .cfg import Cfg
from .dominance import Dominance

__all__ = ["ENTRY", "ControlDependence"]

#: The number of the node that precedes the first block in the augmented graph.
ENTRY = -1


class ControlDependence:
    """Control dependence among the reachable blocks of a graph."""

    def __init__(self, cfg: Cfg, post_dominance: Dominance) -> None:
        self.cfg = cfg
        self.post_dominance = post_dominance
        self._leaves = frozenset(cfg.leaves)

    def ways(self, block: int) -> int:
        """The number of successors of ``block``; the end of the thread counts as one."""
        return len(self.cfg.succ[block]) + (block in self._leaves)

    @cached_property
    def branches(self) -> list[int]:
        """The reachable blocks with several successors, ascending; see `ways`."""
        return [block for block, is_reached in enumerate(self.cfg.reachable) if is_reached and self.ways(block) > 1]

    def on(self, branch: int) -> list[int]:
        """The blocks that are control-dependent on ``branch``, a block or `ENTRY`, ascending."""
        return sorted(set(self.dependents(branch)))

    def dependents(self, branch: int) -> Iterator[int]:
        """The blocks that are control-dependent on ``branch``; a block may be repeated."""
        idom = self.post_dominance.idom
        if branch == ENTRY:
            starts: Iterable[int] = self.cfg.rpo[:1]
            stop = self.post_dominance.root
        elif self.ways(branch) > 1:
            starts = self.cfg.succ[branch]
            stop = idom[branch]
        else:
            return
        for block in starts:
            while block != stop:
                yield block
                block = idom[block]

    @cached_property
    def controllers(self) -> list[list[int]]:
        """For each block the branches on which it is control-dependent, `ENTRY` among them, ascending."""
        branches: list[list[int]] = [[] for _ in range(len(self.cfg))]
        for branch in (ENTRY, *self.branches):
            for block in self.on(branch):
                branches[block].append(branch)
        return branches

    def cdrnd(self, divergent: Iterable[int], *, direct: bool = False) -> list[bool]:
        """For each block whether it lies in the control dependence region of non-divergence.

        ``divergent`` are the blocks that end in a divergent branch. Unreachable blocks do not lie in the region.
        """
        count = len(self.cfg)
        idom, depth = self.post_dominance.idom, self.post_dominance.depth
        inside = list(self.cfg.reachable)
        # Union-find: the nearest ancestor of each node, itself included, that is still inside. The virtual exit is.
        next_inside = list(range(count + 1))

        def find(node: int) -> int:
            while next_inside[node] != node:
                next_inside[node] = next_inside[next_inside[node]]
                node = next_inside[node]
            return node

        work = [branch for branch in divergent if inside[branch]]
        done = set(work)
        while work:
            branch = work.pop()
            if self.ways(branch) < 2:
                continue
            stop = depth[idom[branch]]
            for start in self.cfg.succ[branch]:
                block = find(start)
                while depth[block] > stop:
                    inside[block] = False
                    next_inside[block] = idom[block]
                    if not direct and block not in done:
                        done.add(block)
                        work.append(block)
                    block = find(block)
        return inside
