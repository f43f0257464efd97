"""Partitioned image kernels beside naive ones: times, what the model `isp+m` predicts, and equal results.

    python docs/experiments/image_isp.py build FOLDER [--jobs N] [--unseen | --random SEED]    needs nvcc
    python docs/experiments/image_isp.py run FOLDER [--seconds N] [--rounds N]       needs a GPU and the extra `gpu`
    python docs/experiments/image_isp.py figures FOLDER [--jobs N] [--unseen | --random SEED]    needs nvcc
    python docs/experiments/image_isp_report.py FIGURES TIMES [TIMES]                the tables

`build` compiles the kernels of the programs of the suite `image`, for each boundary, size and block, by each lowering.
Several builders may share a folder, and `run` may start before they end. `figures` writes into the folder ``figures``
what the model knows of each kernel. It needs nothing that was built, and the times do not depend on it. `run` compares
the results of all lowerings bit for bit and times them. A run that fails, or whose results differ, is printed as a
line ``failed``; the others go on, and the command ends with an error. Lowerings take turns; each time is that of a
CUDA graph with several runs, divided by their number; medians. The naive kernel takes part twice, as ``naive`` and
``again``: the difference is the noise of the run. It prints a line ``kernel`` for each kernel, and a line ``program``
for each program. With ``--unseen``, `build` takes other filters (`image_unseen_filters.py`), sizes and blocks than
those by which the model was chosen; with ``--random``, the filters of `image_random_filters.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.python_child import process_pool

ARCH = "sm_90"
PAPER = ("gaussian3x3", "laplace5x5", "bilateral13x13", "sobel", "night")
PROGRAMS = (
    *PAPER,
    "gaussian5x5",
    "box5x5",
    "median3x3",
    "prewitt",
    "harris",
    "unsharp",
    "enhance",
)
UNSEEN_PROGRAMS = ("dilate3x3", "mean7x7", "row9", "column9", "emboss3x3", "cross3x3", "similar5x5", "shi_tomasi")
BOUNDARIES = ("clamp", "mirror", "repeat", "constant")
SIZES = ((512, 512), (1024, 1024), (2048, 2048), (4096, 4096), (517, 509), (2047, 1025))
BLOCKS = ((32, 8), (64, 4))
UNSEEN_SIZES = ((640, 480), (768, 768), (1920, 1080), (1536, 1536), (3000, 2000), (3840, 2160))
UNSEEN_BLOCKS = ((32, 4), (128, 2))
#: Bytes that an H200 copies in a second, read and written ones together.
COPIED = 4.26e12
#: Seconds of a sample.
SAMPLE = 250e-6


# --- build --------------------------------------------------------------------------------------------------------


#: A part of the work: the name of a program or of a random filter, a boundary, a block and sizes.
Task: TypeAlias = "tuple[str, str, tuple[int, int], Sequence[tuple[int, int]]]"


def tasks_of(programs: Sequence[str], *, is_unseen: bool) -> list[Task]:
    """The parts for programs of the suite and filters of `image_unseen_filters.py`. Those that take longest are
    first."""
    slow = ("bilateral13x13", "night")
    order = sorted(programs, key=lambda name: slow.index(name) if name in slow else len(slow))
    sizes, blocks = (UNSEEN_SIZES, UNSEEN_BLOCKS) if is_unseen else (SIZES, BLOCKS)
    return [(name, *rest, sizes) for name in order for rest in itertools.product(BOUNDARIES, blocks)]


def random_tasks(seed: int, count: int) -> list[Task]:
    """The parts for random filters."""
    from image_random_filters import random_filters

    found = random_filters(seed, count)
    return [
        (each.name, each.boundary, block, each.sizes[number :: len(each.blocks)])
        for each in found
        for number, block in enumerate(each.blocks)
    ]


def build(folder: Path, jobs: int, tasks: Sequence[Task], seconds: float) -> None:
    """Write the cubins, and for each part a file with its runs. A part is a program, a boundary and a block. A run is a
    size with the launches of each lowering. No part is begun after ``seconds``, or if another builder has begun it."""
    (folder / "begun").mkdir(parents=True, exist_ok=True)
    (folder / "runs").mkdir(exist_ok=True)
    started = time.monotonic()
    with process_pool(jobs) as pool:
        pending = {pool.submit(_part, folder, task, time.time() + seconds): task for task in tasks}
        for done in as_completed(pending):
            name, boundary, block, _ = pending[done]
            print(f"{time.monotonic() - started:6.1f} s: {name} {boundary} {block} {done.result()}", flush=True)


def _part(folder: Path, task: Task, until: float) -> str:
    """Build a part, unless another builder has begun it, or the time is over."""
    name, boundary, block, _ = task
    place = f"{name}-{boundary}-{block[0]}x{block[1]}"
    if time.time() > until:
        return "left out: the time is over"
    try:
        (folder / "begun" / place).mkdir()
    except FileExistsError:
        return "built by another builder"
    runs, cubins = _built(*task)
    for file, cubin in cubins.items():
        _write(folder / f"{file}.cubin", cubin)
    _write(folder / "runs" / f"{place}.json", json.dumps(runs).encode())
    return f"{len(runs)} runs"


def _write(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it."""
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def graphs_of(name: str, boundary: str) -> tuple[Callable[[int, int], Any], Mapping[str, Any]]:
    """The graph of a program for a width and a height, and the numbers that it takes."""
    from image_random_filters import random_filter
    from image_unseen_filters import UNSEEN
    from ptxmotion.suites.image.image_benchmark import BOUNDARIES as EDGES
    from ptxmotion.suites.registry import find

    if name.startswith("random"):
        return random_filter(name).graph, {}
    if name in UNSEEN:
        return UNSEEN[name](EDGES[boundary]).graph, {}
    program = find(f"image/{name}").of({"boundary": boundary})
    assert program.pipeline is not None
    return program.pipeline.graph, program.make_data("tiny", 0)


