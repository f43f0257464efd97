"""Coloured output: `--color`, NO_COLOR, and whether the stream is a terminal."""

from __future__ import annotations

import os
import re
from typing import Literal, TextIO

__all__ = ["When", "is_wanted", "message", "set_when"]

When = Literal["auto", "always", "never"]

_when: When = "auto"

_WORD = re.compile(r"^(?:[^\n]*?: )??(internal error|error|warning|remark):", re.MULTILINE)
_CODES = {"internal error": "1;31", "error": "1;31", "warning": "1;35", "remark": "1;34"}


def set_when(when: When) -> None:
    """Set the value of `--color`."""
    global _when
    _when = when


def is_wanted(stream: TextIO) -> bool:
    """Whether to write colours to ``stream``. `--color` overrides NO_COLOR, and NO_COLOR overrides the terminal."""
    if _when != "auto":
        return _when == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def message(text: str, stream: TextIO) -> str:
    """``text`` with its first ``error:``, ``warning:`` or ``remark:`` coloured if `is_wanted`."""
    if not is_wanted(stream):
        return text

    def painted(match: re.Match[str]) -> str:
        start = match.start(1) - match.start()
        word = match[1]
        return f"{match[0][:start]}\x1b[{_CODES[word]}m{word}:\x1b[0m"

    return _WORD.sub(painted, text, count=1)
