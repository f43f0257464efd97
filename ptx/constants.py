"""The evaluation of constant expressions of PTX.

Computes: the literal that is equal to an expression. Values are signed or unsigned integers of 64 bits, and double
precision numbers. Where ptxas 13.0 differs from the manual, the value is that of ptxas: the chosen operand of ``?:``
keeps its own type, a shift uses the last six bits of its count, and a ``0f…`` literal next to an operator is the double
with these bits.
Requires: comments are blanked. Refuses, with `ConstantError`: text that is not a constant expression, a division by
zero (also in the operand of ``?:`` that is not chosen), a literal that overflows, an operator between an integer and a
floating-point value, and NaN.
Reference: PTX ISA 9.0, §4.5.4 to §4.5.6 (constant expressions and their evaluation).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from .types import is_integer_literal, literal_value

__all__ = ["WARP_SIZE", "ConstantError", "constant_integer", "constant_literal"]

#: The value of ``WARP_SZ``.
WARP_SIZE = 32

_TOKEN = re.compile(
    r"""\s*(?:
        (\d\w*\.?\w*(?:(?<=[eE])[-+]\d+)?|\.\d\w*(?:(?<=[eE])[-+]\d+)?)  # 1 literal
      | (\(\s*\.[su]64\s*\))                                              # 2 cast
      | (<<|>>|<=|>=|==|!=|&&|\|\||%(?![\w$])|[-+*/<>&^|~!?:()])          # 3 operator
      | (WARP_SZ)(?![\w$])                                                # 4 the name of a constant
    )""",
    re.VERBOSE | re.ASCII,
)
_LITERAL = re.compile(
    r"0[xX][0-9A-Fa-f]+[uU]?|0[bB][01]+[uU]?|0[fF][0-9A-Fa-f]{1,8}|0[dD][0-9A-Fa-f]{1,16}"
    r"|0[0-7]*[uU]?|[1-9]\d*[uU]?|\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+"
)
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
#: The greatest depth of nested parentheses and unary operators.
_DEEPEST = 40
#: The greatest length of an expression, in characters.
_LONGEST = 1 << 16


class ConstantError(ValueError):
    """The text is not a constant expression."""


class _Integer(int):
    """A value of type ``.s64``. As an ``int`` it is its 64 bits, read as unsigned. `_Unsigned` is the type ``.u64``."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """The number that the bits mean in this type."""
        return int(self) - (int(self) & _SIGN) * 2


class _Unsigned(_Integer):
    __slots__ = ()

    @property
    def value(self) -> int:
        return int(self)


_Value: TypeAlias = _Integer | float


def _signed(value: int) -> _Integer:
    return _Integer(value & _MASK)


def _unsigned(value: int) -> _Integer:
    return _Unsigned(value & _MASK)


# --- binary operators ------------------------------------------------------------------------------------------------


def _quotient(left: int, right: int) -> int:
    """The quotient rounded towards zero, as in C."""
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


#: Operators on operands after the usual arithmetic conversions. The result has the converted type.
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _quotient,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
}
_FLOAT_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}
#: Operators on operands after the usual arithmetic conversions, or on two floating-point values. The result is 0 or 1,
#: of type ``.s64``.
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}
#: The precedence of C: an operator with a higher level binds more strongly.
_PRECEDENCE = {
    operator: level
    for level, operators in enumerate(("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"))
    for operator in operators.split()
}


def _of_integers(operator: str, left: _Integer, right: _Integer) -> _Integer:
    if operator == "&&":
        return _signed(left != 0 and right != 0)
    if operator == "||":
        return _signed(left != 0 or right != 0)
    if operator == "%":
        return _unsigned(int(left) % int(right))
    if operator == "<<":
        return type(left)((int(left) << (int(right) & 63)) & _MASK)
    if operator == ">>":
        return type(left)((left.value >> (int(right) & 63)) & _MASK)
    is_unsigned = isinstance(left, _Unsigned) or isinstance(right, _Unsigned)
    first, second = (int(left), int(right)) if is_unsigned else (left.value, right.value)
    compare = _COMPARISONS.get(operator)
    if compare is not None:
        return _signed(compare(first, second))
    result = _ARITHMETIC[operator](first, second)
    return _unsigned(result) if is_unsigned else _signed(result)


def _combined(operator: str, left: _Value, right: _Value) -> _Value:
    if operator in "/%" and not right:
        raise ConstantError("division by zero in a constant expression")
    if isinstance(left, _Integer) and isinstance(right, _Integer):
        return _of_integers(operator, left, right)
    if isinstance(left, _Integer) or isinstance(right, _Integer):
        raise ConstantError(f"'{operator}' takes two integers or two floating-point values")
    compare = _COMPARISONS.get(operator)
    if compare is not None:
        return _signed(compare(left, right))
    compute = _FLOAT_ARITHMETIC.get(operator)
    if compute is None:
        raise ConstantError(f"'{operator}' takes integers")
    return compute(left, right)


def _applied(operator: str, value: _Value) -> _Value:
    if not isinstance(value, _Integer):
        if operator == "+":
            return value
        if operator == "-":
            return -value
        raise ConstantError(f"'{operator}' takes an integer")
    if operator == "-":
        return type(value)(-int(value) & _MASK)
    if operator == "~":
        return _unsigned(~int(value))
    if operator == "!":
        return _signed(not value)
    if operator == "+":
        return value
    return _unsigned(value) if "u64" in operator else _signed(value)


# --- the parser ------------------------------------------------------------------------------------------------------


class _Parser:
    """A recursive-descent parser that evaluates while it reads."""

    def __init__(self, text: str) -> None:
        #: The tokens, with an empty string at the end.
        self.tokens = _tokens(text)
        self.place = 0
        #: The number of open parentheses, unary operators and ``?:``.
        self.depth = 0

    @property
    def token(self) -> str:
        return self.tokens[self.place]

    def next(self) -> str:
        token = self.token
        self.place += 1
        return token

    def expect(self, token: str) -> None:
        if self.token != token:
            raise self.unexpected()
        self.place += 1

    def unexpected(self) -> ConstantError:
        token = self.token
        if token[:1].isdigit() and _LITERAL.fullmatch(token) is None:
            return ConstantError(f"malformed literal '{token}'")
        where = f"unexpected '{token}' in" if token else "unexpected end of"
        return ConstantError(f"{where} a constant expression")

    def whole(self) -> _Value:
        value = self.conditional()
        if self.token:
            raise self.unexpected()
        return value

    def conditional(self) -> _Value:
        value = self.binary(0)
        if self.token != "?":
            return value
        self.enter()
        self.next()
        first = self.conditional()
        self.expect(":")
        second = self.conditional()
        self.depth -= 1
        if not (isinstance(value, _Integer) and isinstance(first, _Integer) and isinstance(second, _Integer)):
            raise ConstantError("'?:' takes integers")
        return first if value else second

    def binary(self, lowest: int) -> _Value:
        """An expression of binary operators of level ``lowest`` or higher."""
        left = self.unary()
        while (level := _PRECEDENCE.get(self.token, -1)) >= lowest:
            operator = self.next()
            left = _combined(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> _Value:
        token = self.token
        if token not in ("-", "+", "~", "!") and token[:1] != "(":
            return self.literal()
        self.enter()
        self.next()
        if token == "(":
            value = self.conditional()
            self.expect(")")
        else:
            value = _applied(token, self.unary())
        self.depth -= 1
        return value

    def literal(self) -> _Value:
        token = self.token
        if token == "WARP_SZ":
            self.next()
            return _signed(WARP_SIZE)
        if _LITERAL.fullmatch(token) is None:
            raise self.unexpected()
        before = self.tokens[self.place - 1] if self.place else "("
        self.next()
        if token[:2] in ("0f", "0F", "0d", "0D"):
            if before != "(" or self.token not in (")", ""):
                raise ConstantError(f"'{token}' has to be in parentheses to be an operand of an operator")
            return struct.unpack(">d", bytes.fromhex(token[2:].zfill(16)))[0]
        if not is_integer_literal(token):
            value = float(token)
            if math.isinf(value):
                raise ConstantError(f"literal '{token}' overflows")
            return value
        if len(token) > 70 or (number := int(literal_value(token))) > _MASK:
            raise ConstantError(f"'{token}' is no literal of 64 bits or less")
        return _unsigned(number) if number >= _SIGN or token[-1] in "uU" else _signed(number)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ConstantError(f"the constant expression is nested more than {_DEEPEST} deep")


def _tokens(text: str) -> list[str]:
    if len(text) > _LONGEST:
        raise ConstantError("the constant expression is too long")
    tokens: list[str] = []
    end = len(text.rstrip())
    pos = 0
    while pos < end:
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ConstantError(f"unexpected {text[pos:].lstrip()[0]!r} in a constant expression")
        token = match[match.lastindex or 0]
        tokens.append("".join(token.split()))
        pos = match.end()
    tokens.append("")
    return tokens


@lru_cache(1 << 10)
def constant_literal(text: str) -> str:
    """The literal that is equal to the constant expression ``text``: decimal digits, or ``0d…`` for a double.

    A single literal in parentheses keeps its spelling. Raises `ConstantError`.

    >>> constant_literal("1 << 4 | 1"), constant_literal("(5>3) ? WARP_SZ : 9"), constant_literal("(0f3F800000)")
    ('17', '32', '0f3F800000')
    >>> constant_literal("-7/2"), constant_literal("-7 % 4"), constant_literal("~7"), constant_literal("1.0+2.0")
    ('-3', '1', '18446744073709551608', '0d4008000000000000')
    """
    parser = _Parser(text)
    value = parser.whole()
    if isinstance(value, _Integer):
        return str(value.value)
    inner = [token for token in parser.tokens if token not in ("(", ")", "")]
    if len(inner) == 1:
        return inner[0]
    if math.isnan(value):
        raise ConstantError("the constant expression has no value")
    return f"0d{struct.pack('>d', value).hex().upper()}"


@lru_cache(1 << 10)
def constant_integer(text: str) -> int:
    """The value of the constant expression ``text``, which is an integer, as a signed number of 64 bits. Raises
    `ConstantError`, also for a floating-point value.

    >>> constant_integer("~3"), constant_integer("2*4")
    (-4, 8)
    """
    value = _Parser(text).whole()
    if not isinstance(value, _Integer):
        raise ConstantError("an integer is wanted here")
    return int(value) - (int(value) & _SIGN) * 2
