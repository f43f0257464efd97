"""Mutants of PTX texts: typical results of typing errors, truncated downloads and broken generators.

Deterministic: a mutant is a function of the texts and of the random generator's state.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

__all__ = ["change_token", "mutate"]

_TOKEN = re.compile(r"[%.\w$]+|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"\b(?:0[xX][0-9A-Fa-f]+|0[fFdD][0-9A-Fa-f]+|\d+)\b")
_REGISTER = re.compile(r"%[A-Za-z_]+\d+|%\w+")
_MODIFIER = re.compile(r"\.[A-Za-z]\w*(?:::\w+)?")

_TYPES = ".u8 .s8 .b8 .u16 .s16 .b16 .u32 .s32 .b32 .u64 .s64 .b64 .b128 .f16 .f16x2 .bf16 .f32 .f64 .pred".split()
_WORDS = [
    *".v2 .v4 .v8 .global .shared .const .local .param .lo .hi .wide .rn .rz .ftz .sat .cc .uni .nc .volatile .relaxed "
    ".gpu .sync .aligned .add .cas .eq .lt .and .to .L2::cache_hint".split(),
    *".reg .visible .extern .entry .func .version .target .align .pragma .loc .file .section .maxntid .branchtargets "
    ".callprototype .weak .common .alias .attribute .noreturn .address_size".split(),
]
_NUMBERS = (
    "0 1 -1 3 255 65536 4294967296 999999999999 99999999999999999999 0x7FFFFFFF 0xFFFFFFFFFFFFFFFF 0f7FC00000 "
    "0d7FF8000000000000 1.5 1e400 017 089 0b2 16U 0f 0x"
).split()
_CHARACTERS = "{}()[]<>;,:|!@%$._=+-*/\\\"'#&^~? \n\t\r\0\x7f\u00e9\u0663aZ09"
_PIECES = [
    "{",
    "}",
    "{{{{",
    "}}}}",
    "(",
    ")",
    "[",
    "]",
    "/*",
    "*/",
    "//",
    '"',
    ";;",
    ",,",
    "@",
    "@!",
    "_",
    "|",
    "!",
    ":",
    "%r<4>",
    "ret;",
    "bra L;",
    "L:",
    ".reg .b32 %z;",
    "call",
    "{ .param .b32 q; }",
]

Change = Callable[[str, random.Random, Sequence[str]], str]


def _span(text: str, rng: random.Random, longest: int) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(1, longest))


def _lines(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Delete, repeat, swap or borrow lines."""
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(5)
    if action == 0:
        del lines[at : at + rng.choice([1, 1, 2, 10])]
    elif action == 1:
        lines.insert(other, lines[at])
    elif action == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif action == 3:
        donor = rng.choice(others).split("\n")
        lines.insert(at, donor[rng.randrange(len(donor))])
    else:
        lines[at : at + 2] = [" ".join(lines[at : at + 2])]
    return "\n".join(lines)


def change_token(tokens: list[str], rng: random.Random) -> None:
    """Delete or repeat a token, or swap two."""
    at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    action = rng.randrange(3)
    if action == 0:
        del tokens[at]
    elif action == 1:
        tokens.insert(other, tokens[at])
    else:
        tokens[at], tokens[other] = tokens[other], tokens[at]


def _tokens(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Delete, repeat or swap tokens in a part of a line."""
    start, end = _span(text, rng, 200)
    tokens = _TOKEN.findall(text[start:end])
    if not tokens:
        return text
    change_token(tokens, rng)
    return text[:start] + "".join(tokens) + text[end:]


def _characters(text: str, rng: random.Random, others: Sequence[str]) -> str:
    start, end = _span(text, rng, 4)
    return text[:start] + "".join(rng.choice(_CHARACTERS) for _ in range(rng.randrange(3))) + text[end:]


def _truncate(text: str, rng: random.Random, others: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.8 else text[at:]


def _splice(text: str, rng: random.Random, others: Sequence[str]) -> str:
    other = rng.choice(others)
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _piece(text: str, rng: random.Random, others: Sequence[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_PIECES) * rng.choice([1, 1, 1, 2, 50]) + text[at:]


def _replace(pattern: re.Pattern[str], words: Sequence[str]) -> Change:
    """Replace one match of ``pattern`` near a random place by a word of ``words`` or by another match."""

    def change(text: str, rng: random.Random, others: Sequence[str]) -> str:
        at = rng.randrange(len(text) + 1)
        found = pattern.search(text, at)
        if found is None:
            return text
        if words and rng.random() < 0.7:
            new = rng.choice(words)
        else:
            elsewhere = pattern.search(text, rng.randrange(len(text) + 1))
            new = elsewhere.group() if elsewhere is not None else ""
        return text[: found.start()] + new + text[found.end() :]

    return change


_CHANGES: list[Change] = [
    _lines,
    _lines,
    _tokens,
    _tokens,
    _characters,
    _truncate,
    _splice,
    _piece,
    _replace(_NUMBER, _NUMBERS),
    _replace(_REGISTER, []),
    _replace(_MODIFIER, _TYPES),
    _replace(_MODIFIER, _WORDS),
    _replace(_MODIFIER, []),
]


def mutate(texts: Sequence[str], rng: random.Random) -> str:
    """A mutant of one of ``texts``: between one and four changes."""
    text = rng.choice(texts)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        text = rng.choice(_CHANGES)(text, rng, texts)
    return text
