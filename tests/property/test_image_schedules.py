"""Random schedules of random pipelines, as the searches make them: every pixel is that of naive kernels, and the
emulator finds no races.

The pipelines of `random_pipelines` have few images that can be tiled, and are small. Here windows, offsets and
boundaries are random, and there are images in which tiles of a warp are far from all edges.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import f32, i32, sqrt, types, u8
from ptxmotion.dsl.image import Accessor, Boundary, Compiled, Domain, Options, Window, graph_of, operator_from_text
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.fusion.pixel_images import with_pixel_images
from ptxmotion.dsl.image.fusion.point_copies import with_copies
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, plan_from_json
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.operators import Image, InputImage, Node
from ptxmotion.dsl.image.schedule.auto import candidates
from ptxmotion.dsl.image.schedule.shapes import shapes, with_regions
from ptxmotion.dsl.image.schedule.work import Members
from ptxmotion.emulator.backend import EmulatorBackend
from random_lanes import random_parts

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 10
SHARE = 2
#: The most pixels that one operator may read for a pixel of a result, with all its copies. nvcc unrolls loops over
#: windows, and takes a minute for a kernel that reads 1,350 pixels beyond edges.
MOST_READS = 600

SIZES = ((1, 1), (5, 3), (33, 40), (170, 45), (230, 28), (110, 90))
BOUNDARIES = (
    *(Boundary.CLAMP, Boundary.CLAMP, Boundary.MIRROR, Boundary.REFLECT, Boundary.REPEAT),
    *(Boundary.constant(3), Boundary.UNDEFINED),
)
#: Constants that are equal in comparisons and differ in their bits.
ZEROS = (Boundary.constant(0.0), Boundary.constant(-0.0))
PIXELS = {"i32": (types.I32, i32), "f32": (types.F32, f32), "u8": (types.U8, u8)}


@pytest.mark.fuzz
def test_schedules_compute_what_naive_kernels_compute(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)


def check(seed: int, graph: Graph | None = None) -> None:
    """``graph``: instead of a random one."""
    rng = random.Random(seed)
    graph = graph or random_graph(rng)
    arrays = [random_array(image, seed) for image in graph.inputs]
    nvcc = compiler()
    options = Options(nvcc=nvcc)
    expected = results(Compiled(lower(graph, "naive", options), nvcc), arrays, f"seed {seed}, naive")
    for plan in (
        random_plan(rng, graph),
        random_plan(rng, with_pixel_images(graph)),
        rng.choice(candidates(graph, options)).plan,
    ):
        if all(is_fast(group) for group in plan.groups):
            assert plan_from_json(graph, plan.to_json(), options) == plan
            message = f"seed {seed}\n{graph}\n{plan}"
            made = results(Compiled(lower_plan(plan, options, "plan"), nvcc), arrays, message)
            for got, wanted in zip(made, expected, strict=True):
                assert same_bits(got, wanted), message


def changed(rng: random.Random, graph: Graph) -> Graph:
    """The graph with images of functions, and with copies of some point operators."""
    made = with_pixel_images(graph)
    for node in graph.nodes:
        made = with_copies(made, node.name) if rng.random() < 0.5 else made
    return made


def same_bits(got: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Whether two results are equal, also in the signs of zeros."""
    is_float = got.dtype.kind == "f"
    equal = np.array_equal(got, wanted, equal_nan=is_float)
    return equal and (not is_float or np.array_equal(np.signbit(got) & (got == 0), np.signbit(wanted) & (wanted == 0)))


def results(compiled: Compiled, arrays: list[NDArray[Any]], message: str) -> list[NDArray[Any]]:
    backend = EmulatorBackend()
    made: Any = compiled(*arrays, backend=backend)
    assert backend.findings == [], f"{message}\n{backend.findings[0]}"
    return [made] if isinstance(made, np.ndarray) else list(made)


def random_graph(
    rng: random.Random,
    least: int = 2,
    most: int = 5,
    sizes: Sequence[tuple[int, int]] = SIZES,
    windowed: Callable[[random.Random, int, str, Image[Any]], Image[Any]] | None = None,
) -> Graph:
    """``least`` to ``most`` operators of windows and of pixels over one size of images and one type. ``windowed`` makes
    the operators of windows, by default `local`."""
    word = rng.choice([*PIXELS, "i32"])
    width, height = rng.choice(sizes)
    source: InputImage[Any] = InputImage("src", PIXELS[word][0], width, height)
    images: list[Image[Any]] = [source]
    for number in range(rng.randint(least, most)):
        # The newest image is read most often, so that there are long chains.
        first = images[-1] if rng.random() < 0.8 else rng.choice(images)
        images.append(
            point(rng, number, word, first, rng.choice(images))
            if rng.random() < 0.3
            else (windowed or local)(rng, number, word, first)
        )
    nodes = [image for image in images if isinstance(image, Node)]
    unread = [node for node in nodes if not any(a.image is node for each in nodes for a in each.accesses)]
    more = [node for node in nodes if node not in unread and rng.random() < 0.15]
    return graph_of("random", [*unread, *more], [source])


