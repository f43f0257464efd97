"""The inputs of numbers, as hashes: a fast test whether translation over edges can turn one number into another.

Computes, for a number of `SymbolicValues`, the inputs from which it is computed: φs, opaque results, loads, symbols and
special registers, hashed to a few bits; together with the inputs of all arguments of its φs, over any number of
iterations. Replacing φs by their arguments can turn a number into another one only if the other has no other inputs.

Guarantees: if the answer is no, the number never becomes the other one. The answer may be yes without need: if hashes
collide, or if the same inputs form another sum.
Reference: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graphs import strongly_connected_components
from .symbolic_values import SymbolicValues, is_load
from .value_numbering import Key

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
        self._inputs: dict[int, int] = {}
        #: By number: the results of `reached` and of `_operands`.
        self._reached: dict[int, int] = {}
        self._operands_of: dict[int, Sequence[int]] = {}
        #: By number: as `reached`, but only unknown inputs of arguments count as all.
        self._closed: dict[int, int] = {}
        #: By number of a φ the numbers of its arguments; ``None``: not found yet.
        self._arguments: dict[int, list[int]] | None = None
        #: The φs with an argument whose inputs are unknown.
        self._unknown: set[int] = set()

    def can_become(self, number: int, other: int) -> bool:
        """Whether ``number`` may become ``other`` by replacing its φs by their arguments, any number of times."""
        return not self.of(other) & ~self.reached(number)

    def of(self, number: int) -> int:
        """Hashes of the inputs of ``number``."""
        found = self._inputs
        work = [] if number in found else [number]
        while work:
            each = work[-1]
            operands = self._operands(each)
            missing = [other for other in operands if other not in found]
            if missing:
                work += missing
                continue
            inputs = 0 if operands else self._own(each)
            for other in operands:
                inputs |= found[other]
            found[each] = inputs
            work.pop()
        return found[number]

    def reached(self, number: int) -> int:
        """Hashes of the inputs of ``number`` and of all arguments of its φs; -1 (all bits) if they are unknown."""
        inputs = self._reached.get(number)
        if inputs is None:
            if number not in self._closed:
                self._close(number)
            inputs = self._reached[number] = -1 if self.symbols.leaves(number) is None else self._closed[number]
        return inputs

    def _find_arguments(self) -> dict[int, list[int]]:
        symbols = self.symbols
        found: dict[int, list[int]] = {}
        for by_number in symbols.phis.values():
            for own, phi in by_number.items():
                arguments = [symbols.values.number[value] for _, value in symbols.ssa.phi_args.get(phi, ())]
                found.setdefault(own, []).extend(arguments)
                if None in [symbols.leaves(each) for each in arguments]:
                    self._unknown.add(own)
        return found

    def _close(self, number: int) -> None:
        """Compute `_closed` of a number and of all numbers that it is computed from, also by arguments of φs: the least
        solution. Linear in these numbers and their operands."""
        if self._arguments is None:
            self._arguments = self._find_arguments()
        arguments, closed = self._arguments, self._closed
        reads: dict[int, Sequence[int]] = {}
        work = [number]
        while work:
            each = work.pop()
            if each not in reads and each not in closed:
                others = arguments.get(each)
                reads[each] = others = self._operands(each) if others is None else others
                work += others
        for component in strongly_connected_components(reads, reads):
            inputs = 0
            for each in component:
                others = reads[each]
                if each in self._unknown:
                    inputs = -1
                elif not others or each in arguments:
                    inputs |= self._own(each)
                for other in others:
                    inputs |= closed.get(other, 0)
            for each in component:
                closed[each] = inputs

    def _own(self, number: int) -> int:
        """The hash of a number without operands, if it is an input."""
        return 1 << number % _HASHES if self._is_input(number, self.symbols.key(number)) else 0

    def _is_input(self, number: int, key: Key) -> bool:
        return number in self.symbols.places or key[0] in _INPUTS or is_load(key)

    def _operands(self, number: int) -> Sequence[int]:
        """The numbers from which a number is computed, up to its inputs."""
        known = self._operands_of.get(number)
        if known is None:
            key = self.symbols.key(number)
            known = self._operands_of[number] = () if self._is_input(number, key) else self.symbols.children(key)
        return known


class Candidates:
    """A set of addresses (base, offset), to test whether another address may become one of them."""

    def __init__(self, inputs: ValueInputs, addresses: Iterable[tuple[int, int]]) -> None:
        self.inputs = inputs
        self._offsets: dict[int, set[int]] = {}
        for base, offset in addresses:
            self._offsets.setdefault(base, set()).add(offset)
        needed = {base: inputs.of(base) for base in self._offsets}
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
