"""Tiles of lanes: every pixel is that of naive kernels, and what they cannot compute is refused."""

from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32, float4, i32, types, u8
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Compiled,
    Domain,
    Image,
    Options,
    Window,
    here,
    local,
    lower,
    pipeline,
    point,
)
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, plan_from_json
from ptxmotion.dsl.image.schedule.shapes import shapes
from ptxmotion.dsl.image.schedule.work import Members, work_of
from ptxmotion.emulator.backend import EmulatorBackend


@local((3, 3))
def hashed(src: Window[i32]) -> i32:
    total: i32 = 0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total = total * 3 + src[dx, dy]
    return total


@local(Domain([(-2, -1), (0, 0), (1, 2)]))
def aside(src: Window[i32]) -> i32:
    return src[-2, -1] * 5 + src[0, 0] - src[1, 2]


@point
def placed(a: i32, b: i32) -> i32:
    x, y = here()
    return a * 7 + b + x * 3 + y


@local((1, 3))
def summed(src: Window[u8]) -> u8:
    return u8((src[0, -1] * 3 + src[0, 0] + src[0, 1]) & 255)


def graph_of(boundary: Boundary, width: int, height: int) -> Graph:
    @pipeline
    def two(src: Image[i32]) -> Image[i32]:
        first = hashed(Accessor(src, boundary))
        return placed(aside(Accessor(first, boundary)), src)

    return two.graph(width, height)


def lanes(graph: Graph, pixels: tuple[int, int], block: tuple[int, int] = (32, 2), tiled: Any = None) -> Group:
    chosen = Members(graph, graph.nodes, Options()).read_by_windows if tiled is None else frozenset(tiled)
    return Group(graph, graph.nodes, chosen, block, pixels, "lanes")


def check(graph: Graph, group: Group) -> None:
    nvcc, rng = compiler(), np.random.default_rng(1)
    options = Options(nvcc=nvcc)
    arrays = [
        rng.integers(0, 200, (int(image.height), int(image.width))).astype(
            np.uint8 if image.pixel is types.U8 else np.int32
        )
        for image in graph.inputs
    ]

    def results(lowered: Any) -> list[Any]:
        backend = EmulatorBackend()
        made = Compiled(lowered, nvcc)(*arrays, backend=backend)
        assert backend.findings == []
        return [made] if isinstance(made, np.ndarray) else list(made)

    got = results(lower_plan(Plan(graph, (group,)), options, "lanes"))
    for one, other in zip(got, results(lower(graph, "naive", options)), strict=True):
        assert np.array_equal(one, other), str(group)


BOUNDARIES = [Boundary.CLAMP, Boundary.MIRROR, Boundary.REFLECT, Boundary.constant(7)]


@pytest.mark.parametrize(
    ("boundary", "size", "pixels"),
    [
        (Boundary.CLAMP, (140, 7), (4, 2)),
        (Boundary.MIRROR, (66, 8), (2, 3)),
        (Boundary.REFLECT, (30, 7), (1, 6)),
        (Boundary.constant(7), (50, 6), (2, 4)),
        (Boundary.CLAMP, (3, 2), (4, 5)),
    ],
    ids=str,
)
def test_tiles_of_lanes_with_every_boundary(boundary: Boundary, size: tuple[int, int], pixels: tuple[int, int]) -> None:
    graph = graph_of(boundary, *size)
    check(graph, lanes(graph, pixels))


def test_pixels_of_one_byte_and_results_that_are_read() -> None:
    @pipeline
    def two(src: Image[u8]) -> tuple[Image[u8], Image[u8]]:
        first = summed(Accessor(src, Boundary.CLAMP))
        return first, summed(Accessor(first, Boundary.CLAMP))

    graph = two.graph(132, 6)
    check(graph, lanes(graph, (4, 4)))


def test_rows_that_are_no_whole_words() -> None:
    """The images have 67 columns, which no word of two pixels divides: every warp checks."""
    graph = graph_of(Boundary.CLAMP, 67, 5)
    group = lanes(graph, (2, 2))
    assert work_of(Members(graph, graph.nodes, Options()), group).edges == 1
    check(graph, group)


