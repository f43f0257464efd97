"""The bilateral grid: an edge-preserving filter, computed on a coarse grid over columns, rows and brightness.

The pixels of 8 x 8 are added in the plane of the grid that belongs to their brightness, with their number. The grid is
filtered along brightness, columns and rows. Each pixel gets the value at its place in the grid, interpolated between
eight points. A plane is an image of its own, and weights that are 0 for most planes take the place of an index.

Reference: Chen, Paris, Durand: Real-time Edge-Aware Image Processing with the Bilateral Grid; the application
``bilateral_grid`` of Halide, which adds pixels in the grid where this program gathers them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...dsl import f32, float2, i32
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

#: Pixels of a cell along each axis, planes, and the weights of the filter of the grid.
CELL = 8
PLANES = 5
WEIGHTS = (1.0, 4.0, 6.0, 4.0, 1.0)


def gathered_in(plane: int) -> Operator[float2]:
    """The sum and the number of those pixels around the centre of a cell that belong to a plane."""

    @local(Domain([(dx, dy) for dy in range(-4, 4) for dx in range(-4, 4)]))
    def gathered(src: Window[f32]) -> float2:
        total: f32 = 0.0
        count: f32 = 0.0
        for dy in range(-4, 4):
            for dx in range(-4, 4):
                pixel = src[dx, dy]
                inside: f32 = 1.0 if i32(pixel * 4.0 + 0.5) == plane else 0.0
                total += inside * pixel
                count += inside
        return float2(total, count)

    return gathered


@point
def mixed(a: float2, b: float2, c: float2, d: float2, e: float2, left: f32, near: f32, far: f32, right: f32) -> float2:
    x = left * a.x + near * b.x + 6.0 * c.x + far * d.x + right * e.x
    y = left * a.y + near * b.y + 6.0 * c.y + far * d.y + right * e.y
    return float2(x, y)


@local((5, 1))
def along(src: Window[float2]) -> float2:
    x = src[-2, 0].x + 4.0 * src[-1, 0].x + 6.0 * src[0, 0].x + 4.0 * src[1, 0].x + src[2, 0].x
    y = src[-2, 0].y + 4.0 * src[-1, 0].y + 6.0 * src[0, 0].y + 4.0 * src[1, 0].y + src[2, 0].y
    return float2(x, y)


@local((1, 5))
def down(src: Window[float2]) -> float2:
    x = src[0, -2].x + 4.0 * src[0, -1].x + 6.0 * src[0, 0].x + 4.0 * src[0, 1].x + src[0, 2].x
    y = src[0, -2].y + 4.0 * src[0, -1].y + 6.0 * src[0, 0].y + 4.0 * src[0, 1].y + src[0, 2].y
    return float2(x, y)


CORNERS = Domain([(0, 0), (1, 0), (0, 1), (1, 1)])


def interpolated_in(plane: int) -> Operator[float2]:
    """The sums so far, and the value of a plane at the place of a pixel, by how near its brightness is to the plane."""

    @local(Domain([(0, 0)]), CORNERS, Domain([(0, 0)]))
    def interpolated(src: Window[f32], grid: Window[float2], before: Window[float2]) -> float2:
        x, y = here()
        right = f32(x % 8) * 0.125
        below = f32(y % 8) * 0.125
        apart = abs(src[0, 0] * 4.0 - f32(plane))
        share: f32 = 1.0 - apart if apart < 1.0 else 0.0
        upper_x = (1.0 - right) * grid[0, 0].x + right * grid[1, 0].x
        lower_x = (1.0 - right) * grid[0, 1].x + right * grid[1, 1].x
        upper_y = (1.0 - right) * grid[0, 0].y + right * grid[1, 0].y
        lower_y = (1.0 - right) * grid[0, 1].y + right * grid[1, 1].y
        total = before[0, 0].x + share * ((1.0 - below) * upper_x + below * lower_x)
        count = before[0, 0].y + share * ((1.0 - below) * upper_y + below * lower_y)
        return float2(total, count)

    return interpolated


@point
def nothing(pixel: f32) -> float2:
    return float2(0.0, 0.0)


@point
def divided(pair: float2) -> f32:
    return pair.x / pair.y


OPERATORS = [(gathered_in(plane), interpolated_in(plane)) for plane in range(PLANES)]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def bilateral_grid(src: Image[f32]) -> Image[f32]:
        cells = IterationSpace((src.width + CELL - 1) // CELL + 1, (src.height + CELL - 1) // CELL + 1)
        planes = [gathered(Accessor(src, boundary, scale=CELL), space=cells) for gathered, _ in OPERATORS]
        sums: Any = nothing(src)
        for plane, (_, interpolated) in enumerate(OPERATORS):
            near = [planes[min(max(plane + step, 0), PLANES - 1)] for step in range(-2, 3)]
            shares = [_share(plane, step) for step in (-2, -1, 1, 2)]
            grid = down(Accessor(along(Accessor(mixed(*near, *shares), boundary)), boundary))
            part = Accessor(grid, boundary, scale=Fraction(1, CELL))
            space = IterationSpace(src.width, src.height)
            sums = interpolated(Accessor(src, boundary), part, Accessor(sums, boundary), space=space)
        return divided(sums)

    return bilateral_grid


def _share(plane: int, step: int) -> float:
    """The weight of the plane at a distance; 0 if there is no such plane."""
    return WEIGHTS[step + 2] if 0 <= plane + step < PLANES else 0.0


def reference(image: NDArray[Any], boundary: Boundary) -> NDArray[Any]:
    import numpy as np

    height, width = image.shape
    rows, columns = (height + CELL - 1) // CELL + 1, (width + CELL - 1) // CELL + 1
    mode: Any = boundary.numpy_mode
    margins = [(4, CELL * rows - height + 4), (4, CELL * columns - width + 4)]
    padded = np.pad(image, margins, mode=mode)
    planes = [np.zeros((rows, columns, 2), np.float32) for _ in range(PLANES)]
    for plane, sums in enumerate(planes):
        for dy in range(-4, 4):
            for dx in range(-4, 4):
                part = padded[4 + dy :, 4 + dx :][: CELL * rows : CELL, : CELL * columns : CELL]
                inside = ((part * np.float32(4) + np.float32(0.5)).astype(np.int32) == plane).astype(np.float32)
                sums += np.stack([inside * part, inside], axis=2)
    y, x = np.mgrid[:height, :width]
    right, below = (((each % CELL) * 0.125).astype(np.float32)[..., None] for each in (x, y))
    one, total = np.float32(1), np.zeros((height, width, 2), np.float32)
    for plane in range(PLANES):
        near = [planes[min(max(plane + step, 0), PLANES - 1)] for step in range(-2, 3)]
        grid = _weighted(near, [_share(plane, step) for step in range(-2, 3)])
        for across, along_y in ((1, 0), (0, 1)):
            pixels = around(grid, 2, boundary)
            grid = _weighted([pixels(across * step, along_y * step) for step in range(-2, 3)], WEIGHTS)
        corner = around(grid, 1, boundary)
        values = {(dx, dy): corner(dx, dy)[y // CELL, x // CELL] for dx in (0, 1) for dy in (0, 1)}
        upper, lower = ((one - right) * values[0, dy] + right * values[1, dy] for dy in (0, 1))
        apart = abs(image * np.float32(4) - np.float32(plane))[..., None]
        share = np.where(apart < 1, one - apart, np.float32(0))
        total += share * ((one - below) * upper + below * lower)
    return total[..., 0] / total[..., 1]


def _weighted(parts: Any, weights: Any) -> NDArray[Any]:
    """The sum of images with their weights, from the first to the last."""
    import numpy as np

    total = np.float32(weights[0]) * parts[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + np.float32(weight) * part
    return total


benchmark = image_benchmark(
    Filter(
        name="bilateral_grid",
        pipeline=build,
        pixels=hills,
        reference=reference,
        stresses=("several kernels", "images of several sizes", "large windows"),
        description="edge-preserving filter on a grid over place and brightness, with five planes",
    )
)
