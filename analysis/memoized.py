"""Memoization of methods, for objects that describe one version of a kernel.

Requires: the result depends only on the arguments and on fields that do not change; the arguments are positional and
hashable. Guarantees: the results are stored in the object, so they live as long as it does and make no reference cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

__all__ = ["memoized"]

Object = TypeVar("Object")
Key = TypeVarTuple("Key")
Result = TypeVar("Result")


def memoized(method: Callable[[Object, *Key], Result]) -> Callable[[Object, *Key], Result]:
    """Let ``method`` compute each result once. The key is the tuple of its arguments.

    >>> class Squares:
    ...     calls = 0
    ...     @memoized
    ...     def of(self, number: int) -> int:
    ...         self.calls += 1
    ...         return number * number
    >>> squares = Squares()
    >>> squares.of(3), squares.of(3), squares.calls
    (9, 9, 1)
    """
    name = f"results of {method.__name__}"

    @wraps(method)
    def lookup(self: Object, *key: *Key) -> Result:
        fields = self.__dict__
        results: dict[tuple[*Key], Result] | None = fields.get(name)
        if results is None:
            results = fields[name] = {}
        try:
            return results[key]
        except KeyError:
            pass
        result = results[key] = method(self, *key)
        return result

    return lookup
