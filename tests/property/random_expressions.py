"""Random constant expressions, with a given value or with any value.

Deterministic: a function of the random generator's state.
"""

from __future__ import annotations

import random
import re

__all__ = ["drawn", "of_value", "with_expressions", "with_offsets"]

_MASK = (1 << 64) - 1
_BINARY = "+ - * / % << >> & | ^ && || < <= > >= == !=".split()
_LITERALS = "0 1 2 3 7 31 64 0xFF 017 0b101 5U WARP_SZ 0x8000000000000000".split()
#: An integer literal that is an operand or the offset of an address; `%` and `$` are part of names.
_INTEGER = re.compile(r"(?<=[\s,{])-?\d+(?=\s*[,};])|(?<=\+)-?\d+(?=\])")
#: A source operand that is a register of 16, 32 or 64 bits.
_SOURCE = re.compile(r"(?<=, )%(rs|rd|r)\d+(?=[,;])")
_WIDTHS = {"rs": 16, "r": 32, "rd": 64}


def drawn(rng: random.Random, depth: int = 3) -> str:
    """An expression of at most ``depth`` levels, with parentheses in random places."""
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
    """An expression with the value ``value``. It is made from the outermost operation inward."""
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


def with_offsets(text: str, rng: random.Random, share: float = 0.3) -> str:
    """``text`` with a ``share`` of the source registers replaced by a register plus a constant of the same value."""
    lines: list[str] = []
    counts = dict.fromkeys(_WIDTHS, 0)

    def one(match: re.Match[str]) -> str:
        if rng.random() >= share:
            return match[0]
        kind, constant = match[1], rng.choice([0, 1, 4, 300, 32767, rng.randrange(1, 1 << 15), -1, -8])
        name = f"%less{kind}{counts[kind]}"
        counts[kind] += 1
        lines.append(f"\tsub.u{_WIDTHS[kind]} {name}, {match[0]}, {constant};")
        return f"{name}+{of_value(constant, rng, rng.randrange(2))}"

    for line in text.split("\n"):
        is_plain = line.lstrip()[:1] not in (".", "{", "}", "") and "{" not in line
        lines.append(_SOURCE.sub(one, line) if is_plain else line)
    declared = "".join(f"\n\t.reg .b{_WIDTHS[kind]} %less{kind}<{count}>;" for kind, count in counts.items() if count)
    return "\n".join(lines).replace("\n{", f"\n{{{declared}", 1)
