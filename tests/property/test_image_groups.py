"""Random image pipelines in random groups: each pixel is that of an interpreter in NumPy, or that of naive kernels if
products and sums are contracted, and each window is where `window_of` says."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError
from ptxmotion.dsl.image import Compiled, Options
from ptxmotion.dsl.image.borders import index_map
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, groups_of, window_of
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.operators import Access, Node
from ptxmotion.dsl.image.tiling.teams import Kind
from ptxmotion.emulator.backend import EmulatorBackend
from random_pipelines import RandomPipeline, random_pipeline

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 8
SHARE = 2
#: The most pixels of one operator that a pixel of a result may need, so that the emulator is fast enough.
MOST_COPIES = 60


@pytest.mark.fuzz
def test_groups_compute_what_numpy_computes(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)


def check(seed: int) -> None:
    made: Any
    rng, found, nvcc = random.Random(seed), random_pipeline(seed, 2, 6), compiler()
    for node in found.graph.nodes:
        for access in node.accesses:
            check_window(access, node)
    reference: list[Any] = list(found.reference())
    contracted = rng.random() < 0.3
    if contracted:
        options = Options(nvcc=nvcc, contract=True)
        made = Compiled(lower(found.graph, "naive", options), nvcc)(
            *found.arrays.values(), *found.numbers.values(), backend=EmulatorBackend()
        )
        reference = [made] if isinstance(made, np.ndarray) else list(made)
    for _ in range(2):
        plan = random_plan(rng, found.graph)
        check_plan(seed, found, plan, reference, Options(nvcc=nvcc, contract=contracted))


def check_plan(seed: int, found: RandomPipeline, plan: Plan, reference: list[Any], options: Options) -> None:
    """The results of a plan are those of the reference, and the emulator finds no races and no other faults."""
    nvcc, backend = options.nvcc, EmulatorBackend()
    assert nvcc is not None
    compiled = Compiled(lower_plan(plan, options, "plan"), nvcc)
    made: Any = compiled(*found.arrays.values(), *found.numbers.values(), backend=backend)
    assert backend.findings == [], f"seed {seed}\n{plan}\n{found}\n{backend.findings[0]}"
    outputs: list[Any] = [made] if isinstance(made, np.ndarray) else list(made)
    for got, expected in zip(outputs, reference, strict=True):
        assert got.dtype == expected.dtype
        same = np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")
        assert same, f"seed {seed}\n{plan}\n{found}\n{got - expected}"


def random_plan(rng: random.Random, graph: Graph) -> Plan:
    """Groups that were merged at random along edges, with random tiles, blocks and pixels of a thread."""
    shape = Shape(
        rng.choice([(32, 8), (8, 4), (16, 2), (64, 1), (4, 16)]),
        rng.choice([(1, 1), (1, 1), (1, 3), (2, 2), (3, 1)]),
        rng.choice(["block", "warp", "hybrid"]),
    )
    parts: list[list[Node[Any]]] = [[node] for node in graph.nodes]
    # A group that was found is kept: of some operators few tiles are legal, and another draw may find none.
    made = tuple(chosen(rng, graph, nodes, shape) for nodes in groups_of(graph, parts))
    for _ in range(3 * len(parts)):
        if len(parts) < 2:
            break
        first, second = rng.sample(parts, 2)
        try:
            merged = [[*first, *second], *(part for part in parts if part not in (first, second))]
            found = tuple(chosen(rng, graph, nodes, shape) for nodes in groups_of(graph, merged))
        except DslError:
            continue
        parts, made = merged, found
    return Plan(graph, made)


@dataclass(frozen=True)
class Shape:
    """Threads of a block, pixels of a thread, and what owns a tile."""

    block: tuple[int, int]
    pixels: tuple[int, int]
    kind: Kind


def chosen(rng: random.Random, graph: Graph, nodes: tuple[Node[Any], ...], shape: Shape) -> Group:
    """A group with random tiles. Raises `DslError` if none is found."""
    for chance in (0.5, 0.5, 1.0, 0.0):
        tiled = frozenset(node for node in nodes if rng.random() < chance)
        kind = shape.kind if tiled or shape.kind != "hybrid" else "warp"
        in_registers = rng.randint(1, shape.pixels[0]) if kind == "hybrid" else 0
        group = Group(graph, nodes, tiled, shape.block, shape.pixels, kind, in_registers)
        problems = list(group.problems(Options()))
        if not problems and max(group.copies(Options()).values()) <= MOST_COPIES:
            return group
    raise DslError("no such group")


def check_window(access: Access, reader: Node[Any]) -> None:
    """Every index that is read for every pixel of the reader is in the window, along both axes."""
    window, extent, space = window_of(access, reader, Options()), access.extent, reader.space
    if window is None:
        return
    for axis, (start, count, before, after, low, high) in enumerate(
        (
            (space.x0, space.width, extent.left, extent.right, -window.left, window.right),
            (space.y0, space.height, extent.up, extent.down, -window.up, window.down),
        )
    ):
        at = np.arange(count)[:, None]
        read = np.array([[access.centres[axis](start + pixel)] for pixel in range(count)]) + np.arange(
            -before, after + 1
        )
        mapped = index_map(access.boundary, read, access.image.size[axis])
        offsets = (mapped - at)[mapped >= 0]
        assert not offsets.size or (low <= offsets.min() and offsets.max() <= high), (access, window, axis)
