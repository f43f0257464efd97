"""Schedules of image programs beside naive kernels, `torch.compile`, CuPy and compiled programs, in one run.

    python docs/experiments/image_schedule_peers.py build FOLDER [--jobs N] [--programs …] [--sizes …]     needs nvcc
    python docs/experiments/image_schedule_peers.py run FOLDER [--peers LIBRARY] [--torch FILE] [--cupy]
        [--tune SECONDS] [--seconds N] [--json FILE]                   needs a GPU and the extra `gpu`
    python docs/experiments/image_schedule_peers.py once FOLDER --programs NAME --sizes N [--arms …] [--peers LIBRARY]

`build` makes the schedules of all models and their machine code. `run` compares pixels and prints microseconds: the
median of CUDA graphs with ten runs, divided by ten; all arms of a program take turns. Our schedules must give the
bits of naive kernels. A peer may differ by rounding, and near the edges of the image: many programs handle only the
edges of their input, and ours those of every operator. A peer that fails is written down with its error, and the
others are timed. `torch.compile` compiles before: FILE is what `image_schedule_torch.py --prepare` wrote. `once` runs
each arm once, for a profiler; before each of them it starts the kernel `marker`.

LIBRARY is a shared library with compiled programs that work on device memory:

    int peers_open(void *context, void *stream);     // all work goes to this stream
    int peers_count(void);
    const char *peer_program(int peer);              // the name of a program in image_schedule_programs.py
    const char *peer_name(int peer);
    int peer_run(int peer, int width, int height, uint64_t inputs, uint64_t outputs);     // 0 if it could
    const char *peers_message(void);                 // why the last run failed

The images of a program's inputs lie one after the other, and so do those of its outputs.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from image_isp import bytes_of, launch_as_json
from image_schedule_programs import PROGRAMS
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.python_child import process_pool

RUNS, ROUNDS = 10, 7
#: Kernels of one schedule that are compiled at the same time.
THREADS = 4
ARCH = "sm_90"
SIZES = (2048, 4096, 512)
#: The names of our own schedules. `separate` is built only where the model chooses it.
OURS = ("naive", "fused", "greedy", "paper", "dynamic", "separate", "tuned")
#: The schedule whose kernels are compiled once more, with products and sums contracted, and the name of the result. It
#: does not have the bits of naive kernels; it shows what they cost.
CONTRACTED = "auto", "contracted"
#: In front of CUDA C++: products and sums that nvcc may contract.
ROUNDED_ONCE = """\
#define __fmul_rn(a, b) ((a) * (b))
#define __fadd_rn(a, b) ((a) + (b))
#define __fsub_rn(a, b) ((a) - (b))
"""
#: By name: the tiles that all groups with tiles have, and whether all columns of a thread are in registers.
TILES = {
    "block": ("block", None),
    "warp": ("warp", None),
    "registers": ("hybrid", True),
    "hybrid": ("hybrid", False),
    "lanes": ("lanes", None),
}
#: The largest difference of a peer, over the largest pixel; for images of bytes, the largest difference.
RELATIVE, BYTES = 1e-4, 1
#: Runs of a peer before its graph is made. Memory that it needs is allocated then, which graphs do not allow.
WARM = 5


# --- build --------------------------------------------------------------------------------------------------------


def build(folder: Path, programs: Sequence[str], sizes: Sequence[int], tiled: Sequence[str], jobs: int) -> None:
    """Write machine code, and for each program and size a file of launches. The programs of ``tiled`` get schedules
    with one kind of tiles, too."""
    folder.mkdir(parents=True, exist_ok=True)
    start, total = time.monotonic(), 0
    with process_pool(jobs) as pool:
        # The programs whose schedules take longest come first.
        ordered = sorted(programs, key=lambda name: -len(PROGRAMS[name].graph(16).nodes))
        tasks = list(itertools.product(ordered, sizes))
        kinds = [
            (word, name, size, pool.submit(_with_tiles, name, size, word))
            for name, size in tasks
            if name in tiled
            for word in TILES
        ]
        contracted: list[Future[None]] = []
        for name, size, seconds, arms in pool.map(_planned, *zip(*tasks, strict=True)):
            words = [word for word in arms if word != "auto"]
            list(pool.map(_compiled, [(folder, name, size, word, arms[word]) for word in words]))
            total += len(words)
            contracted.append(pool.submit(_compiled, (folder, name, size, CONTRACTED[1], arms[arms[CONTRACTED[0]]])))
            (folder / f"{name}-{size}.json").write_text(json.dumps({"seconds": seconds, "arms": arms}))
            now = time.monotonic() - start
            print(f"{name} {size}: {len(words)} schedules; found in {seconds:.1f} s; {now:.0f} s", flush=True)
        for each in contracted:
            each.result()
        list(pool.map(_compiled, [(folder, name, size, word, each.result()) for word, name, size, each in kinds]))
    print(f"{total + len(kinds)} schedules of {len(tasks)} programs and sizes in {time.monotonic() - start:.0f} s")


def _planned(name: str, size: int) -> tuple[str, int, float, dict[str, Any]]:
    """The plans of all models as JSON, and the seconds of the search for them."""
    from ptxmotion.dsl.image import Options
    from ptxmotion.dsl.image.schedule.auto import candidates

    graph, start = PROGRAMS[name].graph(size), time.monotonic()
    found = candidates(graph, Options())
    arms: dict[str, Any] = {"naive": None, "auto": found[0].name}
    arms |= {each.name: each.plan.to_json() for each in found if each.name != "separate" or each is found[0]}
    return name, size, time.monotonic() - start, arms


def _with_tiles(name: str, size: int, word: str) -> str:
    """The plan of dynamic programming over groups that have no tiles, or tiles of one kind."""
    from ptxmotion.dsl.image import Options
    from ptxmotion.dsl.image.fusion.pixel_images import with_pixel_images
    from ptxmotion.dsl.image.groups import Group, Plan
    from ptxmotion.dsl.image.schedule.costs import Costed, time_model
    from ptxmotion.dsl.image.schedule.dynamic import Chooser, dynamic_plan
    from ptxmotion.dsl.image.schedule.shapes import shapes
    from ptxmotion.dsl.image.schedule.work import Members, Work, work_of

    graph, options, cost = with_pixel_images(PROGRAMS[name].graph(size)), Options(), time_model()
    kind, whole = TILES[word]

    def is_allowed(group: Group) -> bool:
        columns = whole is None or (group.in_registers == group.pixels[0]) == whole
        return (group.kind == "block" and not group.tiled) or (group.kind == kind and columns)

    def works(nodes: Any) -> list[tuple[Group, Work]]:
        members = Members(graph, tuple(nodes), options)
        return [(group, work_of(members, group)) for group in shapes(members) if is_allowed(group)]

    class OfOneKind(Chooser):
        def best(self, block: frozenset[int]) -> Costed | None:
            if block not in self.works:
                self.works[block] = works(graph.nodes[at] for at in sorted(block))
            return super().best(block)

    partition = dynamic_plan(OfOneKind(graph, options, cost))[0].groups
    best = [min(works(group.nodes), key=lambda each: cost(each[1]))[0] for group in partition]
    return Plan(graph, tuple(best)).to_json()


def _compiled(task: tuple[Path, str, int, str, str | None]) -> None:
    folder, name, size, word, plan = task
    launches, images = compiled(folder, name, size, plan, ROUNDED_ONCE if word == CONTRACTED[1] else "")
    (folder / f"{name}-{size}-{word}.json").write_text(json.dumps({"launches": launches, "images": images}))


def compiled(folder: Path, name: str, size: int, plan: str | None, before: str = "") -> tuple[list[Any], list[int]]:
    """Compile the kernels of a plan, or naive kernels, into the folder, with some text before them. The launches, and
    the bytes of each image: inputs, outputs and others."""
    from ptxmotion.dsl.image import Options, lower
    from ptxmotion.dsl.image.compiling import compiler
    from ptxmotion.dsl.image.group_lowering import lower_plan
    from ptxmotion.dsl.image.groups import plan_from_json
    from ptxmotion.toolchain.cubin_cache import assemble_kept

    nvcc, case = compiler((), ARCH), PROGRAMS[name]
    graph, options = case.graph(size), Options(nvcc=compiler((), ARCH))
    if plan is None:
        lowered = lower(graph, "naive", options)
    else:
        lowered = lower_plan(plan_from_json(graph, plan, options), options, "schedule")
    images: dict[Any, int] = {}
    for image in (*lowered.graph.inputs, *lowered.graph.outputs, *lowered.buffers):
        images[image] = len(images)

    def written(launch: Any) -> Any:
        ptx = nvcc.ptx(before + launch.kernel.cuda) if before else launch.kernel.ptx(nvcc)
        made = {**launch_as_json(launch, ptx, images, case.numbers), "block": list(launch.block)}
        (folder / f"{made['file']}.cubin").write_bytes(assemble_kept(ptx, ARCH).cubin)
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        launches = list(pool.map(written, lowered.launches))
    return launches, [bytes_of(image) for image in images]


# --- run ----------------------------------------------------------------------------------------------------------

#: Our schedules that gave other bits than naive kernels, or failed. They are not timed, and the run ends with an error.
WRONG: list[str] = []


class Peers:
    """The programs of a shared library."""

    def __init__(self, backend: Any, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.peer_program.restype = self.library.peer_name.restype = ctypes.c_char_p
        self.library.peers_message.restype = ctypes.c_char_p
        context = ctypes.c_void_p()
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuCtxGetCurrent(ctypes.byref(context)) or not context:
            sys.exit("there is no current CUDA context")
        self.library.peers_open(context, ctypes.c_void_p(int(backend.stream.handle)))

    def of(self, program: str) -> dict[str, int]:
        """By name: the numbers of the peers of a program."""
        count = range(self.library.peers_count())
        found = [n for n in count if self.library.peer_program(n).decode() == program]
        return {self.library.peer_name(n).decode(): n for n in found}

    def call(self, peer: int, size: int, inputs: int, outputs: int) -> Callable[[], None]:
        """A function that starts the peer, and raises `RuntimeError` if it cannot."""
        first, second = ctypes.c_uint64(inputs), ctypes.c_uint64(outputs)

        def run() -> None:
            if self.library.peer_run(peer, size, size, first, second):
                raise RuntimeError(self.library.peers_message().decode().strip()[:200])

        return run


class PythonPeer(Protocol):
    """A program in another library."""

    def result(self) -> list[Any]:
        """The pixels of each output: height, width, components."""
        ...

    def seconds(self) -> float:
        """The time of a run."""
        ...


class Bench:
    """One program with images of one size on the GPU."""

    def __init__(self, backend: Any, folder: Path, name: str, size: int) -> None:
        self.backend, self.folder, self.name, self.size = backend, folder, name, size
        graph = PROGRAMS[name].graph(size)
        self.outputs = graph.outputs
        pixels = [np.ascontiguousarray(each).view(np.uint8) for each in PROGRAMS[name].inputs(size)]
        #: The allocations: all inputs, all outputs, and images between kernels as they are needed.
        self.own = [backend.allocate(sum(each.nbytes for each in pixels))]
        self.own.append(backend.allocate(sum(bytes_of(image) for image in graph.outputs)))
        self.images: list[Any] = []
        for buffer, sizes in zip(self.own, ([e.nbytes for e in pixels], map(bytes_of, graph.outputs)), strict=True):
            at = 0
            for nbytes in sizes:
                self.images.append(backend.view(buffer, at, nbytes))
                at += nbytes
        for image, each in zip(self.images, pixels, strict=False):
            backend.write(image, each)
        self.events = backend.event(), backend.event()
        self.fixed = len(self.images)

    def close(self) -> None:
        for buffer in (*self.own, *self.images[self.fixed :]):
            self.backend.free(buffer)

    def ours(self, arm: Any) -> Callable[[], None]:
        """A function that starts the kernels of an arm."""
        for at, nbytes in enumerate(arm["images"][self.fixed :], self.fixed):
            if at < len(self.images) and self.images[at].nbytes < nbytes:
                self.own.append(self.images[at])
                self.images[at] = self.backend.allocate(nbytes)
            elif at == len(self.images):
                self.images.append(self.backend.allocate(nbytes))
        calls: list[Callable[[], object]] = []
        for launch in arm["launches"]:
            cubin = (self.folder / f"{launch['file']}.cubin").read_bytes()
            kernel = self.backend.keep(self.backend.load_cubin(cubin).kernel(launch["entry"]))
            values = [
                self.images[value] if kind == "image" else np.dtype(kind).type(value)
                for kind, value in launch["arguments"]
            ]
            packed = self.backend.pack(kernel, values)
            (x, y), (threads_x, threads_y) = launch["grid"], launch["block"]
            calls.append(self.backend.launch_call(kernel, (x, y, 1), (threads_x, threads_y, 1), 0, packed))

        def run() -> None:
            for call in calls:
                call()

        return run

    def result(self, run: Callable[[], None]) -> list[Any]:
        """The pixels of each output after a run."""
        self.backend.fill(self.own[1], 0xA5)
        run()
        self.backend.synchronize()
        return [self._pixels(at) for at in range(len(self.outputs))]

    def _pixels(self, at: int) -> Any:
        from ptxmotion.dsl.image.windows import layout_of

        image = self.outputs[at]
        dtype, lanes = layout_of(image.pixel)
        buffer = self.images[self.fixed - len(self.outputs) + at]
        shape = (int(image.height), int(image.width), lanes)
        return self.backend.read(buffer, np.dtype(dtype), math.prod(shape)).reshape(shape)

    def graph(self, run: Callable[[], None]) -> Any:
        def body() -> None:
            for _ in range(RUNS):
                run()

        return self.backend.graph(body)

    def seconds(self, graph: Any) -> float:
        first, last = self.events
        self.backend.record(first)
        self.backend.launch_graph(graph)
        self.backend.record(last)
        self.backend.synchronize()
        return self.backend.seconds_between(first, last) / RUNS

    def times(self, arms: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
        """The median of each arm in microseconds. The arms take turns; each gives the seconds of one run."""
        found: dict[str, list[float]] = {word: [] for word in arms}
        order = random.Random(self.size)
        for number in range(rounds + 1):
            for word in order.sample(sorted(arms), len(arms)):
                seconds = arms[word]()
                if number:
                    found[word].append(seconds)
        return {word: statistics.median(each) * 1e6 for word, each in found.items()}


def difference(found: Sequence[Any], expected: Sequence[Any], margin: int) -> tuple[float, float]:
    """The largest difference of pixels that are not near an edge, and the largest one that is allowed."""
    worst, allowed = 0.0, float(BYTES)
    for one, other in zip(found, expected, strict=True):
        inner, is_real = slice(margin, -margin), one.dtype.kind == "f"
        mine, theirs = (each[inner, inner] if is_real else each[inner, inner].astype(np.int32) for each in (one, other))
        worst = max(worst, float(np.abs(mine - theirs).max()))
        if is_real:
            allowed = RELATIVE * float(np.abs(theirs).max())
    return worst, allowed


def runs_of(bench: Bench, peers: Peers | None, words: Sequence[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The arms of a program by name, naive kernels first. The names of peers begin with ``peer:``."""
    path = bench.folder / f"{bench.name}-{bench.size}"
    for word in dict.fromkeys(("naive", *OURS, *TILES, CONTRACTED[1])):
        file = Path(f"{path}-{word}.json")
        if file.is_file() and (not words or word in words or word == "naive"):
            yield word, bench.ours(json.loads(file.read_text()))
    if peers is None:
        return
    for word, peer in peers.of(bench.name).items():
        if not words or f"peer:{word}" in words:
            yield f"peer:{word}", peers.call(peer, bench.size, bench.own[0].pointer, bench.own[1].pointer)


