"""The tokens of a PTX text. Comments and line marks of the C preprocessor are replaced by blanks first.

Guarantees: this keeps every offset and every line number. Strings are not changed.
Refuses: a comment or string without an end, and characters that PTX does not have.
Reference: PTX ISA 9.0, §4.1 to §4.5.
"""

from __future__ import annotations

import re

from .constants import WARP_SIZE
from .errors import PtxError, SourceText
from .types import literal_value

__all__ = ["Cursor", "blank_comments", "integer_of"]

_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)


#: What the C preprocessor leaves: ``# 3 "kernel.cu"`` and ``#line 3 "kernel.cu"``.
_LINE_MARK = re.compile(r'^#(?:line)?[ \t]+\d+[ \t]+"[^"\n]*"[ \t\d]*$', re.MULTILINE)


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] == '"':
        return text
    if text[1] == "/":
        return " " * len(text)
    return re.sub(r"[^\n]", " ", text)


def blank_comments(source: SourceText) -> str:
    """The text with every comment and every line mark replaced by blanks of the same length."""
    text = source.text
    if "#" in text:
        text = _LINE_MARK.sub(lambda mark: " " * len(mark.group()), text)
    if "/*" in text:
        for match in _COMMENT.finditer(text):
            if match.group() == "/*":
                raise PtxError("comment is not closed", source, match.start())
        text = _COMMENT.sub(_blank, text)
    elif "\\" in text:  # a backslash may continue a string in the next line
        text = _COMMENT.sub(_blank, text)
    else:
        text = _blank_line_comments(text)
    return text if text.isascii() else _ascii_only(source, text)


def _blank_line_comments(text: str) -> str:
    """Blank the ``//`` comments of a text in which no comment and no string is longer than a line. Only the lines with
    such a comment are matched against the pattern, which is the slow part."""
    parts: list[str] = []
    done = 0
    at = text.find("//")
    while at >= 0:
        start = text.rfind("\n", done, at) + 1 or done
        end = text.find("\n", at)
        if end < 0:
            end = len(text)
        parts += (text[done:start], _COMMENT.sub(_blank, text[start:end]))
        done = end
        at = text.find("//", end)
    parts.append(text[done:])
    return "".join(parts)


def _ascii_only(source: SourceText, text: str) -> str:
    """``text``, whose comments are blanked, if all characters outside of strings are ASCII, as PTX requires."""
    found = re.search(r"[^\x00-\x7f]", _COMMENT.sub(lambda string: " " * len(string.group()), text))
    if found is not None:
        raise PtxError(f"unexpected character {found.group()!r}", source, found.start())
    return text


_TOKEN = re.compile(
    r"""\s*(
        "(?:[^"\\\n]|\\.)*"                 # string
      | \.[A-Za-z_][\w:]*                   # directive or modifier
      | [A-Za-z_$%][\w$]*                   # name
      | [-+]?\d[\w.]*(?:(?<=[eE])[-+]\d+)?  # number
      | [-+=<>{}()\[\],;:|!@*/~&^?]         # punctuation
    )""",
    re.VERBOSE,
)
_INTEGER = re.compile(r"(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|0[0-7]*|[1-9]\d*)[uU]?", re.ASCII)
_FILE = re.compile(r'\.file\s+\d{1,9}\s+"[^"\n]*"')
_SPACE = re.compile(r"\s*")
#: For each kind of bracket: the brackets, and strings, which may contain brackets.
_BRACKETS = {pair: re.compile(rf'[\{pair[0]}\{pair[1]}]|"(?:[^"\\\n]|\\.)*"') for pair in ("{}", "()", "[]")}


