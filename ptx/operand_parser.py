"""The parser of operands, and the scopes in which it resolves names.

Requires: comments are blanked. Guarantees: equal text in one scope gives the same operand object, so a name is resolved
once per scope. Refuses, with `OperandError`: a name that is not declared, and text that is not an operand.
Reference: PTX ISA 9.0, chapter 6 and §5.4 (names and scopes).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from .constants import ConstantError, constant_integer, constant_literal
from .instructions import Guard
from .ir import Declaration, Param, Variable
from .operands import SINK, Element, Imm, Label, Mem, Not, Operand, Pair, Raw, Reg, Special, Sym, Vec
from .special_registers import special_type
from .types import TYPES, ScalarType, literal_value

__all__ = ["OffsetOperand", "OperandError", "Scope", "closing_parenthesis", "is_below", "raw_operand", "split_operands"]

_INTEGER = r"(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)[uU]?"
_LITERAL = re.compile(
    rf"[-+]?\s*(?:0[fF][0-9A-Fa-f]{{1,8}}|0[dD][0-9A-Fa-f]{{1,16}}|{_INTEGER}|\d+\.\d*(?:[eE][-+]?\d+)?"
    r"|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)"
)
_NAME_OFFSET = re.compile(rf"([A-Za-z_$%][\w$.]*)((?:\s*\+\s*-?\s*{_INTEGER}|\s*-\s*{_INTEGER})*)")
_OFFSET = re.compile(rf"([-+])\s*(-?)\s*({_INTEGER})")
#: A name with ``+`` and a constant expression, or with an index in brackets.
_NAME_AND_MORE = re.compile(r"([A-Za-z_$%][\w$.]*)\s*([+\[])(.*)", re.DOTALL)
#: The start of a constant expression that is not a single literal.
_CONSTANT = re.compile(r"[-+~!(.\d]|WARP_SZ(?![\w$])")
#: The most common form of an address, ``[name]`` or ``[name+decimal]``.
_PLAIN_ADDRESS = re.compile(r"\[([A-Za-z_$%][\w$]*)(?:\+(-?[1-9]\d{0,9}|0))?\]")
#: One operand. A comma inside braces or brackets does not end it.
_PART = re.compile(r"(?:[^,{}\[\]]|\{[^{}]*\}|\[(?:[^\[\]{}]|\{[^{}]*\})*\])+")
_PARENTHESES = re.compile(r"[()]")
_WORDS = re.compile(r"[A-Za-z_$%][\w$]*")
#: A component of a vector register, or the bytes or halves that a video instruction selects.
_COMPONENT = re.compile(r"[xyzwrgba]|b[0-7]{1,4}|h[0-3]{1,2}")
_DIGITS = "0123456789"


class OperandError(Exception):
    """``text`` is not an operand in this scope. The parser of the body adds the position."""

    #: Whether ptxas accepts it. Then the instruction is kept as opaque.
    is_unmodelled = False

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.message = message
        self.text = text


class UnmodelledOperand(OperandError):
    """An operand that ptxas accepts and the IR cannot represent: ``-%r1``, ``[%rd1].unified``."""

    is_unmodelled = True


class OffsetOperand(UnmodelledOperand):
    """``%r1+4`` or ``%laneid+1`` outside of brackets. The parser of the body replaces it by an addition."""

    def __init__(self, text: str, base: Reg | Element | Special, offset: int) -> None:
        super().__init__(f"'{base.text}' has an offset outside of brackets", text)
        self.base = base
        self.offset = offset


class Scope(dict[str, Operand]):
    """The names that one ``{ … }`` declares. As a dictionary, scope[text] is the operand that the text means in this
    scope; a missing entry is parsed at its first use."""

    __slots__ = ("guards", "has_parsed", "labels", "names", "parent", "ranges", "registers")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        #: Whether the dictionary has entries other than those of `declare`.
        self.has_parsed = False
        self.names: dict[str, Reg | Declaration] = {}
        #: ranges[prefix] = (type, count, lanes) of ``.reg .type prefix<count>``.
        self.ranges: dict[str, tuple[ScalarType, int, int]] = {}
        self.labels: dict[str, Label] = {}
        #: guards[name, "!" or ""].
        self.guards: dict[tuple[str, str], Guard] = {}
        #: The registers of this scope's ranges that occur in the text.
        self.registers: list[Reg] = []

    def __missing__(self, text: str) -> Operand:
        self.has_parsed = True
        declared = self.names.get(text)
        first = text[:1]
        if type(declared) is Reg:
            operand: Operand = declared
        elif first == "[":
            operand = self._memory(text)
        elif first == "{" and text[-1] == "}":
            operand = self._vector(text)
        else:
            operand = self._name(text) or self._parse(text)
        self[text] = operand
        return operand

    def declare(self, registers: dict[str, Reg]) -> None:
        """Declare ``registers``, by name. No declared name and no parsed operand may have one of these names."""
        self.names.update(registers)
        self.update(registers)

    def forget(self) -> None:
        """Drop the parsed operands. A new declaration may hide an outer name that they use."""
        if self.has_parsed:
            self.clear()
            self.guards.clear()
            self.has_parsed = False

    # --- names ---------------------------------------------------------------------------------------------------

    def _name(self, text: str) -> Reg | Sym | None:
        """The operand if the whole of ``text`` is a declared name, else ``None``."""
        declared = self.find(text)
        return declared if declared is None or isinstance(declared, Reg) else Sym(text, declared)

    def find(self, name: str) -> Reg | Declaration | None:
        """The register or declaration that ``name`` means in this scope; an inner declaration hides an outer one."""
        scope: Scope | None = self
        while scope is not None:
            declared = scope.names.get(name)
            if declared is None and scope.ranges:
                declared = scope.find_in_range(name)
            if declared is not None:
                return declared
            scope = scope.parent
        return None

    def find_in_range(self, name: str) -> Reg | None:
        """The register ``name`` of a range ``prefix<count>`` that this scope itself declares."""
        ranges = self.ranges
        # The prefix may itself end in digits: `%r1<4>` declares `%r10` to `%r13`.
        for split in range(len(name.rstrip(_DIGITS)), len(name)):
            declared = ranges.get(name[:split])
            if declared is not None and is_below(name[split:], declared[1]):
                reg = self.names[name] = Reg(name, declared[0], declared[2])
                self.registers.append(reg)
                return reg
        return None

    def find_label(self, name: str) -> Label | None:
        """The label ``name`` of a block or of a directive; an inner label hides an outer one."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def guard(self, name: str, negation: str) -> Guard:
        """The guard ``@name``, or ``@!name`` if ``negation`` is not empty."""
        cached = self.guards.get((name, negation))
        if cached is None:
            operand = self[name]
            if not isinstance(operand, Reg | Imm):
                raise OperandError(f"'{name}' is no predicate", name)
            if isinstance(operand, Reg) and operand.type.kind != "p":
                raise OperandError(f"'{name}' is not a predicate but a .{operand.type.name}", name)
            cached = self.guards[name, negation] = Guard(operand, negated=bool(negation))
        return cached

    # --- operands that are not only a declared name --------------------------------------------------------------

    def _parse(self, text: str) -> Operand:
        first = text[:1]
        if not first:
            raise OperandError("operand is missing", text)
        if first.isspace() or text[-1:].isspace():
            return self[text.strip()]
        if _LITERAL.fullmatch(text) is not None:
            return Imm("".join(text.split()))
        if first == "-" and isinstance(self.find(text[1:].partition(".")[0].strip()), Reg):
            raise UnmodelledOperand(f"register operand '{text}' is negated", text)
        if first == "!":
            negated = self._negated_predicate(text)
            if negated is not None:
                return negated
        if text != "WARP_SZ" and _CONSTANT.match(text) is not None:
            return Imm(_evaluated(constant_literal, text))
        if "|" in text and "+" not in text:
            if text.count("|") > 2:  # each one is a recursive call
                raise OperandError("the operand has too many parts", text)
            left, _, right = text.rpartition("|")
            return Pair(self[left.strip()], self[right.strip()])
        if first == "{":
            raise OperandError(f"malformed vector '{text}'", text)
        return SINK if text == "_" else self._named(text)

    def _negated_predicate(self, text: str) -> Not | None:
        """``!%p1``, or ``None`` if the text is a constant expression."""
        inner = text[1:].lstrip()
        name = inner.lstrip("! ")
        if _CONSTANT.match(name) is not None:
            return None
        if name != inner:
            raise OperandError("a predicate can be negated only once", text)
        operand = self[name]
        if not isinstance(operand, Reg):
            raise OperandError(f"'{text}' is no negated predicate", text)
        return Not(operand)

    def _named(self, text: str) -> Reg | Element | Special | Sym:
        """A name, or a name with an offset or an index."""
        name, offset, has_offset = _name_and_offset(text)
        if not has_offset:
            declared = self.find(name)
            if declared is None:
                return self._special_or_component(name)
            return declared if isinstance(declared, Reg) else Sym(name, declared)
        return self._offset_or_index(text, name, offset)

    def _offset_or_index(self, text: str, name: str, offset: int) -> Sym:
        """``name+offset`` or ``name[index]`` outside of brackets."""
        declared = self.find(name)
        if declared is None:
            declared = self._special_or_component(name)
        if isinstance(declared, Reg | Element | Special):
            is_integer = (
                declared.reg.type.kind in "bus" if isinstance(declared, Element) else declared.type.kind in "bus"
            )
            if not is_integer or text[len(name) :].lstrip()[:1] != "+":
                raise OperandError(f"'{text}' is no operand", text)
            raise OffsetOperand(text, declared, offset)
        if text.endswith("]"):
            if not isinstance(declared, Variable | Param) or not declared.dims:
                raise OperandError(f"'{name}' is no array", text)
            offset *= declared.type.bytes
        return Sym(name, declared, offset, has_zero=not offset and not text.endswith("]"))

    def _special_or_component(self, name: str) -> Element | Special:
        kind = special_type(name)
        if kind is not None:
            return Special(name, TYPES[kind])
        base, dot, component = name.partition(".")
        declared = self.find(base) if dot else None
        if isinstance(declared, Reg) and _COMPONENT.fullmatch(component):
            return Element(declared, component)
        what = "register" if name.startswith("%") else "name"
        raise OperandError(f"{what} '{name}' is not declared", name)

    def _memory(self, text: str) -> Mem:
        plain = _PLAIN_ADDRESS.fullmatch(text)
        if plain is not None:
            name, offset = plain.groups()
            base = self._name(name) or self._named(name)
            return Mem(base, int(offset), has_zero=offset == "0") if offset else Mem(base)
        parts = split_operands(text[1:-1]) if text.endswith("]") else None
        if not parts:
            if text.endswith("].unified"):
                raise UnmodelledOperand("the address has an attribute", text)
            raise OperandError(f"malformed address '{text}'", text)
        rest = tuple([self[part] for part in parts[1:]])
        base = parts[0]
        if _LITERAL.fullmatch(base) is not None:
            return Mem(Imm(base), 0, rest)
        if _CONSTANT.match(base) is not None:
            return Mem(Imm(_evaluated(constant_literal, base)), 0, rest)
        if base.endswith("]"):
            raise OperandError(f"malformed address '{text}'", text)
        name, offset, has_offset = _name_and_offset(base)
        return Mem(self._named(name), offset, rest, has_zero=has_offset and not offset)

    def _vector(self, text: str) -> Vec:
        parts = split_operands(text[1:-1]) if text.endswith("}") else None
        if not parts:
            raise OperandError(f"malformed vector '{text}'", text)
        return Vec(tuple([self[part] for part in parts]))


