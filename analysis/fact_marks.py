"""Marks of the functions that compute facts of a kernel (`manager.Facts.get`).

A fact that depends neither on the promise of the user nor on a profile is computed once for several promises
(`manager.Facts.under`). Its function, or its class, is marked where it is defined.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["for_any_promise", "is_for_any_promise"]

T = TypeVar("T")

#: The attribute of a marked function.
_MARK = "is_for_any_promise"


def for_any_promise(compute: T) -> T:
    """Mark a function or a class: its value depends neither on `Facts.promise` nor on `Facts.profile`.

    >>> is_for_any_promise(for_any_promise(lambda facts: len(facts.cfg))), is_for_any_promise(print)
    (True, False)
    """
    setattr(compute, _MARK, True)
    return compute


def is_for_any_promise(compute: object) -> bool:
    """Whether the function or class is marked."""
    return getattr(compute, _MARK, False)