def _built(
    name: str, boundary: str, block: tuple[int, int], sizes: Sequence[tuple[int, int]]
) -> tuple[list[Any], dict[str, bytes]]:
    """The runs of a program for all sizes, and its cubins by their names."""
    from ptxmotion.dsl.image import Options
    from ptxmotion.dsl.image.partition_kernels import signature
    from ptxmotion.dsl.image.partition_model import lowerings_of, node_launch, shrunk
    from ptxmotion.dsl.image.windows import layout_of
    from ptxmotion.toolchain.cubin_cache import assemble_kept

    graphs, numbers = graphs_of(name, boundary)
    nvcc = _compiler()
    options = Options(block, nvcc=nvcc)
    cubins: dict[str, bytes] = {}
    runs: list[Any] = []
    #: By lowering and shrunk node: the PTX.
    known: dict[tuple[object, ...], str] = {}
    for width, height in sizes:
        graph = graphs(width, height)
        images: dict[Any, int] = {image: number for number, image in enumerate((*graph.inputs, *graph.nodes))}
        nodes: list[Any] = []
        for node in graph.nodes:
            arms: dict[str, Any] = {}
            for word in lowerings_of(node, options):
                launch = node_launch(node, word, "kernel", options)
                # Kernels of nodes that shrink to the same node are the same.
                key = word, signature(shrunk(node, options, launch.pixels[1]))
                if key not in known:
                    known[key] = launch.kernel.ptx(nvcc)
                ptx = known[key]
                arms[word] = launch_as_json(launch, ptx, images, numbers)
                cubins[arms[word]["file"]] = assemble_kept(ptx, ARCH).cubin
            read = {access.image: bytes_of(access.image) for access in node.accesses}
            nodes.append({"name": node.name, "arms": arms, "bytes": sum(read.values()) + bytes_of(node)})
        runs.append(
            {
                "program": name,
                "boundary": boundary,
                "size": [width, height],
                "block": list(block),
                "images": [[bytes_of(image), layout_of(image.pixel)[0].str] for image in images],
                "outputs": [images[image] for image in graph.outputs],
                "nodes": nodes,
            }
        )
    return runs, cubins


def figures_as_json(kernel: Any) -> dict[str, Any]:
    """What the model knows of a kernel."""
    regions = [[each.name, each.blocks, round(each.instructions, 2)] for each in kernel.regions]
    return {
        "regions": regions,
        "warps": kernel.warps,
        "registers": kernel.registers,
        "occupancy": round(kernel.occupancy, 4),
        "held": kernel.code.warps,
        "weight": round(kernel.code.weight, 2),
        "cycles": round(kernel.code.cycles, 1),
        "exposed": kernel.code.exposed,
        "kinds": {kind: round(count, 2) for kind, count in kernel.kinds.items()},
        "rows": kernel.rows,
        "size": kernel.size,
        "trips": round(kernel.trips, 2),
    }


