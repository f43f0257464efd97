"""Random schedules of random pipelines, most of them with tiles of lanes: their bits beside those of naive kernels.

    python docs/experiments/image_random_schedules.py build FOLDER [--first N] [--count N] [--plans N] [--jobs N] \\
        [--emulate] [--rows] [--seconds S]
    python docs/experiments/image_random_schedules.py run FOLDER [--seconds S]                     needs a GPU

The pipelines and plans are those of `tests/property/random_lanes.py`, for odd and even widths up to 321 pixels, or with
``--rows`` those of `tests/property/test_image_rows.py`, whose rows read images of other sizes. `build`
compiles the kernels of pipelines ``first``, ``first`` + 1, …; with ``--emulate`` it also runs them on the emulator,
which looks for races, and keeps the results of naive kernels. `run` runs what was built. There, each image is between
bytes that must not change, half of the images begin at an address that is no multiple of a word, and results must have
the bits of naive kernels on the GPU, and these those of the emulator, if they were kept. The exit code is 1 if a result
differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from image_isp import bytes_of, launch_as_json
from ptxmotion.dsl.image import Compiled, Options
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Plan
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.cubin_cache import assemble_kept

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "property"))
import test_image_rows
from random_lanes import random_array, random_graph, random_plan

ARCH = "sm_90"
#: Bytes in front of and behind each image that must not change, and their value.
GUARD, GUARDED = 512, 0x5C


# --- build --------------------------------------------------------------------------------------------------------


def drawn(seed: int, count: int, rows: bool) -> tuple[Graph, Options, list[Plan]]:
    """A random pipeline with at most ``count`` different plans. ``rows``: of `test_image_rows`."""
    nvcc = compiler((), ARCH)
    if rows:
        graph, first = test_image_rows.case(seed)
        rng = random.Random(seed)
        tried = [first, *(test_image_rows.plan_of(rng, graph) for _ in range(count - 1))]
        found = {plan.to_json(): plan for plan in tried if plan is not None}
        return graph, Options(nvcc=nvcc), list(found.values())
    rng = random.Random(seed)
    graph = random_graph(rng)
    options = Options(nvcc=nvcc, contract=rng.random() < 0.2)
    found = {(plan := random_plan(rng, graph, options)).to_json(): plan for _ in range(count)}
    return graph, options, list(found.values())


def built(task: tuple[Path, int, int, bool, bool, float]) -> tuple[int, Counter[str], str]:
    """Compile a pipeline, and emulate it: the number of its plans, the kinds of their groups, and what is wrong."""
    folder, seed, count, emulate, rows, end = task
    if time.time() > end:
        return 0, Counter(), ""
    nvcc = compiler((), ARCH)
    graph, options, plans = drawn(seed, count, rows)
    arms = [lower(graph, "naive", options), *(lower_plan(plan, options, "plan") for plan in plans)]
    document: dict[str, Any] = {"graph": str(graph), "inputs": [bytes_of(image) for image in graph.inputs]}
    document["outputs"] = [bytes_of(image) for image in graph.outputs]
    document["arms"] = [_written(folder, arm) for arm in arms]
    document["plans"] = ["naive", *(str(plan) for plan in plans)]
    arrays = [random_array(image, seed) for image in graph.inputs]
    wrong = ""
    if emulate:
        expected: list[bytes] = []
        for arm, word in zip(arms, document["plans"], strict=True):
            backend = EmulatorBackend()
            made: Any = Compiled(arm, nvcc)(*arrays, backend=backend)
            outputs: list[Any] = [made] if isinstance(made, np.ndarray) else list(made)
            found: list[bytes] = [np.ascontiguousarray(each).tobytes() for each in outputs]
            expected = expected or found
            if found != expected or backend.findings:
                wrong += f"seed {seed}, emulator: {backend.findings[:1]}\n{graph}\n{word}\n"
        document["emulated"] = [hashlib.sha256(each).hexdigest() for each in expected]
    np.savez(folder / f"{seed}.npz", *arrays)
    (folder / f"{seed}.json").write_text(json.dumps(document))
    return len(plans), Counter(group.kind for plan in plans for group in plan.groups), wrong


def _written(folder: Path, arm: Lowered) -> dict[str, Any]:
    """The launches of an arm, and the bytes of each image: inputs, outputs and others."""
    images: dict[Any, int] = {}
    for image in (*arm.graph.inputs, *arm.graph.outputs, *arm.buffers):
        images[image] = len(images)
    launches: list[Any] = []
    for launch in arm.launches:
        ptx = launch.kernel.ptx(compiler((), ARCH))
        launches.append({**launch_as_json(launch, ptx, images, {}), "block": list(launch.block)})
        (folder / f"{launches[-1]['file']}.cubin").write_bytes(assemble_kept(ptx, ARCH).cubin)
    alignments = [int(np.gcd(16, _element(image))) for image in images]
    return {"launches": launches, "images": [bytes_of(image) for image in images], "alignments": alignments}


def _element(image: Any) -> int:
    """The bytes of which an address of a pixel must be a multiple: those of a struct may be read as one word."""
    return bytes_of(image) // (int(image.width) * int(image.height))


def build(chosen: argparse.Namespace) -> int:
    chosen.folder.mkdir(parents=True, exist_ok=True)
    start, kinds, plans, pipelines, problems = time.time(), Counter[str](), 0, 0, list[str]()
    tasks = [
        (chosen.folder, seed, chosen.plans, chosen.emulate, chosen.rows, start + chosen.seconds)
        for seed in range(chosen.first, chosen.first + chosen.count)
    ]
    with process_pool(chosen.jobs) as pool:
        for count, found, wrong in pool.map(built, tasks):
            plans, pipelines, kinds = plans + count, pipelines + bool(count), kinds + found
            if wrong:
                problems.append(wrong)
                print(wrong, flush=True)
            if count and pipelines % 25 == 0:
                print(_line(plans, pipelines, kinds, problems, start), flush=True)
    print(_line(plans, pipelines, kinds, problems, start))
    return bool(problems)


def _line(plans: int, pipelines: int, kinds: Counter[str], problems: Sequence[str], start: float) -> str:
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    many = f"{plans} plans of {pipelines} pipelines ({words} groups)"
    return f"{many}, {len(problems)} wrong, {time.time() - start:.0f} s"


# --- run ----------------------------------------------------------------------------------------------------------


class Images:
    """The images of an arm on the GPU, each between guards."""

    def __init__(self, backend: Any, arm: Any, seed: int) -> None:
        rng = random.Random(seed)
        self.backend, self.sizes = backend, arm["images"]
        #: By image: the bytes in front of it.
        self.starts = [GUARD + rng.choice([0, each]) for each in arm["alignments"]]
        self.memory = [backend.allocate(size + 2 * GUARD) for size in self.sizes]
        for memory in self.memory:
            backend.fill(memory, GUARDED)
        self.views = [
            backend.view(memory, start, size)
            for memory, start, size in zip(self.memory, self.starts, self.sizes, strict=True)
        ]

    def read(self, at: int) -> bytes:
        return self.backend.read(self.views[at], np.dtype(np.uint8), self.sizes[at]).tobytes()

    def changed(self) -> list[int]:
        """The images with guards that were written, or that are written though they are inputs."""
        found: list[int] = []
        for at, (memory, start, size) in enumerate(zip(self.memory, self.starts, self.sizes, strict=True)):
            raw = self.backend.read(memory, np.dtype(np.uint8), size + 2 * GUARD)
            if (raw[:start] != GUARDED).any() or (raw[start + size :] != GUARDED).any():
                found.append(at)
        return found

    def free(self) -> None:
        for memory in self.memory:
            self.backend.free(memory)


def results(backend: Any, folder: Path, arm: Any, arrays: Sequence[Any], outputs: int, seed: int) -> tuple[Any, str]:
    """The bytes of the outputs of an arm, and what else is wrong."""
    images = Images(backend, arm, seed)
    for view, array in zip(images.views, arrays, strict=False):
        backend.write(view, array)
    modules: list[Any] = []
    for launch in arm["launches"]:
        modules.append(backend.load_cubin((folder / f"{launch['file']}.cubin").read_bytes()))
        kernel = modules[-1].kernel(launch["entry"])
        values = [
            images.views[value] if kind == "image" else np.dtype(kind).type(value)
            for kind, value in launch["arguments"]
        ]
        (x, y), (threads_x, threads_y) = launch["grid"], launch["block"]
        backend.launch_call(kernel, (x, y, 1), (threads_x, threads_y, 1), 0, backend.pack(kernel, values))()
    backend.synchronize()
    found = [images.read(at) for at in range(len(arrays), len(arrays) + outputs)]
    wrong = [f"writes beside image {at}" for at in images.changed()]
    wrong += [f"writes input {at}" for at, each in enumerate(arrays) if images.read(at) != each.tobytes()]
    images.free()
    return found, "; ".join(wrong)


def run(chosen: argparse.Namespace) -> int:
    from ptxmotion.harness.cuda import CudaBackend

    backend, start, plans, pipelines, compared = CudaBackend(), time.monotonic(), 0, 0, 0
    print(backend.describe()["gpu"], flush=True)
    problems: list[str] = []
    for path in sorted(chosen.folder.glob("*.json"), key=lambda each: int(each.stem)):
        if time.monotonic() - start > chosen.seconds:
            break
        document, seed = json.loads(path.read_text()), int(path.stem)
        with np.load(path.with_suffix(".npz")) as kept:
            arrays = [kept[f"arr_{at}"] for at in range(len(document["inputs"]))]
        expected: list[bytes] = []
        for number, (arm, word) in enumerate(zip(document["arms"], document["plans"], strict=True)):
            outputs = len(document["outputs"])
            found, wrong = results(backend, chosen.folder, arm, arrays, outputs, seed + number)
            expected = expected or found
            emulated = document.get("emulated") if word == "naive" else None
            if emulated is not None:
                compared += 1
                if [hashlib.sha256(each).hexdigest() for each in found] != emulated:
                    wrong += "; other pixels than on the emulator"
            wrong += "; other pixels than naive kernels" if found != expected else ""
            if wrong:
                problems.append(f"seed {seed}: {wrong}\n{document['graph']}\n{word}")
                print(problems[-1], flush=True)
        plans, pipelines = plans + len(document["plans"]) - 1, pipelines + 1
    words = f"{plans} plans of {pipelines} pipelines, {compared} pipelines compared with the emulator"
    print(f"{words}, {len(problems)} wrong, {time.monotonic() - start:.1f} s")
    return bool(problems)


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for word in ("build", "run"):
        each = actions.add_parser(word)
        each.add_argument("folder", type=Path)
        each.add_argument("--seconds", type=float, default=3600, help="no pipeline starts later")
        if word == "build":
            each.add_argument("--first", type=int, default=0, help="the seed of the first pipeline")
            each.add_argument("--count", type=int, default=100, help="pipelines")
            each.add_argument("--plans", type=int, default=3, help="plans of a pipeline")
            each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
            each.add_argument("--emulate", action="store_true", help="run them on the emulator, too")
            each.add_argument("--rows", action="store_true", help="pipelines whose rows read images of other sizes")
    chosen = parser.parse_args()
    return build(chosen) if chosen.action == "build" else run(chosen)


if __name__ == "__main__":
    sys.exit(main())
