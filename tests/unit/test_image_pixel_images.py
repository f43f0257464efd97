"""Costly functions of single pixels that get an image of their own: graphs, equal bits, and what is refused."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import exp, f32, f64, float2, log, sqrt, types
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Domain,
    Image,
    Mask,
    Window,
    here,
    local,
    operator_from_text,
    pipeline,
    point,
)
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.execution import Compiled
from ptxmotion.dsl.image.fusion.pixel_images import with_pixel_images
from ptxmotion.dsl.image.graph import Graph, graph_of
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import plan_from_json
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.operators import InputImage
from ptxmotion.dsl.image.schedule.auto import candidates, scheduled
from ptxmotion.emulator.backend import EmulatorBackend

SHIFT = 0.5
NEAR = Mask([[0.25, 0.5, 0.25]] * 3)
BOX = Domain.box(3, 3)
CLAMP = Boundary.CLAMP


@local(NEAR, Domain([(-1, 0), (2, 1)]))
def joined(src: Window[f32], other: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in NEAR:
        total += weight * log(src[dx, dy] * 2 + SHIFT)
    return total + exp(-sqrt(other[-1, 0])) + exp(-sqrt(other[2, 1]))


@point
def half(a: f32) -> f32:
    return a * 0.5


def two_operators(boundary: Boundary) -> Any:
    """The second operator reads the first one and the input; its functions are those of two windows."""

    @pipeline
    def twice(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:
        first = half(joined(Accessor(src, boundary), Accessor(src, boundary)))
        return joined(Accessor(half(src), boundary), Accessor(src, boundary)), first

    return twice


def results(lowered: Any, *arrays: NDArray[Any]) -> list[bytes]:
    backend = EmulatorBackend()
    made: Any = Compiled(lowered, compiler())(*arrays, backend=backend)
    assert backend.findings == []
    several: list[NDArray[Any]] = [made] if isinstance(made, np.ndarray) else list(made)
    return [each.tobytes() for each in several]


@pytest.mark.parametrize("boundary", [CLAMP, Boundary.REPEAT], ids=str)
def test_every_schedule_has_the_bits_of_naive_kernels(boundary: Boundary) -> None:
    graph = two_operators(boundary).graph(19, 6)
    image = np.random.default_rng(1).random((6, 19), np.float32)
    expected = results(lower(graph), image)
    for each in candidates(graph, Options()):
        assert (each.plan.graph is graph) == (each.name == "separate")
        assert plan_from_json(graph, each.plan.to_json(), Options()) == each.plan
        if each.name in ("dynamic", "greedy"):
            assert results(lower_plan(each.plan, Options(), "plan"), image) == expected, each.plan


def test_the_graph_has_an_image_of_each_function() -> None:
    graph = two_operators(CLAMP).graph(64, 32)
    made = with_pixel_images(graph)
    assert with_pixel_images(graph) is made and with_pixel_images(made) is made
    # Both operators read the same function of the same input as `other`: it is one image.
    assert sorted(node.name for node in made.nodes if node.name not in {each.name for each in graph.nodes}) == [
        "joined_other",
        "joined_src",
        "joined_src_",
    ]
    assert made.inputs == graph.inputs and [each.name for each in made.outputs] == [each.name for each in graph.outputs]
    # The point operator has the function, and the local one only reads.
    whole = lower(made, "naive").cuda
    assert whole.count("logf(") == 1 and whole.count("expf(") == 1, whole


def test_a_cheaper_kernel_is_found() -> None:
    @local(BOX)
    def mean(src: Window[f32]) -> f32:
        total: f32 = 0.0
        for dx, dy in BOX:
            total += log(src[dx, dy] + 0.5)
        return exp(total / 9.0)

    @pipeline
    def means(src: Image[f32]) -> Image[f32]:
        return mean(Accessor(src, CLAMP))

    graph = means.graph(2048, 2048)
    plan = scheduled(graph, Options(), "auto")
    (group,) = plan.groups
    assert [node.name for node in group.tiled] == ["mean_src"]


def test_other_sizes_have_the_same_kernels() -> None:
    graph = two_operators(CLAMP).graph(256, 128)
    made = with_pixel_images(graph)
    assert made.retrace is not None and graph.retrace is not None
    other = made.retrace([(512, 256)])
    assert [node.name for node in other.nodes] == [node.name for node in made.nodes]
    lowered = lower(graph, "fused")
    assert lowered.graph is made
    again = lowered.again(other)
    assert [launch.kernel.cuda for launch in again.launches] == [launch.kernel.cuda for launch in lowered.launches]


REFUSED = {
    "another read": "total += log(src[dx, dy]) + src[dx, dy]",
    "two functions": "total += log(src[dx, dy]) if dx else exp(src[dx, dy])",
    "a variable": "total += log(src[dx, dy] + total)",
    "an offset": "total += log(src[dx, dy] + dx)",
    "a number of the pipeline": "total += log(src[dx, dy] + number)",
    "a cheap function": "total += max(src[dx, dy], 0.5)",
    "no function": "total += src[dx, dy] + 0.5",
    "a coordinate": "total += log(src[dx, dy] + x)",
    "a read that is not a call's argument alone": "total += log(src[dx, dy] + src[0, 0])",
    "an array of the module": "total += log(src[dx, dy] + scale)",
}


def graph_with(statement: str, boundary: Boundary = CLAMP, pixel: str = "f32", size: int = 3) -> Graph:
    lines = [
        f"def read(src: Window[{pixel}], number: f32) -> {pixel}:",
        "    x, y = here()",
        f"    total: {pixel} = 0.0",
        f"    for dy in range({-(size // 2)}, {size // 2 + 1}):",
        f"        for dx in range({-(size // 2)}, {size // 2 + 1}):",
        f"            {statement}",
        "    return total",
    ]
    names: dict[str, object] = {
        "Window": Window,
        "f32": f32,
        "f64": f64,
        "log": log,
        "exp": exp,
        "here": here,
        "scale": np.float64(3),
    }
    operator = operator_from_text("\n".join(lines) + "\n", names, Domain.box(size, size))
    src: InputImage[Any] = InputImage("src", types.SCALARS[pixel], 20, 10)
    return graph_of("reads", [operator(Accessor(src, boundary), 1.5)], [src])


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_function_of_a_pixel_stays(why: str) -> None:
    graph = graph_with(REFUSED[why])
    assert with_pixel_images(graph) is graph


def test_constant_boundaries_other_types_and_windows_of_one_pixel_stay() -> None:
    statement = "total += log(src[dx, dy] + 0.5)"
    assert len(with_pixel_images(graph_with(statement)).nodes) == 2
    for graph in (
        graph_with(statement, Boundary.constant(1.0)),
        graph_with(statement, pixel="f64"),
        graph_with(statement, size=1),
    ):
        assert with_pixel_images(graph) is graph


def test_a_vector_stays() -> None:
    @local((3, 3))
    def lengths(src: Window[float2]) -> f32:
        return sqrt(src[0, 0].x) + sqrt(src[1, 0].x)

    @pipeline
    def one(src: Image[float2]) -> Image[f32]:
        return lengths(Accessor(src, CLAMP))

    graph = one.graph(20, 10)
    assert with_pixel_images(graph) is graph
