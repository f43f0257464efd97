"""Translates calls in kernels: casts, struct literals, CUDA's functions, device functions.

Guarantees: nvcc chooses the overload whose type the call has here. Where C++ would choose an overload by the argument
types (`min`, `abs`, `sqrtf` or `sqrt`), the arguments are converted to one type first.
Refuses: keyword arguments except in struct literals; Python's own functions other than min, max, abs and bool.
"""

from __future__ import annotations

import ast
import re
from typing import Any, cast

from . import types as t
from .cpp_expression import CONDITIONAL, PRIMARY, UNARY, Expr, literal
from .expressions import Expressions
from .functions import DeviceFunction
from .intrinsics import Intrinsic, Overload
from .language import Word, type_from
from .scope import MISSING

__all__ = ["call", "cast_to"]

_DECIMAL = re.compile(r"\d+(u|LL|ULL)?")

#: By Python function that kernels cannot call: what to write instead.
_INSTEAD: dict[Any, str] = {
    int: "write i32(x), or another integer with its width",
    float: "write f32(x) or f64(x)",
    round: "write rint(x)",
    print: "kernels cannot print",
    len: "arrays have no length at run time: use the constant",
    range: "range(...) may only be used in `for i in range(...)`",
    divmod: "write a // b and a % b",
    sum: "write a loop",
}


def call(ex: Expressions, node: ast.Call) -> Expr:
    """The call as a C++ expression."""
    callee = ex.scope.resolve(node.func, ex.locals)
    if callee is MISSING:
        raise ex.error(f"{ast.unparse(node.func)} is not defined, or is not a function that a kernel can call", node)
    struct = getattr(callee, "__ptxmotion_struct__", None)
    if isinstance(struct, t.Struct):
        return _struct_literal(ex, struct, node)
    if node.keywords:
        raise ex.error("a kernel's calls have no keyword arguments", node)
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            raise ex.error("a kernel's calls have no starred arguments", argument)
    if isinstance(callee, Word):
        return _word(ex, callee, node)
    arguments = [ex.visit(argument) for argument in node.args]
    if isinstance(callee, t.Scalar) or callee is bool:
        return _cast(ex, t.BOOL if callee is bool else callee, arguments, node)
    if isinstance(callee, Intrinsic):
        return _intrinsic(ex, callee, arguments, node)
    if isinstance(callee, DeviceFunction):
        return _device(ex, callee, arguments, node)
    if any(callee is function for function in (min, max, abs)):
        return _extremum(ex, callee.__name__, arguments, node)
    raise ex.error(_refusal(callee, node), node)


def _refusal(callee: Any, node: ast.Call) -> str:
    name = ast.unparse(node.func)
    for function, instead in _INSTEAD.items():
        if callee is function:
            return f"{name}() is Python's: {instead}"
    if getattr(callee, "__module__", "") == "math":
        return f"{name}() is Python's: import {callee.__name__} from ptxmotion.dsl"
    if hasattr(callee, "cuda_name") or type(callee).__name__.endswith("Kernel"):
        return f"{name} is a kernel, and only the host launches kernels"
    return f"{name} cannot be called in a kernel: make it a function with @device"


def _word(ex: Expressions, word: Word, node: ast.Call) -> Expr:
    match word.name:
        case "addr":
            if len(node.args) != 1:
                raise ex.error("addr(x) takes one argument", node)
            value = ex.visit(node.args[0])
            if not value.is_lvalue:
                raise ex.error("this has no address: addr() takes an element, a field or a variable", node)
            return Expr(f"&{value.at(UNARY)}", t.Pointer(value.type, const=value.is_const), UNARY)
        case "pointer_cast":
            return _pointer_cast(ex, node)
        case "shared" | "dynamic_shared" | "local":
            raise ex.error(f"write `name = {word.name}(type, …)`: the array needs a name", node)
        case "unroll":
            raise ex.error("unroll(...) may only be used in `for i in unroll(range(...), times)`", node)
        case _:
            raise ex.error(f"{word.name} cannot be called", node)


