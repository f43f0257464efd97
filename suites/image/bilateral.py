"""The bilateral filter of 13 x 13 pixels: a mean of the pixels that are near and have a similar brightness.

The weight of a pixel is a Gaussian function of its distance, from a table, times one of the difference of brightness,
which is computed. The reference computes the same sums, with an exponential function of double precision that is
rounded.

Reference: Tomasi, Manduchi: Bilateral Filtering for Gray and Color Images; Qiao, Teich, Hannig: An Efficient Approach
for Image Border Handling on GPUs via Iteration Space Partitioning (one of its five filters).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...dsl import exp, f32
from ...dsl.image import Accessor, Boundary, Image, Mask, Pipeline, Window, local, pipeline
from .image_benchmark import Filter, image_benchmark, ulps
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 6
#: Weights by distance: a Gaussian with a standard deviation of 3 pixels.
NEARNESS = Mask(
    [[math.exp(-(dx * dx + dy * dy) / 18.0) for dx in range(-REACH, REACH + 1)] for dy in range(-REACH, REACH + 1)]
)
#: Weights by difference of brightness: exp(STEEPNESS · difference²), a standard deviation of 0.16.
STEEPNESS = -20.0


@local(NEARNESS)
def similar(src: Window[f32]) -> f32:
    centre = src[0, 0]
    weights: f32 = 0.0
    total: f32 = 0.0
    for dy in range(-6, 7):
        for dx in range(-6, 7):
            pixel = src[dx, dy]
            apart = pixel - centre
            weight = exp(STEEPNESS * (apart * apart)) * NEARNESS[dx, dy]
            weights += weight
            total += weight * pixel
    return total / weights


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def bilateral13x13(src: Image[f32]) -> Image[f32]:
        return similar(Accessor(src, boundary))

    return bilateral13x13


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image, REACH, boundary)
    weights, total = np.zeros(image.shape, np.float32), np.zeros(image.shape, np.float32)
    for dy in range(-REACH, REACH + 1):
        for dx in range(-REACH, REACH + 1):
            pixel = pixels(dx, dy)
            apart = pixel - image
            closeness = np.exp((np.float32(STEEPNESS) * (apart * apart)).astype(np.float64)).astype(np.float32)
            weight = closeness * np.float32(math.exp(-(dx * dx + dy * dy) / 18.0))
            weights += weight
            total += weight * pixel
    return total / weights


benchmark = image_benchmark(
    Filter(
        name="bilateral13x13",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("exponential functions", "a large window"),
        description="bilateral filter of 13 x 13 pixels",
        tolerance=ulps(8),
        shapes={"tiny": (41, 19), "full": (2048, 2048)},
    )
)
