"""How far around its own pixel an operator reads an image, and how far around a tile an image is needed.

An access is near if the pixels that it reads are near the pixel of its reader, also those that are read in place of
pixels outside of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .borders import Checks
from .lowered import Options
from .lowering import checks_by_loops
from .operators import Access, Node

__all__ = ["Reach", "inner_window", "window_of"]

#: How many pixels an operator may have more than an image that it reads near its own pixel.
MOST_BEYOND = 16


@dataclass(frozen=True, slots=True)
class Reach:
    """How far around the tile of a block an image is needed, in pixels. Negative numbers are possible."""

    left: int = 0
    right: int = 0
    up: int = 0
    down: int = 0

    def around(self, window: Reach) -> Reach:
        """What is needed of an image that is read in ``window`` around each pixel of a reader that is needed this
        far."""
        return Reach(self.left + window.left, self.right + window.right, self.up + window.up, self.down + window.down)

    def with_(self, other: Reach) -> Reach:
        """The smallest reach that contains both."""
        return Reach(
            max(self.left, other.left), max(self.right, other.right), max(self.up, other.up), max(self.down, other.down)
        )


def window_of(access: Access, reader: Node[Any], options: Options) -> Reach | None:
    """Where the pixels are that an access reads around a pixel of its reader, also those that are read in place of
    pixels outside of the image. None if they are not near the pixel."""
    return _window_of(access, reader, options.loops)


@lru_cache(maxsize=4096)
def _window_of(access: Access, reader: Node[Any], loops: bool) -> Reach | None:
    """`window_of`, which depends on ``loops`` of the options only."""
    extent, space, checks = access.extent, reader.space, checks_by_loops(access, reader, loops)
    x = _offsets(access, 0, space.x0, space.width, (extent.left, extent.right), checks[0])
    y = _offsets(access, 1, space.y0, space.height, (extent.up, extent.down), checks[1])
    return None if x is None or y is None else Reach(-x[0], x[1], -y[0], y[1])


def _offsets(
    access: Access,
    axis: int,
    start: int,
    count: int,
    extent: tuple[int, int],
    check: Checks,
) -> tuple[int, int] | None:
    """The least and the greatest difference between an index that is read and the index of the reader's pixel, along
    one axis. None if an index outside of the image is replaced by one that is not near the pixel."""
    centre = access.centres[axis]
    if centre.numerator != 1 or centre.denominator != 1:
        return None
    first = centre.offset + int(start) - extent[0]
    last = centre.offset + int(start) + extent[1]
    kind = access.boundary.kind
    if not check or kind in ("constant", "undefined"):
        return first, last
    # How many pixels the reader has more than the image: the last ones read pixels that are this much farther away.
    beyond = max(0, int(count) - int(access.image.size[axis]))
    if kind == "repeat" or (kind != "clamp" and check.far) or beyond > MOST_BEYOND:
        return None
    if kind == "clamp":
        return (min(first, -beyond) if check.high else first), (max(last, 0) if check.low else last)
    # A mirrored pixel n pixels outside is n pixels inside at the same edge.
    return (min(first, -last - 2 * beyond) if check.high else first), (max(last, -first) if check.low else last)


def inner_window(access: Access, reader: Node[Any]) -> Reach:
    """The pixels that an access reads around a pixel of its reader, where no index is outside of the image. Its scale
    is 1."""
    extent, (x, y) = access.extent, access.centres
    right, down = x.offset + int(reader.space.x0), y.offset + int(reader.space.y0)
    return Reach(extent.left - right, extent.right + right, extent.up - down, extent.down + down)