#: By the name of a peer in Python: what makes its program, which then runs on the GPU.
Made: TypeAlias = "Mapping[str, Callable[[], PythonPeer]]"


def timed(bench: Bench, peers: Peers | None, python: Made) -> tuple[dict[str, float], dict[str, str]]:
    """The microseconds of all arms of a program, and for those without a time why they have none."""
    graphs, margin = dict[str, Any](), PROGRAMS[bench.name].margin
    expected: list[Any] = []
    failed: dict[str, str] = {}

    def fail(word: str, why: str) -> None:
        failed[word] = why
        print(f"    {word}: {why}", flush=True)

    for word, run in runs_of(bench, peers, ()):
        try:
            found = bench.result(run)
            expected = expected or found
            if word.startswith("peer:") or word == CONTRACTED[1]:
                worst, allowed = difference(found, expected, margin)
                if not worst <= allowed:
                    fail(word, f"differs by {worst:.3g}, more than {allowed:.3g}")
                    continue
                for _ in range(WARM):
                    run()
            elif any(one.tobytes() != other.tobytes() for one, other in zip(found, expected, strict=True)):
                WRONG.append(f"{bench.name} {bench.size}: {word} does not give the bits of naive kernels")
                fail(word, "does not give the bits of naive kernels")
                continue
            graphs[word] = bench.graph(run)
        except (RuntimeError, DeviceFailed) as why:
            fail(word, str(why))
            if not word.startswith("peer:"):
                WRONG.append(f"{bench.name} {bench.size}: {word}: {why}")
    arms: dict[str, Callable[[], float]] = {word: partial(bench.seconds, graph) for word, graph in graphs.items()}
    for word, made in python.items():
        try:
            peer = made()
            worst, allowed = difference(peer.result(), expected, margin)
            if worst <= allowed:
                arms[word] = peer.seconds
            else:
                fail(word, f"differs by {worst:.3g}, more than {allowed:.3g}")
        except Exception as why:
            fail(word, f"{type(why).__name__}: {str(why)[:200]}")
    found = bench.times(arms)
    for graph in graphs.values():
        bench.backend.destroy_graph(graph)
    return found, failed


