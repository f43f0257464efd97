"""Modules and pipelines that nothing refers to any more while their launches have not run yet, and their memory."""

import gc
import importlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Boundary, Image, Mask, Window, local, pipeline
from ptxmotion.dsl.image.operators import Accessor
from ptxmotion.runtime import load
from ptxmotion.runtime.cuda_device import CudaDevice

pytestmark = pytest.mark.gpu

WEIGHTS = Mask(np.full((3, 3), 0.125, np.float32))
SHAPE = (500, 700)
#: Cycles of the GPU for which a stream is busy.
BUSY = 100_000_000

MARK = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry mark(.param .u64 out, .param .u32 value)
{
    .reg .pred %p;
    .reg .u32 %r<2>;
    .reg .u64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u64 %rd2, %clock64;
again:
    mov.u64 %rd3, %clock64;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p, %rd4, 20000000;
    @%p bra again;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@local(WEIGHTS)
def mean(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


def new_pipeline() -> Any:
    @pipeline
    def twice(src: Image[f32]) -> Image[f32]:
        return mean(Accessor(mean(Accessor(src, Boundary.CLAMP)), Boundary.CLAMP))

    return twice


@contextmanager
def busy_stream(torch: Any) -> Generator[Any]:
    """A stream that is the current one, and that does not reach further work for a while."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY)
        yield stream


@pytest.mark.parametrize("is_queued", [True, False])
def test_a_module_ends_before_its_launch(is_queued: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    with busy_stream(torch) as stream:
        if not is_queued:
            stream.synchronize()
        load(MARK)["mark"].launch(1, 1, out, 7, stream=stream)
        gc.collect()
    torch.cuda.synchronize()
    assert out.item() == 7


@pytest.mark.parametrize("execution", ["stream", "graph"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_pipeline_ends_before_its_launches(execution: str, library: str) -> None:
    """Also where another stream has made its buffers."""
    torch: Any = pytest.importorskip("torch")
    array = np.random.default_rng(1).random(SHAPE, np.float32)
    expected = new_pipeline().compile(SHAPE, flags=("-fmad=false",))(torch.from_numpy(array).cuda()).cpu().numpy()
    cupy: Any = pytest.importorskip("cupy") if library == "cupy" else None
    given = torch.from_numpy(array).cuda() if cupy is None else cupy.asarray(array)
    compiled: Any = new_pipeline().compile(SHAPE, flags=("-fmad=false",), execution=execution)
    compiled(given)
    with busy_stream(torch) as stream:
        if cupy is None:
            made = compiled(given)
        else:
            with cupy.cuda.ExternalStream(stream.cuda_stream):
                made = compiled(given)
    del compiled
    gc.collect()
    # What reuses the buffers on the default stream.
    others = [torch.full(SHAPE, 77.0, device="cuda") for _ in range(8)]
    others += [] if cupy is None else [cupy.full(SHAPE, 77, np.float32) for _ in range(8)]
    torch.cuda.synchronize()
    assert np.array_equal(made.cpu().numpy() if cupy is None else made.get(), expected)


@pytest.mark.parametrize("execution", ["stream", "graph"])
def test_pipelines_that_end_free_their_memory(execution: str) -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    shape, free = (2000, 2000), list[int]()
    array = np.zeros(shape, np.float32)
    for _ in range(4):
        new_pipeline().compile(shape, execution=execution)(array)
        gc.collect()
        free.append(int(driver.cuMemGetInfo()[1]))
    assert free[-1] >= free[0] - array.nbytes, free


@pytest.mark.parametrize("in_python", [False, True])
def test_a_new_thread_loads_and_launches(in_python: bool) -> None:
    """No context is current in it, and the device is from another thread."""
    torch: Any = pytest.importorskip("torch")
    out, device = torch.zeros(1, dtype=torch.int32, device="cuda"), CudaDevice(in_python=in_python)
    torch.cuda.synchronize()

    def launch() -> str:
        mark = load(MARK, device=device)["mark"]
        mark.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", 65536)
        mark.launch(1, 1, out, 9, shared=65536)
        return mark.decide(1, 1, out, 9).entry

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch).result() == "mark"
    torch.cuda.synchronize()
    assert out.item() == 9