def _pointer_cast(ex: Expressions, node: ast.Call) -> Expr:
    if len(node.args) != 2:
        raise ex.error("pointer_cast(type, pointer) takes two arguments", node)
    target = type_from(ex.scope.annotation(node.args[0], ex.source))
    pointer = ex.decayed(ex.visit(node.args[1]), node)
    if not isinstance(pointer.type, t.Pointer):
        raise ex.error(f"{pointer.type} is not a pointer", node)
    ex.unit.use_type(target)
    made = t.Pointer(target, const=pointer.type.const, volatile=pointer.type.volatile)
    return Expr(f"({ex.unit.spelled(made).rstrip()}){pointer.at(UNARY)}", made, UNARY)


def _struct_literal(ex: Expressions, struct: t.Struct, node: ast.Call) -> Expr:
    ex.unit.use_type(struct)
    arguments_by_field: dict[str, ast.expr] = {}
    if len(node.args) > len(struct.fields):
        raise ex.error(f"struct {struct} has {len(struct.fields)} fields", node)
    for (name, _), argument in zip(struct.fields, node.args, strict=False):
        arguments_by_field[name] = argument
    for keyword in node.keywords:
        if keyword.arg is None or struct.field_type(keyword.arg) is None or keyword.arg in arguments_by_field:
            raise ex.error(f"struct {struct} has no field {keyword.arg}, or the field is already set", node)
        arguments_by_field[keyword.arg] = keyword.value
    parts: list[str] = []
    for name, field_type in struct.fields:
        if name not in arguments_by_field:
            raise ex.error(f"field {name} of struct {struct} is not set", node)
        if isinstance(field_type, t.Array):
            raise ex.error(f"struct {struct} contains an array: assign the fields of a variable one by one", node)
        value = ex.convert(ex.visit(arguments_by_field[name]), field_type, arguments_by_field[name], f"field {name}")
        # Initialization with braces forbids narrowing conversions, so convert explicitly.
        parts.append(cast_to(value, field_type).at(CONDITIONAL) if isinstance(field_type, t.Scalar) else value.text)
    inside = ", ".join(parts)
    return Expr(f"make_{struct.name}({inside})" if struct.native else f"{struct.name}{{{inside}}}", struct)


def _cast(ex: Expressions, to: t.Scalar, arguments: list[Expr], node: ast.Call) -> Expr:
    if len(arguments) != 1:
        raise ex.error(f"{to}(x) takes one argument", node)
    value = arguments[0]
    if isinstance(value.type, t.Pointer) and to in (t.U64, t.I64):
        return Expr(f"({to.cuda}){value.at(UNARY)}", to, UNARY)
    if not isinstance(value.type, t.Scalar):
        raise ex.error(f"{value.type} cannot be converted to {to}", node)
    if value.is_weak:
        if to.is_float:
            return ex.settle(value, to)
        value = ex.settle(value, t.F64)
    ex.unit.use_type(to)
    return cast_to(value, to)


def cast_to(value: Expr, to: t.Scalar) -> Expr:
    """A C cast to ``to``. If the expression already has that type, it is returned unchanged."""
    source = value.scalar
    if source is to:
        return value
    if isinstance(value.value, int) and _DECIMAL.fullmatch(value.text) and to in (t.U32, t.I64, t.U64):
        return literal(value.value, to) or value
    if isinstance(value.value, int) and to in (t.F32, t.F64) and 0 <= value.value < 1 << 24:
        return literal(float(value.value), to) or value
    if to is t.F16:
        single = value if source is t.F32 else cast_to(value, t.F32)
        return Expr(f"__float2half({single.text})", to)
    if source is t.F16:
        single = Expr(f"__half2float({value.text})", t.F32)
        return single if to is t.F32 else cast_to(single, to)
    text = f"({to.cuda}){value.at(UNARY)}"
    constant = value.value if isinstance(value.value, int) and to.is_integer and to.kind != "b" else None
    if constant is not None and not to.limits[0] <= constant <= to.limits[1]:
        bits = 8 * to.bytes
        constant &= (1 << bits) - 1
        constant -= (1 << bits) if constant > to.limits[1] else 0
    return Expr(text, to, UNARY, constant)


