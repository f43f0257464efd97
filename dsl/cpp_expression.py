"""A C++ expression with its type: `Expr`, and `literal`, which makes one of a Python number."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from . import types as t

__all__ = [
    "ADD",
    "AND",
    "CONDITIONAL",
    "EQUALITY",
    "LAND",
    "LOR",
    "MULTIPLY",
    "OR",
    "PRIMARY",
    "RELATION",
    "SHIFT",
    "UNARY",
    "XOR",
    "Expr",
    "literal",
]

#: Precedence of the C++ text; a larger number binds tighter.
PRIMARY, UNARY, MULTIPLY, ADD, SHIFT, RELATION, EQUALITY, AND, XOR, OR, LAND, LOR, CONDITIONAL = range(16, 3, -1)


@dataclass(frozen=True, slots=True)
class Expr:
    """A C++ expression. ``value`` is its value if it is a constant. A float literal has no type yet; ``settle`` gives
    it one."""

    text: str
    type: t.Type
    precedence: int = PRIMARY
    value: int | float | None = None
    is_lvalue: bool = False
    is_const: bool = False
    settle: Callable[[t.Scalar], Expr] | None = None
    #: The factors of a product of floats that a sum may contract (`unit.Arithmetic`).
    factors: tuple[Expr, Expr] | None = None

    @property
    def scalar(self) -> t.Scalar:
        """The type of an expression that is known to be a scalar."""
        assert isinstance(self.type, t.Scalar)
        return self.type

    @property
    def is_weak(self) -> bool:
        """Whether it is a float constant that has no type yet."""
        return self.type is t.WEAK_FLOAT

    def at(self, precedence: int) -> str:
        """The text, in parentheses if it binds looser than ``precedence``."""
        return self.text if self.precedence >= precedence else f"({self.text})"


def literal(value: int | float, type: t.Scalar | None = None, spelled: str = "") -> Expr | None:
    """A constant as a C++ expression. Without ``type`` a float has no type yet. None if no integer type can hold the
    value."""
    if isinstance(value, bool):
        return Expr("true" if value else "false", t.BOOL, value=int(value))
    if isinstance(value, int) and (type is None or type.is_integer):
        return _integer(value, type, spelled)
    if type is None:
        return Expr(repr(value), t.WEAK_FLOAT, value=value, settle=lambda to: _floating(float(value), to, spelled))
    return _floating(float(value), type, spelled)


def _integer(value: int, type: t.Scalar | None, spelled: str) -> Expr | None:
    prefixed = spelled[:2].lower() in ("0x", "0b", "0o")
    order = (t.I32, t.U32, t.I64, t.U64) if prefixed else (t.I32, t.I64, t.U64)
    chosen = type or next((s for s in order if s.limits[0] <= value <= s.limits[1]), None)
    if chosen is None:
        return None
    digits = spelled.replace("_", "") if prefixed and spelled[1] in "xX" else str(value)
    suffix = {"u32": "u", "i64": "LL", "u64": "ULL"}.get(chosen.name, "")
    if value == chosen.limits[0] and value < 0 and chosen.bytes >= 4:
        return Expr(f"{value + 1}{suffix} - 1", chosen, ADD, value)
    text = f"{digits}{suffix}"
    if chosen.bytes < 4 and chosen is not t.BOOL:
        return Expr(f"({chosen.cuda}){text}", chosen, UNARY, value)
    return Expr(text, chosen, UNARY if value < 0 else PRIMARY, value)


def _floating(value: float, type: t.Scalar, spelled: str) -> Expr:
    """A floating constant. ``value`` of the result is rounded to the type; it is None if it overflows."""
    if math.isnan(value) or math.isinf(value):
        sign = "-" if value < 0 else ""
        name = "NAN" if math.isnan(value) else "INFINITY"
        text = f"{sign}{name}" if type is t.F32 else f"{sign}(({type.cuda}){name})"
        return Expr(text, type, UNARY, value)
    plain = spelled if spelled and spelled[-1] not in ".jJ" and spelled[0] != "." else ""
    text = (plain.replace("_", "") or repr(value)) if value >= 0 else repr(value)
    if not any(c in text for c in ".eE"):
        text += ".0"
    rounded: float | None = value
    if type is not t.F64:
        try:
            code = "f" if type is t.F32 else "e"
            rounded = struct.unpack(code, struct.pack(code, value))[0]
        except OverflowError:
            rounded = None
    if type is t.F16:
        return Expr(f"__float2half({text}f)", type, PRIMARY, rounded)
    return Expr(text + ("f" if type is t.F32 else ""), type, UNARY if text[0] == "-" else PRIMARY, rounded)
