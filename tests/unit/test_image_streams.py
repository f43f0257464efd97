"""Plans of launches: dependences, buffers that share memory, the model of streams, and runs of plans."""

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.arch import architecture
from ptxmotion.cli import main
from ptxmotion.dsl import DslError, f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, lower, pipeline, point, total
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.fusion.machine import H200, Machine, machine_here
from ptxmotion.dsl.image.streams.cache import seconds_of_misses
from ptxmotion.dsl.image.streams.dependences import ancestors, dependences, reduced, steps_of
from ptxmotion.dsl.image.streams.memory import problems, share, unshared
from ptxmotion.dsl.image.streams.model import KernelTime, graph_time, serial_edges, stream_time
from ptxmotion.dsl.image.streams.pipelining import Usage, is_complementary, pipelined, usage_of
from ptxmotion.dsl.image.streams.planning import MODES, by_resources, by_threads, plan_execution, usage_by
from ptxmotion.dsl.image.streams.running import PlanRun
from ptxmotion.emulator.backend import Buffer, EmulatorBackend
from ptxmotion.suites.registry import find


@point
def half(a: f32) -> f32:
    return a * 0.5


@point
def both(a: f32, b: f32) -> f32:
    return a + b


@local((3, 3))
def right(src: Window[f32]) -> f32:
    return src[1, 0]


@pipeline
def diamond(src: Image[f32]) -> Image[f32]:
    first = half(src)
    return both(right(Accessor(first, Boundary.CLAMP)), half(half(first)))


@pipeline
def summed(src: Image[f32]) -> tuple[Image[f32], Image[f32]]:  # pyright: ignore[reportUnknownParameterType]
    first = half(src)
    return half(first), total(f32)(first)


def test_dependences_are_those_of_the_images() -> None:
    lowered = lower(diamond.graph(40, 8), "naive")
    steps = steps_of(lowered)
    assert [step.name for step in steps] == ["half_kernel", "right_kernel", "half_kernel", "half_kernel", "both_kernel"]
    assert dependences(steps) == {(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)}


def test_memory_that_must_be_zero_is_cleared_before_its_launch() -> None:
    steps = steps_of(lower(summed.graph(40, 8), "naive"))
    names = [step.name for step in steps]
    cleared = next(number for number, name in enumerate(names) if name.startswith("zero "))
    launched = next(n for n, step in enumerate(steps) if step.launch is not None and len(step.writes) > 1)
    assert (cleared, launched) in dependences(steps)
    assert not any(second == cleared for _, second in dependences(steps))


def test_edges_that_follow_from_others_are_left_out() -> None:
    assert reduced(4, {(0, 1), (1, 2), (0, 2), (0, 3), (2, 3)}) == {(0, 1), (1, 2), (2, 3)}
    assert ancestors(4, {(0, 1), (1, 3)}) == [set(), {0}, set(), {0, 1}]


def test_buffers_are_used_again_where_the_order_is_fixed() -> None:
    """Steps 1 and 2 may run at a time, so the image of 0 is alive until both have ended."""
    lowered = lower(diamond.graph(40, 8), "naive")
    steps = steps_of(lowered)
    edges = dependences(steps)
    free = share(lowered, steps, edges)
    assert len(free.slots) == 4 and not free.added, "no order is fixed between the branches"
    any_edge = share(lowered, steps, edges, lambda before, more: True)
    assert len(any_edge.slots) == 3 and any_edge.added == {(1, 3)}
    assert not list(problems(steps, any_edge))
    own = unshared(lowered, edges)
    assert len(own.slots) == 4 == len(lowered.buffers)
    (problem, *_) = problems(steps, type(own)(any_edge.slots, any_edge.slot_of, edges))
    assert problem == "right_kernel and half_kernel use the same memory in no fixed order"
    small = type(own)((8, *own.slots[1:]), own.slot_of, edges)
    assert "needs 1280 bytes, and its buffer has 8" in next(problems(steps, small))


