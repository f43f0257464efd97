"""Arrays of NumPy, CuPy and PyTorch as images: their shapes, types and memory. No array is copied here.

The array of an image has the shape (height, width), and (height, width, components) for pixels that are vectors.
Nothing of CuPy and PyTorch is imported unless an array of theirs is given.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import types as t
from ..errors import DslError
from .windows import layout_of

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "address_of",
    "bytes_like",
    "check_apart",
    "check_array",
    "check_writeable",
    "device_of",
    "empty_like",
    "handle_of",
    "library_of",
    "shape_of",
    "stream_of",
]


def library_of(arrays: Sequence[Any], what: str = "an argument") -> str:
    """``numpy``, ``cupy``, ``torch``, or ``cuda`` for others on a GPU. Raises `DslError` if the arrays are of several
    libraries, or one is no array that can be used; ``what`` names it."""
    libraries = dict.fromkeys(_library(array, what) for array in arrays)
    if len(libraries) > 1:
        raise DslError(f"the arrays are of different libraries: {', '.join(libraries)}")
    return next(iter(libraries))


def _library(array: Any, what: str = "an argument") -> str:
    name = type(array).__module__.partition(".")[0]
    if name == "torch" and hasattr(array, "is_cuda"):
        if not array.is_cuda:
            raise DslError(f"{what} is a tensor on {array.device}: use tensor.numpy(), or move it to the GPU")
        return "torch"
    if name == "cupy" and hasattr(array, "shape"):
        return "cupy"
    if _is_numpy(array):
        if type(array).__name__ != "ndarray" and hasattr(array, "mask"):
            raise DslError(f"{what} is a masked array, and masks are not read: use array.filled(value)")
        return "numpy"
    if hasattr(array, "__cuda_array_interface__"):
        return "cuda"
    raise DslError(f"{what} is a {type(array).__name__}, and not an array of NumPy, CuPy or PyTorch")


def _is_numpy(array: Any) -> bool:
    """Whether this is an array or a number of NumPy, also of a class that is derived from its arrays."""
    return "numpy" in (each.__module__ for each in type(array).__mro__) and hasattr(array, "shape")


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of an array."""
    if hasattr(array, "shape"):
        return tuple(int(each) for each in array.shape)
    return tuple(int(each) for each in array.__cuda_array_interface__["shape"])


def check_array(array: Any, pixel: t.Scalar | t.Struct, what: str, size: tuple[int, int] | None = None) -> None:
    """Raise `DslError` unless ``array`` holds an image of these pixels, without gaps. ``size`` is its width and
    height."""
    dtype, lanes = layout_of(pixel)
    name = _dtype_name(array)  # of the other byte order, it is not the name of a type
    if name != dtype.name:
        raise DslError(f"{what} must be an array of {dtype.name}, not of {name}")
    shape = shape_of(array)
    expected = 2 if lanes == 1 else 3
    if len(shape) != expected or (lanes > 1 and shape[2] != lanes):
        form = "(height, width)" if lanes == 1 else f"(height, width, {lanes})"
        raise DslError(f"{what} must have the shape {form}, not {shape}")
    if size is not None and (shape[1], shape[0]) != size:
        raise DslError(f"{what} has {shape[1]} x {shape[0]} pixels, not {int(size[0])} x {int(size[1])}")
    if _library(array) != "numpy":
        if not _is_contiguous(array):
            raise DslError(f"{what} has gaps between its elements: make it contiguous first")
        if address_of(array) % t.align_of(pixel):
            raise DslError(f"{what} is not aligned to the {t.align_of(pixel)} bytes that {pixel} needs")


def _dtype_name(array: Any) -> str:
    if hasattr(array, "dtype"):
        return str(array.dtype).removeprefix("torch.")
    return str(_dtype(array))


def _dtype(array: Any) -> np.dtype[Any]:
    """The NumPy type of the elements."""
    import numpy as np

    if hasattr(array, "dtype"):
        return np.dtype(_dtype_name(array) if _library(array) == "torch" else array.dtype)
    return np.dtype(array.__cuda_array_interface__["typestr"])