def launch_as_json(launch: Any, ptx: str, images: dict[Any, int], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A launch as JSON. An argument is the number of an image, or a type and a number."""
    from ptxmotion.dsl.image import Image
    from ptxmotion.dsl.image.operators import ScalarInput

    arguments: list[Any] = []
    for each in launch.arguments:
        value: Any = each.value
        if isinstance(value, Image):
            arguments.append(["image", images[value]])
        else:
            number = numbers[value.name] if isinstance(value, ScalarInput) else int(value)
            arguments.append([each.param.type.dtype.str, number])
    return {
        "file": hashlib.sha256(ptx.encode()).hexdigest()[:16],
        "entry": launch.kernel.entry(ptx),
        "grid": [int(each) for each in launch.grid],
        "arguments": arguments,
    }


def bytes_of(image: Any) -> int:
    from ptxmotion.dsl.image.windows import layout_of

    dtype, lanes = layout_of(image.pixel)
    return int(image.width) * int(image.height) * lanes * dtype.itemsize


# --- run ----------------------------------------------------------------------------------------------------------


class Gpu:
    """The GPU with the kernels that were built, and buffers that all runs share."""

    def __init__(self, folder: Path, rounds: int) -> None:
        from ptxmotion.harness.cuda import CudaBackend

        self.backend = CudaBackend()
        self.folder, self.rounds = folder, rounds
        #: By file and entry: the kernel.
        self.kernels: dict[tuple[str, str], Any] = {}
        self.buffers: list[Any] = []
        self.sizes: list[int] = []
        self.written: tuple[str, int] | None = None

    def make_room(self, sizes: Sequence[int]) -> None:
        """Let the buffers have at least these sizes."""
        for number, size in enumerate(sizes):
            if number == len(self.buffers):
                self.buffers.append(self.backend.allocate(size))
                self.sizes.append(size)
            elif self.sizes[number] < size:
                self.backend.free(self.buffers[number])
                self.buffers[number], self.sizes[number] = self.backend.allocate(size), size
                self.written = None if number == 0 else self.written

    def call(self, launch: Any, block: Sequence[int]) -> Callable[[], object]:
        key = launch["file"], launch["entry"]
        if key not in self.kernels:
            module = self.backend.load_cubin((self.folder / f"{launch['file']}.cubin").read_bytes())
            self.kernels[key] = module.kernel(launch["entry"])
        kernel = self.kernels[key]
        values = [
            self.buffers[value] if kind == "image" else np.dtype(kind).type(value)
            for kind, value in launch["arguments"]
        ]
        packed = self.backend.pack(kernel, values)
        return self.backend.launch_call(kernel, (*launch["grid"], 1), (block[0], block[1], 1), 0, packed)

    def write_input(self, run: Any) -> None:
        """Write random pixels into the first image, unless they are there."""
        nbytes, kind = run["images"][0]
        if self.written != (kind, nbytes):
            self.backend.write(self.buffers[0], _pixels(kind, nbytes))
            self.written = kind, nbytes

    def results(self, run: Any, calls: Iterable[Callable[[], object]]) -> list[Any]:
        """What a run leaves in its outputs. They are filled with another value before."""
        for number in run["outputs"]:
            self.backend.fill(self.buffers[number], 0xA5)
        for call in calls:
            call()
        self.backend.synchronize()
        return [self.backend.read(self.buffers[n], np.uint8, run["images"][n][0]) for n in run["outputs"]]

    def times(self, arms: dict[str, list[Callable[[], object]]]) -> dict[str, float]:
        """The median time of each arm in seconds. Arms are lists of launches."""

        def graph_of(calls: list[Callable[[], object]], count: int) -> Any:
            def body() -> None:
                for _ in range(count):
                    for call in calls:
                        call()

            return self.backend.graph(body)

        probe = graph_of(arms["naive"], 4)
        once = min(self.backend.seconds_of_graph(probe) for _ in range(3)) / 4
        self.backend.destroy_graph(probe)
        count = max(2, min(100, int(SAMPLE / once)))
        graphs = {word: graph_of(calls, count) for word, calls in arms.items()}
        found: dict[str, list[float]] = {word: [] for word in arms}
        order = random.Random(0)
        for number in range(self.rounds + 1):
            for word in order.sample(sorted(arms), len(arms)):
                seconds = self.backend.seconds_of_graph(graphs[word])
                if number:
                    found[word].append(seconds / count)
        for graph in graphs.values():
            self.backend.destroy_graph(graph)
        return {word: statistics.median(each) for word, each in found.items()}


@lru_cache(maxsize=8)
def _pixels(kind: str, nbytes: int) -> NDArray[Any]:
    """Random pixels. Runs of a few sizes take turns, and drawing large images takes long."""
    dtype, numbers = np.dtype(kind), np.random.default_rng(nbytes)
    count = nbytes // dtype.itemsize
    is_float = dtype.kind == "f"
    drawn = cast("Any", numbers).random(count) if is_float else cast("Any", numbers).integers(0, 256, count)
    return cast("NDArray[Any]", drawn.astype(dtype))


def run(folder: Path, seconds: float, rounds: int, parts: int) -> None:
    """Compare and time all runs, for at most ``seconds``. Waits for builders until there are ``parts`` parts."""
    started = time.monotonic()
    gpu = Gpu(folder, rounds)
    print(gpu.backend.describe()["gpu"], f"{rounds} rounds", flush=True)
    #: By the files of all lowerings and the size: the times of this kernel.
    known: dict[Any, dict[str, float]] = {}
    done: set[str] = set()
    count = failures = 0
    while True:
        new = sorted(path for path in (folder / "runs").glob("*.json") if path.name not in done)
        if time.monotonic() - started > seconds or (not new and len(done) >= parts):
            break
        if not new:
            time.sleep(0.2)
            continue
        # Random filters are first: their order is by number, and that of programs by name.
        path = min(new, key=lambda each: (not each.name.startswith("random"), each.name))
        done.add(path.name)
        for each in json.loads(path.read_text(encoding="utf-8")):
            if time.monotonic() - started < seconds:
                count += 1
                try:
                    _timed(gpu, each, known)
                except (DeviceFailed, _ResultsDiffer) as why:
                    failures += 1
                    print(f"failed;{_where(each)};{why}", flush=True)
    print(f"{count} runs of {len(done)} parts, {failures} failed, {time.monotonic() - started:.0f} s")
    if failures:
        sys.exit(1)


def figures(folder: Path, jobs: int, tasks: Sequence[Task]) -> None:
    """Write what the model knows of each kernel, a file for each part that has none: by program, boundary, size, block
    and name, by lowering."""
    started = time.monotonic()
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    missing = [task for task in tasks if not _figures_file(folder, task).exists()]
    with process_pool(jobs) as pool:
        pending = {pool.submit(_figures_of, *task): task for task in missing}
        for done in as_completed(pending):
            path = _figures_file(folder, pending[done])
            _write(path, json.dumps(done.result()).encode())
            print(f"{time.monotonic() - started:6.1f} s: figures of {path.stem}", flush=True)


def _figures_file(folder: Path, task: Task) -> Path:
    name, boundary, block, _ = task
    return folder / "figures" / f"{name}-{boundary}-{block[0]}x{block[1]}.json"


def _figures_of(name: str, boundary: str, block: tuple[int, int], sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    from ptxmotion.dsl.image import Options
    from ptxmotion.dsl.image.partition_model import estimates

    found: dict[str, Any] = {}
    for width, height in sizes:
        nodes = graphs_of(name, boundary)[0](width, height).nodes
        place = f"{name};{boundary};{width}x{height};{block[0]}x{block[1]}"
        for node, made in zip(nodes, estimates(nodes, Options(block, nvcc=_compiler())), strict=True):
            if made:
                found[f"{place};{node.name}"] = {each.lowering: figures_as_json(each) for each in made.kernels}
    return found


def _compiler() -> Any:
    from ptxmotion.dsl.image.compiling import compiler

    return compiler(("-fmad=false",), ARCH)


def _where(run: Any) -> str:
    width, height = run["size"]
    x, y = run["block"]
    return f"{run['program']};{run['boundary']};{width}x{height};{x}x{y}"


class _ResultsDiffer(Exception):
    """A lowering computes other pixels than the naive one. The text names it."""


def _timed(gpu: Gpu, run: Any, known: dict[Any, dict[str, float]]) -> None:
    gpu.make_room([nbytes for nbytes, _ in run["images"]])
    gpu.write_input(run)
    block, nodes = run["block"], run["nodes"]
    width, height = run["size"]
    words = list(dict.fromkeys(word for node in nodes for word in node["arms"]))
    calls = [{word: gpu.call(arm, block) for word, arm in node["arms"].items()} for node in nodes]
    # An operator that a lowering does not change has the naive kernel.
    arms = {word: [each.get(word, each["naive"]) for each in calls] for word in words}
    expected = gpu.results(run, arms["naive"])
    for word in words[1:]:
        try:
            results = gpu.results(run, arms[word])
        except DeviceFailed as why:
            raise DeviceFailed(f"{word}: {why}") from why
        for found, wanted in zip(results, expected, strict=True):
            if not np.array_equal(found, wanted):
                raise _ResultsDiffer(f"{word} differs from naive")
    single: dict[str, float] | None = None
    for node, each in zip(nodes, calls, strict=True):
        if len(node["arms"]) > 1:
            key = *(arm["file"] for arm in node["arms"].values()), width, height, run["images"][0][1]
            is_new = key not in known
            if is_new:
                again = {"again": [each["naive"]]}
                known[key] = gpu.times({word: [call] for word, call in each.items()} | again)
            # Kernels that another program has, too, count once.
            mark, single = "new" if is_new else "again", known[key]
            columns = [f"{word}={known[key][word] * 1e6:.3f}" for word in (*each, "again")]
            print(f"kernel;{_where(run)};{node['name']};{mark};{';'.join(columns)}", flush=True)
    if len(nodes) == 1 and single is not None:
        times = {word: seconds for word, seconds in single.items() if word != "again"}
    else:
        times = gpu.times(arms)
    least = sum(node["bytes"] for node in nodes) / COPIED
    columns = [f"{word}={seconds * 1e6:.3f}" for word, seconds in times.items()]
    print(f"program;{_where(run)};{least * 1e6:.3f};{';'.join(columns)}", flush=True)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("build", "figures"):
        each = actions.add_parser(action)
        each.add_argument("folder", type=Path)
        each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
        each.add_argument("--seconds", type=float, default=3600, help="for build: begin nothing after this time")
        each.add_argument("--only", help="names of programs, with commas")
        each.add_argument("--edges", choices=BOUNDARIES, help="only programs and filters with this boundary")
        each.add_argument("--even", action="store_true", help="only sizes that are powers of two, and one block")
        each.add_argument("--random", type=int, metavar="SEED", help="random filters, which differ for each seed")
        each.add_argument("--count", type=int, default=100, help="how many random filters")
        each.add_argument(
            "--unseen", action="store_true", help="filters, sizes and blocks that the model was not chosen by"
        )
    each = actions.add_parser("run")
    each.add_argument("folder", type=Path)
    each.add_argument("--seconds", type=float, default=3600)
    each.add_argument("--rounds", type=int, default=9)
    each.add_argument("--parts", type=int, default=0, help="wait until so many parts are built")
    options = parser.parse_args()
    match options.action:
        case "build":
            build(options.folder, options.jobs, _tasks(options), options.seconds)
        case "figures":
            figures(options.folder, options.jobs, _tasks(options))
        case _:
            run(options.folder, options.seconds, options.rounds, options.parts)


def _tasks(options: argparse.Namespace) -> list[Task]:
    """The parts that the command line names."""
    return [task for task in _all_edges(options) if options.edges in (None, task[1])]


def _all_edges(options: argparse.Namespace) -> list[Task]:
    if options.random is not None:
        return random_tasks(options.random, options.count)
    known = ("gaussian3x3", "gaussian5x5", "laplace5x5", "sobel", "box5x5", "median3x3", "prewitt")
    usual = (*UNSEEN_PROGRAMS, *known) if options.unseen else PROGRAMS
    programs = cast("str", options.only).split(",") if options.only else usual
    tasks = tasks_of(programs, is_unseen=options.unseen)
    if options.even:
        return [(name, edge, block, sizes[:4]) for name, edge, block, sizes in tasks if block == BLOCKS[0]]
    return tasks


if __name__ == "__main__":
    main()
