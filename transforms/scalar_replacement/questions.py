"""Questions: bytes in memory, by a symbolic address.

A question names its address in terms of the values at one program point. When it is propagated to another point, the
same bytes may have another address there (`address_translation.py`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ...analysis.memory.alias import Reference
from ...analysis.memory.points_to import Objects

__all__ = ["AddressKey", "Question"]

#: (state space, value number of the base, byte offset, bytes)
AddressKey: TypeAlias = tuple[str, int, int, int]


class Question(NamedTuple):
    """``bytes`` bytes at ``base + offset`` in ``space``; ``base`` is a value number, the address has ``width`` bits.

    ``is_constant`` says that the load promises that nobody writes the bytes while the kernel runs. ``objects`` are the
    objects that the bytes may lie in, ``symbol`` is the object that the address names; both hold under every name of
    the address.
    """

    space: str
    base: int
    offset: int
    bytes: int
    width: int
    is_constant: bool = False
    symbol: object | None = None
    objects: Objects = None

    @property
    def key(self) -> AddressKey:
        """What has to be equal for two accesses to concern the same bytes at one point."""
        return self.space, self.base, self.offset, self.bytes

    @property
    def reference(self) -> Reference:
        """The bytes as an argument of alias queries."""
        return Reference(self.space, self.base, self.offset, self.bytes, self.symbol, self.objects)

    def at(self, base: int, offset: int) -> Question:
        """The same bytes under another name of their address."""
        if base == self.base and offset == self.offset:
            return self
        return Question(self.space, base, offset, self.bytes, self.width, self.is_constant, self.symbol, self.objects)
