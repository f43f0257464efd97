"""The parser of modules: from PTX text to a `Module`.

Each function is named after the part of the grammar that it parses. `body_parser.py` parses the bodies of functions.

Requires: the text as a ``str``; `load` reads a file. Guarantees: nothing of the text is lost but comments and blanks.
Parts that are not understood are kept as text. Refuses, with `PtxError`: text that breaks the grammar, and names that
are not declared, or declared twice. The verifier checks types and numbers of operands.
Reference: PTX ISA 9.0, chapters 4, 5, 7, 11.
"""

from __future__ import annotations

import re

from .body_parser import parse_body
from .declarations import LINKAGE, parameters, performance_directives, variables
from .errors import PtxError, SourceText
from .ir import Kernel, Module, Param, RawDirective, Variable
from .lexer import Cursor, blank_comments
from .operand_parser import Scope
from .operands import Sym

__all__ = ["load", "parse", "parse_kernel"]

_VARIABLE_SPACES = frozenset([".global", ".const", ".shared", ".local", ".tex", ".param"])
_TARGET = re.compile(r"\s*[\w.]+(?:\s*,\s*[\w.]+)*")
_VERSION = re.compile(r"\s*(\d+\.\d+)\b")


def parse(text: str, name: str = "<ptx>") -> Module:
    """Parse a PTX text. ``name`` stands for the file in messages. Raises `PtxError` with the place of the first error.

    >>> parse(".version 9.0\\n.target sm_90\\n.address_size 64\\n").target
    'sm_90'
    """
    source = SourceText(text, name)
    if "\0" in text:
        raise PtxError("the text has a NUL character; is this a binary file?", source, text.index("\0"))
    return _ModuleParser(source).parsed()


