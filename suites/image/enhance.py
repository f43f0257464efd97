"""Enhancement in three kernels: the geometric mean of 3 x 3 pixels, a gamma correction, and a stretch of the contrast.

The reference computes logarithms and powers in double precision and rounds them.

Reference: Qiao: Optimization Techniques for Domain-Specific Compilers, chapter 3 (one of its six pipelines).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import exp, f32, log
from ...dsl.image import Accessor, Boundary, Domain, Image, Pipeline, Window, local, pipeline, point
from ..registry import Tolerance
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOX = Domain.box(3, 3)


@local(BOX)
def geometric_mean(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy in BOX:
        total += log(src[dx, dy] + 0.5)
    return exp(total / 9.0)


@point
def corrected(a: f32, gamma: f32) -> f32:
    return exp(log(a) * gamma)


@point
def stretched(a: f32, low: f32, high: f32) -> f32:
    return (a - low) / (high - low)


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def enhance(src: Image[f32], gamma: f32, low: f32, high: f32) -> Image[f32]:
        return stretched(corrected(geometric_mean(Accessor(src, boundary)), gamma), low, high)

    return enhance


def reference(image: NDArray[Any], boundary: Boundary, gamma: float, low: float, high: float) -> NDArray[Any]:
    import numpy as np

    def rounded(function: Any, values: NDArray[Any]) -> NDArray[Any]:
        return function(values.astype(np.float64)).astype(np.float32)

    pixels = around(image, 1, boundary)
    total = np.zeros(image.shape, np.float32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            # The constant boundary is 0.
            total += rounded(np.log, pixels(dx, dy) + np.float32(0.5))
    average = rounded(np.exp, total / np.float32(9))
    one, least, most = np.float32(gamma), np.float32(low), np.float32(high)
    return (rounded(np.exp, rounded(np.log, average) * one) - least) / (most - least)


benchmark = image_benchmark(
    Filter(
        name="enhance",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("logarithms and exponential functions", "several kernels"),
        description="geometric mean of 3 x 3 pixels, gamma correction, contrast",
        # Values are below 1.3, where an ulp of an f32 is 1.2e-7. The subtraction keeps the absolute error.
        tolerance=Tolerance(absolute=16 * 2.0**-24),
        numbers={"gamma": 0.8, "low": 0.25, "high": 1.5},
    )
)