def _is_contiguous(array: Any) -> bool:
    library = _library(array)
    if library == "torch":
        return bool(array.is_contiguous())
    if library == "cupy":
        return bool(array.flags.c_contiguous)
    strides = array.__cuda_array_interface__.get("strides")
    if strides is None:
        return True
    size = _dtype(array).itemsize
    for extent, stride in zip(reversed(shape_of(array)), reversed(strides), strict=True):
        if extent > 1 and stride != size:
            return False
        size *= extent
    return True


def address_of(array: Any) -> int:
    """The address of the first element of an array on a GPU."""
    if _library(array) == "torch":
        return int(array.data_ptr())
    return int(array.__cuda_array_interface__["data"][0])


def check_apart(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise `DslError` if an output on a GPU shares memory with another output or with an input. Kernels read an image
    while they write another one."""
    for number, output in enumerate(outputs):
        begin, end = _extent(output)
        for other in (*inputs, *outputs[:number]):
            first, last = _extent(other)
            if begin < last and first < end:
                raise DslError("an array of out= shares memory with an input or another output")


def check_writeable(outputs: Sequence[Any]) -> None:
    """Raise `DslError` if an output in the memory of the host cannot be written, has elements that share memory, or
    shares memory with another one."""
    import numpy as np

    hosts = [each for each in outputs if _is_numpy(each)]
    for number, output in enumerate(hosts):
        if not output.flags.writeable:
            raise DslError("an array of out= is read-only")
        if _may_overlap_itself(output):
            raise DslError("elements of an array of out= share memory")
        if any(np.shares_memory(output, other) for other in hosts[:number]):
            raise DslError("an array of out= shares memory with another output")


def _may_overlap_itself(array: Any) -> bool:
    """Whether elements of a NumPy array may share memory: a step along an axis is not beyond all smaller steps."""
    end = int(array.itemsize)
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < end:
                return True
            end += stride * (size - 1)
    return False


def _extent(array: Any) -> tuple[int, int]:
    """The first address of an array without gaps, and the address behind it."""
    size = math.prod(shape_of(array)) * _dtype(array).itemsize
    return address_of(array), address_of(array) + size


def empty_like(array: Any, pixel: t.Scalar | t.Struct, size: tuple[int, int]) -> Any:
    """A new array of the library of ``array``, on its device, for an image of these pixels and this width and height.
    Raises `DslError` for a library that is not known."""
    dtype, lanes = layout_of(pixel)
    shape = (int(size[1]), int(size[0])) + ((lanes,) if lanes > 1 else ())
    library = _library(array)
    if library == "torch":
        torch = importlib.import_module("torch")
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=array.device)
    if library == "cupy":
        return importlib.import_module("cupy").empty(shape, dtype)
    raise DslError(f"arrays like a {type(array).__name__} cannot be made: give the results as out=")


def bytes_like(array: Any, count: int, *, is_zero: bool) -> Any:
    """``count`` bytes of memory on the device of ``array``, as an array of its library. Raises `DslError` for a library
    that is not known."""
    library = _library(array)
    if library == "torch":
        torch = importlib.import_module("torch")
        return (torch.zeros if is_zero else torch.empty)(int(count), dtype=torch.uint8, device=array.device)
    if library == "cupy":
        cupy = importlib.import_module("cupy")
        return (cupy.zeros if is_zero else cupy.empty)(int(count), "uint8")
    raise DslError(f"a global operator needs memory, and arrays like a {type(array).__name__} cannot be made")


def device_of(array: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which the GPU of an array is the current one."""
    library = _library(array)
    if library == "torch":
        return importlib.import_module("torch").cuda.device(array.device)
    if library == "cupy":
        return array.device
    return contextlib.nullcontext()


def stream_of(array: Any) -> Any:
    """The current stream of the library of an array; None for the default stream."""
    library = _library(array)
    if library == "torch":
        return importlib.import_module("torch").cuda.current_stream(array.device)
    if library == "cupy":
        return importlib.import_module("cupy").cuda.get_current_stream()
    return None


def handle_of(stream: Any) -> int:
    """The handle of a stream of PyTorch or CuPy; 0 for the default stream, which is None."""
    return int(getattr(stream, "cuda_stream", None) or getattr(stream, "ptr", None) or 0)
