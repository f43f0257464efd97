"""Random pipelines and plans for tiles of lanes: types of pixels, several inputs, odd sizes, and any legal tiles.

The pipelines of `test_image_schedules` have one input and one type, and images of six sizes. Here each image has a type
of its own (integers of 1 to 8 bytes, f32, f64, and vectors as inputs); operators read several images, constants and
their coordinates; results may cover a part of the image only; and widths are rarely multiples of a word.

Plans are not those of the searches: a group has any tiled operators, columns, rows and blocks that are legal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, f32, f64, float4, i8, i16, i32, i64, sqrt, types, u8, u16, u32, u64, uchar4
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Domain,
    IterationSpace,
    Options,
    Window,
    graph_of,
    here,
    operator_from_text,
)
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.groups import Group, Plan, groups_of
from ptxmotion.dsl.image.operators import Image, InputImage, Node
from ptxmotion.dsl.image.schedule.shapes import Shape, shapes
from ptxmotion.dsl.image.schedule.work import Members, work_of
from ptxmotion.dsl.image.tiling.lane_layout import COLUMNS
from ptxmotion.dsl.image.windows import layout_of

__all__ = ["random_array", "random_graph", "random_parts", "random_plan"]

#: The most instructions of a kernel by the model, and the most pixels of a window that are read, so that kernels are
#: compiled in a short time.
MOST_CODE, MOST_READS = 1500, 7

_WORDS: dict[str, Any] = {
    "i8": i8, "i16": i16, "i32": i32, "i64": i64, "u8": u8, "u16": u16, "u32": u32, "u64": u64, "f32": f32, "f64": f64,
}  # fmt: skip
_VECTORS: dict[str, Any] = {"uchar4": uchar4, "float4": float4}
_NAMES: dict[str, object] = {**_WORDS, **_VECTORS, "Window": Window, "here": here, "sqrt": sqrt}
#: Types of pixels: those with four bytes are the most frequent ones.
_COMMON = ("i32", "f32", "i32", "f32", *_WORDS)
_ROWS = (1, 2, 3, 4, 5, 7, 8, 13, 16)
_BLOCKS = ((32, 1), (32, 2), (32, 4), (64, 1), (64, 2), (96, 1), (128, 1))
#: Shapes that are tried for groups that are not computed by lanes.
_OTHERS = (
    Shape("block", (32, 8), (1, 2)),
    Shape("block", (32, 4), (1, 8)),
    Shape("warp", (32, 4), (2, 4)),
    Shape("hybrid", (32, 4), (2, 8), 1),
)


def random_graph(rng: random.Random) -> Graph:
    """A few operators over images of about one size."""
    width, height = _size(rng)
    inputs: list[InputImage[Any]] = []
    for number in range(rng.choice([1, 1, 2, 3])):
        word = rng.choice([*_COMMON, *_COMMON, *_VECTORS])
        more = (rng.randint(-2, 3), rng.randint(-2, 3)) if rng.random() < 0.15 else (0, 0)
        extents = max(1, width + more[0]), max(1, height + more[1])
        inputs.append(InputImage(f"src{number}", _type_of(word), *extents))
    images: list[Image[Any]] = [*inputs]
    space = IterationSpace(width, height)
    if rng.random() < 0.15:
        space = IterationSpace(rng.randint(1, width), rng.randint(1, height), rng.randint(0, 3), rng.randint(0, 3))
    for number in range(rng.randint(1, 4)):
        images.append(_node(rng, number, images, len(inputs), space))
    nodes = [image for image in images if isinstance(image, Node)]
    read = {access.image for node in nodes for access in node.accesses}
    results = [node for node in nodes if node not in read or rng.random() < 0.15]
    return graph_of("random", results, [image for image in inputs if image in read])


def _size(rng: random.Random) -> tuple[int, int]:
    """Small images, and images in which warps are far from all edges. Most widths are odd."""
    width = rng.choice([rng.randint(1, 40), rng.randint(20, 90) * 2 + 1, rng.randint(60, 150) * 2 + 1])
    if rng.random() < 0.35:
        width = rng.choice([2, 4, 6, 8]) * rng.randint(1, 40)
    return width, rng.choice([1, 2, 5, rng.randint(3, 20), rng.randint(20, 40)])


def _type_of(word: str) -> Any:
    value = _NAMES[word]
    return getattr(value, "__ptxmotion_struct__", value)


def _node(rng: random.Random, number: int, images: list[Image[Any]], inputs: int, space: IterationSpace) -> Node[Any]:
    """An operator that reads one to three images, the newest one most often."""
    chosen: list[Image[Any]] = [images[-1] if len(images) > inputs and rng.random() < 0.75 else rng.choice(images)]
    chosen += [rng.choice(images) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    word = rng.choice(_COMMON)
    total = word if word in ("f32", "f64", "i64", "u64") else "i32"
    lines = [f"total: {total} = {total}({rng.choice(['0', '1', '3'])})"]
    if rng.random() < 0.25:
        lines += ["x, y = here()", f"total = total + {total}(x * 3 - y)"]
    params: list[str] = []
    windows: list[Domain] = []
    accessors: list[Accessor[Any]] = []
    for at, image in enumerate(chosen):
        domain, accessor = _read(rng, image)
        windows.append(domain)
        accessors.append(accessor)
        params.append(f"a{at}: Window[{image.pixel}]")
        lines += _sum(rng, f"a{at}", f"D{at}", image, total)
    if word in ("f32", "f64") and rng.random() < 0.2:
        lines.append("total = sqrt(abs(total))")
    lines.append(f"return {word}(total)")
    text = "\n".join([f"def op{number}({', '.join(params)}) -> {word}:", *(f"    {line}" for line in lines)]) + "\n"
    names = {**_NAMES, **{f"D{at}": domain for at, domain in enumerate(windows)}}
    made = operator_from_text(text, names, *windows)(*accessors, space=space)
    assert isinstance(made, Node)
    return made


def _sum(rng: random.Random, name: str, domain: str, image: Image[Any], total: str) -> list[str]:
    """Add the pixels of a window to ``total``."""
    pixel = f"{name}[dx, dy]"
    if isinstance(image.pixel, types.Struct):
        pixel = f"{pixel}.{rng.choice('xyzw')}"
    factor = rng.choice(["3", "5", "2"]) if total[0] != "f" else rng.choice(["0.5", "0.75"])
    sign = rng.choice("+-")
    return [f"for dx, dy in {domain}:", f"    total = total * {factor} {sign} {total}({pixel})"]


def _read(rng: random.Random, image: Image[Any]) -> tuple[Domain, Accessor[Any]]:
    """A window, and how the image is read."""
    left, right, up, down = (rng.choice([0, 0, 0, 1, 1, 2, 3]) for _ in range(4))
    offsets = [(dx, dy) for dy in range(-up, down + 1) for dx in range(-left, right + 1)]
    if len(offsets) > MOST_READS or rng.random() < 0.3:
        offsets = rng.sample(offsets, rng.randint(1, min(MOST_READS, len(offsets))))
    zero: Any = rng.choice([0, 7]) if layout_of(image.pixel)[1] == 1 else (1, 2, 3, 4)
    kinds = [Boundary.CLAMP, Boundary.CLAMP, Boundary.MIRROR, Boundary.REFLECT, Boundary.constant(zero)]
    boundary = rng.choice([*kinds, Boundary.REPEAT])
    if rng.random() < 0.06:
        return Domain(offsets), Accessor(image, boundary, scale=(rng.choice([2, Fraction(1, 2)]), 1))
    moved = rng.random() < 0.2
    offset = (rng.choice([-30, -3, 1, 2, 5]), rng.randint(-2, 2)) if moved else (0, 0)
    return Domain(offsets), Accessor(image, boundary, offset=offset)


def random_array(image: Image[Any], seed: int) -> NDArray[Any]:
    """Pixels of an image; floats are multiples of a power of two and of both signs."""
    rng = np.random.default_rng(seed)
    dtype, lanes = layout_of(image.pixel)
    shape = (int(image.height), int(image.width)) + ((lanes,) if lanes > 1 else ())
    if dtype.kind == "f":
        return (rng.integers(-4096, 4096, shape) / 64).astype(dtype)
    bits = np.iinfo(dtype)
    return rng.integers(bits.min, bits.max, shape, dtype=dtype, endpoint=True)


def random_parts(
    rng: random.Random, graph: Graph, is_possible: Callable[[tuple[Node[Any], ...]], bool]
) -> list[tuple[Node[Any], ...]]:
    """The operators of a graph, merged at random as long as one kernel can compute each part."""
    parts: list[list[Node[Any]]] = [[node] for node in graph.nodes]
    for _ in range(4 * len(parts)):
        if len(parts) < 2:
            break
        first, second = rng.sample(parts, 2)
        merged = [[*first, *second], *(part for part in parts if part not in (first, second))]
        try:
            groups = groups_of(graph, merged)
        except DslError:
            continue
        if all(is_possible(nodes) for nodes in groups):
            parts = merged
    return groups_of(graph, parts)


def random_plan(rng: random.Random, graph: Graph, options: Options) -> Plan:
    """Operators that were merged at random. Most groups whose operators lanes can compute have tiles of lanes."""
    known: dict[tuple[Node[Any], ...], Group | None] = {}

    def group_of(nodes: tuple[Node[Any], ...]) -> Group | None:
        if nodes not in known:
            known[nodes] = _group(rng, graph, nodes, options)
        return known[nodes]

    parts = random_parts(rng, graph, lambda nodes: group_of(nodes) is not None)
    made = [group_of(nodes) for nodes in parts]
    assert None not in made, "every operator has a kernel"
    return Plan(graph, tuple(group for group in made if group is not None))


def _group(rng: random.Random, graph: Graph, nodes: tuple[Node[Any], ...], options: Options) -> Group | None:
    """A legal group of these operators. None if none was found."""
    if rng.random() < 0.85:
        for _ in range(6):
            group = _of_lanes(rng, graph, nodes, options)
            if _is_legal(group, options):
                return group
    tried = shapes(Members(graph, nodes, options), _OTHERS) if len(nodes) > 1 else [Group(graph, nodes)]
    others = [each for each in tried if len(nodes) == 1 or _is_legal(each, options)]
    return rng.choice(others) if others else None


def _of_lanes(rng: random.Random, graph: Graph, nodes: tuple[Node[Any], ...], options: Options) -> Group:
    windowed = Members(graph, nodes, options).read_by_windows
    more = frozenset(node for node in nodes if rng.random() < 0.3)
    tiled = rng.choice([windowed, windowed, windowed | more, windowed - more, more])
    pixels = rng.choice(COLUMNS), rng.choice(_ROWS)
    return replace(Group(graph, nodes, tiled), block=rng.choice(_BLOCKS), pixels=pixels, kind="lanes")


def _is_legal(group: Group, options: Options) -> bool:
    if next(iter(group.problems(options)), None) is not None:
        return False
    return work_of(Members(group.graph, group.nodes, options), group).code <= MOST_CODE
