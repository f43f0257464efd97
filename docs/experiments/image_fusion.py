"""Image pipelines with one kernel for each operator beside fused ones: times, estimates and equal results.

    python docs/experiments/image_fusion.py [--build] [--seconds N] [--least N] [--most N] [--shapes]

Needs nvcc and, unless ``--build`` only prints plans and compiles, a GPU and the extra `gpu`. Each time is that of a
CUDA graph with ten runs of the pipeline, divided by ten; the arms take turns in each round. Prints medians in
microseconds, the estimate of the model for the fused plan, and naive over fused. ``--shapes`` also times groups of all
operators with given tiles, blocks and pixels of a thread; the numbers of `fusion.cost.Machine` are chosen from these
times. Results of all arms must be the same bits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
from ptxmotion.dsl import f32, sqrt
from ptxmotion.dsl.image import Accessor, Boundary, Image, Options, Window, local, lower, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.fusion.cost import Machine, cost_of
from ptxmotion.dsl.image.fusion.planning import plan_by_model
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.kernel import PythonKernel
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer, CudaModule
from ptxmotion.suites.image.gaussian import blurred3, blurred5
from ptxmotion.suites.image.sobel import across, down, magnitude

ROUNDS, RUNS = 15, 10
CLAMP = Boundary.CLAMP


@local((3, 3))
def mean_of_nine(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy]
    return total * 0.11111111


@point
def square(a: f32) -> f32:
    return a * a


@point
def product(a: f32, b: f32) -> f32:
    return a * b


@point
def corner(a: f32, b: f32, c: f32) -> f32:
    return a * b - c * c - 0.04 * (a + b) * (a + b)


@point
def least(a: f32, b: f32, c: f32) -> f32:
    return 0.5 * (a + b - sqrt((a - b) * (a - b) + 4.0 * c * c))


@point
def difference(a: f32, b: f32) -> f32:
    return a - b


@point
def sharpened(a: f32, b: f32) -> f32:
    return a + 0.7 * b


@point
def ratio(a: f32, b: f32) -> f32:
    return a / (b + 0.001)


@point
def gamma(a: f32) -> f32:
    return sqrt(max(a, 0.0))


@point
def contrast(a: f32) -> f32:
    return min(max((a - 0.5) * 1.3 + 0.5, 0.0), 1.0)


@pipeline
def sobel(src: Image[f32]) -> Image[f32]:
    return magnitude(across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP)))


def tensor(src: Image[f32]) -> list[Image[f32]]:
    x, y = across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP))
    return [blurred3(Accessor(each, CLAMP)) for each in (square(x), square(y), product(x, y))]


@pipeline
def harris(src: Image[f32]) -> Image[f32]:
    return corner(*tensor(src))


@pipeline
def shi_tomasi(src: Image[f32]) -> Image[f32]:
    return least(*tensor(src))


@pipeline
def unsharp(src: Image[f32]) -> Image[f32]:
    detail = difference(src, blurred5(Accessor(src, CLAMP)))
    return product(ratio(sharpened(src, detail), src), src)


@pipeline
def enhance(src: Image[f32]) -> Image[f32]:
    return contrast(gamma(blurred5(Accessor(src, Boundary.MIRROR))))


@pipeline
def chain(src: Image[f32]) -> Image[f32]:
    for _ in range(5):
        src = mean_of_nine(Accessor(src, CLAMP))
    return src


PIPELINES: tuple[Any, ...] = (sobel, harris, unsharp, shi_tomasi, enhance, chain)
SHAPES = (((32, 8), (1, 1)), ((32, 8), (1, 4)), ((32, 4), (1, 4)), ((32, 16), (1, 2)), ((64, 4), (1, 4)))


def shaped(graph: Graph) -> Iterator[tuple[str, Plan]]:
    """Plans with one group of all operators."""
    points = [node for node in graph.nodes if node.operator.kind == "point"]
    inner = frozenset(node for node in graph.nodes if node not in graph.outputs)
    read = frozenset(a.image for node in graph.nodes for a in node.accesses if a.param.is_window)
    for word, tiled in (("none", frozenset[Any]()), ("windows", inner & read), ("locals", inner - {*points})):
        for block, pixels in SHAPES:
            group = Group(graph, graph.nodes, tiled, block, pixels)
            if next(group.problems(Options()), None) is None:
                name = f"tiles {word}, {block[0]}x{block[1]}, {pixels[0]}x{pixels[1]}"
                yield name, Plan(graph, (group,))


def arms_of(graph: Graph, *, shapes: bool) -> tuple[dict[str, Lowered], dict[str, float]]:
    """The arms, and the estimates of those that are plans, in microseconds."""
    options = Options()
    plans = {"fused": plan_by_model(graph, options), **(dict(shaped(graph)) if shapes else {})}
    made = {name: lower(graph, name, options) for name in ("naive", "isp")}
    made |= {name: lower_plan(plan, options, name) for name, plan in plans.items()}
    machine = Machine()
    estimates = {
        name: sum(cost_of(group, options, machine).seconds for group in plan.groups) * 1e6
        for name, plan in plans.items()
    }
    return made, estimates


def compiled(arms: dict[str, Lowered], ptx: dict[str, str]) -> None:
    """Compile kernels. ``ptx`` maps CUDA C++ to PTX."""
    kernels = {
        kernel.cuda: kernel for arm in arms.values() for kernel in arm.kernels.values() if kernel.cuda not in ptx
    }
    nvcc = compiler()
    compile_one: Callable[[PythonKernel[...]], str] = lambda kernel: kernel.ptx(nvcc)  # noqa: E731
    with ThreadPoolExecutor(12) as pool:
        ptx.update(zip(kernels, pool.map(compile_one, kernels.values()), strict=True))


class Run:
    """An arm on the GPU: its buffers and a graph of `RUNS` runs."""

    def __init__(self, backend: CudaBackend, arm: Lowered, ptx: dict[str, str], source: CudaBuffer) -> None:
        self.backend, self.arm = backend, arm
        self.memory: dict[Any, CudaBuffer] = {arm.graph.inputs[0]: source}
        for image in (*arm.buffers, *arm.graph.outputs):
            self.memory[image] = backend.allocate(4 * int(image.width) * int(image.height))
        self.modules: list[CudaModule] = []
        calls: list[Callable[[], object]] = []
        for launch in arm.launches:
            self.modules.append(backend.load(ptx[launch.kernel.cuda]))
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

    def result(self) -> bytes:
        (image,) = self.arm.graph.outputs
        return self.backend.read(
            self.memory[image], np.dtype(np.float32), int(image.width) * int(image.height)
        ).tobytes()

    def seconds(self) -> float:
        return self.backend.seconds_of_graph(self.graph) / RUNS

    def free(self, source: CudaBuffer) -> None:
        self.backend.destroy_graph(self.graph)
        for buffer in self.memory.values():
            if buffer is not source:
                self.backend.free(buffer)


def timed(
    backend: CudaBackend, name: str, size: int, arms: dict[str, Lowered], ptx: dict[str, str]
) -> dict[str, float]:
    """The median of each arm in microseconds. Raises `AssertionError` if results differ."""
    image = np.random.default_rng(size).random(size * size, np.float32)
    source = backend.allocate(image.nbytes)
    backend.write(source, image)
    runs = {word: Run(backend, arm, ptx, source) for word, arm in arms.items()}
    expected = runs["naive"].result()
    for word, run in runs.items():
        assert run.result() == expected, f"{name} {size}: {word} differs from naive"
    times: dict[str, list[float]] = {word: [] for word in runs}
    order = random.Random(size)
    for number in range(ROUNDS + 2):
        for word in order.sample(sorted(runs), len(runs)):
            seconds = runs[word].seconds()
            if number >= 2:
                times[word].append(seconds)
    for run in runs.values():
        run.free(source)
    backend.free(source)
    return {word: statistics.median(each) * 1e6 for word, each in times.items()}


def main() -> None:
    """Print a row for each pipeline and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true", help="only print the plans and compile")
    parser.add_argument("--seconds", type=float, default=170, help="no row starts later")
    parser.add_argument("--least", type=int, default=512, help="the smallest width and height")
    parser.add_argument("--most", type=int, default=4096, help="the largest width and height")
    parser.add_argument("--shapes", action="store_true", help="also groups of all operators in several shapes")
    chosen = parser.parse_args()
    start, ptx = time.monotonic(), dict[str, str]()
    backend = None if chosen.build else CudaBackend()
    print(
        f"{'pipeline':10} {'size':>5} {'naive':>8} {'isp':>8} {'fused':>8} {'estimate':>8} {'naive/fused':>11}",
        flush=True,
    )
    for each in PIPELINES:
        for size in (512, 1024, 2048, 4096):
            if not chosen.least <= size <= chosen.most or time.monotonic() - start > chosen.seconds:
                continue
            graph = each.graph(size, size)
            arms, estimates = arms_of(graph, shapes=chosen.shapes)
            compiled(arms, ptx)
            if backend is None:
                print(f"{arms['fused']}\n  estimate {estimates['fused']:.2f} us", flush=True)
                continue
            times = timed(backend, each.name, size, arms, ptx)
            columns = " ".join(f"{times[word]:8.2f}" for word in ("naive", "isp", "fused"))
            gain = times["naive"] / times["fused"]
            print(f"{each.name:10} {size:5} {columns} {estimates['fused']:8.2f} {gain:11.3f}", flush=True)
            for word in sorted(set(estimates) - {"fused"}, key=lambda word: times[word]):
                print(f"    {word:28} {times[word]:8.2f} estimate {estimates[word]:8.2f}", flush=True)
    for each in PIPELINES if not chosen.build else ():
        print(lower(each.graph(2048, 2048), "fused"))


if __name__ == "__main__":
    main()
