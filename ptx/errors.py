"""Errors in a PTX text, with their positions.

Guarantees: ``str(error)`` is ``file:line:col: error: message``, then the line, then a caret.
"""

from __future__ import annotations

import re
from bisect import bisect_right

__all__ = ["PtxError", "SourceText", "shortened"]

#: A quotation or a name in a message is shortened to this many characters.
_LONGEST_QUOTE = 80
_LONG_QUOTE = re.compile(rf"[^\s']{{{_LONGEST_QUOTE + 1},}}|(?<=')[^'\n]{{{_LONGEST_QUOTE + 1},}}(?=')")


def shortened(message: str) -> str:
    """``message`` with the middle of every word and every quotation that is too long replaced by an ellipsis.

    >>> shortened("malformed literal '" + "1" * 1000 + "'")[:30], len(shortened("x" * 1000))
    ("malformed literal '11111111111", 80)
    """
    if len(message) <= _LONGEST_QUOTE:
        return message
    half = _LONGEST_QUOTE // 2
    return _LONG_QUOTE.sub(lambda quote: f"{quote[0][: half + 10]} … {quote[0][-half + 13 :]}", message)


class SourceText:
    """A PTX text and its name for messages. The index of lines is computed at its first use."""

    __slots__ = ("_starts", "name", "text")

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self._starts: list[int] | None = None

    def line_column(self, pos: int) -> tuple[int, int]:
        """The 1-based line and column of the character at offset ``pos``."""
        if self._starts is None:
            starts = [0]
            find = self.text.find
            at = find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = find("\n", at + 1)
            self._starts = starts
        line = bisect_right(self._starts, pos)
        return line, pos - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a 1-based line and column; the inverse of `line_column`."""
        self.line_column(0)
        assert self._starts is not None
        return self._starts[line - 1] + column - 1

    def line(self, number: int) -> str:
        """The text of the 1-based line ``number``, without its newline."""
        self.line_column(0)
        assert self._starts is not None
        start = self._starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)]


class PtxError(Exception):
    """A PTX text breaks a rule of the language.

    ``pos`` is the offset in the text, or -1 if the error has no position.
    """

    def __init__(self, message: str, source: SourceText, pos: int) -> None:
        message = shortened(message)
        super().__init__(message)
        self.message = message
        self.source = source
        self.pos = pos

    def __str__(self) -> str:
        if self.pos < 0:
            return f"{self.source.name}: error: {self.message}"
        line, column = self.source.line_column(min(self.pos, len(self.source.text)))
        shown, caret = _excerpt(self.source.line(line), column)
        return f"{self.source.name}:{line}:{column}: error: {self.message}\n  {shown}\n  {caret}^"


def _excerpt(line: str, column: int, width: int = 160) -> tuple[str, str]:
    """The part of ``line`` around ``column``, with printable characters only, and the blanks before the caret."""
    start = max(0, column - 1 - width // 2)
    part = line[start : start + width].rstrip("\r")
    shown = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in part)
    before = shown[: column - 1 - start].ljust(column - 1 - start)
    return shown, "".join("\t" if c == "\t" else " " for c in before)
