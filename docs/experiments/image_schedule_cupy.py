"""The applications of table 3.6 of Qiao with CuPy's `fuse`: what is between two paddings is one fused kernel.

`image_schedule_peers.py run --cupy` times them. They run on CuPy's stream, since graphs do not record its memory pool.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from image_schedule_programs import PROGRAMS

cupy: Any = importlib.import_module("cupy")
Array = Any
NEAR = [(dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
FAR = [(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3)]


def views(image: Array, offsets: list[tuple[int, int]]) -> list[Array]:
    """The image at each offset, where indices outside of the image are clamped."""
    (height, width), reach = image.shape, -offsets[0][0]
    wide = cupy.pad(image, reach, mode="edge")
    return [wide[reach + dy : reach + dy + height, reach + dx : reach + dx + width] for dx, dy in offsets]


def weighted(pixels: Any, weights: list[float]) -> Any:
    """The sum of pixels with weights that are not zero."""
    total: Any = 0.0
    for pixel, weight in zip(pixels, weights, strict=True):
        if weight:
            total = total + weight * pixel
    return total


ACROSS = [-1.0, 0.0, 1.0, -2.0, 0.0, 2.0, -1.0, 0.0, 1.0]
DOWN = [-1.0, -2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 1.0]
SMALL = [one * other / 16 for other in (1, 2, 1) for one in (1, 2, 1)]
LARGE = [one * other / 256 for other in (1, 4, 6, 4, 1) for one in (1, 4, 6, 4, 1)]


@cupy.fuse(kernel_name="magnitude")
def magnitude(*pixels: Any) -> Any:
    x, y = weighted(pixels, ACROSS), weighted(pixels, DOWN)
    return cupy.sqrt(x * x + y * y)


@cupy.fuse(kernel_name="products")
def products(*pixels: Any) -> Any:
    x, y = weighted(pixels, ACROSS), weighted(pixels, DOWN)
    return x * x, x * y, y * y


@cupy.fuse(kernel_name="blurred")
def blurred(*pixels: Any) -> Any:
    return weighted(pixels, SMALL)


@cupy.fuse(kernel_name="corner")
def corner(xx: Any, xy: Any, yy: Any) -> Any:
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * (trace * trace)


@cupy.fuse(kernel_name="eigenvalue")
def eigenvalue(xx: Any, xy: Any, yy: Any) -> Any:
    half = (xx - yy) * 0.5
    return (xx + yy) * 0.5 - cupy.sqrt(half * half + xy * xy)


@cupy.fuse(kernel_name="sharpened")
def sharpened(*pixels: Any) -> Any:
    centre = pixels[12]
    return cupy.minimum(cupy.maximum(centre + (centre - weighted(pixels, LARGE)) * 1.5, 0.0), 1.0)


@cupy.fuse(kernel_name="enhanced")
def enhanced(*pixels: Any) -> Any:
    total: Any = 0.0
    for pixel in pixels:
        total = total + cupy.log(pixel + 0.5)
    mean = cupy.exp(total / 9.0)
    return (cupy.exp(cupy.log(mean) * 0.8) - 0.25) / 1.25


@cupy.fuse(kernel_name="smooth")
def smooth(*pixels: Any) -> Any:
    colours = pixels[:9], pixels[9:18], pixels[18:]
    totals: list[Any] = [0.0, 0.0, 0.0]
    weights: Any = 0.0
    for at, near in enumerate(SMALL):
        x, y, z = (each[at] - each[4] for each in colours)
        weight = cupy.exp(-4.0 * (x * x + y * y + z * z)) * near
        weights = weights + weight
        totals = [total + weight * each[at] for total, each in zip(totals, colours, strict=True)]
    return totals[0] / weights, totals[1] / weights, totals[2] / weights


@cupy.fuse(kernel_name="tone")
def tone(red: Any, green: Any, blue: Any) -> Any:
    light = 0.25 * red + 0.5 * green + 0.25 * blue
    return red + 0.5 * (0.75 * light - red), green + 0.5 * (0.875 * light - green), blue + 0.5 * (1.25 * light - blue)


def _tensor(src: Array) -> list[Array]:
    return [blurred(*views(each, NEAR)) for each in products(*views(src, NEAR))]


def _night(src: Array) -> Array:
    planes = [cupy.ascontiguousarray(src[:, :, at]) for at in range(4)]
    colours = planes[:3]
    for step in (1, 2, 4, 8):
        offsets = [(dx * step, dy * step) for dx, dy in NEAR]
        colours = list(smooth(*(pixel for each in colours for pixel in views(each, offsets))))
    return cupy.stack([*tone(*colours), planes[3]], axis=2)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "sobel": lambda src: magnitude(*views(src, NEAR)),
    "fusion_harris": lambda src: corner(*_tensor(src)),
    "shi_tomasi": lambda src: eigenvalue(*_tensor(src)),
    "fusion_unsharp": lambda src: sharpened(*views(src, FAR)),
    "enhance": lambda src: enhanced(*views(src, NEAR)),
    "night": _night,
}


class Arm:
    """A program with CuPy. Raises `KeyError` for other programs."""

    def __init__(self, name: str, size: int, runs: int) -> None:
        (pixels,) = PROGRAMS[name].inputs(size)
        shape = (size, size, 4) if name == "night" else (size, size)
        self.function, self.runs = FUNCTIONS[name], runs
        self.src = cupy.asarray(pixels.view("f4").reshape(shape))

    def result(self) -> list[Any]:
        """The pixels of the output: height, width, components."""
        made = cupy.asnumpy(self.function(self.src))
        return [made.reshape(*made.shape[:2], -1)]

    def seconds(self) -> float:
        """The time of a run."""
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(self.runs):
            self.function(self.src)
        last.record()
        last.synchronize()
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3 / self.runs
