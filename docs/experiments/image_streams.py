"""Image pipelines fused and as CUDA graphs: times beside separate kernels, and estimates beside measurements.

    python docs/experiments/image_streams.py [PART ...] [--build] [--plans FILE] [--wait FILE] [--seconds N] [--sizes N]

Parts: ``fusion`` (six pipelines in separate kernels, and fused along edges, by minimum cuts, by exhaustive search and
by the search that is used), ``edges`` (each edge of the graphs fused alone: what it saves, estimated and measured),
``levels`` (five programs with pyramids: separate launches, a graph of separate kernels, fused launches, and a graph of
fused kernels), ``branches`` (small kernels in branches and in a chain). Needs nvcc and, unless ``--build`` only
compiles, a GPU and the extra `gpu`. ``--build`` writes the plans to FILE, and a run without it reads them from there:
the search and the compiler need no GPU. ``--wait`` makes all kernels, and uses the GPU when a file exists.

Times are medians in microseconds. Arms take turns in random order. The rounds are done twice, and each row has both
medians. ``fusion`` and ``edges`` time a graph of ten runs, so launches of the host do not count. ``levels`` and
``branches`` time ten runs one after the other, with their launches. Results of all arms must be the same bits.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from ptxmotion.dsl import f32, types
from ptxmotion.dsl.image import Graph, Image, Options, lower, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.fusion.partition import MOST_EXHAUSTIVE, Partition, along_edges, exhaustive, min_cut
from ptxmotion.dsl.image.fusion.pixel_images import with_pixel_images
from ptxmotion.dsl.image.fusion.planning import GroupProblem, searched
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import plan_from_json
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.image.operators import Scratch
from ptxmotion.dsl.image.streams.cuda_graph import CudaGraph
from ptxmotion.dsl.image.streams.memory import bytes_of
from ptxmotion.dsl.image.streams.planning import ExecutionPlan, by_resources, plan_execution
from ptxmotion.dsl.image.streams.values import value_of
from ptxmotion.dsl.image.windows import layout_of
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.python_child import process_pool
from ptxmotion.suites.registry import find
from ptxmotion.toolchain.cubin_cache import assemble_kept
from ptxmotion.toolchain.tools import arch_for

ROUNDS, RUNS = 9, 10
FUSED = ("sobel", "harris", "unsharp", "shi_tomasi", "enhance", "night")
LEVELS = ("gradients", "laplacian", "mosaic", "spline", "local_laplacian")


@point
def twice(a: f32) -> f32:
    return a + a


@point
def total(a: f32, b: f32) -> f32:
    return a + b


def branches(count: int, depth: int) -> Any:
    """Branches of small kernels, whose results are added."""

    def body(src: Image[f32]) -> Image[f32]:
        ends: list[Image[f32]] = []
        for _ in range(count):
            image: Image[f32] = src
            for _ in range(depth):
                image = twice(image)
            ends.append(image)
        while len(ends) > 1:
            ends = [total(*ends[at : at + 2]) if at + 1 < len(ends) else ends[at] for at in range(0, len(ends), 2)]
        return ends[0]

    return pipeline(body)


class Compiler:
    """Compiles kernels in parallel. ``ptx`` maps CUDA C++ to PTX."""

    def __init__(self, jobs: int) -> None:
        self.ptx: dict[str, str] = {}
        self.nvcc, self.pool = compiler(), ThreadPoolExecutor(jobs)

    def add(self, arms: list[Lowered]) -> None:
        """Compile and assemble the kernels of these arms that are new."""
        kernels = {kernel.cuda: kernel for arm in arms for kernel in arm.kernels.values()}
        new = {cuda: kernel for cuda, kernel in kernels.items() if cuda not in self.ptx}

        def made(kernel: Any) -> str:
            text: str = kernel.ptx(self.nvcc)
            assemble_kept(text, arch_for(text))
            return text

        self.ptx.update(zip(new, self.pool.map(made, new.values()), strict=True))

    def of(self, arm: Lowered) -> dict[str, str]:
        """The PTX of each kernel of an arm by its name."""
        return {name: self.ptx[kernel.cuda] for name, kernel in arm.kernels.items()}


class Arm:
    """A plan on the GPU. ``how``: ``device`` is a graph of `RUNS` runs, ``stream`` are launches, ``graph`` is one CUDA
    graph for each run."""

    def __init__(
        self, backend: CudaBackend, plan: ExecutionPlan, ptx: dict[str, str], sources: dict[str, Any], how: str
    ) -> None:
        plan.check()
        self.backend, self.plan, self.how = backend, plan, how
        graph = plan.lowered.graph
        self.slots = [backend.allocate(size) for size in plan.sharing.slots]
        self.memory: dict[Any, Any] = {image: self.slots[slot] for image, slot in plan.sharing.slot_of.items()}
        self.memory |= {image: sources[image.name] for image in graph.inputs}
        self.outputs = {image: backend.allocate(bytes_of(image)) for image in graph.outputs}
        self.memory |= self.outputs
        assembled = {name: assemble_kept(text, arch_for(text)).cubin for name, text in ptx.items()}
        self.modules = {name: backend.load_cubin(cubin) for name, cubin in assembled.items()}
        kernels = {name: module.kernel(name) for name, module in self.modules.items()}
        self.numbers = {each.name: numbers_of(graph)[each.name] for each in graph.scalars}
        self.calls: list[Callable[[], object]] = []
        for step in plan.steps:
            if step.launch is None:
                assert isinstance(step.cleared, Scratch)
                self.calls.append(backend.fill_call(self.memory[step.cleared], 0))
                continue
            launch = step.launch
            kernel = kernels[launch.kernel.name]
            packed = backend.pack(kernel, [value_of(each, self.memory, self.numbers) for each in launch.arguments])
            (x, y), (threads_x, threads_y) = launch.grid, launch.block
            self.calls.append(backend.launch_call(kernel, (int(x), int(y), 1), (threads_x, threads_y, 1), 0, packed))
        self.recorded: Any = None
        self.graph: CudaGraph | None = None
        self.once()
        backend.synchronize()
        if how == "device":
            self.recorded = backend.graph(self.several)
        elif how == "graph":
            addresses = {image: int(buffer.pointer) for image, buffer in self.memory.items()}
            handles = {name: kernel.handle for name, kernel in kernels.items()}
            self.graph = CudaGraph(plan, handles, addresses, self.numbers)

    def once(self) -> None:
        """All launches."""
        for call in self.calls:
            call()

    def several(self) -> None:
        """The launches of `RUNS` runs."""
        for _ in range(RUNS):
            self.once()

    def run(self) -> None:
        """`RUNS` runs."""
        if self.recorded is not None:
            self.backend.launch_graph(self.recorded)
        elif self.graph is not None:
            stream = int(self.backend.stream.handle)
            for _ in range(RUNS):
                self.graph.launch(stream)
        else:
            self.several()

    def seconds(self) -> float:
        """Seconds of one run."""
        return self.backend.seconds_of(self.run) / RUNS

    def result(self) -> bytes:
        """The pixels of the outputs of a run of this arm, over memory that was set to other bytes before."""
        for buffer in (*self.slots, *self.outputs.values()):
            self.backend.fill(buffer, 0x5A)
        self.run()
        return b"".join(
            self.backend.read(buffer, np.dtype(np.uint8), bytes_of(image)).tobytes()
            for image, buffer in self.outputs.items()
        )

    def free(self) -> None:
        """Free what it has."""
        self.backend.synchronize()
        if self.recorded is not None:
            self.backend.destroy_graph(self.recorded)
        if self.graph is not None:
            self.graph.close()
        for buffer in (*self.slots, *self.outputs.values()):
            self.backend.free(buffer)


def numbers_of(graph: Graph) -> dict[str, Any]:
    """The numbers of the program of the suite."""
    values = {"share": 0.04, "amount": 1.5, "gamma": 0.8, "low": 0.25, "high": 1.5, "darkness": 0.5, "gain": 1.5}
    values |= {"alpha": 0.25, "beta": 0.75}
    return {each.name: each.type.dtype.type(values[each.name]) for each in graph.scalars}


def sources_of(backend: CudaBackend, graph: Graph) -> dict[str, Any]:
    """Random pixels on the GPU for the inputs."""
    made: dict[str, Any] = {}
    rng = np.random.default_rng(1)
    for image in graph.inputs:
        dtype, lanes = layout_of(image.pixel)
        pixels = rng.random(int(image.width) * int(image.height) * lanes, np.float32)
        assert dtype == np.float32, types.size_of(image.pixel)
        made[image.name] = backend.allocate(pixels.nbytes)
        backend.write(made[image.name], pixels)
    return made


def timed(backend: CudaBackend, arms: dict[str, tuple[ExecutionPlan, dict[str, str], str]]) -> dict[str, list[float]]:
    """Both medians of each arm in microseconds. Raises `AssertionError` if results differ."""
    graph = next(iter(arms.values()))[0].lowered.graph
    sources = sources_of(backend, graph)
    runs = {name: Arm(backend, plan, ptx, sources, how) for name, (plan, ptx, how) in arms.items()}
    results = {name: run.result() for name, run in runs.items()}
    expected = next(iter(results.values()))
    for name, result in results.items():
        assert result == expected, f"{graph.name}: {name} differs"
    found: dict[str, list[float]] = {name: [] for name in runs}
    order = random.Random(1)
    for _ in range(2):
        times: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(ROUNDS + 2):
            for name in order.sample(sorted(runs), len(runs)):
                seconds = runs[name].seconds()
                if number >= 2:
                    times[name].append(seconds * 1e6)
        for name, each in times.items():
            found[name].append(statistics.median(each))
    for run in runs.values():
        run.free()
    for buffer in sources.values():
        backend.free(buffer)
    return found


#: The arms of a row: lowered pipeline, execution, how it is timed.
Arms = dict[str, tuple[Lowered, str, str]]


def graph_for(name: str, size: int) -> Graph:
    """The graph of a program of the suite."""
    found = find(f"image/{name}").pipeline
    assert found is not None
    return found.graph(size, size)


def plans_of(part: str, name: str, size: int) -> dict[str, str]:
    """By arm: its plan as JSON, so that other processes can make it."""
    graph = with_pixel_images(graph_for(name, size))
    problem = GroupProblem(graph, Options())
    partitions: dict[str, Partition] = {}
    if part != "edges":
        partitions["search"] = searched(problem.problem)
    if part == "fusion":
        partitions |= {"edges": along_edges(problem.problem), "cut": min_cut(problem.problem)}
        if len(graph.nodes) <= MOST_EXHAUSTIVE:
            partitions["best"] = exhaustive(problem.problem)
    if part == "levels":
        beside = GroupProblem(graph, Options(), horizontal=True)
        partitions["beside"] = searched(beside.problem)
    if part == "edges":
        singles = [frozenset([at]) for at in range(len(graph.nodes))]
        partitions["single"] = tuple(singles)
        for first, second in problem.weights:
            pair = frozenset([first, second])
            partition = (pair, *(each for each in singles if not each <= pair))
            if problem.best(pair) is not None and problem.problem.cycle(partition) is None:
                partitions[f"{graph.nodes[first].name}->{graph.nodes[second].name}"] = partition
    return {word: problem.plan(partition).to_json() for word, partition in partitions.items()}


#: By part: its programs, and whether all sizes are used.
PROGRAMS: dict[str, tuple[str, ...]] = {"levels": LEVELS, "fusion": FUSED, "edges": FUSED}


def row(part: str, name: str, size: int, plans: dict[str, str]) -> tuple[str, Arms, dict[str, float]]:
    """The title, the arms and the estimates of a row. Equal plans are one arm, with all their names."""
    graph, options = graph_for(name, size), Options()
    by_plan: dict[str, list[str]] = {}
    for word, text in plans.items():
        by_plan.setdefault(text, []).append(word)
    made = {"=".join(words): plan_from_json(graph, text, options) for text, words in by_plan.items()}
    lowered = {word: lower_plan(plan, options, "plan") for word, plan in made.items()}
    if part == "levels":
        by_word = {word: each for words, each in lowered.items() for word in words.split("=")}
        return f"{name} {size}", _modes(lower(graph, "naive"), by_word["search"], by_word["beside"]), {}
    if part == "fusion":
        lowered = {"naive": lower(graph, "naive"), **lowered}
    arms: Arms = {word: (each, "chain", "device") for word, each in lowered.items()}
    return f"{name} {size}", arms, {word: device_estimate(each) for word, each in lowered.items()}


def branch_rows() -> Iterator[tuple[str, Arms, dict[str, float]]]:
    """Small kernels in branches."""
    for count, depth in ((1, 16), (2, 8), (4, 4), (8, 2), (8, 8)):
        for size in (64, 512):
            plain = lower(branches(count, depth).graph(size, size), "naive")
            arms: Arms = {
                "stream": (plain, "stream", "stream"),
                "chain": (plain, "chain", "graph"),
                "branches": (plain, "branches", "graph"),
            }
            yield f"{count}x{depth} {size}", arms, {}


def _modes(plain: Lowered, fused: Lowered, beside: Lowered) -> Arms:
    arms: Arms = {"separate": (plain, "stream", "stream")}
    for word, lowered in (("", plain), ("fused ", fused)):
        if word:
            arms["fused"] = lowered, "stream", "stream"
        for mode in ("chain", "branches", "fine chain"):
            arms[f"{word}{mode}"] = lowered, mode, "graph"
    arms["combined"] = fused, "auto", "graph"
    arms["combined, fused beside"] = beside, "auto", "graph"
    return arms


def device_estimate(lowered: Lowered) -> float:
    """The estimate of a chain of kernels, in microseconds."""
    return plan_execution(lowered, "chain").estimates["chain"] * 1e6


PARTS = ("branches", "levels", "fusion", "edges")


#: A pipeline with one size in one part of the tables.
Wanted: TypeAlias = tuple[str, str, int]


def rows_of(
    parts: Sequence[str], sizes: list[int], jobs: int, known: Mapping[Wanted, dict[str, str]]
) -> tuple[dict[str, list[tuple[str, Arms, dict[str, float]]]], dict[Wanted, dict[str, str]]]:
    """By part: its rows; and all plans. Those that are not known are searched in several processes."""
    wanted = [
        (part, name, size)
        for part in parts
        for name in PROGRAMS.get(part, ())
        for size in sizes
        if part != "edges" or size in (512, 2048)
    ]
    plans = {each: known[each] for each in wanted if each in known}
    missing = [each for each in wanted if each not in known]
    if missing:
        with process_pool(jobs) as pool:
            plans |= zip(missing, pool.map(plans_of, *zip(*missing, strict=True)), strict=True)
    rows: dict[str, list[tuple[str, Arms, dict[str, float]]]] = {part: [] for part in parts}
    if "branches" in rows:
        rows["branches"] = list(branch_rows())
    for each in wanted:
        rows[each[0]].append(row(*each, plans[each]))
    return rows, plans


def read_plans(path: Path) -> dict[Wanted, dict[str, str]]:
    """The plans in a file of `write_plans`."""
    records: list[Any] = json.loads(path.read_text(encoding="utf-8"))
    return {(part, name, size): plans for part, name, size, plans in records}


def write_plans(path: Path, plans: Mapping[Wanted, dict[str, str]]) -> None:
    """Write plans as JSON: part, program, size, and the plans by their names."""
    path.write_text(json.dumps([[*each, found] for each, found in plans.items()]), encoding="utf-8")


def planned(arms: Arms, built: Compiler) -> dict[str, tuple[ExecutionPlan, dict[str, str], str]]:
    """The plans of the arms."""
    made: dict[str, tuple[ExecutionPlan, dict[str, str], str]] = {}
    for name, (lowered, execution, how) in arms.items():
        ptx = built.of(lowered)
        plan = plan_execution(lowered, execution, by_resources(ptx))
        made[name] = plan, ptx, "stream" if plan.mode == "stream" else how
    return made


def main() -> None:
    """Print a row for each pipeline and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--build", action="store_true", help="only compile")
    parser.add_argument("--plans", type=Path, help="the file of the plans")
    parser.add_argument("--seconds", type=float, default=120, help="no row starts later")
    parser.add_argument("--sizes", default="512,1024,2048,4096", help="widths and heights")
    parser.add_argument("--jobs", type=int, default=8, help="kernels that are compiled at a time")
    parser.add_argument("--wait", type=Path, help="a file: use the GPU when it exists, --seconds from then on")
    chosen = parser.parse_args()
    start = time.monotonic()
    sizes = [int(each) for each in cast("str", chosen.sizes).split(",")]
    known = read_plans(chosen.plans) if chosen.plans and not chosen.build else {}
    rows, plans = rows_of(chosen.parts or PARTS, sizes, chosen.jobs, known)
    if chosen.plans and chosen.build:
        write_plans(chosen.plans, plans)
    print(f"planned: {time.monotonic() - start:.1f} s", flush=True)
    built = Compiler(chosen.jobs)
    built.add([arm[0] for part in rows.values() for _, arms, _ in part for arm in arms.values()])
    print(f"compiled {len(built.ptx)} kernels: {time.monotonic() - start:.1f} s", flush=True)
    while chosen.wait and not chosen.wait.exists():
        time.sleep(0.1)
        start = time.monotonic()
    backend = None if chosen.build else CudaBackend()
    for part, found in rows.items():
        print(f"--- {part}", flush=True)
        gains: dict[str, list[float]] = {}
        for title, arms, estimates in found:
            if time.monotonic() - start > chosen.seconds:
                print(f"{title}: no time", flush=True)
                continue
            plans = planned(arms, built)
            if backend is None:
                times = {name: [math.nan, math.nan] for name in plans}
            else:
                try:
                    times = timed(backend, plans)
                except Exception:
                    print(f"{title}: failed\n{traceback.format_exc(limit=4)}", flush=True)
                    backend.trim()
                    continue
            base, *_ = times.values()
            print(title, flush=True)
            for name, each in times.items():
                plan = plans[name][0]
                estimate = estimates.get(name, plan.estimates[plan.mode] * 1e6)
                gain = [before / after for before, after in zip(base, each, strict=True)]
                for word in name.split("="):
                    gains.setdefault(word, []).append(math.sqrt(gain[0] * gain[1]))
                print(
                    f"    {name:40} {each[0]:8.2f} {each[1]:8.2f} estimate {estimate:8.2f} gain {gain[0]:6.3f} "
                    f"{gain[1]:6.3f} {plan.mode}, {len(plan.steps)} steps, {len(plan.sharing.slots)} buffers",
                    flush=True,
                )
        for name, each in gains.items():
            if part != "edges" and not math.isnan(each[0]):
                mean = math.exp(statistics.fmean(map(math.log, each)))
                print(f"geometric mean of {name}: {mean:.3f} over {len(each)} rows", flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
