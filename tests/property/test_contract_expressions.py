"""Expressions and contracts: printing, parsing, evaluating and simplifying agree, on random ones."""

from __future__ import annotations

import random_contracts as make
from hypothesis import given
from ptxmotion.contract import (
    Condition,
    Contract,
    Disjoint,
    Expression,
    Inside,
    Launch,
    Number,
    Operation,
    Symbol,
    Undecidable,
    decide,
    evaluate,
    holds,
    loads,
    parse,
)
from ptxmotion.contract.conditions import Holds, value_in
from ptxmotion.contract.expressions import (
    COMPARISONS,
    add,
    all_of,
    any_of,
    compare,
    divide,
    maximum,
    minimum,
    modulo,
    multiply,
    negated,
    select,
    subtract,
)


def value(expression: Expression, launch: Launch) -> int | None:
    try:
        return evaluate(expression, lambda symbol: value_in(launch, symbol))
    except Undecidable:
        return None


@given(make.expressions)
def test_parse_reads_what_is_printed(expression: Expression) -> None:
    assert parse(str(expression)) == expression


@given(make.expressions, make.launches())
def test_python_computes_the_same(expression: Expression, launch: Launch) -> None:
    """The text is Python, except that `and` and `or` give 1 or 0. Python's integers have no limit."""
    result = value(expression, launch)
    if result is not None:
        assert python_value(expression, launch) == result


def python_value(expression: Expression, launch: Launch) -> int:
    """The value according to Python's `eval` of the text, where `and` and `or` have truth values as operands."""

    def field(index: int, offset: int, type: str) -> int:
        return value_in(launch, Symbol("field", index, offset, type))

    def begin(pointer: Pointer) -> int:
        return launch.extent(pointer.index).begin

    def end(pointer: Pointer) -> int:
        return launch.extent(pointer.index).end

    names: dict[str, object] = {"min": min, "max": max, "field": field, "begin": begin, "end": end}
    for index in make.INTEGERS:
        names[f"arg{index}"] = Pointer(launch, index)
    for name in ("grid", "block"):
        for axis, size in zip("xyz", getattr(launch, name), strict=True):
            names[f"{name}_{axis}"] = size
    names["shared"] = launch.shared
    return int(eval(str(with_truth_values(expression)), {"__builtins__": {}}, names))


class Pointer(int):
    """An argument with its number."""

    index: int

    def __new__(cls, launch: Launch, index: int) -> Pointer:
        found = super().__new__(cls, launch.pointer(index))
        found.index = index
        return found


def with_truth_values(expression: Expression) -> Expression:
    if not isinstance(expression, Operation):
        return expression
    operands = [with_truth_values(operand) for operand in expression.operands]
    if expression.operator in ("and", "or"):
        operands = [Operation("!=", (operand, Number(0))) for operand in operands]
    return Operation(expression.operator, tuple(operands))


BUILDERS = {
    "+": add,
    "*": multiply,
    "//": divide,
    "%": modulo,
    "min": minimum,
    "max": maximum,
    "and": all_of,
    "or": any_of,
    "not": negated,
    "if": select,
}


def built(expression: Expression) -> Expression:
    """The expression made again by the builders, which simplify."""
    if not isinstance(expression, Operation):
        return expression
    operands = [built(operand) for operand in expression.operands]
    if expression.operator in COMPARISONS:
        return compare(expression.operator, *operands)
    if expression.operator == "-":
        return subtract(*operands) if len(operands) == 2 else -operands[0]
    return BUILDERS[expression.operator](*operands)


@given(make.expressions, make.launches())
def test_builders_keep_the_value(expression: Expression, launch: Launch) -> None:
    """Where both have a value. A sum in another order may exceed the limit where the other does not."""
    simplified = built(expression)
    before, after = value(expression, launch), value(simplified, launch)
    assert before is None or after is None or before == after
    assert python_or_none(simplified, launch) == python_or_none(expression, launch) or before is None


def python_or_none(expression: Expression, launch: Launch) -> int | None:
    try:
        return python_value(expression, launch)
    except (Undecidable, ZeroDivisionError):
        return None


@given(make.contracts)
def test_a_contract_reads_as_it_was_written(contract: Contract) -> None:
    contract.check()
    assert loads(contract.dumps()) == contract


@given(make.conditions, make.launches())
def test_conditions_agree_with_sets_of_bytes(condition: Condition, launch: Launch) -> None:
    """`inside` and `disjoint` as sets of addresses, where the ranges are small."""
    try:
        result = decide(condition, launch)
    except Undecidable:
        assert not holds(condition, launch)
        return
    assert holds(condition, launch) == result
    if isinstance(condition, Holds):
        return
    ranges = [condition.range] if isinstance(condition, Inside) else [condition.first, condition.second]
    bounds = [each.addresses(launch) for each in ranges]
    if all(last - first < 1000 for first, last in bounds):
        sets = [set(range(first, last)) for first, last in bounds]
        if isinstance(condition, Disjoint):
            assert result == sets[0].isdisjoint(sets[1])
        elif sets[0]:
            assert result == (sets[0] <= set(range(*launch.extent(condition.range.pointer))))
        else:
            assert result
