"""The night filter in five kernels: noise is removed with windows of 3, 5, 9 and 17 pixels, then colours are mapped.

The windows have holes (à trous): each has nine pixels, 1, 2, 4 and 8 pixels apart. Similar colours get more weight. The
tone mapping makes dark colours bluish, as people see them at night. The reference computes the same sums, with an
exponential function of double precision that is rounded.

Reference: Jensen, Durand, Stark, Premože, Dorsey, Shirley: Night Rendering; Qiao, Teich, Hannig: An Efficient Approach
for Image Border Handling on GPUs via Iteration Space Partitioning (one of its five filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import exp, f32, float4
from ...dsl.image import Accessor, Boundary, Image, Mask, Operator, Pipeline, Window, local, pipeline, point
from .gaussian import SMALL_ROWS
from .image_benchmark import Filter, image_benchmark, ulps
from .surroundings import around, colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = (1, 2, 4, 8)
STEEPNESS = -4.0


def with_holes(step: int) -> Operator[float4]:
    """The operator whose nine pixels are ``step`` pixels apart."""
    size = 2 * step + 1
    rows = [[0.0] * size for _ in range(size)]
    for y, row in enumerate(SMALL_ROWS):
        for x, weight in enumerate(row):
            rows[y * step][x * step] = weight / 16
    taps = Mask(rows, skip_zeros=True)

    @local(taps)
    def smooth(src: Window[float4]) -> float4:
        centre = src[0, 0]
        weights: f32 = 0.0
        red: f32 = 0.0
        green: f32 = 0.0
        blue: f32 = 0.0
        for dx, dy, nearness in taps:
            pixel = src[dx, dy]
            x = pixel.x - centre.x
            y = pixel.y - centre.y
            z = pixel.z - centre.z
            weight = exp(STEEPNESS * (x * x + y * y + z * z)) * nearness
            weights += weight
            red += weight * pixel.x
            green += weight * pixel.y
            blue += weight * pixel.z
        return float4(red / weights, green / weights, blue / weights, centre.w)

    return smooth


@point
def tone(pixel: float4, night: f32) -> float4:
    luminance = 0.25 * pixel.x + 0.5 * pixel.y + 0.25 * pixel.z
    return float4(
        pixel.x + night * (0.75 * luminance - pixel.x),
        pixel.y + night * (0.875 * luminance - pixel.y),
        pixel.z + night * (1.25 * luminance - pixel.z),
        pixel.w,
    )


OPERATORS = [with_holes(step) for step in STEPS]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def night(src: Image[float4], darkness: f32) -> Image[float4]:
        image = src
        for operator in OPERATORS:
            image = operator(Accessor(image, boundary))
        return tone(image, darkness)

    return night


def _smooth(image: NDArray[Any], step: int, boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    pixels = around(image, step, boundary)
    weights = np.zeros(image.shape[:2], np.float32)
    total = np.zeros((*image.shape[:2], 3), np.float32)
    for y, row in enumerate(SMALL_ROWS):
        for x, nearness in enumerate(row):
            pixel = pixels((x - 1) * step, (y - 1) * step)[:, :, :3]
            squares = (pixel - image[:, :, :3]) ** 2
            apart = squares[:, :, 0] + squares[:, :, 1] + squares[:, :, 2]
            closeness = np.exp((np.float32(STEEPNESS) * apart).astype(np.float64)).astype(np.float32)
            weight = closeness * np.float32(nearness / 16)
            weights += weight
            total += weight[:, :, None] * pixel
    return np.concatenate([total / weights[:, :, None], image[:, :, 3:]], axis=2)


def reference(image: NDArray[Any], boundary: Boundary, darkness: float) -> NDArray[Any]:
    import numpy as np

    for step in STEPS:
        image = _smooth(image, step, boundary)
    share = np.float32(darkness)
    one = {number: np.float32(number) for number in (0.25, 0.5, 0.75, 0.875, 1.25)}
    red, green, blue = (image[:, :, lane] for lane in range(3))
    luminance = one[0.25] * red + one[0.5] * green + one[0.25] * blue
    lanes = [
        lane + share * (one[factor] * luminance - lane) for lane, factor in ((red, 0.75), (green, 0.875), (blue, 1.25))
    ]
    return np.stack([*lanes, image[:, :, 3]], axis=2)


benchmark = image_benchmark(
    Filter(
        name="night",
        pipeline=build,
        pixels=colours,
        reference=reference,
        stresses=("exponential functions", "vector pixels", "several kernels", "windows with holes"),
        description="noise reduction with windows of 3 to 17 pixels, then tone mapping",
        tolerance=ulps(32),
        shapes={"tiny": (41, 19), "full": (2048, 2048)},
        numbers={"darkness": 0.5},
    )
)