# --- model --------------------------------------------------------------------------------------------------------

#: 10 multiprocessors, and times that are easy to add.
SMALL = Machine(node=1.0, launch=10.0, event=3.0, branch=2.0, multiprocessors=10)


def test_waves_and_tails() -> None:
    """Equations 4.1 and 4.3 to 4.5: 6 blocks on each of 10 multiprocessors are a wave of 60."""
    kernel = KernelTime(8.0, 150, 6)
    assert (kernel.wave(SMALL), kernel.waves(SMALL), kernel.tail(SMALL), kernel.share(SMALL)) == (60, 3, 0.5, 1.0)
    small = KernelTime(8.0, 15, 6)
    assert (small.waves(SMALL), small.share(SMALL)) == (1, 0.25)


def test_a_stream_waits_for_the_host_or_for_the_kernel_before() -> None:
    short, long = KernelTime(2.0, 60, 6), KernelTime(50.0, 60, 6)
    assert stream_time([short, short, short], SMALL) == 32.0, "three launches, and the last kernel"
    assert stream_time([long, short, short], SMALL) == 60.0 + 3.0 + 3.0


def test_small_kernels_run_at_a_time_and_large_ones_share_the_machine() -> None:
    def seconds(*kernels: KernelTime, edges: Any) -> float:
        return graph_time(kernels, edges, SMALL).seconds

    quarter, whole, long = KernelTime(8.0, 15, 6), KernelTime(8.0, 60, 6), KernelTime(8.0, 600, 6)
    assert seconds(quarter, quarter, edges=[]) == 2.0 + 1.0 + 8.0, "the second one begins a branch"
    assert seconds(whole, whole, edges=[]) == pytest.approx(1.0 + 16.0), "both fill the machine"
    assert seconds(quarter, quarter, quarter, edges=[]) == 4.0 + 1.0 + 8.0, "branches begin one after the other"
    assert seconds(quarter, quarter, edges=serial_edges(2)) == 2 * (1.0 + 8.0)
    # A quarter of the machine is free in the tail of a kernel of 105 blocks, which takes half of its time.
    tail = graph_time([KernelTime(8.0, 105, 6), quarter], [], SMALL)
    assert tail.begins == (1.0, 5.0) and tail.ends == pytest.approx((9.0, 13.0))
    assert graph_time([long, quarter], [], SMALL).begins[1] == pytest.approx(9.0), "no wave has room before"
    # The branch that begins second, and the kernel that waits for it, wait for an event.
    fork = graph_time([quarter] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], SMALL)
    assert fork.begins == (1.0, 10.0, 13.0, 25.0) and fork.seconds == 33.0
    # An event that was handled long before does not count.
    short = graph_time([quarter, quarter, KernelTime(1.0, 15, 6), quarter], [(0, 1), (0, 2), (1, 3), (2, 3)], SMALL)
    assert short.ends[2] == 14.0 and short.begins[3] == 18.0 + 1.0
    assert seconds(quarter, quarter, quarter, quarter, edges=serial_edges(4)) == 36.0


def test_the_model_picks_a_chain_for_kernels_in_a_row_and_branches_for_small_branches() -> None:
    @pipeline
    def row(src: Image[f32]) -> Image[f32]:
        for _ in range(4):
            src = half(src)
        return src

    @pipeline
    def wide(src: Image[f32]) -> Image[f32]:
        ends: list[Image[f32]] = []
        for _ in range(4):
            image: Image[f32] = src
            for _ in range(6):
                image = half(image)
            ends.append(image)
        return both(both(ends[0], ends[1]), both(ends[2], ends[3]))

    plan = plan_execution(lower(row.graph(256, 256)), "auto")
    assert plan.mode == "chain" and plan.estimates["stream"] > plan.estimates["chain"]
    assert len(plan.sharing.slots) == 2, "two buffers take turns"
    small = plan_execution(lower(wide.graph(64, 64)), "auto")
    assert small.mode == "branches"
    assert small.estimates["branches"] < 0.6 * small.estimates["chain"]
    large = plan_execution(lower(wide.graph(4096, 4096)), "graph")
    assert large.estimates["chain"] == pytest.approx(large.estimates["branches"], rel=0.1)


