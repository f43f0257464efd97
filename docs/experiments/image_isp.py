"""Partitioned image kernels beside naive ones: times, what the model `isp+m` predicts, and equal results.

    python docs/experiments/image_isp.py build FOLDER [--jobs N] [--unseen | --random SEED]    needs nvcc
    python docs/experiments/image_isp.py run FOLDER [--seconds N] [--rounds N]       needs a GPU and the extra `gpu`
    python docs/experiments/image_isp.py report FILE [FILE]                          the output of one run or of two

`build` compiles the kernels of the programs of the suite `image`, for each boundary, size and block, by each lowering,
and computes what the model expects. `run` compares the results of all lowerings bit for bit and times them. Lowerings
take turns; each time is that of a CUDA graph with several runs, divided by their number; medians. It prints a line
``kernel`` for each kernel that has checks, and a line ``program`` for each program. `report` makes the tables from
these lines: how often the model is right, and the geometric mean of each program over naive, beside the shortest time
in which its bytes can be copied. With ``--unseen``, `build` takes other filters (`image_unseen_filters.py`), sizes and
blocks than those by which the model was chosen; with ``--random``, the filters of `image_random_filters.py`.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
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
SAMPLE = 150e-6
#: Two times that differ by less are equal.
NOISE = 0.01


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
    """Write the cubins and `runs.json`: by program, boundary, size and block, the launches of each lowering. No part is
    begun after ``seconds``. Parts that are in `runs.json` are not built again."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    kept = folder / "runs.json"
    runs: list[Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    known = {(run["program"], run["boundary"], tuple(run["block"])) for run in runs}
    has_ended = False
    with process_pool(jobs) as pool:
        pending = {pool.submit(_built, *task): task for task in tasks if task[:3] not in known}
        for done in as_completed(pending):
            if done.cancelled():
                continue
            if time.monotonic() - started > seconds and not has_ended:
                has_ended = True
                left_out = sum(each.cancel() for each in pending)
                print(f"the time has ended: {left_out} parts are left out")
            made, cubins = done.result()
            runs += made
            for name, cubin in cubins.items():
                (folder / f"{name}.cubin").write_bytes(cubin)
            name, boundary, block, _ = pending[done]
            runs.sort(key=_order)
            kept.write_text(json.dumps(runs), encoding="utf-8")
            print(f"{time.monotonic() - started:6.1f} s: {name} {boundary} {block}", flush=True)


def _order(run: Any) -> tuple[Any, ...]:
    return run["program"] not in PAPER, run["program"], run["boundary"], run["block"], run["size"]


def _graphs(name: str, boundary: str) -> tuple[Callable[[int, int], Any], Mapping[str, Any]]:
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
    from ptxmotion.dsl.image.compiling import compiler
    from ptxmotion.dsl.image.partition_model import estimate, lowerings_of, node_launch
    from ptxmotion.dsl.image.windows import layout_of
    from ptxmotion.toolchain.cubin_cache import assemble_kept

    graphs, numbers = _graphs(name, boundary)
    nvcc = compiler(("-fmad=false",), ARCH)
    options = Options(block, nvcc=nvcc)
    cubins: dict[str, bytes] = {}
    runs: list[Any] = []
    for width, height in sizes:
        graph = graphs(width, height)
        images: dict[Any, int] = {image: number for number, image in enumerate((*graph.inputs, *graph.nodes))}
        nodes: list[Any] = []
        for node in graph.nodes:
            arms: dict[str, Any] = {}
            for word in lowerings_of(node, options):
                launch = node_launch(node, word, "kernel", options)
                ptx = launch.kernel.ptx(nvcc)
                arms[word] = launch_as_json(launch, ptx, images, numbers)
                cubins[arms[word]["file"]] = assemble_kept(ptx, ARCH).cubin
            found = estimate(node, options)
            gains = {each.lowering: found.gain(each) for each in found.kernels} if found else {}
            expected = {each.lowering: found.expected(each) for each in found.kernels} if found else {}
            code = {each.lowering: [each.code.cycles, each.code.weight] for each in found.kernels} if found else {}
            faster = [each.lowering for each in found.kernels[1:] if not found.worse(each)] if found else []
            read = {access.image: bytes_of(access.image) for access in node.accesses}
            moved = sum(read.values()) + bytes_of(node)
            best = found.best.lowering if found else "naive"
            model = {"gains": gains, "expected": expected, "code": code, "faster": faster, "best": best}
            figures = {each.lowering: figures_as_json(each) for each in found.kernels} if found else {}
            nodes.append({"name": node.name, "arms": arms, "bytes": moved, **model, "figures": figures})
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
        "occupancy": kernel.occupancy,
        "cycles": kernel.code.cycles,
        "kinds": kernel.kinds,
        "rows": kernel.rows,
        "size": kernel.size,
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

    def __init__(self, folder: Path, runs: Sequence[Any], rounds: int) -> None:
        from ptxmotion.harness.cuda import CudaBackend

        self.backend = CudaBackend()
        self.folder, self.rounds = folder, rounds
        #: By file and entry: the kernel.
        self.kernels: dict[tuple[str, str], Any] = {}
        most = max(len(run["images"]) for run in runs)
        sizes = [max((run["images"][n][0] for run in runs if n < len(run["images"])), default=0) for n in range(most)]
        self.buffers: list[Any] = [self.backend.allocate(size) for size in sizes]
        self.written: tuple[str, int] | None = None

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
            dtype, numbers = np.dtype(kind), np.random.default_rng(nbytes)
            count = nbytes // dtype.itemsize
            is_float = dtype.kind == "f"
            drawn = cast("Any", numbers).random(count) if is_float else cast("Any", numbers).integers(0, 256, count)
            pixels = cast("NDArray[Any]", drawn.astype(dtype))
            self.backend.write(self.buffers[0], pixels)
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
        count = max(2, min(40, int(SAMPLE / once)))
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


def run(folder: Path, seconds: float, rounds: int) -> None:
    """Compare and time all runs, for at most ``seconds``."""
    started = time.monotonic()
    runs = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    gpu = Gpu(folder, runs, rounds)
    print(gpu.backend.describe()["gpu"], f"{rounds} rounds", flush=True)
    #: By the files of all lowerings and the size: the times of this kernel.
    known: dict[Any, dict[str, float]] = {}
    for number, each in enumerate(runs):
        if time.monotonic() - started > seconds:
            print(f"the time has ended: {len(runs) - number} of {len(runs)} runs are missing")
            return
        _timed(gpu, each, known)
    print(f"{len(runs)} runs, all results equal, {time.monotonic() - started:.0f} s")


def _timed(gpu: Gpu, run: Any, known: dict[Any, dict[str, float]]) -> None:
    gpu.write_input(run)
    block, nodes = run["block"], run["nodes"]
    width, height = run["size"]
    words = list(dict.fromkeys(word for node in nodes for word in node["arms"]))
    calls = [{word: gpu.call(arm, block) for word, arm in node["arms"].items()} for node in nodes]
    # An operator that a lowering does not change has the naive kernel.
    arms = {word: [each.get(word, each["naive"]) for each in calls] for word in words}
    chosen = tuple(node["best"] for node in nodes)
    arms["isp+m"] = [each[word] for each, word in zip(calls, chosen, strict=True)]
    expected = gpu.results(run, arms["naive"])
    for word in words[1:]:
        for found, wanted in zip(gpu.results(run, arms[word]), expected, strict=True):
            if found.tobytes() != wanted.tobytes():
                sys.exit(f"{run['program']} {run['boundary']} {width}x{height} {block}: {word} differs from naive")
    where = f"{run['program']};{run['boundary']};{width}x{height};{block[0]}x{block[1]}"
    for node, each in zip(nodes, calls, strict=True):
        if node["gains"]:
            key = *(arm["file"] for arm in node["arms"].values()), width, height, run["images"][0][1]
            is_new = key not in known
            if is_new:
                known[key] = gpu.times({word: [call] for word, call in each.items()})
            times = known[key]
            # Kernels that another program has, too, count once.
            mark = "new" if is_new else "again"
            columns = [
                f"{word}={node['gains'][word]:.4f}={node['expected'][word]:.4f}={int(word in node['faster'])}"
                f"={node['code'][word][0]:.0f}"
                f"={node['code'][word][1]:.0f}={times[word] * 1e6:.3f}"
                for word in each
            ]
            print(f"kernel;{where};{node['name']};{mark};{node['best']};{';'.join(columns)}", flush=True)
    del arms["isp+m"]
    if len(set(chosen)) > 1:
        arms["isp+m"] = [each[word] for each, word in zip(calls, chosen, strict=True)]
    times = gpu.times(arms)
    times.setdefault("isp+m", times[chosen[0]])
    least = sum(node["bytes"] for node in nodes) / COPIED
    columns = [f"{word}={seconds * 1e6:.3f}" for word, seconds in times.items()]
    print(f"program;{where};{least * 1e6:.3f};{';'.join(columns)}", flush=True)


# --- report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A kernel: G, the gain by which the model decides, whether it expects the kernel to be faster than the naive one,
    cycles of one warp, weighted machine instructions, and measured microseconds."""

    gain: float
    expected: float
    is_faster: float
    cycles: float
    weight: float
    micros: float


class Lines:
    """The lines of a run. A key is program, boundary, size and block, for a kernel also its name."""

    def __init__(self, path: Path) -> None:
        #: By key: the chosen lowering, and by lowering the figures.
        self.kernels: dict[tuple[str, ...], tuple[str, dict[str, Kernel]]] = {}
        #: By key: microseconds for the bytes of all kernels, and the microseconds of each lowering.
        self.programs: dict[tuple[str, ...], tuple[float, dict[str, float]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, *parts = line.split(";")
            if kind == "kernel" and parts[5] == "new":
                figures = [part.split("=") for part in parts[7:]]
                kernels = {word: Kernel(*(float(each) for each in rest)) for word, *rest in figures}
                self.kernels[tuple(parts[:5])] = parts[6], kernels
            elif kind == "program":
                pairs = [part.split("=") for part in parts[5:]]
                self.programs[tuple(parts[:4])] = float(parts[4]), {w: float(t) for w, t in pairs}


def report(paths: Sequence[Path]) -> None:
    """Print the tables."""
    runs = [Lines(path) for path in paths]
    for number, each in enumerate(runs, 1):
        print(f"## Run {number}: {len(each.kernels)} kernels, {len(each.programs)} programs\n")
        _confusion(each)
    _slower(runs)
    _gains(runs)


def _confusion(lines: Lines) -> None:
    """Predicted against measured, for each lowering of each kernel, by the model and by G alone."""
    print("| model | lowering | faster: is faster, equal, slower | not faster: is slower, equal, faster | right |")
    print("| --- | --- | --- | --- | --- |")
    wrong: list[str] = []
    for model in ("isp+m", "G > 1"):
        counts: dict[str, Counter[tuple[bool, str]]] = defaultdict(Counter)
        for key, (_, figures) in lines.kernels.items():
            for word in sorted(figures.keys() - {"naive"}):
                kernel = figures[word]
                gain = figures["naive"].micros / kernel.micros
                predicted = bool(kernel.is_faster) if model == "isp+m" else kernel.gain > 1
                measured = "faster" if gain > 1 + NOISE else "slower" if gain < 1 - NOISE else "equal"
                for group in (word, "all", f"{word}, {key[1]}"):
                    counts[group][predicted, measured] += 1
                if model == "isp+m" and measured == ("slower" if predicted else "faster"):
                    wrong.append(f"{' '.join(key)}: {word}: G = {kernel.gain:.3f}, {measured}: {gain:.3f}")
        for group, found in sorted(counts.items()):
            yes = [found[True, word] for word in ("faster", "equal", "slower")]
            no = [found[False, word] for word in ("slower", "equal", "faster")]
            right = 1 - (yes[2] + no[2]) / found.total()
            print(f"| {model} | {group} | {', '.join(map(str, yes))} | {', '.join(map(str, no))} | {right:.1%} |")
    print(f"\nWrong: {len(wrong)}")
    for line in sorted(wrong):
        print(f"    {line}")
    print()


def _slower(runs: Sequence[Lines]) -> None:
    """Print where `isp+m` is slower than naive in each run."""
    for name in ("kernels", "programs"):
        sets: list[dict[tuple[str, ...], float]] = []
        for lines in runs:
            if name == "kernels":
                gains = {key: f["naive"].micros / f[chosen].micros for key, (chosen, f) in lines.kernels.items()}
            else:
                gains = {key: times["naive"] / times["isp+m"] for key, (_, times) in lines.programs.items()}
            sets.append({key: gain for key, gain in gains.items() if gain < 1 - NOISE})
        both = set(sets[0]).intersection(*sets)
        print(f"isp+m slower than naive by more than {NOISE:.0%} in each run: {len(both)} {name}")
        for key in sorted(both):
            print(f"    {' '.join(key)}: {', '.join(f'{each[key]:.3f}' for each in sets)}")
    print()


def _gains(runs: Sequence[Lines]) -> None:
    """Geometric means of each program over naive, and the share of the shortest time for its bytes."""
    print(
        "| program | isp | isp_warp | isp_rows | isp+m: "
        + " | ".join((*BOUNDARIES, "all"))
        + " | least | most | bytes |"
    )
    print("| --- | --- | --- | --- | " + "--- | " * (len(BOUNDARIES) + 4))
    names = list(dict.fromkeys(key[0] for lines in runs for key in lines.programs))
    for program in sorted(names, key=lambda name: PROGRAMS.index(name) if name in PROGRAMS else len(PROGRAMS)):
        found: dict[str, list[float]] = defaultdict(list)
        shares: list[float] = []
        for lines in runs:
            for (name, boundary, size, _), (least, times) in lines.programs.items():
                if name != program:
                    continue
                for word in times.keys() - {"naive"}:
                    found[word].append(times["naive"] / times[word])
                found[boundary].append(times["naive"] / times["isp+m"])
                if size in ("4096x4096", "3840x2160") and boundary == "clamp":
                    shares.append(least / times["naive"])
        if not found:
            continue
        columns = [_mean(found[word]) for word in ("isp", "isp_warp", "isp_rows", *BOUNDARIES, "isp+m")]
        least, most = min(found["isp+m"]), max(found["isp+m"])
        share = f"{max(shares):.2f}" if shares else ""
        print(f"| {program} | {' | '.join(columns)} | {least:.3f} | {most:.3f} | {share} |")


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(values):.3f}" if values else ""


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    each = actions.add_parser("build")
    each.add_argument("folder", type=Path)
    each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    each.add_argument("--seconds", type=float, default=3600)
    each.add_argument("--only", help="names of programs, with commas")
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
    each = actions.add_parser("report")
    each.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    match options.action:
        case "build":
            known = ("gaussian3x3", "gaussian5x5", "laplace5x5", "sobel", "box5x5", "median3x3", "prewitt")
            usual = (*UNSEEN_PROGRAMS, *known) if options.unseen else PROGRAMS
            programs = cast("str", options.only).split(",") if options.only else usual
            tasks = tasks_of(programs, is_unseen=options.unseen)
            if options.even:
                tasks = [(name, edge, block, sizes[:4]) for name, edge, block, sizes in tasks if block == BLOCKS[0]]
            if options.random is not None:
                tasks = random_tasks(options.random, options.count)
            build(options.folder, options.jobs, tasks, options.seconds)
        case "run":
            run(options.folder, options.seconds, options.rounds)
        case _:
            report(options.files)


if __name__ == "__main__":
    main()
