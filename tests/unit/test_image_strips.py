"""Strips of tiles, conflicts of banks, and tiles that are padded at the edges of images."""

import random
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Accessor, Boundary, Compiled, Image, Options, Window, here, local, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.tiling.padding import Reads
from ptxmotion.dsl.image.tiling.strips import MOST_ROWS_OF_STRIP, passes, pitch_of, strips_of
from ptxmotion.emulator.backend import EmulatorBackend

CLAMP, MIRROR = Boundary.CLAMP, Boundary.MIRROR


def test_strips_cover_a_tile_and_are_no_slower_than_single_pixels() -> None:
    rng = random.Random(1)
    for _ in range(300):
        width, height, threads = rng.randint(1, 90), rng.randint(1, 90), rng.choice([32, 128, 256, 512])
        most = rng.randint(1, MOST_ROWS_OF_STRIP)
        made = strips_of(width, height, threads, most)
        assert 1 <= made.rows <= most and (made.count - 1) * made.rows + made.last == height
        assert 1 <= made.last <= made.rows and made.rounds * threads >= width * made.count
        assert made.rounds <= strips_of(width, height, threads, 1).rounds


def test_passes_are_those_of_the_words_in_each_bank() -> None:
    rng = random.Random(2)
    for _ in range(60):
        width, count, rows, pitch = rng.randint(1, 80), rng.randint(1, 9), rng.randint(1, 8), rng.randint(80, 110)
        found: list[int] = []
        lanes = [lane // width * rows * pitch + lane % width for lane in range(width * count)]
        for first in range(0, len(lanes), 32):
            words = set(lanes[first : first + 32])
            found.append(max(sum(word % 32 == bank for word in words) for bank in range(32)))
        assert passes(width, count, rows, pitch) == pytest.approx(sum(found) / len(found))


def test_a_pitch_never_takes_more_passes() -> None:
    assert pitch_of(32, ((32, 8, 4, 10),)) == 32
    rng = random.Random(3)
    fewer = 0
    for _ in range(60):
        width = rng.randint(33, 80)
        uses = tuple((rng.randint(30, width), rng.randint(2, 9), rng.randint(2, 8), rng.randint(5, 60)) for _ in "ab")
        pitch = pitch_of(width, uses)
        before, after = (sum(n * passes(w, c, r, p) for w, c, r, n in uses) for p in (width, pitch))
        assert pitch >= width and after <= before
        fewer += after < before
    assert fewer > 20


@local((3, 3))
def box(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy]
    return total


@point
def squared(a: f32) -> f32:
    return a * a


@point
def placed(a: f32) -> f32:
    x, y = here()
    return a + f32(x) - f32(2 * y)


@point
def added(a: f32, b: f32) -> f32:
    return a + b


def graph_of(boundary: Boundary, *, middle: Any = squared, other: Boundary | None = None, size: int = 70) -> Graph:
    """A box over pixels of a box; the second box reads them with another boundary."""

    @pipeline
    def made(src: Image[f32]) -> Image[f32]:
        inner = middle(box(Accessor(src, CLAMP)))
        return added(box(Accessor(inner, boundary)), box(Accessor(inner, other or boundary)))

    return made.graph(size, 50)


def padded(graph: Graph) -> dict[str, str]:
    group = Group(graph, graph.nodes, frozenset(graph.nodes[:1]))
    found = Reads(group.nodes, Options(), frozenset(graph.nodes[:1]))
    return {node.name: str(boundary) for node, boundary in found.boundaries.items()}


def test_which_tiles_are_padded() -> None:
    assert padded(graph_of(CLAMP)) == {"box": "CLAMP"}
    assert padded(graph_of(MIRROR, other=CLAMP)) == {"box": "SYMMETRIC"}, "the boundary of the first reader"
    # The pixel outside is that of the square, and not the square of a pixel; coordinates are those of the pixel.
    assert padded(graph_of(Boundary.constant(3))) == {}
    assert padded(graph_of(CLAMP, middle=placed)) == {}


@pytest.mark.parametrize("size", [5, 70])
@pytest.mark.parametrize(
    ("boundary", "middle", "other"),
    [
        (CLAMP, squared, None),
        (MIRROR, squared, CLAMP),
        (Boundary.REFLECT, squared, None),
        (Boundary.REPEAT, squared, None),
        (Boundary.constant(3), squared, CLAMP),
        (CLAMP, placed, MIRROR),
    ],
)
def test_padded_tiles_give_the_bits_of_naive_kernels(
    boundary: Boundary, middle: Any, other: Boundary | None, size: int
) -> None:
    graph, nvcc = graph_of(boundary, middle=middle, other=other, size=size), compiler()
    plan = Plan(graph, (Group(graph, graph.nodes, frozenset(graph.nodes[:1]), (32, 2), (1, 3)),))
    image = np.random.default_rng(size).random((50, size), np.float32)
    expected = Compiled(lower(graph, "naive", Options()), nvcc)(image, backend=EmulatorBackend())
    backend = EmulatorBackend()
    made = Compiled(lower_plan(plan, Options(), "plan"), nvcc)(image, backend=backend)
    assert backend.findings == [] and np.array_equal(made, expected)


@local((3, 3))
def corner(src: Window[f32]) -> f32:
    return src[-1, -1]


def test_a_tile_is_not_padded_with_a_zero_of_another_sign() -> None:
    """Two readers of one tile: 0.0 is outside for the first, -0.0 for the second."""

    @pipeline
    def zeros(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:
        inner = squared(src)
        return corner(Accessor(inner, Boundary.constant(0.0))), corner(Accessor(inner, Boundary.constant(-0.0)))

    graph, nvcc = zeros.graph(40, 6), compiler()
    plan = Plan(graph, (Group(graph, graph.nodes, frozenset(graph.nodes[:1]), (32, 2), (1, 3)),))
    image = np.ones((6, 40), np.float32)
    expected = Compiled(lower(graph, "naive", Options()), nvcc)(image, backend=EmulatorBackend())
    made = Compiled(lower_plan(plan, Options(), "plan"), nvcc)(image, backend=EmulatorBackend())
    for got, wanted in zip(made, expected, strict=True):
        assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))
