"""PTX text to `Module`.

The functions bear the names of what they parse. A body's statements are read in `body_parser.py`.

Requires: text as a ``str``; see `read` for files. Guarantees: everything that the text says is in the result; what is
not understood is kept as text. Refuses, with `PtxError`: text that breaks the grammar, names that are not declared or
declared twice. Types and arity are the verifier's business.
Reference: PTX ISA 9.0, chapters 4, 5, 7, 11.
"""

from __future__ import annotations

import re

from .body_parser import parse_body
from .errors import PtxError, SourceText
from .ir import Kernel, Module, Param, RawDirective, Variable
from .lexer import Cursor, blank_comments
from .operand_parser import Scope
from .types import SPACES, TYPES

__all__ = ["load", "parse"]

_LINKAGE = frozenset([".visible", ".extern", ".weak", ".common"])
_VARIABLE_SPACES = frozenset([".global", ".const", ".shared", ".local", ".tex", ".param"])
_TO_END_OF_LINE = frozenset([".file", ".loc"])
_TARGET = re.compile(r"\s*[\w.]+(?:\s*,\s*[\w.]+)*")
_VERSION = re.compile(r"\s*(\d+\.\d+)\b")


def parse(text: str, name: str = "<ptx>") -> Module:
    """The module that a PTX text describes; ``name`` is used in messages.

    >>> parse(".version 9.0\\n.target sm_90\\n.address_size 64\\n").target
    'sm_90'
    """
    if "\0" in text:
        source = SourceText(text, name)
        raise PtxError("the text has a NUL character; is this a binary file?", source, text.index("\0"))
    return _ModuleParser(SourceText(text, name)).module_items()