def _common(ex: Expressions, name: str, arguments: list[Expr], node: ast.AST) -> t.Scalar:
    """The type to which all arguments are converted."""
    kind: t.Scalar | None = None
    for argument in arguments:
        if not isinstance(argument.type, t.Scalar):
            raise ex.error(f"{name}() does not take {argument.type}", node)
        kind = argument.type if kind is None else t.usual(kind, argument.type)
        if kind is None:
            shown = " and ".join(str(a.type) for a in arguments)
            raise ex.error(f"{name}() of {shown}: convert one of them, as in f32(x)", node)
    assert kind is not None
    return t.promoted(kind)


def _extremum(ex: Expressions, name: str, arguments: list[Expr], node: ast.Call) -> Expr:
    if len(arguments) < (1 if name == "abs" else 2):
        raise ex.error(f"{name}() has too few arguments", node)
    if name == "abs" and len(arguments) > 1:
        raise ex.error("abs() takes one argument", node)
    kind = _common(ex, name, arguments, node)
    if kind.bytes == 0:
        values = [a.value for a in arguments if a.value is not None]
        if len(values) < len(arguments):
            message = f"{name}() of float literals is neither f32 nor f64: write f32(...) or f64(...) around one"
            raise ex.error(message, node)
        folded: float = abs(values[0]) if name == "abs" else (min if name == "min" else max)(values)
        return cast("Expr", literal(float(folded)))
    if kind is t.F16:
        raise ex.error(f"{name}() of f16: write f32(...)", node)
    spelled = {
        "abs": {"f32": "fabsf", "f64": "fabs", "i32": "abs", "i64": "llabs"},
        "min": {"f32": "fminf", "f64": "fmin"},
        "max": {"f32": "fmaxf", "f64": "fmax"},
    }[name]
    if name == "abs" and kind.kind == "u":
        raise ex.error(f"abs() of {kind}, whose values are never negative", node)
    settled = [cast_to(ex.settle(argument, kind), kind) for argument in arguments]
    function = spelled.get(kind.name, name)
    values = [argument.value for argument in settled]
    constant: int | float | None = None
    if kind.is_integer and None not in values:
        numbers = [value for value in values if value is not None]
        constant = abs(numbers[0]) if name == "abs" else (min if name == "min" else max)(numbers)
    text = settled[0].text
    if name == "abs":
        return Expr(f"{function}({text})", kind, value=constant)
    for argument in settled[1:]:
        text = f"{function}({text}, {argument.text})"
    return Expr(text, kind, value=constant)


def _intrinsic(ex: Expressions, row: Intrinsic, arguments: list[Expr], node: ast.Call) -> Expr:
    fewest, most = row.arity
    if not fewest <= len(arguments) <= most:
        expected = str(fewest) if fewest == most else f"{fewest} or {most}"
        raise ex.error(f"{row.name}() takes {expected} argument{'s' if most != 1 else ''}, not {len(arguments)}", node)
    match row.rule:
        case "math" | "test":
            return _math(ex, row, arguments, node)
        case "fixed":
            return _overloaded(ex, row, arguments, node)
        case "atomic":
            return _atomic(ex, row, arguments, node)
        case _:
            return _shuffle(ex, row, arguments, node)


def _math(ex: Expressions, row: Intrinsic, arguments: list[Expr], node: ast.Call) -> Expr:
    kind = _common(ex, row.name, arguments, node)
    if kind.bytes == 0:
        raise ex.error(f"{row.name}() of a float literal is neither f32 nor f64: write f32(...) or f64(...)", node)
    spelled = row.spelling(kind)
    if spelled is None:
        types = " or ".join(str(type) for type, _ in row.spellings)
        raise ex.error(f"{row.name}() takes {types}, not {kind}: write f32(x)", node)
    settled = [cast_to(ex.settle(argument, kind), kind) for argument in arguments]
    text = f"{spelled}({', '.join(argument.text for argument in settled)})"
    return Expr(text, t.BOOL if row.rule == "test" else kind)


