"""Schedules: what a kernel does, cost functions, searches, names and files, tuning."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError, f32, float4
from ptxmotion.dsl.image import Accessor, Boundary, Domain, Graph, Image, Window, local, pipeline, point
from ptxmotion.dsl.image.fusion.machine import H200
from ptxmotion.dsl.image.fusion.partition import exhaustive
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, plan_from_json, separate
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.schedule import dynamic, tuning
from ptxmotion.dsl.image.schedule.auto import SCHEDULES, Candidate, candidates, microseconds, scheduled
from ptxmotion.dsl.image.schedule.costs import Model, TimeModel, paper_model, time_model
from ptxmotion.dsl.image.schedule.dynamic import Chooser, dynamic_plan
from ptxmotion.dsl.image.schedule.fitting import Measured, fitted, leave_one_out, save
from ptxmotion.dsl.image.schedule.greedy import greedy_plan
from ptxmotion.dsl.image.schedule.known import KnownMembers
from ptxmotion.dsl.image.schedule.neighbours import neighbours
from ptxmotion.dsl.image.schedule.shapes import FEW, SHAPES, Shape, shapes
from ptxmotion.dsl.image.schedule.tile_work import fills
from ptxmotion.dsl.image.schedule.tuning import tune
from ptxmotion.dsl.image.schedule.work import Members, work_of
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.machine import MachineMissing
from ptxmotion.suites.registry import find
from test_image_schedules import random_graph

CLAMP = Boundary.CLAMP


@local((3, 1))
def across(src: Window[f32]) -> f32:
    return src[-1, 0] + src[0, 0] + src[1, 0]


@local((1, 3))
def down(src: Window[f32]) -> f32:
    return src[0, -1] + src[0, 0] + src[0, 1]


@local((3, 3))
def box(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy]
    return total


@point
def product(a: f32, b: f32) -> f32:
    return a * b


@pipeline
def blur(src: Image[f32]) -> Image[f32]:
    return down(Accessor(across(Accessor(src, CLAMP)), CLAMP))


@pipeline
def corners(src: Image[f32]) -> Image[f32]:
    x, y = across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP))
    return product(box(Accessor(product(x, x), CLAMP)), box(Accessor(product(y, y), CLAMP)))


def work(graph: Graph, shape: Shape, *tiled: str) -> Any:
    members = Members(graph, graph.nodes, Options())
    group = members.with_(frozenset(node for node in graph.nodes if node.name in tiled), shape)
    assert members.is_legal(group)
    return work_of(members, group)


# --- work ---------------------------------------------------------------------------------------------------------


def test_what_a_kernel_does() -> None:
    graph = blur.graph(1024, 1024)
    # A thread reads 3 x 3 pixels for one of the result, and 3 x 6 for four.
    assert work(graph, Shape("block", (32, 8), (1, 1))).loads == 9
    assert work(graph, Shape("block", (32, 8), (1, 4))).loads == 18 / 4
    # A tile of 32 x 10 pixels: 160 of 256 threads compute 2 pixels, each with 3 loads. A pixel of the result: 3 reads.
    tiled = work(graph, Shape("block", (32, 8), (1, 1)), "across")
    assert (tiled.loads, tiled.reads, tiled.filled, tiled.waits) == (6 * 160 / 256, 3, 2 * 160 / 256, 1)
    assert tiled.shared == 4 * 32 * 10
    assert tiled.overlap == pytest.approx(10 / 8 - 1)
    # A warp has a tile of 32 x 4 pixels, with two rows more, and a block has four of them.
    warp = work(graph, Shape("warp", (32, 4), (1, 4)), "across")
    assert (warp.shared, warp.filled, warp.reads) == (4 * 4 * 32 * 6, 6 / 4, 6 / 4)
    # In registers, no pixel of the tile is in shared memory, and all pixels are those of the same lane.
    hybrid = work(graph, Shape("hybrid", (32, 4), (1, 4), 1), "across")
    assert (hybrid.filled, hybrid.reads, hybrid.loads) == (0, 0, 18 / 4)


def test_a_tile_below_a_far_access_is_not_read() -> None:
    """The kernel computes such an operator again. It was counted as reads of its tile, so pyramids were fused badly."""

    @pipeline
    def half(src: Image[f32]) -> Image[f32]:
        return down(Accessor(across(Accessor(box(Accessor(src, CLAMP)), CLAMP)), CLAMP, scale=2))

    graph = half.graph(512, 512)
    members = Members(graph, graph.nodes, Options())
    first, second, _ = graph.nodes
    nothing = members.counts(members.group.stored, frozenset(), (1, 1), fill=False)
    assert nothing.loads > 0 and nothing.reads == 0
    for tiled in ({first}, {second}, {first, second}):
        assert members.counts(members.group.stored, frozenset(tiled), (1, 1), fill=False) == nothing


@local(Domain([(0, -7), (0, 0), (0, 7)]))
def far_apart(src: Window[f32]) -> f32:
    return src[0, -7] + src[0, 0] + src[0, 7]


def test_a_window_with_holes_reads_its_pixels_only() -> None:
    """Operators below it were counted for each of the 15 pixels from the first one to the last one."""

    @pipeline
    def apart(src: Image[f32]) -> Image[f32]:
        return far_apart(Accessor(across(Accessor(src, CLAMP)), CLAMP))

    graph = apart.graph(512, 512)
    members = Members(graph, graph.nodes, Options())
    one, four = (members.counts(members.group.stored, frozenset(), (1, tall), fill=False) for tall in (1, 4))
    alone = members.counts((graph.nodes[0],), frozenset(), (1, 1), fill=False)
    own = one.alu - 3 * alone.alu
    assert (one.loads, alone.loads) == (9, 3) and 0 < own < alone.alu * 2
    # Four pixels of a column read 12 different pixels of 18.
    assert four.alu == 4 * own + 12 * alone.alu


def test_a_thread_keeps_what_its_next_rows_read() -> None:
    graph = blur.graph(1024, 1024)
    registers = [work(graph, Shape("block", (32, 8), (1, tall))).registers for tall in (1, 2, 4)]
    # One row reads its 9 pixels one after the other. Of two rows, half of 6 pixels each, and of four 3 / 4 of 4.5.
    assert [each - registers[0] for each in registers] == [0, 6 / 2, 4.5 * 3 / 4]
    # A strip of a tile keeps pixels, too: 256 threads compute 34 rows of 32 pixels in strips of 5 rows.
    members = Members(graph, graph.nodes, Options())
    group = members.with_(frozenset(graph.nodes[:1]), Shape("block", (32, 8), (1, 4)))
    assert fills(members, group, 1).live == pytest.approx(3 * (1 - 1 / 5))


def test_few_blocks_of_a_multiprocessor_take_longer() -> None:
    """While the last warps of the only block end, nothing else runs: a disc of 25 pixels took 74 us with one block of
    512 threads on a multiprocessor, 52 with three of 256, and 49 with seven of 128."""
    graph = find("image/max_filter").pipeline.graph(2048, 2048)  # type: ignore[union-attr]
    disc = (graph.nodes[-1],)
    members = Members(graph, disc, Options())
    works = [work_of(members, replace(members.group, block=each, pixels=(1, 4))) for each in ((64, 8), (32, 4))]
    assert [each.block_share for each in works] == [1 / each.resident for each in works] == [1 / 2, 1 / 8]
    assert TimeModel(H200)(works[0]) > TimeModel(H200)(works[1])
    small = replace(members.group, block=(32, 1))
    assert work_of(members, small).resident > 8 and work_of(members, small).block_share == 1 / 8
    blurred = blur.graph(512, 512)
    assert work(blurred, Shape("lanes", (32, 4), (2, 8)), "across").block_share == 0


def test_wide_pixels_are_moved_faster() -> None:
    """A float4 has four times as many bytes under way as a float: a copy reached 4.2 TB/s, and those of floats less."""

    @point
    def doubled(a: f32) -> f32:
        return a + a

    @point
    def reversed4(a: float4) -> float4:
        return float4(a.w, a.z, a.y, a.x)

    @point
    def first(a: float4) -> f32:
        return a.x

    @pipeline
    def narrow(src: Image[f32]) -> Image[f32]:
        return doubled(src)

    @pipeline
    def wide(src: Image[float4]) -> Image[float4]:
        return reversed4(src)

    @pipeline
    def both(src: Image[float4]) -> Image[f32]:
        return first(src)

    shape = Shape("block", (32, 8), (1, 1))
    shares = [work(each.graph(512, 512), shape).ahead for each in (narrow, both, wide)]
    lanes = work(narrow.graph(512, 512), Shape("lanes", (32, 4), (1, 4))).ahead
    assert shares[0] == 1 and shares[2] == lanes < 1
    # By bytes: four fifths are in wide pixels.
    assert shares[1] == pytest.approx(1 - (1 - lanes) * (0.8 * 16 + 0.2 * 4 - 4) / 12)


def test_shapes_are_those_that_are_legal() -> None:
    graph = corners.graph(256, 256)
    members = Members(graph, graph.nodes, Options())
    found = list(shapes(members))
    assert {group.kind for group in found} == {"block", "warp", "hybrid", "lanes"}
    assert all(not list(group.problems(Options())) for group in found)
    every = [members.with_(tiled, shape) for tiled in {group.tiled for group in found} for shape in SHAPES]
    legal = [
        group
        for group in every
        if not list(group.problems(Options()))
        and (group.tiled == members.read_by_windows if group.kind == "lanes" else group.tiled or group.kind == "block")
        and group.is_unrolled(Options())
    ]
    assert {str(group) for group in found} == {str(group) for group in legal}


# --- searches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [time_model(Path("none")), paper_model(Path("none"))], ids=lambda each: each.name)
def test_dynamic_programming_finds_the_best_partition(model: Model | TimeModel) -> None:
    graph = corners.graph(512, 512)
    chooser = Chooser(graph, Options(), model)
    plan, cost = dynamic_plan(chooser)
    plan.check(Options())
    best = exhaustive(dynamic._problem(chooser))  # pyright: ignore[reportPrivateUsage]
    assert cost == pytest.approx(chooser.plan(best)[1])


def test_a_graph_with_too_many_sets_is_searched_like_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = corners.graph(512, 512)
    chooser = Chooser(graph, Options(), time_model(Path("none")))
    _, cost = dynamic_plan(chooser)
    monkeypatch.setattr(dynamic, "MOST_SETS", 2)
    plan, other = dynamic_plan(chooser)
    plan.check(Options())
    assert other >= cost * 0.999


def test_greedy_grouping_inlines_what_is_read_pixel_by_pixel() -> None:
    graph = corners.graph(2048, 2048)
    plan = greedy_plan(graph, Options())
    plan.check(Options())
    assert all(node.operator.kind == "local" for group in plan.groups for node in group.tiled)
    assert len(plan.groups) < len(graph.nodes)
    for group in plan.groups:
        assert group.block[0] * group.block[1] % 32 == 0 and group.kind == "block"


def test_candidates_are_sorted_and_auto_is_the_first() -> None:
    graph = blur.graph(256, 256)
    found = candidates(graph, Options())
    times = [each.microseconds for each in found]
    assert times == sorted(times) and len(found) == len(SCHEDULES) - 1
    assert scheduled(graph, Options(), "auto") == found[0].plan


# --- names and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["image/histogram", "image/mean"])
def test_searches_take_pipelines_of_global_operators(name: str) -> None:
    made: Any = find(name).pipeline
    graph = made.graph(700, 500)
    for schedule in SCHEDULES:
        plan = scheduled(graph, Options(), schedule)
        plan.check(Options())
        assert [group.nodes for group in plan.groups] == [(node,) for node in graph.nodes]


def test_a_pipeline_is_compiled_by_a_schedule() -> None:
    image = np.random.default_rng(0).random((21, 130), np.float32)
    expected: Any = blur(image, backend=EmulatorBackend())
    graph = blur.graph(130, 21)
    by_hand = Plan(graph, (Group(graph, graph.nodes, frozenset(graph.nodes[:1]), (32, 2), (2, 4), "hybrid", 1),))
    for schedule in ("auto", "greedy", by_hand, by_hand.to_json()):
        compiled = blur.compile((21, 130), schedule=schedule)
        assert np.array_equal(compiled(image, backend=EmulatorBackend()), expected)
    assert "1 of 2 columns in registers" in str(compiled.lowered)  # pyright: ignore[reportPossiblyUnboundVariable]
    with pytest.raises(DslError, match="leave out lowering='isp'"):
        blur.compile((21, 130), schedule="auto", lowering="isp")
    with pytest.raises(DslError, match="no schedule 'atuo' \\(did you mean 'auto'"):
        blur.compile((21, 130), schedule="atuo")
    wrong: Any = Path("blur.json")
    with pytest.raises(DslError, match="a schedule is a Plan or a text, not"):
        blur.compile((21, 130), schedule=wrong)
    with pytest.raises(DslError, match="a plan of blur has no 'acros'"):
        blur.compile((21, 130), schedule=by_hand.to_json().replace('"across"', '"acros"', 1))


def test_members_of_the_json_are_checked() -> None:
    graph = blur.graph(130, 21)
    group = {"nodes": ["across", "down"], "tiled": ["across"], "block": [32, 2], "pixels": [2, 4]}

    def refused(*groups: object, message: str, **more: object) -> None:
        with pytest.raises(DslError, match=message):
            plan_from_json(graph, json.dumps({"pipeline": "blur", "groups": groups, **more}), Options())

    refused({**group, "tile": "warp"}, message=r"no member 'tile' \(did you mean 'tiles'")
    refused(group, block=[32, 2], message="no member 'block'")
    refused({**group, "nodes": ["across", "across", "down"]}, message="operators in the order of the graph")
    refused({**group, "block": [0, 2], "tiles": "hybrid", "in_registers": 1}, message="1 to 1024 threads")
    refused({**group, "pixels": [100_000_000, 1]}, message="a thread computes at most")
    refused({**group, "regions": "ips"}, message="regions of a group are one of isp, isp_warp, isp_rows, not 'ips'")
    refused({**group, "regions": "isp"}, message="a kernel with regions computes one operator, which is not a global")
    one = {"nodes": ["across"], "tiled": [], "block": [32, 2], "pixels": [1, 1], "regions": "isp"}
    message = "a kernel with regions isp has no tiles, and its threads compute 1 x 1 pixels"
    refused({**one, "pixels": [1, 2]}, message=message)
    refused({**one, "tiles": "warp"}, message=message)
    refused({**one, "regions": "isp_rows"}, message="regions isp_rows has no tiles, and its threads compute 1 x 4")
    refused({**one, "block": [48, 2], "regions": "isp_warp"}, message="width is a multiple of 32, not 48")
    refused({**group, "nodes": ["x"]}, pipeline="corners", message="this is a plan of corners, not of blur")
    with pytest.raises(DslError, match="a plan has an object"):
        blur.compile((21, 130), schedule="[]")


def test_weights_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    assert paper_model(path).machine == "an H200"
    paper = paper_model(path)
    document = {"machine": "another GPU", "paper": dict.fromkeys(paper.names, 2)}
    path.write_text(json.dumps(document))
    made = paper_model(path)
    assert made.machine == "another GPU" and set(made.weights) == {2.0}
    assert "another GPU" in str(made)
    for wrong in ("{", "[]", "{}", json.dumps({**document, "paper": dict.fromkeys(paper.names, -1)})):
        path.write_text(wrong)
        with pytest.raises(DslError, match="fit them again, or delete the file"):
            paper_model(path)


def test_weights_are_fitted_to_times(tmp_path: Path) -> None:
    """Times that a model with other weights gives: the fit finds times that are near them, also for a program that it
    has not seen."""
    known = time_model(tmp_path / "none")
    true = TimeModel(replace(H200, memory=H200.memory * 0.5, instruction=H200.instruction * 2, l2=H200.l2 * 0.4))
    measured: list[Measured] = []
    for graph in (blur.graph(1500, 1000), corners.graph(1024, 1024), blur.graph(300, 300)):
        members = Members(graph, graph.nodes, Options())
        works = [work_of(members, group) for group in shapes(members)]
        measured += [Measured(graph.name, int(graph.nodes[0].width), (work,), true(work)) for work in works]
    made = fitted(known, measured, "here")

    def error(model: TimeModel) -> float:
        ratios = [model(each.works[0]) / each.microseconds for each in measured]
        return sum(abs(ratio - 1) for ratio in ratios) / len(ratios)

    assert error(made) < 0.06 < 0.15 < error(known)
    assert made.machine == "here" and known.numbers == H200
    predictions = leave_one_out(known, measured)
    assert [(each.program, each.size) for each in predictions] == [("blur", 1500), ("corners", 1024), ("blur", 300)]
    assert all(each.correlation > 0.8 and 1 <= each.chosen_over_best < 1.3 for each in predictions)
    assert "corners 1024" in str(predictions[1])
    assert all(0 < each.error < 0.3 for each in predictions)
    # Series of a program are predicted apart, by the same fit.
    series = [replace(each, series="second" if number % 2 else "first") for number, each in enumerate(measured[:60])]
    other = [replace(each, program="other", series="first") for each in measured[-20:]]
    assert [each.schedules for each in leave_one_out(known, [*series, *other])] == [30, 30, 20]
    path = tmp_path / "kept" / "weights.json"
    save(path, made, paper_model(tmp_path / "none"))
    assert time_model(path) == replace(made, numbers=replace(made.numbers, name="an H200, here"))
    path.write_text(path.read_text().replace('"overlap": ', '"overlap": -'))
    with pytest.raises(DslError, match="numbers of a machine are positive"):
        time_model(path)


def test_a_model_is_a_weighted_sum() -> None:
    graph = blur.graph(1000, 1000)
    made = work(graph, Shape("block", (32, 8), (1, 1)))
    first, second = (Model("m", ("a",), lambda _: (2.0,), (weight,), "") for weight in (0.0, 3.0))
    assert second(made) - first(made) == pytest.approx(6)


# --- what searches share ------------------------------------------------------------------------------------------


@local((13, 13))
def wide(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-6, 7):
        for dx in range(-6, 7):
            total += src[dx, dy]
    return total


@pipeline
def mixed(src: Image[f32]) -> Image[f32]:
    """An image that is read with two boundaries, and by loops that are not unrolled."""
    first = box(Accessor(src, CLAMP))
    second = box(Accessor(first, Boundary.MIRROR))
    made = product(across(Accessor(first, CLAMP)), box(Accessor(second, CLAMP)))
    return product(made, wide(Accessor(first, CLAMP)))


def check_sharing(graph: Graph) -> None:
    """The work of each group of each set of operators is that without anything known."""
    known, compared = KnownMembers(graph, Options()), 0
    for count in range(1, len(graph.nodes) + 1):
        for nodes in combinations(graph.nodes, count):
            members, alone = known.of(nodes), Members(graph, nodes, Options())
            assert members.problem == alone.problem
            for group in shapes(members, [*FEW, Shape("block", (32, 8), (1, 1))]):
                assert work_of(members, group) == work_of(Members(graph, nodes, Options()), group), str(group)
                compared += 1
    assert compared > 20


def test_groups_of_a_graph_may_share_what_is_known() -> None:
    check_sharing(mixed.graph(64, 48))
    check_sharing(random_graph(random.Random(3), 4, 4, [(64, 48)]))


def test_searches_that_share_find_the_same_plans() -> None:
    graph = random_graph(random.Random(2), 3, 3, [(512, 512)])
    made = {each.name: each.plan for each in candidates(graph, Options())}
    assert made == {name: SCHEDULES[name](graph, Options()) for name in made}


# --- tuning -------------------------------------------------------------------------------------------------------


class Fake:
    """Times plans by the tallest tile of their groups: the taller, the faster."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.measured: list[str] = []

    def compile(self, plans: Sequence[Plan]) -> None:
        self.compiled += [plan.to_json() for plan in plans]

    def microseconds(self, plan: Plan) -> float:
        self.measured.append(plan.to_json())
        assert self.measured[-1] in self.compiled
        return 100.0 * len(plan.groups) - max(group.tile[1] for group in plan.groups)


