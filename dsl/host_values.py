"""Tests and conversions of host values. The types of NumPy objects are not visible to the type checker here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import types as t
from .errors import DslError, Place
from .language import Word

__all__ = ["callable_namespace", "is_array", "is_floating", "is_integer", "is_number", "scalar"]


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy."""
    import numpy as np

    return isinstance(value, np.ndarray)


def is_integer(value: Any) -> bool:
    """Whether it is a Python or NumPy integer; ``bool`` counts."""
    import numpy as np

    return isinstance(value, int | np.integer)


def is_floating(value: Any) -> bool:
    """Whether it is a Python or NumPy float."""
    import numpy as np

    return isinstance(value, float | np.floating)


def is_number(value: Any) -> bool:
    """Whether it is an integer, a float or a boolean of Python or NumPy."""
    import numpy as np

    return is_integer(value) or is_floating(value) or isinstance(value, np.bool_)


def callable_namespace(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The captured names with the DSL's words as functions of values: ``f32(x)`` rounds, ``zeros`` makes an array."""
    made: dict[str, Any] = {}
    for name, value in namespace.items():
        if isinstance(value, t.Scalar):
            made[name] = _Cast(value)
        elif isinstance(value, Word) and value.name == "zeros":
            made[name] = _zeros
        else:
            made[name] = value
    return made


@dataclass(frozen=True, slots=True)
class _Cast:
    type: t.Scalar

    def __call__(self, value: Any) -> Any:
        return scalar(value, self.type, f"{self.type}(x)", None)


def _zeros(type: Any, count: Any) -> Any:
    import numpy as np

    from .language import dtype_of

    return np.zeros(count, type.type.dtype if isinstance(type, _Cast) else dtype_of(type))


def scalar(value: Any, type: t.Scalar, what: str, place: Place | None) -> Any:
    """``value`` as a NumPy scalar of ``type``. ``what`` names it in messages. Raises `DslError` if it does not fit."""
    if not is_number(value):
        shown = f"a {value.__class__.__name__}"
        raise DslError(f"{what} is {shown}, but {type} is expected", place)
    if type.is_integer:
        if is_floating(value) and not float(value).is_integer():
            raise DslError(f"{what} is {value}, but {type} is expected", place)
        low, high = type.limits
        if not low <= int(value) <= high:
            raise DslError(f"{what} is {value}, which does not fit {type}", place)
        return type.dtype.type(int(value))
    try:
        return type.dtype.type(value)
    except OverflowError:  # an integer beyond the largest double
        raise DslError(f"{what} is an integer that does not fit {type}", place) from None
