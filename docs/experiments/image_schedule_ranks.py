"""Random schedules of image programs: their times, and how well the models rank them.

    python docs/experiments/image_schedule_ranks.py build FOLDER [--count N] [--size N] [--programs …] [--jobs N]
    python docs/experiments/image_schedule_ranks.py run FOLDER [--json FILE]                        needs a GPU

Operators are merged at random; each group has random tiles, blocks, pixels of a thread and registers out of those of
the searches, with as many schedules of each kind of tiles. `build` compiles the kernels, and writes the schedules of a
program when all of them are compiled. `run` times the programs that were built. All results must be the bits of naive
kernels. It writes lines that `image_schedule_model.py` reads, and prints Spearman's rank correlation of each model,
with the weights of this machine, with the times: of all schedules, and of those whose every group with tiles has tiles
of lanes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from image_schedule_peers import Bench, compiled
from image_schedule_programs import PROGRAMS
from ptxmotion.dsl.errors import DslError
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.groups import Group, Plan, groups_of, plan_from_json
from ptxmotion.dsl.image.operators import Node
from ptxmotion.dsl.image.schedule.costs import paper_model, time_model
from ptxmotion.dsl.image.schedule.shapes import shapes
from ptxmotion.dsl.image.schedule.work import Members, work_of
from ptxmotion.python_child import process_pool

SIX = ("unsharp", "harris", "chain", "max_filter", "interpolate", "camera")
#: Random partitions of a program, schedules of a group that are compiled, and the instructions of the largest one:
#: nvcc takes a second for about 3000.
PARTITIONS, OF_GROUP, MOST_CODE = 10, 6, 4000
#: Schedules that are timed together.
TOGETHER = 20


def partitions(graph: Graph, rng: random.Random) -> Iterator[list[tuple[Node[Any], ...]]]:
    """Random partitions into groups that kernels can compute."""
    yield groups_of(graph, [[node] for node in graph.nodes])
    for _ in range(PARTITIONS):
        parts: list[list[Node[Any]]] = [[node] for node in graph.nodes]
        wanted = rng.randint(1, len(parts))
        for _ in range(12 * len(parts)):
            if len(parts) <= wanted:
                break
            node = rng.choice(graph.nodes)
            sources = [access.image for access in node.accesses if isinstance(access.image, Node)]
            if not sources:
                continue
            source = rng.choice(sources)
            first, second = (next(part for part in parts if each in part) for each in (source, node))
            if first is second:
                continue
            merged = [[*first, *second], *(part for part in parts if part not in (first, second))]
            try:
                found = groups_of(graph, merged)
            except DslError:
                continue
            if all(not Members(graph, nodes, Options()).problem for nodes in found if len(nodes) > 1):
                parts = merged
        yield groups_of(graph, parts)


def plans(name: str, size: int, count: int) -> list[str]:
    """Different random plans as JSON."""
    graph, rng, options = PROGRAMS[name].graph(size), random.Random(name), Options()
    known: dict[tuple[Node[Any], ...], list[Group]] = {}

    def groups(nodes: tuple[Node[Any], ...]) -> list[Group]:
        """Some schedules of a group: as many of each kind of tiles."""
        if nodes not in known:
            members = Members(graph, nodes, options)
            every = [each for each in shapes(members) if work_of(members, each).code <= MOST_CODE]
            kinds = sorted({each.kind for each in every})
            known[nodes] = [
                group
                for kind in kinds
                for of_kind in [[each for each in every if each.kind == kind]]
                for group in rng.sample(of_kind, min(len(of_kind), OF_GROUP // len(kinds)))
            ]
        return known[nodes]

    found: dict[str, None] = {}
    bases = [base for base in partitions(graph, rng) if all(map(groups, base))]
    for _ in range(20 * count):
        if len(found) == count:
            break
        base = rng.choice(bases)
        found[Plan(graph, tuple(rng.choice(groups(nodes)) for nodes in base)).to_json()] = None
    return list(found)


def correlation(first: list[float], second: list[float]) -> float:
    """Spearman's rank correlation; equal numbers have the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: list[float]) -> list[float]:
    found = np.array(values)
    return [float((found < each).sum() + ((found == each).sum() - 1) / 2) for each in found]


def estimates(name: str, size: int, plan: str) -> dict[str, float]:
    """By model: the microseconds of a plan."""
    graph, options = PROGRAMS[name].graph(size), Options()
    made = plan_from_json(graph, plan, options)
    works = [work_of(Members(made.graph, group.nodes, options), group) for group in made.groups]
    return {model.name: sum(map(model, works)) for model in (time_model(), paper_model())}