def test_tuning_measures_each_plan_once_and_keeps_the_fastest() -> None:
    graph, fake, lines = blur.graph(512, 512), Fake(), list[str]()
    tuned = tune(graph, Options(), fake, 1000, lines.append)
    assert len(set(fake.measured)) == len(fake.measured) == len(tuned.times)
    assert tuned.microseconds == min(tuned.times.values()) == tuned.times[tuned.plan.to_json()]
    members = Members(graph, graph.nodes, Options())
    tallest = max(group.tile[1] for group in shapes(members))
    assert len(tuned.plan.groups) == 1 and tuned.plan.groups[0].tile[1] == tallest
    assert lines[-1].startswith(f"{len(tuned.times)} schedules, best {tuned.microseconds:.2f} us")


class FastRegions(Fake):
    """Kernels with regions are fast, those with regions of warps and blocks of 64 x 4 threads the fastest."""

    def microseconds(self, plan: Plan) -> float:
        super().microseconds(plan)
        best = [group for group in plan.groups if group.regions == "isp_warp" and group.block == (64, 4)]
        return 100.0 - 10 * sum(group.regions != "" for group in plan.groups) - len(best)


class FastRows(Fake):
    """Kernels with several pixels of a thread are fast, those with blocks of 32 x 8 threads the fastest."""

    def microseconds(self, plan: Plan) -> float:
        super().microseconds(plan)
        rows = [group for group in plan.groups if group.regions == "isp_rows"]
        return 100.0 - 10 * len(rows) - sum(group.block == (32, 8) for group in rows)


