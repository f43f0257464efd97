"""Conditions in words, with the names of the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from .conditions import Condition, Holds, Inside, Range
from .document import KernelContract, LaunchChange, Parameter
from .expressions import Expression, Number, Operation, Symbol

__all__ = ["condition_words", "expression_words", "kernel_words"]


def expression_words(expression: Expression, parameters: Sequence[Parameter]) -> str:
    """The text of an expression with names instead of `arg0`; a name that would be ambiguous stays `arg0`."""
    return str(_renamed(expression, parameters))


def _renamed(expression: Expression, parameters: Sequence[Parameter]) -> Expression:
    if isinstance(expression, Operation):
        return Operation(expression.operator, tuple(_renamed(each, parameters) for each in expression.operands))
    if isinstance(expression, Symbol) and expression.kind in ("arg", "begin", "end", "field"):
        name = _name(expression.index, parameters)
        if expression.kind == "arg":
            return _Text(name)
        if expression.kind == "field":
            return _Text(f"{name}[{expression.offset}: {expression.type}]")
        return _Text(f"{expression.kind}({name})")
    return expression


class _Text(Number):
    """A name in the text of an expression."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        super().__init__(0)
        object.__setattr__(self, "_text", text)

    def __str__(self) -> str:
        return self._text


def _name(index: int, parameters: Sequence[Parameter]) -> str:
    return parameters[index].name if index < len(parameters) else f"arg{index}"


def condition_words(condition: Condition, parameters: Sequence[Parameter]) -> str:
    """A condition as a sentence."""
    if isinstance(condition, Holds):
        return expression_words(condition.expression, parameters)
    if isinstance(condition, Inside):
        pointer = _name(condition.range.pointer, parameters)
        if condition.range.is_whole:
            return f"{pointer} points into a known allocation"
        return f"{_range_words(condition.range, parameters)} are inside the allocation of {pointer}"
    first, second = (_range_words(each, parameters) for each in (condition.first, condition.second))
    return f"{first} and {second} are disjoint"


def _range_words(range: Range, parameters: Sequence[Parameter]) -> str:
    name = _name(range.pointer, parameters)
    if range.start is None or range.stop is None:
        return f"the allocation of {name}"
    start, stop = (expression_words(each, parameters) for each in (range.start, range.stop))
    return f"bytes {start} to {stop} of {name}"


def kernel_words(kernel: KernelContract) -> str:
    """The versions of a kernel with their conditions, one a line."""
    parameters = ", ".join(
        f"{each.name}: {'pointer' if each.pointer else f'{each.size} bytes' if each.is_structure else each.type}"
        for each in kernel.parameters
    )
    lines = [f"{kernel.name}({parameters})"]
    for number, version in enumerate(kernel.versions, 1):
        description = f": {version.description}" if version.description else ""
        is_last = number == len(kernel.versions)
        lines.append(f"  {number}. {version.entry}{description}{' (the kernel itself, otherwise)' if is_last else ''}")
        lines += [f"     if {condition_words(condition, kernel.parameters)}" for condition in version.requires]
        if version.prefer_when is not None:
            lines.append(f"     faster if {expression_words(version.prefer_when, kernel.parameters)}")
        if version.launch is not None:
            lines += [f"     {text}" for text in _change_words(version.launch, kernel.parameters)]
    return "\n".join(lines)


def _change_words(change: LaunchChange, parameters: Sequence[Parameter]) -> list[str]:
    def words(expressions: Sequence[Expression]) -> str:
        return ", ".join(expression_words(each, parameters) for each in expressions)

    lines = [
        f"with {name} ({words(three)})" for name, three in (("grid", change.grid), ("block", change.block)) if three
    ]
    if change.shared is not None:
        lines.append(f"with {words([change.shared])} bytes of shared memory")
    if change.arguments:
        lines.append(f"with the further arguments {words(change.arguments)}")
    return lines
