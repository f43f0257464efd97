"""The parser of expressions (`contract/expressions.py`).

Guarantees: `parse(str(e)) == e`, except that the minus of a literal is part of the literal.
Refuses: `ContractError` for text that is no expression, for more than 200 nested operations, and if the evaluation
needs more than 64 intermediate values at a time, which is the stack of the C library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .errors import ContractError
from .expressions import (
    FIELD_TYPES,
    LIMIT,
    PLAIN_SYMBOLS,
    STACK,
    Expression,
    Number,
    Operation,
    Symbol,
    argument,
    field,
    stack_need,
)

__all__ = ["parse"]

_DEPTH = 200
_LONGEST = 20_000

_OPERATORS = {
    "Add": "+",
    "Sub": "-",
    "Mult": "*",
    "FloorDiv": "//",
    "Mod": "%",
    "And": "and",
    "Or": "or",
    "Not": "not",
    "USub": "-",
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtE": "<=",
    "Gt": ">",
    "GtE": ">=",
}


def parse(text: str) -> Expression:
    """The expression of a text. Raises `ContractError`.

    >>> str(parse("0<=arg1<5 and field(2, 8, 'u32')%4 == 0"))
    '(0 <= arg1 and arg1 < 5) and field(2, 8, "u32") % 4 == 0'
    """
    import ast

    if len(text) > _LONGEST:
        raise ContractError(f"an expression of {len(text)} characters, more than {_LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ContractError(f"'{text[:80]}' is no expression: {error}") from None
    result = _Reader(text).node(tree, 0)
    if stack_need(result) > STACK:
        raise ContractError(f"'{text[:80]}' needs more than {STACK} intermediate values")
    return result


class _Reader:
    """Makes nodes out of the syntax tree of Python. ``text`` is for messages."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _refuse(self, what: str) -> ContractError:
        return ContractError(f"'{self._text[:80]}': {what}")

    def node(self, tree: object, depth: int) -> Expression:
        import ast

        if depth > _DEPTH:
            raise self._refuse(f"more than {_DEPTH} nested operations")

        def inner(part: object) -> Expression:
            return self.node(part, depth + 1)

        match tree:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return self._number(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(value, bool):
                return self._number(-value)
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.UnaryOp(op=ast.USub() | ast.Not()) | ast.BinOp() | ast.BoolOp():
                parts = (
                    [tree.operand]
                    if isinstance(tree, ast.UnaryOp)
                    else [tree.left, tree.right]
                    if isinstance(tree, ast.BinOp)
                    else tree.values
                )
                operator = _OPERATORS.get(type(tree.op).__name__)
                if operator is None:
                    raise self._refuse(f"the operator {type(tree.op).__name__} is not part of an expression")
                return Operation(operator, tuple(inner(part) for part in parts))
            case ast.Compare():
                return self._comparison(tree.ops, [inner(part) for part in (tree.left, *tree.comparators)])
            case ast.IfExp():
                return Operation("if", (inner(tree.test), inner(tree.body), inner(tree.orelse)))
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
                return self._call(name, parts, inner)
            case _:
                raise self._refuse(f"{type(tree).__name__} is not part of an expression")

    def _number(self, value: int) -> Number:
        if abs(value) > LIMIT:
            raise self._refuse("a literal is larger than 2**64")
        return Number(value)

    def _symbol(self, name: str) -> Symbol:
        if name in PLAIN_SYMBOLS:
            return Symbol(name)
        if re.fullmatch(r"arg(0|[1-9][0-9]{0,4})", name, re.ASCII) is None:
            raise self._refuse(f"there is no symbol '{name}'")
        return argument(int(name[3:]))

    def _comparison(self, operators: Sequence[object], values: list[Expression]) -> Expression:
        names = [_OPERATORS.get(type(operator).__name__) for operator in operators]
        parts: list[Expression] = []
        for index, name in enumerate(names):
            if name is None:
                raise self._refuse(f"the operator {type(operators[index]).__name__} is not part of an expression")
            parts.append(Operation(name, (values[index], values[index + 1])))
        return parts[0] if len(parts) == 1 else Operation("and", tuple(parts))

    def _call(self, name: str, parts: Sequence[object], inner: Callable[[object], Expression]) -> Expression:
        import ast

        if name in ("min", "max"):
            return Operation(name, tuple(inner(part) for part in parts))
        if name in ("begin", "end") and len(parts) == 1:
            of = inner(parts[0])
            if not isinstance(of, Symbol) or of.kind != "arg":
                raise self._refuse(f"'{name}' takes a parameter, such as {name}(arg0)")
            return Symbol(name, of.index)
        if name == "field" and len(parts) == 3:
            index, offset, type = (part.value if isinstance(part, ast.Constant) else None for part in parts)
            # `is int` leaves out True and False.
            if index.__class__ is int and offset.__class__ is int and isinstance(type, str) and type in FIELD_TYPES:
                assert isinstance(index, int) and isinstance(offset, int)
                if index <= 0xFFFF and offset <= 0xFFFF:
                    return field(index, offset, type)
        raise self._refuse(f"'{name}' cannot be called in this way")
