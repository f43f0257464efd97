"""The inputs of numbers, as hashes: a fast test whether translation over edges can turn one number into another.

Computes, for a number of `SymbolicValues`, the inputs from which it is computed: φs, opaque results, loads, symbols and
special registers, hashed to a few bits; together with the inputs of all arguments of its φs, over any number of
iterations. Replacing φs by their arguments can turn a number into another one only if the other has no other inputs.

Guarantees: if the answer is no, the number never becomes the other one. The answer may be yes without need: if hashes
collide, or if the same inputs form another sum.
Reference: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 1970.
"""

from __future__ import annotations

from collections.abc import Iterable

from .symbolic_values import SymbolicValues, is_load

__all__ = ["Candidates", "ValueInputs"]

#: Heads of the keys of inputs.
_INPUTS = frozenset(["unique", "phi", "special", "symbol"])
#: The number of bits of a hash of inputs.
_HASHES = 251


class ValueInputs:
    """The inputs of the numbers of one kernel."""

    def __init__(self, symbols: SymbolicValues) -> None:
        self.symbols = symbols
        #: By number: the result of `of`.
        self._inputs: dict[int, tuple[int, frozenset[int]]] = {}
        #: By φ: the result of `_find_of_phis`; ``None``: not computed yet.
        self._of_phis: dict[int, int] | None = None
        #: By number: the result of `reached`.
        self._reached: dict[int, int] = {}

    def can_become(self, number: int, other: int) -> bool:
        """Whether ``number`` may become ``other`` by replacing its φs by their arguments, any number of times."""
        return not self.of(other)[0] & ~self.reached(number)

    def reached(self, number: int) -> int:
        """Hashes of the inputs of ``number`` and of all arguments of its φs; -1 (all bits) if they are unknown."""
        inputs = self._reached.get(number)
        if inputs is None:
            if self._of_phis is None:
                self._of_phis = self._find_of_phis()
            inputs, phis = self.of(number)
            for phi in phis:
                inputs |= self._of_phis[phi]
            if self.symbols.leaves(number) is None:
                inputs = -1
            self._reached[number] = inputs
        return inputs

    def _find_of_phis(self) -> dict[int, int]:
        """By number of a φ: the hashes of its inputs, of its arguments, and of the φs in these: the least solution."""
        made: dict[int, int] = {}
        reads: dict[int, set[int]] = {}
        for by_number in self.symbols.phis.values():
            for own, phi in by_number.items():
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
        """(hashes of the inputs of ``number``, numbers of the φs among them)."""
        memoized = self._inputs.get(number)
        if memoized is not None:
            return memoized
        work = [number]
        while work:
            each = work[-1]
            if each in self._inputs:
                work.pop()
                continue
            place, key = self.symbols.places.get(each), self.symbols.key(each)
            if place is not None or key[0] in _INPUTS or is_load(key):
                is_phi = place is not None and place.position < 0
                self._inputs[each] = 1 << each % _HASHES, frozenset([each] if is_phi else [])
                work.pop()
                continue
            children = self.symbols.children(key)
            missing = [child for child in children if child not in self._inputs]
            if missing:
                work += missing
                continue
            inputs, phis = 0, frozenset[int]()
            for child in children:
                of_child = self._inputs[child]
                inputs |= of_child[0]
                phis |= of_child[1]
            self._inputs[each] = inputs, phis
            work.pop()
        return self._inputs[number]


class Candidates:
    """A set of addresses (base, offset), to test whether another address may become one of them."""

    def __init__(self, inputs: ValueInputs, addresses: Iterable[tuple[int, int]]) -> None:
        self.inputs = inputs
        self._offsets: dict[int, set[int]] = {}
        for base, offset in addresses:
            self._offsets.setdefault(base, set()).add(offset)
        needed = {base: inputs.of(base)[0] for base in self._offsets}
        frequent: dict[int, int] = {}
        for each in needed.values():
            for bit in _bits(each):
                frequent[bit] = frequent.get(bit, 0) + 1
        #: By the rarest bit of the hashes of its inputs (0 if it has none): each base, as (base, hashes of its inputs).
        self._by_bit: dict[int, list[tuple[int, int]]] = {}
        for base, each in needed.items():
            rarest = min(_bits(each), key=lambda bit: (frequent[bit], bit), default=0)
            self._by_bit.setdefault(rarest, []).append((base, each))
        self._asked = 0
        for bit in self._by_bit:
            self._asked |= bit
        self._others: dict[int, bool] = {}

    def may_become_one(self, base: int, offset: int) -> bool:
        """Whether the address may become one of these, other than itself."""
        own = self._offsets.get(base)
        if own is not None and (len(own) > 1 or offset not in own):
            return True
        may_become = self._others.get(base)
        if may_become is None:
            may_become = self._others[base] = self._can_become_other(base)
        return may_become

    def _can_become_other(self, base: int) -> bool:
        missing = ~self.inputs.reached(base)
        bits = [0, *_bits(self._asked & ~missing)]
        return any(
            not needed & missing and other != base for bit in bits for other, needed in self._by_bit.get(bit, ())
        )


def _bits(number: int) -> Iterable[int]:
    """The bits of a nonnegative number, as powers of two."""
    while number:
        bit = number & -number
        yield bit
        number ^= bit
