"""The names that kernel code uses: types, pointers, indices, structs, arrays.

Each word has two definitions. For a type checker, ``f32`` is ``float``, and ``ptr[f32]`` is indexed by ``int`` and
gives ``float``. So pyright checks kernels while they are written. At run time the same names are objects of `types`,
which the translator finds through the function's own scope. They cannot be called outside a kernel.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, cast, dataclass_transform, overload

from . import types as t
from .errors import DslError

if TYPE_CHECKING:
    from typing import Self

    import numpy as np

T = TypeVar("T")
F = TypeVar("F")

__all__ = [
    "Array",
    "addr",
    "array",
    "blockDim",
    "blockIdx",
    "const_ptr",
    "dtype_of",
    "dynamic_shared",
    "f16",
    "f32",
    "f64",
    "float2",
    "float3",
    "float4",
    "gridDim",
    "i8",
    "i16",
    "i32",
    "i64",
    "int2",
    "int3",
    "int4",
    "local",
    "pointer_cast",
    "ptr",
    "restrict",
    "shared",
    "struct",
    "threadIdx",
    "u8",
    "u16",
    "u32",
    "u64",
    "uchar4",
    "uint2",
    "uint4",
    "unroll",
    "volatile",
    "warpSize",
]


@dataclass(frozen=True, slots=True)
class Word:
    """A word that the translator gives a meaning to, identified by ``name``."""

    name: str

    def __call__(self, *_: object, **__: object) -> Any:
        raise DslError(f"{self.name} may only be used inside a @kernel or @device function")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise DslError(f"{self.name}.{name} may only be used inside a @kernel or @device function")


class PointerWord:
    """``ptr[...]`` and ``const_ptr[...]`` at run time."""

    def __init__(self, const: bool) -> None:
        self.const = const

    def __getitem__(self, target: object) -> t.Pointer:
        return t.Pointer(type_from(target), const=self.const)


class QualifierWord:
    """``restrict[...]`` and ``volatile[...]`` at run time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, target: object) -> t.Pointer:
        pointer = type_from(target)
        if not isinstance(pointer, t.Pointer):
            raise DslError(f"{self.name}[...] qualifies a pointer, not {pointer}")
        restrict = pointer.restrict or self.name == "restrict"
        return t.Pointer(pointer.target, pointer.const, restrict, pointer.volatile or self.name == "volatile")


@dataclass(frozen=True, slots=True)
class ArrayField:
    """The value of ``array(f32, 4)`` in the body of a struct."""

    element: t.Type
    dims: tuple[int, ...]


def type_from(value: object) -> t.Type:
    """The type that the value of an annotation means. Raises `DslError` if it is not a type of the DSL."""
    if isinstance(value, t.Scalar | t.Pointer | t.Struct | t.Void):
        return value
    if value is None or value is type(None):
        return t.VOID
    if value is bool:
        return t.BOOL
    struct = getattr(value, "__ptxmotion_struct__", None)
    if isinstance(struct, t.Struct):
        return struct
    hint = {int: ": write i32, or another integer with its width", float: ": write f32 or f64"}.get(
        cast("Any", value), ""
    )
    raise DslError(f"{getattr(value, '__name__', value)!r} is not a type for device code{hint}")


def dtype_of(type: object) -> np.dtype[Any]:
    """The NumPy type with the layout of a DSL type, for example of a struct.

    >>> dtype_of(float2).itemsize
    8
    """
    return t.dtype_of_type(type_from(type))


def _make_struct(cls: type[Any], locals_: dict[str, Any]) -> t.Struct:
    module = sys.modules.get(cls.__module__)
    scope = vars(module) if module else {}
    try:
        annotations = inspect.get_annotations(cls, globals=scope, locals={**locals_, **vars(cls)}, eval_str=True)
    except NameError as why:
        raise DslError(f"struct {cls.__name__}: {why}") from None
    fields: list[tuple[str, t.Type]] = []
    for name, annotation in annotations.items():
        default = cls.__dict__.get(name)
        if isinstance(default, ArrayField):
            fields.append((name, t.Array(default.element, default.dims, "field")))
        elif default is not None:
            raise DslError(f"struct {cls.__name__}: field {name} has a default value, which CUDA structs cannot have")
        else:
            fields.append((name, type_from(annotation)))
    for name, value in vars(cls).items():
        if isinstance(value, ArrayField) and name not in annotations:
            raise DslError(f"struct {cls.__name__}: write `{name}: Array[...] = array(...)` to make it a field")
    if not fields:
        raise DslError(f"struct {cls.__name__} has no field")
    return t.Struct(cls.__name__, tuple(fields))


def _native(name: str, element: t.Scalar, lanes: int) -> Any:
    align = element.bytes * (1 if lanes == 3 else lanes)
    fields = tuple((letter, cast("t.Type", element)) for letter in "xyzw"[:lanes])
    made = t.Struct(name, fields, native=True, align=align)
    # A vector of three components has the alignment of its element.
    return type(name, (), {"__ptxmotion_struct__": made, "__doc__": f"CUDA's {name}."})