def python_peers(name: str, size: int, torch: Path | None, cupy: bool) -> tuple[Made, dict[str, str]]:
    """The peers of a program that are written in Python, and for those that cannot run why. ``torch`` is the file of
    what was compiled. Imports PyTorch and CuPy only if they have the program."""
    made: dict[str, Callable[[], PythonPeer]] = {}
    failed: dict[str, str] = {}
    for line in torch.read_text().splitlines() if torch else ():
        record: dict[str, Any] = json.loads(line)
        if (record["program"], record["size"]) != (name, size):
            continue
        word: str = record["variant"]
        if record["error"]:
            failed[word] = record["error"]
        else:
            made[word] = partial(importlib.import_module("image_schedule_torch").Arm, name, size, RUNS, word)
    if torch and not made and not failed:
        failed["torch"] = "not compiled"
    if cupy:
        module = importlib.import_module("image_schedule_cupy")
        if name in module.FUNCTIONS:
            made["cupy"] = partial(module.Arm, name, size, RUNS)
    return made, failed


def tuned(bench: Bench, seconds: float) -> None:
    """Search for the fastest schedule on this GPU, and write it as the arm ``tuned``."""
    from ptxmotion.dsl.image import Options
    from ptxmotion.dsl.image.compiling import compiler
    from ptxmotion.dsl.image.schedule.timing import Timer
    from ptxmotion.dsl.image.schedule.tuning import tune

    case, options = PROGRAMS[bench.name], Options(nvcc=compiler((), ARCH))
    graph = case.graph(bench.size)
    found = tune(graph, options, Timer(bench.backend, graph, options, case.numbers), seconds, lambda _: None)
    print(f"    tuned: {len(found.times)} schedules in {seconds:.0f} s", flush=True)
    _compiled((bench.folder, bench.name, bench.size, "tuned", found.plan.to_json()))