def test_a_reused_buffer_is_part_of_the_estimate() -> None:
    """Sharing that would make a branch wait is refused, and sharing that costs nothing is taken."""

    @pipeline
    def wide(src: Image[f32]) -> Image[f32]:
        first, second = (half(half(half(half(each)))) for each in (half(src), both(src, src)))
        return both(first, second)

    plan = plan_execution(lower(wide.graph(64, 64)), "branches", machine=Machine(event=0))
    least = plan_execution(lower(wide.graph(64, 64)), "chain")
    assert len(least.sharing.slots) < len(plan.sharing.slots) < len(plan.sharing.slot_of)
    own = graph_time(plan.kernels, dependences(plan.steps), plan.machine).seconds
    assert plan.timeline.seconds <= own * 1.005


def test_the_text_of_a_plan() -> None:
    plan = plan_execution(lower(diamond.graph(64, 64)), "branches", machine=H200)
    text = str(plan)
    assert text.startswith("execution: branches (estimates: ")
    assert "3: half_kernel, after 1, 2 (1 for memory); " in text and "0: half_kernel, at once; 0.51 to " in text
    assert "built-in numbers of an H200" in text and "buffers: " in text
    with pytest.raises(DslError, match="there is no execution 'fast'; there are stream, graph, auto"):
        plan_execution(plan.lowered, "fast")


def test_blocks_by_threads() -> None:
    (launch, *_) = lower(diamond.graph(64, 64)).launches
    assert by_threads(launch) == 8


# --- runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["graph", "auto", "stream"])
@pytest.mark.parametrize("lowering", ["naive", "fused"])
def test_executions_compute_the_same(execution: str, lowering: str) -> None:
    image = np.random.default_rng(0).random((9, 40), np.float32)
    moved = np.concatenate([image[:, 1:], image[:, -1:]], axis=1)
    compiled = diamond.compile((9, 40), lowering=lowering, execution=execution)
    backend = EmulatorBackend()
    for _ in range(2):
        assert np.array_equal(compiled(image, backend=backend), moved * np.float32(0.5) + image * np.float32(0.125))
    assert backend.findings == []


@pytest.mark.parametrize("execution", ["stream", "graph", "auto"])
def test_calls_of_several_threads(execution: str) -> None:
    compiled = diamond.compile((30, 70), execution=execution)
    images = [np.full((30, 70), value, np.float32) for value in range(1, 7)]
    backend = EmulatorBackend()
    with ThreadPoolExecutor(len(images)) as pool:
        made = [pool.submit(compiled, image, backend=backend) for image in images]
    for image, result in zip(images, made, strict=True):
        assert np.array_equal(result.result(), image * np.float32(0.625))


def test_several_backends_and_results() -> None:
    compiled = summed.compile((9, 40), execution="auto")
    image = np.random.default_rng(0).integers(0, 9, (9, 40)).astype(np.float32)
    for _ in range(2):
        made, whole = compiled(image, backend=EmulatorBackend())
        assert np.array_equal(made, image / 4) and whole[0, 0] == image.sum() / 2
    with pytest.raises(DslError, match=r"there is no execution 'grap' \(did you mean 'graph'\?\)"):
        summed.compile((9, 40), execution="grap")


