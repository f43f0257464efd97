"""Sizes of images: integers that remember how they follow from the sizes of a pipeline's inputs.

A `Size` is an ``int``, and decisions use its value. Its ``text`` is a Python expression of the parameters of a host
program, such as ``src_width // 2``. So one host program can serve images of different sizes. Sums, differences,
products and floor quotients of sizes are sizes. Everything else, such as Python's ``min``, gives a plain ``int`` or one
of its arguments.
"""

from __future__ import annotations

from numbers import Integral, Real

from .. import types as t

__all__ = ["Size", "ceil_div", "is_integer", "is_number", "is_value_of", "largest", "smallest", "text_of"]


class Size(int):
    """An integer with its ``text``.

    >>> width = Size(100, "src_width")
    >>> half = (width + 1) // 2
    >>> half, half.text
    (50, '(src_width + 1) // 2')
    """

    text: str

    def __new__(cls, value: int, text: str) -> Size:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __add__(self, other: int) -> int:
        return _made(int(self) + int(other), self, "+", other)

    def __radd__(self, other: int) -> int:
        return _made(int(other) + int(self), other, "+", self)

    def __sub__(self, other: int) -> int:
        return _made(int(self) - int(other), self, "-", other)

    def __rsub__(self, other: int) -> int:
        return _made(int(other) - int(self), other, "-", self)

    def __mul__(self, other: int) -> int:
        return _made(int(self) * int(other), self, "*", other)

    def __rmul__(self, other: int) -> int:
        return _made(int(other) * int(self), other, "*", self)

    def __floordiv__(self, other: int) -> int:
        return _made(int(self) // int(other), self, "//", other)

    def __neg__(self) -> int:
        return Size(-int(self), f"-{_inner(self)}")


def is_value_of(value: float, type: t.Scalar) -> bool:
    """Whether a number is a value of a type, if it is rounded to floating types.

    >>> is_value_of(2.0, t.U8), is_value_of(2.5, t.U8), is_value_of(256, t.U8), is_value_of(10**400, t.F32)
    (True, False, False, False)
    """
    if type.is_integer:
        low, high = type.limits
        try:
            number = int(value)
        except (OverflowError, ValueError):  # an infinity or a NaN
            return False
        return low <= number <= high and bool(number == value)  # NumPy would round the limits to its type
    try:
        float(value)
    except OverflowError:  # an integer
        return False
    return True


def is_number(value: object) -> bool:
    """Whether a value is a real number of Python or NumPy."""
    return isinstance(value, Real)


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy.

    >>> is_integer(Size(4, "n")), is_integer(4.0), is_integer(True)
    (True, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral)


def text_of(value: int) -> str:
    """The value as a Python expression.

    >>> text_of(3), text_of(Size(4, "n"))
    ('3', 'n')
    """
    return value.text if isinstance(value, Size) else str(int(value))


def ceil_div(value: int, by: int) -> int:
    """The quotient, rounded up."""
    return (value + (by - 1)) // by if by > 1 else value


def largest(*values: int) -> int:
    """The largest value. Its text mentions all values that are not plain integers."""
    return _extreme("max", values)


def smallest(*values: int) -> int:
    """The smallest value. Its text mentions all values that are not plain integers."""
    return _extreme("min", values)


def _extreme(name: str, values: tuple[int, ...]) -> int:
    choose = max if name == "max" else min
    texts = dict.fromkeys(text_of(each) for each in values)
    chosen = choose(int(each) for each in values)
    if len(texts) == 1 or not any(isinstance(each, Size) for each in values):
        return next(each for each in values if int(each) == chosen)
    return Size(chosen, f"{name}({', '.join(texts)})")


def _made(value: int, left: int, symbol: str, right: int) -> int:
    if symbol in "+-" and int(right) == 0 and not isinstance(right, Size):
        return left
    if symbol in "+" and int(left) == 0 and not isinstance(left, Size):
        return right
    if symbol in ("*", "//") and int(right) == 1 and not isinstance(right, Size):
        return left
    return Size(value, f"{_inner(left)} {symbol} {_inner(right)}")


def _inner(value: int) -> str:
    text = text_of(value)
    return text if text.isidentifier() or text.isdigit() else f"({text})"
