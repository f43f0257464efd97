"""Image pipelines as CUDA graphs: the same pixels as launches in a stream, for NumPy, PyTorch and CuPy."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Image, maximum, pipeline, point
from ptxmotion.dsl.image.streams.planning import MODES, by_resources, plan_execution
from ptxmotion.dsl.image.streams.running import PlanRun
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.suites.image import blending, multiresolution
from ptxmotion.suites.registry import Benchmark

pytestmark = pytest.mark.gpu

NUMBERS = {"gradients": (0.5,), "laplacian": (1.5,), "spline": ()}
BENCHMARKS: dict[str, Benchmark] = {
    "gradients": multiresolution.gradients_benchmark,
    "laplacian": multiresolution.laplacian_benchmark,
    "spline": blending.spline_benchmark,
}


@pipeline
def largest(src: Image[f32]) -> Image[f32]:
    return maximum(f32)(src)


def images(name: str, height: int, width: int) -> list[Any]:
    count = len(pipeline_of(name).images)
    return [np.random.default_rng(number).random((height, width), np.float32) for number in range(count)]


def pipeline_of(name: str) -> Any:
    return BENCHMARKS[name].pipeline


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_mode_computes_the_same(name: str) -> None:
    arrays, backend = images(name, 301, 515), CudaBackend()
    found: set[bytes] = set()
    for lowering in ("naive", "fused"):
        compiled = pipeline_of(name).compile((301, 515), lowering=lowering)
        found.add(compiled(*arrays, *NUMBERS[name], backend=backend).tobytes())
        numbers = {each.name: value for each, value in zip(compiled.graph.scalars, NUMBERS[name], strict=True)}
        for mode in MODES:
            run = PlanRun(plan_execution(compiled.lowered, mode, by_resources(compiled.ptx)), backend, compiled.ptx)
            for _ in range(2):
                (made,) = run.run([array.reshape(-1) for array in arrays], numbers)
                found.add(made.tobytes())
            run.close()
    assert len(found) == 1


def test_other_numbers_and_images_need_no_other_graph() -> None:
    program = pipeline_of("gradients")
    graph, stream = (program.compile((64, 80), execution=word) for word in ("graph", "stream"))
    backend = CudaBackend()
    for share in (0.5, 0.25, 0.5):
        (image,) = images("gradients", 64, 80)
        image = image * np.float32(share)
        assert np.array_equal(graph(image, share, backend=backend), stream(image, share, backend=backend))


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_stay_on_the_gpu(library: str) -> None:
    module: Any = pytest.importorskip(library)
    (image,) = images("laplacian", 123, 321)
    program = pipeline_of("laplacian")
    expected = program.compile((123, 321))(image, 1.5, backend=CudaBackend())
    compiled = program.compile((123, 321), lowering="fused", execution="graph")
    kept: list[Any] = []
    for _ in range(3):
        given = module.asarray(image) if library == "cupy" else module.from_numpy(image).cuda()
        kept.append(compiled(given, 1.5))
    for made in kept:
        on_host = module.asnumpy(made) if library == "cupy" else made.cpu().numpy()
        assert np.array_equal(on_host, expected)


def test_work_is_on_the_current_stream() -> None:
    pytest.importorskip("torch")
    torch: Any = importlib.import_module("torch")
    (image,) = images("laplacian", 123, 321)
    program = pipeline_of("laplacian")
    expected = program.compile((123, 321))(image, 1.5, backend=CudaBackend())
    compiled = program.compile((123, 321), execution="graph")
    with torch.cuda.stream(torch.cuda.Stream()):
        made = compiled(torch.from_numpy(image).cuda(), 1.5).cpu().numpy()
    assert np.array_equal(made, expected)


def test_memory_is_cleared_for_reductions() -> None:
    """The second launch of a graph needs zeros, too."""
    pixels = np.random.default_rng(1).random((64, 70), np.float32)
    compiled = largest.compile((64, 70), execution="graph")
    backend = CudaBackend()
    for factor in (1.0, 0.5):
        image = pixels * np.float32(factor)
        assert compiled(image, backend=backend)[0, 0] == image.max()


@point
def scaled(a: f32, factor: f32) -> f32:
    return a * factor


@pipeline
def scaled_twice(src: Image[f32], factor: f32) -> Image[f32]:
    return scaled(scaled(src, factor), factor)


def test_a_plan_runs_with_other_numbers_in_a_new_thread() -> None:
    """No context is current there, and the arguments of the graph change before anything is copied. A driver that sets
    them without a context ends the process."""
    image, backend = np.random.default_rng(0).random((64, 80), np.float32), CudaBackend()
    compiled = scaled_twice.compile((64, 80), execution="graph")
    run = PlanRun(compiled.plan, backend, compiled.ptx)
    (output,) = compiled.graph.outputs
    run.run([image.reshape(-1)], {"factor": np.float32(0.5)})
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run.execute, {"factor": np.float32(0.75)}).result()
    made = backend.read(run.memory[output], np.float32, image.size).reshape(image.shape)
    assert np.array_equal(made, image * np.float32(0.75) * np.float32(0.75))
