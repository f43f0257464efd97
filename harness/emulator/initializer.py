"""The value of an initialised variable: the text after its ``=`` to bytes.

Requires: the address of every symbol (``address``). Guarantees: nested lists fill an array row by row, as the manual
    says; what is left out is zero; floats keep their bits.
Refuses, with ``ValueError``: too many values, a symbol that has no address, text that is no initializer.
Reference: PTX ISA 9.0, §5.4.4 (initializers), §5.4.8 (``mask()``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...ptx.ir import Variable
from ...ptx.types import literal_bits

__all__ = ["initial_bytes"]

_TOKEN = re.compile(
    r"\s*(0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}|[-+]?[\d.][\w.]*(?:(?<=[eE])[-+]\d+)?|[A-Za-z_$%][\w$]*|.)"
)


class _Reader:
    def __init__(self, text: str, variable: Variable, address: Callable[[str], int]) -> None:
        self.tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self.pos = 0
        self.variable = variable
        self.address = address
        self.width = max(variable.type.bytes, 1)

    def peek(self) -> str:
        return self.tokens[self.pos] if self.pos < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.pos += 1
        return token

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise ValueError(f"expected '{token}' in the initializer of '{self.variable.name}', found '{found}'")

    def fill(self, target: bytearray, start: int, shape: Sequence[int]) -> None:
        """A brace list into ``target`` at byte ``start``, or a single value where ``shape`` is empty."""
        if not shape:
            target[start : start + self.width] = self.value()
            return
        step = self.width
        for extent in shape[1:]:
            step *= extent
        self.expect("{")
        count = 0
        while self.peek() != "}":
            if count >= shape[0] and self.peek() != "{":
                raise ValueError(f"'{self.variable.name}' has more values than elements")
            if len(shape) > 1 and self.peek() != "{":
                count += self.flat(target, start + count * step, len(target))
                continue
            if count >= shape[0]:
                raise ValueError(f"'{self.variable.name}' has more values than elements")
            self.fill(target, start + count * step, shape[1:])
            count += 1
            if self.peek() == ",":
                self.next()
        self.expect("}")

    def flat(self, target: bytearray, start: int, end: int) -> int:
        """Values without inner braces fill the array in order; counts as one row per list."""
        while self.peek() not in ("}", "{"):
            if start >= end:
                raise ValueError(f"'{self.variable.name}' has more values than elements")
            target[start : start + self.width] = self.value()
            start += self.width
            if self.peek() == ",":
                self.next()
        return 1

    def value(self) -> bytes:
        """A number, or an address with an offset and perhaps a mask."""
        sign = ""
        if self.peek() in "+-" and self.peek():
            sign = self.next()
        token = self.peek()
        if not token:
            raise ValueError(f"the initializer of '{self.variable.name}' ends too early")
        if token[0].isdigit() or token[0] in "+-.":
            bits = literal_bits(sign + self.next(), self.variable.type)
            return bits.to_bytes(self.width, "little")
        return (self.symbol() & ((1 << 8 * self.width) - 1)).to_bytes(self.width, "little")

    def symbol(self) -> int:
        name = self.next()
        if self.peek() == "(":
            self.next()
            if name == "generic":
                value = self.address(self.next())
                self.expect(")")
                return value + self.offset()
            if self.peek() and (name[:2] == "0x" or name.isdigit()):
                raise ValueError(f"malformed mask in the initializer of '{self.variable.name}'")
            raise ValueError(f"'{name}' is no operator of initializers")
        return self.address(name) + self.offset()

    def offset(self) -> int:
        total = 0
        while (token := self.peek()) and (token[0] in "+-"):
            self.next()
            digits = token[1:] or self.next()
            total += int(digits.rstrip("uU"), 0) * (-1 if token[0] == "-" else 1)
        return total


def _masked(text: str, reader: _Reader) -> str:
    """Replace ``0xFF00(symbol)`` — the byte of an address that the mask selects — by its number."""

    def number(match: re.Match[str]) -> str:
        mask = int(match.group(1), 16)
        shift = (mask & -mask).bit_length() - 1
        inner = _Reader(match.group(2), reader.variable, reader.address)
        return str((inner.symbol() & mask) >> shift)

    return re.sub(r"(0[xX][0-9A-Fa-f]+)\s*\(((?:[^()]|\([^()]*\))*)\)", number, text)


def initial_bytes(variable: Variable, address: Callable[[str], int], nbytes: int) -> bytes:
    """The ``nbytes`` bytes of ``variable`` before the first launch; ``address`` gives a symbol's generic address."""
    data = bytearray(nbytes)
    if variable.initializer is None:
        return bytes(data)
    reader = _Reader("", variable, address)
    reader = _Reader(_masked(variable.initializer, reader), variable, address)
    shape = tuple(dim if dim is not None else nbytes // reader.width for dim in variable.dims)
    if variable.lanes > 1:
        shape = (*shape, variable.lanes)
    reader.fill(data, 0, shape)
    if reader.peek():
        raise ValueError(f"unexpected '{reader.peek()}' in the initializer of '{variable.name}'")
    return bytes(data)
