"""What an address is called elsewhere: in front of an edge, and on all ways back.

A name is a base and what its offset grows by. Going back over an edge into a join, each φ of the join is what it is on
that edge: ``p`` behind the header of a loop may be ``q`` in front of the loop, and ``p + 4`` at the end of its turn.

Requires: a kernel that stays as it is. Guarantees: names over at most ``threshold`` back edges, about two for a turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.graph.cfg import Cfg
from ...analysis.values.symbolic_values import SymbolicValues
from .access_index import Accesses

__all__ = ["AddressNames"]


class AddressNames:
    """The names of addresses of one kernel."""

    def __init__(self, cfg: Cfg, symbols: SymbolicValues, accesses: Accesses, threshold: int) -> None:
        self._cfg = cfg
        self._symbols = symbols
        self._accesses = accesses
        self._threshold = threshold
        #: By base, width and edge.
        self._called: dict[tuple[int, int, int, int], tuple[int, int] | None] = {}

    def is_back_edge(self, block: int, successor: int) -> bool:
        """Whether the edge ends a turn of a loop."""
        return self._symbols.dominance.dominates(successor, block)

    def in_front(self, base: int, width: int, block: int, successor: int) -> tuple[int, int] | None:
        """What an address of this base is called in front of the edge: another base, and what the offset grows by."""
        key = (base, width, block, successor)
        if key in self._called:
            return self._called[key]
        new = self._symbols.translate(base, block, successor)
        found = None if new is None else (new, 0)
        if new is not None and new != base:
            stripped, offset = self._symbols.split(new, width)
            named, more = self._accesses.normal(stripped, width, block)
            found = (named, offset + more)
        self._called[key] = found
        return found

    def others(self, base: int, width: int) -> Iterator[tuple[int, int]]:
        """The other names that an address of this base may take, found as far as they are asked for; once more its own
        where it comes back. Whoever keeps the iterator must not be referred to from here: that would be a cycle, which
        waits for the collector."""
        own = (base, 0)
        turns_of: dict[tuple[int, int], int] = {own: 0}
        work: list[tuple[int, int]] = [own]
        for each in work:
            if len(work) >= 2 * (self._threshold + 1):
                return
            for before, join, renamed in self._before(each, width):
                turns = turns_of[each] + self.is_back_edge(before, join)
                if renamed == each or turns > self._threshold:
                    continue
                known = turns_of.get(renamed)
                if known is None or renamed == own:
                    yield renamed
                if known is None or turns < known:
                    turns_of[renamed] = turns
                    work.append(renamed)

    def _before(self, name: tuple[int, int], width: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """The edges into the block whose φs the base is made of, and the names in front of them."""
        base, offset = name
        cfg = self._cfg
        join = self._join_of(base)
        for before in cfg.pred[join] if join >= 0 else ():
            called = self.in_front(base, width, before, join) if cfg.reachable[before] else None
            if called is not None:
                yield before, join, (called[0], offset + called[1])

    def _join_of(self, base: int) -> int:
        """Of the blocks whose φs the base is computed from, the one that is met first on all ways back from where the
        base is known: all these blocks dominate that place, and it is the lowest. -1 where there is none."""
        places = (self._symbols.places.get(leaf) for leaf in self._symbols.leaves(base) or ())
        joins = [place.block for place in places if place is not None and place.position < 0]
        return max(joins, key=self._cfg.rpo_number.__getitem__, default=-1)
