"""Random constant expressions: with a given value, or with whatever value the rules give.

Deterministic: a function of the random generator's state.
"""

from __future__ import annotations

import random
import re

__all__ = ["drawn", "of_value", "with_expressions"]

_MASK = (1 << 64) - 1
_BINARY = "+ - * / % << >> & | ^ && || < <= > >= == !=".split()
_LITERALS = "0 1 2 3 7 31 64 0xFF 017 0b101 5U WARP_SZ 0x8000000000000000".split()
#: An integer literal that is an operand or the offset of an address; `%` and `$` are part of names.
_INTEGER = re.compile(r"(?<=[\s,{])-?\d+(?=\s*[,};])|(?<=\+)-?\d+(?=\])")


def drawn(rng: random.Random, depth: int = 3) -> str:
    """An expression of at most ``depth`` levels, with no more parentheses than it happens to get."""
    kind = rng.randrange(10)
    if depth == 0 or kind == 0:
        return rng.choice(_LITERALS)
    inner = drawn(rng, depth - 1)
    if kind == 1:
        return f"{rng.choice(['-', '+', '~', '!', '(.s64)', '(.u64)'])} {inner}"
    if kind == 2:
        return f"({inner})"
    if kind == 3:
        return f"{inner} ? {drawn(rng, depth - 1)} : {drawn(rng, depth - 1)}"
    return f"{inner} {rng.choice(_BINARY)} {drawn(rng, depth - 1)}"


def of_value(value: int, rng: random.Random, depth: int = 2) -> str:
    """An expression of ``value``, made from the outside to the inside."""
    if depth == 0:
        return f"({value})" if value < 0 else str(value)

    def part(number: int) -> str:
        return of_value(number, rng, depth - 1)

    other = rng.randrange(-100, 100)
    kind = rng.randrange(9)
    if kind == 0:
        return f"({part(value - other)}+{part(other)})"
    if kind == 1:
        return f"({part(value + other)}-{part(other)})"
    if kind == 2:
        return f"(WARP_SZ+{part(value - 32)})"
    if kind == 3:
        return f"(~{part(~value)})"
    if kind == 4:
        return f"(- {part(-value)})"
    if kind == 5:
        return f"({part(3)}>{part(2)} ? {part(value)} : {part(other)})"
    if kind == 6:
        return f"({part(value ^ other)}^{part(other)})"
    if kind == 7:
        return f"((.{rng.choice('su')}64){part(value)})"
    return f"({part(value)}|{part(value & other)})"


def with_expressions(text: str, rng: random.Random, share: float = 0.5) -> str:
    """``text`` with a ``share`` of the integer literals in instructions replaced by expressions of their value."""

    def one(match: re.Match[str]) -> str:
        return of_value(int(match[0]), rng) if rng.random() < share else match[0]

    lines = text.split("\n")
    return "\n".join(line if line.lstrip()[:1] in (".", "{", "}", "") else _INTEGER.sub(one, line) for line in lines)
