"""Multiscale interpolation: pixels with little opacity get the colours of their surroundings, in ten kernels.

A pyramid of four levels is made of the image, whose colours are multiplied by their opacity. From the coarsest level
on, each level is mixed with the one above by its opacity. At the end colours are divided by the opacity.

Reference: the application ``interpolate`` of Halide, which has more levels.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...dsl import f32, float4
from ...dsl.image import Accessor, Boundary, Image, IterationSpace, Pipeline, Window, here, local, pipeline, point
from .image_benchmark import Filter, image_benchmark
from .surroundings import around, colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = 4


@point
def weighed(pixel: float4) -> float4:
    return float4(pixel.x * pixel.w, pixel.y * pixel.w, pixel.z * pixel.w, pixel.w)


@local((3, 3))
def coarser(src: Window[float4]) -> float4:
    red: f32 = 0.0
    green: f32 = 0.0
    blue: f32 = 0.0
    opacity: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            weight: f32 = (0.5 if dx == 0 else 0.25) * (0.5 if dy == 0 else 0.25)
            pixel = src[dx, dy]
            red += weight * pixel.x
            green += weight * pixel.y
            blue += weight * pixel.z
            opacity += weight * pixel.w
    return float4(red, green, blue, opacity)


@local((3, 3))
def finer(src: Window[float4]) -> float4:
    x, y = here()
    right: f32 = 0.5 if x % 2 == 1 else 0.0
    down: f32 = 0.5 if y % 2 == 1 else 0.0
    red: f32 = 0.0
    green: f32 = 0.0
    blue: f32 = 0.0
    opacity: f32 = 0.0
    for dy in range(2):
        for dx in range(2):
            weight: f32 = (right if dx == 1 else 1.0 - right) * (down if dy == 1 else 1.0 - down)
            pixel = src[dx, dy]
            red += weight * pixel.x
            green += weight * pixel.y
            blue += weight * pixel.z
            opacity += weight * pixel.w
    return float4(red, green, blue, opacity)


@point
def mixed(own: float4, above: float4) -> float4:
    rest = 1.0 - own.w
    return float4(own.x + rest * above.x, own.y + rest * above.y, own.z + rest * above.z, own.w + rest * above.w)


@point
def divided(pixel: float4) -> float4:
    return float4(pixel.x / pixel.w, pixel.y / pixel.w, pixel.z / pixel.w, 1.0)


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def interpolate(src: Image[float4]) -> Image[float4]:
        levels: list[Any] = [weighed(src)]
        for _ in range(LEVELS - 1):
            last = levels[-1]
            space = IterationSpace((last.width + 1) // 2, (last.height + 1) // 2)
            levels.append(coarser(Accessor(last, boundary, scale=2), space=space))
        image = levels[-1]
        for level in reversed(levels[:-1]):
            space = IterationSpace(level.width, level.height)
            image = mixed(level, finer(Accessor(image, boundary, scale=Fraction(1, 2)), space=space))
        return divided(image)

    return interpolate


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    def sums(parts: list[tuple[Any, NDArray[Any]]]) -> NDArray[Any]:
        total = np.zeros(parts[0][1].shape, np.float32)
        for weight, pixels in parts:
            total += np.asarray(weight, np.float32)[..., None] * pixels
        return total

    near = [0.25, 0.5, 0.25]
    binomial = [(dx, dy, np.float32(near[dx + 1] * near[dy + 1])) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    levels = [np.concatenate([image[..., :3] * image[..., 3:], image[..., 3:]], axis=2)]
    for _ in range(LEVELS - 1):
        pixels = around(levels[-1], 1, boundary)
        levels.append(sums([(weight, pixels(dx, dy)) for dx, dy, weight in binomial])[::2, ::2])
    made = levels[-1]
    for level in reversed(levels[:-1]):
        height, width = level.shape[:2]
        y, x = np.mgrid[:height, :width]
        right, down = (np.where(each % 2 == 1, 0.5, 0.0).astype(np.float32) for each in (x, y))
        pixels = around(made, 1, boundary)
        shares = [(dx, dy, (right if dx else 1 - right) * (down if dy else 1 - down)) for dy in (0, 1) for dx in (0, 1)]
        above = sums([(share, pixels(dx, dy)[y // 2, x // 2]) for dx, dy, share in shares])
        made = level + (np.float32(1) - level[..., 3:]) * above
    return np.concatenate([made[..., :3] / made[..., 3:], np.ones_like(made[..., 3:])], axis=2)


benchmark = image_benchmark(
    Filter(
        name="interpolate",
        pipeline=build,
        pixels=colours,
        reference=reference,
        stresses=("several kernels", "images of several sizes", "vectors"),
        description="multiscale interpolation of colours by opacity, with four levels",
        shapes={"tiny": (96, 32)},
    )
)
