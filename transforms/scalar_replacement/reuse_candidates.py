"""Quick tests whether accesses may concern the same bytes. They compare names of addresses and look at no paths.

Guarantees: an access that provides or reads the bytes of a question on some path, within ``threshold`` iterations, is
among the candidates. Not every candidate does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.graph.loops import Loops
from ...analysis.memoized import memoized
from ...analysis.values.symbolic_values import SymbolicValues
from ...analysis.values.value_inputs import Candidates
from ...ptx import Instr
from .access_index import Accesses
from .address_translation import AddressNames
from .questions import AddressKey, Question

__all__ = ["ReuseCandidates"]


class ReuseCandidates:
    """Finds, in one kernel, accesses that may concern the same bytes."""

    def __init__(self, loops: Loops, symbols: SymbolicValues, accesses: Accesses, names: AddressNames) -> None:
        self._loops = loops
        self._symbols = symbols
        self._accesses = accesses
        self._names = names

    def may_be_available(self, question: Question, block: int) -> bool:
        """Whether a provider of the bytes may reach a load of ``block`` that reads them: another access; or the load
        itself, in a loop that does not change its address."""
        if self._accesses.count.get(question.key, 0) > 1 or self._is_invariant(question, block):
            return True
        return any(True for _ in self._other_provided_names(question))

    @memoized
    def is_provided(self, question: Question) -> bool:
        """Whether an access provides the bytes under this name, or under one that they have earlier."""
        return question.key in self._accesses.count or any(True for _ in self._other_provided_names(question))

    def loads_of(self, question: Question) -> list[tuple[int, int, Instr]]:
        """Block, position and instruction of the loads of these bytes. The address of a load may have the name
        of the question at the load, or earlier where an access provides the bytes under that name."""
        return self._loads_by_key(question.space, question.bytes).get(question.key, [])

    @memoized
    def _loads_by_key(self, space: str, size: int) -> dict[AddressKey, list[tuple[int, int, Instr]]]:
        """Address → the loads of ``size`` bytes from ``space`` whose bytes are provided under that name."""
        by_key: dict[AddressKey, list[tuple[int, int, Instr]]] = {}
        for block, accesses in self._accesses.blocks.items():
            for position, load in accesses.loads:
                question = self._accesses.question(load)
                if question is not None and (question.space, question.bytes) == (space, size):
                    for key in {question.key, *self._other_provided_names(question)}:
                        by_key.setdefault(key, []).append((block, position, load))
        return by_key

    def readers(self, question: Question) -> list[Instr]:
        """The loads that may read these bytes later, whether or not anything provides them there."""
        return [
            load
            for accesses in self._accesses.blocks.values()
            for _, load in accesses.loads
            if (read := self._accesses.question(load)) is not None and self._may_read(read, question)
        ]

    def _may_read(self, read: Question, question: Question) -> bool:
        """Whether a load of ``read`` may read the bytes of ``question`` in this or a later iteration.

        Within ``threshold`` iterations the names of the address decide. After that the address is taken to grow by the
        same step as between the last two of these names.
        """
        if (read.space, read.bytes, read.width) != (question.space, question.bytes, question.width):
            return False
        names = [(read.base, 0), *self._names.others(read.base, read.width)]
        offsets = [read.offset + more for base, more in names if base == question.base]
        if question.offset in offsets:
            return True
        if len(offsets) < 2:
            return False
        left, step = question.offset - offsets[-1], offsets[-1] - offsets[-2]
        return left * step > 0 and left % step == 0

    def _other_provided_names(self, question: Question) -> Iterator[AddressKey]:
        """Those of the other names of the bytes (`AddressNames.others`) under which an access provides them."""
        space, base, offset, size, width, *_ = question
        if self._candidates(space, size).may_become_one(base, offset):
            count = self._accesses.count
            for other, more in self._names.others(base, width):
                key = (space, other, offset + more, size)
                if key in count:
                    yield key

    @memoized
    def _candidates(self, space: str, size: int) -> Candidates:
        """The addresses of all providers of ``size`` bytes in ``space``."""
        keys = self._accesses.count
        addresses = [(base, offset) for each, base, offset, bytes_ in keys if (each, bytes_) == (space, size)]
        return Candidates(self._accesses.inputs, addresses)

    def _is_invariant(self, question: Question, block: int) -> bool:
        """Whether ``block`` is in a loop that defines no value that the address is computed from."""
        index = self._loops.loop_of[block]
        leaves = self._symbols.leaves(question.base)
        if index < 0 or leaves is None:
            return False
        loop = self._loops.loops[index]
        places = (self._symbols.places.get(leaf) for leaf in leaves)
        return not any(place is not None and place.block in loop for place in places)
