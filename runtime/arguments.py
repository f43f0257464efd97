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

__all__ = ["Packed", "Packer", "Pointer", "split"]

_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
#: The kinds of NumPy types that a PTX type takes.
_KINDS = {"u": "iub", "s": "iu", "f": "f", "b": "iufbV"}


class Pointer(NamedTuple):
    """An address, and the extent that the caller states: the kernel accesses nothing outside of it through it."""

    address: int
    extent: Extent | None = None


class Packed(NamedTuple):
    """The arguments in one block, each at the offset of its parameter, and the extents that are known.

    The key of ``extents`` is the number of the parameter.
    """

    block: bytes
    extents: dict[int, Extent]


class Packer:
    """Turns the arguments of one kernel into bytes.

    ``_kinds`` has for each parameter its largest value and its smallest one if it is an integer, else 0 and 0, and
    whether it can be an address. Most launches pass integers and arrays, which take no other step.
    """

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        self._name, self._parameters = name, parameters
        self._kinds = [_kind(parameter) for parameter in parameters]
        layout, end = "<", 0
        for parameter in parameters:
            layout += f"{parameter.offset - end}x" if parameter.offset > end else ""
            layout += _CODES[parameter.size] if parameter.is_integer else f"{parameter.size}s"
            end = parameter.offset + parameter.size
        self._layout = struct.Struct(layout)

    def __call__(self, arguments: Sequence[Any], as_pointer: Callable[[Any], Pointer | None]) -> Packed:
        """The bytes of the arguments. ``as_pointer`` gives the address of an array, and None for other objects.

        Raises `TypeError`, `OverflowError`, and what ``as_pointer`` raises.
        """
        if len(arguments) != len(self._kinds):
            raise TypeError(f"{self._name} takes {len(self._kinds)} arguments, not {len(arguments)}")
        extents: dict[int, Extent] = {}
        values: list[int | bytes] = []
        for index, (value, (largest, smallest, can_point)) in enumerate(zip(arguments, self._kinds, strict=True)):
            if largest and value.__class__ is int:
                if 0 <= value <= largest:
                    values.append(value)
                    continue
            elif can_point:
                pointer = as_pointer(value) if value.__class__ not in _OWN else _own_pointer(value)
                if pointer is not None:
                    if pointer.extent is not None:
                        extents[index] = pointer.extent
                    value = pointer.address
            values.append(self._slow(index, value, largest, smallest))
        return Packed(self._layout.pack(*values), extents)

    def _slow(self, index: int, value: object, largest: int, smallest: int) -> int | bytes:
        """Integers of every type as an unsigned one; bytes for other parameters."""
        parameter = self._parameters[index]
        if largest and isinstance(value, int):
            if not smallest <= value <= largest:
                raise OverflowError(f"{value} does not fit into parameter {parameter.name} (.{parameter.type})")
            return value & largest
        raw = _scalar(parameter, value)
        return int.from_bytes(raw, "little") if largest else raw


_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_OWN = (Pointer, type(None))


def _kind(parameter: Parameter) -> tuple[int, int, bool]:
    if not parameter.is_integer:
        return 0, 0, False
    bits = 8 * parameter.size
    return (1 << bits) - 1, -(1 << (bits - 1)), parameter.size == 8


def _own_pointer(value: Pointer | None) -> Pointer:
    return Pointer(0) if value is None else value


def split(parameters: Sequence[Parameter], block: bytes) -> tuple[bytes, ...]:
    """The bytes of each argument."""
    return tuple(block[each.offset : each.offset + each.size] for each in parameters)


def _scalar(parameter: Parameter, value: object) -> bytes:
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