def _overloaded(ex: Expressions, row: Intrinsic, arguments: list[Expr], node: ast.Call) -> Expr:
    for argument, at in zip(arguments, node.args, strict=True):
        if not isinstance(argument.type, t.Scalar):
            raise ex.error(f"{row.name}() does not take {argument.type}", at)
    chosen = next((overload for overload in row.overloads if _fits(overload, arguments)), None)
    if chosen is None:
        argument_types = ", ".join(str(argument.type) for argument in arguments)
        expected = " or ".join(f"({', '.join(map(str, o.params))})" for o in row.overloads)
        raise ex.error(f"{row.name}() takes {expected}, not ({argument_types})", node)
    texts: list[str] = []
    for argument, type in zip(arguments, chosen.params, strict=True):
        settled = ex.settle(argument, type)
        several = len(row.overloads) > 1 and row.name.startswith(("match", "reduce"))
        texts.append(cast_to(settled, type).text if several else settled.text)
    return Expr(f"{chosen.cuda}({', '.join(texts)})", chosen.result)


def _fits(overload: Overload, arguments: list[Expr]) -> bool:
    if len(overload.params) != len(arguments):
        return False
    for type, argument in zip(overload.params, arguments, strict=True):
        argument_type = argument.scalar
        if argument_type.is_float != type.is_float or argument_type.bytes > type.bytes:
            # A constant such as 0xFFFFFFFF fits wherever its value fits.
            if not (
                isinstance(argument.value, int)
                and type.is_integer
                and type.limits[0] <= argument.value <= type.limits[1]
            ):
                return False
        elif (
            overload.cuda.startswith("__reduce")
            and type.bytes == 4
            and argument_type.kind != type.kind
            and argument_type.bytes == 4
            and argument is arguments[-1]
        ):
            return False
    return True


def _atomic(ex: Expressions, row: Intrinsic, arguments: list[Expr], node: ast.Call) -> Expr:
    pointer = ex.decayed(arguments[0], node.args[0])
    if not isinstance(pointer.type, t.Pointer) or pointer.type.const:
        raise ex.error(f"{row.name}() needs a writable pointer, not {arguments[0].type}", node.args[0])
    target = pointer.type.target
    if not isinstance(target, t.Scalar) or row.spelling(target) is None:
        types = ", ".join(str(type) for type, _ in row.spellings)
        raise ex.error(f"{row.name}() works on {types}, not on {target}", node)
    function = row.spelling(target)
    values = [
        cast_to(ex.convert(argument, target, at), target)
        for argument, at in zip(arguments[1:], node.args[1:], strict=True)
    ]
    if target is t.I64 and row.name not in ("atomic_min", "atomic_max"):
        # CUDA has only the unsigned operation. In two's complement its result has the same bits.
        inside = ", ".join(cast_to(value, t.U64).text for value in values)
        return Expr(f"(long long){function}((unsigned long long *){pointer.at(UNARY)}, {inside})", target, UNARY)
    return Expr(f"{function}({', '.join([pointer.text, *(value.text for value in values), *row.last])})", target)


def _shuffle(ex: Expressions, row: Intrinsic, arguments: list[Expr], node: ast.Call) -> Expr:
    value = arguments[1]
    if not isinstance(value.type, t.Scalar) or value.is_weak:
        raise ex.error(f"{row.name}() takes i32, u32, i64, u64, f32 or f64, not {value.type}", node.args[1])
    kind = t.promoted(value.type)
    if row.spelling(kind) is None:
        raise ex.error(f"{row.name}() takes i32, u32, i64, u64, f32 or f64, not {value.type}", node.args[1])
    for position in (0, *range(2, len(arguments))):
        argument_type = arguments[position].type
        if not isinstance(argument_type, t.Scalar) or not argument_type.is_integer:
            raise ex.error(
                f"argument {position + 1} of {row.name}() must be an integer, not {argument_type}", node.args[position]
            )
    texts = [argument.text for argument in arguments]
    texts[1] = cast_to(value, kind).text
    return Expr(f"{row.spelling(kind)}({', '.join(texts)})", kind)


def _device(ex: Expressions, function: DeviceFunction, arguments: list[Expr], node: ast.Call) -> Expr:
    signature = ex.unit.use_function(function, ex.source, node)
    if len(arguments) != len(signature.params):
        raise ex.error(f"{function.name}() takes {len(signature.params)} arguments, not {len(arguments)}", node)
    texts = [
        ex.convert(argument, param.type, at, f"argument {param.name}").text
        for argument, param, at in zip(arguments, signature.params, node.args, strict=True)
    ]
    return Expr(f"{signature.name}({', '.join(texts)})", signature.result, PRIMARY)
