"""Random schedules of random pipelines on a GPU: every pixel is that of naive kernels. Tuning by time."""

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl.image import Compiled, Options
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.schedule.timing import Timer
from ptxmotion.dsl.image.schedule.tuning import tune
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.suites.registry import find
from test_image_schedules import random_array, random_graph, random_plan

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(8))
def test_schedules_compute_what_naive_kernels_compute(seed: int) -> None:
    rng, backend = random.Random(100 + seed), CudaBackend()
    graph = random_graph(rng)
    arrays = [random_array(image, seed) for image in graph.inputs]
    nvcc = compiler()
    options = Options(nvcc=nvcc)

    def results(lowered: Any) -> list[NDArray[Any]]:
        made: Any = Compiled(lowered, nvcc)(*arrays, backend=backend)
        return [made] if isinstance(made, np.ndarray) else list(made)

    expected = results(lower(graph, "naive", options))
    for _ in range(3):
        plan = random_plan(rng, graph)
        for got, wanted in zip(results(lower_plan(plan, options, "plan")), expected, strict=True):
            assert np.array_equal(got, wanted, equal_nan=got.dtype.kind == "f"), f"{graph}\n{plan}"


@pytest.mark.parametrize("name", ["image/harris", "image/histogram"])
def test_tuning_finds_a_schedule(name: str) -> None:
    benchmark = find(name)
    assert benchmark.pipeline is not None
    graph = benchmark.pipeline.graph(700, 500)
    options = Options(nvcc=compiler())
    numbers = {scalar.name: 0.04 for scalar in graph.scalars}
    lines: list[str] = []
    tuned = tune(graph, options, Timer(CudaBackend(), graph, options, numbers), 5, lines.append)
    tuned.plan.check(options)
    assert 0 < tuned.microseconds == min(tuned.times.values()) and lines


def test_a_tuned_pipeline_gives_the_bits_of_naive() -> None:
    pipeline: Any = find("image/sobel").of({"boundary": "mirror"}).pipeline
    image = np.random.default_rng(3).random((300, 1000), np.float32)
    plan = pipeline.tune(image.shape, seconds=5)
    made = pipeline.compile(image.shape, schedule=plan)(image, backend=CudaBackend())
    assert made.tobytes() == pipeline.compile(image.shape)(image, backend=CudaBackend()).tobytes()
