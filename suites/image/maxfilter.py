"""The largest pixel of a disc around each pixel, in five kernels.

Each of four kernels gives the largest of twice as many pixels below each pixel: of 2, 4, 8, 16. A column of the disc is
the union of two such intervals, so the last kernel reads two pixels for each column. Every kernel handles the boundary
of its own input; at the edges of the image, that is not the same as a disc of the padded image.

Reference: the application ``max_filter`` of Halide.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Domain, Image, Operator, Pipeline, Window, local, pipeline
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 12
#: The logarithm of the largest interval.
STEPS = 4
#: By distance from the centre: how far the column of the disc reaches up and down.
HEIGHTS = {dx: isqrt(REACH * REACH - dx * dx) for dx in range(-REACH, REACH + 1)}


def doubled(step: int) -> Operator[f32]:
    """The larger one of a pixel and that ``step`` rows below."""

    @local(Domain([(0, 0), (0, step)]))
    def below(src: Window[f32]) -> f32:
        return max(src[0, 0], src[0, step])

    return below


def intervals(height: int) -> tuple[int, list[int]]:
    """Two intervals of 2 ** n rows that cover the rows -height … height: n, and their first rows."""
    power = (2 * height + 1).bit_length() - 1
    return power, [-height, height + 1 - 2**power]


def offsets_of(power: int) -> list[tuple[int, int]]:
    """The pixels that the last kernel reads of the image of intervals of 2 ** power rows."""
    return [
        (dx, first)
        for dx, height in HEIGHTS.items()
        for number, firsts in [intervals(height)]
        if number == power
        for first in sorted(set(firsts))
    ]


#: By logarithm of the interval: the pixels that the last kernel reads. The one at the centre, if it needs none.
COLUMNS = [Domain(offsets_of(power) or [(0, 0)]) for power in range(STEPS + 1)]
ONE, TWO, FOUR, EIGHT, SIXTEEN = COLUMNS


@local(ONE, TWO, FOUR, EIGHT, SIXTEEN)
def disc(a: Window[f32], b: Window[f32], c: Window[f32], d: Window[f32], e: Window[f32]) -> f32:
    found = a[-12, 0]
    for dx, dy in ONE:
        found = max(found, a[dx, dy])
    for dx, dy in TWO:
        found = max(found, b[dx, dy])
    for dx, dy in FOUR:
        found = max(found, c[dx, dy])
    for dx, dy in EIGHT:
        found = max(found, d[dx, dy])
    for dx, dy in SIXTEEN:
        found = max(found, e[dx, dy])
    return found


DOUBLED = [doubled(2**power) for power in range(STEPS)]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def max_filter(src: Image[f32]) -> Image[f32]:
        images = [src]
        for operator in DOUBLED:
            images.append(operator(Accessor(images[-1], boundary)))
        return disc(*(Accessor(image, boundary) for image in images))

    return max_filter


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    images = [image]
    for power in range(STEPS):
        images.append(np.maximum(images[-1], around(images[-1], 2**power, boundary)(0, 2**power)))
    found = image
    for domain, each in zip(COLUMNS, images, strict=True):
        pixels = around(each, 2**STEPS, boundary)
        for dx, dy in domain:
            found = np.maximum(found, pixels(dx, dy))
    return found


benchmark = image_benchmark(
    Filter(
        name="max_filter",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("several kernels", "large windows with holes"),
        description="the largest pixel of a disc of 25 pixels",
    )
)
