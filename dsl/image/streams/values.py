"""The arguments of launches: their values on a backend, and their bytes for the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import types as t
from ..lowered import KernelArgument, Launch
from ..operators import Image, ScalarInput

__all__ = ["raw_arguments", "value_of"]


def value_of(argument: KernelArgument, memory: Mapping[Image[Any], Any], numbers: Mapping[str, Any]) -> Any:
    """The value of an argument: of an image its entry in ``memory``; of a scalar an entry of ``numbers`` or a size."""
    value, type = argument.value, argument.param.type
    if isinstance(value, Image):
        return memory[value]
    assert isinstance(type, t.Scalar)
    return type.dtype.type(numbers[value.name] if isinstance(value, ScalarInput) else int(value))


def raw_arguments(launch: Launch, addresses: Mapping[Image[Any], int], numbers: Mapping[str, Any]) -> Sequence[bytes]:
    """The bytes of each argument. ``addresses`` are those of the images."""
    made: list[bytes] = []
    for argument in launch.arguments:
        value = value_of(argument, addresses, numbers)
        is_image = isinstance(argument.value, Image)
        made.append(int(value).to_bytes(8, "little") if is_image else value.tobytes())
    return made
