"""The initial value of a variable: converts the text after ``=`` to bytes.

Requires: a function that gives the address of every symbol (``address``). Guarantees: nested lists fill an array row by
    row, as the manual says. Elements without a value are zero. Floats keep their bits.
Refuses, with ``ValueError``: too many values, a symbol that has no address, text that is not an initializer.
Reference: PTX ISA 9.0, §5.4.4 (initializers), §5.4.8 (``mask()``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..ptx.constants import constant_integer, constant_literal
from ..ptx.ir import Variable
from ..ptx.types import literal_bits, literal_value

__all__ = ["initial_bytes"]

#: The characters at which an element may end. A comma or brace inside of parentheses does not end it.
_END = re.compile(r"[{},()]")
_NAME = r"[A-Za-z_$%][\w$]*"
#: The address or generic address of a symbol, and a constant expression after ``+``.
_SYMBOL = re.compile(rf"(?:(generic)\s*\(\s*({_NAME})\s*\)|({_NAME}))\s*(?:\+(.*))?", re.DOTALL)
_MASKED = re.compile(r"(0[xX][0-9A-Fa-f]+|\d+)\s*\(\s*([A-Za-z_$%].*)\)", re.DOTALL)


class _Reader:
    def __init__(self, text: str, variable: Variable, address: Callable[[str], int]) -> None:
        self.text = text
        self.pos = 0
        self.variable = variable
        self.address = address
        self.width = max(variable.type.bytes, 1)

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        text = self.text
        while self.pos < len(text) and text[self.pos].isspace():
            self.pos += 1
        return text[self.pos : self.pos + 1]

    def next(self) -> str:
        character = self.peek()
        self.pos += len(character)
        return character

    def expect(self, token: str) -> None:
        character = self.next()
        if character != token:
            raise ValueError(f"expected '{token}' in the initializer of '{self.variable.name}', found '{character}'")

    def element(self) -> str:
        """The text up to the comma or brace that ends a single value."""
        start = self.pos
        depth = 0
        for match in _END.finditer(self.text, start):
            if match[0] == "(":
                depth += 1
            elif match[0] == ")":
                depth -= 1
            elif not depth:
                self.pos = match.start()
                return self.text[start : self.pos].strip()
        self.pos = len(self.text)
        return self.text[start:].strip()

    def fill(self, target: bytearray, start: int, shape: Sequence[int]) -> None:
        """Write a list in braces to ``target`` at byte ``start``, or a single value if ``shape`` is empty."""
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
        """Values without inner braces fill the array in order. All of them count as one row."""
        while self.peek() not in ("}", "{"):
            if start >= end:
                raise ValueError(f"'{self.variable.name}' has more values than elements")
            target[start : start + self.width] = self.value()
            start += self.width
            if self.peek() == ",":
                self.next()
        return 1

    def value(self) -> bytes:
        """A constant expression, an address with an offset, or the part of an address that a mask selects."""
        text = self.element()
        if not text:
            raise ValueError(f"the initializer of '{self.variable.name}' ends too early")
        masked = _MASKED.fullmatch(text)
        if masked is not None:
            mask = int(literal_value(masked[1]))
            shift = (mask & -mask).bit_length() - 1
            bits = (self.symbol(masked[2]) & mask) >> max(shift, 0)
        elif (text[0].isalpha() or text[0] in "_$%") and re.match(r"WARP_SZ(?![\w$])", text) is None:
            bits = self.symbol(text)
        else:
            bits = literal_bits(constant_literal(text), self.variable.type)
        return (bits & ((1 << 8 * self.width) - 1)).to_bytes(self.width, "little")

    def symbol(self, text: str) -> int:
        """The address ``symbol+offset`` or ``generic(symbol)+offset``."""
        match = _SYMBOL.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"'{text}' in the initializer of '{self.variable.name}' is not an address")
        address = self.address(match[2] or match[3])
        return address + (constant_integer(match[4]) if match[4] is not None else 0)


def initial_bytes(variable: Variable, address: Callable[[str], int], nbytes: int) -> bytes:
    """The ``nbytes`` bytes of ``variable`` before the first launch; ``address`` gives a symbol's generic address."""
    data = bytearray(nbytes)
    if variable.initializer is None:
        return bytes(data)
    reader = _Reader(variable.initializer, variable, address)
    shape = tuple(dim if dim is not None else nbytes // reader.width for dim in variable.dims)
    if variable.lanes > 1:
        shape = (*shape, variable.lanes)
    reader.fill(data, 0, shape)
    if reader.peek():
        raise ValueError(f"unexpected '{reader.peek()}' in the initializer of '{variable.name}'")
    return bytes(data)
