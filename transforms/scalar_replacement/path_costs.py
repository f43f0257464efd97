"""Whether each inserted load is offset by removed loads: no path may execute more loads than before.

A load is inserted where every path from there reads the same bytes, by the load that it replaces or by another one. But
the other load may not be replaced (a vector load, or one that is refused for another reason), or two insertions on one
path may rely on the same load. So the decisions of a round are checked before they are carried out: each edge with an
insertion weighs +1, each block −1 for each of its unguarded loads that are removed, and the heaviest path from the
entry to an exit is found by relaxation in reverse postorder. Where it weighs more than zero, each group of loads with
common insertions is weighed alone, and the groups that are too heavy get no insertions.

Requires: a `Cfg`. Guarantees: if `unbalanced` returns nothing, no path from the entry to an exit executes more loads
than before. Weights that do not settle within a few rounds, as those of a loop that adds weight with each iteration,
count as too heavy.
Reference: Knoop, Rüthing, Steffen, *Lazy Code Motion*, PLDI 1992 (safety as "no path evaluates more").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...analysis.graph.cfg import Cfg
from ...ptx import Instr, Reg

__all__ = ["Insertion", "PathCosts"]

#: An edge of the graph, and the register that a load on it fills.
Insertion: TypeAlias = tuple[tuple[int, int], Reg]


@dataclass(slots=True)
class PathCosts:
    """The loads that one round removes, and the insertions that they need.

    ``depth`` is the greatest nesting depth of loops: weights need at most ``depth + 1`` iterations to settle.
    """

    cfg: Cfg
    depth: int
    #: Removed load → its block.
    _blocks: dict[Instr, int] = field(default_factory=dict[Instr, int])
    #: Removed load → the insertions that it needs, in order; others may need them as well.
    _insertions: dict[Instr, dict[Insertion, None]] = field(default_factory=dict[Instr, "dict[Insertion, None]"])

    def add(self, load: Instr, block: int, insertions: Iterable[Insertion]) -> None:
        """Add a removed load."""
        self._blocks[load] = block
        needed = dict.fromkeys(insertions)
        if needed:
            self._insertions[load] = needed

    def unbalanced(self) -> list[tuple[list[Instr], set[Insertion]]]:
        """The groups of loads with common insertions that would make a path execute more loads, with their insertions.

        The path may be one that no thread takes: weights do not tell how often a loop iterates.
        """
        if not self._insertions or not self._adds_loads(self._blocks):
            return []
        groups = [group for group in self._groups() if self._adds_loads(group)]
        return [(group, {insertion for load in group for insertion in self._insertions[load]}) for group in groups]

    def _groups(self) -> list[list[Instr]]:
        """The loads with insertions; loads with a common insertion are in one group."""
        parent: dict[Instr, Instr] = {load: load for load in self._insertions}

        def find(load: Instr) -> Instr:
            while parent[load] is not load:
                parent[load] = load = parent[parent[load]]
            return load

        first: dict[Insertion, Instr] = {}
        for load, insertions in self._insertions.items():
            for insertion in insertions:
                parent[find(load)] = find(first.setdefault(insertion, load))
        groups: dict[Instr, list[Instr]] = {}
        for load in self._insertions:
            groups.setdefault(find(load), []).append(load)
        return list(groups.values())

    def _adds_loads(self, removed: Iterable[Instr]) -> bool:
        """Whether some path to an exit executes more loads when ``removed`` are removed and their insertions made."""
        on_edges: dict[tuple[int, int], set[Reg]] = {}
        in_block: dict[int, int] = {}
        for load in removed:
            if load.guard is None:  # a guarded load may not have been executed
                in_block[self._blocks[load]] = in_block.get(self._blocks[load], 0) - 1
            for edge, reg in self._insertions.get(load, ()):
                on_edges.setdefault(edge, set()).add(reg)
        cfg = self.cfg
        weight: dict[int, int] = {}  # block → the weight of the heaviest path to its end, so far
        for _ in range(self.depth + 2):
            changed = False
            for block in cfg.rpo:
                before = [weight[p] + len(on_edges.get((p, block), ())) for p in cfg.pred[block] if p in weight]
                if block == cfg.rpo[0]:
                    before.append(0)
                heaviest = max(before) + in_block.get(block, 0)
                if weight.get(block) != heaviest:
                    weight[block] = heaviest
                    changed = True
            if not changed:
                return any(weight[block] > 0 for block in cfg.exits if block in weight)
        return True