def point(rng: random.Random, number: int, word: str, first: Image[Any], second: Image[Any]) -> Image[Any]:
    text = f"def point{number}(a: {word}, b: {word}) -> {word}:\n"
    text += f"    return {word}(a * {rng.randint(2, 9)} - b)\n"
    return operator_from_text(text, {word: PIXELS[word][1]})(first, second)


def local(rng: random.Random, number: int, word: str, image: Image[Any]) -> Image[Any]:
    left, right, up, down = (rng.choice([0, 0, 1, 1, 2, 3]) for _ in range(4))
    domain = Domain([(dx, dy) for dx in range(-left, right + 1) for dy in range(-up, down + 1)])
    kind = "f32" if word == "f32" else "i32"
    # A function that the searches may compute once for each pixel.
    pixel = "sqrt(abs(src[dx, dy]) + 0.5)" if word == "f32" and rng.random() < 0.4 else "src[dx, dy]"
    lines = [
        f"def local{number}(src: Window[{word}]) -> {word}:",
        f"    total: {kind} = {'-0.0' if word == 'f32' else '0'}",
        f"    for dy in range({-up}, {down + 1}):",
        f"        for dx in range({-left}, {right + 1}):",
        f"            total = total * {rng.choice([3, 5])} + {pixel}",
        f"    return {word}(total & 255)" if word == "u8" else "    return total",
    ]
    names = {"Window": Window, "i32": i32, "sqrt": sqrt, word: PIXELS[word][1]}
    operator = operator_from_text("\n".join(lines) + "\n", names, domain)
    boundary = rng.choice([*BOUNDARIES, *(ZEROS if word == "f32" else ())])
    offset = (0, 0)
    if boundary is Boundary.UNDEFINED:
        # A window of one pixel reads nothing outside.
        if left or right or up or down:
            boundary = Boundary.CLAMP
    elif rng.random() < 0.25:
        offset = (rng.choice([-40, -3, 2, 5, 37]), rng.randint(-2, 2))
    return operator(Accessor(image, boundary, offset=offset))


def random_array(image: Image[Any], seed: int) -> NDArray[Any]:
    rng, shape = np.random.default_rng(seed), (int(image.height), int(image.width))
    if image.pixel is types.F32:
        return rng.random(shape, np.float32)
    return rng.integers(0, 255, shape).astype(np.uint8 if image.pixel is types.U8 else np.int32)


def random_plan(rng: random.Random, graph: Graph) -> Plan:
    """Operators that were merged at random, and a random schedule of the searches for each group. Tiles of warps and
    hybrid ones are as frequent as those of blocks. A kernel of one operator may have regions."""
    parts = random_parts(rng, graph, lambda nodes: bool(schedules(graph, nodes)))
    return Plan(graph, tuple(chosen(rng, graph, nodes) for nodes in parts))


def chosen(rng: random.Random, graph: Graph, nodes: tuple[Node[Any], ...]) -> Group:
    found = schedules(graph, nodes)
    partitioned = list(with_regions(found[0], Options()))
    if partitioned and rng.random() < 0.5:
        return rng.choice(partitioned)
    kind = rng.choice(sorted({group.kind for group in found}))
    group = rng.choice([group for group in found if group.kind == kind])
    # A plan by hand may also tile what the searches leave inline, such as images that only far accesses read.
    edited = replace(group, tiled=frozenset(node for node in nodes if rng.random() < 0.5))
    is_legal = rng.random() < 0.5 and not list(edited.problems(Options())) and is_fast(edited)
    return edited if is_legal else group


def schedules(graph: Graph, nodes: tuple[Node[Any], ...]) -> list[Group]:
    return [group for group in shapes(Members(graph, nodes, Options())) if is_fast(group)]


def is_fast(group: Group) -> bool:
    """Whether nvcc compiles the group in a short time, and the emulator computes it."""
    return all(copies * reads(node) <= MOST_READS for node, copies in group.copies(Options()).items())


def reads(node: Node[Any]) -> int:
    """The pixels that an operator reads for one of its pixels."""
    return sum(width * height for width, height in (access.extent.size for access in node.accesses))
