"""Arguments of a launch as bytes.

An argument is an integer, a float, a NumPy scalar, bytes, a ctypes structure, `Pointer`, None for a null pointer, or an
array, which the device turns into its address.

Refuses: `TypeError` for what does not match the parameter, `OverflowError` for an integer that is too large.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from ..contract import Extent, Parameter

__all__ = ["Packed", "Pointer", "pack"]

_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
#: The kinds of NumPy types that a PTX type takes.
_KINDS = {"u": "iub", "s": "iu", "f": "f", "b": "iufbV"}


class Pointer(NamedTuple):
    """An address, and the extent that the caller states: the kernel accesses nothing outside of it through it."""

    address: int
    extent: Extent | None = None


class Packed(NamedTuple):
    """The bytes of each argument, and the extents that are known. The key is the number of the parameter."""

    values: tuple[bytes, ...]
    extents: dict[int, Extent]


def pack(
    name: str,
    parameters: Sequence[Parameter],
    arguments: Sequence[Any],
    as_pointer: Callable[[Any], Pointer | None],
) -> Packed:
    """The arguments of the kernel ``name``. ``as_pointer`` gives the address of an array, and None for other objects.

    Raises `TypeError`, `OverflowError`, and what ``as_pointer`` raises.
    """
    if len(arguments) != len(parameters):
        raise TypeError(f"{name} takes {len(parameters)} arguments, not {len(arguments)}")
    extents: dict[int, Extent] = {}
    values: list[bytes] = []
    for index, (parameter, value) in enumerate(zip(parameters, arguments, strict=True)):
        if value.__class__ is int and parameter.is_integer:
            values.append(_integer(parameter, value))
            continue
        if parameter.size == 8 and parameter.is_integer:
            pointer = value if isinstance(value, Pointer) else Pointer(0) if value is None else as_pointer(value)
            if pointer is not None:
                values.append(_integer(parameter, pointer.address))
                if pointer.extent is not None:
                    extents[index] = pointer.extent
                continue
        values.append(_scalar(parameter, value))
    return Packed(tuple(values), extents)


def _integer(parameter: Parameter, value: int) -> bytes:
    bits = 8 * parameter.size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise OverflowError(f"{value} does not fit into parameter {parameter.name} (.{parameter.type})")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def _scalar(parameter: Parameter, value: object) -> bytes:
    if isinstance(value, bool | int) and parameter.is_integer:
        return _integer(parameter, int(value))
    is_float = parameter.type in _FLOATS and not parameter.is_structure
    if is_float and isinstance(value, int | float) and not isinstance(value, bool):
        return struct.pack(f"<{_FLOATS[parameter.type]}", value)
    raw = _raw(parameter, value)
    if raw is None:
        what = f"{parameter.size} bytes" if parameter.is_structure else f".{parameter.type}"
        raise TypeError(f"parameter {parameter.name} ({what}) cannot take a {type(value).__name__}")
    if len(raw) != parameter.size:
        raise TypeError(f"parameter {parameter.name} has {parameter.size} bytes, and the argument has {len(raw)}")
    return raw


def _raw(parameter: Parameter, value: object) -> bytes | None:
    """The bytes of an object that has them; None if it has none, or if its kind is not that of the parameter."""
    if isinstance(value, bytes | bytearray | memoryview | ctypes.Structure | ctypes.Array):
        return bytes(cast("bytes", value))
    dtype: Any = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "tobytes") or getattr(value, "shape", None) != ():
        return None
    # A NumPy scalar, or an array without dimensions, on the host.
    if type(value).__module__ != "numpy" or (
        not parameter.is_structure and dtype.kind not in _KINDS[parameter.type[0]]
    ):
        return None
    return cast("Any", value).tobytes()
