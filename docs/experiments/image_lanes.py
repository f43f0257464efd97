"""Schedules with and without tiles of lanes, and tiles of lanes in many shapes.

    python docs/experiments/image_lanes.py build FOLDER [--jobs N] [--programs NAME ...] [--sizes N ...] [--shapes]
    python docs/experiments/image_lanes.py run FOLDER [--json FILE]                              needs a GPU

`build` finds the schedules that the model of time prefers, once with tiles of lanes and once without them, and compiles
their kernels. With ``--shapes``, each program is also one group with tiles of lanes, with several numbers of columns
and rows. `run` prints the microseconds of each schedule and of naive kernels: medians of CUDA graphs with ten runs,
divided by ten. Every schedule must give the bits of naive kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from image_schedule_programs import PROGRAMS
from ptxmotion.dsl.image import Options, lower
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, plan_from_json
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.image.schedule import dynamic
from ptxmotion.dsl.image.schedule import shapes as tried
from ptxmotion.dsl.image.schedule.auto import candidates
from ptxmotion.dsl.image.schedule.timing import Timer
from ptxmotion.dsl.image.schedule.work import Members
from ptxmotion.python_child import process_pool
from ptxmotion.suites.registry import find
from ptxmotion.toolchain.cubin_cache import assemble_kept

ARCH = "sm_90"
SUITE = (
    *("sobel", "shi_tomasi", "enhance", "night", "prewitt", "gaussian3x3", "gaussian5x5", "box5x5", "laplace5x5"),
    *("median3x3", "gradients", "laplacian", "mosaic", "spline"),
)
#: Columns of a lane, and rows of a warp.
SHAPES = [(columns, tall) for columns in (1, 2, 4) for tall in (2, 4, 8, 16)]


def program(name: str) -> tuple[Any, dict[str, Any]]:
    """The pipeline of a program, and the numbers that it takes."""
    if name in PROGRAMS:
        return PROGRAMS[name].pipeline, dict(PROGRAMS[name].numbers)
    found = find(f"image/{name}")
    data = found.make_data("tiny", 0)
    return found.pipeline, {key: value for key, value in data.items() if isinstance(value, int | float)}


def without_lanes(graph: Graph, options: Options) -> tuple[str, Plan]:
    """The schedule that the model prefers of those without tiles of lanes."""
    few, every = dynamic.FEW, dynamic.SHAPES
    dynamic.FEW = tuple(shape for shape in few if shape.kind != "lanes")
    dynamic.SHAPES = tuple(shape for shape in every if shape.kind != "lanes")
    tried.shapes.__defaults__ = (dynamic.SHAPES,)
    try:
        best = candidates(graph, options)[0]
    finally:
        dynamic.FEW, dynamic.SHAPES = few, every
        tried.shapes.__defaults__ = (every,)
    return f"without lanes: {best.name}", best.plan


def in_shapes(graph: Graph, options: Options) -> Iterator[tuple[str, Plan]]:
    """One group of all operators, with tiles of lanes in several shapes."""
    tiled = Members(graph, graph.nodes, options).read_by_windows
    for columns, tall in SHAPES:
        group = Group(graph, graph.nodes, tiled, (32, 4), (columns, tall), "lanes")
        if next(iter(group.problems(options)), None) is None:
            yield f"{columns} columns, {tall} rows", Plan(graph, (group,))


def built(task: tuple[Path, str, int, bool]) -> str:
    """Write the schedules of a program, and the machine code of their kernels; a line about it."""
    folder, name, size, with_shapes = task
    nvcc, start = compiler((), ARCH), time.monotonic()
    graph, options = program(name)[0].graph(size, size), Options(nvcc=nvcc)
    best = candidates(graph, options)[0]
    plans = [without_lanes(graph, options), (f"auto: {best.name}", best.plan)]
    plans += in_shapes(graph, options) if with_shapes else ()
    found = [lower(graph, "naive", options), *(lower_plan(plan, options, "schedule") for _, plan in plans)]
    for cuda, kernel in {each.cuda: each for lowered in found for each in lowered.kernels.values()}.items():
        path = folder / f"{_key(cuda)}.cubin"
        if not path.exists():
            made = path.with_suffix(f".{os.getpid()}")
            made.write_bytes(assemble_kept(kernel.ptx(nvcc), ARCH).cubin)
            made.rename(path)
    (folder / f"{name}-{size}.json").write_text(json.dumps([(word, plan.to_json()) for word, plan in plans]))
    return f"{name} {size}: {len(plans)} schedules in {time.monotonic() - start:.1f} s"


def _key(cuda: str) -> str:
    return hashlib.sha256(cuda.encode()).hexdigest()[:32]


class KeptTimer(Timer):
    """A timer that takes machine code from a folder."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.folder = folder

    def _compile(self, lowered: Sequence[Lowered]) -> None:
        for kernel in (kernel for each in lowered for kernel in each.kernels.values()):
            path = self.folder / f"{_key(kernel.cuda)}.cubin"
            if path.exists():
                self._cubins.setdefault(kernel.cuda, path.read_bytes())
        super()._compile(lowered)


def run(folder: Path, out: Path | None) -> None:
    from ptxmotion.harness.cuda import open_backend

    backend, options = open_backend(), Options(nvcc=compiler((), ARCH))
    for path in sorted(folder.glob("*.json")):
        name, _, size = path.stem.rpartition("-")
        pipeline, numbers = program(name)
        graph = pipeline.graph(int(size), int(size))
        timer = KeptTimer(folder, backend, graph, options, numbers)
        naive = Plan(graph, tuple(Group(graph, (node,), block=options.block) for node in graph.nodes))
        plans = [("separate", naive)]
        plans += [(word, plan_from_json(graph, text, options)) for word, text in json.loads(path.read_text())]
        for word, plan in plans:
            taken = timer.microseconds(plan)
            print(f"{name} {size} {word}: {taken:.2f} us, {len(plan.groups)} kernels", flush=True)
            if out is not None:
                record = {"program": name, "size": int(size), "schedule": word, "us": taken}
                with out.open("a") as file:
                    file.write(json.dumps({**record, "plan": json.loads(plan.to_json())}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Schedules with and without tiles of lanes.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build")
    make.add_argument("folder", type=Path)
    make.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    make.add_argument("--programs", nargs="*", default=[*PROGRAMS, *SUITE])
    make.add_argument("--sizes", type=int, nargs="*", default=[2048, 512])
    make.add_argument("--shapes", action="store_true", help="tiles of lanes in several shapes, too")
    timed = commands.add_parser("run")
    timed.add_argument("folder", type=Path)
    timed.add_argument("--json", type=Path, help="append a line for each schedule to this file")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.folder, arguments.json)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        (arguments.folder, name, size, arguments.shapes) for name in arguments.programs for size in arguments.sizes
    ]
    with process_pool(arguments.jobs) as pool:
        for line in pool.map(built, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
