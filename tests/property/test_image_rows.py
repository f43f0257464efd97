"""Random pipelines that read images of other sizes, with several rows of a thread: every pixel is that of naive
kernels, and the emulator finds no races.

Rows of a thread share the index of a row of a coarser image (`tiling.rows`). The scales, offsets, windows, boundaries
and first rows are random, and so are the rows of a thread and which operators are computed in place.
"""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import f32, i32, types
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Compiled,
    Domain,
    IterationSpace,
    Options,
    Window,
    graph_of,
    here,
    operator_from_text,
)
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.operators import Image, InputImage, Node
from ptxmotion.dsl.image.tiling.rows import shares_rows
from ptxmotion.emulator.backend import EmulatorBackend
from random_lanes import random_parts

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 12
SHARE = 3
#: The most pixels that one operator may read for a pixel of a result, with all its copies.
MOST_READS = 150

SIZES = ((33, 70), (64, 33), (40, 64), (70, 41), (5, 9))
SCALES = tuple(map(Fraction, ("1/8", "1/2", "1/4", "1/2", "1/3", "2", "3/2")))
ROWS = (2, 4, 8, 4, 8, 6, 3, 16)
BOUNDARIES = (Boundary.CLAMP, Boundary.CLAMP, Boundary.MIRROR, Boundary.REPEAT, Boundary.constant(2))
NAMES: dict[str, object] = {"Window": Window, "f32": f32, "i32": i32, "here": here}


@pytest.mark.fuzz
def test_rows_that_share_indices_compute_what_naive_kernels_compute(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)


def test_rows_share_indices_in_the_fixed_pipelines() -> None:
    """Otherwise, the test above would not show anything."""
    assert sum(any(shares_rows(group) for group in case(seed)[1].groups) for seed in range(FIXED)) >= FIXED // 2


def case(seed: int) -> tuple[Graph, Plan]:
    rng = random.Random(f"rows {seed}")
    while (made := plan_of(rng, random_graph(rng))) is None:
        pass
    return made.graph, made


def plan_of(rng: random.Random, graph: Graph) -> Plan | None:
    """A plan with random groups. None if a kernel would take long to compile."""
    parts = random_parts(rng, graph, lambda nodes: bool(groups(rng, graph, nodes, 4)))
    chosen = [groups(rng, graph, nodes, 30) for nodes in parts]
    return Plan(graph, tuple(rng.choice(found) for found in chosen)) if all(chosen) else None


def check(seed: int) -> None:
    graph, plan = case(seed)
    nvcc = compiler()
    options = Options(nvcc=nvcc)
    numbers = np.random.default_rng(seed)
    arrays = [numbers.random((int(image.height), int(image.width)), np.float32) for image in graph.inputs]
    message = f"seed {seed}\n{graph}\n{plan}"
    backend = EmulatorBackend()
    made: Any = Compiled(lower_plan(plan, options, "plan"), nvcc)(*arrays, backend=backend)
    assert backend.findings == [], f"{message}\n{backend.findings[0]}"
    expected: Any = Compiled(lower(graph, "naive", options), nvcc)(*arrays, backend=EmulatorBackend())
    assert [each.tobytes() for each in listed(made)] == [each.tobytes() for each in listed(expected)], message


def listed(results: Any) -> list[NDArray[Any]]:
    return [results] if isinstance(results, np.ndarray) else list(results)


def random_graph(rng: random.Random) -> Graph:
    """An image, a coarser or finer one, and operators of the size of the first one that read both."""
    width, height = rng.choice(SIZES)
    source: InputImage[Any] = InputImage("src", types.F32, width, height)
    space = IterationSpace(width, height)
    images: list[Image[Any]] = [source]
    others: list[Image[Any]] = []
    for number in range(rng.randint(1, 2)):
        scale = rng.choice(SCALES)
        size = [-(-each * scale.numerator // scale.denominator) + rng.randint(0, 1) for each in (width, height)]
        other: Image[Any] = InputImage(f"other{number}", types.F32, *size)
        if rng.random() < 0.4:
            reader = local(rng, f"made{number}", 1)
            accessor = Accessor(source, Boundary.CLAMP, scale=1 / scale)
            other = reader(accessor, space=IterationSpace(*size))
        others.append(other)
        both = rng.choice(images[-2:]), other
        reader = local(rng, f"both{number}", 2)
        offset = rng.choice([0, 0, 1, -2]), rng.choice([0, 0, 1, -1])
        near = Accessor(both[0], rng.choice(BOUNDARIES))
        far = Accessor(other, rng.choice(BOUNDARIES), scale=(scale, scale), offset=offset)
        images.append(reader(near, far, space=part_of(rng, space)))
        if rng.random() < 0.4:
            images.append(local(rng, f"last{number}", 1)(Accessor(images[-1], Boundary.MIRROR)))
    nodes = [image for image in (*images, *others) if isinstance(image, Node)]
    unread = [node for node in nodes if not any(a.image is node for each in nodes for a in each.accesses)]
    inputs = [source, *(other for other in others if isinstance(other, InputImage))]
    return graph_of("rows", unread, inputs)


def part_of(rng: random.Random, space: IterationSpace) -> IterationSpace:
    """The same pixels, or now and then some of them."""
    if rng.random() < 0.75:
        return space
    first = rng.randint(0, 2), rng.randint(0, 3)
    return IterationSpace(int(space.width) - rng.randint(1, 4), int(space.height) - rng.randint(1, 4), *first)


def local(rng: random.Random, name: str, windows: int) -> Any:
    """An operator of windows, each of one pixel or of a few."""
    lines = ["x, y = here()", "total: f32 = f32(x % 8) * 0.125 - f32(y % 3)"]
    domains: list[Domain] = []
    for number in range(windows):
        left, right, up, down = (rng.choice([0, 0, 0, 0, 0, 1]) for _ in range(4))
        domains.append(Domain([(dx, dy) for dx in range(-left, right + 1) for dy in range(-up, down + 1)]))
        lines += [f"for dx, dy in D{number}:", f"    total = total * 0.5 + a{number}[dx, dy]"]
    params = ", ".join(f"a{number}: Window[f32]" for number in range(windows))
    text = "\n    ".join([f"def {name}({params}) -> f32:", *lines, "return total"]) + "\n"
    names = {**NAMES, **{f"D{number}": domain for number, domain in enumerate(domains)}}
    return operator_from_text(text, names, *domains)


def groups(rng: random.Random, graph: Graph, nodes: tuple[Node[Any], ...], tries: int) -> list[Group]:
    """Legal groups with random rows, blocks and tiles that are compiled in a short time."""
    found: list[Group] = []
    for _ in range(tries):
        block = rng.choice([(32, 4), (32, 2), (16, 4), (64, 1)])
        made = Group(graph, nodes, block=block, pixels=(rng.choice([1, 1, 2]), rng.choice(ROWS)))
        tiled = frozenset(node for node in nodes if node not in made.stored and rng.random() < 0.3)
        made = replace(made, tiled=tiled, kind="warp" if tiled and rng.random() < 0.5 else "block")
        if not list(made.problems(Options())) and is_fast(made):
            found.append(made)
    return found


def is_fast(group: Group) -> bool:
    """Whether nvcc compiles the group in a short time."""
    copies = group.copies(Options())
    rows = group.pixels[0] * group.pixels[1]
    return sum(copies[node] * rows * len(node.accesses) for node in group.nodes) <= MOST_READS