def test_image_show_prints_the_plan(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["image", "show", "gradients", "--size=64x64", "--lowering=fused", "--execution=auto"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    assert "execution: " in shown and "waves, tail" in shown and "estimates: stream " in shown
    assert main(["image", "show", "gradients", "--size=64x64", "--lowering=fused+h", "--edges"]) == 0
    shown = capfd.readouterr().out
    assert "execution" not in shown
    assert "slope -> merged_5: saves " in shown
    assert "reduced -> reduced_2: no kernel: the results reduced, reduced_2 have different pixels" in shown
    assert "slope | expanded_5: saves " in shown


# --- numbers of the machine ---------------------------------------------------------------------------------------


def test_calibrated_numbers_replace_those_of_an_h200(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    assert machine_here() is H200
    costs = {"machine": "GPU X", "graph_node": 1e-6, "launch": 5e-6, "bandwidth": 1e12, "multiprocessors": 66}
    file = tmp_path / "machine-costs.json"
    file.write_text(str({**costs}).replace("'", '"'))
    found = machine_here()
    assert (found.name, found.launch, found.multiprocessors) == ("GPU X", 5e-6, 66)
    assert found.node == 1e-6
    assert found.memory == pytest.approx(H200.memory / 4.1) and found.l2 == pytest.approx(H200.l2 / 2)
    assert found.instructions_per_second == pytest.approx(H200.instructions_per_second / 2)
    for broken in ("{", "[]", str({**costs, "bandwidth": -1}).replace("'", '"')):
        file.write_text(broken)
        with pytest.raises(DslError, match="is no calibration"):
            machine_here()


def test_bytes_that_fit_in_the_cache_are_faster() -> None:
    small, large = H200.l2_bytes, 4 * H200.l2_bytes
    assert H200.moving(small) == pytest.approx(small / H200.l2)
    assert H200.moving(large) == pytest.approx(large / H200.memory)
    assert H200.moving(1.5 * small) == pytest.approx(0.75 * small * (1 / H200.l2 + 1 / H200.memory))


def test_all_modes_are_estimated() -> None:
    assert set(plan_execution(lower(diamond.graph(64, 64))).estimates) == set(MODES)


@pytest.mark.parametrize(
    ("name", "lowering"),
    [
        ("mosaic", "fused+h"),
        pytest.param("spline", "fused", marks=pytest.mark.slow),
        pytest.param("gradients", "fused+h", marks=pytest.mark.slow),
        pytest.param("laplacian", "fused", marks=pytest.mark.slow),
    ],
)
def test_pyramids_as_fused_graphs(name: str, lowering: str) -> None:
    """Programs of the suite by fused kernels with shared buffers: the bits of the reference, in random orders."""
    benchmark = find(f"image/{name}")
    assert benchmark.pipeline is not None
    data = benchmark.data("tiny", 3)
    sizes = {each: (int(data[f"{each}_width"]), int(data[f"{each}_height"])) for each in benchmark.pipeline.images}
    graph = benchmark.pipeline.graph(sizes=sizes)
    lowered, nvcc = lower(graph, lowering), compiler()
    assert len(lowered.launches) < 0.6 * len(graph.nodes)
    ptx = {each: kernel.ptx(nvcc) for each, kernel in lowered.kernels.items()}
    plan = plan_execution(lowered, "branches", by_resources(ptx))
    run = PlanRun(plan, EmulatorBackend(), ptx)
    numbers = {each.name: data[each.name] for each in graph.scalars}
    (expected,) = benchmark.reference(data).values()
    for seed in (None, 1, 2):
        (made,) = run.run([data[image.name] for image in graph.inputs], numbers, seed)
        assert np.array_equal(made, expected)
    run.close()


@pytest.mark.parametrize("seed", range(40))
def test_times_of_random_graphs(seed: int) -> None:
    """A step begins after the steps that it waits for; the machine is never filled more than once; nothing is lost."""
    rng = random.Random(seed)
    size = rng.randint(1, 25)
    blocks = [rng.choice([1, 7, 60, 61, 119, 600]) for _ in range(size)]
    kernels = [KernelTime(rng.choice([0.0, 0.5, 3.0, 20.0]), count, rng.choice([1, 6])) for count in blocks]
    edges = {(a, b) for b in range(size) for a in range(b) if rng.random() < rng.choice([0.05, 0.4])}
    made = graph_time(kernels, reduced(size, edges), SMALL)
    for first, second in edges:
        assert made.begins[second] >= made.ends[first] + SMALL.node - 1e-6
    for kernel, begin, end in zip(kernels, made.begins, made.ends, strict=True):
        assert end - begin >= kernel.seconds - 1e-6
    work = sum(kernel.seconds * (1 - 1 / kernel.waves(SMALL)) for kernel in kernels)
    assert made.seconds >= work - 1e-6, "whole waves of different kernels do not overlap"
    serial = sum(kernel.seconds + SMALL.node for kernel in kernels)
    assert made.seconds <= serial + SMALL.branch * size + SMALL.event * len(edges) + 1e-6
    assert graph_time(kernels, serial_edges(size), SMALL).seconds == pytest.approx(serial)


def test_images_that_left_the_cache_take_longer() -> None:
    steps = steps_of(lower(diamond.graph(1024, 512), "naive"))  # 2 MB an image
    size = 1024 * 512 * 4
    machine = Machine(memory=1e12, l2=2e12, l2_bytes=4e6)
    missed = seconds_of_misses(steps, machine)
    assert seconds_of_misses(steps, Machine(l2_bytes=1e9)) == [0.0] * len(steps)
    # Each step reads what the one before has used, but the first one, and the last one, which also reads the image of
    # the second one.
    assert missed[1] == missed[2] == missed[3] == 0
    # None of the input and of that image is left, of which a kernel alone would find a part in the cache.
    slower = 1 / 1e12 - 1 / 2e12
    assert missed[0] == pytest.approx(size * machine.kept(2 * size) * slower)
    assert missed[4] == pytest.approx(size * machine.kept(3 * size) * slower)


# --- kernel pipelining --------------------------------------------------------------------------------------------

#: The two kernels of the example of the thesis: one takes most threads, the other one most of shared memory.
THREADS, SHARED = Usage(0.36, 0.0, 0.63), Usage(0.53, 0.54, 0.25)


def test_which_kernels_are_complementary() -> None:
    hopper = architecture(90)
    assert hopper is not None
    assert usage_of(1024, 40, 114 * 1024, hopper) == Usage(1024 * 40 / 65536, 0.5, 0.5)
    assert is_complementary([THREADS, SHARED])
    assert not is_complementary([THREADS, THREADS]), "their threads do not fit together"
    assert not is_complementary([THREADS]) and not is_complementary([THREADS, Usage(0.1, 0.1, 0.1)])


@pytest.mark.parametrize(("sm", "exist"), [(75, True), (80, False), (86, True), (89, True), (90, False), (120, True)])
def test_where_complementary_kernels_exist(sm: int, exist: bool) -> None:
    """Of all blocks of an image kernel: up to 1024 threads and 48 KiB of shared memory."""
    machine = architecture(sm)
    assert machine is not None
    usages = {
        usage_of(threads, registers, shared << 10, machine)
        for threads in range(128, 1025, 128)
        for registers in range(16, 255, 8)
        for shared in (0, 24, 48)
        if threads * registers <= 65536
    }
    large = [usage for usage in usages if usage.dominant > 0.5]
    assert any(is_complementary([one, other]) for one in large for other in large) == exist


def test_the_example_of_the_thesis_is_pipelined() -> None:
    """Three pipelines of two kernels, 0 to 3, 1 to 4 and 2 to 5: the reader of each kernel runs beside the next one."""
    made = pipelined([THREADS] * 3 + [SHARED] * 3, [(0, 3), (1, 4), (2, 5)])
    assert made is not None
    order, edges = made
    assert order == [0, 3, 1, 4, 2, 5]
    # By the places in this order: 0, then 3 beside 1, then 4 beside 2, then 5.
    assert edges == {(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 5), (4, 5)}


def test_no_order_without_complementary_kernels() -> None:
    assert pipelined([THREADS] * 4, [(0, 1), (2, 3)]) is None
    assert pipelined([THREADS, SHARED], [(0, 1)]) is None, "one needs the other"


def test_random_graphs_are_ordered_by_their_dependences() -> None:
    rng = random.Random(3)
    found = 0
    for _ in range(200):
        size = rng.randint(1, 9)
        edges = [(a, b) for b in range(size) for a in range(b) if rng.random() < 0.25]
        usages = [rng.choice([THREADS, SHARED, Usage(0.1, 0.1, 0.1)]) for _ in range(size)]
        made = pipelined(usages, edges)
        if made is None:
            continue
        found += 1
        order, new = made
        assert sorted(order) == list(range(size))
        place = {step: number for number, step in enumerate(order)}
        before = ancestors(size, new)
        assert all(place[a] in before[place[b]] for a, b in edges)
        # Steps that may run at a time are complementary.
        for first in range(size):
            for second in range(first):
                if second not in before[first]:
                    assert is_complementary([usages[order[first]], usages[order[second]]]), (order, new)
    assert found > 20


def test_pipelining_is_refused_where_no_kernels_are_complementary() -> None:
    lowered = lower(diamond.graph(64, 64), "naive")
    nvcc = compiler()
    ptx = {name: kernel.ptx(nvcc) for name, kernel in lowered.kernels.items()}
    with pytest.raises(DslError, match="needs the resources of kernels"):
        plan_execution(lowered, "pipelined")
    with pytest.raises(DslError, match=r"no kernels with complementary resources.*more than half of a multiprocessor"):
        plan_execution(lowered, "pipelined", by_resources(ptx), usage=usage_by(ptx))


def test_a_pipelined_plan_computes_what_naive_kernels_compute() -> None:
    """The uses of kernels are made up, so that some are complementary."""

    @pipeline
    def branches(src: Image[f32]) -> Image[f32]:
        return both(right(Accessor(half(src), Boundary.CLAMP)), half(half(half(src))))

    lowered, nvcc = lower(branches.graph(64, 8), "naive"), compiler()
    ptx = {name: kernel.ptx(nvcc) for name, kernel in lowered.kernels.items()}
    uses = iter([THREADS, SHARED] * 20)
    plan = plan_execution(lowered, "pipelined", usage=lambda _: next(uses))
    assert plan.mode == "pipelined" and plan.is_graph
    plan.check()
    image = np.random.default_rng(2).random(64 * 8, np.float32)
    (expected,) = PlanRun(plan_execution(lowered, "chain"), EmulatorBackend(), ptx).run([image], {})
    for seed in range(3):
        (made,) = PlanRun(plan, EmulatorBackend(), ptx).run([image], {}, seed)
        assert np.array_equal(made, expected)


class Small(EmulatorBackend):
    """A backend with memory for ``count`` buffers only. ``held`` are those that were not freed."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.held: list[Buffer] = []

    def allocate(self, nbytes: int) -> Buffer:
        if len(self.held) == self.count:
            raise MemoryError(nbytes)
        self.held.append(super().allocate(nbytes))
        return self.held[-1]

    def free(self, buffer: Buffer) -> None:
        self.held.remove(buffer)
        super().free(buffer)


def test_a_plan_frees_its_memory_also_if_it_gets_too_little() -> None:
    lowered = lower(diamond.graph(40, 8), "naive")
    ptx = {name: kernel.ptx(compiler()) for name, kernel in lowered.kernels.items()}
    plan = plan_execution(lowered, "chain")
    backend = Small(2)
    with pytest.raises(MemoryError):
        PlanRun(plan, backend, ptx)
    gc.collect()
    assert not backend.held
    backend = Small(100)
    run = PlanRun(plan, backend, ptx)
    assert len(backend.held) > 2
    del run
    gc.collect()
    assert not backend.held
