"""Depth of field from two views: pixels away from the plane in focus are blurred more, the farther they are away.

The depth of a pixel is the shift by which the two views differ least, over patches of 5 x 5 pixels. It gives the radius
of the circle over which a lens spreads the pixel. A pixel of the result is the mean of those pixels around it whose
circles reach it.

Reference: the application ``lens_blur`` of Halide. It has more shifts, smooths the depth with a pyramid, and takes
samples of the circle at random places; an operator of this package reads at fixed offsets, so here all pixels of the
circle are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl import f32, float4
from ...dsl.image import Accessor, Boundary, Domain, Image, Operator, Pipeline, Window, local, pipeline, point
from .image_benchmark import Filter, image_benchmark
from .nlmeans import along, down
from .surroundings import around, colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The shifts between the views, and the largest radius of a circle.
SHIFTS = 5
REACH = 3

DISC = Domain(
    [(dx, dy) for dy in range(-REACH, REACH + 1) for dx in range(-REACH, REACH + 1) if dx * dx + dy * dy <= REACH**2]
)


def cost_of(shift: int) -> Operator[f32]:
    """How much a pixel of one view differs from that of the other view at a shift."""

    @local(Domain([(0, 0)]), Domain([(-shift, 0)]))
    def cost(src: Window[float4], other: Window[float4]) -> f32:
        left, right = src[0, 0], other[-shift, 0]
        return abs(left.x - right.x) + abs(left.y - right.y) + abs(left.z - right.z)

    return cost


@point
def radius(a: f32, b: f32, c: f32, d: f32, e: f32, focus: f32) -> f32:
    """The radius of the circle of a pixel: how far the shift of least cost, the first of them, is from the focus."""
    least: f32 = a
    depth: f32 = 0.0
    if b < least:
        least = b
        depth = 1.0
    if c < least:
        least = c
        depth = 2.0
    if d < least:
        least = d
        depth = 3.0
    if e < least:
        depth = 4.0
    return abs(depth - focus)


@local(DISC, DISC)
def spread(src: Window[float4], circle: Window[f32]) -> float4:
    red: f32 = 0.0
    green: f32 = 0.0
    blue: f32 = 0.0
    count: f32 = 0.0
    for dx, dy in DISC:
        reached: f32 = 1.0 if f32(dx * dx + dy * dy) <= circle[dx, dy] * circle[dx, dy] else 0.0
        pixel = src[dx, dy]
        red += reached * pixel.x
        green += reached * pixel.y
        blue += reached * pixel.z
        count += reached
    return float4(red / count, green / count, blue / count, 1.0)


COSTS = [cost_of(shift) for shift in range(SHIFTS)]


def build(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def lens_blur(src: Image[float4], other: Image[float4], focus: f32) -> Image[float4]:
        costs: list[Any] = []
        for cost in COSTS:
            apart = cost(Accessor(src, boundary), Accessor(other, boundary))
            costs.append(down(Accessor(along(Accessor(apart, boundary)), boundary)))
        circle = radius(*costs, focus)
        return spread(Accessor(src, boundary), Accessor(circle, boundary))

    return lens_blur


def reference(image: NDArray[Any], boundary: Boundary, other: NDArray[Any], focus: float) -> NDArray[Any]:
    import numpy as np

    costs: list[NDArray[Any]] = []
    views = around(other, SHIFTS, boundary)
    for shift in range(SHIFTS):
        apart = abs(image - views(-shift, 0))
        cost = apart[..., 0] + apart[..., 1] + apart[..., 2]
        for across, along_y in ((1, 0), (0, 1)):
            near = around(cost, 2, boundary)
            parts = [near(across * step, along_y * step) for step in range(-2, 3)]
            cost = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
        costs.append(cost)
    circle = abs(np.argmin(costs, axis=0).astype(np.float32) - np.float32(focus))
    pixels, circles = around(image, REACH, boundary), around(circle, REACH, boundary)
    total = np.zeros(image.shape, np.float32)
    count = np.zeros(circle.shape, np.float32)
    for dx, dy in DISC:
        reached = (np.float32(int(dx) ** 2 + int(dy) ** 2) <= circles(int(dx), int(dy)) ** 2).astype(np.float32)
        total += reached[..., None] * pixels(int(dx), int(dy))
        count += reached
    total[..., 3] = count
    return total / count[..., None]


benchmark = image_benchmark(
    Filter(
        name="lens_blur",
        pipeline=build,
        pixels=colours,
        reference=reference,
        stresses=("several kernels", "vectors", "large windows", "divergence"),
        description="depth of two views, and a blur whose radius depends on it",
        numbers={"focus": 1.0},
        # The other view is independent of the first, so that every shift is the nearest somewhere.
        others={"other": colours},
    )
)
