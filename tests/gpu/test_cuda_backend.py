"""The GPU as a backend: results, arguments, memory, occupancy, cooperative launches, graphs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chains import chain, spin
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.harness.machine import DeviceFailed, choose
from ptxmotion.toolchain.occupancy import occupancy

pytestmark = pytest.mark.gpu

_HEADER = ".version 8.0\n.target sm_75\n.address_size 64\n"


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaBackend]:
    yield CudaBackend()


def test_auto_is_the_gpu() -> None:
    machine, count, why = choose("auto")
    assert machine.name == "cuda" and count >= 1
    assert why.startswith("cuda")


def test_a_kernel_runs_and_gives_the_right_bytes(gpu: CudaBackend) -> None:
    x = np.random.default_rng(0).random(1024).astype(np.float32)
    source, target = gpu.allocate(4096), gpu.allocate(4096)
    gpu.write(source, x)
    gpu.launch(gpu.load(chain(3)).kernel("chain"), (4, 1, 1), (256, 1, 1), 0, [source, target])
    # A multiply-add in double precision that is rounded to float once equals that of float.
    for _ in range(3):
        for bits in (0x3F7FFFFF, 0x3F7FFFFE, 0x3F7FFFFD, 0x3F7FFFFC):
            a, b = np.array([bits, 0x3A83126F], np.uint32).view(np.float32).astype(np.float64)
            x = (x.astype(np.float64) * a + b).astype(np.float32)
    assert np.array_equal(gpu.read(target, np.float32, 1024), x)
    assert np.array_equal(gpu.read(target, np.float32, 4, offset=400), x[100:104])


def test_scalars_structs_and_large_shared_memory(gpu: CudaBackend) -> None:
    ptx = f"""{_HEADER}
.extern .shared .align 16 .b8 pool[];
.visible .entry store(.param .u64 target, .param .f64 x, .param .u8 small, .param .align 4 .b8 pair[8])
{{
  .reg .u64 %a; .reg .f64 %d; .reg .u32 %r<4>; .reg .u16 %h;
  ld.param.u64 %a, [target]; ld.param.f64 %d, [x]; ld.param.u8 %h, [small];
  ld.param.u32 %r0, [pair]; ld.param.u32 %r1, [pair+4];
  st.shared.u32 [pool+98304], %r1; ld.shared.u32 %r2, [pool+98304];
  cvt.u32.u16 %r3, %h;
  st.global.f64 [%a], %d; st.global.v2.u32 [%a+8], {{%r0, %r2}}; st.global.u32 [%a+16], %r3;
  ret;
}}"""
    kernel = gpu.load(ptx).kernel("store")
    target = gpu.allocate(20)
    pair = np.array([5, 6], np.uint32).tobytes()
    gpu.launch(kernel, (1,), (1,), 100_000, [target, np.float64(2.5), np.uint8(9), pair])
    assert gpu.read(target, np.float64, 1)[0] == 2.5
    assert gpu.read(target, np.uint32, 3, offset=8).tolist() == [5, 6, 9]
    wrong: list[list[Any]] = [
        [target, np.float32(2.5), np.uint8(9), pair],
        [target, np.float64(2.5), np.uint8(9)],
        [target, np.float64(2.5), np.uint8(9), 7],
    ]
    for each in wrong:
        with pytest.raises(TypeError, match="argument"):
            gpu.launch(kernel, (1,), (1,), 0, each)


def test_memory_is_pooled_and_its_bounds_are_kept(gpu: CudaBackend) -> None:
    first = gpu.allocate(1000)
    gpu.free(first)
    again = gpu.allocate(2000)
    assert again.pointer == first.pointer
    with pytest.raises(ValueError, match="bytes 1996 to 2004"):
        gpu.write(again, np.zeros(2, np.float32), offset=1996)
    with pytest.raises(TypeError, match="view"):
        gpu.free(gpu.view(again, 0, 8))
    gpu.fill(again, 0xAB)
    other = gpu.allocate(2000)
    gpu.copy(other, again, 100, 10, 20)
    assert (gpu.read(other, np.uint8, 100, offset=10) == 0xAB).all()
    with pytest.raises(DeviceFailed, match="OUT_OF_MEMORY"):
        gpu.allocate(1 << 50)


def test_occupancy_is_the_drivers(gpu: CudaBackend) -> None:
    kernel = gpu.load(chain(3)).kernel("chain")
    registers = int(
        gpu.call("cuFuncGetAttribute", gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel.handle)
    )
    for threads in (32, 96, 256, 1024):
        ours = occupancy(gpu.sm, threads, registers)
        assert ours is not None and ours.blocks == gpu.occupancy(kernel, threads)


GRID_SYNC = f"""{_HEADER}
.visible .entry wait_for_all(.param .u64 counter, .param .u64 seen)
{{
  .reg .u64 %a<4>; .reg .u32 %r<6>; .reg .pred %p;
  ld.param.u64 %a0, [counter]; ld.param.u64 %a1, [seen];
  mov.u32 %r4, %envreg1;
  mov.u32 %r5, %envreg2;
  mov.u32 %r0, %nctaid.x;
  atom.add.release.gpu.global.u32 %r1, [%a0], 1;
LOOP:
  ld.acquire.gpu.global.u32 %r2, [%a0];
  setp.lt.u32 %p, %r2, %r0;
  @%p bra LOOP;
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %a2, %r3, 4;
  add.u64 %a3, %a1, %a2;
  st.global.u32 [%a3], %r2;
  ret;
}}"""


def test_a_kernel_that_waits_for_the_grid_is_launched_cooperatively(gpu: CudaBackend) -> None:
    kernel = gpu.load(GRID_SYNC).kernel("wait_for_all")
    assert kernel.is_grid_wide
    blocks = gpu.attribute("MULTIPROCESSOR_COUNT")
    counter, seen = gpu.allocate(4), gpu.allocate(4 * blocks)
    gpu.fill(counter, 0)
    gpu.launch(kernel, (blocks,), (32,), 0, [counter, seen])
    # Each of the 32 threads of each block counts itself.
    assert (gpu.read(seen, np.uint32, blocks) >= blocks).all()
    with pytest.raises(DeviceFailed, match="TOO_LARGE"):
        gpu.launch(kernel, (1 << 20,), (32,), 0, [counter, seen])


def test_events_and_graphs_take_the_time_of_the_gpu(gpu: CudaBackend) -> None:
    kernel, target = gpu.load(spin(200_000)).kernel("spin"), gpu.allocate(4)
    packed = gpu.pack(kernel, [target])

    def five() -> None:
        for _ in range(5):
            gpu.launch_packed(kernel, (1, 1, 1), (1, 1, 1), 0, packed)

    graph = gpu.graph(five)
    start, stop = gpu.event(), gpu.event()
    gpu.fill(target, 0)
    gpu.record(start)
    gpu.launch_graph(graph)
    gpu.record(stop)
    assert gpu.read(target, np.uint32, 1)[0] == 1
    assert 1.0e-3 <= gpu.seconds_between(start, stop) < 1.1e-3


def test_what_the_gpu_is(gpu: CudaBackend) -> None:
    described = gpu.describe()
    assert described["gpu"] and described["multiprocessors"] > 0 and described["l2_bytes"] > 1 << 20
    assert described["driver"] and described["ptxas"].startswith("13.")
    assert isinstance(described["processes"], list)
