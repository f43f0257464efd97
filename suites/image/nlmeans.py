"""Non-local means: a mean of the pixels around, whose weights are the similarities of the patches around them.

For each offset, one kernel makes the squared differences, two kernels add them over a patch of 5 x 5 pixels, and one
makes the weight and adds it, and the weighted pixel, to the sums so far. The reference computes the same sums, with an
exponential function of double precision that is rounded.

Reference: Buades, Coll, Morel: A non-local algorithm for image denoising; the application ``nl_means`` of Halide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import exp, f32, float2
from ...dsl.image import Accessor, Boundary, Domain, Image, Operator, Pipeline, Window, local, pipeline, point
from .image_benchmark import Filter, image_benchmark, ulps
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The offsets of the pixels that are compared, and how far a patch reaches.
OFFSETS = [(dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
PATCH = 2
STEEPNESS = -16.0


def differences(dx: int, dy: int) -> Operator[f32]:
    """The squared difference of a pixel and that at an offset."""

    @local(Domain(sorted({(0, 0), (dx, dy)})))
    def difference(src: Window[f32]) -> f32:
        apart = src[0, 0] - src[dx, dy]
        return apart * apart

    return difference


@local((5, 1))
def along(src: Window[f32]) -> f32:
    return src[-2, 0] + src[-1, 0] + src[0, 0] + src[1, 0] + src[2, 0]


@local((1, 5))
def down(src: Window[f32]) -> f32:
    return src[0, -2] + src[0, -1] + src[0, 0] + src[0, 1] + src[0, 2]


def sums(dx: int, dy: int) -> Operator[float2]:
    """The sums of weights and of weighted pixels with one more pixel, that at an offset."""

    @local(Domain(sorted({(0, 0), (dx, dy)})), Domain([(0, 0)]), Domain([(0, 0)]))
    def added(src: Window[f32], distance: Window[f32], before: Window[float2]) -> float2:
        weight = exp(STEEPNESS * distance[0, 0])
        return float2(before[0, 0].x + weight, before[0, 0].y + weight * src[dx, dy])

    return added


@point
def nothing(pixel: f32) -> float2:
    return float2(0.0, 0.0)


@point
def divided(pair: float2) -> f32:
    return pair.y / pair.x


OPERATORS = [(differences(dx, dy), sums(dx, dy)) for dx, dy in OFFSETS]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def nl_means(src: Image[f32]) -> Image[f32]:
        total: Any = nothing(src)
        for difference, added in OPERATORS:
            apart = difference(Accessor(src, boundary))
            distance = down(Accessor(along(Accessor(apart, boundary)), boundary))
            total = added(Accessor(src, boundary), Accessor(distance, boundary), Accessor(total, boundary))
        return divided(total)

    return nl_means


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image, 1, boundary)
    weights, total = np.zeros(image.shape, np.float32), np.zeros(image.shape, np.float32)
    for dx, dy in OFFSETS:
        distance = (image - pixels(dx, dy)) ** 2
        for across, along_y in ((1, 0), (0, 1)):
            near = around(distance, PATCH, boundary)
            parts = [near(across * step, along_y * step) for step in range(-PATCH, PATCH + 1)]
            distance = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
        weight = np.exp((np.float32(STEEPNESS) * distance).astype(np.float64)).astype(np.float32)
        weights += weight
        total += weight * pixels(dx, dy)
    return total / weights


benchmark = image_benchmark(
    Filter(
        name="nl_means",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("several kernels", "exponential functions", "overlapped tiles"),
        description="non-local means of 3 x 3 pixels with patches of 5 x 5",
        shapes={"tiny": (41, 19)},
        tolerance=ulps(8),
    )
)
