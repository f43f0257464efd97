"""Textures and surfaces: images in memory that a kernel reads and writes through handles.

Computes: the bytes of an image, row by row, each row padded to a multiple of `_PITCH` bytes; the place of an element.
Guarantees: the handle that a kernel gets is the address of the image, so it is in no other object.
Refuses, with `ValueError`: arrays of other types, and of other than one to three dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Surface", "Texture"]

Array: TypeAlias = npt.NDArray[Any]

#: An access to a surface has at most 16 bytes.
_PITCH = 32
_TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f4")


@dataclass(frozen=True, eq=False)
class Surface:
    """An image as the argument of a launch, for a parameter of 64 bits.

    The axes of ``array`` are (width), (height, width) or (depth, height, width). With 2 or 4 ``channels`` a last axis
    has the channels. What a kernel writes is copied back.

    >>> Surface(np.zeros((5, 7, 4), np.uint8), channels=4).extents
    (7, 5)
    """

    array: Array
    channels: int = 1

    def __post_init__(self) -> None:
        if self.array.dtype.newbyteorder("=").str[1:] not in _TYPES or not self.array.dtype.isnative:
            raise ValueError(f"an image of {self.array.dtype}: it takes integers of 8 to 32 bits, and float32")
        if self.channels not in (1, 2, 4) or (self.channels > 1 and self.array.shape[-1:] != (self.channels,)):
            raise ValueError(f"{self.channels} channels for an array of shape {self.array.shape}")
        if not 1 <= len(self.extents) <= 3 or not self.array.size:
            raise ValueError(f"an image of shape {self.array.shape}")

    @property
    def extents(self) -> tuple[int, ...]:
        """Width, height and depth, as far as the image has them."""
        shape = self.array.shape if self.channels == 1 else self.array.shape[:-1]
        return tuple(reversed(shape))

    @property
    def element_bytes(self) -> int:
        """The bytes of an element with all its channels."""
        return self.array.itemsize * self.channels

    @property
    def row_bytes(self) -> int:
        """The bytes of a row without its padding."""
        return self.extents[0] * self.element_bytes

    @property
    def pitch(self) -> int:
        """The distance in bytes between rows."""
        return -(-self.row_bytes // _PITCH) * _PITCH

    @property
    def nbytes(self) -> int:
        """The bytes of all rows with their padding."""
        return self.pitch * (self.array.nbytes // self.row_bytes)

    def to_bytes(self) -> Array:
        """The bytes of all rows with their padding."""
        rows = np.zeros((self.nbytes // self.pitch, self.pitch), np.uint8)
        rows[:, : self.row_bytes] = np.ascontiguousarray(self.array).view(np.uint8).reshape(-1, self.row_bytes)
        return rows.reshape(-1)

    def take_back(self, data: Array) -> None:
        """Copy the rows in ``data`` to the array."""
        rows = np.ascontiguousarray(data.reshape(-1, self.pitch)[:, : self.row_bytes])
        self.array[...] = rows.view(self.array.dtype).reshape(self.array.shape)

    def row(self, rest: list[Array]) -> Array:
        """The offset of the row with the coordinates ``rest``, which are those after the first."""
        number = np.zeros(1, np.int64)
        for coordinate, extent in zip(reversed(rest), reversed(self.extents[1:]), strict=True):
            number = number * extent + coordinate
        return number * self.pitch


@dataclass(frozen=True, eq=False)
class Texture(Surface):
    """A texture with point filter and coordinates that are not normalized; elements are read as they are stored.

    ``border``: what a fetch outside of the image gives with coordinates of type f32: ``clamp`` the nearest element,
    ``zero`` zeros. With integer coordinates it gives zeros.
    """

    border: str = "clamp"

    def __post_init__(self) -> None:
        Surface.__post_init__(self)
        if self.border not in ("clamp", "zero"):
            raise ValueError(f"border '{self.border}' is none of clamp, zero")
