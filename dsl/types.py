"""The types of kernel code, and C's rules for combining them.

Scalars have CUDA's widths: ``i32`` is ``int``, ``i64`` is ``long long``. `usual` is C's usual arithmetic conversion
(C++ 20, [expr.arith.conv]); `promoted` is the integral promotion. Struct layouts follow the C ABI of nvcc's host and
device compilers: each field is at a multiple of its alignment, and the size is rounded up to the largest alignment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BOOL",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "SCALARS",
    "U8",
    "U16",
    "U32",
    "U64",
    "VOID",
    "WEAK_FLOAT",
    "Array",
    "Pointer",
    "Scalar",
    "Struct",
    "Type",
    "Void",
    "align_of",
    "dtype_of_type",
    "promoted",
    "size_of",
    "usual",
]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number type. ``kind`` is ``i``, ``u``, ``f`` or ``b``. ``bytes`` is 0 for a float literal that has no type
    yet."""

    name: str
    cuda: str
    kind: str
    bytes: int

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer type; ``bool`` counts, as in C."""
        return self.kind != "f"

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self.kind == "b":
            return 0, 1
        bits = 8 * self.bytes
        return (0, (1 << bits) - 1) if self.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the same size."""
        import numpy as np

        return np.dtype(
            {"b": "?", "i": "i", "u": "u", "f": "f"}[self.kind] + ("" if self.kind == "b" else str(self.bytes))
        )

    def __str__(self) -> str:
        return self.name


I8 = Scalar("i8", "signed char", "i", 1)
I16 = Scalar("i16", "short", "i", 2)
I32 = Scalar("i32", "int", "i", 4)
I64 = Scalar("i64", "long long", "i", 8)
U8 = Scalar("u8", "unsigned char", "u", 1)
U16 = Scalar("u16", "unsigned short", "u", 2)
U32 = Scalar("u32", "unsigned int", "u", 4)
U64 = Scalar("u64", "unsigned long long", "u", 8)
F16 = Scalar("f16", "__half", "f", 2)
F32 = Scalar("f32", "float", "f", 4)
F64 = Scalar("f64", "double", "f", 8)
BOOL = Scalar("bool", "bool", "b", 1)
SCALARS = {t.name: t for t in (I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64, BOOL)}

#: The type of a Python float that has not been combined with a typed operand. It takes the type of the first such
#: operand.
WEAK_FLOAT = Scalar("float literal", "double", "f", 0)


@dataclass(frozen=True, slots=True)
class Void:
    """The result type of a function without result."""

    def __str__(self) -> str:
        return "None"


VOID = Void()


@dataclass(frozen=True, slots=True)
class Pointer:
    """``const``: nothing is written through it. ``restrict``: the user promises that no other pointer points to this
    memory."""

    target: Type
    const: bool = False
    restrict: bool = False
    volatile: bool = False

    def __str__(self) -> str:
        text = f"{'const_ptr' if self.const else 'ptr'}[{self.target}]"
        text = f"volatile[{text}]" if self.volatile else text
        return f"restrict[{text}]" if self.restrict else text


@dataclass(frozen=True, slots=True)
class Array:
    """``dims`` is empty for dynamic shared memory. ``space`` is ``shared``, ``dynamic``, ``local``, ``constant`` or
    ``field``."""

    element: Type
    dims: tuple[int, ...]
    space: str
    const: bool = False

    def __str__(self) -> str:
        return f"{self.space} array {self.element}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Struct:
    """``native`` structs are CUDA's vector types, with alignment ``align`` in bytes."""

    name: str
    fields: tuple[tuple[str, Type], ...] = field(default=(), repr=False)
    native: bool = False
    align: int = 0

    def field_type(self, name: str) -> Type | None:
        """The type of a field; None if there is no such field."""
        return dict(self.fields).get(name)

    def __str__(self) -> str:
        return self.name


Type: TypeAlias = Scalar | Pointer | Array | Struct | Void


def align_of(type: Type) -> int:
    """Alignment in bytes."""
    match type:
        case Scalar():
            return type.bytes
        case Pointer():
            return 8
        case Array():
            return align_of(type.element)
        case Struct():
            return max([type.align, *(align_of(t) for _, t in type.fields)])
        case Void():
            return 1


def size_of(type: Type) -> int:
    """Size in bytes. An array without dimensions has size 0."""
    match type:
        case Scalar():
            return type.bytes
        case Pointer():
            return 8
        case Array():
            size = size_of(type.element) if type.dims else 0
            for dim in type.dims:
                size *= dim
            return size
        case Struct():
            offset = 0
            for _, field_type in type.fields:
                offset = _aligned(offset, align_of(field_type)) + size_of(field_type)
            return _aligned(offset, align_of(type))
        case Void():
            return 0


def dtype_of_type(type: Type) -> np.dtype[Any]:
    """The NumPy type with the same layout. A pointer is its 64-bit address. Raises `TypeError` for `Void`."""
    import numpy as np

    match type:
        case Scalar():
            return type.dtype
        case Pointer():
            return np.dtype("u8")
        case Array():
            return np.dtype((dtype_of_type(type.element), type.dims))
        case Struct():
            names: list[str] = []
            formats: list[Any] = []
            offsets: list[int] = []
            offset = 0
            for name, field_type in type.fields:
                offset = _aligned(offset, align_of(field_type))
                names.append(name)
                formats.append(dtype_of_type(field_type))
                offsets.append(offset)
                offset += size_of(field_type)
            layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size_of(type)}
            return np.dtype(layout)
        case Void():
            raise TypeError("None has no layout")


def promoted(type: Scalar) -> Scalar:
    """C's integral promotion: types that are narrower than ``int`` become ``int``."""
    return I32 if type.is_integer and (type.bytes < 4 or type.kind == "b") else type


def usual(left: Scalar, right: Scalar) -> Scalar | None:
    """C's usual arithmetic conversion. None if CUDA has none, as for f16 with another floating type.

    >>> usual(I32, U32).name, usual(U32, I64).name, usual(I64, F32).name
    ('u32', 'i64', 'f32')
    """
    if left.is_float or right.is_float:
        if left.is_float and right.is_float:
            if F16 in (left, right) and left.bytes != right.bytes and 0 not in (left.bytes, right.bytes):
                return None
            return left if left.bytes >= right.bytes else right
        floating = left if left.is_float else right
        return None if floating is F16 or floating.bytes == 0 else floating
    left, right = promoted(left), promoted(right)
    if left.kind == right.kind:
        return left if left.bytes >= right.bytes else right
    unsigned, signed = (left, right) if left.kind == "u" else (right, left)
    return unsigned if unsigned.bytes >= signed.bytes else signed


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
