"""Eleven of the programs with CuPy's `fuse`, among them the applications of table 3.6 of Qiao: what is between two
paddings is one fused kernel.

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
    height, width = image.shape
    x, y = (max(abs(offset[axis]) for offset in offsets) for axis in (0, 1))
    wide = cupy.pad(image, ((y, y), (x, x)), mode="edge")
    return [wide[y + dy : y + dy + height, x + dx : x + dx + width] for dx, dy in offsets]


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


@cupy.fuse(kernel_name="mean")
def mean(*pixels: Any) -> Any:
    return weighted(pixels, [1.0] * 9) * 0.11111111


@cupy.fuse(kernel_name="third")
def third(*pixels: Any) -> Any:
    return weighted(pixels, [1.0] * 3) * 0.33333333


@cupy.fuse(kernel_name="scaled_products")
def scaled_products(*pixels: Any) -> Any:
    x = weighted(pixels, [each / 12 for each in ACROSS])
    y = weighted(pixels, [each / 12 for each in DOWN])
    return x * x, x * y, y * y


@cupy.fuse(kernel_name="summed")
def summed(*pixels: Any) -> Any:
    return weighted(pixels, [1.0] * 9)


@cupy.fuse(kernel_name="grey")
def grey(red: Any, green: Any, blue: Any) -> Any:
    return 0.299 * red + 0.587 * green + 0.114 * blue


TAPS = [each / 448 for each in (3, 27, 110, 168, 110, 27, 3)]


@cupy.fuse(kernel_name="smooth_taps")
def smooth_taps(*pixels: Any) -> Any:
    return weighted(pixels, TAPS)


@cupy.fuse(kernel_name="sharpened_colours")
def sharpened_colours(value: Any, red: Any, green: Any, blue: Any, *pixels: Any) -> Any:
    factor = (2.0 * value - weighted(pixels, TAPS)) / value
    return red * factor, green * factor, blue * factor


def _repeated(kernel: Any, count: int) -> Callable[[Array], Array]:
    def run(src: Array) -> Array:
        for _ in range(count):
            src = kernel(*views(src, NEAR))
        return src

    return run


def _unsharp(red: Array, green: Array, blue: Array) -> tuple[Array, ...]:
    value = grey(red, green, blue)
    down = smooth_taps(*views(value, [(0, step) for step in range(-3, 4)]))
    return tuple(sharpened_colours(value, red, green, blue, *views(down, [(step, 0) for step in range(-3, 4)])))


def _harris(src: Array) -> Array:
    return corner(*(summed(*views(each, NEAR)) for each in scaled_products(*views(src, NEAR))))


def _blur(src: Array) -> Array:
    across = third(*views(src, [(-1, 0), (0, 0), (1, 0)]))
    return third(*views(across, [(0, -1), (0, 0), (0, 1)]))


def _tensor(src: Array) -> list[Array]:
    return [blurred(*views(each, NEAR)) for each in products(*views(src, NEAR))]


def _night(src: Array) -> Array:
    planes = [cupy.ascontiguousarray(src[:, :, at]) for at in range(4)]
    colours = planes[:3]
    for step in (1, 2, 4, 8):
        offsets = [(dx * step, dy * step) for dx, dy in NEAR]
        colours = list(smooth(*(pixel for each in colours for pixel in views(each, offsets))))
    return cupy.stack([*tone(*colours), planes[3]], axis=2)


_OF_ONE_IMAGE: dict[str, Callable[[Array], Array]] = {
    "harris": _harris,
    "chain": _repeated(mean, 5),
    "blur": _blur,
    "stencil_chain": _repeated(blurred, 8),
    "sobel": lambda src: magnitude(*views(src, NEAR)),
    "fusion_harris": lambda src: corner(*_tensor(src)),
    "shi_tomasi": lambda src: eigenvalue(*_tensor(src)),
    "fusion_unsharp": lambda src: sharpened(*views(src, FAR)),
    "enhance": lambda src: enhanced(*views(src, NEAR)),
    "night": _night,
}
#: By name: the programs, as functions of their inputs.
FUNCTIONS: dict[str, Callable[..., Any]] = {"unsharp": _unsharp, **_OF_ONE_IMAGE}


class Arm:
    """A program with CuPy. Raises `KeyError` for other programs."""

    def __init__(self, name: str, size: int, runs: int) -> None:
        shape = (size, size, 4) if name == "night" else (size, size)
        self.function, self.runs = FUNCTIONS[name], runs
        self.inputs = [cupy.asarray(each.view("f4").reshape(shape)) for each in PROGRAMS[name].inputs(size)]

    def result(self) -> list[Any]:
        """The pixels of each output: height, width, components."""
        made: Any = self.function(*self.inputs)
        found: list[Any] = [cupy.asnumpy(each) for each in _all(made)]
        return [each.reshape(*each.shape[:2], -1) for each in found]

    def seconds(self) -> float:
        """The time of a run."""
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(self.runs):
            self.function(*self.inputs)
        last.record()
        last.synchronize()
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3 / self.runs


def _all(found: Any) -> Any:
    return (*found,) if isinstance(found, tuple) else (found,)
