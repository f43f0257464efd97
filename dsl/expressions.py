"""Translates Python expressions into typed C++ expressions.

Computes, for each expression of a kernel, its C++ text, its C type and, if it is a constant, its value.
Guarantees: the type is the one that nvcc gives to the text (usual arithmetic conversions, promotions). So a local
variable that is declared with it loses nothing. Evaluation order and overflow are those of C. Differs from C in one
point: a Python float has no width. It takes the type of the floating operand, parameter or variable that it is combined
with. Arithmetic between constants is done in double first. A float literal that is combined only with integers is
refused.
Refuses: `/` between integers and `//` between floats (C has one operator for two meanings), `**`, slices, comparison
chains that would evaluate their middle operand twice, conversions from float to integer without a cast, and everything
that is not listed here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from . import types as t
from .cpp_expression import (
    ADD,
    AND,
    CONDITIONAL,
    EQUALITY,
    LAND,
    LOR,
    MULTIPLY,
    OR,
    PRIMARY,
    RELATION,
    SHIFT,
    UNARY,
    XOR,
    Expr,
    literal,
)
from .errors import FunctionSource
from .language import Word
from .scope import MISSING, Scope
from .unit import Unit

__all__ = ["Expressions"]


@dataclass(frozen=True, slots=True)
class _Binary:
    cuda: str
    precedence: int
    fold: Callable[[Any, Any], Any]


def _divide(a: Any, b: Any) -> Any:
    """C's integer quotient, which truncates towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: dict[type[ast.operator], _Binary] = {
    ast.Add: _Binary("+", ADD, lambda a, b: a + b),
    ast.Sub: _Binary("-", ADD, lambda a, b: a - b),
    ast.Mult: _Binary("*", MULTIPLY, lambda a, b: a * b),
    ast.Div: _Binary("/", MULTIPLY, lambda a, b: a / b),
    ast.FloorDiv: _Binary("/", MULTIPLY, _divide),
    ast.Mod: _Binary("%", MULTIPLY, lambda a, b: a - b * _divide(a, b)),
    ast.LShift: _Binary("<<", SHIFT, lambda a, b: a << b),
    ast.RShift: _Binary(">>", SHIFT, lambda a, b: a >> b),
    ast.BitAnd: _Binary("&", AND, lambda a, b: a & b),
    ast.BitXor: _Binary("^", XOR, lambda a, b: a ^ b),
    ast.BitOr: _Binary("|", OR, lambda a, b: a | b),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, int, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", RELATION, operator.lt),
    ast.LtE: ("<=", RELATION, operator.le),
    ast.Gt: (">", RELATION, operator.gt),
    ast.GtE: (">=", RELATION, operator.ge),
    ast.Eq: ("==", EQUALITY, operator.eq),
    ast.NotEq: ("!=", EQUALITY, operator.ne),
}
#: By operator: the middle of the name of the function that rounds once, as in ``__fadd_rn``.
_ROUNDED: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_SHIFTS = (ast.LShift, ast.RShift)
_BITWISE = (*_SHIFTS, ast.BitAnd, ast.BitXor, ast.BitOr)
_INDICES = {"threadIdx", "blockIdx", "blockDim", "gridDim"}