def problems(graph: Graph, group: Group) -> list[str]:
    return list(group.problems(Options()))


def test_groups_that_lanes_cannot_compute() -> None:
    graph = graph_of(Boundary.CLAMP, 100, 20)
    assert problems(graph, lanes(graph, (4, 8))) == []
    assert problems(graph, lanes(graph, (3, 8))) == ["a lane has 1, 2 or 4 columns, not 3"]
    assert problems(graph, lanes(graph, (1, 1), (16, 2))) == [
        "tiles of lanes need blocks whose width is a multiple of 32, not 16"
    ]
    untiled = problems(graph, lanes(graph, (1, 1), tiled=()))
    assert untiled == ["lanes cannot read hashed with the boundary that aside has"]
    repeated = graph_of(Boundary.REPEAT, 100, 20)
    assert problems(repeated, lanes(repeated, (1, 4))) == []


def test_what_lanes_cannot_exchange() -> None:
    @point
    def four(a: f32) -> float4:
        return float4(a, a, a, a)

    @local((3, 1))
    def beside(src: Window[float4]) -> f32:
        return src[-1, 0].x + src[1, 0].y

    @pipeline
    def vectors(src: Image[f32]) -> Image[f32]:
        return beside(Accessor(four(src), Boundary.CLAMP))

    graph = vectors.graph(64, 8)
    assert problems(graph, lanes(graph, (1, 4))) == ["lanes cannot exchange the pixels of four, which are float4"]


def test_pixels_that_are_no_words() -> None:
    """Loads and stores of neighbouring lanes would be far from each other."""

    @local((3, 1))
    def pair(src: Window[f32]) -> float4:
        return float4(src[-1, 0], src[0, 0], src[1, 0], 0.0)

    @pipeline
    def vectors(src: Image[f32]) -> Image[float4]:
        return pair(Accessor(src, Boundary.CLAMP))

    graph = vectors.graph(64, 8)
    assert problems(graph, lanes(graph, (1, 4))) == []
    assert problems(graph, lanes(graph, (2, 4))) == ["2 pixels of pair, which are float4, are no word of memory"]


def test_windows_that_are_too_wide() -> None:
    @local(Domain([(-20, 0), (0, 0), (20, 0)]))
    def wide(src: Window[i32]) -> i32:
        return src[-20, 0] + src[20, 0]

    @pipeline
    def far(src: Image[i32]) -> Image[i32]:
        return wide(Accessor(src, Boundary.CLAMP))

    graph = far.graph(300, 8)
    assert problems(graph, lanes(graph, (1, 4))) == [
        "the results need 20 lanes at their left and 20 at their right, and a warp has 32"
    ]
    assert problems(graph, lanes(graph, (2, 4))) == []


def test_in_searches_and_in_json() -> None:
    graph = graph_of(Boundary.CLAMP, 512, 256)
    members = Members(graph, graph.nodes, Options())
    found = [group for group in shapes(members) if group.kind == "lanes"]
    assert {group.pixels[0] for group in found} == {1, 2, 4}
    plan = Plan(graph, (found[0],))
    assert plan_from_json(graph, plan.to_json(), Options()) == plan
    assert "tile of lanes 27 x 2" in str(found[0]) and "1 columns of a lane" in str(found[0])


def test_work_of_lanes() -> None:
    """More columns take fewer instructions for a pixel, and more rows fewer rows besides the results."""
    graph = graph_of(Boundary.CLAMP, 2048, 2048)
    members = Members(graph, graph.nodes, Options())

    def instructions(pixels: tuple[int, int]) -> float:
        work = work_of(members, lanes(graph, pixels, (32, 4)))
        return work.instructions * work.threads * work.blocks / work.pixels

    assert instructions((4, 8)) < instructions((2, 8)) < instructions((1, 8))
    assert instructions((2, 32)) < instructions((2, 16)) < instructions((2, 8))
    assert work_of(members, lanes(graph, (2, 8))).shared == 0
