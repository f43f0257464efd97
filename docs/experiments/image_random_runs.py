"""Random image pipelines as a user calls them on a GPU: arrays of NumPy, CuPy and PyTorch, streams, graphs, threads.

    python docs/experiments/image_random_runs.py [--first N] [--count N] [--jobs N] [--only WORD ...] [--wait FILE]

The pipelines are those of `tests/property/random_pipelines.py`: several inputs and outputs of different types and
sizes, numbers, all boundaries. What each computes for two sets of pixels and numbers comes from naive kernels on the
emulator, and, without a GPU, the kernels of each lowering are compiled. Then, for each lowering and on the GPU:

- NumPy arrays that are contiguous, and views with strides;
- CuPy arrays: results that are made and results that are given; arrays that begin in the middle of an allocation; views
  with strides must be refused;
- PyTorch tensors on a stream that is not the default one;
- launches in a stream and as a graph, again and again with the two sets;
- two new threads that call one compiled pipeline, with PyTorch tensors, also on two streams, and with NumPy arrays.

All results must have the bits of the emulator. ``--only`` makes some of the calls: NumPy, CuPy, PyTorch, threads.
``--wait`` does everything that needs no GPU, and then waits for a file.
The exit code is 1 if a result differs.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ptxmotion.dsl import DslError
from ptxmotion.dsl.image import Compiled, Options
from ptxmotion.dsl.image.arrays import check_array
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.schedule.auto import scheduled
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.cubin_cache import assemble_kept

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "property"))
from random_pipelines import RandomPipeline, another, random_pipeline

ARCH = "sm_90"
LEAST, MOST = 2, 6
#: Calls of each of two threads.
CALLS = 4

Arrays = list[Any]


@dataclass
class Case:
    """A pipeline, two sets of arguments with their results, and compiled pipelines by lowering and execution."""

    seed: int
    arguments: list[tuple[Arrays, Arrays]]
    expected: list[Arrays]
    compiled: dict[str, Compiled]

    def check(self, which: int, made: Any, how: str) -> None:
        """Raise `AssertionError` if a result has other bits than the emulator's."""
        results = listed(made)
        assert len(results) == len(self.expected[which])
        for number, (got, wanted) in enumerate(zip(results, self.expected[which], strict=True)):
            host = np.asarray(on_host(got))
            assert host.dtype == wanted.dtype and host.shape == wanted.shape, (how, host.dtype, host.shape)
            same = (host == wanted) | ((host != host) & (wanted != wanted))
            assert same.all(), f"{how}: output {number} differs at {np.argwhere(~same)[:3].tolist()}"


def listed(made: Any) -> Arrays:
    """What a call returns, as a list."""
    return list(made) if isinstance(made, tuple) else [made]  # pyright: ignore[reportUnknownArgumentType]


def on_host(array: Any) -> Any:
    """An array of any library as one of NumPy."""
    if isinstance(array, np.ndarray):
        return array  # pyright: ignore[reportUnknownVariableType]
    return array.get() if hasattr(array, "get") else array.cpu().numpy()


# --- without a GPU ------------------------------------------------------------------------------------------------


def arguments_of(found: RandomPipeline, seed: int) -> list[tuple[Arrays, Arrays]]:
    """Two sets of arrays and numbers."""
    first = list(found.arrays.values()), list(found.numbers.values())
    return [first, another(found, seed)]


def lowerings_of(found: RandomPipeline, seed: int) -> dict[str, tuple[Lowered, str]]:
    """By name: kernels of the pipeline, and how they are executed."""
    rng, nvcc = random.Random(f"runs:{seed}"), compiler((), ARCH)
    options, plain = Options(found.block, nvcc=nvcc), Options(nvcc=nvcc)
    naive = lower(found.graph, "naive", options)
    made = {"naive stream": (naive, "stream"), "naive graph": (naive, "graph")}
    word = rng.choice(["isp", "isp_rows", "fused", "fused+h"])
    made[f"{word} graph"] = lower(found.graph, word, options), "graph"
    auto = lower_plan(scheduled(found.graph, plain, "auto"), plain, "schedule")
    for execution in rng.sample(["stream", "graph", "auto"], 2):
        made[f"auto {execution}"] = auto, execution
    return made


