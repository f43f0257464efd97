"""Errors of the DSL, each with its Python line; and the source of Python functions.

Guarantees: ``str(error)`` is ``file:line:col: error: message``, then the line, then a caret. Without a place it is
``error: message``. Lines and columns are 1-based; columns count characters.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["DslError", "FunctionSource", "Place", "source_from_text", "source_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a source file. ``text`` is the whole line."""

    file: str
    line: int
    column: int
    text: str


class DslError(Exception):
    """Something that the DSL cannot express, or that is inconsistent. ``place`` is None if it has no position."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place

    def __str__(self) -> str:
        at = self.place
        if at is None:
            return f"error: {self.message}"
        before = "".join("\t" if c == "\t" else " " for c in at.text[: at.column - 1])
        return f"{at.file}:{at.line}:{at.column}: error: {self.message}\n  {at.text}\n  {before}^"


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The syntax tree of a Python function, and the position of its nodes in the file."""

    file: str
    first_line: int  #: line in the file of the first line of ``lines``
    lines: tuple[str, ...]  #: as in the file, indentation kept
    indent: int  #: blanks that the tree's columns do not count
    tree: ast.FunctionDef

    def line_of(self, node: ast.AST) -> int:
        """The line in the file on which ``node`` starts."""
        return self.first_line + getattr(node, "lineno", 1) - 1

    def place_of(self, node: ast.AST) -> Place:
        """The start of ``node``. If it has no position, the start of the function."""
        lineno = getattr(node, "lineno", self.tree.lineno)
        text = self.lines[lineno - 1]
        # ast columns count bytes of the dedented text.
        behind = text[self.indent :].encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore")
        return Place(self.file, self.first_line + lineno - 1, self.indent + len(behind) + 1, text)

    def error(self, message: str, node: ast.AST) -> DslError:
        """The error ``message`` at ``node``."""
        return DslError(message, self.place_of(node))

    def segment(self, node: ast.expr) -> str:
        """The text of ``node`` if it is on one line, otherwise the empty string."""
        if node.end_lineno != node.lineno or node.end_col_offset is None:
            return ""
        line = self.lines[node.lineno - 1][self.indent :].encode()
        return line[node.col_offset : node.end_col_offset].decode()


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """The source of a function that is written with ``def``.

    Raises `DslError` for a lambda, an ``async def``, and a function whose source is not in a file (entered at a
    prompt).
    """
    code = getattr(function, "__code__", None)
    if code is None:
        raise DslError(f"{function!r} is not a Python function")
    try:
        lines, _ = inspect.getsourcelines(function)
    except (OSError, TypeError) as why:
        raise DslError(
            f"the source of {function.__name__} cannot be read ({why}): define it in a file, not at a prompt"
        ) from None
    plain = tuple(line.rstrip("\n") for line in lines)
    indent = len(plain[0]) - len(plain[0].lstrip())
    try:
        body = ast.parse(textwrap.dedent("".join(lines))).body
    except SyntaxError as why:
        raise DslError(f"the source of {function.__name__} cannot be parsed by itself: {why}") from None
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        place = Place(code.co_filename, code.co_firstlineno, indent + 1, plain[0])
        raise DslError("only a function written with `def` can be compiled", place)
    return FunctionSource(code.co_filename, code.co_firstlineno, plain, indent, body[0])


def source_from_text(text: str, file: str) -> FunctionSource:
    """The source of the one function that ``text`` defines. ``file`` is the name of the text in messages. Raises
    `DslError`."""
    try:
        body = ast.parse(text).body
    except SyntaxError as why:
        raise DslError(f"{file}: {why}") from None
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1:
        raise DslError(f"{file} has {len(functions)} functions instead of one")
    return FunctionSource(file, 1, tuple(text.splitlines()), 0, functions[0])
