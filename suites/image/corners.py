"""The corner detectors of Harris and of Shi and Tomasi, each in nine kernels.

Two gradients; their three products; a Gaussian filter of each product; and a measure of the matrix that these are.
Harris computes its determinant minus a part of its squared trace, Shi and Tomasi its smaller eigenvalue.

Reference: Harris, Stephens: A Combined Corner and Edge Detector; Shi, Tomasi: Good Features to Track; both as graphs in
Qiao: Optimization Techniques for Domain-Specific Compilers, chapter 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32, sqrt
from ...dsl.image import Accessor, Boundary, Image, Pipeline, pipeline, point
from .gaussian import SMALL_ROWS, blurred3, weighted
from .image_benchmark import Filter, image_benchmark
from .sobel import ACROSS_ROWS, DOWN_ROWS, across, down
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray


@point
def square(a: f32) -> f32:
    return a * a


@point
def product(a: f32, b: f32) -> f32:
    return a * b


@point
def corner(xx: f32, xy: f32, yy: f32, share: f32) -> f32:
    trace = xx + yy
    return xx * yy - xy * xy - share * (trace * trace)


@point
def smaller_eigenvalue(xx: f32, xy: f32, yy: f32) -> f32:
    half = (xx - yy) * 0.5
    return (xx + yy) * 0.5 - sqrt(half * half + xy * xy)


def harris_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def harris(src: Image[f32], share: f32) -> Image[f32]:
        dx, dy = across(Accessor(src, boundary)), down(Accessor(src, boundary))
        xx, xy, yy = (blurred3(Accessor(each, boundary)) for each in (square(dx), product(dx, dy), square(dy)))
        return corner(xx, xy, yy, share)

    return harris


def shi_tomasi_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def shi_tomasi(src: Image[f32]) -> Image[f32]:
        dx, dy = across(Accessor(src, boundary)), down(Accessor(src, boundary))
        xx, xy, yy = (blurred3(Accessor(each, boundary)) for each in (square(dx), product(dx, dy), square(dy)))
        return smaller_eigenvalue(xx, xy, yy)

    return shi_tomasi


def _matrix(image: NDArray[Any], boundary: Boundary) -> list[NDArray[Any]]:
    x, y = (weighted(image, rows, 1, boundary) for rows in (ACROSS_ROWS, DOWN_ROWS))
    return [weighted(each, SMALL_ROWS, 16, boundary) for each in (x * x, x * y, y * y)]


def harris_reference(image: NDArray[Any], boundary: Boundary, share: float) -> NDArray[Any]:
    import numpy as np

    xx, xy, yy = _matrix(image, boundary)
    trace = xx + yy
    return xx * yy - xy * xy - np.float32(share) * (trace * trace)


def shi_tomasi_reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    xx, xy, yy = _matrix(image, boundary)
    half = (xx - yy) * np.float32(0.5)
    return (xx + yy) * np.float32(0.5) - np.sqrt(half * half + xy * xy)


harris_benchmark = image_benchmark(
    Filter(
        name="harris",
        pipeline=harris_pipeline,
        pixels=hills,
        reference=harris_reference,
        stresses=("bandwidth", "many kernels"),
        description="corners by Harris and Stephens",
        numbers={"share": 0.04},
    )
)

shi_tomasi_benchmark = image_benchmark(
    Filter(
        name="shi_tomasi",
        pipeline=shi_tomasi_pipeline,
        pixels=hills,
        reference=shi_tomasi_reference,
        stresses=("bandwidth", "many kernels"),
        description="corners by Shi and Tomasi",
    )
)
