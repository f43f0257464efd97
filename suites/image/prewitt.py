"""The Prewitt filter on bytes, in three kernels: the gradients along x and y as integers, and the strength of edges.

Reference: Prewitt: Object Enhancement and Extraction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import i32, u8
from ...dsl.image import Accessor, Boundary, Image, Mask, Pipeline, Window, local, pipeline, point
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, bytes_with_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACROSS = Mask([[-1, 0, 1], [-1, 0, 1], [-1, 0, 1]], skip_zeros=True)
DOWN = Mask([[-1, -1, -1], [0, 0, 0], [1, 1, 1]], skip_zeros=True)


@local(ACROSS)
def across(src: Window[u8]) -> i32:
    total: i32 = 0
    for dx, dy, weight in ACROSS:
        total += weight * i32(src[dx, dy])
    return total


@local(DOWN)
def down(src: Window[u8]) -> i32:
    total: i32 = 0
    for dx, dy, weight in DOWN:
        total += weight * i32(src[dx, dy])
    return total


@point
def strength(x: i32, y: i32) -> u8:
    return u8(min(abs(x) + abs(y), 255))


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def prewitt(src: Image[u8]) -> Image[u8]:
        return strength(across(Accessor(src, boundary)), down(Accessor(src, boundary)))

    return prewitt


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image.astype(np.int32), 1, boundary)
    x = sum(pixels(1, dy) - pixels(-1, dy) for dy in (-1, 0, 1))
    y = sum(pixels(dx, 1) - pixels(dx, -1) for dx in (-1, 0, 1))
    return np.minimum(np.abs(x) + np.abs(y), 255).astype(np.uint8)


benchmark = image_benchmark(
    Filter(
        name="prewitt",
        pipeline=build,
        pixels=bytes_with_noise,
        reference=reference,
        stresses=("bytes", "several kernels", "checks at the edges of an image"),
        description="Prewitt filter: two gradients of bytes and the strength of edges",
    )
)
