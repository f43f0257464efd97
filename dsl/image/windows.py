"""What an operator reads around a pixel: masks, domains, and the types of pixels and windows.

An offset ``(dx, dy)`` is relative to the pixel at the centre: dx to the right, dy down. Masks and domains are iterated
in Python as in operators: a mask row by row, from the upper left weight to the lower right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from .. import types as t
from ..errors import DslError
from ..language import Word, type_from
from .sizes import is_integer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

#: The most pixels of a window.
LARGEST_WINDOW = 1 << 20

__all__ = [
    "Domain",
    "Mask",
    "Offsets",
    "Window",
    "WindowExtent",
    "WindowType",
    "here",
    "layout_of",
    "offsets_of",
    "pixel_type",
]


@dataclass(frozen=True, slots=True)
class WindowExtent:
    """How far a window reaches from its centre, in pixels. No number is negative."""

    left: int = 0
    right: int = 0
    up: int = 0
    down: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the window."""
        return self.left + 1 + self.right, self.up + 1 + self.down

    def __or__(self, other: WindowExtent) -> WindowExtent:
        return WindowExtent(
            max(self.left, other.left), max(self.right, other.right), max(self.up, other.up), max(self.down, other.down)
        )


class Mask:
    """Weights around a pixel. The origin, by default the weight at ``size // 2``, is at the centre.

    ``weights`` is a NumPy array, whose type the weights have in kernels, or rows of numbers, which become `i32` or
    `f32`. ``type`` is another type of the weights. An array of `f64` needs it: NumPy makes such arrays by default, and
    operators would compute in `f64`. ``skip_zeros``: iteration leaves out weights of 0.

    >>> mask = Mask([[1, 2, 1]])
    >>> [(dx, dy, int(weight)) for dx, dy, weight in mask], int(mask[0, 0])
    ([(-1, 0, 1), (0, 0, 2), (1, 0, 1)], 2)
    """

    def __init__(
        self,
        weights: NDArray[Any] | Sequence[Sequence[float]],
        *,
        origin: tuple[int, int] | None = None,
        type: object = None,
        skip_zeros: bool = False,
    ) -> None:
        import numpy as np

        array = np.array(weights)
        if type is not None and not isinstance(type, t.Scalar):
            raise DslError(f"the type of weights is a number such as f32, not {type!r}")
        if type is not None and np.can_cast(array.dtype, type.dtype, "same_kind"):
            array = array.astype(type.dtype)
        elif not isinstance(weights, np.ndarray):
            array = array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))
        if array.ndim != 2 or not array.size:
            raise DslError(f"a mask has rows and columns of weights, not the shape {array.shape}")
        if array.dtype == np.float64 and type is None:
            raise DslError("the weights of the mask are f64: give type=f32, or type=f64 to compute in f64")
        if type is not None and array.dtype != type.dtype:
            raise DslError(f"weights of {array.dtype} cannot become {type}")
        if not any(scalar.dtype == array.dtype for scalar in t.SCALARS.values()):
            raise DslError(f"a mask cannot have weights of {array.dtype}")
        array.flags.writeable = False
        self.array: NDArray[Any] = array
        self.skip_zeros = skip_zeros
        height, width = array.shape
        self.origin = origin if origin is not None else (width // 2, height // 2)
        if not (0 <= self.origin[0] < width and 0 <= self.origin[1] < height):
            raise DslError(f"the origin {self.origin} is outside of a mask of {width} x {height} weights")

    @property
    def extent(self) -> WindowExtent:
        """The window that the weights cover."""
        height, width = self.array.shape
        return WindowExtent(self.origin[0], width - 1 - self.origin[0], self.origin[1], height - 1 - self.origin[1])

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        height, width = self.array.shape
        for row in range(height):
            for column in range(width):
                if not self.skip_zeros or self.array[row, column] != 0:
                    yield column - self.origin[0], row - self.origin[1], self.array[row, column]

    def __getitem__(self, offset: tuple[int, int]) -> Any:
        """The weight at an offset. Raises `IndexError` outside of the mask."""
        dx, dy = offset
        extent = self.extent
        if not (-extent.left <= dx <= extent.right and -extent.up <= dy <= extent.down):
            raise IndexError(f"({dx}, {dy}) is outside of the mask")
        return self.array[dy + self.origin[1], dx + self.origin[0]]


class Domain:
    """A set of offsets, in the order in which they are given.

    >>> list(Domain.box(3, 1))
    [(-1, 0), (0, 0), (1, 0)]
    """

    def __init__(self, offsets: Iterable[tuple[int, int]]) -> None:
        if not isinstance(offsets, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DslError(f"a domain is made of offsets (dx, dy), not of {offsets!r}: Domain.box(width, height)")
        pairs = [_offset(each) for each in offsets]
        self.offsets = tuple(pairs)
        if not self.offsets:
            raise DslError("a domain has at least one offset")
        if len(set(self.offsets)) < len(self.offsets):
            raise DslError("an offset occurs twice in a domain")

    @classmethod
    def box(cls, width: int, height: int) -> Domain:
        """All offsets of a window, row by row. The centre is the offset at ``size // 2``. Raises `DslError` if a
        size is not positive."""
        if width < 1 or height < 1:
            raise DslError(f"a window of {width} x {height} pixels")
        if width * height > LARGEST_WINDOW:
            raise DslError(f"a window of {width} x {height} pixels has more than {LARGEST_WINDOW}")
        left, up = width // 2, height // 2
        return cls((x - left, y - up) for y in range(height) for x in range(width))

    @property
    def extent(self) -> WindowExtent:
        """The smallest window that contains all offsets and the centre."""
        xs, ys = zip(*self.offsets, strict=True)
        return WindowExtent(max(0, -min(xs)), max(0, *xs), max(0, -min(ys)), max(0, *ys))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.offsets)

    def __contains__(self, offset: object) -> bool:
        return offset in self.offsets


def _offset(value: object) -> tuple[int, int]:
    """The offset. Raises `DslError` for what is not a pair of integers."""
    parts: tuple[Any, ...] = tuple(value) if isinstance(value, Iterable) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(parts) != 2 or not all(is_integer(part) for part in parts):
        raise DslError(f"an offset of a domain is a pair of integers (dx, dy), not {value!r}")
    return int(parts[0]), int(parts[1])


#: What an operator may read: a mask, a domain, or the width and height of a window.
Offsets: TypeAlias = "Mask | Domain | tuple[int, int]"


def offsets_of(window: object) -> Mask | Domain:
    """The window as a mask or a domain. Raises `DslError`."""
    if isinstance(window, Mask | Domain):
        return window
    if isinstance(window, tuple):
        size: tuple[object, ...] = window  # pyright: ignore[reportUnknownVariableType]
        if len(size) == 2 and isinstance(size[0], int) and isinstance(size[1], int):
            return Domain.box(size[0], size[1])
    raise DslError("a window is a Mask, a Domain, or its size (width, height)")


# --- types --------------------------------------------------------------------------------------------------------


def pixel_type(value: object) -> t.Scalar | t.Struct:
    """The type of pixels that an annotation means: a number, or a vector of CUDA. Raises `DslError`."""
    made = type_from(value)
    if (isinstance(made, t.Scalar) and made is not t.BOOL) or (isinstance(made, t.Struct) and made.native):
        return made
    raise DslError(f"{made} is not a type of pixels: there are numbers, and vectors such as uchar4 and float4")


def layout_of(pixel: t.Scalar | t.Struct) -> tuple[np.dtype[Any], int]:
    """The NumPy type of the components of a pixel, and their number."""
    if isinstance(pixel, t.Scalar):
        return pixel.dtype, 1
    element = pixel.fields[0][1]
    assert isinstance(element, t.Scalar)
    return element.dtype, len(pixel.fields)


@dataclass(frozen=True, slots=True)
class WindowType:
    """The type of a parameter that is a window of an image."""

    pixel: t.Scalar | t.Struct

    def __str__(self) -> str:
        return f"Window[{self.pixel}]"


if TYPE_CHECKING:

    class Window(Generic[T]):
        """The pixels around a pixel of an image: ``src[dx, dy]``."""

        def __getitem__(self, offset: tuple[int, int]) -> T: ...

    def here() -> tuple[int, int]:
        """The coordinates of the pixel that an operator computes: ``x, y = here()``."""
        ...

else:

    class Window:
        """The pixels around a pixel of an image: ``src[dx, dy]``."""

        def __class_getitem__(cls, pixel: object) -> WindowType:
            return WindowType(pixel_type(pixel))

    here = Word("here")
