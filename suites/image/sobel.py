"""The Sobel filter in three kernels: the gradients along x and y, and their magnitude.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning (one of its five filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32, sqrt
from ...dsl.image import Accessor, Boundary, Image, Mask, Pipeline, Window, local, pipeline, point
from .gaussian import weighted
from .image_benchmark import Filter, image_benchmark
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACROSS_ROWS = [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]
DOWN_ROWS = [[-1, -2, -1], [0, 0, 0], [1, 2, 1]]
ACROSS = Mask([[float(weight) for weight in row] for row in ACROSS_ROWS], skip_zeros=True)
DOWN = Mask([[float(weight) for weight in row] for row in DOWN_ROWS], skip_zeros=True)


@local(ACROSS)
def across(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in ACROSS:
        total += weight * src[dx, dy]
    return total


@local(DOWN)
def down(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in DOWN:
        total += weight * src[dx, dy]
    return total


@point
def magnitude(x: f32, y: f32) -> f32:
    return sqrt(x * x + y * y)


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def sobel(src: Image[f32]) -> Image[f32]:
        return magnitude(across(Accessor(src, boundary)), down(Accessor(src, boundary)))

    return sobel


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    x, y = (weighted(image, rows, 1, boundary) for rows in (ACROSS_ROWS, DOWN_ROWS))
    return np.sqrt(x * x + y * y)


benchmark = image_benchmark(
    Filter(
        name="sobel",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("bandwidth", "several kernels", "checks at the edges of an image"),
        description="Sobel filter: two gradients and their magnitude",
    )
)
