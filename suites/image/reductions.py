"""Reductions of an image: minimum, maximum, sum, mean and histogram, each in one launch.

Minima, maxima, means of bytes and histograms are exact. The sum of f32 pixels is compared with one in double precision.

Reference: Qiao: Optimization Techniques for Domain-Specific Compilers, section 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dsl import device, f32, i32, i64, u8
from ...dsl.image import Boundary, Histogram, Image, Pipeline, pipeline
from ...dsl.image import maximum as larger
from ...dsl.image import mean as average
from ...dsl.image import minimum as smaller
from ...dsl.image import total as sum_of
from ..registry import Tolerance
from .image_benchmark import Filter, image_benchmark
from .surroundings import bytes_with_noise, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..registry import Benchmark


@device
def brightness(pixel: u8) -> i32:
    return i32(pixel)


@pipeline
def minimum_of(src: Image[f32]) -> Image[f32]:
    return smaller(f32)(src)


@pipeline
def maximum_of(src: Image[f32]) -> Image[f32]:
    return larger(f32)(src)


@pipeline
def sum_of_pixels(src: Image[f32]) -> Image[f32]:
    return sum_of(f32)(src)


@pipeline
def mean_of(src: Image[u8]) -> Image[f32]:
    return average(i64, f32)(src)


@pipeline
def histogram_of(src: Image[u8]) -> Any:
    return Histogram(256, brightness)(src)


def _minimum(image: NDArray[Any], _: Boundary) -> NDArray[Any]:
    return image.min(keepdims=True)


def _maximum(image: NDArray[Any], _: Boundary) -> NDArray[Any]:
    return image.max(keepdims=True)


def _mean(image: NDArray[Any], _: Boundary) -> NDArray[Any]:
    import numpy as np

    return np.array([[np.float32(image.sum(dtype=np.int64)) / np.float32(image.size)]])


def _sum(image: NDArray[Any], _: Boundary) -> NDArray[Any]:
    import numpy as np

    return np.array([[image.sum(dtype=np.float64)]], np.float32)


def _histogram(image: NDArray[Any], _: Boundary) -> NDArray[Any]:
    import numpy as np

    return np.bincount(image.ravel(), minlength=256).astype(np.uint32).reshape(1, 256)


def _benchmark(
    name: str,
    made: Pipeline[..., Any],
    reference: Callable[[NDArray[Any], Boundary], NDArray[Any]],
    description: str,
    *,
    is_bytes: bool = False,
    tolerance: Tolerance | None = None,
) -> Benchmark:
    return image_benchmark(
        Filter(
            name=name,
            pipeline=lambda _: made,
            pixels=bytes_with_noise if is_bytes else hills,
            reference=reference,
            stresses=("bandwidth", "shuffles", "atomics"),
            description=description,
            tolerance=tolerance or Tolerance(),
            has_boundary=False,
        )
    )


minimum = _benchmark("minimum", minimum_of, _minimum, "smallest pixel")
maximum = _benchmark("maximum", maximum_of, _maximum, "largest pixel")
total = _benchmark("sum", sum_of_pixels, _sum, "sum of f32 pixels", tolerance=Tolerance(relative=1e-5))
mean = _benchmark("mean", mean_of, _mean, "mean of bytes", is_bytes=True)
histogram = _benchmark("histogram", histogram_of, _histogram, "histogram of bytes with 256 bins", is_bytes=True)
