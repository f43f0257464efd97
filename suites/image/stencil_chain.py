"""A chain of eight Gaussian filters of 3 x 3 pixels, each of which reads the one before.

Reference: the application ``stencil_chain`` of Halide, which has more and larger stages; Jangda, Guha: Model-Based Warp
Overlapped Tiling for Image Processing Programs on GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32
from ...dsl.image import Accessor, Boundary, Image, Pipeline, pipeline
from .gaussian import SMALL_ROWS, blurred3, weighted
from .image_benchmark import Filter, image_benchmark
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

STAGES = 8


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def stencil_chain(src: Image[f32]) -> Image[f32]:
        for _ in range(STAGES):
            src = blurred3(Accessor(src, boundary))
        return src

    return stencil_chain


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    for _ in range(STAGES):
        image = weighted(image, SMALL_ROWS, 16, boundary)
    return image


benchmark = image_benchmark(
    Filter(
        name="stencil_chain",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("several kernels", "overlapped tiles"),
        description="eight Gaussian filters of 3 x 3 pixels, one after the other",
    )
)