class Expressions:
    """Translates the expressions of one function. ``variables`` maps each declared local to its C++ expression.
    ``translate_call`` translates calls."""

    def __init__(
        self,
        source: FunctionSource,
        scope: Scope,
        unit: Unit,
        locals_: set[str],
        translate_call: Callable[[Expressions, ast.Call], Expr],
    ) -> None:
        self.source = source
        self.scope = scope
        self.unit = unit
        self.locals = locals_
        self.translate_call = translate_call
        self.variables: dict[str, Expr] = {}

    def error(self, message: str, node: ast.AST) -> Exception:
        """The error with ``message`` at the line of ``node``."""
        return self.source.error(message, node)

    # --- by syntax ---------------------------------------------------------------------------------------------

    def visit(self, node: ast.expr) -> Expr:
        """The expression as C++."""
        match node:
            case ast.Constant():
                return self._constant(node.value, node, self.source.segment(node))
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.BinOp():
                return self.binary(node.op, self.visit(node.left), self.visit(node.right), node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._logic(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self.translate_call(self, node)
            case _:
                raise self.error(f"a kernel cannot contain {_what(node)}", node)

    def _constant(self, value: object, node: ast.expr, spelled: str = "") -> Expr:
        if value is None:
            return Expr("nullptr", t.VOID)
        if isinstance(value, bool | int | float) and type(value).__module__ != "numpy":
            plain = value if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value)
            constant = literal(plain, None, spelled)
            if constant is None:
                raise self.error(f"{value} does not fit any integer type", node)
            return constant
        typed = self._numpy_constant(value)
        if typed is None:
            raise self.error(f"a {type(value).__name__} cannot be a value in device code", node)
        return typed

    @staticmethod
    def _numpy_constant(value: object) -> Expr | None:
        import numpy as np

        if not isinstance(value, np.generic):
            return None
        number = cast("np.generic[Any]", value)
        scalar = next((s for s in t.SCALARS.values() if s.dtype == number.dtype), None)
        return literal(number.item(), scalar) if scalar else None

    def _name(self, node: ast.Name | ast.Attribute) -> Expr:
        if isinstance(node, ast.Name) and node.id in self.locals:
            if node.id not in self.variables:
                why = "used before it is assigned, or outside of the `for` whose variable it is"
                raise self.error(f"{node.id} is {why}", node)
            return self.variables[node.id]
        captured = self.scope.resolve(node, self.locals)
        if isinstance(captured, Word) and captured.name == "warpSize":
            return Expr("warpSize", t.I32)
        if captured is not MISSING:
            if isinstance(captured, Word):
                raise self.error(f"{captured.name} alone is not a value", node)
            return self._constant(captured, node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        raise self.error(f"{node.id} is not defined", node)

    def _attribute(self, node: ast.Attribute) -> Expr:
        word = self.scope.resolve(node.value, self.locals)
        if isinstance(word, Word) and word.name in _INDICES:
            if node.attr not in ("x", "y", "z"):
                raise self.error(f"{word.name} has x, y and z, but not {node.attr}", node)
            return Expr(f"{word.name}.{node.attr}", t.U32)
        base = self.visit(node.value)
        arrow = isinstance(base.type, t.Pointer)
        struct = base.type.target if isinstance(base.type, t.Pointer) else base.type
        if not isinstance(struct, t.Struct):
            raise self.error(f"{base.type} has no fields", node)
        field_type = struct.field_type(node.attr)
        if field_type is None:
            fields = ", ".join(name for name, _ in struct.fields)
            raise self.error(f"struct {struct} has no field {node.attr}; it has {fields}", node)
        const = base.type.const if isinstance(base.type, t.Pointer) else base.is_const
        if isinstance(field_type, t.Array):
            field_type = replace(field_type, const=const)
        text = f"{base.at(PRIMARY)}{'->' if arrow else '.'}{node.attr}"
        return Expr(text, field_type, is_lvalue=arrow or base.is_lvalue, is_const=const)

    # --- operators ---------------------------------------------------------------------------------------------

    def binary(self, op: ast.operator, left: Expr, right: Expr, node: ast.AST) -> Expr:
        """``left op right`` with C's types."""
        rule = _BINARY.get(type(op))
        symbol = _SYMBOLS.get(type(op), "?")
        if (
            isinstance(op, ast.Pow)
            and isinstance(left.value, int)
            and isinstance(right.value, int)
            and right.value >= 0
        ):
            return self._constant(left.value**right.value, cast("ast.expr", node))
        if rule is None:
            raise self.error(
                f"C++ has no `{symbol}`: use pow(a, b)" if symbol == "**" else f"C++ has no `{symbol}`", node
            )
        if isinstance(left.type, t.Pointer | t.Array) or isinstance(right.type, t.Pointer | t.Array):
            return self._pointer_arithmetic(op, left, right, node)
        if not isinstance(left.type, t.Scalar) or not isinstance(right.type, t.Scalar):
            raise self.error(f"`{symbol}` between {left.type} and {right.type}", node)
        self._check_operator(op, left, right, node)
        if left.is_weak or right.is_weak:
            return self._weak(op, left, right, node)
        kind = t.promoted(left.type) if isinstance(op, _SHIFTS) else t.usual(left.type, right.type)
        if kind is None:
            raise self.error(
                f"`{symbol}` between {left.type} and {right.type}: convert one of them, as in f32(x)", node
            )
        if kind.is_float and type(op) in _ROUNDED and self.unit.arithmetic != "nvcc":
            return self._rounded(op, left, right, kind)
        value = self._folded(rule, left, right, kind, node)
        # Bitwise operators get parentheses that C does not need but readers do.
        inner = UNARY if isinstance(op, _BITWISE) else rule.precedence
        text = f"{left.at(inner)} {rule.cuda} {right.at(min(inner + 1, UNARY))}"
        return Expr(text, kind, rule.precedence, value)

    def _rounded(self, op: ast.operator, left: Expr, right: Expr, kind: t.Scalar) -> Expr:
        """A sum, difference or product of floats as a call whose rounding no flag of nvcc changes."""
        prefix = {t.F16: "__h", t.F32: "__f", t.F64: "__d"}[kind]
        if self.unit.arithmetic == "contracted" and not isinstance(op, ast.Mult):
            minus = "-" if isinstance(op, ast.Sub) else ""
            fused = "__hfma" if kind is t.F16 else "__fmaf_rn" if kind is t.F32 else "__fma_rn"
            if left.factors is not None and left.type is kind:
                a, b = left.factors
                return Expr(f"{fused}({a.text}, {b.text}, {minus}{right.at(UNARY if minus else CONDITIONAL)})", kind)
            if right.factors is not None and right.type is kind:
                a, b = right.factors
                return Expr(f"{fused}({minus}{a.at(UNARY if minus else CONDITIONAL)}, {b.text}, {left.text})", kind)
        if isinstance(op, ast.Mult):
            # A product with 1 rounds nothing. nvcc does not simplify these calls.
            for one, other in ((left, right), (right, left)):
                if one.value == 1 and other.type is kind:
                    return replace(other, is_lvalue=False)
        text = f"{prefix}{_ROUNDED[type(op)]}_rn({left.text}, {right.text})"
        return Expr(text, kind, factors=(left, right) if isinstance(op, ast.Mult) else None)

    def _check_operator(self, op: ast.operator, left: Expr, right: Expr, node: ast.AST) -> None:
        integers = left.scalar.is_integer and right.scalar.is_integer
        if isinstance(op, ast.Div) and integers:
            raise self.error(
                "`/` between integers: write `//` for C's division, which truncates, or f32(a) / f32(b)", node
            )
        if isinstance(op, ast.FloorDiv) and not integers:
            raise self.error("`//` between floats: write floor(a / b)", node)
        if isinstance(op, ast.Mod) and not integers:
            raise self.error("`%` between floats: write fmod(a, b)", node)
        if isinstance(op, _BITWISE) and not integers:
            raise self.error(f"`{_SYMBOLS[type(op)]}` needs integers, not {left.type} and {right.type}", node)
        if isinstance(op, ast.FloorDiv | ast.Mod | ast.Div) and right.value == 0 and integers:
            raise self.error("division by zero", node)

    def _folded(self, rule: _Binary, left: Expr, right: Expr, kind: t.Scalar, node: ast.AST) -> int | float | None:
        """The value of an operation on constants. None if it is not constant, or C's result would wrap or be
        undefined."""
        a, b = left.value, right.value
        if a is None or b is None or not kind.is_integer:
            return None
        if rule.precedence == SHIFT and not 0 <= b < 8 * kind.bytes:
            raise self.error(f"shift of {kind} by {b}", node)
        # The compiler computes it if converting an operand to the common type changes the operand.
        if any(not kind.limits[0] <= value <= kind.limits[1] for value in (a, b)):
            return None
        value = rule.fold(a, b)
        return value if kind.limits[0] <= value <= kind.limits[1] else None

    def _weak(self, op: ast.operator, left: Expr, right: Expr, node: ast.AST) -> Expr:
        """An operation with a float literal that has no type yet: fold it, or give it the type of the other operand."""
        open_or_integer = all(side.is_weak or side.scalar.is_integer for side in (left, right))
        if left.value is not None and right.value is not None and open_or_integer:
            try:
                value = _BINARY[type(op)].fold(float(left.value), float(right.value))
            except ZeroDivisionError:
                raise self.error("division by zero", node) from None
            return cast("Expr", literal(value))
        if left.is_weak and right.is_weak:
            return Expr(
                "", t.WEAK_FLOAT, settle=lambda to: self.binary(op, self.settle(left, to), self.settle(right, to), node)
            )
        other = (right if left.is_weak else left).scalar
        if not other.is_float:
            raise self.error(
                f"a float literal with {other} is neither f32 nor f64: write f32(...) around one of the two", node
            )
        return self.binary(op, self.settle(left, other), self.settle(right, other), node)

    def settle(self, value: Expr, type: t.Scalar) -> Expr:
        """``value`` as ``type`` if it is a float literal without a type; otherwise unchanged."""
        return value.settle(type) if value.is_weak and value.settle else value

    def _pointer_arithmetic(self, op: ast.operator, left: Expr, right: Expr, node: ast.AST) -> Expr:
        base, offset = (left, right) if isinstance(left.type, t.Pointer | t.Array) else (right, left)
        if isinstance(op, ast.Sub) and isinstance(left.type, t.Pointer) and isinstance(right.type, t.Pointer):
            if left.type.target != right.type.target:
                raise self.error(f"`-` between {left.type} and {right.type}", node)
            return Expr(f"{left.at(ADD)} - {right.at(MULTIPLY)}", t.I64, ADD)
        is_offset = isinstance(offset.type, t.Scalar) and offset.type.is_integer
        if not is_offset or not isinstance(op, ast.Add | ast.Sub) or (isinstance(op, ast.Sub) and base is right):
            raise self.error(f"`{_SYMBOLS[type(op)]}` between {left.type} and {right.type}", node)
        pointer = self.decayed(base, node)
        symbol = "+" if isinstance(op, ast.Add) else "-"
        return Expr(f"{pointer.at(ADD)} {symbol} {offset.at(MULTIPLY)}", pointer.type, ADD)

    def decayed(self, value: Expr, node: ast.AST) -> Expr:
        """An array as a pointer to its first element; other values unchanged."""
        if not isinstance(value.type, t.Array):
            return value
        if len(value.type.dims) > 1:
            raise self.error(f"{value.type} has several dimensions: index all of them but the last", node)
        return replace(value, type=t.Pointer(value.type.element, const=value.type.const), is_lvalue=False)

    def _unary(self, node: ast.UnaryOp) -> Expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            inner = self.condition_of(operand, node.operand)
            value = None if inner.value is None else int(not inner.value)
            return Expr(f"!{inner.at(UNARY)}", t.BOOL, UNARY, value)
        if not isinstance(operand.type, t.Scalar):
            raise self.error(f"this operator does not take {operand.type}", node)
        if isinstance(node.op, ast.Invert):
            if operand.type.is_float:
                raise self.error(f"`~` needs an integer, not {operand.type}", node)
            return Expr(f"~{operand.at(UNARY)}", t.promoted(operand.type), UNARY)
        if isinstance(node.op, ast.UAdd):
            return replace(operand, type=t.promoted(operand.type), is_lvalue=False)
        is_literal = isinstance(node.operand, ast.Constant) and not isinstance(node.operand.value, bool)
        if isinstance(operand.value, int) and is_literal and operand.type.kind != "u":
            return self._constant(-operand.value, node)
        if operand.is_weak:
            if operand.value is not None:
                return cast("Expr", literal(-float(operand.value)))
            return Expr("", t.WEAK_FLOAT, settle=lambda to: self._negated(self.settle(operand, to)))
        return self._negated(operand)

    @staticmethod
    def _negated(operand: Expr) -> Expr:
        # `- -x`, not `--x`
        text, kind = operand.at(UNARY), t.promoted(operand.scalar)
        value = -operand.value if isinstance(operand.value, int) else None
        if value is not None and not kind.limits[0] <= value <= kind.limits[1]:
            value = None
        return Expr(f"-({text})" if text.startswith("-") else f"-{text}", kind, UNARY, value)

    def _logic(self, node: ast.BoolOp) -> Expr:
        both = isinstance(node.op, ast.And)
        parts = [self.condition(value) for value in node.values]
        symbol, precedence = ("&&", LAND) if both else ("||", LOR)
        values = [part.value for part in parts]
        value = None if None in values else int(all(values) if both else any(values))
        # Parentheses in the Python text, and those of a comparison chain, are kept: nvcc creates branches by this
        # grouping.
        text = f" {symbol} ".join(part.at(EQUALITY) for part in parts)
        return Expr(text, t.BOOL, precedence, value)

    def condition(self, node: ast.expr) -> Expr:
        """The expression as C++, for the use as a condition."""
        return self.condition_of(self.visit(node), node)

    def condition_of(self, value: Expr, node: ast.expr) -> Expr:
        """``value`` if C++ takes it as a condition. Raises `DslError` for a value that is no integer."""
        if isinstance(value.type, t.Scalar) and value.type.is_integer:
            return value
        raise self.error(f"{value.type} is not a condition: compare it with something", node)

    def _compare(self, node: ast.Compare) -> Expr:
        nodes = [node.left, *node.comparators]
        for middle in nodes[1:-1]:
            if not _is_repeatable(middle):
                raise self.error("C++ would evaluate this twice: assign it to a variable first", middle)
        values = [self.visit(part) for part in nodes]
        parts = [
            self._comparison(op, left, right, at)
            for op, left, right, at in zip(node.ops, values, values[1:], nodes, strict=False)
        ]
        if len(parts) == 1:
            return parts[0]
        return Expr(" && ".join(part.at(EQUALITY) for part in parts), t.BOOL, LAND)

    def _comparison(self, op: ast.cmpop, left: Expr, right: Expr, node: ast.AST) -> Expr:
        rule = _COMPARE.get(type(op))
        if rule is None:
            raise self.error("a kernel compares with < <= > >= == != only", node)
        symbol, precedence, fold = rule
        left, right = self._comparable(left, right, node)
        value = None
        if left.value is not None and right.value is not None:
            value = int(fold(left.value, right.value))
        return Expr(f"{left.at(precedence + 1)} {symbol} {right.at(precedence + 1)}", t.BOOL, precedence, value)

    def _comparable(self, left: Expr, right: Expr, node: ast.AST) -> tuple[Expr, Expr]:
        if isinstance(left.type, t.Scalar) and isinstance(right.type, t.Scalar):
            kind = t.usual(left.type, right.type)
            if left.is_weak and right.is_weak:
                kind = t.F64
            if kind is None or kind.bytes == 0:
                raise self.error(
                    f"comparison of {left.type} with {right.type}: convert one of them, as in f32(x)", node
                )
            if kind.is_integer and left.value is not None and right.value is not None and kind.kind == "u":
                # A negative constant wraps in C, but the folded value would not.
                left = replace(left, value=None)
            return self.settle(left, kind), self.settle(right, kind)
        left, right = self.decayed(left, node), self.decayed(right, node)
        targets = [e.type.target for e in (left, right) if isinstance(e.type, t.Pointer)]
        nulls = [e for e in (left, right) if e.text == "nullptr"]
        if len(targets) + len(nulls) < 2 or (len(targets) == 2 and targets[0] != targets[1]):
            raise self.error(f"comparison of {left.type} with {right.type}", node)
        return left, right

    def _conditional(self, node: ast.IfExp) -> Expr:
        test = self.condition(node.test)
        return self._choice(test, self.visit(node.body), self.visit(node.orelse), node)

    def _choice(self, test: Expr, then: Expr, other: Expr, node: ast.AST) -> Expr:
        then, other = self.decayed(then, node), self.decayed(other, node)
        kind: t.Type | None = then.type if then.type == other.type else None
        if isinstance(then.type, t.Scalar) and isinstance(other.type, t.Scalar):
            if then.is_weak and other.is_weak:
                return Expr(
                    "",
                    t.WEAK_FLOAT,
                    settle=lambda to: self._choice(test, self.settle(then, to), self.settle(other, to), node),
                )
            kind = kind or t.usual(then.type, other.type)
            if isinstance(kind, t.Scalar) and kind.bytes:
                then, other = self.settle(then, kind), self.settle(other, kind)
            else:
                kind = None
        if kind is None:
            raise self.error(f"one side of the conditional is {then.type}, the other side is {other.type}", node)
        text = f"{test.at(OR)} ? {then.at(LOR)} : {other.at(CONDITIONAL)}"
        return Expr(text, kind, CONDITIONAL)

    # --- memory ------------------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Expr:
        base = self._table(node.value) or self.visit(node.value)
        indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in indices:
            base = self._element(base, index, node)
        return base

    def _table(self, node: ast.expr) -> Expr | None:
        """A captured NumPy array as an array in constant memory. None if ``node`` is not such an array."""
        table = self.scope.resolve(node, self.locals)
        if isinstance(table, tuple | list):
            raise self.error("a table must be a NumPy array, which has an element type", node)
        if table is MISSING or not hasattr(table, "dtype") or not getattr(table, "shape", ()):
            return None
        element = next((s for s in t.SCALARS.values() if s.dtype == table.dtype), None)
        if element is None or element is t.F16 or not table.size:
            raise self.error(f"a kernel cannot contain a table of {table.dtype} with shape {table.shape}", node)
        type = t.Array(element, tuple(int(dim) for dim in table.shape), "constant", const=True)
        values = [literal(value, element) for value in table.ravel().tolist()]
        name = self.unit.use_table(ast.unparse(node), type, [value.text for value in values if value])
        return Expr(name, type)

    def _element(self, base: Expr, index: ast.expr, node: ast.AST) -> Expr:
        if isinstance(index, ast.Slice):
            raise self.error("a kernel cannot contain slices: write a loop, or p + offset", index)
        at = self.visit(index)
        if not isinstance(at.type, t.Scalar) or not at.type.is_integer:
            raise self.error(f"an index must be an integer, not {at.type}", index)
        text = f"{base.at(PRIMARY)}[{at.text}]"
        if isinstance(base.type, t.Pointer):
            return Expr(text, base.type.target, is_lvalue=True, is_const=base.type.const)
        if not isinstance(base.type, t.Array):
            raise self.error(f"{base.type} cannot be indexed", node)
        dims = base.type.dims
        if isinstance(at.value, int) and dims and not 0 <= at.value < dims[0]:
            raise self.error(f"index {at.value} is not between 0 and {dims[0] - 1}", index)
        element = base.type.element if len(dims) <= 1 else replace(base.type, dims=dims[1:])
        return Expr(text, element, is_lvalue=len(dims) <= 1, is_const=base.type.const)

    # --- conversion --------------------------------------------------------------------------------------------

    def convert(self, value: Expr, to: t.Type, node: ast.AST, what: str = "value") -> Expr:
        """``value`` where type ``to`` is expected: C's implicit conversions, without the one from float to integer.
        ``what`` names the value in messages."""
        if isinstance(to, t.Scalar) and isinstance(value.type, t.Scalar):
            return self._convert_scalar(value, to, node, what)
        value = self.decayed(value, node)
        if isinstance(to, t.Pointer) and value.text == "nullptr":
            return replace(value, type=to)
        if isinstance(to, t.Pointer) and isinstance(value.type, t.Pointer) and to.target == value.type.target:
            if value.type.const and not to.const:
                raise self.error(f"the {what} is {value.type}, which is not writable, but {to} is expected", node)
            return replace(value, type=to)
        if to == value.type and not isinstance(to, t.Void):
            return value
        raise self.error(f"the {what} is {value.type}, but {to} is expected", node)

    def _convert_scalar(self, value: Expr, to: t.Scalar, node: ast.AST, what: str) -> Expr:
        source = value.scalar
        if to.is_integer and source.is_float:
            raise self.error(f"the {what} is {source}, but {to} is expected: write {to}(...) to truncate it", node)
        if value.is_weak:
            return self.settle(value, to)
        if t.F16 in (to, source) and to is not source:
            raise self.error(f"the {what} is {source}, but {to} is expected: write {to}(...)", node)
        if isinstance(value.value, int) and to.is_integer and to.kind != "b":
            bits = 8 * to.bytes
            if not -(1 << (bits - 1)) <= value.value < 1 << bits:
                raise self.error(f"{value.value} does not fit {to}", node)
        return value


_SYMBOLS: dict[type[ast.operator], str] = {
    **{op: rule.cuda for op, rule in _BINARY.items()},
    ast.FloorDiv: "//",
    ast.Pow: "**",
    ast.MatMult: "@",
}


def _is_repeatable(node: ast.expr) -> bool:
    """Whether evaluating the expression twice has the same effect as evaluating it once: it reads no memory and calls
    nothing."""
    allowed = (
        ast.Name,
        ast.Constant,
        ast.Attribute,
        ast.BinOp,
        ast.UnaryOp,
        ast.operator,
        ast.unaryop,
        ast.expr_context,
    )
    return all(isinstance(part, allowed) for part in ast.walk(node))


def _what(node: ast.AST) -> str:
    names = {
        "ListComp": "a comprehension",
        "GeneratorExp": "a generator",
        "DictComp": "a comprehension",
        "SetComp": "a comprehension",
        "Lambda": "a lambda",
        "JoinedStr": "a formatted string",
        "NamedExpr": "an assignment inside an expression",
        "List": "a list",
        "Dict": "a dictionary",
        "Set": "a set",
        "Tuple": "a tuple",
        "Starred": "a starred expression",
        "Await": "await",
        "Yield": "yield",
    }
    kind = type(node).__name__
    return names.get(kind, f"this syntax ({kind})")