def test_tuning_tries_kernels_with_several_pixels_of_a_thread() -> None:
    graph = blur.graph(512, 512)
    tuned = tune(graph, Options(), FastRows(), 1000, lambda _: None)
    assert tuned.microseconds == 78
    assert plan_from_json(graph, tuned.plan.to_json(), Options()) == tuned.plan
    launches = lower_plan(tuned.plan, Options(), "schedule").launches
    assert [(launch.pixels, launch.grid, launch.notes[1]) for launch in launches] == [
        ((1, 4), (16, 16), "4 pixels of a thread")
    ] * 2


def test_tuning_tries_kernels_with_regions() -> None:
    graph = blur.graph(512, 512)
    tuned = tune(graph, Options(), FastRegions(), 1000, lambda _: None)
    assert tuned.microseconds == 78
    assert [(group.regions, group.block) for group in tuned.plan.groups] == [("isp_warp", (64, 4))] * 2
    assert plan_from_json(graph, tuned.plan.to_json(), Options()) == tuned.plan
    assert [launch.notes for launch in lower_plan(tuned.plan, Options(), "schedule").launches] == [
        ("regions: l, r, body",),
        ("regions: t, b, body",),
    ]


def test_without_a_gpu_tuning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu() -> Any:
        raise MachineMissing("the driver sees no device", "is CUDA_VISIBLE_DEVICES empty?")

    monkeypatch.setattr("ptxmotion.harness.cuda.open_backend", no_gpu)
    with pytest.raises(MachineMissing, match="times are measured on a GPU: the driver sees no device"):
        blur.tune((40, 80))


