"""Point operators that several kernels compute again: graphs, plans that are read again, and equal bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.cli import main
from ptxmotion.dsl import f32, sqrt
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.execution import Compiled
from ptxmotion.dsl.image.fusion.pixel_images import with_pixel_images
from ptxmotion.dsl.image.fusion.point_copies import with_copies
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, plan_from_json
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.schedule.auto import candidates
from ptxmotion.dsl.image.schedule.copied_points import with_points_copied
from ptxmotion.dsl.image.schedule.costs import time_model
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.registry import find


@point
def scaled(a: f32) -> f32:
    return a * 0.75


@local((3, 3))
def mean(src: Window[f32]) -> f32:
    return src[-1, -1] + src[0, 0] + src[1, 1]


@point
def added(a: f32, b: f32) -> f32:
    return a - b


@pipeline
def split(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:
    """Two chains of point operators with two readers."""
    first = scaled(src)
    second = scaled(first)
    smooth = mean(Accessor(second, Boundary.MIRROR))
    return added(second, smooth), mean(Accessor(first, Boundary.CLAMP))


def bits(lowered: Any, image: Any) -> list[bytes]:
    backend = EmulatorBackend()
    made: Any = Compiled(lowered, compiler())(image, backend=backend)
    assert backend.findings == []
    return [each.tobytes() for each in made]


def test_readers_get_copies() -> None:
    graph = split.graph(40, 20)
    names = [node.name for node in graph.nodes]
    assert names == ["scaled", "scaled_2", "mean", "added", "mean_2"]
    made = with_copies(graph, "scaled_2")
    assert with_copies(graph, "scaled_2") is made
    assert {node.name for node in made.nodes} - {*names} == {"scaled_2_for_mean", "scaled_2_for_added"}
    assert "scaled_2" not in [node.name for node in made.nodes]
    # Both copies read the first operator, which has one more reader.
    assert len(made.consumers(made.nodes[0])) == 3
    assert [node.name for node in graph.nodes] == names, "the graph before is not changed"
    for name in ("added", "mean", "other"):
        assert with_copies(graph, name) is graph, "an output, a local operator, and a name of nothing"
    assert made.retrace is not None
    assert [node.name for node in made.retrace([(80, 30)]).nodes] == [node.name for node in made.nodes]


def test_a_plan_with_copies_is_read_again_and_computes_the_same() -> None:
    graph, options = split.graph(45, 13), Options()
    image = np.random.default_rng(2).random((13, 45), np.float32)
    expected = bits(lower(graph), image)
    made = with_copies(with_copies(graph, "scaled"), "scaled_2")
    parts = [
        ["scaled_for_scaled_2", "scaled_2_for_mean", "mean"],
        ["scaled_2_for_added", "added"],
        ["scaled_for_mean_2", "mean_2"],
    ]
    merged = Plan(made, tuple(Group(made, tuple(node for node in made.nodes if node.name in part)) for part in parts))
    for plan in (merged, Plan(made, tuple(Group(made, (node,)) for node in made.nodes))):
        assert plan_from_json(graph, plan.to_json(), options) == plan
        assert bits(lower_plan(plan, options, "plan"), image) == expected


def test_a_plan_with_a_copy_of_an_image_of_a_function_is_read_again() -> None:
    @local((3, 1))
    def roots(src: Window[f32]) -> f32:
        return sqrt(src[-1, 0]) + sqrt(src[1, 0])

    @pipeline
    def two(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:
        return roots(Accessor(src, Boundary.CLAMP)), roots(Accessor(src, Boundary.REPEAT))

    graph = two.graph(20, 10)
    made = with_copies(with_pixel_images(graph), "roots_src")
    assert [node.name for node in made.nodes] == ["roots_src_for_roots", "roots", "roots_src_for_roots_2", "roots_2"]
    plan = Plan(made, tuple(Group(made, (node,)) for node in made.nodes))
    assert plan_from_json(graph, plan.to_json(), Options()) == plan


def test_a_plan_with_images_of_functions_and_copies_serves_other_sizes() -> None:
    @local((3, 1))
    def roots(src: Window[f32]) -> f32:
        return sqrt(src[-1, 0]) + sqrt(src[1, 0])

    @pipeline
    def both(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:
        half = scaled(src)
        return roots(Accessor(half, Boundary.REPEAT)), mean(Accessor(half, Boundary.CLAMP))

    made = with_copies(with_pixel_images(both.graph(64, 48)), "scaled")
    assert len(made.nodes) == 5
    names = [["scaled_for_roots_src", "roots_src", "roots"], ["scaled_for_mean", "mean"]]
    groups = (Group(made, tuple(node for node in made.nodes if node.name in part)) for part in names)
    program = lower_plan(Plan(made, tuple(groups)), Options(), "plan").program(any_size=True)
    image, nvcc = np.random.default_rng(3).random((19, 33), np.float32), compiler()
    arrays: dict[str, Any] = {"src": image.reshape(-1)}
    arrays |= {name: np.zeros(image.size, np.float32) for name in ("roots", "mean")}
    loaded = program.load(EmulatorBackend(), lambda kernel: kernel.ptx(nvcc))
    found = loaded.run({**arrays, "src_width": np.int32(33), "src_height": np.int32(19)})
    assert [found[name].tobytes() for name in ("roots", "mean")] == bits(lower(both.graph(33, 19)), image)


def test_the_model_copies_what_waits_for_memory() -> None:
    benchmark = find("image/interpolate")
    assert benchmark.pipeline is not None
    graph, options = benchmark.pipeline.graph(2048, 2048), Options()
    chosen = candidates(graph, options)[0]
    names = {node.name for group in chosen.plan.groups for node in group.nodes}
    assert chosen.name == "dynamic" and "weighed_for_coarser" in names and "weighed" not in names
    assert plan_from_json(graph, chosen.plan.to_json(), options) == chosen.plan
    model = time_model()
    assert with_points_copied(chosen.plan, options, model) == chosen.plan, "a second time changes nothing"


def test_a_schedule_that_is_saved_is_the_one_that_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    show = ["image", "show", "image/interpolate", "--size=2048x2048"]
    assert main([*show, "--schedule=dynamic", f"--save-schedule={file}"]) == 0
    shown = capsys.readouterr().out
    assert "weighed_for_coarser (inline)" in shown
    assert main([*show, f"--schedule={file}"]) == 0
    assert capsys.readouterr().out == shown


def test_what_one_kernel_reads_is_not_copied() -> None:
    benchmark = find("image/harris")
    assert benchmark.pipeline is not None
    graph, options = benchmark.pipeline.graph(512, 512), Options()
    plan = next(each.plan for each in candidates(graph, options) if each.name == "dynamic")
    assert plan.graph is with_pixel_images(graph)