def load(path: str) -> Module:
    """Read and parse the file at ``path``. Raises ``OSError`` if it cannot be read."""
    with open(path, "rb") as file:
        data = file.read()
    return parse(data.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n"), path)


def parse_kernel(text: str, module: Module, instead: Kernel) -> Kernel:
    """Parse the text of one kernel that will replace the kernel ``instead`` of ``module``.

    The kernel may use the names that items before ``instead`` declare. Positions are offsets in ``text``. Raises
    `PtxError`, also if the text is not exactly one kernel.
    """
    parser = _ModuleParser(SourceText(text, module.source.name))
    names = parser.scope.names
    for item in module.items:
        if item is instead:
            break
        if isinstance(item, Variable) or (
            isinstance(item, Kernel) and (item.name not in names or not item.is_declaration)
        ):
            names[item.name] = item
    items = parser.parsed().items
    if len(items) != 1 or not isinstance(items[0], Kernel) or items[0].is_declaration:
        raise PtxError("this is not one kernel", parser.source, -1)
    return items[0]


class _ModuleParser:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.cursor = Cursor(source, blank_comments(source))
        self.module = Module(source)
        self.scope = Scope(None)

    def parsed(self) -> Module:
        cursor = self.cursor
        while token := cursor.peek():
            start = cursor.skip_space()
            if token == ".version":
                if self.module.version:
                    raise cursor.error("'.version' stands only at the start of a module")
                cursor.next()
                self.module.version = self._match(_VERSION, "a version such as 9.0").strip()
            elif token == ".target":
                if self.module.items or self.module.address_size is not None:
                    raise cursor.error("'.target' stands only behind '.version'")
                cursor.next()
                self.module.target = re.sub(r"\s*,\s*", ", ", self._match(_TARGET, "an architecture").strip())
            elif token == ".address_size":
                if self.module.items:
                    raise cursor.error("'.address_size' stands only behind '.target'")
                cursor.next()
                self.module.address_size = cursor.integer("32 or 64")
            elif token in LINKAGE or token in _VARIABLE_SPACES or token in (".entry", ".func"):
                self.declaration(start)
            elif token in (".pragma", ".alias"):
                cursor.next()
                self._raw(f"{token} {cursor.until(';', token)};", start)
            elif token == ".section":
                cursor.next()
                self.section(start)
            elif token == ".file":
                self._raw(cursor.file_directive(), start)
            elif token == ".loc" or (token == "@" and cursor.text.startswith("@@DWARF", start)):
                self._raw(cursor.line_rest(), start)
            elif token == ";":
                cursor.next()
            elif token == ".reg":
                raise cursor.error("a register cannot be declared outside of a function: the ABI has no such registers")
            else:
                raise cursor.error(f"expected a module directive, found '{token}'")
        return self.module

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.cursor.text, self.cursor.pos)
        if match is None:
            raise self.cursor.error(f"expected {what}")
        self.cursor.pos = match.end()
        return match.group()

    def _raw(self, text: str, pos: int) -> None:
        self.module.items.append(RawDirective(text, pos))

    def section(self, start: int) -> None:
        """``.section name { … }``: DWARF data, which is kept as text."""
        cursor = self.cursor
        cursor.skip_space()
        opening = cursor.text.find("{", cursor.pos)
        closing = cursor.text.find("}", opening)
        if opening < 0 or closing < 0:
            raise cursor.error("'.section' is not closed", start)
        lines = [line.strip() for line in cursor.text[opening + 1 : closing].splitlines()]
        body = "\n".join(line for line in lines if line)
        self._raw(f".section {cursor.text[cursor.pos : opening].strip()}\n{{\n{body}\n}}", start)
        cursor.pos = closing + 1

    def declaration(self, start: int) -> None:
        """The linkage, then a variable, an entry or a function."""
        cursor = self.cursor
        linkage: list[str] = []
        while cursor.peek() in LINKAGE:
            linkage.append(cursor.next())
        word = cursor.peek()
        if word in (".entry", ".func"):
            cursor.next()
            self.function(" ".join(linkage), is_entry=word == ".entry", start=start)
        elif word in _VARIABLE_SPACES:
            for variable in variables(cursor, " ".join(linkage), start):
                self._declare_variable(variable, start)
        else:
            raise cursor.error(f"expected a declaration after '{' '.join(linkage)}', found '{word}'")

    def _declare_variable(self, variable: Variable, start: int) -> None:
        earlier = self.scope.names.get(variable.name)
        is_redeclared = isinstance(earlier, Variable) and (
            ".extern" in earlier.linkage or ".extern" in variable.linkage
        )
        weak = isinstance(earlier, Variable) and (".weak" in variable.linkage or ".common" in variable.linkage)
        if earlier is not None and not is_redeclared and not weak:
            raise PtxError(f"'{variable.name}' is declared twice", self.source, start)
        self.scope.names[variable.name] = variable
        self.module.items.append(variable)

    def function(self, linkage: str, *, is_entry: bool, start: int) -> None:
        cursor = self.cursor
        kernel = Kernel("", is_entry, linkage, pos=start)
        if cursor.peek() == ".attribute":
            cursor.next()
            kernel.attributes = ".attribute" + cursor.balanced("(", ")", "an attribute")
        if not is_entry and cursor.peek() == "(":
            kernel.results = parameters(cursor)
        kernel.pos = cursor.skip_space()
        kernel.name = cursor.name("a function's name")
        if cursor.peek() == "(":
            kernel.params = parameters(cursor)
        performance_directives(cursor, kernel)
        earlier = self.scope.names.get(kernel.name)
        if cursor.accept(";") or cursor.peek() != "{":
            kernel.is_declaration = True
            if not is_entry and cursor.peek() == "{":
                raise cursor.error("unexpected '{'")
        if earlier is not None and not (
            isinstance(earlier, Kernel) and (earlier.is_declaration or kernel.is_declaration)
        ):
            raise PtxError(f"'{kernel.name}' is defined twice", self.source, kernel.pos)
        if earlier is None or not kernel.is_declaration:
            self.scope.names[kernel.name] = kernel
        self.module.items.append(kernel)
        if not kernel.is_declaration:
            parse_body(cursor, kernel, self.scope)
            if not is_entry:
                _mark_parameters(kernel)


def _mark_parameters(function: Kernel) -> None:
    """Mark the parameters of a function whose addresses the code takes."""
    for instr in function.instructions():
        for operand in instr.operands:
            if isinstance(operand, Sym) and isinstance(operand.declaration, Param):
                operand.declaration.is_address_taken = True
