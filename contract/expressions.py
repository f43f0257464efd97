"""Integer expressions over the facts of a launch: nodes, printing, evaluation, and builders that simplify.

The text is a subset of Python's syntax. All values are integers. Comparisons, `and`, `or` and `not` give 1 or 0, and
every value but 0 is true. `//` and `%` round to minus infinity, as in Python.

Guarantees: `evaluate` is exact. If the value of a literal, a symbol or an operation is not between -2**64 and 2**64,
if a divisor is 0, or if a symbol is unknown, it raises `Undecidable`. `and`, `or` and `if` evaluate from left to
right, and only what they need. A builder gives an expression with the same value wherever the expression without
simplification has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from .errors import ContractError, Undecidable

__all__ = [
    "COMPARISONS",
    "FIELD_TYPES",
    "LIMIT",
    "PLAIN_SYMBOLS",
    "STACK",
    "Expression",
    "Number",
    "Operation",
    "Symbol",
    "add",
    "all_of",
    "any_of",
    "apply",
    "argument",
    "begin",
    "compare",
    "divide",
    "end",
    "evaluate",
    "field",
    "in_range",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "negated",
    "select",
    "stack_need",
    "subtract",
    "symbols",
]

#: The largest magnitude of a value.
LIMIT = 1 << 64
#: Intermediate values that an evaluation may need at a time.
STACK = 64

#: The symbols without an index.
PLAIN_SYMBOLS = (
    *(f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"),
    "shared",
    "warps_per_scheduler",
)
#: The types of a field, and their sizes in bytes.
FIELD_TYPES = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8}

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
#: How strongly each operator binds. A number or a symbol binds as strongly as `min`; "neg" is the unary minus.
_LEVELS = {
    "if": 1,
    "or": 2,
    "and": 3,
    "not": 4,
    **dict.fromkeys(COMPARISONS, 5),
    "+": 6,
    "-": 6,
    "*": 7,
    "//": 7,
    "%": 7,
    "neg": 8,
    "min": 9,
    "max": 9,
}
#: The smallest and the largest number of operands of each operator; None: any number.
_ARITY: dict[str, tuple[int, int | None]] = {
    "if": (3, 3),
    "or": (2, None),
    "and": (2, None),
    "not": (1, 1),
    "-": (1, 2),
    "min": (2, None),
    "max": (2, None),
    **dict.fromkeys((*COMPARISONS, "+", "*", "//", "%"), (2, 2)),
}


class Expression:
    """A node: `Number`, `Symbol` or `Operation`. `+ - * // %` build and simplify; `==` compares structure.

    >>> from ptxmotion.contract.parsing import parse
    >>> str((argument(2) - 1) * 4 + 4), argument(0) + 1 == parse("arg0 + 1")
    ('4 * arg2', True)
    """

    __slots__ = ()

    def __add__(self, other: Expression | int) -> Expression:
        return add(self, other)

    def __radd__(self, other: int) -> Expression:
        return add(other, self)

    def __sub__(self, other: Expression | int) -> Expression:
        return subtract(self, other)

    def __rsub__(self, other: int) -> Expression:
        return subtract(other, self)

    def __mul__(self, other: Expression | int) -> Expression:
        return multiply(self, other)

    def __rmul__(self, other: int) -> Expression:
        return multiply(other, self)

    def __floordiv__(self, other: Expression | int) -> Expression:
        return divide(self, other)

    def __mod__(self, other: Expression | int) -> Expression:
        return modulo(self, other)

    def __neg__(self) -> Expression:
        return subtract(0, self)


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A literal."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Symbol(Expression):
    """A fact of a launch. ``kind`` is `arg`, `field`, `begin`, `end`, or one of `PLAIN_SYMBOLS`.

    ``index`` is the number of the parameter; ``offset`` and ``type`` are those of a field.
    """

    kind: str
    index: int = 0
    offset: int = 0
    type: str = ""

    def __str__(self) -> str:
        if self.kind == "arg":
            return f"arg{self.index}"
        if self.kind == "field":
            return f'field({self.index}, {self.offset}, "{self.type}")'
        return f"{self.kind}(arg{self.index})" if self.kind in ("begin", "end") else self.kind


@dataclass(frozen=True, slots=True)
class Operation(Expression):
    """An operator with its operands. `if` has the order of its evaluation: condition, then, else."""

    operator: str
    operands: tuple[Expression, ...]
    #: Computed once: terms of sums are the keys of dictionaries, and contain other operations.
    _hash: int = dataclass_field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        least, most = _ARITY[self.operator]
        if not least <= len(self.operands) <= (most or len(self.operands)):
            raise ContractError(f"'{self.operator}' with {len(self.operands)} operands")
        object.__setattr__(self, "_hash", hash((self.operator, self.operands)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Operation], tuple[str, tuple[Expression, ...]]]:
        return Operation, (self.operator, self.operands)  # another process has other hashes of strings

    def __str__(self) -> str:
        operator, level = self.operator, _level(self)
        if operator in ("min", "max"):
            return f"{operator}({', '.join(map(str, self.operands))})"
        if operator == "if":
            condition, then, otherwise = self.operands
            return f"{_in(then, 2)} if {_in(condition, 2)} else {_in(otherwise, 1)}"
        if operator == "not":
            return f"not {_in(self.operands[0], level)}"
        if len(self.operands) == 1:
            return f"-{_in(self.operands[0], level)}"
        if operator in ("+", "-", "*", "//", "%"):
            left, right = self.operands
            return f"{_in(left, level)} {operator} {_in(right, level + 1)}"
        return f" {operator} ".join(_in(each, level + 1) for each in self.operands)


def _level(expression: Expression) -> int:
    if isinstance(expression, Operation):
        return _LEVELS["neg" if expression.operator == "-" and len(expression.operands) == 1 else expression.operator]
    return _LEVELS["neg"] if isinstance(expression, Number) and expression.value < 0 else _LEVELS["min"]


def _in(expression: Expression, level: int) -> str:
    """The text of an operand at a place that needs at least ``level``."""
    return str(expression) if _level(expression) >= level else f"({expression})"


def symbols(expression: Expression) -> Iterator[Symbol]:
    """Every symbol of an expression, from left to right."""
    if isinstance(expression, Symbol):
        yield expression
    elif isinstance(expression, Operation):
        for operand in expression.operands:
            yield from symbols(operand)


def stack_need(expression: Expression) -> int:
    """How many intermediate values the evaluation on a stack needs at a time."""
    if not isinstance(expression, Operation):
        return 1
    needs = [stack_need(operand) for operand in expression.operands]
    # `and`, `or` and `if` take the earlier values off before they evaluate the next operand.
    keeps = 0 if expression.operator in ("and", "or", "if") else 1
    return max(need + (keeps if index else 0) for index, need in enumerate(needs))


# --- evaluation ------------------------------------------------------------------------------------------------


def evaluate(expression: Expression, value_of: Callable[[Symbol], int]) -> int:
    """The value, given that of each symbol. ``value_of`` raises `Undecidable` for an unknown one. Raises `Undecidable`.

    >>> from ptxmotion.contract.parsing import parse
    >>> evaluate(parse("(arg0 - 1) // 2 if arg0 > 3 else min(grid_x, 7)"), lambda symbol: 6)
    2
    """
    if isinstance(expression, Number):
        return in_range(expression.value)
    if isinstance(expression, Symbol):
        return in_range(value_of(expression))
    assert isinstance(expression, Operation)
    operator, operands = expression.operator, expression.operands
    if operator == "if":
        return evaluate(operands[1 if evaluate(operands[0], value_of) else 2], value_of)
    if operator in ("and", "or"):
        decisive = operator == "or"
        reached = any((evaluate(operand, value_of) != 0) == decisive for operand in operands)
        return int(reached == decisive)
    return apply(operator, [evaluate(operand, value_of) for operand in operands])


def apply(operator: str, values: list[int]) -> int:
    """The value of an operator that evaluates all its operands. Raises `Undecidable`."""
    first, last = values[0], values[-1]
    match operator:
        case "not":
            return int(first == 0)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            return int(_compared(operator, first, last))
        case "//" | "%":
            if last == 0:
                raise Undecidable("division by 0")
            return in_range(first // last if operator == "//" else first % last)
        case "+":
            return in_range(first + last)
        case "*":
            return in_range(first * last)
        case _:
            return in_range(-first if len(values) == 1 else first - last)


def _compared(operator: str, left: int, right: int) -> bool:
    if operator in ("==", "!="):
        return (left == right) == (operator == "==")
    if operator in ("<=", ">="):
        return left <= right if operator == "<=" else left >= right
    return left < right if operator == "<" else left > right


def in_range(value: int) -> int:
    """``value`` if it is between -2**64 and 2**64. Raises `Undecidable`."""
    if not -LIMIT <= value <= LIMIT:
        raise Undecidable("a value is larger than 2**64")
    return value


# --- builders --------------------------------------------------------------------------------------------------


def argument(index: int) -> Symbol:
    """The value of a scalar or pointer parameter."""
    return Symbol("arg", index)


def field(index: int, offset: int, type: str) -> Symbol:
    """A field of a structure that parameter ``index`` passes by value: its ``offset`` in bytes and its PTX ``type``."""
    return Symbol("field", index, offset, type)


def begin(index: int) -> Symbol:
    """The first address of the allocation that a pointer parameter points into."""
    return Symbol("begin", index)


def end(index: int) -> Symbol:
    """The address behind the allocation that a pointer parameter points into."""
    return Symbol("end", index)


def _node(value: Expression | int) -> Expression:
    return value if isinstance(value, Expression) else Number(int(value))


def add(*terms: Expression | int) -> Expression:
    """The sum, with equal terms collected and the constant at the end.

    >>> str(add(argument(0), 4, argument(0), -6))
    '2 * arg0 - 2'
    """
    nodes = [_node(term) for term in terms]
    if len(nodes) == 2 and isinstance(nodes[0], Number) and isinstance(nodes[1], Number):
        return Number(nodes[0].value + nodes[1].value)
    return _sum_of(_linear([(node, 1) for node in nodes]))


def subtract(left: Expression | int, right: Expression | int) -> Expression:
    """The difference, simplified as `add` does."""
    return _sum_of(_linear([(_node(left), 1), (_node(right), -1)]))


def multiply(left: Expression | int, right: Expression | int) -> Expression:
    """The product. A factor that is a number is distributed over the terms of a sum."""
    left, right = _node(left), _node(right)
    if isinstance(right, Number):
        left, right = right, left
    if isinstance(left, Number):
        return _sum_of(_linear([(right, left.value)]))
    return Operation("*", (left, right))


def _linear(pending: list[tuple[Expression, int]]) -> dict[Expression | None, int]:
    """Terms with factors, added: a factor for each term that is no sum; the key None is the constant.

    A term whose value may be missing keeps the factor 0.
    """
    factors: dict[Expression | None, int] = {}
    pending = pending[::-1]
    while pending:
        term, factor = pending.pop()
        if isinstance(term, Number):
            factors[None] = factors.get(None, 0) + factor * term.value
            continue
        if isinstance(term, Operation) and term.operator in ("+", "-"):
            signs = [1, -1 if term.operator == "-" else 1] if len(term.operands) == 2 else [-1]
            pending += [(each, factor * sign) for each, sign in zip(term.operands, signs, strict=True)][::-1]
            continue
        if isinstance(term, Operation) and term.operator == "*" and isinstance(term.operands[0], Number):
            pending.append((term.operands[1], factor * term.operands[0].value))
            continue
        factors[term] = factors.get(term, 0) + factor
    return {term: factor for term, factor in factors.items() if factor or (term and _may_lack_value(term))}


def _sum_of(factors: dict[Expression | None, int]) -> Expression:
    constant = factors.pop(None, 0)
    result: Expression | None = None
    # Positive terms first, so that no text starts with a minus where another order exists.
    for term, factor in sorted(factors.items(), key=lambda item: item[1] < 0):
        assert term is not None
        size = abs(factor)
        part = term if size == 1 else Operation("*", (Number(size), term))
        if result is None:
            result = (
                part
                if factor >= 0
                else Operation("-", (term,))
                if size == 1
                else Operation("*", (Number(factor), term))
            )
        else:
            result = Operation("-" if factor < 0 else "+", (result, part))
    if result is None:
        return Number(constant)
    if constant:
        result = Operation("-" if constant < 0 else "+", (result, Number(abs(constant))))
    return result


def _may_lack_value(expression: Expression) -> bool:
    """Whether the expression may be undecidable for another reason than the size of a value."""
    if isinstance(expression, Operation):
        operator, last = expression.operator, expression.operands[-1]
        if operator in ("//", "%") and (not isinstance(last, Number) or last.value == 0):
            return True
        return any(map(_may_lack_value, expression.operands))
    return isinstance(expression, Symbol) and expression.kind in ("begin", "end", "warps_per_scheduler")


def divide(left: Expression | int, right: Expression | int) -> Expression:
    """The quotient, rounded to minus infinity."""
    left, right = _node(left), _node(right)
    return left if right == Number(1) else _folded("//", left, right)


def modulo(left: Expression | int, right: Expression | int) -> Expression:
    """The remainder, with the sign of the divisor."""
    return _folded("%", _node(left), _node(right))


def minimum(*values: Expression | int) -> Expression:
    """The smallest value. Equal operands and all numbers but the smallest are left out."""
    return _extreme("min", values)


def maximum(*values: Expression | int) -> Expression:
    """The largest value. Equal operands and all numbers but the largest are left out."""
    return _extreme("max", values)


def _extreme(operator: str, values: Iterable[Expression | int]) -> Expression:
    nodes: dict[Expression, None] = {}
    numbers: list[int] = []
    for node in map(_node, values):
        same = isinstance(node, Operation) and node.operator == operator
        for part in node.operands if same and isinstance(node, Operation) else (node,):
            if isinstance(part, Number):
                numbers.append(part.value)
            else:
                nodes[part] = None
    parts = list(nodes)
    if numbers:
        parts.append(Number(apply(operator, numbers)))
    return parts[0] if len(parts) == 1 else Operation(operator, tuple(parts))


def compare(operator: str, left: Expression | int, right: Expression | int) -> Expression:
    """A comparison; ``operator`` is one of `COMPARISONS`. Raises `ContractError` for another operator."""
    if operator not in COMPARISONS:
        raise ContractError(f"'{operator}' is no comparison")
    return _folded(operator, _node(left), _node(right))


def all_of(*conditions: Expression) -> Expression:
    """`and` of any number of conditions; 1 for none. What is always true is left out."""
    return _joined("and", conditions, 1)


def any_of(*conditions: Expression) -> Expression:
    """`or` of any number of conditions; 0 for none. What is always false is left out."""
    return _joined("or", conditions, 0)


def _joined(operator: str, conditions: tuple[Expression, ...], neutral: int) -> Expression:
    """A truth value: 1 or 0, also for a single condition with another value."""
    kept: dict[Expression, None] = {}
    for each in conditions:
        if isinstance(each, Number):
            if bool(each.value) == bool(neutral):
                continue
            kept[Number(1 - neutral)] = None
            break
        same = isinstance(each, Operation) and each.operator == operator
        kept.update(dict.fromkeys(each.operands if same and isinstance(each, Operation) else (each,)))
    if not kept:
        return Number(neutral)
    if len(kept) > 1:
        return Operation(operator, tuple(kept))
    only = next(iter(kept))
    return only if _is_truth(only) else Operation("!=", (only, Number(0)))


def _is_truth(expression: Expression) -> bool:
    if isinstance(expression, Operation):
        return expression.operator in (*COMPARISONS, "and", "or", "not")
    return expression in (Number(0), Number(1))


def negated(condition: Expression) -> Expression:
    """`not` of a condition; a comparison is turned around."""
    if isinstance(condition, Operation) and condition.operator in COMPARISONS:
        opposite = dict(zip(COMPARISONS, ("!=", "==", ">=", ">", "<=", "<"), strict=True))
        return Operation(opposite[condition.operator], condition.operands)
    return _folded("not", condition)


def select(condition: Expression, then: Expression | int, otherwise: Expression | int) -> Expression:
    """`then if condition else otherwise`."""
    if isinstance(condition, Number):
        return _node(then if condition.value else otherwise)
    return Operation("if", (condition, _node(then), _node(otherwise)))


def _folded(operator: str, *operands: Expression) -> Expression:
    values = [operand.value for operand in operands if isinstance(operand, Number)]
    if len(values) == len(operands):
        try:
            return Number(apply(operator, values))
        except Undecidable:
            return Operation(operator, operands)  # the expression has no value, and the evaluation says why
    return Operation(operator, operands)
