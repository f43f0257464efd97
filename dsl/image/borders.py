"""What a window reads outside of an image: `Boundary`, and the maps from any index to an index of the image.

The device functions for one side (``_low``, ``_high``) and for both sides are right for an index at most one image size
outside of the image. The ``_far`` functions are right for every index; they are loops, as listing 1 of the paper has it
for the repeated image. `index_map` is the same in NumPy, by remainders.

MIRROR is the mirror of that listing: it repeats the pixel at the edge (NumPy's ``symmetric``). REFLECT does not repeat
it (NumPy's ``reflect``); in an image of one pixel it gives that pixel.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning, listing 1; `numpy.pad`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import DslError
from ..functions import DeviceFunction
from ..kernel import device
from ..language import i32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MAP_NAMES", "Boundary", "Checks", "index_map", "reach_of_one_step"]


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """What is read outside of an image. ``value`` is the pixel of a constant boundary: a number, or one number for each
    component. Boundaries are equal if they read the same bits: the constants 0.0 and -0.0 differ."""

    kind: str
    value: float | tuple[float, ...] = 0

    CLAMP: ClassVar[Boundary]  #: the nearest pixel of the image (NumPy: ``edge``)
    MIRROR: ClassVar[Boundary]  #: the mirrored image, with the pixel at the edge (NumPy: ``symmetric``)
    SYMMETRIC: ClassVar[Boundary]  #: the same as MIRROR
    REFLECT: ClassVar[Boundary]  #: the mirrored image, without the pixel at the edge (NumPy: ``reflect``)
    REPEAT: ClassVar[Boundary]  #: the image again (NumPy: ``wrap``)
    UNDEFINED: ClassVar[Boundary]  #: the user promises that nothing outside is read

    @staticmethod
    def constant(value: float | tuple[float, ...]) -> Boundary:
        """Every pixel outside of the image is ``value``."""
        return Boundary("constant", tuple(value) if isinstance(value, tuple | list) else value)

    @property
    def numpy_mode(self) -> str:
        """The ``mode`` of `numpy.pad`. Raises `DslError` for UNDEFINED."""
        modes = {"clamp": "edge", "symmetric": "symmetric", "reflect": "reflect", "repeat": "wrap"}
        if self.kind == "undefined":
            raise DslError("nothing is read outside of an image with an undefined boundary")
        return modes.get(self.kind, "constant")

    @property
    def is_index_map(self) -> bool:
        """Whether a pixel outside is a pixel of the image."""
        return self.kind not in ("constant", "undefined")

    @property
    def _key(self) -> tuple[object, ...]:
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return self.kind, self.value, *(copysign(1, value) for value in values)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Boundary) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return f"constant({self.value})" if self.kind == "constant" else self.kind.upper()


Boundary.CLAMP = Boundary("clamp")
Boundary.MIRROR = Boundary.SYMMETRIC = Boundary("symmetric")
Boundary.REFLECT = Boundary("reflect")
Boundary.REPEAT = Boundary("repeat")
Boundary.UNDEFINED = Boundary("undefined")


@dataclass(frozen=True, slots=True)
class Checks:
    """What has to be checked along one axis: indices below 0 (``low``), indices from the size on (``high``). ``far``:
    an index may be more than one image size outside."""

    low: bool = True
    high: bool = True
    far: bool = False

    def __bool__(self) -> bool:
        return self.low or self.high

    def map(self, boundary: Boundary) -> DeviceFunction | None:
        """The device function ``(index, size) -> index``. None if the index is not changed."""
        if not self or not boundary.is_index_map:
            return None
        side = "both" if self.low and self.high else "low" if self.low else "high"
        if self.far:
            side = f"far_{side}"
        return _MAPS[boundary.kind, side]


@device(inline=True)
def clamp_low(at: i32, size: i32) -> i32:
    return max(at, 0)


@device(inline=True)
def clamp_high(at: i32, size: i32) -> i32:
    return min(at, size - 1)


@device(inline=True)
def clamp(at: i32, size: i32) -> i32:
    return max(min(at, size - 1), 0)


@device(inline=True)
def symmetric_low(at: i32, size: i32) -> i32:
    return -1 - at if at < 0 else at


@device(inline=True)
def symmetric_high(at: i32, size: i32) -> i32:
    return 2 * size - 1 - at if at >= size else at


@device(inline=True)
def symmetric(at: i32, size: i32) -> i32:
    return symmetric_low(symmetric_high(at, size), size)


@device(inline=True)
def symmetric_far(at: i32, size: i32) -> i32:
    while at < 0 or at >= size:
        at = -1 - at if at < 0 else 2 * size - 1 - at
    return at


@device(inline=True)
def reflect_low(at: i32, size: i32) -> i32:
    return -at if at < 0 else at


@device(inline=True)
def reflect_high(at: i32, size: i32) -> i32:
    return 2 * size - 2 - at if at >= size else at


@device(inline=True)
def reflect(at: i32, size: i32) -> i32:
    return reflect_low(reflect_high(at, size), size)


@device(inline=True)
def reflect_far(at: i32, size: i32) -> i32:
    if size == 1:
        return 0
    while at < 0 or at >= size:
        at = -at if at < 0 else 2 * size - 2 - at
    return at


@device(inline=True)
def repeat_low(at: i32, size: i32) -> i32:
    return at + size if at < 0 else at


@device(inline=True)
def repeat_high(at: i32, size: i32) -> i32:
    return at - size if at >= size else at


@device(inline=True)
def repeat(at: i32, size: i32) -> i32:
    return repeat_low(repeat_high(at, size), size)


@device(inline=True)
def repeat_far_low(at: i32, size: i32) -> i32:
    while at < 0:
        at += size
    return at


@device(inline=True)
def repeat_far_high(at: i32, size: i32) -> i32:
    while at >= size:
        at -= size
    return at


@device(inline=True)
def repeat_far(at: i32, size: i32) -> i32:
    return repeat_far_low(repeat_far_high(at, size), size)


def _device(function: Any) -> DeviceFunction:
    assert isinstance(function, DeviceFunction)
    return function


def _sides(kind: str, both: Any, low: Any, high: Any, far: Any, far_low: Any, far_high: Any) -> dict[Any, Any]:
    sides = {"both": both, "low": low, "high": high, "far_both": far, "far_low": far_low, "far_high": far_high}
    return {(kind, side): _device(function) for side, function in sides.items()}


#: By (kind of boundary, side): the map. A mirrored index may leave the image on the other side, so the loops of mirrors
#: are those of both sides.
_MAPS: dict[tuple[str, str], DeviceFunction] = {
    **_sides("clamp", clamp, clamp_low, clamp_high, clamp, clamp_low, clamp_high),
    **_sides("symmetric", symmetric, symmetric_low, symmetric_high, symmetric_far, symmetric_far, symmetric_far),
    **_sides("reflect", reflect, reflect_low, reflect_high, reflect_far, reflect_far, reflect_far),
    **_sides("repeat", repeat, repeat_low, repeat_high, repeat_far, repeat_far_low, repeat_far_high),
}

#: The names of the maps.
MAP_NAMES = frozenset(function.name for function in _MAPS.values())


def reach_of_one_step(boundary: Boundary, size: int) -> int:
    """How far outside of the image an index may be for the maps that are not loops."""
    return size - 1 if boundary.kind == "reflect" else size


def index_map(boundary: Boundary, at: NDArray[np.integer[Any]], size: int) -> NDArray[np.integer[Any]]:
    """The indices that ``boundary`` reads in place of ``at``, along an axis of ``size`` pixels. A constant boundary has
    -1 for indices outside.

    >>> import numpy as np
    >>> index_map(Boundary.MIRROR, np.arange(-3, 5), 2).tolist()
    [1, 1, 0, 0, 1, 1, 0, 0]
    """
    import numpy as np

    match boundary.kind:
        case "clamp":
            return np.clip(at, 0, size - 1)
        case "repeat":
            return at % size
        case "symmetric":
            inside = at % (2 * size)
            return np.where(inside < size, inside, 2 * size - 1 - inside)
        case "reflect":
            inside = at % max(1, 2 * size - 2)
            return np.where(inside < size, inside, 2 * size - 2 - inside)
        case _:
            return np.where((at >= 0) & (at < size), at, -1)
