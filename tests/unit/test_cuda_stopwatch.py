"""The stopwatch on a fake GPU: short kernels, restored memory, values kept from earlier calls, and differences."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_gpu import BETWEEN_EVENTS, HOST_CALL, FakeGpu
from fake_runs import arm, work
from ptxmotion.harness.correctness import Checker
from ptxmotion.harness.cuda import CudaBackend, CudaKernel
from ptxmotion.harness.cuda_stopwatch import CudaStopwatch, ReplayDiffers
from ptxmotion.harness.protocol import Plan, time_arms
from ptxmotion.harness.stats import Rule, Verdict
from ptxmotion.harness.workload import Arm


def watch(gpu: FakeGpu, *arms: Arm) -> CudaStopwatch:
    return CudaStopwatch(gpu, work(), arms, 1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("micros", "is_short"), [(2, True), (16, True), (18.4, True), (21, True), (29, False)])
def test_whether_an_arm_is_short_does_not_count_the_first_launch_of_a_graph(micros: float, is_short: bool) -> None:
    made = watch(FakeGpu(), arm("O3", f"honest {micros}e-6"))
    assert (made.copies > 1) == is_short
    if is_short:
        assert made.copies >= 8 and 300e-6 < made.copies * (micros * 1e-6 + BETWEEN_EVENTS) < 1e-3
    block = made.measure(0, 5)
    over = min(block.seconds) - micros * 1e-6
    assert 0 <= over < (BETWEEN_EVENTS if is_short else 2 * BETWEEN_EVENTS)
    assert abs(block.clock_hz / 1.98e9 - 1) < 1e-6
    assert made.how()["launches_per_sample"] == made.copies


def test_short_work_rotates_over_five_times_l2() -> None:
    gpu = FakeGpu(l2=1 << 20)
    made = watch(gpu, arm("O3", "honest 5e-6"))
    (memory,) = {id(each.memory): each.memory for each in made.arms}.values()
    assert memory.stride * made.copies >= 5 << 20
    assert memory.changed == {1}


def test_two_percent_are_found_between_short_kernels() -> None:
    made = watch(FakeGpu(), *(arm(id, f"honest {t}e-6") for id, t in (("O3", 16), ("again", 16), ("slow", 16.5))))
    _, found = time_arms(made, 3, [(0, 1), (0, 2)], Plan(rounds=5, warm_up_seconds=0.0, rule=Rule(resamples=200)))
    assert [each.verdict for each in found] == [Verdict.SAME, Verdict.SLOWER]


def test_what_the_check_has_recorded_is_not_run_again() -> None:
    gpu, arms = FakeGpu(), [arm("O3", "honest 1e-4"), arm("x", "honest 2e-4")]
    checker = Checker(gpu, work(), arms[0], (1, 2))
    assert checker.check_baseline().status == checker.check(arms[1]).status == "ok"
    held = gpu.held
    before = gpu.kernels
    known = CudaStopwatch(gpu, work(), arms, 1, checker.recorded)  # pyright: ignore[reportArgumentType]
    with_recordings = gpu.kernels - before
    assert [known.verify(number) for number in range(2)] == [[], []]
    known.close()
    assert gpu.held == held
    before = gpu.kernels
    watch(gpu, *arms)
    assert gpu.kernels - before == with_recordings + 4


def test_results_that_vary_are_not_kept_for_comparison() -> None:
    gpu, racy = FakeGpu(), arm("O3", "racy 1e-4")
    checker = Checker(gpu, work(), racy, (1,))
    assert checker.check_baseline().nondeterministic == ["target", "buffer 1"]
    assert checker.recorded == {}
    assert watch(gpu, racy).verify(0) == []


def test_an_arm_that_computes_something_else_under_the_clock_is_found() -> None:
    gpu, arms = FakeGpu(), [arm("O3", "honest 1e-4"), arm("x", "honest 1e-4")]
    checker = Checker(gpu, work(), arms[0], (1,))
    checker.check_baseline()
    checker.check(arms[1])
    made = CudaStopwatch(gpu, work(), arms, 1, checker.recorded)  # pyright: ignore[reportArgumentType]
    assert made.verify(1) == []
    made.arms[1].recording.final[1] = b"something else"
    assert made.verify(1) == ["buffer 1 (4000 bytes) of set 0 differs"]
    checker.recorded["x"].final[1] = b"something else"
    with pytest.raises(ReplayDiffers, match="x: buffer 1"):
        CudaStopwatch(gpu, work(), arms, 1, checker.recorded)  # pyright: ignore[reportArgumentType]


def test_launch_stream_times_what_the_host_takes() -> None:
    arms = [replace(arm(id, "honest 1e-6"), launch=how) for id, how in (("O3", "stream"), ("graph", "graph"))]
    made = watch(FakeGpu(), *arms)
    assert made.how()["mode"] == "stream" and made.copies >= 8
    # The stream is empty at the first event, so the time includes all calls, but only the kernel of the last one.
    by_stream, by_graph = (min(made.measure(number, 5).seconds) for number in range(2))
    assert HOST_CALL <= by_stream < HOST_CALL + 2e-6
    assert by_graph < 2e-6
    assert len(made.arms[0].graphs) == 0 and len(made.arms[1].graphs) == made.copies
    assert made.verify(0) == made.verify(1) == []


def test_a_graph_of_all_runs_is_launched_where_launches_do_not_count() -> None:
    made = watch(FakeGpu(), arm("O3", "honest 1e-6"))
    assert made.how()["mode"] == "graph" and len(made.arms[0].graphs) == 1


def test_long_work_is_launched_call_by_call_but_for_an_arm_that_is_a_graph() -> None:
    arms = [arm("O3", "honest 1e-4"), replace(arm("graph", "honest 1e-4"), launch="graph")]
    made = watch(FakeGpu(), *arms)
    assert [len(each.graphs) for each in made.arms] == [0, 1] and not made.counts_launches


def test_a_kernel_keeps_the_most_shared_memory_that_it_was_allowed() -> None:
    # All calls are prepared before the first one runs, so preparing a later call must not reduce the limit of an
    # earlier one.
    asked: list[int] = []
    kinds = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    backend: Any = object.__new__(CudaBackend)
    backend._allowed, backend.driver = {}, SimpleNamespace(CUfunction_attribute=kinds)

    def call(_name: str, _handle: int, _kind: int, shared: int) -> None:
        asked.append(shared)

    backend.call = call
    for shared in (1 << 10, 100 << 10, 60 << 10, 120 << 10):
        backend.allow_shared(CudaKernel("k", 7, (), False, None), shared)
    assert asked == [100 << 10, 120 << 10]
