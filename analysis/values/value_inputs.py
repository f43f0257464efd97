"""What numbers are made of, as hashes: a quick test whether one can ever become another.

Computes, for a number of `SymbolicValues`, the φs, opaque results, loads, symbols and special registers that it is
computed from, hashed to a few bits; with all that its φs may stand for, any number of turns before. A number can become
another, by φs being replaced by their arguments, only if the other is made of nothing else.

Guarantees: what is said not to become another never does. Says yes too often: of hashes that collide, and of numbers
that have the right ingredients in another sum.
Reference: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 1970.
"""

from __future__ import annotations

from collections.abc import Iterable

from .symbolic_values import SymbolicValues, is_load

__all__ = ["Candidates", "Ingredients"]

#: Heads of keys that are made of nothing else.
_INGREDIENTS = frozenset(["unique", "phi", "special", "symbol"])
#: Ingredients are hashed to so many bits.
_HASHES = 251


class Ingredients:
    """What the numbers of one kernel are made of."""

    def __init__(self, symbols: SymbolicValues) -> None:
        self.symbols = symbols
        self._made_of: dict[int, tuple[int, frozenset[int]]] = {}
        self._of_phis: dict[int, int] | None = None
        self._reached: dict[int, int] = {}

    def can_become(self, number: int, other: int) -> bool:
        """Whether ``number`` might be ``other`` once φs in it are replaced by their arguments, any number of times."""
        return not self.of(other)[0] & ~self.reached(number)

    def reached(self, number: int) -> int:
        """Hashes of what ``number``, and all that its φs may stand for, are made of; -1 where anything might be."""
        found = self._reached.get(number)
        if found is None:
            if self._of_phis is None:
                self._of_phis = self._find_of_phis()
            found, phis = self.of(number)
            for phi in phis:
                found |= self._of_phis[phi]
            if self.symbols.leaves(number) is None:
                found = -1
            self._reached[number] = found
        return found

    def _find_of_phis(self) -> dict[int, int]:
        """For each number of a φ, what it and its arguments, and the φs in these, are made of: the least solution."""
        made: dict[int, int] = {}
        reads: dict[int, set[int]] = {}
        for found in self.symbols.phis.values():
            for own, phi in found.items():
                made[own] = made.get(own, 0) | 1 << own % _HASHES
                for _, value in self.symbols.ssa.phi_args.get(phi, ()):
                    argument = self.symbols.values.number[value]
                    own_made, phis = self.of(argument)
                    made[own] |= own_made if self.symbols.leaves(argument) is not None else -1
                    reads.setdefault(own, set()).update(phis)
        readers: dict[int, list[int]] = {}
        for own, phis in reads.items():
            for phi in phis:
                readers.setdefault(phi, []).append(own)
        work = list(made)
        waiting = set(work)
        while work:
            phi = work.pop()
            waiting.discard(phi)
            for own in readers.get(phi, ()):
                if made[phi] & ~made[own]:
                    made[own] |= made[phi]
                    if own not in waiting:
                        waiting.add(own)
                        work.append(own)
        return made

    def of(self, number: int) -> tuple[int, frozenset[int]]:
        """Hashes of the φs, opaque results, loads, symbols and special registers that ``number`` is made of, and the
        numbers of the φs."""
        known = self._made_of.get(number)
        if known is not None:
            return known
        work = [number]
        while work:
            each = work[-1]
            if each in self._made_of:
                work.pop()
                continue
            place, key = self.symbols.places.get(each), self.symbols.key(each)
            if place is not None or key[0] in _INGREDIENTS or is_load(key):
                is_phi = place is not None and place.position < 0
                self._made_of[each] = 1 << each % _HASHES, frozenset([each] if is_phi else [])
                work.pop()
                continue
            children = self.symbols.children(key)
            missing = [child for child in children if child not in self._made_of]
            if missing:
                work += missing
                continue
            made, phis = 0, frozenset[int]()
            for child in children:
                of_child = self._made_of[child]
                made |= of_child[0]
                phis |= of_child[1]
            self._made_of[each] = made, phis
            work.pop()
        return self._made_of[number]


class Candidates:
    """Addresses of accesses, as bases and offsets, to look for those that another address might become."""

    def __init__(self, ingredients: Ingredients, addresses: Iterable[tuple[int, int]]) -> None:
        self.ingredients = ingredients
        self._offsets: dict[int, set[int]] = {}
        for base, offset in addresses:
            self._offsets.setdefault(base, set()).add(offset)
        needed = {base: ingredients.of(base)[0] for base in self._offsets}
        frequent: dict[int, int] = {}
        for each in needed.values():
            for bit in _bits(each):
                frequent[bit] = frequent.get(bit, 0) + 1
        #: The bases and what they are made of, under the bit that the fewest have; those made of nothing under 0.
        self._by_bit: dict[int, list[tuple[int, int]]] = {}
        for base, each in needed.items():
            rarest = min(_bits(each), key=lambda bit: (frequent[bit], bit), default=0)
            self._by_bit.setdefault(rarest, []).append((base, each))
        self._asked = 0
        for bit in self._by_bit:
            self._asked |= bit
        self._others: dict[int, bool] = {}

    def may_be_met(self, base: int, offset: int) -> bool:
        """Whether the address might become one of these, other than itself."""
        own = self._offsets.get(base)
        if own is not None and (len(own) > 1 or offset not in own):
            return True
        found = self._others.get(base)
        if found is None:
            found = self._others[base] = self._can_become_other(base)
        return found

    def _can_become_other(self, base: int) -> bool:
        missing = ~self.ingredients.reached(base)
        bits = [0, *_bits(self._asked & ~missing)]
        return any(
            not needed & missing and other != base for bit in bits for other, needed in self._by_bit.get(bit, ())
        )


def _bits(number: int) -> Iterable[int]:
    """The bits of a number that is not negative, as powers of two."""
    while number:
        bit = number & -number
        yield bit
        number ^= bit
