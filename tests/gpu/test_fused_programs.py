"""Fused host programs on the GPU: the results have the bits of separate launches, on the GPU and on the emulator.

``pytest tests/gpu/test_fused_programs.py --fuzz-n N`` runs N random programs of `random_launches`, as on the emulator
(tests/property/test_fusion.py). Here the blocks that a barrier of the grid synchronizes really run in parallel.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptxmotion import dsl
from ptxmotion.dsl import program_from_text, ptx_source
from ptxmotion.dsl.run import Loaded
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.cuda import CudaBackend, open_backend
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.programs.fusing import residency
from ptxmotion.transforms.kernel_fusion.plan import FusedProgram, FusionOptions, fuse_program
from random_launches import random_launches

pytestmark = pytest.mark.gpu

#: The number of programs without --fuzz-n, and of programs in one test case.
FIXED, SHARE = 32, 8


@pytest.fixture(scope="module")
def gpu() -> CudaBackend:
    return open_backend()


def everything(gpu: CudaBackend) -> FusionOptions:
    """Makes every legal fusion, with barriers of the grid if all blocks fit on the GPU."""
    return FusionOptions(resident=residency(gpu.attribute("MULTIPROCESSOR_COUNT")))


@pytest.mark.fuzz
def test_random_fused_programs_compute_the_same(gpu: CudaBackend, seeds: list[int]) -> None:
    fusions = cooperative = 0
    for seed in seeds:
        made = random_launches(seed)
        found = fuse_program(made.host, made.ptx, everything(gpu))
        if not found.result.fusions:
            continue
        fusions += found.result.fusions
        cooperative += any(launch.cooperative for launch in found.fused)
        for data in (seed, seed + 1):
            wanted = Loaded(made.host, EmulatorBackend(), made.ptx).run(made.arguments(data))
            for host, ptx in ((made.host, made.ptx), (found.host, found.ptx)):
                outputs = Loaded(host, gpu, ptx).run(made.arguments(data))
                for name, array in wanted.items():
                    assert np.array_equal(outputs[name], array), (seed, name, host.to_python())
    assert fusions and cooperative


#: ``y[i] = x[i] + 3 * x[(i + far) % n] + x[i - 1]``: reads elements that other blocks have written.
STEP = """.version 8.0
.target sm_90
.address_size 64
.visible .entry step(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 far)
{
  .reg .u32 %n, %i, %j, %t, %v, %w;
  .reg .u64 %x, %y, %o;
  .reg .pred %p;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.u32 %n, [n];
  ld.param.u32 %j, [far];
  mov.u32 %i, %ctaid.x;
  mov.u32 %t, %ntid.x;
  mov.u32 %v, %tid.x;
  mad.lo.u32 %i, %i, %t, %v;
  setp.ge.u32 %p, %i, %n;
  @%p ret;
  add.u32 %j, %i, %j;
  rem.u32 %j, %j, %n;
  mul.wide.u32 %o, %j, 4;
  add.u64 %o, %x, %o;
  ld.global.u32 %v, [%o];
  mul.lo.u32 %v, %v, 3;
  mul.wide.u32 %o, %i, 4;
  add.u64 %o, %x, %o;
  ld.global.nc.u32 %w, [%o];
  add.u32 %v, %v, %w;
  setp.eq.u32 %p, %i, 0;
  @%p mov.u32 %w, 0;
  @!%p ld.global.u32 %w, [%o+-4];
  add.u32 %v, %v, %w;
  mul.wide.u32 %o, %i, 4;
  add.u64 %o, %y, %o;
  st.global.u32 [%o], %v;
  ret;
}
"""

ROUNDS = """
def p(data: host[u32], n: i32, rounds: i32, far: i32) -> None:
    a, b = allocate(u32, n), allocate(u32, n)
    copy(a, data)
    for i in range(rounds):
        step[(n + 255) // 256, 256](a, b, n, far)
        step[(n + 255) // 256, 256](b, a, n, far)
        step[(n + 255) // 256, 256](a, b, n, 7)
        step[(n + 255) // 256, 256](b, a, n, 1)
    copy(data, a)
"""


def rounds(gpu: CudaBackend) -> FusedProgram:
    host = program_from_text(ROUNDS.lstrip(), {**vars(dsl), "step": ptx_source(STEP)})
    return fuse_program(host, lambda kernel: kernel.ptx(), everything(gpu))


@pytest.mark.parametrize("n", [1, 300, 33_000, 200_000, 2_000_000])
def test_many_barriers_of_large_grids(gpu: CudaBackend, n: int) -> None:
    """Grids up to the number of resident blocks of the GPU. With more blocks, the kernels are launched separately."""
    made = rounds(gpu)
    assert "cooperative" in made.host.to_python() and made.result.fusions >= 3
    places = np.arange(n)
    wanted = given = places.astype(np.uint32)
    for far in (4711, 4711, 7, 1) * 50:
        left = np.concatenate([np.zeros(1, np.uint32), wanted[:-1]])
        wanted = wanted + np.uint32(3) * wanted[(places + far) % n] + left
    found = Loaded(made.host, gpu, made.ptx).run({"data": given, "n": n, "rounds": 50, "far": 4711})["data"]
    assert np.array_equal(found, wanted)


def test_a_grid_that_does_not_fit_fails(gpu: CudaBackend) -> None:
    """The driver refuses the launch, so nothing hangs."""
    text = ROUNDS.lstrip().replace("256](", '256, "cooperative"](')
    host = program_from_text(text, {**vars(dsl), "step": ptx_source(STEP)})
    loaded = Loaded(host, gpu, lambda kernel: kernel.ptx())
    loaded.run({"data": np.zeros(3000, np.uint32), "n": 3000, "rounds": 1, "far": 1})
    with pytest.raises(DeviceFailed, match="TOO_LARGE"):
        loaded.run({"data": np.zeros(1 << 24, np.uint32), "n": 1 << 24, "rounds": 1, "far": 1})
