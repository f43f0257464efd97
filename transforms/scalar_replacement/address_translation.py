"""The names of an address at other program points.

A name is a base and an offset that is added to the original offset. Backward over an edge into a join, each φ of the
join becomes its argument for that edge. So ``p`` at the header of a loop may be ``q`` before the loop, and ``p + 4`` at
the end of the loop's body.

Requires: a kernel that does not change. Guarantees: only paths with at most ``threshold`` back edges are
followed, and at most twice as many names, plus two, are tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.graph.cfg import Cfg
from ...analysis.memoized import memoized
from ...analysis.values.symbolic_values import SymbolicValues
from .access_index import Accesses
from .questions import Question

__all__ = ["AddressNames"]


class AddressNames:
    """The names of the addresses of one kernel."""

    def __init__(self, cfg: Cfg, symbols: SymbolicValues, accesses: Accesses, threshold: int) -> None:
        self._cfg = cfg
        self._symbols = symbols
        self._accesses = accesses
        self._threshold = threshold

    def is_back_edge(self, block: int, successor: int) -> bool:
        """Whether the edge leads back to the header of a loop."""
        return self._symbols.dominance.dominates(successor, block)

    def before_edge(self, question: Question, block: int, successor: int) -> Question | None:
        """``question``, which is named as at the start of ``successor``, named as at the end of ``block``; `None` where
        its address is not known there."""
        if not self._symbols.phis.get(successor):
            return question
        name = self.name_before_edge(question.base, question.width, block, successor)
        return None if name is None else question.at(name[0], question.offset + name[1])

    @memoized
    def name_before_edge(self, base: int, width: int, block: int, successor: int) -> tuple[int, int] | None:
        """The name of ``base`` at the end of ``block``."""
        new = self._symbols.translate(base, block, successor)
        if new is None or new == base:
            return None if new is None else (new, 0)
        stripped, offset = self._symbols.split(new, width)
        named, more = self._accesses.normal(stripped, width, block)
        return named, offset + more

    @memoized
    def others(self, base: int, width: int) -> tuple[tuple[int, int], ...]:
        """The other names that an address of this base may have at earlier points.

        If a path around a loop leads back to the original name, it is among them.
        """
        return tuple(self._find_others(base, width))

    def _find_others(self, base: int, width: int) -> Iterator[tuple[int, int]]:
        own = (base, 0)
        back_edges: dict[tuple[int, int], int] = {own: 0}  # name → the least number of back edges on a path to it
        work: list[tuple[int, int]] = [own]
        for name in work:
            if len(work) >= 2 * (self._threshold + 1):
                return
            for block, join, renamed in self._earlier(name, width):
                count = back_edges[name] + self.is_back_edge(block, join)
                if renamed == name or count > self._threshold:
                    continue
                least = back_edges.get(renamed)
                if least is None or renamed == own:
                    yield renamed
                if least is None or count < least:
                    back_edges[renamed] = count
                    work.append(renamed)

    def _earlier(self, name: tuple[int, int], width: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """The edges (block, join) into the block whose φs the base is computed from, and the name before each edge."""
        base, offset = name
        cfg = self._cfg
        join = self._nearest_join(base)
        for block in cfg.pred[join] if join >= 0 else ():
            earlier = self.name_before_edge(base, width, block, join) if cfg.reachable[block] else None
            if earlier is not None:
                yield block, join, (earlier[0], offset + earlier[1])

    def _nearest_join(self, base: int) -> int:
        """Among the blocks whose φs the base is computed from, the one that all paths back from where the base is known
        reach first; -1 if there is none. All of them dominate that point, so it is the lowest of them."""
        places = (self._symbols.places.get(leaf) for leaf in self._symbols.leaves(base) or ())
        joins = [place.block for place in places if place is not None and place.position < 0]
        return max(joins, key=self._cfg.rpo_number.__getitem__, default=-1)