class Cursor:
    """A position in a text whose comments are blanked. It reads one token after the other."""

    __slots__ = ("_body_end", "_seen", "_seen_at", "_seen_end", "pos", "source", "text")

    def __init__(self, source: SourceText, text: str, pos: int = 0) -> None:
        self.source = source
        self.text = text
        self.pos = pos
        #: The token that `peek` returned last, the position where it was called, and the end of the token.
        self._seen = ""
        self._seen_at = -1
        self._seen_end = -1
        self._body_end = 0

    def peek(self) -> str:
        """The next token without taking it; empty at the end of the text."""
        if self._seen_at == self.pos:
            return self._seen
        match = _TOKEN.match(self.text, self.pos)
        if match is not None:
            self._seen = match[1]
            self._seen_at = self.pos
            self._seen_end = match.end()
            return self._seen
        at = self.skip_space()
        if at >= len(self.text):
            return ""
        if self.text[at] == '"':
            raise self.error("string is not closed", at)
        raise self.error(f"unexpected character {self.text[at]!r}", at)

    def next(self) -> str:
        """Take the next token."""
        token = self.peek()
        if token:
            self.pos = self._seen_end
        return token

    def accept(self, token: str) -> bool:
        """Take the next token if it is ``token``."""
        if self.peek() == token:
            self.next()
            return True
        return False

    def expect(self, token: str, where: str) -> None:
        """Take ``token`` or raise an error that names ``where``."""
        found = self.peek()
        if found != token:
            raise self.error(f"expected '{token}' {where}, found {_shown(found)}")
        self.next()

    def name(self, what: str) -> str:
        """Take an identifier."""
        token = self.peek()
        if not token or not (token[0].isalpha() or token[0] in "_$%"):
            raise self.error(f"expected {what}, found {_shown(token)}")
        return self.next()

    def integer(self, what: str) -> int:
        """Take an integer literal without a sign, or ``WARP_SZ``. ptxas allows no expression in these places."""
        token = self.peek()
        value = integer_of(token)
        if value is None:
            raise self.error(f"expected {what}, found {_shown(token)}")
        self.next()
        return value

    def skip_space(self) -> int:
        """Skip blanks and return the offset of what follows."""
        match = _SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()
        return self.pos

    def body_end(self) -> int:
        """The offset of the next line break before a closing brace, which is how bodies end; -1 if there is none."""
        if 0 <= self._body_end < self.pos:
            self._body_end = self.text.find("\n}", self.pos)
        return self._body_end

    def line_rest(self) -> str:
        """Take the rest of the line."""
        end = self.text.find("\n", self.pos)
        end = len(self.text) if end < 0 else end
        rest = self.text[self.pos : end]
        self.pos = end
        return rest.strip()

    def file_directive(self) -> str:
        """Take ``.file 1 "name"`` with the rest of its line."""
        start = self.skip_space()
        text = self.line_rest()
        if _FILE.match(text) is None:
            raise self.error("malformed '.file'", start)
        return text

    def until(self, stop: str, what: str) -> str:
        """Take the text up to the token ``stop``, and ``stop``. A string counts as one token."""
        start = self.pos
        while True:
            token = self.next()
            if not token:
                raise self.error(f"expected '{stop}' after {what}, found the end of the file", start)
            if token == stop:
                return self.text[start : self.pos - len(stop)].strip()

    def balanced(self, opening: str, closing: str, what: str) -> str:
        """Take a text in brackets, with the brackets."""
        start = self.skip_space()
        self.expect(opening, f"in {what}")
        depth = 1
        find = _BRACKETS[opening + closing].search
        while depth:
            match = find(self.text, self.pos)
            if match is None:
                raise self.error(f"'{opening}' is not closed in {what}", start)
            self.pos = match.end()
            depth += (match[0] == opening) - (match[0] == closing)
        return self.text[start : self.pos]

    def error(self, message: str, pos: int = -1) -> PtxError:
        """An error at ``pos``, or at the next token."""
        return PtxError(message, self.source, pos if pos >= 0 else self.skip_space())


def integer_of(token: str) -> int | None:
    """The value of ``token`` if it is an integer literal without a sign, or ``WARP_SZ``; else ``None``.

    >>> integer_of("0x1F"), integer_of("010"), integer_of("16U"), integer_of("WARP_SZ"), integer_of("-1")
    (31, 8, 16, 32, None)
    """
    if token == "WARP_SZ":
        return WARP_SIZE
    if _INTEGER.fullmatch(token) is None:
        return None
    try:
        return int(literal_value(token))
    except ValueError:  # more digits than Python converts
        return None


def _shown(token: str) -> str:
    return f"'{token}'" if token else "the end of the file"
