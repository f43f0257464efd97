# ruff: noqa: C416, F821, F841, RUF015 - the kernels are meant to be wrong
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false, reportUnusedVariable=false
"""Kernels that cannot be translated: the message and its position."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.dsl import DslError, const_ptr, f16, f32, i32, kernel, local, ptr, shared


def refused(made: Any) -> tuple[str, str]:
    """The message, and the source text from the caret on."""
    with pytest.raises(DslError) as caught:
        _ = made.cuda
    place = caught.value.place
    assert place is not None and place.file == __file__
    assert Path(__file__).read_text().splitlines()[place.line - 1] == place.text
    return caught.value.message, place.text[place.column - 1 :]


def helper(p: ptr[i32]) -> int:
    return p[0]


def _division() -> Any:
    @kernel
    def k(n: i32, p: ptr[i32]) -> None:
        p[0] = n / 2

    return k


def _floor_of_floats() -> Any:
    @kernel
    def k(x: f32, p: ptr[f32]) -> None:
        p[0] = x // 2.0

    return k


def _narrowing() -> Any:
    @kernel
    def k(x: f32, p: ptr[i32]) -> None:
        p[0] = x

    return k


def _open_float() -> Any:
    @kernel
    def k(p: ptr[f32]) -> None:
        total = 0.0
        p[0] = total

    return k


def _const_store() -> Any:
    @kernel
    def k(p: const_ptr[i32]) -> None:
        p[0] = 1  # type: ignore[index]

    return k


def _comprehension() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        p[0] = [i for i in range(3)][0]

    return k


def _try() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        try:
            p[0] = 1
        finally:
            p[0] = 2

    return k


def _undefined() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        p[0] = nothing_of_this_name  # type: ignore[name-defined]

    return k


def _python_call() -> Any:
    @kernel
    def k(x: f32, p: ptr[i32]) -> None:
        p[0] = int(x)

    return k


def _plain_function() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        p[0] = helper(p)  # type: ignore[assignment]

    return k


def _no_annotation() -> Any:
    @kernel
    def k(p) -> None:  # type: ignore[no-untyped-def]
        pass

    return k


def _python_type() -> Any:
    @kernel
    def k(p: ptr[i32], n: int) -> None:
        pass

    return k


def _loop_variable() -> Any:
    @kernel
    def k(p: ptr[i32], n: i32) -> None:
        for i in range(n):
            i += 1
            p[i] = 0

    return k


def _after_loop() -> Any:
    @kernel
    def k(p: ptr[i32], n: i32) -> None:
        for i in range(n):
            p[i] = 0
        p[0] = i

    return k


def _changed_type() -> Any:
    @kernel
    def k(p: ptr[f32], x: f32) -> None:
        a = 0
        a = x
        p[0] = a

    return k


def _index_range() -> Any:
    @kernel
    def k(p: ptr[f32]) -> None:
        a = local(f32, 4)
        p[0] = a[-1]

    return k


def _variable_dimension() -> Any:
    @kernel
    def k(n: i32) -> None:
        a = shared(f32, n)
        a[0] = 0.0

    return k


def _double_chain() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        if 0 < p[0] < 3:
            p[1] = 0

    return k


def _kernel_result() -> Any:
    @kernel
    def k(p: ptr[i32]) -> i32:  # type: ignore[arg-type]
        return p[0]

    return k


def _before_assignment() -> Any:
    @kernel
    def k(p: ptr[i32]) -> None:
        p[0] = later
        later = 1

    return k


def _half_mixed() -> Any:
    @kernel
    def k(h: f16, x: f32, p: ptr[f32]) -> None:
        p[0] = h * x

    return k


@pytest.mark.parametrize(
    ("make", "message", "at"),
    [
        (_division, "`/` between integers: write `//`", "n / 2"),
        (_floor_of_floats, "`//` between floats: write floor(a / b)", "x // 2.0"),
        (_narrowing, "write i32(...) to truncate it", "p[0] = x"),
        (_open_float, "total is neither f32 nor f64: write `total: f32 = …`", "total = 0.0"),
        (_const_store, "this is const", "p[0] = 1"),
        (_comprehension, "cannot contain a comprehension", "[i for i"),
        (_try, "cannot contain `try`", "try:"),
        (_undefined, "nothing_of_this_name is not defined", "nothing_of_this_name"),
        (_python_call, "int() is Python's: write i32(x)", "int(x)"),
        (_plain_function, "make it a function with @device", "helper(p)"),
        (_no_annotation, "parameter p needs a type", "p) -> None"),
        (_python_type, "'int' is not a type for device code: write i32", "int) -> None"),
        (_loop_variable, "is the variable of this `for` and is also assigned elsewhere", "for i in range(n)"),
        (_after_loop, "outside of the `for` whose variable it is", "i\n"),
        (_changed_type, "the new value of a is f32, but i32 is expected", "a = x"),
        (_index_range, "index -1 is not between 0 and 3", "-1]"),
        (_variable_dimension, "a dimension must be a positive constant", "n)"),
        (_double_chain, "C++ would evaluate this twice", "p[0] < 3"),
        (_kernel_result, "a kernel cannot return a value", "@kernel"),
        (_before_assignment, "later is used before it is assigned", "later"),
        (_half_mixed, "between f16 and f32: convert one", "h * x"),
    ],
)
def test_a_refused_kernel_has_a_message_at_its_line(make: Callable[[], Any], message: str, at: str) -> None:
    got, where = refused(make())
    assert message in got
    assert (where + "\n").startswith(at) or at == "@kernel"


def test_an_error_shows_its_line_with_a_caret() -> None:
    with pytest.raises(DslError) as caught:
        _ = _division().cuda
    first, line, caret = str(caught.value).splitlines()
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+:16: error: `/` between integers.*", first)
    assert line == "          p[0] = n / 2"
    assert caret == " " * 17 + "^"
