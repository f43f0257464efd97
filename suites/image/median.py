"""The median filter of 3 x 3 bytes, by a network of comparisons.

Rows are sorted first. The median is then the median of the largest of the lower values, the median of the middle ones,
and the smallest of the upper ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import device, i32, u8
from ...dsl.image import Accessor, Boundary, Image, Pipeline, Window, local, pipeline
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, bytes_with_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray


@device
def middle(a: i32, b: i32, c: i32) -> i32:
    return max(min(a, b), min(max(a, b), c))


@device
def lowest(a: i32, b: i32, c: i32) -> i32:
    return min(min(a, b), c)


@device
def highest(a: i32, b: i32, c: i32) -> i32:
    return max(max(a, b), c)


@local((3, 3))
def central(src: Window[u8]) -> u8:
    a, b, c = i32(src[-1, -1]), i32(src[0, -1]), i32(src[1, -1])
    d, e, f = i32(src[-1, 0]), i32(src[0, 0]), i32(src[1, 0])
    g, h, i = i32(src[-1, 1]), i32(src[0, 1]), i32(src[1, 1])
    low = highest(lowest(a, b, c), lowest(d, e, f), lowest(g, h, i))
    between = middle(middle(a, b, c), middle(d, e, f), middle(g, h, i))
    high = lowest(highest(a, b, c), highest(d, e, f), highest(g, h, i))
    return u8(middle(low, between, high))


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def median3x3(src: Image[u8]) -> Image[u8]:
        return central(Accessor(src, boundary))

    return median3x3


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image, 1, boundary)
    return np.sort([pixels(dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=0)[4]


benchmark = image_benchmark(
    Filter(
        name="median3x3",
        pipeline=build,
        pixels=bytes_with_noise,
        reference=reference,
        stresses=("bytes", "minima and maxima", "checks at the edges of an image"),
        description="median of 3 x 3 bytes",
    )
)
