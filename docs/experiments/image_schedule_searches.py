"""Plans of all searches and the CPU seconds that they take, of programs and of random graphs.

    python docs/experiments/image_schedule_searches.py FILE [--programs …] [--suite] [--random N] [--sizes …] [--jobs N]
    python docs/experiments/image_schedule_searches.py FILE --compare OTHER
    python docs/experiments/image_schedule_searches.py FILE --exhaustive [--large N] …

The first form writes a line of JSON for each graph: the JSON of its plans by name of the search, the time of each by
the model, and the CPU seconds of `candidates`, which makes all of them. Without ``--programs`` the programs are those
of `image_schedule_programs.py`; ``--suite`` adds all pipelines of the suite ``image``; ``--random`` adds graphs of
`tests/property/test_image_schedules.py`, and ``--large`` those with 6 to 12 operators. The second form compares two
such files, of two revisions: it prints the seconds of both, and the plans that differ, and then ends with exit code 1.
The third form compares the partitions of the searches `fused` and `dynamic` with the best ones, for graphs of at most
12 operators; the exit code is 1 if a search is more than 1 % from the best.

With PYTHONPATH, the script can search with the code of another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from image_schedule_programs import PROGRAMS
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.fusion.partition import MOST_EXHAUSTIVE, exhaustive
from ptxmotion.dsl.image.fusion.planning import GroupProblem, searched
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.schedule.auto import candidates, microseconds
from ptxmotion.dsl.image.schedule.costs import time_model
from ptxmotion.dsl.image.schedule.dynamic import Chooser, dynamic_plan
from ptxmotion.dsl.image.schedule.dynamic import _problem as problem_of  # pyright: ignore[reportPrivateUsage]
from ptxmotion.python_child import process_pool
from ptxmotion.suites.registry import benchmarks, find

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "property"))
from test_image_schedules import random_graph


def graph_of(name: str, size: int) -> Graph:
    """The graph of a program, of a pipeline of the suite (``image/NAME``), or of a seed: ``random/SEED``, or with 6 to
    12 operators ``large/SEED``."""
    if name.startswith("random/"):
        return random_graph(random.Random(int(name.removeprefix("random/"))), sizes=[(size, size)])
    if name.startswith("large/"):
        return random_graph(random.Random(int(name.removeprefix("large/"))), 6, MOST_EXHAUSTIVE, [(size, size)])
    if name.startswith("image/"):
        pipeline: Any = find(name).pipeline
        return pipeline.graph(*[size] * 2)
    return PROGRAMS[name].graph(size)


def planned(task: tuple[str, int]) -> dict[str, Any]:
    """The plans of a graph, and the CPU seconds of the searches."""
    name, size = task
    graph, start = graph_of(name, size), time.process_time()
    found = candidates(graph, Options())
    seconds = time.process_time() - start
    plans = {each.name: each.plan.to_json() for each in found}
    times = {each.name: each.microseconds for each in found}
    return {"program": name, "size": size, "seconds": seconds, "plans": plans, "times": times}


def exhausted(task: tuple[str, int, float]) -> dict[str, Any] | None:
    """By search: the microseconds of the partition that it finds, and of the best one, by the model. None for graphs of
    too many operators, and when the time is over."""
    # Revisions whose plans are compared may not have it.
    from ptxmotion.dsl.image.schedule.known import KnownMembers

    name, size, end = task
    graph = graph_of(name, size)
    if len(graph.nodes) > MOST_EXHAUSTIVE or time.time() > end:
        return None
    options, members = Options(), KnownMembers(graph, Options())
    fused = GroupProblem(graph, options, known=members)
    row: dict[str, Any] = {"program": name, "size": size, "operators": len(graph.nodes)}
    plans = [fused.plan(find(fused.problem)) for find in (searched, exhaustive)]
    row["fused"] = [microseconds(plan, options, time_model(), members) for plan in plans]
    chooser = Chooser(graph, options, time_model(), members=members)
    best = chooser.plan(exhaustive(problem_of(chooser)))
    found = dynamic_plan(Chooser(graph, options, time_model(), members=members), regroup=True)
    row["dynamic"] = [found[1], best[1]]
    return row


def print_exhausted(chosen: argparse.Namespace, names: list[str], end: float) -> int:
    """Print how far the searches are from the best partition. Whether one is more than 1 % from it."""
    worst, count, kernels = {"fused": 1.0, "dynamic": 1.0}, 0, 0
    with process_pool(chosen.jobs) as pool, chosen.file.open("a") as file:
        tasks = [pool.submit(exhausted, (name, size, end)) for name in names for size in chosen.sizes]
        for row in (task.result() for task in as_completed(tasks)):
            if row is None:
                continue
            file.write(json.dumps(row) + "\n")
            file.flush()
            count, kernels = count + 1, max(kernels, row["operators"])
            ratios = {word: row[word][0] / row[word][1] for word in worst}
            worst = {word: max(worst[word], ratio) for word, ratio in ratios.items()}
            if max(ratios.values()) > 1.0001:
                print(
                    row["program"],
                    row["operators"],
                    {word: round(each, 4) for word, each in ratios.items()},
                    flush=True,
                )
    print(f"{count} graphs of at most {kernels} operators; worst over the best partition: {worst}")
    return max(worst.values()) > 1.01


def compared(path: Path, other: Path) -> int:
    """Print the seconds of two files and the plans that differ."""
    first, second = map(_rows, (path, other))
    different = 0
    for key in sorted(first.keys() & second.keys()):
        one, two = first[key], second[key]
        words = [word for word in one["plans"] if one["plans"][word] != two["plans"].get(word)]
        words += [f"the time of {word}" for word in one["times"] if one["times"][word] != two["times"].get(word)]
        different += bool(words)
        if words or not key[0].startswith("random/"):
            print(f"{key[0]} {key[1]}: {one['seconds']:.1f} s, {two['seconds']:.1f} s", *words, sep="; ")
    sums = [sum(each[key]["seconds"] for key in first.keys() & second.keys()) for each in (first, second)]
    many, alone = len(first.keys() & second.keys()), len(first.keys() ^ second.keys())
    print(f"{many} graphs, {sums[0]:.0f} s and {sums[1]:.0f} s; {different} differ; {alone} in one file only")
    return bool(different or alone)


def _rows(path: Path) -> dict[tuple[str, int], Any]:
    rows = map(json.loads, path.read_text().splitlines())
    return {(row["program"], row["size"]): row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", type=Path, metavar="OTHER")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--large", type=int, default=0, metavar="N")
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600, help="no exhaustive search starts later")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args()
    if chosen.compare:
        return compared(chosen.file, chosen.compare)
    names = sorted(chosen.programs, key=lambda name: -len(PROGRAMS[name].graph(16).nodes))
    if chosen.suite:
        known = {f"image/{case.benchmark}" for case in PROGRAMS.values()}
        names += [each.fullname for each in benchmarks("image") if each.pipeline and each.fullname not in known]
    names += [f"random/{seed}" for seed in range(chosen.random)] + [f"large/{seed}" for seed in range(chosen.large)]
    if chosen.exhaustive:
        return print_exhausted(chosen, names, time.time() + chosen.seconds)
    with process_pool(chosen.jobs) as pool, chosen.file.open("a") as file:
        for row in pool.map(planned, [(name, size) for name in names for size in chosen.sizes]):
            file.write(json.dumps(row) + "\n")
            file.flush()
            if not row["program"].startswith("random/"):
                print(f"{row['program']} {row['size']}: {row['seconds']:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
