"""Tiles of which a warp keeps a part in registers: every pixel equals that of one kernel for each operator."""

from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError, i32, u8
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Window, here, local, pipeline, point
from ptxmotion.dsl.image.groups import Group, plan_from_json
from ptxmotion.dsl.image.lowered import Options
from test_image_groups import MODES, check, hashed, mixed, placed, plan_of, random_image


@local((5, 1))
def along(src: Window[u8]) -> u8:
    total: i32 = 0
    for dx in range(-2, 3):
        total = total * 7 + src[dx, 0]
    return u8(total & 255)


@local((1, 3))
def down(src: Window[u8]) -> u8:
    return u8((src[0, -1] * 5 + src[0, 0] * 3 + src[0, 1]) & 255)


@point
def where(value: i32) -> i32:
    x, y = here()
    return value * 3 + x - y * 7


@pytest.mark.parametrize("mode", MODES)
def test_all_sources_of_pixels(mode: str) -> None:
    boundary = MODES[mode]

    @pipeline
    def four(src: Image[i32]) -> tuple[Image[i32], Image[i32]]:
        first = hashed(Accessor(src, boundary))
        second = placed(Accessor(where(first), boundary))
        return mixed(first, second), second

    graph, names = four.graph(230, 29), ["hashed", "where", "placed", "mixed"]
    # One column, some columns and all columns in registers; a result that is also in a tile. Each mode has two of them.
    plans = [
        ((1, 2), 1, ("hashed",)),
        ((3, 2), 2, ("hashed", "placed")),
        ((4, 3), 1, ("hashed", "where")),
        ((2, 1), 2, ("where", "placed")),
    ]
    first = [*MODES].index(mode)
    for pixels, in_registers, tiled in (plans[first % 4], plans[(first + 1) % 4]):
        plan = plan_of(graph, [names], tiled, (32, 2), pixels, "hybrid", in_registers)
        check(graph, plan, random_image(230, 29))
        assert plan_from_json(graph, plan.to_json(), Options()) == plan


@pytest.mark.parametrize(("pixels", "in_registers"), [((1, 2), 1), ((2, 1), 2)])
def test_a_tile_that_no_near_access_reads(pixels: tuple[int, int], in_registers: int) -> None:
    @pipeline
    def far(src: Image[i32]) -> Image[i32]:
        repeated = placed(Accessor(hashed(Accessor(src, Boundary.CLAMP)), Boundary.REPEAT))
        return mixed(repeated, placed(Accessor(src, Boundary.CLAMP)))

    graph = far.graph(170, 12)
    names = [node.name for node in graph.nodes]
    plan = plan_of(graph, [names], ("hashed",), (32, 2), pixels, "hybrid", in_registers)
    check(graph, plan, random_image(170, 12))


@pytest.mark.parametrize("mode", ["clamp", "mirror"])
def test_hybrid_tiles_of_small_images(mode: str) -> None:
    @pipeline
    def two(src: Image[i32]) -> Image[i32]:
        return placed(Accessor(hashed(Accessor(src, MODES[mode])), MODES[mode]))

    for width, height in [(1, 1), (3, 7), (70, 5)]:
        graph = two.graph(width, height)
        plan = plan_of(graph, [["hashed", "placed"]], ("hashed",), (64, 1), (2, 2), "hybrid", 1)
        check(graph, plan, random_image(width, height))


def test_windows_at_one_side_and_far_away() -> None:
    """A window at the left of its pixel, and one that is more than a warp away."""

    @pipeline
    def shifted(src: Image[i32]) -> Image[i32]:
        space = IterationSpace(300, 14)
        part = hashed(Accessor(src, Boundary.CLAMP, offset=(2, 0)), space=IterationSpace(310, 16, 3, 1))
        left = placed(Accessor(part, Boundary.CLAMP, offset=(-39, 1)), space=space)
        right = placed(Accessor(part, Boundary.CLAMP, offset=(7, -1)), space=space)
        return mixed(left, right)

    graph = shifted.graph(320, 16)
    names = ["hashed", "placed", "placed_2", "mixed"]
    for tiled in (("hashed",), ("hashed", "placed", "placed_2")):
        plan = plan_of(graph, [names], tiled, (32, 1), (4, 2), "hybrid", 3)
        check(graph, plan, random_image(320, 16))


def test_hybrid_tiles_of_bytes() -> None:
    @pipeline
    def bytes_(src: Image[u8]) -> Image[u8]:
        return along(Accessor(down(Accessor(src, Boundary.REFLECT)), Boundary.REFLECT))

    graph = bytes_.graph(140, 12)
    plan = plan_of(graph, [["down", "along"]], ("down",), (32, 2), (2, 2), "hybrid", 1)
    check(graph, plan, np.random.default_rng(1).integers(0, 256, (12, 140), np.uint8))


def test_what_is_no_hybrid_tile() -> None:
    @pipeline
    def two(src: Image[i32]) -> Image[i32]:
        return placed(Accessor(hashed(Accessor(src, Boundary.CLAMP)), Boundary.CLAMP))

    graph = two.graph(64, 64)
    tiled = frozenset(graph.nodes[:1])

    def problems(**more: Any) -> list[str]:
        chosen: dict[str, Any] = {"tiled": tiled, "block": (32, 4), "pixels": (2, 2), "kind": "hybrid", **more}
        return list(Group(graph, graph.nodes, **chosen).problems(Options()))

    assert problems(in_registers=1) == []
    assert problems() == ["hybrid tiles have 1 to 2 columns in registers, not 0"]
    assert problems(in_registers=3) == ["hybrid tiles have 1 to 2 columns in registers, not 3"]
    assert problems(in_registers=1, tiled=frozenset()) == ["hybrid tiles need operators that are tiled"]
    assert problems(in_registers=1, block=(16, 4)) == [
        "hybrid tiles need blocks whose width is a multiple of 32, not 16"
    ]
    assert problems(in_registers=1, kind="warp") == ["1 columns in registers need hybrid tiles, not tiles of a warp"]
    assert problems(in_registers=1, kind="lanes") == ["1 columns in registers need hybrid tiles, not tiles of lanes"]
    assert problems(kind="warp", block=(24, 4)) == [
        "tiles of warps need blocks that consist of rectangles of 32 threads, not 24 x 4"
    ]
    text = plan_of(graph, [["hashed", "placed"]], ("hashed",), (32, 4), (2, 2), "hybrid", 1).to_json()
    with pytest.raises(DslError, match="one of block, warp, hybrid"):
        plan_from_json(graph, text.replace("hybrid", "thread"), Options())
    with pytest.raises(DslError, match="hybrid tiles have 1 to 2 columns in registers, not 5"):
        plan_from_json(graph, text.replace('"in_registers": 1', '"in_registers": 5'), Options())
