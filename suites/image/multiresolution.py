"""Filters of several resolutions: gradients of all levels, and a Laplacian pyramid whose details are amplified.

``gradients`` computes the gradient of each level of a pyramid, and adds them from the coarsest level on. ``laplacian``
amplifies weak details more than strong ones in each band of a Laplacian pyramid, and builds the image again.

Reference: Qiao: Optimization Techniques for Domain-Specific Compilers, chapter 4 (gradient and Laplacian, two of its
four multiresolution filters); Burt, Adelson: The Laplacian Pyramid as a Compact Image Code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32, sqrt
from ...dsl.image import Accessor, Boundary, Image, Pipeline, Window, local, pipeline, point
from .image_benchmark import Filter, image_benchmark
from .pyramids import (
    collapse,
    collapse_in_numpy,
    details,
    details_in_numpy,
    expand,
    expand_in_numpy,
    pyramid,
    pyramid_in_numpy,
)
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray


@local((3, 3))
def slope(src: Window[f32]) -> f32:
    across = src[1, 0] - src[-1, 0]
    down = src[0, 1] - src[0, -1]
    return sqrt(across * across + down * down)


@point
def merged(fine: f32, coarse: f32, share: f32) -> f32:
    return fine + share * coarse


@point
def amplified(detail: f32, gain: f32) -> f32:
    return detail + gain * detail / (1.0 + 16.0 * abs(detail))


def gradients_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def gradients(src: Image[f32], share: f32) -> Image[f32]:
        slopes = [slope(Accessor(level, boundary)) for level in pyramid(src, boundary)]
        made = slopes[-1]
        for each in reversed(slopes[:-1]):
            made = merged(each, expand(made, each, boundary), share)
        return made

    return gradients


def laplacian_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def laplacian(src: Image[f32], gain: f32) -> Image[f32]:
        *fine, last = details(pyramid(src, boundary), boundary)
        return collapse([*(amplified(each, gain) for each in fine), last], boundary)

    return laplacian


def gradients_reference(image: NDArray[Any], boundary: Boundary, share: float) -> NDArray[Any]:
    import numpy as np

    made: NDArray[Any] | None = None
    for level in reversed(pyramid_in_numpy(image, boundary)):
        pixels = around(level, 1, boundary)
        across, down = pixels(1, 0) - pixels(-1, 0), pixels(0, 1) - pixels(0, -1)
        one = np.sqrt(across * across + down * down)
        made = one if made is None else one + np.float32(share) * expand_in_numpy(made, one.shape, boundary)
    assert made is not None
    return made


def laplacian_reference(image: NDArray[Any], boundary: Boundary, gain: float) -> NDArray[Any]:
    import numpy as np

    *fine, last = details_in_numpy(image, boundary)
    one, sixteen = np.float32(1), np.float32(16)
    more = [each + np.float32(gain) * each / (one + sixteen * abs(each)) for each in fine]
    return collapse_in_numpy([*more, last], boundary)


gradients_benchmark = image_benchmark(
    Filter(
        name="gradients",
        pipeline=gradients_pipeline,
        pixels=hills,
        reference=gradients_reference,
        stresses=("several resolutions", "many kernels", "small launches"),
        description="gradients of the levels of a pyramid",
        numbers={"share": 0.5},
    )
)

laplacian_benchmark = image_benchmark(
    Filter(
        name="laplacian",
        pipeline=laplacian_pipeline,
        pixels=hills,
        reference=laplacian_reference,
        stresses=("several resolutions", "many kernels", "small launches"),
        description="details amplified in a Laplacian pyramid",
        numbers={"gain": 1.5},
    )
)
