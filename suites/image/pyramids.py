"""The parts of the programs with image pyramids: operators, and the same in NumPy.

Each level has half as many columns and rows as the one below, rounded up. `reduced` weighs 5 x 5 pixels of a level by
binomial coefficients; `expanded` interpolates the pixels of a level with half as many. Both are those of Burt and
Adelson: The Laplacian Pyramid as a Compact Image Code.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, IterationSpace, Mask, Window, here, local, point
from .surroundings import around

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LEVELS",
    "collapse",
    "details",
    "details_in_numpy",
    "collapse_in_numpy",
    "difference",
    "expand",
    "expand_in_numpy",
    "expanded",
    "pyramid",
    "pyramid_in_numpy",
    "reduce_in_numpy",
    "total",
]

#: The levels, where a program does not say otherwise.
LEVELS = 6

_ROW = (1.0, 4.0, 6.0, 4.0, 1.0)
BINOMIAL = Mask([[a * b / 256 for a in _ROW] for b in _ROW])


@local(BINOMIAL)
def reduced(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in BINOMIAL:
        total += weight * src[dx, dy]
    return total


@local((3, 3))
def expanded(src: Window[f32]) -> f32:
    x, y = here()
    left: f32 = 0.0 if x % 2 == 1 else 0.125
    centre: f32 = 0.5 if x % 2 == 1 else 0.75
    right: f32 = 0.5 if x % 2 == 1 else 0.125
    up: f32 = 0.0 if y % 2 == 1 else 0.125
    middle: f32 = 0.5 if y % 2 == 1 else 0.75
    down: f32 = 0.5 if y % 2 == 1 else 0.125
    first = left * src[-1, -1] + centre * src[0, -1] + right * src[1, -1]
    second = left * src[-1, 0] + centre * src[0, 0] + right * src[1, 0]
    third = left * src[-1, 1] + centre * src[0, 1] + right * src[1, 1]
    return up * first + middle * second + down * third


@point
def difference(a: f32, b: f32) -> f32:
    return a - b


@point
def total(a: f32, b: f32) -> f32:
    return a + b


def pyramid(image: Image[f32], boundary: Boundary, count: int = LEVELS) -> list[Image[f32]]:
    """The ``count`` levels of an image, the finest first."""
    levels = [image]
    for _ in range(count - 1):
        space = IterationSpace((levels[-1].width + 1) // 2, (levels[-1].height + 1) // 2)
        levels.append(reduced(Accessor(levels[-1], boundary, scale=2), space=space))
    return levels


def expand(image: Image[f32], target: Image[Any], boundary: Boundary) -> Image[f32]:
    """A level with the size of the one below, ``target``."""
    space = IterationSpace(target.width, target.height)
    return expanded(Accessor(image, boundary, scale=Fraction(1, 2)), space=space)


def details(levels: list[Image[f32]], boundary: Boundary) -> list[Image[f32]]:
    """The Laplacian pyramid: what each level has more than the one above, and the last level."""
    fine = [difference(level, expand(above, level, boundary)) for level, above in pairwise(levels)]
    return [*fine, levels[-1]]


def collapse(bands: list[Image[f32]], boundary: Boundary) -> Image[f32]:
    """The image whose Laplacian pyramid this is."""
    image = bands[-1]
    for band in reversed(bands[:-1]):
        image = total(band, expand(image, band, boundary))
    return image


# --- NumPy --------------------------------------------------------------------------------------------------------


def reduce_in_numpy(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    """The next level."""
    import numpy as np

    pixels = around(image, 2, boundary)
    made = np.zeros(image.shape, np.float32)
    for dx, dy, weight in BINOMIAL:
        made += np.float32(weight) * pixels(int(dx), int(dy))
    return made[::2, ::2]


def pyramid_in_numpy(image: NDArray[Any], boundary: Boundary, count: int = LEVELS) -> list[NDArray[Any]]:
    """All levels."""
    levels = [image]
    for _ in range(count - 1):
        levels.append(reduce_in_numpy(levels[-1], boundary))
    return levels


def expand_in_numpy(image: NDArray[Any], shape: tuple[int, ...], boundary: Boundary) -> NDArray[Any]:
    """A level with the shape of the one below."""
    import numpy as np

    def twice(values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(np.repeat(values, 2, axis=0), 2, axis=1)[: shape[0], : shape[1]]

    pixels = around(image, 1, boundary)
    y, x = np.ogrid[: shape[0], : shape[1]]
    even, odd = (0.125, 0.75, 0.125), (0.0, 0.5, 0.5)
    across, down = (
        [np.where(index % 2 == 1, np.float32(b), np.float32(a)) for a, b in zip(even, odd, strict=True)]
        for index in (x, y)
    )
    rows = [
        across[0] * twice(pixels(-1, dy)) + across[1] * twice(pixels(0, dy)) + across[2] * twice(pixels(1, dy))
        for dy in (-1, 0, 1)
    ]
    return np.asarray(down[0] * rows[0] + down[1] * rows[1] + down[2] * rows[2], np.float32)


def details_in_numpy(image: NDArray[Any], boundary: Boundary, count: int = LEVELS) -> list[NDArray[Any]]:
    """The Laplacian pyramid of an image."""
    levels = pyramid_in_numpy(image, boundary, count)
    fine = [a - expand_in_numpy(b, a.shape, boundary) for a, b in pairwise(levels)]
    return [*fine, levels[-1]]


def collapse_in_numpy(bands: list[NDArray[Any]], boundary: Boundary) -> NDArray[Any]:
    """The image whose Laplacian pyramid this is."""
    image = bands[-1]
    for band in reversed(bands[:-1]):
        image = band + expand_in_numpy(image, band.shape, boundary)
    return image