def run(folder: Path, chosen: argparse.Namespace) -> None:
    """Compare and time all programs that were built."""
    from ptxmotion.harness.cuda import CudaBackend

    start, backend = time.monotonic(), CudaBackend()
    peers = Peers(backend, chosen.peers) if chosen.peers else None
    print(backend.describe()["gpu"], flush=True)
    tables: dict[tuple[str, int], dict[str, float]] = {}
    for size, name in itertools.product(chosen.sizes, chosen.programs):
        if time.monotonic() - start > chosen.seconds:
            print("the time has ended")
            break
        if not (folder / f"{name}-{size}.json").is_file():
            continue
        made = json.loads((folder / f"{name}-{size}.json").read_text())
        bench = Bench(backend, folder, name, size)
        if chosen.tune:
            tuned(bench, chosen.tune)
        python, left_out = python_peers(name, size, chosen.torch, chosen.cupy)
        times, failed = timed(bench, peers, python)
        failed = left_out | failed
        times["auto"] = times.get(made["arms"]["auto"], math.nan)
        tables[name, size] = times
        words = " ".join(f"{word} {micros:.2f}" for word, micros in times.items())
        print(f"{name} {size}: {words}; auto is {made['arms']['auto']}; {time.monotonic() - start:.0f} s", flush=True)
        for word, why in left_out.items():
            print(f"    {word}: {why}", flush=True)
        if chosen.json:
            record = {"program": name, "size": size, "seconds": made["seconds"], "times": times, "failed": failed}
            with chosen.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
        bench.close()
        backend.trim()
    if WRONG:
        sys.exit("\n".join(WRONG))


