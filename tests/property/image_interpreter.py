"""Image operators in plain Python, one pixel after the other: what every lowering must compute, bit for bit.

Operators are run as the Python functions that they are, on NumPy scalars. Integers narrower than 32 bits become
`np.int32` when they are read, as in C. Pixels outside of an image come from `numpy.pad`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ptxmotion.dsl import types as t
from ptxmotion.dsl.image import Boundary, Graph
from ptxmotion.dsl.image.operators import Access, Image, Node, ScalarInput
from ptxmotion.dsl.image.windows import layout_of

Array = NDArray[Any]
_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64")
_STRUCTS = ("float2", "float3", "float4", "int2", "uchar4")


def wrapped(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number as a value of this type: integers keep their low bits."""
    if dtype.kind == "f":
        return dtype.type(value)
    bits = 8 * dtype.itemsize
    low = int(value) & ((1 << bits) - 1)
    return dtype.type(low - (1 << bits) if dtype.kind == "i" and low >> (bits - 1) else low)


def _conversion(name: str) -> Callable[[Any], Any]:
    """What a conversion to a type of the kernel language does: the value is promoted as in C, if it is read again."""
    dtype = np.dtype({"f": "float", "i": "int", "u": "uint"}[name[0]] + name[1:])
    return lambda value: _promoted(wrapped(value, dtype))


def _lanes(*values: Any) -> tuple[Any, ...]:
    """The components of a vector."""
    return values


class _Here:
    """The pixel that is computed now."""

    x, y = 0, 0


def python_names(extra: Mapping[str, object]) -> tuple[dict[str, Any], _Here]:
    """What the text of an operator may mention, in plain Python."""
    place = _Here()
    names: dict[str, Any] = {
        **{name: _conversion(name) for name in _NUMBERS},
        **dict.fromkeys(_STRUCTS, _lanes),
        "sqrt": np.sqrt,
        "min": min,
        "max": max,
        "abs": abs,
        "here": lambda: (np.int32(place.x), np.int32(place.y)),
        "Window": _AnyType(),
    }
    return {**names, **extra}, place


class _AnyType:
    def __getitem__(self, _: object) -> None:
        return None


def padded(array: Array, boundary: Boundary, left: int, right: int, up: int, down: int) -> Array:
    """The array with its boundary, by `numpy.pad`."""
    widths = ((up, down), (left, right), (0, 0))[: array.ndim]
    if boundary.kind == "constant":
        value: Any = boundary.value
        if array.ndim == 2:
            return np.pad(array, widths, constant_values=value)
        lanes: list[Any] = np.broadcast_to(np.array(value), array.shape[2]).tolist()
        layers = [np.pad(array[..., i], widths[:2], constant_values=each) for i, each in enumerate(lanes)]
        return np.stack(layers, axis=-1)
    mode: Any = boundary.numpy_mode
    return np.pad(array, widths, mode=mode)


class _Pixels:
    """An image as an access reads it, at the pixel that is computed now."""

    def __init__(self, array: Array, access: Access, place: _Here, node: Node[Any]) -> None:
        space, extent = node.space, access.extent
        x, y = access.centres
        corners = [(x(space.x0), x(space.x0 + space.width - 1)), (y(space.y0), y(space.y0 + space.height - 1))]
        height, width = array.shape[:2]
        self.left = max(0, extent.left - corners[0][0])
        self.up = max(0, extent.up - corners[1][0])
        right = max(0, corners[0][1] + extent.right - width + 1)
        down = max(0, corners[1][1] + extent.down - height + 1)
        if access.boundary.kind != "undefined":
            array = padded(array, access.boundary, self.left, right, self.up, down)
        else:
            assert not (self.left or self.up or right or down), "something outside is read"
        self.array, self.centres, self.place = array, access.centres, place

    def __getitem__(self, offset: tuple[int, int]) -> Any:
        x = self.centres[0](self.place.x) + int(offset[0]) + self.left
        y = self.centres[1](self.place.y) + int(offset[1]) + self.up
        assert x >= 0 and y >= 0
        return _promoted(self.array[y, x])


def _promoted(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _Vector([_promoted(each) for each in value])
    return np.int32(value) if value.dtype.kind in "iu" and value.dtype.itemsize < 4 else value


class _Vector:
    def __init__(self, lanes: list[Any]) -> None:
        self.x, self.y, *rest = lanes
        self.z, self.w = (*rest, None, None)[:2]


def interpret(
    graph: Graph,
    inputs: Mapping[str, Array],
    numbers: Mapping[str, Any],
    function_of: Callable[[Node[Any]], tuple[Callable[..., Any], _Here]],
) -> list[Array]:
    """The outputs. ``function_of`` gives the plain Python function of a node, and the place that its `here` reads."""
    arrays: dict[Image[Any], Array] = {image: inputs[image.name] for image in graph.inputs}
    for node in graph.nodes:
        arrays[node] = _computed(node, arrays, numbers, *function_of(node))
    return [arrays[node] for node in graph.outputs]


def _computed(
    node: Node[Any], arrays: Mapping[Image[Any], Array], numbers: Mapping[str, Any], function: Any, place: _Here
) -> Array:
    arguments: list[Any] = []
    for argument in node.arguments:
        if isinstance(argument, Access):
            arguments.append(_Pixels(arrays[argument.image], argument, place, node))
        else:
            value = numbers[argument.value.name] if isinstance(argument.value, ScalarInput) else argument.value
            scalar = argument.param.pixel
            assert isinstance(scalar, t.Scalar)
            arguments.append(_promoted(scalar.dtype.type(value)))
    windows = [isinstance(each, Access) and each.param.is_window for each in node.arguments]
    dtype, lanes = layout_of(node.pixel)
    out = np.zeros((node.height, node.width, lanes), dtype)
    with np.errstate(all="ignore"):
        for row in range(node.height):
            for column in range(node.width):
                place.x, place.y = column + node.space.x0, row + node.space.y0
                values = [
                    each[0, 0] if isinstance(each, _Pixels) and not is_window else each
                    for each, is_window in zip(arguments, windows, strict=True)
                ]
                made = function(*values)
                parts: tuple[Any, ...] = made if lanes > 1 else (made,)
                out[row, column] = [wrapped(each, dtype) for each in parts]
    return out if lanes > 1 else out[..., 0]
