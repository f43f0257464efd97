"""Timing on a GPU: known times, planted slowdowns, and the planted cheats."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chains import arm, chain, chain_work, planted, replaced, spin, spin_work
from ptxmotion.harness.arm_code import assemble_arm
from ptxmotion.harness.correctness import Checker
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.harness.cuda_stopwatch import CudaStopwatch
from ptxmotion.harness.machine import CUDA
from ptxmotion.harness.protocol import Plan, time_arms
from ptxmotion.harness.results import ResultFile
from ptxmotion.harness.session import Limits, Session, Task
from ptxmotion.harness.stats import Verdict
from ptxmotion.harness.workload import Arm, Work

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaBackend]:
    yield CudaBackend()


@pytest.mark.parametrize("nanoseconds", [5_000, 50_000, 1_000_000])
def test_a_kernel_of_known_time_takes_it(gpu: CudaBackend, nanoseconds: int) -> None:
    watch = CudaStopwatch(gpu, spin_work(), [arm("O3", spin(nanoseconds))], 1)
    block = watch.measure(0, 20)
    over = np.median(block.seconds) - nanoseconds * 1e-9
    # A launch takes one or two microseconds, and the timer has a resolution of one.
    assert 0 <= over < 5e-6, (over, watch.how())
    assert 0.2e9 < block.clock_hz < 3e9
    assert (watch.copies > 1) == (nanoseconds < 20_000)
    watch.close()


def test_the_clock_probe_agrees_with_itself(gpu: CudaBackend) -> None:
    watch = CudaStopwatch(gpu, spin_work(), [arm("O3", spin(30_000))], 1)
    watch.warm_up(0, 0.2)
    clocks = [watch.measure(0, 5).clock_hz for _ in range(20)]
    assert max(clocks) / min(clocks) < 1.02, clocks
    watch.close()


def test_two_percent_is_found_and_a_third_of_one_is_not(gpu: CudaBackend) -> None:
    turns = 5000
    arms = [
        arm("O3", chain(turns)),
        arm("again", chain(turns)),
        arm("2", planted(turns, 0.02)),
        arm("0.3", planted(turns, 0.003)),
    ]
    watch = CudaStopwatch(gpu, chain_work("chains/x", 264), arms, 1)
    _, found = time_arms(watch, 4, [(0, 1), (0, 2), (0, 3)], Plan())
    assert [each.verdict for each in found] == [Verdict.SAME, Verdict.SLOWER, Verdict.SAME], found
    assert [watch.verify(number) for number in range(4)] == [[]] * 4
    watch.close()


CHEATS = {
    "unwritten": "",
    "nan": "  add.u64 %a3, %a1, %a2;\n  st.global.u32 [%a3], 0x7FC00000;",
    "stale": "  add.u64 %a3, %a1, %a2;\n  ld.global.f32 %x, [%a3];\n  st.global.f32 [%a3], %x;",
    "half": "  setp.gt.u32 %p, %r2, 7;\n  @%p ret;\n  add.u64 %a3, %a0, %a2;\n  ld.global.f32 %x, [%a3];\n"
    "  add.u64 %a3, %a1, %a2;\n  st.global.f32 [%a3], %x;",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_are_caught(gpu: CudaBackend, cheat: str) -> None:
    checker = Checker(gpu, chain_work("chains/x", 8), arm("O3", chain(10)), (1, 2, 3))
    assert checker.check_baseline().status == "ok"
    assert checker.check(arm("candidate", replaced(CHEATS[cheat]))).status == "mismatch"
    assert checker.check(arm("honest", planted(10, 0.5))).status == "ok"


def test_changed_inputs_and_writes_outside_are_caught(gpu: CudaBackend) -> None:
    checker = Checker(gpu, chain_work("chains/x", 8), arm("O3", chain(10)), (1, 2))
    assert checker.check_baseline().status == "ok"
    store = "  st.global.f32 [%a3], %x;\n"
    input_too = chain(10).replace(store, store + "  add.u64 %a3, %a0, %a2;\n" + store)
    found = checker.check(arm("input", input_too))
    assert any("buffer 0" in line for line in found.details), found
    beyond = chain(10).replace(store, store + "  st.global.f32 [%a1+8192], %x;\n")
    assert any("outside of buffer 1" in line for line in checker.check(arm("beyond", beyond)).details)
    before = chain(10).replace(store, store + "  st.global.f32 [%a0+-4], %x;\n")
    assert any("outside of buffer 0" in line for line in checker.check(arm("before", before)).details)


class OtherStream(CudaBackend):
    """A backend that launches the second and later kernels on another stream, which is not waited for, after a
    delay."""

    def __init__(self) -> None:
        super().__init__()
        self.other = self.create_stream()
        self.delay, self.where = self.load(spin(50_000_000)).kernel("spin"), self.allocate(4)
        self.cheats = False

    def launch(self, kernel: Any, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        if not self.cheats:
            return super().launch(kernel, grid, block, shared, args)
        own, self.stream = self.stream, self.other
        super().launch(self.delay, (1,), (1,), 0, [self.where])
        super().launch(kernel, grid, block, shared, args)
        self.stream = own
        return None


def test_work_on_another_stream_is_caught() -> None:
    machine = OtherStream()
    checker = Checker(machine, chain_work("chains/x", 8), arm("O3", chain(10)), (1, 2))
    assert checker.check_baseline().status == "ok"
    machine.cheats = True
    assert checker.check(arm("candidate", planted(10, 0.5))).status == "mismatch"
    machine.call("cuCtxSynchronize")


def session(tasks: list[tuple[Work, list[Arm]]]) -> ResultFile:
    empty = ResultFile("2026-01-01T00:00:00+00:00", "0", "cuda", {}, {}, {})
    run = Session(CUDA, Plan(), empty, assembler=assemble_arm, limits=Limits(check=20, round=20))
    return run.run([Task(work.fullname, lambda work=work, arms=arms: (work, arms)) for work, arms in tasks])


def test_a_hang_and_a_fault_cost_only_their_own_arm() -> None:
    """The kernel that hangs ends by itself after a minute, so that the machine can be used again."""
    base = chain(2000)
    endless = base.replace("LOOP:\n", "  .reg .u64 %t<3>;\n  mov.u64 %t0, %globaltimer;\nLOOP:\n").replace(
        "  setp.lt.u32 %p, %r4, 2000;",
        "  mov.u64 %t1, %globaltimer;\n  sub.u64 %t2, %t1, %t0;\n  setp.lt.u64 %p, %t2, 60000000000;",
    )
    fault = base.replace("  st.global.f32 [%a3], %x;", "  st.global.f32 [%a3+0x7000000000], %x;")
    arms = [
        arm("O3", base),
        arm("endless", endless),
        arm("fault", fault),
        arm("slower", planted(2000, 0.1)),
        arm("identical", base.replace("%x", "%z")),
    ]
    done = session([(chain_work("chains/x", 264), arms)])
    found = done.benchmarks[0]
    assert found.error == ""
    verdicts = {each.candidate: each.verdict for each in found.comparisons}
    assert verdicts == {
        "O3 (again)": "SAME",
        "endless": "MISMATCH",
        "fault": "MISMATCH",
        "slower": "SLOWER",
        "identical": "IDENTICAL",
    }
    assert found.arm("endless").correctness.status == "hang"
    assert found.arm("fault").correctness.status == "crash"
    assert found.arm("O3").static["chain"]["occupancy"] == 1.0


def test_graphs_are_arms_of_their_own() -> None:
    base = chain(2000)
    done = session([(chain_work("chains/x", 264), [arm("O3", base), arm("O3+graph", base, launch="graph")])])
    found = done.benchmarks[0].candidates[0]
    assert found.verdict in ("SAME", "SLOWER", "FASTER"), found


def test_a_stream_of_short_launches_costs_what_the_host_takes_to_launch(gpu: CudaBackend) -> None:
    arms = [Arm(id, {"m": spin(1_000)}, launch=how) for id, how in (("O3", "stream"), ("graph", "graph"))]
    watch = CudaStopwatch(gpu, spin_work(), arms, 1)
    assert watch.copies > 8 and not watch.arms[0].graphs
    seconds = [float(np.median(watch.measure(number, 20).seconds)) for number in (0, 1)]
    print(f"a kernel of 1 µs: {1e6 * seconds[0]:.2f} µs in a stream, {1e6 * seconds[1]:.2f} µs as a graph each")
    assert 1e-6 < seconds[0] < 8e-6, seconds
    assert watch.verify(0) == watch.verify(1) == []
    watch.close()