def split_operands(text: str) -> list[str] | None:
    """``text`` split at its top-level commas, without the blanks around the parts.

    ``None`` if brackets do not match or an operand is missing.

    >>> split_operands("{%f1, %f2}, [%rd1, {%r1}] ,7")
    ['{%f1, %f2}', '[%rd1, {%r1}]', '7']
    """
    if "{" not in text and "[" not in text:
        parts = [part.strip() for part in text.split(",")]
        if "" in parts:
            return [] if len(parts) == 1 else None
        return parts
    parts: list[str] = []
    pos = 0
    while True:
        match = _PART.match(text, pos)
        part = match.group().strip() if match is not None else ""
        if match is None or not part:
            return None
        parts.append(part)
        pos = match.end()
        if pos == len(text):
            return parts
        if text[pos] != ",":
            return None
        pos += 1


def closing_parenthesis(text: str, start: int) -> int:
    """The offset of the parenthesis that closes the one before ``start``, or -1."""
    depth = 1
    for match in _PARENTHESES.finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    return -1


def is_below(number: str, count: int) -> bool:
    """Whether ``number`` is a number from 0 to ``count`` - 1, without leading zeros, as names of registers have it."""
    if not (number.isascii() and number.isdigit()) or (number[0] == "0" and len(number) > 1):
        return False
    return len(number) <= 10 and int(number) < count


