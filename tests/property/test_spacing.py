"""Blanks, line ends and comments between two tokens do not change what is read.

The files are those of `tests/ptx` that verify. Directives that end with their line, such as ``.loc``, and lines with
strings stay as they are.
"""

import functools
import random
import re
from pathlib import Path

import pytest
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.ptx.verify import verify

FIXED, SHARE = 24, 4

_FILES = Path(__file__).resolve().parent.parent / "ptx"
_TOKEN = re.compile(r"//.*|/\*.*?\*/|[%$_A-Za-z.][\w$%.:]*|\d+\.\d*[eE][-+]?\d+|\d[\w.]*|<<|>>|[=!<>]=|&&|\|\||\S")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WHOLE_LINE = (".loc", ".file", ".section", ".version", ".target", ".address_size", "//", ".b8 ", ".b32", ".b64")
_BETWEEN = ("", "", "", " ", " ", " /* ; } { */ ", " // x; }\n", "\n", "\t \r\n ")
_BEHIND = (" ", "\n", "\n\n", "\t", "/**/", " // end {\n", "\r\n")
_NAME = re.compile(r"[\w$.]")


@functools.cache
def texts() -> list[str]:
    """The files that are valid, without sections of debug information."""
    found: list[str] = []
    for path in sorted(_FILES.rglob("*.ptx")):
        text = path.read_text()
        try:
            verify(parse(text))
        except PtxError:
            continue
        if ".section" not in text:
            found.append(text)
    return found


def respaced(text: str, rng: random.Random) -> str:
    """The text with other blanks and comments between its tokens."""
    parts: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith(_WHOLE_LINE) or "CHECK" in line or '"' in line or "//" in line:
            parts.append(line + "\n")
            continue
        before = ""
        for token in _TOKEN.findall(line):
            parts += [_space(before, token, rng), token]
            before = token
        parts.append(rng.choice(_BEHIND) if stripped else "\n")
    return "".join(parts)


def _space(before: str, token: str, rng: random.Random) -> str:
    if before in ("@", "!", "-", "+", "~", ".", "<") or token in ("<", ">"):
        return ""
    space = rng.choice(_BETWEEN)
    return space or (" " if before == "%" or (before and _NAME.match(before[-1]) and _NAME.match(token)) else "")


def without_spaces(text: str) -> str:
    return re.sub(r"\s+", "", _COMMENT.sub("", print_module(parse(text))))


@pytest.mark.fuzz
def test_spaces_and_comments_change_nothing(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        text = rng.choice(texts())
        assert without_spaces(respaced(text, rng)) == without_spaces(text), seed


@pytest.mark.parametrize("line", ["bar.sync-(-1);", "bar.warp.sync-1;", "bar.sync+0;", "bar.sync~-1;", "mov.u32%r,5;"])
def test_nothing_between_an_opcode_and_its_operand(line: str) -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { .reg .b32 %r; LINE ret; }"
    spaced = re.sub(r"(?<=sync)|(?<=u32)", " ", line)
    assert print_module(parse(text.replace("LINE", line))) == print_module(parse(text.replace("LINE", spaced)))