def load(path: str) -> Module:
    """Read and parse the file at ``path``. Raises ``OSError`` where it cannot be read."""
    with open(path, "rb") as file:
        data = file.read()
    return parse(data.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n"), path)


class _ModuleParser:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.cursor = Cursor(source, blank_comments(source))
        self.module = Module(source)
        self.scope = Scope(None)

    def module_items(self) -> Module:
        cursor = self.cursor
        while token := cursor.peek():
            start = cursor.skip_space()
            if token == ".version":
                cursor.next()
                self.module.version = self._match(_VERSION, "a version such as 9.0").strip()
            elif token == ".target":
                cursor.next()
                self.module.target = re.sub(r"\s*,\s*", ", ", self._match(_TARGET, "an architecture").strip())
            elif token == ".address_size":
                cursor.next()
                self.module.address_size = cursor.integer("32 or 64")
            elif token in _LINKAGE or token in _VARIABLE_SPACES or token in (".entry", ".func"):
                self.declaration(start)
            elif token in (".pragma", ".alias"):
                cursor.next()
                self._raw(f"{token} {cursor.until(';', token)};", start)
            elif token == ".section":
                cursor.next()
                self.section(start)
            elif token in _TO_END_OF_LINE or (token == "@" and cursor.text.startswith("@@DWARF", start)):
                self._raw(cursor.line_rest(), start)
            elif token == ";":
                cursor.next()
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
        """``.section name { … }``: DWARF data, kept as text."""
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
        """Linkage, then a variable, an entry or a function."""
        cursor = self.cursor
        linkage: list[str] = []
        while cursor.peek() in _LINKAGE:
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
        known = self.scope.names.get(variable.name)
        is_redeclared = isinstance(known, Variable) and (".extern" in known.linkage or ".extern" in variable.linkage)
        weak = isinstance(known, Variable) and (".weak" in variable.linkage or ".common" in variable.linkage)
        if known is not None and not is_redeclared and not weak:
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
        known = self.scope.names.get(kernel.name)
        if cursor.accept(";") or cursor.peek() != "{":
            kernel.is_declaration = True
            if not is_entry and cursor.peek() == "{":
                raise cursor.error("unexpected '{'")
        if known is not None and not (isinstance(known, Kernel) and (known.is_declaration or kernel.is_declaration)):
            raise PtxError(f"'{kernel.name}' is defined twice", self.source, kernel.pos)
        if known is None or not kernel.is_declaration:
            self.scope.names[kernel.name] = kernel
        self.module.items.append(kernel)
        if not kernel.is_declaration:
            parse_body(cursor, kernel, self.scope)


def parameters(cursor: Cursor) -> list[Param]:
    """``( .param .u64 a, … )``"""
    cursor.expect("(", "before parameters")
    found: list[Param] = []
    if cursor.accept(")"):
        return found
    while True:
        found.append(parameter(cursor))
        if cursor.accept(")"):
            return found
        cursor.expect(",", "between parameters")


def parameter(cursor: Cursor) -> Param:
    space = cursor.next()
    if space not in (".param", ".reg"):
        raise cursor.error(f"expected '.param' or '.reg', found '{space}'")
    param = Param("", space[1:], TYPES["b32"])
    typed = False
    attributes: list[str] = []
    while (token := cursor.peek()).startswith("."):
        cursor.next()
        word = token[1:]
        if word == "align" and not attributes:
            param.align = cursor.integer("an alignment")
        elif word in ("v2", "v4") and not typed:
            param.lanes = int(word[1:])
        elif word in TYPES and not typed:
            param.type = TYPES[word]
            typed = True
        elif typed:
            attributes.append(token)
            if word == "align":
                attributes.append(str(cursor.integer("an alignment")))
        else:
            raise cursor.error(f"unexpected '{token}' in a parameter")
    if not typed:
        raise cursor.error("the parameter has no type")
    param.attributes = " ".join(attributes)
    token = cursor.peek()
    if token and token not in ",)[":
        param.name = cursor.name("a parameter's name")
    param.dims = dimensions(cursor)
    return param


def dimensions(cursor: Cursor) -> tuple[int | None, ...]:
    """``[4][]``: sizes in elements, ``None`` where left out."""
    dims: list[int | None] = []
    while cursor.accept("["):
        if cursor.accept("]"):
            dims.append(None)
        else:
            dims.append(cursor.integer("an array size"))
            cursor.expect("]", "after an array size")
    return tuple(dims)


def performance_directives(cursor: Cursor, kernel: Kernel) -> None:
    """``.maxntid 256, 1, 1``, ``.pragma "…";``, ``.noreturn`` and the like, kept in order."""
    while (token := cursor.peek()).startswith("."):
        if token in _LINKAGE or token in (".entry", ".func", ".global", ".const", ".file", ".section"):
            return
        if token == ".pragma":
            cursor.next()
            kernel.directives.append(f".pragma {cursor.until(';', '.pragma')};")
            continue
        cursor.next()
        operands: list[str] = []
        while (value := cursor.peek()) and (value[0].isdigit() or value[0] == '"'):
            operands.append(cursor.next())
            if not cursor.accept(","):
                break
        if cursor.peek() == "(":
            operands.append(cursor.balanced("(", ")", token))
        kernel.directives.append(" ".join([token, ", ".join(operands)]).rstrip())


def variables(cursor: Cursor, linkage: str, start: int) -> list[Variable]:
    """``.space .align n .type name[…] = …, …;``: one variable for each declarator."""
    space = cursor.next()[1:]
    template = Variable("", space, TYPES["b8"], linkage, pos=start)
    if cursor.peek() == "[":
        template.bank = cursor.balanced("[", "]", "a constant bank")
    typed = False
    while (token := cursor.peek()).startswith("."):
        cursor.next()
        word = token[1:]
        if word == "align":
            template.align = cursor.integer("an alignment")
        elif word == "attribute":
            template.attributes = ".attribute" + cursor.balanced("(", ")", "an attribute")
        elif word in ("v2", "v4", "v8"):
            template.lanes = int(word[1:])
        elif word in TYPES:
            template.type = TYPES[word]
            typed = True
        elif word in SPACES:
            raise cursor.error(f"unexpected '{token}' in a declaration")
        else:
            template.attributes = f"{template.attributes} {token}".strip()
    if not typed:
        raise cursor.error("the declaration has no type")
    return declarators(cursor, template)


def declarators(cursor: Cursor, template: Variable) -> list[Variable]:
    found: list[Variable] = []
    while True:
        variable = Variable(
            cursor.name("a variable's name"),
            template.space,
            template.type,
            template.linkage,
            template.align,
            template.lanes,
            attributes=template.attributes,
            pos=template.pos,
            bank=template.bank,
        )
        if cursor.accept("<"):
            variable.count = cursor.integer("a count")
            cursor.expect(">", "after a count")
        variable.dims = dimensions(cursor)
        if cursor.accept("="):
            variable.initializer = initializer(cursor)
        found.append(variable)
        if cursor.accept(";"):
            return found
        cursor.expect(",", "or ';' after a declaration")


def initializer(cursor: Cursor) -> str:
    """The text of an initializer, up to the comma or semicolon that ends it."""
    if cursor.peek() == "{":
        return cursor.balanced("{", "}", "an initializer")
    start = cursor.skip_space()
    depth = 0
    while (token := cursor.peek()) and not (depth == 0 and token in (",", ";")):
        depth += (token == "(") - (token == ")")
        cursor.next()
    if not token:
        raise cursor.error("expected ';' after an initializer, found the end of the file", start)
    return cursor.text[start : cursor.pos].strip()