def built(task: tuple[int, float]) -> tuple[int, list[Arrays] | None, str]:
    """The results of the emulator for a pipeline. Compiles and assembles all of its kernels."""
    seed, end = task
    if time.time() > end:
        return seed, None, "no time"
    try:
        found = random_pipeline(seed, LEAST, MOST)
        expected: list[Arrays] = []
        arms = lowerings_of(found, seed)
        naive = Compiled(arms["naive stream"][0], compiler((), ARCH))
        for arrays, numbers in arguments_of(found, seed):
            backend = EmulatorBackend()
            expected.append(listed(naive(*arrays, *numbers, backend=backend)))
            assert backend.findings == [], backend.findings[0]
        for lowered, _ in arms.values():
            for text in Compiled(lowered, compiler((), ARCH)).ptx.values():
                assemble_kept(text, ARCH)
        return seed, expected, ""
    except Exception:
        return seed, None, traceback.format_exc(limit=-4)


def case_of(seed: int, expected: list[Arrays]) -> Case:
    """The case of a seed. Its kernels are in the cache."""
    found, nvcc = random_pipeline(seed, LEAST, MOST), compiler((), ARCH)
    made = {
        word: Compiled(lowered, nvcc, execution) for word, (lowered, execution) in lowerings_of(found, seed).items()
    }
    for compiled in made.values():
        _ = compiled.ptx, compiled.plan
    return Case(seed, arguments_of(found, seed), expected, made)


# --- on the GPU ---------------------------------------------------------------------------------------------------


def strided(array: Any, make: Any = np.zeros) -> Any:
    """A copy of an array that is every second element of a larger one along both axes of the image."""
    height, width, *lanes = array.shape
    wide = make((2 * height, 2 * width, *lanes), array.dtype)
    view = wide[::2, ::2]
    view[...] = array
    return view


def with_numpy(case: Case, word: str, backend: Any) -> None:
    """NumPy arrays on a backend, with and without strides, and results in given arrays."""
    compiled = case.compiled[word]
    for which in (0, 1, 0):
        arrays, numbers = case.arguments[which]
        case.check(which, compiled(*arrays, *numbers, backend=backend), f"{word}, NumPy")
        case.check(which, compiled(*map(strided, arrays), *numbers, backend=backend), f"{word}, NumPy with strides")
        outs = tuple(strided(np.zeros_like(each)) for each in case.expected[which])
        made = listed(compiled(*arrays, *numbers, out=outs, backend=backend))
        assert all(one is other for one, other in zip(made, outs, strict=True))
        case.check(which, outs, f"{word}, NumPy given")


def with_cupy(case: Case, word: str, cupy: Any) -> None:
    """CuPy arrays: results that are made and given, arrays inside of others, and strides that must be refused."""
    compiled, graph = case.compiled[word], case.compiled[word].graph
    for which in (0, 1, 0):
        arrays, numbers = case.arguments[which]
        given = [cupy.asarray(each) for each in arrays]
        case.check(which, compiled(*given, *numbers), f"{word}, CuPy")
        outs = tuple(cupy.full(each.shape, 77, each.dtype) for each in case.expected[which])
        case.check(which, compiled(*given, *numbers, out=outs), f"{word}, CuPy given")
        moved: Arrays = []
        for each, image in zip(arrays, graph.inputs, strict=True):
            wide = cupy.zeros((each.shape[0] + 2, *each.shape[1:]), each.dtype)
            wide[1:-1] = cupy.asarray(each)
            try:
                check_array(wide[1:-1], image.pixel, "a view")
            except DslError as why:
                assert "is not aligned" in why.message, why
                moved.append(cupy.asarray(each))
            else:
                moved.append(wide[1:-1])
        case.check(which, compiled(*moved, *numbers), f"{word}, CuPy views")
    gaps = [strided(cupy.asarray(each), cupy.zeros) for each in case.arguments[0][0]]
    if any(not each.flags.c_contiguous for each in gaps):
        try:
            compiled(*gaps, *case.arguments[0][1])
        except DslError as why:
            assert "gaps between its elements" in why.message, why
        else:
            raise AssertionError(f"{word}: arrays with strides are taken")


def tensors(arrays: Arrays, torch: Any) -> Arrays:
    """The arrays as tensors on the GPU. The copy is on the current stream."""
    return [torch.from_numpy(each).cuda() for each in arrays]


