"""Arms of an image pipeline on a GPU: kernels are compiled once, run in a CUDA graph, and timed in turn.

An arm is a lowered pipeline whose pixels are f32. A time is that of a CUDA graph with `RUNS` runs, divided by `RUNS`.
In each round the arms run in a random order.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import nan
from typing import Any, cast

import numpy as np
from ptxmotion.dsl.image import Image
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.kernel import PythonKernel
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer, CudaModule
from ptxmotion.toolchain.cubin_cache import assemble_kept

RUNS = 10


def compiled(arms: Mapping[str, Lowered], cubins: dict[str, bytes], threads: int = 12) -> None:
    """Compile the kernels that ``cubins``, machine code by CUDA C++, does not have."""
    kernels = {
        kernel.cuda: kernel for arm in arms.values() for kernel in arm.kernels.values() if kernel.cuda not in cubins
    }
    nvcc = compiler()

    def compile_one(kernel: PythonKernel[...]) -> bytes:
        return assemble_kept(kernel.ptx(nvcc), nvcc.arch).cubin

    with ThreadPoolExecutor(threads) as pool:
        cubins.update(zip(kernels, pool.map(compile_one, kernels.values()), strict=True))


class Run:
    """An arm on the GPU: its buffers and a graph of `RUNS` runs. ``sources`` are the buffers of its inputs."""

    def __init__(
        self, backend: CudaBackend, arm: Lowered, cubins: Mapping[str, bytes], sources: Sequence[CudaBuffer]
    ) -> None:
        self.backend, self.arm = backend, arm
        self.memory: dict[Any, CudaBuffer] = dict(zip(arm.graph.inputs, sources, strict=True))
        self.own = [*arm.buffers, *arm.graph.outputs]
        for image in self.own:
            self.memory[image] = backend.allocate(4 * _pixels(image))
        self.modules: list[CudaModule] = []
        calls: list[Callable[[], object]] = []
        for launch in arm.launches:
            self.modules.append(backend.load_cubin(cubins[launch.kernel.cuda]))
            kernel = self.modules[-1].kernel(launch.kernel.name)
            values = [
                self.memory[a.value] if isinstance(a.value, Image) else np.int32(cast("int", a.value))
                for a in launch.arguments
            ]
            (x, y), (threads_x, threads_y) = launch.grid, launch.block
            packed = backend.pack(kernel, values)
            calls.append(backend.launch_call(kernel, (int(x), int(y), 1), (threads_x, threads_y, 1), 0, packed))

        def body() -> None:
            for _ in range(RUNS):
                for call in calls:
                    call()

        body()
        backend.synchronize()
        self.graph = backend.graph(body)

    def results(self) -> list[bytes]:
        """The bytes of each output."""
        return [
            self.backend.read(self.memory[image], np.dtype(np.float32), _pixels(image)).tobytes()
            for image in self.arm.graph.outputs
        ]

    def seconds(self) -> float:
        return self.backend.seconds_of_graph(self.graph) / RUNS

    def free(self) -> None:
        self.backend.destroy_graph(self.graph)
        for image in self.own:
            self.backend.free(self.memory[image])


def timed(
    backend: CudaBackend, graph: Graph, arms: Mapping[str, Lowered], cubins: Mapping[str, bytes], rounds: int
) -> dict[str, float]:
    """The median of each arm in microseconds. Those whose results are not the bits of the arm ``naive`` get NaN."""
    rng, sources = np.random.default_rng(int(graph.outputs[0].width)), list[CudaBuffer]()
    for image in graph.inputs:
        pixels = rng.random(_pixels(image), np.float32) + np.float32(0.01)
        sources.append(backend.allocate(pixels.nbytes))
        backend.write(sources[-1], pixels)
    runs = {word: Run(backend, arm, cubins, sources) for word, arm in arms.items()}
    expected = runs["naive"].results()
    different = {word for word, run in runs.items() if run.results() != expected}
    times: dict[str, list[float]] = {word: [] for word in runs}
    order = random.Random(1)
    for number in range(rounds + 2):
        for word in order.sample(sorted(runs), len(runs)):
            seconds = runs[word].seconds()
            if number >= 2:
                times[word].append(seconds)
    for run in runs.values():
        run.free()
    for buffer in sources:
        backend.free(buffer)
    return {word: nan if word in different else statistics.median(each) * 1e6 for word, each in times.items()}


def _pixels(image: Image[Any]) -> int:
    return int(image.width) * int(image.height)
