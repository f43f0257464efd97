"""The Laplace filter of 5 x 5 pixels: how much a pixel differs from those around it.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning (one of its five filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, Mask, Pipeline, Window, local, pipeline
from .gaussian import weighted
from .image_benchmark import Filter, image_benchmark
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, -24, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
MASK = Mask([[float(weight) for weight in row] for row in ROWS])


@local(MASK)
def curvature(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in MASK:
        total += weight * src[dx, dy]
    return total


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def laplace5x5(src: Image[f32]) -> Image[f32]:
        return curvature(Accessor(src, boundary))

    return laplace5x5


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    return weighted(image, ROWS, 1, boundary)


benchmark = image_benchmark(
    Filter(
        name="laplace5x5",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("checks at the edges of an image",),
        description="Laplace filter of 5 x 5 pixels",
    )
)