def with_torch(case: Case, word: str, torch: Any) -> None:
    """Tensors on a stream of their own, several calls before any result is read."""
    compiled = case.compiled[word]
    with torch.cuda.stream(torch.cuda.Stream()):
        made: Arrays = []
        for which in (0, 1, 0, 1):
            arrays, numbers = case.arguments[which]
            made.append((which, compiled(*tensors(arrays, torch), *numbers)))
        for which, results in made:
            case.check(which, results, f"{word}, PyTorch")


def with_threads(case: Case, word: str, torch: Any, backend: Any) -> None:
    """Two new threads with tensors, then two on streams of their own, then two with NumPy arrays on one backend. In the
    first and in the last ones nothing has used the GPU before."""
    compiled = case.compiled[word]
    given = [tensors(arrays, torch) for arrays, _ in case.arguments]
    torch.cuda.synchronize()

    def by_tensors(which: int) -> None:
        made = [compiled(*given[which], *case.arguments[which][1]) for _ in range(CALLS)]
        for results in made:
            case.check(which, results, f"{word}, PyTorch, two threads")

    def on_streams(which: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            arrays, numbers = case.arguments[which]
            made = [compiled(*tensors(arrays, torch), *numbers) for _ in range(CALLS)]
            for results in made:
                case.check(which, results, f"{word}, PyTorch, two streams")

    def by_numpy(which: int) -> None:
        arrays, numbers = case.arguments[which]
        for _ in range(CALLS):
            case.check(which, compiled(*arrays, *numbers, backend=backend), f"{word}, NumPy, two threads")

    for action in (by_tensors, on_streams, by_numpy):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(action, (0, 1)))


WORDS = ("NumPy", "CuPy", "PyTorch", "threads")


def run(cases: list[Case], end: float, words: Sequence[str]) -> int:
    """Make the calls of these words, as many as there is time for; the number of faults."""
    torch, cupy = (importlib.import_module(name) for name in ("torch", "cupy"))
    backend, done, faults = CudaBackend(), Counter[str](), 0
    print(backend.describe()["gpu"], flush=True)
    actions: dict[str, tuple[Any, ...]] = {
        "NumPy": (with_numpy, backend),
        "CuPy": (with_cupy, cupy),
        "PyTorch": (with_torch, torch),
        "threads": (with_threads, torch, backend),
    }
    for case in cases:
        if time.monotonic() > end:
            break
        done["pipelines"] += 1
        for word in case.compiled:
            for name in words:
                action, *arguments = actions[name]
                try:
                    action(case, word, *arguments)
                    done[name] += 1
                except Exception as why:
                    faults += 1
                    print(f"seed {case.seed}, {word}, {name}: {type(why).__name__}: {str(why)[:300]}", flush=True)
                    if not isinstance(why, AssertionError):
                        print(traceback.format_exc(limit=-5), flush=True)
    print(f"{dict(done)}, {faults} faults", flush=True)
    return faults


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first pipeline")
    parser.add_argument("--count", type=int, default=40, help="pipelines")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--build-seconds", type=float, default=3600, help="no pipeline is compiled later")
    parser.add_argument("--seconds", type=float, default=3600, help="no pipeline runs later")
    parser.add_argument("--build", action="store_true", help="only compile and emulate")
    parser.add_argument("--only", nargs="*", default=WORDS, choices=WORDS, help="make these calls only")
    parser.add_argument("--wait", type=Path, help="a file: use the GPU when it exists")
    chosen = parser.parse_args()
    # A crash of a library shows where it was.
    faulthandler.enable()
    end = time.time() + chosen.build_seconds
    expected: dict[int, list[Arrays]] = {}
    faults = 0
    with process_pool(chosen.jobs) as pool:
        tasks = [(seed, end) for seed in range(chosen.first, chosen.first + chosen.count)]
        for seed, results, why in pool.map(built, tasks):
            if results is not None:
                expected[seed] = results
            elif why != "no time":
                faults += 1
                print(f"seed {seed}: {why}", flush=True)
    print(f"emulated {len(expected)} of {chosen.count} pipelines, {faults} faults", flush=True)
    if chosen.build:
        return bool(faults)
    cases = [case_of(seed, results) for seed, results in expected.items()]
    for name in ("torch", "cupy"):
        importlib.import_module(name)
    print(f"ready: {len(cases)}", flush=True)
    while chosen.wait and not chosen.wait.exists():
        time.sleep(0.1)
    return bool(faults + run(cases, time.monotonic() + chosen.seconds, chosen.only))


if __name__ == "__main__":
    sys.exit(main())
