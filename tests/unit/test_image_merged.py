"""Kernels of branches that do not need each other, in one kernel; rows that share indices, in the model of time."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import f32, float2, int2
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Options, Window, here, local, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.execution import Compiled
from ptxmotion.dsl.image.fusion.row_operations import operations_of_rows
from ptxmotion.dsl.image.group_lowering import group_launch, lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, separate
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.schedule.costs import time_model
from ptxmotion.dsl.image.schedule.merged import with_groups_merged
from ptxmotion.dsl.image.schedule.work import Members, work_of
from ptxmotion.dsl.image.tiling.rows import shares_rows
from ptxmotion.emulator.backend import EmulatorBackend

CLAMP = Boundary.CLAMP


@local((3, 3))
def mean(src: Window[f32]) -> f32:
    return src[-1, -1] + src[0, 0] * 0.5 + src[1, 1]


@point
def added(a: f32, b: f32) -> f32:
    return a - b


@local((1, 1), (2, 2))
def blended(src: Window[f32], coarse: Window[f32]) -> f32:
    x, y = here()
    right = f32(x % 4) * 0.25
    below = f32(y % 4) * 0.25
    upper = (1.0 - right) * coarse[0, 0] + right * coarse[-1, 0]
    return src[0, 0] + below * upper


@pipeline
def branches(a: Image[f32], b: Image[f32]) -> Image[f32]:
    """Two chains that meet in the last operator."""
    return added(mean(Accessor(mean(Accessor(a, CLAMP)), CLAMP)), mean(Accessor(mean(Accessor(b, CLAMP)), CLAMP)))


@pipeline
def crossed(a: Image[f32], b: Image[f32]) -> tuple[Image[f32], Image[f32]]:
    """Two chains in opposite order of two groups."""
    first, second = mean(Accessor(a, CLAMP)), mean(Accessor(b, CLAMP))
    return mean(Accessor(first, CLAMP)), mean(Accessor(second, CLAMP))


@pipeline
def upsampled(src: Image[f32], coarse: Image[f32]) -> Image[f32]:
    return blended(Accessor(src, CLAMP), Accessor(coarse, CLAMP, scale=Fraction(1, 4)))


def bits(lowered: Any, *images: Any) -> list[bytes]:
    backend = EmulatorBackend()
    made: Any = Compiled(lowered, compiler())(*images, backend=backend)
    assert backend.findings == []
    results: list[NDArray[Any]] = [made] if isinstance(made, np.ndarray) else list(made)
    return [each.tobytes() for each in results]


def test_branches_get_one_kernel_and_the_same_bits() -> None:
    graph, options = branches.graph(48, 40), Options(nvcc=compiler())
    start = separate(graph, (32, 8))
    merged = with_groups_merged(start, options, time_model())
    assert [len(group.nodes) for group in merged.groups] == [2, 2, 1]
    images = [np.random.default_rng(seed).random((40, 48), np.float32) for seed in (1, 2)]
    assert bits(lower_plan(merged, options, "merged"), *images) == bits(lower(graph, "naive", options), *images)


def test_a_merge_that_makes_two_kernels_need_each_other_is_not_made() -> None:
    graph, options = crossed.graph(48, 40), Options()
    one, three, two, four = graph.nodes
    # The second operator of a chain is in a kernel with the first one of the other chain. The other two operators do
    # not need each other, but one is needed by this kernel, and the other one needs it.
    plan = Plan(graph, (Group(graph, (two,)), Group(graph, (one, four)), Group(graph, (three,))))
    plan.check(options)
    assert with_groups_merged(plan, options, time_model()) is plan
    apart = Plan(graph, tuple(Group(graph, (node,)) for node in (one, two, three, four)))
    merged = with_groups_merged(apart, options, time_model())
    merged.check(options)
    assert len(merged.groups) < 4


def test_only_merges_that_gain_are_made() -> None:
    graph = branches.graph(48, 40)
    plan = separate(graph, (32, 8))
    assert with_groups_merged(plan, Options(), lambda work: work.alu**2) is plan


def test_the_last_rows_of_an_image_are_computed_without_sharing() -> None:
    graph, options = upsampled.graph(48, 41), Options(nvcc=compiler())
    group = Group(graph, graph.nodes, block=(32, 2), pixels=(1, 8))
    assert shares_rows(group) and "first_of_4_rows" in group_launch(group, "kernel", options).kernel.cuda
    images = [np.random.default_rng(seed).random((41, 48), np.float32) for seed in (1, 2)]
    plan = Plan(graph, (group,))
    assert bits(lower_plan(plan, options, "rows"), *images) == bits(lower(graph, "naive", options), *images)


@pytest.mark.parametrize("change", [{"pixels": (1, 3)}, {"pixels": (8, 1)}, {"kind": "lanes", "pixels": (1, 4)}])
def test_rows_without_equal_indices_share_nothing(change: dict[str, Any]) -> None:
    graph = upsampled.graph(48, 41)
    assert not shares_rows(replace(Group(graph, graph.nodes, block=(32, 2), pixels=(1, 8)), **change))


def test_operators_with_a_first_row_share_nothing() -> None:
    @pipeline
    def moved(src: Image[f32], coarse: Image[f32]) -> Image[f32]:
        space = IterationSpace(src.width, src.height - 2, 0, 2)
        return blended(Accessor(src, CLAMP), Accessor(coarse, CLAMP, scale=Fraction(1, 4)), space=space)

    graph = moved.graph(48, 41)
    assert not shares_rows(Group(graph, graph.nodes, block=(32, 2), pixels=(1, 8)))


def test_rows_that_an_operator_with_a_first_row_needs_share_nothing() -> None:
    @local((1, 1))
    def halved(src: Window[f32]) -> f32:
        return src[0, 0] * 0.5

    @pipeline
    def moved(src: Image[f32], coarse: Image[f32]) -> Image[f32]:
        above = blended(Accessor(src, CLAMP), Accessor(coarse, CLAMP, scale=Fraction(1, 4)))
        return halved(Accessor(above, CLAMP), space=IterationSpace(src.width, src.height - 2, 0, 2))

    graph, options = moved.graph(48, 42), Options(nvcc=compiler())
    group = Group(graph, graph.nodes, block=(32, 2), pixels=(1, 8))
    assert not shares_rows(group)
    images = [np.random.default_rng(seed).random((42, 48), np.float32) for seed in (1, 2)]
    plan = Plan(graph, (group,))
    assert bits(lower_plan(plan, options, "rows"), *images) == bits(lower(graph, "naive", options), *images)


def test_the_model_counts_shared_reads_and_operations_once() -> None:
    graph = upsampled.graph(64, 64)
    members = Members(graph, graph.nodes, Options())
    alone, shared = (work_of(members, Group(graph, graph.nodes, pixels=(1, rows))) for rows in (1, 4))
    # A row reads its own pixel and two of the coarse image, which four rows share.
    assert (alone.loads, shared.loads) == (3, 1.5)
    # Of the operations, the seven of `right` and `upper` are shared.
    operations = operations_of_rows(graph.nodes[0].operator, frozenset(["coarse"]))
    assert operations.alu == 7 and alone.alu - shared.alu == 7 * 3 / 4


def test_pixels_of_two_words_are_loaded_at_once() -> None:
    @local((3, 1))
    def floats(src: Window[float2]) -> f32:
        return src[-1, 0].x + src[0, 0].x * src[0, 0].y - src[1, 0].y

    @local((3, 1))
    def integers(src: Window[int2]) -> f32:
        return f32(src[-1, 0].x - src[0, 0].y) + f32(src[1, 0].x)

    @pipeline
    def pairs(a: Image[float2], b: Image[int2]) -> Image[f32]:
        return added(floats(Accessor(a, Boundary.MIRROR)), integers(Accessor(b, Boundary.constant((3, -4)))))

    options = Options(nvcc=compiler())
    lowered = lower(pairs.graph(37, 5), "naive", options)
    for launch in lowered.launches[:2]:
        ptx = launch.kernel.ptx(compiler())
        assert "ld.global.nc.u64" in ptx and "ld.global.nc.f32" not in ptx and "ld.global.nc.u32" not in ptx
    rng = np.random.default_rng(3)
    a = rng.normal(size=(5, 37, 2)).astype(np.float32)
    b = rng.integers(-(1 << 31), 1 << 31, (5, 37, 2)).astype(np.int32)
    padded = np.pad(a, ((0, 0), (1, 1), (0, 0)), mode="symmetric")
    wide = np.pad(b, ((0, 0), (1, 1), (0, 0)))
    wide[:, [0, -1]] = 3, -4
    with np.errstate(over="ignore"):
        first = padded[:, :-2, 0] + a[..., 0] * a[..., 1] - padded[:, 2:, 1]
        second = (wide[:, :-2, 0] - b[..., 1]).astype(np.float32) + wide[:, 2:, 0].astype(np.float32)
    assert bits(lowered, a, b) == [(first - second).tobytes()]
