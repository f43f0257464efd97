"""Unsharp masking in four kernels: what a Gaussian filter removes is added to the image.

Reference: Qiao: Optimization Techniques for Domain-Specific Compilers, chapter 3 (one of its six pipelines).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, Pipeline, pipeline, point
from .gaussian import LARGE_ROWS, blurred5, weighted
from .image_benchmark import Filter, image_benchmark
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray


@point
def difference(a: f32, b: f32) -> f32:
    return a - b


@point
def scaled(a: f32, amount: f32) -> f32:
    return a * amount


@point
def added(a: f32, b: f32) -> f32:
    return min(max(a + b, 0.0), 1.0)


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def unsharp(src: Image[f32], amount: f32) -> Image[f32]:
        detail = difference(src, blurred5(Accessor(src, boundary)))
        return added(src, scaled(detail, amount))

    return unsharp


def reference(image: NDArray[Any], boundary: Boundary, amount: float) -> NDArray[Any]:
    import numpy as np

    detail = (image - weighted(image, LARGE_ROWS, 256, boundary)) * np.float32(amount)
    return np.clip(image + detail, np.float32(0), np.float32(1))


benchmark = image_benchmark(
    Filter(
        name="unsharp",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("bandwidth", "several kernels"),
        description="unsharp masking with a Gaussian filter of 5 x 5 pixels",
        numbers={"amount": 1.5},
    )
)
