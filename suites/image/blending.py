"""Two images that are joined with Laplacian pyramids: a mosaic and a spline.

A mask says where the first image is taken. ``mosaic`` takes each detail of one image or the other, by a mask whose
levels have every second pixel of the one below. ``spline`` mixes the details by the levels of a pyramid of the mask.

Reference: Burt, Adelson: A Multiresolution Spline with Application to Image Mosaics; both among the four
multiresolution filters of Qiao: Optimization Techniques for Domain-Specific Compilers, chapter 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, IterationSpace, Pipeline, Window, local, pipeline, point
from .image_benchmark import Filter, image_benchmark
from .pyramids import LEVELS, collapse, collapse_in_numpy, details, details_in_numpy, pyramid, pyramid_in_numpy
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray


@local((1, 1))
def kept(src: Window[f32]) -> f32:
    return src[0, 0]


@point
def chosen(first: f32, second: f32, mask: f32) -> f32:
    return first if mask > 0.5 else second


@point
def mixed(first: f32, second: f32, mask: f32) -> f32:
    return second + mask * (first - second)


def halved(image: Image[f32], boundary: Boundary) -> list[Image[f32]]:
    """Levels with every second pixel of the one below."""
    levels = [image]
    for _ in range(LEVELS - 1):
        space = IterationSpace((levels[-1].width + 1) // 2, (levels[-1].height + 1) // 2)
        levels.append(kept(Accessor(levels[-1], boundary, scale=2), space=space))
    return levels


def mosaic_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def mosaic(src: Image[f32], other: Image[f32], mask: Image[f32]) -> Image[f32]:
        first, second = (details(pyramid(image, boundary), boundary) for image in (src, other))
        masks = halved(mask, boundary)
        return collapse([chosen(*each) for each in zip(first, second, masks, strict=True)], boundary)

    return mosaic


def spline_pipeline(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def spline(src: Image[f32], other: Image[f32], mask: Image[f32]) -> Image[f32]:
        first, second = (details(pyramid(image, boundary), boundary) for image in (src, other))
        masks = pyramid(mask, boundary)
        return collapse([mixed(*each) for each in zip(first, second, masks, strict=True)], boundary)

    return spline


def left_half(width: int, height: int, numbers: Any) -> NDArray[Any]:
    """A mask: 1 in the left half, 0 in the right one."""
    import numpy as np

    return np.broadcast_to(np.arange(width) < width // 2, (height, width)).astype(np.float32)


def mosaic_reference(image: NDArray[Any], boundary: Boundary, other: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    bands: list[NDArray[Any]] = []
    for first, second in zip(details_in_numpy(image, boundary), details_in_numpy(other, boundary), strict=True):
        bands.append(np.where(mask > np.float32(0.5), first, second))
        mask = mask[::2, ::2]
    return collapse_in_numpy(bands, boundary)


def spline_reference(image: NDArray[Any], boundary: Boundary, other: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    first, second = details_in_numpy(image, boundary), details_in_numpy(other, boundary)
    masks = pyramid_in_numpy(mask, boundary)
    return collapse_in_numpy([b + m * (a - b) for a, b, m in zip(first, second, masks, strict=True)], boundary)


mosaic_benchmark = image_benchmark(
    Filter(
        name="mosaic",
        pipeline=mosaic_pipeline,
        pixels=hills,
        reference=mosaic_reference,
        stresses=("several resolutions", "many kernels", "small launches"),
        description="two images joined at a mask, detail by detail",
        others={"other": hills, "mask": left_half},
    )
)

spline_benchmark = image_benchmark(
    Filter(
        name="spline",
        pipeline=spline_pipeline,
        pixels=hills,
        reference=spline_reference,
        stresses=("several resolutions", "many kernels", "small launches"),
        description="two images mixed by the pyramid of a mask",
        others={"other": hills, "mask": left_half},
    )
)
