"""Names and operands of a function body: what a piece of operand text means in its scope.

Requires: comments blanked. Guarantees: equal text in one scope gives the same operand object, so that a name is
resolved once per scope. Refuses: names that are not declared, and text that is no operand.
Reference: PTX ISA 9.0, chapter 6 and §5.4 (names and scopes).
"""

from __future__ import annotations

import re

from .errors import PtxError, SourceText
from .ir import Declaration, Guard
from .operands import SINK, Element, Imm, Label, Mem, Not, Operand, Pair, Raw, Reg, Special, Sym, Vec
from .ops import special_type
from .types import TYPES, ScalarType, literal_value

__all__ = ["Scope", "parse_operand", "raw_operand", "split_operands"]

_INTEGER = r"(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)[uU]?"
_LITERAL = re.compile(
    rf"[-+]?\s*(?:0[fF][0-9A-Fa-f]{{1,8}}|0[dD][0-9A-Fa-f]{{1,16}}|{_INTEGER}|\d+\.\d*(?:[eE][-+]?\d+)?"
    r"|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)"
)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_NAME_OFFSET = re.compile(rf"([A-Za-z_$%][\w$.]*)((?:\s*\+\s*-?\s*{_INTEGER}|\s*-\s*{_INTEGER})*)")
_OFFSET = re.compile(rf"([-+])\s*(-?)\s*({_INTEGER})")
_SPLIT = re.compile(r"\s*((?:[^,{}\[\]]|\{[^{}]*\}|\[(?:[^\[\]{}]|\{[^{}]*\})*\])+)(?:,|$)")
_WORDS = re.compile(r"[A-Za-z_$%][\w$]*")
_TRAILING_DIGITS = re.compile(r"\d+$")
_COMPONENTS = frozenset("x y z w r g b a b0 b1 b2 b3 h0 h1".split())


class Scope:
    """The names of one ``{ … }``: registers, variables, labels, and the operands already parsed in it."""

    __slots__ = ("guards", "labels", "names", "operands", "parent", "ranges", "registers")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.names: dict[str, Reg | Declaration] = {}
        self.ranges: dict[str, tuple[ScalarType, int, int]] = {}
        self.labels: dict[str, Label] = {}
        self.operands: dict[str, Operand] = {}
        self.guards: dict[str, Guard] = {}
        #: Registers of this scope's ranges that have been asked for.
        self.registers: list[Reg] = []

    def find(self, name: str) -> Reg | Declaration | None:
        """What ``name`` stands for here, the innermost declaration first."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is None and scope.ranges:
                found = scope.find_in_range(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def find_in_range(self, name: str) -> Reg | None:
        """The register ``name`` of a range ``prefix<count>`` declared in this very scope."""
        digits = _TRAILING_DIGITS.search(name)
        if digits is None:
            return None
        for split in range(digits.start(), len(name)):
            number = name[split:]
            if number[0] == "0" and len(number) > 1:
                continue
            declared = self.ranges.get(name[:split])
            if declared is not None and int(number) < declared[1]:
                reg = Reg(name, declared[0], declared[2])
                self.names[name] = reg
                self.registers.append(reg)
                return reg
        return None

    def find_label(self, name: str) -> Label | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


def split_operands(text: str) -> list[str] | None:
    """The operands of ``text`` at its top-level commas; ``None`` if brackets do not match or one is missing."""
    parts: list[str] = []
    pos = 0
    end = len(text)
    while pos < end:
        match = _SPLIT.match(text, pos)
        if match is None:
            return None
        part = match.group(1).strip()
        if not part:
            return None
        parts.append(part)
        pos = match.end()
    return None if text.rstrip().endswith(",") else parts


def parse_operand(text: str, scope: Scope, source: SourceText, pos: int) -> Operand:
    """The operand that ``text`` (no blanks around it) denotes in ``scope``; ``pos`` is its offset for messages."""
    first = text[:1]
    if not first:
        raise PtxError("operand is missing", source, pos)
    if first == "[":
        operand: Operand = _memory(text, scope, source, pos)
    elif first == "{":
        operand = _vector(text, scope, source, pos)
    elif "|" in text:
        left, _, right = text.partition("|")
        parts = [parse_operand(part.strip(), scope, source, pos) for part in (left, right)]
        operand = Pair(*parts)
    elif first == "!":
        inner = parse_operand(text[1:].strip(), scope, source, pos)
        if not isinstance(inner, Reg | Imm):
            raise PtxError(f"'{text}' is no negated predicate", source, pos)
        operand = Not(inner)
    elif text == "_":
        operand = SINK
    elif first.isdigit() or first in "+-.":
        if _LITERAL.fullmatch(text) is None:
            raise PtxError(f"malformed literal '{text}'", source, pos)
        operand = Imm(text.replace(" ", ""))
    else:
        operand = _named(text, scope, source, pos)
    scope.operands[text] = operand
    return operand


def _named(text: str, scope: Scope, source: SourceText, pos: int) -> Reg | Element | Special | Sym:
    match = _NAME_OFFSET.fullmatch(text)
    if match is None:
        raise PtxError(f"'{text}' is no operand", source, pos)
    name, offsets = match.groups()
    found = scope.find(name)
    if found is None:
        return _special_or_component(name, scope, source, pos)
    if isinstance(found, Reg):
        if offsets:
            raise PtxError(f"register '{name}' cannot have an offset outside of brackets", source, pos)
        return found
    return Sym(name, found, _offset(offsets))


def _special_or_component(name: str, scope: Scope, source: SourceText, pos: int) -> Element | Special:
    kind = special_type(name)
    if kind is not None:
        return Special(name, TYPES[kind])
    base, dot, component = name.partition(".")
    found = scope.find(base) if dot else None
    if isinstance(found, Reg) and component in _COMPONENTS:
        return Element(found, component)
    what = "register" if name.startswith("%") else "name"
    raise PtxError(f"{what} '{name}' is not declared", source, pos)


def _offset(text: str) -> int:
    total = 0
    for sign, minus, digits in _OFFSET.findall(text):
        value = int(literal_value(digits))
        total += -value if (sign == "-") != (minus == "-") else value
    return total


def _memory(text: str, scope: Scope, source: SourceText, pos: int) -> Mem:
    parts = split_operands(text[1:-1]) if text.endswith("]") else None
    if not parts:
        raise PtxError(f"malformed address '{text}'", source, pos)
    rest = tuple(parse_operand(part, scope, source, pos) for part in parts[1:])
    base = parts[0]
    if base[0].isdigit() or base[0] == "-":
        if _LITERAL.fullmatch(base) is None:
            raise PtxError(f"malformed address '{text}'", source, pos)
        return Mem(Imm(base), 0, rest)
    match = _NAME_OFFSET.fullmatch(base)
    if match is None:
        raise PtxError(f"malformed address '{text}'", source, pos)
    name, offsets = match.groups()
    named = _named(name, scope, source, pos)
    return Mem(named, _offset(offsets), rest)


def _vector(text: str, scope: Scope, source: SourceText, pos: int) -> Vec:
    parts = split_operands(text[1:-1]) if text.endswith("}") else None
    if not parts:
        raise PtxError(f"malformed vector '{text}'", source, pos)
    operands = scope.operands
    return Vec(tuple(operands.get(part) or parse_operand(part, scope, source, pos) for part in parts))


def raw_operand(text: str, scope: Scope) -> Raw:
    """Operand text of an opaque instruction that no rule fits, with the registers named in it."""
    found = (scope.find(word) for word in _WORDS.findall(text))
    return Raw(text, tuple(reg for reg in found if isinstance(reg, Reg)))