def test_neighbours_are_legal_and_merge_and_split_groups() -> None:
    graph = corners.graph(512, 512)
    model, alone = time_model(Path("none")), separate(graph)
    made = neighbours(alone, Options(), model)
    for plan in made:
        plan.check(Options())
    times = [microseconds(plan, Options(), model) for plan in made]
    assert times == pytest.approx(sorted(times))
    counts = {len(plan.groups) for plan in made}
    assert counts == {len(graph.nodes), len(graph.nodes) - 1}
    whole = Plan(graph, (Group(graph, graph.nodes),))
    split = [plan for plan in neighbours(whole, Options(), model) if len(plan.groups) == 2]
    assert split
    for plan in split:
        plan.check(Options())


def test_tuning_merges_groups_that_no_search_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes less time for fewer groups. Tuning starts at one kernel for each operator."""
    graph, fake = corners.graph(512, 512), Fake()
    start = [Candidate("separate", separate(graph), 1.0)]

    def only_start(graph: Graph, options: Options) -> list[Candidate]:
        return start

    monkeypatch.setattr(tuning, "candidates", only_start)
    tuned = tune(graph, Options(), fake, 1000, lambda _: None)
    assert len(tuned.plan.groups) == 1


def test_tuning_without_time_measures_one_plan() -> None:
    graph, fake = blur.graph(512, 512), Fake()
    tuned = tune(graph, Options(), fake, 0, lambda _: None)
    assert len(tuned.times) == 1
    assert separate(graph).graph is tuned.plan.graph
