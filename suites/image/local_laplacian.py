"""The local Laplacian filter: tone mapping that keeps edges, with a pyramid for each of five levels of brightness.

For each level of brightness, a curve amplifies what is near this level, and a Laplacian pyramid is made of the result.
Each coefficient of the output's pyramid is taken from the pyramids of the two levels of brightness next to the input
at this place. The reference computes the same sums, with an exponential function of double precision that is rounded.

Reference: Paris, Hasinoff, Kautz: Local Laplacian Filters; the application ``local_laplacian`` of Halide, which has
colours and more levels, and reads the curve from a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import exp, f32
from ...dsl.image import Boundary, Image, Operator, Pipeline, pipeline, point
from ..registry import Tolerance
from .image_benchmark import Filter, image_benchmark
from .pyramids import collapse, collapse_in_numpy, details, details_in_numpy, pyramid, pyramid_in_numpy
from .surroundings import hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Levels of brightness, and of each pyramid.
BRIGHTNESS = 5
LEVELS = 4


def curve_at(level: int) -> Operator[f32]:
    """The curve that amplifies what is near a level of brightness."""

    @point
    def curve(pixel: f32, alpha: f32, beta: f32) -> f32:
        centre = f32(level) * 0.25
        apart = pixel * 4.0 - f32(level)
        return beta * (pixel - centre) + centre + alpha * apart * exp(apart * apart * -0.5)

    return curve


@point
def chosen(pixel: f32, a: f32, b: f32, c: f32, d: f32, e: f32) -> f32:
    """The value between those of the two levels of brightness next to a pixel."""
    place = pixel * 4.0
    total: f32 = 0.0
    total += (1.0 - abs(place) if abs(place) < 1.0 else 0.0) * a
    total += (1.0 - abs(place - 1.0) if abs(place - 1.0) < 1.0 else 0.0) * b
    total += (1.0 - abs(place - 2.0) if abs(place - 2.0) < 1.0 else 0.0) * c
    total += (1.0 - abs(place - 3.0) if abs(place - 3.0) < 1.0 else 0.0) * d
    total += (1.0 - abs(place - 4.0) if abs(place - 4.0) < 1.0 else 0.0) * e
    return total


CURVES = [curve_at(level) for level in range(BRIGHTNESS)]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def local_laplacian(src: Image[f32], alpha: f32, beta: f32) -> Image[f32]:
        inputs = pyramid(src, boundary, LEVELS)
        bands = [details(pyramid(curve(src, alpha, beta), boundary, LEVELS), boundary) for curve in CURVES]
        return collapse([chosen(*each) for each in zip(inputs, *bands, strict=True)], boundary)

    return local_laplacian


def reference(image: NDArray[Any], boundary: Boundary, alpha: float, beta: float) -> NDArray[Any]:
    import numpy as np

    one, four, zero = np.float32(1), np.float32(4), np.float32(0)
    inputs = pyramid_in_numpy(image, boundary, LEVELS)
    made = [np.zeros(each.shape, np.float32) for each in inputs]
    for level in range(BRIGHTNESS):
        centre, apart = np.float32(level / 4), image * four - np.float32(level)
        near = np.exp((apart * apart * np.float32(-0.5)).astype(np.float64)).astype(np.float32)
        curve = np.float32(beta) * (image - centre) + centre + np.float32(alpha) * apart * near
        for total, pixel, band in zip(made, inputs, details_in_numpy(curve, boundary, LEVELS), strict=True):
            distance = abs(pixel * four - np.float32(level))
            total += np.where(distance < 1, one - distance, zero) * band
    return collapse_in_numpy(made, boundary)


benchmark = image_benchmark(
    Filter(
        name="local_laplacian",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("several resolutions", "many kernels", "small launches", "exponential functions"),
        description="tone mapping with a Laplacian pyramid for each of five levels of brightness",
        tolerance=Tolerance(relative=2.0**-20, absolute=2.0**-22),
        numbers={"alpha": 0.25, "beta": 0.75},
    )
)
