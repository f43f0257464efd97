"""Conditions in words, with the names of the parameters."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from .conditions import Condition, Holds, Inside, Range, expressions_of
from .document import KernelContract, LaunchChange, Parameter, Version
from .expressions import Expression, Number, Operation, Symbol
from .tuning import Tuning

__all__ = ["condition_words", "expression_words", "kernel_words"]


#: The width of the lines of `kernel_words`.
_WIDTH = 110
#: A subexpression that occurs at least twice has a name of its own if its text has at least this length.
_LONG = 14

#: The names of subexpressions.
_Names = Mapping[Expression, str]
_NO_NAMES: _Names = MappingProxyType({})


def expression_words(expression: Expression, parameters: Sequence[Parameter], names: _Names = _NO_NAMES) -> str:
    """The text of an expression with names instead of `arg0`. ``names`` are those of subexpressions."""
    return str(_renamed(expression, parameters, names))


def _renamed(expression: Expression, parameters: Sequence[Parameter], names: _Names = _NO_NAMES) -> Expression:
    if expression in names:
        return _Text(names[expression])
    if isinstance(expression, Operation):
        return Operation(expression.operator, tuple(_renamed(each, parameters, names) for each in expression.operands))
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


def condition_words(condition: Condition, parameters: Sequence[Parameter], names: _Names = _NO_NAMES) -> str:
    """A condition as a sentence. ``names`` are those of subexpressions."""
    if isinstance(condition, Holds):
        return expression_words(condition.expression, parameters, names)
    if isinstance(condition, Inside):
        pointer = _name(condition.range.pointer, parameters)
        if condition.range.is_whole:
            return f"{pointer} points into a known allocation"
        return f"{_range_words(condition.range, parameters, names)} are inside the allocation of {pointer}"
    first, second = (_range_words(each, parameters, names) for each in (condition.first, condition.second))
    return f"{first} and {second} are disjoint"


def _range_words(range: Range, parameters: Sequence[Parameter], names: _Names) -> str:
    name = _name(range.pointer, parameters)
    if range.start is None or range.stop is None:
        return f"the allocation of {name}"
    start, stop = (expression_words(each, parameters, names) for each in (range.start, range.stop))
    return f"bytes {start} to {stop} of {name}"


def kernel_words(kernel: KernelContract, source_name: Callable[[str], str] = str) -> str:
    """The versions of a kernel with their conditions. ``source_name`` returns the name of a kernel in the source.

    Parameters that a compiler has named after the kernel lose that part of their names. Subexpressions that occur
    several times have names, which are defined below the conditions.
    """
    shown = [replace(each, name=_short_name(each.name, kernel.name)) for each in kernel.parameters]
    parameters = ", ".join(
        f"{each.name}: {'pointer' if each.pointer else f'{each.size} bytes' if each.is_structure else each.type}"
        for each in shown
    )
    title = source_name(kernel.name)
    lines = [f"{kernel.name}({parameters})"] if title == kernel.name else [title, f"  {kernel.name}({parameters})"]
    for number, version in enumerate(kernel.versions, 1):
        description = f": {version.description}" if version.description else ""
        is_last = number == len(kernel.versions)
        lines.append(f"  {number}. {version.entry}{description}{' (the kernel itself, otherwise)' if is_last else ''}")
        lines += [f"     {line}" for line in _version_words(version, shown)]
    for tuning in kernel.tunings:
        lines += _tuning_words(tuning)
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line))


def _tuning_words(tuning: Tuning) -> list[str]:
    """What was measured on one machine."""
    machine = tuning.machine
    where = f"{machine.gpu}, {machine.multiprocessors} multiprocessors"
    lines = [f"  tuned on {where}, driver {tuning.driver}, {tuning.date}"]
    for each in tuning.classes:
        measured = ", ".join(f"{entry} {speedup:.3f}" for entry, speedup in each.speedups.items()) or "no version"
        taken = ", ".join(each.preferred) or "the kernel itself"
        lines.append(f"     {each.least} to {each.most} threads: {taken} (speedups: {measured})")
    return lines


def _short_name(name: str, kernel: str) -> str:
    """The name of a parameter without that of its kernel.

    >>> _short_name("_Z3addPfi_param_1", "_Z3addPfi"), _short_name("n", "_Z3addPfi")
    ('param_1', 'n')
    """
    match = re.fullmatch(re.escape(kernel) + r"_(param_\d+)", name)
    return match[1] if match else name


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _version_words(version: Version, parameters: Sequence[Parameter]) -> list[str]:
    used = {each.name for each in parameters}
    names: dict[Expression, str] = {}
    for each in _repeated(_expressions(version)):
        if len(expression_words(each, parameters)) >= _LONG:
            names[each] = next(name for n in range(len(names) + 1, 10**6) if (name := f"t{n}") not in used)
            used.add(names[each])
    lines = [f"if {condition_words(condition, parameters, names)}" for condition in version.requires]
    if version.prefer_when is not None:
        lines.append(f"faster if {expression_words(version.prefer_when, parameters, names)}")
    if version.launch is not None:
        lines += _change_words(version.launch, parameters, names)
    for each, name in names.items():
        others = {expression: other for expression, other in names.items() if expression != each}
        lines.append(f"where {name} = {expression_words(each, parameters, others)}")
    return lines


def _expressions(version: Version) -> Iterator[Expression]:
    for condition in version.requires:
        yield from expressions_of(condition)
    if version.prefer_when is not None:
        yield version.prefer_when
    if (change := version.launch) is not None:
        for several in (change.grid, change.block, change.arguments):
            yield from several or ()
        if change.shared is not None:
            yield change.shared


def _repeated(expressions: Iterator[Expression]) -> list[Operation]:
    """The operations that several places read, in the order in which they occur first. What occurs only inside one of
    them is not in the list."""
    numbers: dict[Operation, int] = {}
    waiting = list(expressions)[::-1]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Operation):
            numbers[each] = numbers.get(each, 0) + 1
            if numbers[each] == 1:
                waiting += reversed(each.operands)
    return [each for each, number in numbers.items() if number > 1]


def _change_words(change: LaunchChange, parameters: Sequence[Parameter], names: _Names) -> list[str]:
    def words(expressions: Sequence[Expression]) -> str:
        return ", ".join(expression_words(each, parameters, names) for each in expressions)

    lines = [
        f"with {name} ({words(three)})" for name, three in (("grid", change.grid), ("block", change.block)) if three
    ]
    if change.shared is not None:
        lines.append(f"with {words([change.shared])} bytes of shared memory")
    if change.arguments:
        lines.append(f"with the further arguments {words(change.arguments)}")
    return lines