if TYPE_CHECKING:
    i8: TypeAlias = int
    i16: TypeAlias = int
    i32: TypeAlias = int
    i64: TypeAlias = int
    u8: TypeAlias = int
    u16: TypeAlias = int
    u32: TypeAlias = int
    u64: TypeAlias = int
    f16: TypeAlias = float
    f32: TypeAlias = float
    f64: TypeAlias = float

    class const_ptr(Generic[T]):
        """A pointer to values that are not written through it. Slices are allowed in `copy` of host programs."""

        @overload
        def __getitem__(self, index: int) -> T: ...
        @overload
        def __getitem__(self, index: slice) -> Self: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __add__(self, offset: int) -> Self: ...
        def __sub__(self, offset: int) -> Self: ...

    class ptr(const_ptr[T]):
        """A pointer."""

        def __setitem__(self, index: int, value: T) -> None: ...

    class Array(ptr[T]):
        """An array, indexed by as many integers as it has dimensions."""

        @overload
        def __getitem__(self, index: int | tuple[int, ...]) -> T: ...
        @overload
        def __getitem__(self, index: slice) -> Self: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: int | tuple[int, ...], value: T) -> None: ...

    restrict = Annotated[T, "restrict"]
    volatile = Annotated[T, "volatile"]

    class _Dim3:
        x: int
        y: int
        z: int

    threadIdx: _Dim3
    blockIdx: _Dim3
    blockDim: _Dim3
    gridDim: _Dim3
    warpSize: int

    def shared(type: type[T], *dims: int) -> Array[T]:
        """A static ``__shared__`` array; ``dims`` are constants."""
        ...

    def dynamic_shared(type: type[T]) -> Array[T]:
        """The shared memory whose size the launch gives."""
        ...

    def local(type: type[T], *dims: int) -> Array[T]:
        """An array of which each thread has its own; ``dims`` are constants."""
        ...

    def array(type: type[T], *dims: int) -> Array[T]:
        """An array field of a struct."""
        ...

    def unroll(loop: range, times: int = ...) -> range:
        """``#pragma unroll`` for a ``for`` over ``range``. ``times`` of 1 forbids unrolling."""
        ...

    def addr(lvalue: T) -> ptr[T]:
        """The address of an element, field or variable, as C's ``&``."""
        ...

    def pointer_cast(type: type[T], pointer: const_ptr[Any]) -> ptr[T]:
        """The same address as a pointer to another type."""
        ...

    @dataclass_transform()
    def struct(cls: type[F]) -> type[F]:
        """A C struct: annotated fields, in order; ``name: Array[f32] = array(f32, 4)`` is an array field."""
        ...

    @struct
    class float2:
        x: float
        y: float

    @struct
    class float3:
        x: float
        y: float
        z: float

    @struct
    class float4:
        x: float
        y: float
        z: float
        w: float

    @struct
    class int2:
        x: int
        y: int

    @struct
    class int3:
        x: int
        y: int
        z: int

    @struct
    class int4:
        x: int
        y: int
        z: int
        w: int

    uint2 = int2
    uint4 = int4
    uchar4 = int4

else:
    i8, i16, i32, i64 = t.I8, t.I16, t.I32, t.I64
    u8, u16, u32, u64 = t.U8, t.U16, t.U32, t.U64
    f16, f32, f64 = t.F16, t.F32, t.F64
    const_ptr, ptr = PointerWord(True), PointerWord(False)
    restrict, volatile = QualifierWord("restrict"), QualifierWord("volatile")

    class Array(Generic[T]):
        """An array field's annotation; the type is taken from ``array(...)``."""

        def __class_getitem__(cls, _: object) -> type:
            return cls

    threadIdx, blockIdx = Word("threadIdx"), Word("blockIdx")
    blockDim, gridDim, warpSize = Word("blockDim"), Word("gridDim"), Word("warpSize")
    shared, dynamic_shared, local = Word("shared"), Word("dynamic_shared"), Word("local")
    unroll, addr, pointer_cast = Word("unroll"), Word("addr"), Word("pointer_cast")

    def array(type: object, *dims: int) -> ArrayField:
        """An array field of a struct."""
        if not dims or not all(isinstance(dim, int) and dim > 0 for dim in dims):
            raise DslError("array(type, n, ...) needs positive dimensions")
        return ArrayField(type_from(type), dims)

    def struct(cls: type) -> type:
        """A C struct: annotated fields, in order; ``name: Array[f32] = array(f32, 4)`` is an array field."""
        caller = sys._getframe(1)
        cls.__ptxmotion_struct__ = _make_struct(cls, dict(caller.f_locals))
        return cls

    float2, float3, float4 = (_native(f"float{n}", t.F32, n) for n in (2, 3, 4))
    int2, int3, int4 = (_native(f"int{n}", t.I32, n) for n in (2, 3, 4))
    uint2, uint4, uchar4 = _native("uint2", t.U32, 2), _native("uint4", t.U32, 4), _native("uchar4", t.U8, 4)

Function: TypeAlias = Callable[..., Any]
