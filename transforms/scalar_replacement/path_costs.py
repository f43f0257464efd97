"""Whether loads that are inserted are paid for: no path may execute more loads than before.

Each inserted load is put where its value is needed on every way on, by the load that it replaces or by one that reads
the same bytes. But that other one may have to stay (a vector, or one that is refused for another reason), or two
insertions on one path may count on the same load. So what one round decided is weighed before it is written: +1 on the
edges with an insertion, −1 in the blocks of the unguarded loads that go, and the heaviest path from the entry to any
exit, by relaxation in reverse postorder. Where it is above zero, the groups of loads that share insertions are weighed
one by one, and those that are too heavy by themselves have to do without insertions.

Requires: a `Cfg`. Guarantees: if `unpaid` finds nothing, no path from entry to exit executes more loads than before.
Where the weights do not settle within a few rounds (a loop that gains in every turn), they are too heavy.
Reference: Knoop, Rüthing, Steffen, *Lazy Code Motion*, PLDI 1992 (safety as "no path evaluates more").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...analysis.graph.cfg import Cfg
from ...ptx import Instr, Reg

__all__ = ["Payments"]

#: An edge of the graph, and the register that a load on it fills.
Insertion = tuple[tuple[int, int], Reg]


@dataclass(slots=True)
class Payments:
    """The loads that one round takes out, each with its block and the insertions that it asks for."""

    cfg: Cfg
    #: How deeply loops are nested: so often, and once more, weights may change before they settle.
    depth: int
    _blocks: dict[Instr, int] = field(default_factory=dict[Instr, int])
    _insertions: dict[Instr, dict[Insertion, None]] = field(default_factory=dict[Instr, "dict[Insertion, None]"])

    def add(self, load: Instr, block: int, insertions: Iterable[Insertion]) -> None:
        """``load`` of ``block`` goes, at the cost of ``insertions``, which other loads may ask for as well."""
        self._blocks[load] = block
        found = dict.fromkeys(insertions)
        if found:
            self._insertions[load] = found

    def unpaid(self, is_excused: Callable[[list[Instr], set[Insertion]], bool]) -> set[Instr]:
        """The loads that have to do without insertions; none, where all loads together are paid for. ``is_excused``
        says of a group of loads and its insertions whether it is paid for although a path of the graph is too heavy:
        a path that is never taken."""
        if not self._insertions or not self._is_heavy(self._blocks):
            return set()
        found: set[Instr] = set()
        for group in self._groups():
            insertions = {each for load in group for each in self._insertions[load]}
            if self._is_heavy(group) and not is_excused(group, insertions):
                found.update(group)
        return found

    def _groups(self) -> list[list[Instr]]:
        """The loads with insertions, those that share one together."""
        top: dict[Instr, Instr] = {load: load for load in self._insertions}

        def find(load: Instr) -> Instr:
            while top[load] is not load:
                top[load] = load = top[top[load]]
            return load

        first: dict[Insertion, Instr] = {}
        for load, insertions in self._insertions.items():
            for each in insertions:
                top[find(load)] = find(first.setdefault(each, load))
        groups: dict[Instr, list[Instr]] = {}
        for load in self._insertions:
            groups.setdefault(find(load), []).append(load)
        return list(groups.values())

    def _is_heavy(self, loads: Iterable[Instr]) -> bool:
        """Whether some path to an exit executes more loads when these go."""
        on_edges: dict[tuple[int, int], set[Reg]] = {}
        in_block: dict[int, int] = {}
        for load in loads:
            if load.guard is None:  # whether a guarded load would have been executed is not known
                in_block[self._blocks[load]] = in_block.get(self._blocks[load], 0) - 1
            for edge, reg in self._insertions.get(load, ()):
                on_edges.setdefault(edge, set()).add(reg)
        cfg = self.cfg
        weight: dict[int, int] = {}
        for _ in range(self.depth + 2):
            changed = False
            for block in cfg.rpo:
                before = [weight[p] + len(on_edges.get((p, block), ())) for p in cfg.pred[block] if p in weight]
                if block == cfg.rpo[0]:
                    before.append(0)
                found = max(before) + in_block.get(block, 0)
                if weight.get(block) != found:
                    weight[block] = found
                    changed = True
            if not changed:
                return any(weight[block] > 0 for block in cfg.exits if block in weight)
        return True
