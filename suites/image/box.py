"""The box filter of 5 x 5 bytes: the mean of the pixels around each pixel, rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import i32, u8
from ...dsl.image import Accessor, Boundary, Domain, Image, Pipeline, Window, local, pipeline
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, bytes_with_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOX = Domain.box(5, 5)


@local(BOX)
def average(src: Window[u8]) -> u8:
    total: i32 = 12
    for dx, dy in BOX:
        total += i32(src[dx, dy])
    return u8(total // 25)


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def box5x5(src: Image[u8]) -> Image[u8]:
        return average(Accessor(src, boundary))

    return box5x5


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image.astype(np.int32), 2, boundary)
    total = sum(pixels(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3))
    return np.asarray((total + 12) // 25).astype(np.uint8)


benchmark = image_benchmark(
    Filter(
        name="box5x5",
        pipeline=build,
        pixels=bytes_with_noise,
        reference=reference,
        stresses=("bytes", "checks at the edges of an image"),
        description="mean of 5 x 5 bytes",
    )
)
