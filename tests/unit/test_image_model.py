"""The model of isp+m: its counts against runs of whole images, and its decisions."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Mask, Window, local, lower, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.lowering import naive_node
from ptxmotion.dsl.image.partition_model import Estimate, KernelFigures, RegionFigures, estimate, shrunk
from ptxmotion.dsl.image.partitioning import isp_node
from ptxmotion.emulator.backend import EmulatorBackend

WEIGHTS = Mask(np.ones((3, 5), np.float32))


@local(WEIGHTS)
def box(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


@point
def double(value: f32) -> f32:
    return value + value


def whole_run(graph: Any, lowering: str, options: Options) -> int:
    """The warp instructions of a run of the whole image."""
    program = lower(graph, lowering, options).program()
    backend = EmulatorBackend()
    host: dict[str, Any] = {
        image.name: np.zeros(image.width * image.height, np.float32) for image in (*graph.inputs, *graph.outputs)
    }
    program.run(backend, options.nvcc, **host)
    return backend.counts.warp_instructions


@pytest.mark.parametrize("boundary", [Boundary.CLAMP, Boundary.REPEAT], ids=str)
@pytest.mark.parametrize(("width", "height"), [(200, 45), (256, 16), (20, 50)])
def test_the_counts_are_those_of_the_whole_image(boundary: Boundary, width: int, height: int) -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, boundary))

    options = Options((64, 2), nvcc=compiler())
    graph = boxes.graph(width, height)
    found = estimate(graph.nodes[0], options)
    assert found is not None
    assert [each.lowering for each in found.kernels] == ["naive", "isp", "isp_warp"]
    for each in found.kernels:
        assert each.instructions == pytest.approx(whole_run(graph, each.lowering, options))


def test_images_are_shrunk_for_scales_too() -> None:
    @pipeline
    def half(src: Image[f32]) -> Image[f32]:
        accessor = Accessor(src, Boundary.MIRROR, scale=Fraction(3, 2))
        return box(accessor, space=IterationSpace(2 * src.width // 3, 2 * src.height // 3))

    options = Options((32, 2), nvcc=compiler())
    graph = half.graph(600, 45)
    found = estimate(graph.nodes[0], options)
    assert found is not None
    for each in found.kernels:
        assert each.instructions == pytest.approx(whole_run(graph, each.lowering, options))


@local((5, 3), (13, 1))
def of_two(a: Window[f32], b: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx in range(-2, 3):
        for dy in range(-1, 2):
            total += a[dx, dy]
    for dx in range(-6, 7):
        total += b[dx, 0]
    return total


@pytest.mark.parametrize(
    "scales", [(Fraction(1), Fraction(1)), (Fraction(1), Fraction(1, 2)), (Fraction(3, 2), 2)], ids=str
)
def test_the_kernels_of_the_smaller_image_are_the_same(scales: tuple[Fraction, Fraction]) -> None:
    @pipeline
    def both(a: Image[f32], b: Image[f32]) -> Image[f32]:
        first, second = (Accessor(each, Boundary.REPEAT, scale=by) for each, by in zip((a, b), scales, strict=True))
        return of_two(first, second, space=IterationSpace(1000, 500))

    for block in ((32, 8), (128, 1)):
        (node,) = both.graph(1400, 700).nodes
        small = shrunk(node, Options(block))
        assert small.width * small.height < node.width * node.height
        for lower_node in (naive_node, isp_node):
            real, less = (lower_node(each, "kernel", Options(block)) for each in (node, small))
            assert real.kernel.cuda == less.kernel.cuda


def test_a_kernel_without_checks_is_not_estimated() -> None:
    @pipeline
    def doubled(src: Image[f32]) -> Image[f32]:
        return double(src)

    graph = doubled.graph(64, 64)
    assert estimate(graph.nodes[0], Options()) is None
    lowered = lower(graph, "isp+m")
    assert lowered.cuda == lower(graph, "naive").cuda and lowered.launches[0].notes == ()


def test_the_decision_is_printed_and_kept_for_other_sizes() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return double(box(Accessor(src, Boundary.REPEAT)))

    lowered = lower(boxes.graph(512, 512), "isp+m", Options(nvcc=compiler()))
    text = str(lowered)
    assert "regions: tl, tr, t, bl, br, b, l, r, body" in text and "chosen: isp" in text and "gain 1.000" in text
    program = lowered.program(any_size=True)
    array = np.random.default_rng(0).random((30, 100), np.float32)
    arguments = {"src": array.ravel(), "double": np.zeros(3000, np.float32), "src_width": 100, "src_height": 30}
    made = program.run(EmulatorBackend(), compiler(), **arguments)["double"]
    assert np.array_equal(made, boxes(array, backend=EmulatorBackend()).ravel())


def figures(lowering: str, instructions: float, occupancy: float) -> KernelFigures:
    return KernelFigures(lowering, (RegionFigures("body", 1, {"add": instructions}),), 1, 32, occupancy)


def test_the_gain_weighs_instructions_against_occupancy() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.CLAMP))

    (node,) = boxes.graph(64, 64).nodes
    naive, faster, fuller = figures("naive", 100, 1.0), figures("isp", 80, 1.0), figures("isp_warp", 70, 0.5)
    found = Estimate(node, (naive, faster, fuller))
    assert (found.gain(naive), found.gain(faster)) == (1.0, 1.25)
    assert found.gain(fuller) == pytest.approx(100 / 70 * 0.5)
    assert found.best is faster
    assert replace(found, kernels=(naive, fuller)).best is naive


def test_integers_count_too() -> None:
    @local((3, 1))
    def right(src: Window[i32]) -> i32:
        return src[1, 0]

    @pipeline
    def moved(src: Image[i32]) -> Image[i32]:
        return right(Accessor(src, Boundary.constant(1)))

    found = estimate(moved.graph(300, 20).nodes[0], Options(nvcc=compiler()))
    assert found is not None
    naive, partitioned = found.kernels[:2]
    assert [each.name for each in partitioned.regions] == ["body", "r"]
    assert sum(each.blocks for each in partitioned.regions) == 10 * 3
    assert naive.regions[0].opcodes["ld"] > 0
