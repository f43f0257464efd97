"""A camera pipeline: from the numbers of a sensor with a Bayer pattern to a picture, in 19 kernels.

Hot pixels are suppressed. The four colours of the pattern become images of half the size, from which the colours that
are missing at each place are interpolated. Then the colours are put together, corrected by a matrix, sharpened by their
brightness, and mapped by a curve, which is a square root here.

Reference: Adams et al.: The Frankencamera; the application ``camera_pipe`` of Halide, which interpolates in more steps.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...dsl import f32, float4, i32, sqrt, u8, u16, uchar4
from ...dsl.image import (
    Accessor,
    Boundary,
    Domain,
    Image,
    IterationSpace,
    Operator,
    Pipeline,
    Window,
    here,
    local,
    pipeline,
    point,
)
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, hills

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The largest number of the sensor.
WHITE = 1023


@local((5, 5))
def without_hot_pixels(src: Window[u16]) -> u16:
    return min(src[0, 0], max(max(src[-2, 0], src[2, 0]), max(src[0, -2], src[0, 2])))


@local((1, 1))
def every_second(src: Window[u16]) -> u16:
    return src[0, 0]


def mean(*offsets: tuple[int, int]) -> Operator[u16]:
    """The mean of pixels of one colour, rounded down."""
    count, taken = len(offsets), Domain(list(offsets))

    @local(Domain(sorted({(0, 0), *offsets})))
    def mean_of_colour(src: Window[u16]) -> u16:
        total: i32 = 0
        for dx, dy in taken:
            total += i32(src[dx, dy])
        return u16(total // count)

    return mean_of_colour


def mean_of_greens(first: tuple[int, int], second: tuple[int, int]) -> Operator[u16]:
    """The mean of two pixels of each of the two images of green."""
    a, b = (Domain(sorted({(0, 0), offset})) for offset in (first, second))

    @local(a, b)
    def green_between(one: Window[u16], other: Window[u16]) -> u16:
        total: i32 = 0
        for dx, dy in a:
            total += i32(one[dx, dy])
        for dx, dy in b:
            total += i32(other[dx, dy])
        return u16(total // 4)

    return green_between


GREEN_AT_RED, GREEN_AT_BLUE = mean_of_greens((1, 0), (0, -1)), mean_of_greens((0, 1), (-1, 0))
RED_IN_ROW, RED_IN_COLUMN = mean((-1, 0), (0, 0)), mean((0, 0), (0, 1))
RED_AT_BLUE = mean((-1, 0), (0, 0), (-1, 1), (0, 1))
BLUE_IN_COLUMN, BLUE_IN_ROW = mean((0, -1), (0, 0)), mean((0, 0), (1, 0))
BLUE_AT_RED = mean((0, -1), (1, -1), (0, 0), (1, 0))


@point
def together(a: u16, b: u16, c: u16, d: u16) -> u16:
    x, y = here()
    above = a if x % 2 == 0 else b
    below = c if x % 2 == 0 else d
    return above if y % 2 == 0 else below


@point
def corrected(red: u16, green: u16, blue: u16) -> float4:
    r = f32(red) * 0.0009775171
    g = f32(green) * 0.0009775171
    b = f32(blue) * 0.0009775171
    made_r = 1.5 * r - 0.25 * g - 0.25 * b
    made_g = 1.25 * g - 0.125 * r - 0.125 * b
    made_b = 1.5 * b - 0.125 * r - 0.375 * g
    return float4(made_r, made_g, made_b, 0.25 * made_r + 0.5 * made_g + 0.25 * made_b)


@local((3, 3))
def sharpened(src: Window[float4], amount: f32) -> float4:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy].w
    centre = src[0, 0]
    detail = amount * (centre.w - total * 0.125)
    return float4(centre.x + detail, centre.y + detail, centre.z + detail, 1.0)


@point
def curved(pixel: float4) -> uchar4:
    red = sqrt(min(max(pixel.x, 0.0), 1.0)) * 255.0
    green = sqrt(min(max(pixel.y, 0.0), 1.0)) * 255.0
    blue = sqrt(min(max(pixel.z, 0.0), 1.0)) * 255.0
    return uchar4(u8(i32(red)), u8(i32(green)), u8(i32(blue)), u8(255))


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def camera(src: Image[u16], amount: f32) -> Image[uchar4]:
        whole = without_hot_pixels(Accessor(src, boundary))
        half = IterationSpace((src.width + 1) // 2, (src.height + 1) // 2)
        gr, red, blue, gb = (
            Accessor(every_second(Accessor(whole, boundary, scale=2, offset=place), space=half), boundary)
            for place in ((0, 0), (1, 0), (0, 1), (1, 1))
        )
        reds = [RED_IN_ROW(red), red, RED_AT_BLUE(red), RED_IN_COLUMN(red)]
        greens = [gr, GREEN_AT_RED(gr, gb), GREEN_AT_BLUE(gr, gb), gb]
        blues = [BLUE_IN_COLUMN(blue), BLUE_AT_RED(blue), blue, BLUE_IN_ROW(blue)]
        full = IterationSpace(src.width, src.height)

        def interleaved(colour: list[Any]) -> Image[u16]:
            images = [each.image if isinstance(each, Accessor) else each for each in colour]
            return together(*(Accessor(image, boundary, scale=Fraction(1, 2)) for image in images), space=full)

        made = corrected(interleaved(reds), interleaved(greens), interleaved(blues))
        return curved(sharpened(Accessor(made, boundary), amount))

    return camera


def sensor(width: int, height: int, numbers: Any) -> NDArray[Any]:
    """Numbers of a sensor, with some hot pixels."""
    import numpy as np

    pixels = hills(width, height, numbers) * WHITE
    pixels[numbers.random((height, width)) < 0.01] = WHITE
    return np.asarray(pixels, np.uint16)


def reference(image: NDArray[Any], boundary: Boundary, amount: float) -> NDArray[Any]:
    import numpy as np

    pixels = around(image, 2, boundary)
    near = np.maximum(np.maximum(pixels(-2, 0), pixels(2, 0)), np.maximum(pixels(0, -2), pixels(0, 2)))
    pixels = around(np.minimum(image, near), 1, boundary)
    gr, red, blue, gb = (pixels(dx, dy)[::2, ::2].astype(np.int32) for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)))

    def average(*parts: tuple[NDArray[Any], int, int]) -> NDArray[Any]:
        return np.sum([around(each, 1, boundary)(dx, dy) for each, dx, dy in parts], axis=0) // len(parts)

    def interleaved(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> NDArray[Any]:
        height, width = image.shape
        made = np.empty((a.shape[0] * 2, a.shape[1] * 2), np.int32)
        for part, y, x in ((a, 0, 0), (b, 0, 1), (c, 1, 0), (d, 1, 1)):
            made[y::2, x::2] = part
        return made[:height, :width].astype(np.float32) * np.float32(0.0009775171)

    r = interleaved(
        average((red, -1, 0), (red, 0, 0)),
        red,
        average((red, -1, 0), (red, 0, 0), (red, -1, 1), (red, 0, 1)),
        average((red, 0, 0), (red, 0, 1)),
    )
    g = interleaved(
        gr,
        average((gr, 0, 0), (gr, 1, 0), (gb, 0, -1), (gb, 0, 0)),
        average((gr, 0, 0), (gr, 0, 1), (gb, -1, 0), (gb, 0, 0)),
        gb,
    )
    b = interleaved(
        average((blue, 0, -1), (blue, 0, 0)),
        average((blue, 0, -1), (blue, 1, -1), (blue, 0, 0), (blue, 1, 0)),
        blue,
        average((blue, 0, 0), (blue, 1, 0)),
    )
    f = np.float32
    made = [
        f(1.5) * r - f(0.25) * g - f(0.25) * b,
        f(1.25) * g - f(0.125) * r - f(0.125) * b,
        f(1.5) * b - f(0.125) * r - f(0.375) * g,
    ]
    luminance = f(0.25) * made[0] + f(0.5) * made[1] + f(0.25) * made[2]
    pixels = around(luminance, 1, boundary)
    total = np.zeros(image.shape, np.float32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            total += pixels(dx, dy)
    detail = f(amount) * (luminance - total * f(0.125))
    channels = [np.sqrt(np.clip(each + detail, f(0), f(1))) * f(255) for each in made]
    return np.stack([*channels, np.full(image.shape, 255)], axis=2).astype(np.uint8)


benchmark = image_benchmark(
    Filter(
        name="camera",
        pipeline=build,
        pixels=sensor,
        reference=reference,
        stresses=("several kernels", "images of several sizes", "integers"),
        description="a camera pipeline from a Bayer pattern to a picture",
        shapes={"tiny": (50, 20)},
        numbers={"amount": 0.5},
    )
)