#: A kernel that does nothing. A profiler shows it between two arms.
MARKER = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry marker() { ret; }
"""


def once(folder: Path, chosen: argparse.Namespace) -> None:
    """Run each arm once. Prints the arms in the order in which they follow markers."""
    from ptxmotion.harness.cuda import CudaBackend

    backend = CudaBackend()
    marker = backend.keep(backend.load(MARKER).kernel("marker"))
    peers = Peers(backend, chosen.peers) if chosen.peers else None
    for size, name in itertools.product(chosen.sizes, chosen.programs):
        bench = Bench(backend, folder, name, size)
        for word, call in runs_of(bench, peers, chosen.arms):
            if word == "naive" and chosen.arms and "naive" not in chosen.arms:
                continue
            print(f"arm {name} {size} {word}", flush=True)
            backend.launch(marker, (1, 1, 1), (1, 1, 1), 0, [])
            try:
                call()
                backend.synchronize()
            except RuntimeError as why:
                print(f"    {word}: {why}", flush=True)
        bench.close()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for word in ("build", "run", "once"):
        each = actions.add_parser(word)
        each.add_argument("folder", type=Path)
        each.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
        each.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="widths and heights")
        if word == "build":
            each.add_argument("--tiles", nargs="*", default=[], help="programs to build with each kind of tiles, too")
            each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
        else:
            each.add_argument("--peers", type=Path, help="a shared library of compiled programs")
        if word == "run":
            each.add_argument("--torch", type=Path, help="time `torch.compile`, too: what this file says is compiled")
            each.add_argument("--cupy", action="store_true", help="time CuPy's `fuse`, too, for the programs it has")
            each.add_argument("--tune", type=float, default=0, help="seconds of tuning of each program and size")
            each.add_argument("--seconds", type=float, default=3600, help="no program starts later")
            each.add_argument("--json", type=Path, help="append a line for each program and size to this file")
        if word == "once":
            each.add_argument("--arms", nargs="*", default=[], help="only these arms; peers as peer:NAME")
    chosen = parser.parse_args()
    if chosen.action == "build":
        build(chosen.folder, chosen.programs, chosen.sizes, chosen.tiles, chosen.jobs)
    else:
        (run if chosen.action == "run" else once)(chosen.folder, chosen)


if __name__ == "__main__":
    main()