def _compiled(task: tuple[Path, str, int, str | None]) -> tuple[Any, str]:
    """The launches and images of a plan; or why it cannot be compiled."""
    try:
        launches, images = compiled(*task)
    except Exception as why:
        return None, f"{type(why).__name__}: {str(why)[:200]}"
    return {"launches": launches, "images": images}, ""


def build(chosen: argparse.Namespace) -> None:
    """Compile, and write a file for each program."""
    chosen.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with process_pool(chosen.jobs) as pool:
        drawn = {name: pool.submit(plans, name, chosen.size, chosen.count) for name in chosen.programs}
        made = {
            name: [
                (plan, pool.submit(_compiled, (chosen.folder, name, chosen.size, plan)))
                for plan in (None, *drawn[name].result())
            ]
            for name in chosen.programs
        }
        for name, tasks in made.items():
            arms = [(plan, *future.result()) for plan, future in tasks]
            for problem in [problem for _, arm, problem in arms if arm is None]:
                print(f"    {name}: {problem}", flush=True)
            document = {"size": chosen.size, "arms": [(plan, arm) for plan, arm, _ in arms if arm is not None]}
            path = chosen.folder / f"{name}.ranks"
            path.with_suffix(".new").write_text(json.dumps(document))
            path.with_suffix(".new").rename(path)
            print(f"{name}: {len(arms)} schedules after {time.monotonic() - start:.0f} s", flush=True)


def run(folder: Path, out: Path | None) -> None:
    """Time what was built, and print a line for each program."""
    from ptxmotion.harness.cuda import CudaBackend

    backend = CudaBackend()
    print(backend.describe()["gpu"], flush=True)
    for path in sorted(folder.glob("*.ranks")):
        document = json.loads(path.read_text())
        _time(Bench(backend, folder, path.stem, document["size"]), document["arms"], out)
        backend.trim()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for word in ("build", "run"):
        each = actions.add_parser(word)
        each.add_argument("folder", type=Path)
        if word == "build":
            each.add_argument("--programs", nargs="*", default=list(SIX), choices=list(PROGRAMS))
            each.add_argument("--count", type=int, default=64, help="schedules of a program")
            each.add_argument("--size", type=int, default=2048, help="width and height")
            each.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
        else:
            each.add_argument("--json", type=Path, help="append a line for each schedule to this file")
    chosen = parser.parse_args()
    if chosen.action == "build":
        build(chosen)
    else:
        run(chosen.folder, chosen.json)


def _of_lanes(plan: str) -> bool:
    """Whether there are tiles, and all of them are of lanes."""
    kinds = {group["tiles"] for group in json.loads(plan)["groups"] if group["tiled"] or group["tiles"] != "block"}
    return kinds == {"lanes"}


def _time(bench: Bench, arms: list[tuple[str | None, Any]], out: Path | None) -> None:
    expected = bench.result(bench.ours(arms[0][1]))
    rows: list[tuple[str, float]] = []
    for at in range(1, len(arms), TOGETHER):
        graphs: dict[str, Any] = {}
        for plan, arm in arms[at : at + TOGETHER]:
            assert plan is not None
            run = bench.ours(arm)
            found = bench.result(run)
            if any(one.tobytes() != other.tobytes() for one, other in zip(found, expected, strict=True)):
                sys.exit(f"{bench.name}: a schedule does not give the bits of naive kernels:\n{plan}")
            graphs[plan] = bench.graph(run)
        rows += bench.times({word: partial(bench.seconds, graph) for word, graph in graphs.items()}, 5).items()
        for graph in graphs.values():
            bench.backend.destroy_graph(graph)
    if out is not None:
        with out.open("a") as file:
            for plan, micros in rows:
                record = {"program": bench.name, "size": bench.size, "schedule": "random", "us": micros}
                file.write(json.dumps({**record, "plan": json.loads(plan)}) + "\n")
    print(f"{bench.name}: {_correlations(bench, rows)}", flush=True)
    print(f"    tiles of lanes only: {_correlations(bench, [row for row in rows if _of_lanes(row[0])])}", flush=True)
    bench.close()


def _correlations(bench: Bench, rows: list[tuple[str, float]]) -> str:
    """How well the models rank schedules."""
    if len(rows) < 3:
        return f"{len(rows)} schedules"
    made = [estimates(bench.name, bench.size, plan) for plan, _ in rows]
    times = [micros for _, micros in rows]
    words = ", ".join(f"{word} {correlation([each[word] for each in made], times):.3f}" for word in ("time", "paper"))
    best = min(rows, key=lambda row: made[rows.index(row)]["time"])[1] / min(times)
    return (
        f"{len(rows)} schedules, {min(times):.1f} to {max(times):.1f} us; correlation: {words}; chosen/best {best:.2f}"
    )


if __name__ == "__main__":
    main()