def _name_and_offset(text: str) -> tuple[str, int, bool]:
    """Split ``name``, ``name+offset`` or ``name[index]``: the name, the number, and whether the text has a number."""
    match = _NAME_OFFSET.fullmatch(text)
    if match is not None:
        name, offsets = match.groups()
        return name, _offset(offsets), offsets != ""
    match = _NAME_AND_MORE.fullmatch(text)
    if match is None or (match[2] == "[" and not text.endswith("]")):
        raise OperandError(f"'{text}' is no operand", text)
    name, operator, rest = match.groups()
    return name, _evaluated(constant_integer, rest if operator == "+" else rest[:-1]), True


_T = TypeVar("_T")


def _evaluated(evaluate: Callable[[str], _T], text: str) -> _T:
    """The value of the constant expression ``text``."""
    try:
        return evaluate(text)
    except ConstantError as error:
        raise OperandError(str(error), text) from None


def _offset(text: str) -> int:
    """The sum of offsets such as ``+4-8``, as a signed number of 64 bits."""
    total = 0
    for sign, minus, digits in _OFFSET.findall(text):
        try:
            value = int(literal_value(digits))
        except ValueError:  # octal digits, or more digits than Python converts
            raise OperandError("malformed offset", text) from None
        total += -value if (sign == "-") != (minus == "-") else value
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def raw_operand(text: str, scope: Scope) -> Raw:
    """Operand text of an opaque instruction that no rule fits, with the registers named in it."""
    operands = (scope.find(word) for word in _WORDS.findall(text))
    return Raw(text, tuple([reg for reg in operands if isinstance(reg, Reg)]))
