"""Iteration space partitioning: every pixel equals the naive one, and regions check no more than they need."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from image_modes import MODES
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, f32, float2, i32, u8, uchar4
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Window, graph_of, local, lower, pipeline
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.operators import InputImage
from ptxmotion.dsl.image.partitioning import axes_of
from ptxmotion.dsl.image.windows import layout_of, pixel_type
from ptxmotion.dsl.types import dtype_of_type
from ptxmotion.emulator.backend import EmulatorBackend


@local((5, 3))
def hashed(src: Window[i32]) -> i32:
    total: i32 = 0
    for dy in range(-1, 2):
        for dx in range(-2, 3):
            total = total * 31 + src[dx, dy]
    return total


@local((17, 1))
def hashed_row(src: Window[i32]) -> i32:
    total: i32 = 0
    for dx in range(-8, 9):
        total = total * 31 + src[dx, 0]
    return total


def random_image(width: int, height: int) -> NDArray[Any]:
    return np.random.default_rng(3).integers(-1000, 1000, (height, width), np.int32)


@pytest.mark.parametrize("mode", MODES)
def test_every_pixel_equals_that_of_the_naive_kernel(mode: str) -> None:
    boundary = MODES[mode]

    @pipeline
    def both(src: Image[i32]) -> tuple[Image[i32], Image[i32]]:
        return hashed(Accessor(src, boundary)), hashed_row(Accessor(src, boundary))

    backend = EmulatorBackend()
    # One pixel; a block at both edges; exactly two blocks; a part of a block at the edge; all nine regions.
    for width, height in [(1, 1), (3, 7), (64, 4), (70, 5), (128, 6), (200, 13)]:
        array = random_image(width, height)
        naive = both.compile((height, width), block=(64, 2))(array, backend=backend)
        lowerings = [("isp", (16, 4), False), ("isp_warp", (64, 2), False), ("isp_rows", (32, 2), False)]
        if mode == "repeat" or width > 100:  # elsewhere, `loops` changes nothing
            lowerings.append(("isp", (64, 2), True))
        for lowering, block, loops in lowerings:
            made = both.compile((height, width), lowering=lowering, block=block, loops=loops)(array, backend=backend)
            for got, expected in zip(made, naive, strict=True):
                assert np.array_equal(got, expected), (width, height, lowering)


@local((5, 3))
def smallest(src: Window[f32]) -> f32:
    total: f32 = src[-2, -1]
    for dy in range(-1, 2):
        for dx in range(-2, 3):
            total = src[dx, dy] if src[dx, dy] < total else total
    return total


@local((3, 5))
def pairs(src: Window[float2]) -> float2:
    first: f32 = 0.0
    second: f32 = 1.0
    for dy in range(-2, 3):
        for dx in range(-1, 2):
            first = first * 0.5 + src[dx, dy].x
            second = second * 0.5 - src[dx, dy].y
    return float2(first, second)


@local((5, 5))
def bytes_above(src: Window[uchar4]) -> uchar4:
    lowest: i32 = 300
    highest: i32 = 0
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            lowest = min(lowest, i32(src[dx, dy].x) * 2 - i32(src[dx, dy].w))
            highest = max(highest, i32(src[dx, dy].y) + i32(src[dx, dy].z))
    return uchar4(u8(lowest & 255), u8(highest & 255), u8(lowest & 15), u8(highest & 15))


#: By name: an operator, the constant, and its pixels.
CONSTANTS: dict[str, tuple[Any, Any, Any]] = {
    "nan": (smallest, float("nan"), f32),
    "pair": (pairs, (2.5, -0.0), float2),
    "bytes": (bytes_above, (255, 0, 7, 1), uchar4),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_have_the_bits_of_the_naive_kernel(name: str) -> None:
    operator, value, word = CONSTANTS[name]
    pixel = pixel_type(word)
    dtype, lanes = layout_of(pixel)
    drawn, nvcc = np.random.default_rng(5), compiler()
    # One pixel, images that are smaller than the window, and all regions. A read outside of an image is an error here.
    for width, height in [(1, 1), (9, 2), (70, 9)]:
        source: InputImage[Any] = InputImage("src", pixel, width, height)
        graph = graph_of("filtered", [operator(Accessor(source, Boundary.constant(value)))], [source])
        array = (drawn.random(width * height * lanes) * 200 - (100 if dtype.kind == "f" else 0)).astype(dtype)
        array = array.view(dtype_of_type(pixel))
        results: list[bytes] = []
        for lowering, block in (("naive", (32, 2)), ("isp", (16, 4)), ("isp_warp", (64, 2)), ("isp_rows", (32, 2))):
            host: dict[str, Any] = {"src": array, graph.outputs[0].name: np.zeros_like(array)}
            made = lower(graph, lowering, Options(block, nvcc=nvcc)).program().run(EmulatorBackend(), nvcc, **host)
            results.append(made[graph.outputs[0].name].tobytes())
        assert len(set(results)) == 1, (width, height)
        assert any(results[0])


def regions(graph: Any, lowering: str, block: tuple[int, int]) -> list[str]:
    return [note for launch in lower(graph, lowering, Options(block)).launches for note in launch.notes]


@pipeline
def clamped(src: Image[i32]) -> Image[i32]:
    return hashed(Accessor(src, Boundary.CLAMP))


def test_regions_by_size() -> None:
    nine = ["regions: tl, tr, t, bl, br, b, l, r, body"]
    assert regions(clamped.graph(64, 64), "isp", (16, 4)) == nine
    assert regions(clamped.graph(16, 64), "isp", (16, 4)) == ["regions: tlr, blr, lr"], "a block is left and right"
    assert regions(clamped.graph(64, 4), "isp", (16, 4)) == ["regions: tbl, tbr, tb"], "a block is at the top and below"
    assert regions(clamped.graph(16, 4), "isp", (16, 4)) == ["regions: tblr"]
    assert regions(clamped.graph(100, 64), "isp_warp", (128, 2)) == nine, "a block is at both edges, but no warp is"
    assert regions(clamped.graph(20, 64), "isp_warp", (128, 2)) == ["regions: tlr, blr, lr"]


def test_bounds_are_rounded_up_at_the_left_and_at_the_top() -> None:
    (node,) = clamped.graph(64, 30).nodes
    x, y = axes_of(node, Options((16, 4)))
    assert (x.low_end, x.high_start, y.low_end, y.high_start) == (2, 62, 1, 29)
    assert (x.low_blocks(), x.high_block(), y.low_blocks(), y.high_block()) == (1, 3, 1, 7)


def test_bounds_are_exact_for_scales_and_offsets() -> None:
    """The bounds against a test of each pixel."""
    for scale in (Fraction(1), Fraction(2), Fraction(3, 2), Fraction(1, 2), Fraction(2, 3)):
        for offset in (-3, 0, 4):
            for start, count in ((0, 12), (3, 40), (-4, 9)):
                if start < 0 and scale.denominator > 1:
                    continue

                @pipeline
                def part(src: Image[i32]) -> Image[i32]:
                    accessor = Accessor(src, Boundary.CLAMP, scale=(scale, 1), offset=(offset, 0))  # noqa: B023
                    return hashed(accessor, space=IterationSpace(count, 5, x0=start))  # noqa: B023

                (node,) = part.graph(21, 30).nodes
                axis = axes_of(node, Options())[0]
                centre = node.accesses[0].centres[0]
                low = [centre(start + i) - 2 < 0 for i in range(count)]
                high = [centre(start + i) + 2 >= 21 for i in range(count)]
                assert axis.low_end == (sum(low) if any(low) else None)
                assert axis.high_start == (count - sum(high) if any(high) else None)


def test_regions_check_only_their_edges() -> None:
    cuda = lower(clamped.graph(64, 64), "isp", Options((16, 4))).cuda
    body = cuda[cuda.index("load_src_body(int") :].partition("}")[0]
    assert "clamp" not in body
    corner = cuda[cuda.index("load_src_tl(int") :].partition("}")[0]
    assert "src[clamp_low(y, src_height) * src_width + clamp_low(x, src_width)]" in corner


def test_a_point_operator_has_no_regions() -> None:
    @pipeline
    def inside(src: Image[i32]) -> Image[i32]:
        return hashed(Accessor(src, Boundary.CLAMP), space=IterationSpace(8, 8, x0=4, y0=4))

    graph = inside.graph(64, 64)
    assert lower(graph, "isp", Options()).cuda == lower(graph, "naive", Options()).cuda


def test_warps_need_blocks_of_warps() -> None:
    with pytest.raises(DslError, match="isp_warp needs blocks whose width is a multiple of 32, not 16"):
        lower(clamped.graph(64, 64), "isp_warp", Options((16, 4)))
