"""Counts how often one call of a host program launches a kernel, as a formula.

The program is executed on its scalars only. A value that is known before the program runs (a constant, or computed from
constants) decides branches and loops. A loop of which the number of iterations is not known gives a symbol: the end of
its range, if that is one value for the whole call, or else a name that a legend explains. If a branch is not decided,
the result is a range of two formulas.

Requires: symbols stand for numbers that are not negative; each loop that fusion has inverted runs at least once.
Guarantees: with the real numbers in place of the symbols, the number of launches lies in the range.
Refuses: nothing. What is not understood makes the range wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..dsl.errors import Place
from ..dsl.host_nodes import Assign, Body, Expression, For, HostCall, If, Item, Jump, Launch, Node, While, walk_nodes
from ..dsl.host_program import HostProgram

__all__ = ["LaunchCount", "count_launches"]

#: The most iterations that are executed one by one. A loop that is longer gets a wider range if its iterations differ.
_MOST_ITERATIONS = 10_000


@dataclass(frozen=True, slots=True)
class Symbol:
    """An unknown number of iterations. ``in_all``: it counts the iterations of all executions of the loop in one call,
    so that loops around it do not multiply it."""

    text: str
    in_all: bool


#: A formula: the factor of each product of symbols. The empty product is the number 1.
Formula: TypeAlias = "dict[tuple[Symbol, ...], int]"

#: The names of values that are known, and the values.
_Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class LaunchCount:
    """The range of the number of launches, and ``legend``: the explanation of each symbol that needs one."""

    least: Formula
    most: Formula
    legend: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def number(self) -> int | None:
        """The number of launches, if it is known."""
        if self.least == self.most and set(self.most) <= {()}:
            return self.most.get((), 0)
        return None

    @property
    def explained(self) -> str:
        """The explanation of the symbols that occur; empty if there are none."""
        names = {symbol.text for formula in (self.least, self.most) for product in formula for symbol in product}
        return "; ".join(f"{name}: {text}" for name, text in self.legend.items() if name in names)

    def __str__(self) -> str:
        least, most = _text(self.least), _text(self.most)
        return least if least == most else f"{least} to {most}"


def count_launches(
    program: HostProgram, original: HostProgram | None = None, arguments: Mapping[str, Any] | None = None
) -> LaunchCount:
    """The number of launches of one call of ``program``.

    Loops of ``original``, from which ``program`` was made, get the symbols that they have there. ``arguments`` are the
    scalars that the program is called with, as far as they are known.
    """
    counter = _Counter(program)
    names = _Counter(original).name_loops(original.body) if original is not None else {}
    counter.names = {**counter.name_loops(program.body), **names}
    known = {name: value for name, value in (arguments or {}).items() if isinstance(value, int | float)}
    count, _ = counter.body(program.body, {**counter.constants(), **known})
    legend = {symbol.text: text for symbol, text in counter.names.values() if text}
    return LaunchCount(count.least, count.most, legend)


# Formulas


def _sum(first: Formula, second: Formula) -> Formula:
    made = dict(first)
    for product, factor in second.items():
        made[product] = made.get(product, 0) + factor
    return {product: factor for product, factor in made.items() if factor}


def _scaled(formula: Formula, number: int) -> Formula:
    return {product: factor * number for product, factor in formula.items() if factor * number}


def _times(formula: Formula, symbol: Symbol) -> Formula:
    made: Formula = {}
    for product, factor in formula.items():
        is_total = any(each.in_all for each in product)
        key = product if is_total else tuple(sorted((*product, symbol), key=lambda each: (each.in_all, each.text)))
        made = _sum(made, {key: factor})
    return made


def _text(formula: Formula) -> str:
    """The formula for a reader, numbers last."""
    terms: list[str] = []
    for product, factor in sorted(formula.items(), key=lambda item: (not item[0], [each.text for each in item[0]])):
        names = [f"({each.text})" if " " in each.text.partition("(")[0] else each.text for each in product]
        terms.append("·".join([*([str(abs(factor))] if abs(factor) != 1 or not names else []), *names]))
        terms[-1] = f"-{terms[-1]}" if factor < 0 else terms[-1]
    return " + ".join(terms).replace("+ -", "- ") or "0"


@dataclass(frozen=True)
class _Range:
    least: Formula = field(default_factory=dict[tuple[Symbol, ...], int])
    most: Formula = field(default_factory=dict[tuple[Symbol, ...], int])

    def __add__(self, other: _Range) -> _Range:
        return _Range(_sum(self.least, other.least), _sum(self.most, other.most))

    def times(self, count: Symbol | int) -> _Range:
        """The range of this, executed ``count`` times."""
        if isinstance(count, int):
            return _Range(_scaled(self.least, count), _scaled(self.most, count))
        return _Range(_times(self.least, count), _times(self.most, count))

    def times_less_one(self, count: Symbol | int) -> _Range:
        """The range of this, executed ``count - 1`` times."""
        all_times = self.times(count)
        least = _sum(all_times.least, _scaled(self.least, -1))
        return _Range(least, _sum(all_times.most, _scaled(self.most, -1)))

    def or_nothing(self) -> _Range:
        """The range of this, if it may also not be executed."""
        return _Range({}, self.most)

    def joined(self, other: _Range) -> _Range:
        """The range of one of the two. Symbols are not negative, so the factors are compared one by one."""
        products = {**self.least, **self.most, **other.least, **other.most}
        least = {each: min(self.least.get(each, 0), other.least.get(each, 0)) for each in products}
        most = {each: max(self.most.get(each, 0), other.most.get(each, 0)) for each in products}
        return _Range({k: v for k, v in least.items() if v}, {k: v for k, v in most.items() if v})


_NOTHING, _ONE = _Range(), _Range({(): 1}, {(): 1})

#: How the execution of a body ends: ``next`` (at its end), the word of a jump, or ``unknown``.
_End: TypeAlias = str


# Execution


@dataclass
class _Counter:
    """Executes a program. ``names[place]`` is the symbol of a loop and its explanation, which may be empty."""

    program: HostProgram
    names: dict[Place | None, tuple[Symbol, str]] = field(default_factory=dict[Any, Any])

    def constants(self) -> _Values:
        """The numbers that the program captures."""
        assigned = {name for node in self.program.nodes() for name in node.defines}
        fixed = {name: value for name, value in self.program.namespace.items() if isinstance(value, int | float)}
        return {name: value for name, value in fixed.items() if name not in assigned}

    def name_loops(self, body: Body) -> dict[Place | None, tuple[Symbol, str]]:
        """For each loop, by its place, a symbol for its number of iterations and the explanation of that symbol."""
        definitions = [name for node in self.program.nodes() for name in node.defines]
        in_loops = {name for loop in _loops(body) for name in _defined([loop])}
        named: dict[Place | None, tuple[Symbol, str]] = {}
        for loop in _loops(body):
            place = _place(loop)
            line = f"line {place.line}" if place is not None else "an unknown line"
            if isinstance(loop, For):
                used = loop.init.uses
                if not used & in_loops and all(definitions.count(name) <= 1 for name in used):
                    named[place] = (Symbol(_trips(loop), False), "")
                    continue
            symbol = Symbol(f"n{place.line}" if place is not None else "n", True)
            named[place] = (symbol, f"iterations of the loop at {line} in one call")
        return named

    def body(self, body: Iterable[Item], values: _Values) -> tuple[_Range, _End]:
        """Execute a body and update ``values``. The launches, and how it ends."""
        total, is_certain = _NOTHING, True
        for item in body:
            end: _End = "next"
            match item:
                case Launch():
                    count = _ONE
                case Node():
                    count = _NOTHING
                    _assign(item, values)
                case If():
                    count, end = self._if(item, values)
                case While() | For():
                    count, end = self._loop(item, values)
                case Jump():
                    return total, item.word if is_certain else "unknown"
            total += count if is_certain else count.or_nothing()
            if end not in ("next", "unknown"):
                return total, end if is_certain else "unknown"
            is_certain = is_certain and end == "next"
        return total, "next" if is_certain else "unknown"

    def _if(self, item: If, values: _Values) -> tuple[_Range, _End]:
        test = _evaluate(item.branch.test, values)
        if test is not None or _is_guard(item):
            return self.body(item.body if test is None or test else item.orelse, values)
        first, second = dict(values), dict(values)
        count, end = self.body(item.body, first)
        other, other_end = self.body(item.orelse, second)
        kept = {name: value for name, value in first.items() if name in second and second[name] == value}
        values.clear()
        values.update(kept)
        return count.joined(other), end if end == other_end else "unknown"

    def _loop(self, loop: While | For, values: _Values) -> tuple[_Range, _End]:
        tried = dict(values)
        known = self._known_loop(loop, tried)
        if known is None:
            return self._unknown_loop(loop, values)
        values.clear()
        values.update(tried)
        return known

    def _known_loop(self, loop: While | For, values: _Values) -> tuple[_Range, _End] | None:
        """Execute a loop of which each iteration is known; ``None`` if that is not so."""
        turns: Iterator[Any]
        if isinstance(loop, For):
            bounds = [_evaluate(each, values) for each in (loop.init.start, loop.init.stop, loop.init.step)]
            if not all(isinstance(each, int) for each in bounds) or not bounds[2]:
                return None
            turns = iter(range(*bounds))
        else:
            turns = iter(lambda: _evaluate(loop.branch.test, values), False)
        total = _NOTHING
        for number, turn in enumerate(turns):
            if turn is None or number >= _MOST_ITERATIONS:
                return None
            if isinstance(loop, For):
                values[loop.next.target] = turn
            count, end = self.body(loop.body, values)
            total += count
            if end == "unknown":
                return None
            if end in ("break", "return"):
                return total, "next" if end == "break" else end
        count, end = self.body(loop.orelse, values)
        return total + count, end

    def _unknown_loop(self, loop: While | For, values: _Values) -> tuple[_Range, _End]:
        """A loop of which the number of iterations, or what they do, is not known."""
        for name in (*_defined(loop.body), *([loop.next.target] if isinstance(loop, For) else [])):
            values.pop(name, None)
        trips: Symbol | int = self.names[_place(loop)][0]
        if isinstance(loop, For):
            bounds = [_evaluate(each, values) for each in (loop.init.start, loop.init.stop, loop.init.step)]
            trips = len(range(*bounds)) if all(isinstance(each, int) for each in bounds) and bounds[2] else trips
        leave = _last_test(loop)
        if leave is not None:
            position, test = leave
            above, _ = self.body(loop.body[:position], dict(values))
            leaving, _ = self.body(test.body[:-1], dict(values))
            below, _ = self.body([*test.orelse, *loop.body[position + 1 :]], dict(values))
            return above.times(trips) + leaving + below.times_less_one(trips), "next"
        count, end = self.body(loop.body, dict(values))
        after, after_end = self.body(loop.orelse, dict(values))
        for name in _defined(loop.orelse):  # it may be skipped
            values.pop(name, None)
        may_stop = end not in ("next", "continue")
        total = (count.or_nothing() if may_stop else count).times(trips)
        total += after.or_nothing() if may_stop else after
        may_return = "return" in _jumps(loop.body) or after_end != "next"
        return total, "unknown" if may_return else "next"


def _loops(body: Body) -> Iterator[While | For]:
    """Every loop, an outer one before those in it."""
    for item in body:
        if isinstance(item, While | For):
            yield item
        if isinstance(item, If | While | For):
            yield from _loops(item.body)
            yield from _loops(item.orelse)


def _place(loop: While | For) -> Place | None:
    """The place of the loop in the Python file, also of a loop that fusion has inverted."""
    if isinstance(loop, For):
        return loop.init.place
    leave = _last_test(loop)
    return leave[1].branch.place if leave is not None and loop.branch.place is None else loop.branch.place


def _last_test(loop: While | For) -> tuple[int, If] | None:
    """``if …: break`` in the body of ``while True:``, with its position, if the loop has no other jump."""
    if isinstance(loop, For) or loop.branch.test.text != "True" or list(_jumps(loop.body)) != ["break"]:
        return None
    for position, item in enumerate(loop.body):
        if isinstance(item, If) and item.body and isinstance(item.body[-1], Jump):
            return position, item
    return None


def _is_guard(item: If) -> bool:
    """Whether the test is that of a loop that fusion has inverted: then it has the place of the loop."""
    loops = [each for each in item.body if isinstance(each, While)]
    return item.branch.place is not None and any(_place(each) == item.branch.place for each in loops)


def _jumps(body: Body) -> Iterator[str]:
    """The words of the jumps out of a body. Jumps of inner loops count, too."""
    for item in body:
        if isinstance(item, Jump):
            yield item.word
        elif isinstance(item, If):
            yield from (*_jumps(item.body), *_jumps(item.orelse))
        elif isinstance(item, While | For):
            yield from (word for word in (*_jumps(item.body), *_jumps(item.orelse)) if word == "return")


def _defined(body: Body) -> set[str]:
    return {name for node in walk_nodes(body) for name in node.defines}


def _trips(loop: For) -> str:
    init = loop.init
    if init.start.text == "0" and init.step.text == "1":
        return init.stop.text
    return f"len(range({init.start}, {init.stop}{f', {init.step}' if init.step.text != '1' else ''}))"


def _assign(node: Node, values: _Values) -> None:
    """Execute a statement: what it assigns is known if it is computed from known numbers."""
    known: _Values = {}
    if isinstance(node, Assign) and not isinstance(node, HostCall) and len(node.targets) == len(node.values):
        for target, each in zip(node.targets, node.values, strict=True):
            value = _evaluate(each, values)
            if target.is_name and value is not None:
                known[target.text] = value
    for name in node.defines:
        values.pop(name, None)
    values.update(known)


def _evaluate(expression: Expression, values: _Values) -> Any:
    """The number, or ``None`` if it is not known."""
    functions = {"min": min, "max": max, "abs": abs}
    if not expression.names <= values.keys() | functions.keys():
        return None
    try:
        value = eval(expression.code, {"__builtins__": {}, **functions}, dict(values))
    except (ArithmeticError, ValueError, TypeError):
        return None
    return value if isinstance(value, int | float) else None
