"""Gaussian filters of 3 x 3 and 5 x 5 pixels: a weighted mean of the pixels around each pixel.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning (one of its five filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, Mask, Pipeline, Window, local, pipeline
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Rows of weights, whose sums are powers of two.
SMALL_ROWS = [[1, 2, 1], [2, 4, 2], [1, 2, 1]]
LARGE_ROWS = [[1, 4, 6, 4, 1], [4, 16, 24, 16, 4], [6, 24, 36, 24, 6], [4, 16, 24, 16, 4], [1, 4, 6, 4, 1]]
SMALL = Mask([[weight / 16 for weight in row] for row in SMALL_ROWS])
LARGE = Mask([[weight / 256 for weight in row] for row in LARGE_ROWS])


@local(SMALL)
def blurred3(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in SMALL:
        total += weight * src[dx, dy]
    return total


@local(LARGE)
def blurred5(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in LARGE:
        total += weight * src[dx, dy]
    return total


def small_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def gaussian3x3(src: Image[f32]) -> Image[f32]:
        return blurred3(Accessor(src, boundary))

    return gaussian3x3


def large_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def gaussian5x5(src: Image[f32]) -> Image[f32]:
        return blurred5(Accessor(src, boundary))

    return gaussian5x5


def weighted(image: NDArray[Any], rows: list[list[int]], divisor: int, boundary: Boundary) -> NDArray[Any]:
    """The sum of weighted pixels, in the order of the rows. ``divisor`` is a power of two."""
    import numpy as np

    reach = len(rows) // 2
    pixels = around(image, reach, boundary)
    total = np.zeros(image.shape, np.float32)
    for y, row in enumerate(rows):
        for x, weight in enumerate(row):
            total += np.float32(weight / divisor) * pixels(x - reach, y - reach)
    return total


def small_reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    return weighted(image, SMALL_ROWS, 16, boundary)


def large_reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    return weighted(image, LARGE_ROWS, 256, boundary)


small = image_benchmark(
    Filter(
        name="gaussian3x3",
        pipeline=small_pipeline,
        pixels=hills,
        reference=small_reference,
        stresses=("bandwidth", "checks at the edges of an image"),
        description="Gaussian filter of 3 x 3 pixels",
    )
)

large = image_benchmark(
    Filter(
        name="gaussian5x5",
        pipeline=large_pipeline,
        pixels=hills,
        reference=large_reference,
        stresses=("checks at the edges of an image",),
        description="Gaussian filter of 5 x 5 pixels",
    )
)
