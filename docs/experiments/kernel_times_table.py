"""A table of the times that `kernel_times.py` has measured.

    python docs/experiments/kernel_times_table.py OUT RESULTS > FILE.csv

OUT and RESULTS are the folders of `kernel_times.py`. The table has one row for each kernel, each of its `MOST_SIZES`
launch sizes that take the most time, and each machine code that differs from nvcc's, with the arms that have it: the
figures of both codes, the size of the launch, and the ratio of times, before to after. Within a round all executions
with equal machine code of the kernel count together; `ratio` is the median over rounds, `low` and `high` are the least
and the greatest one. A row whose arm is `nvcc` compares two executions of equal code in each round.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_times import FIRST, PLAIN, STOPPED
from ptxmotion.cost import loop_weight

#: How many launch sizes of a kernel the table has.
MOST_SIZES = 8
#: The figures of the machine code that the table has of both versions.
FIGURES = ("registers", "spills", "warps", "weight", "cycles", "looped", "quickest", "fetched")
#: Further columns for both: instructions, weighted by loop depth, by class.
CLASSES = {
    "global": ("load_global", "store_global", "load_generic", "store_generic", "atomic", "async_copy"),
    "loads": ("load_global", "load_generic"),
    "local": ("load_local", "store_local"),
    "shared": ("load_shared", "store_shared", "shuffle"),
    "special": ("special", "conversion", "fp64", "mma"),
}


def rows(out: Path, results: Path) -> Iterator[dict[str, Any]]:
    """The rows of the table, in the order of programs and kernels."""
    executions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(results.glob("*.jsonl*")):
        text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for line in text.splitlines():
            row = json.loads(line)
            executions[row["program"]].append(row)
    for program in sorted(executions):
        figures = {
            arm: {name: each for module in modules for name, each in module.items()}
            for arm, modules in json.loads((out / program / "figures.json").read_text()).items()
        }
        yield from rows_of(program, executions[program], figures)


def rows_of(
    program: str, executions: list[dict[str, Any]], figures: Mapping[str, Mapping[str, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """The rows of one program."""
    plain = figures[PLAIN]
    comparable = comparable_arms(executions)
    is_stopped = any(row["exit"] == STOPPED for row in executions)
    # The launches of each kernel that every execution of a program that is ended early has seen.
    fewest: dict[tuple[str, str, str], int] = {}
    for row in executions:
        for kernel in row["kernels"]:
            key = (kernel[0], kernel[1], kernel[2])
            fewest[key] = min(kernel[7], fewest.get(key, FIRST))
    # times[kernel, launch][code][round]: of each execution
    times: dict[tuple[str, ...], dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    counts: dict[tuple[str, ...], int] = {}
    for row in executions:
        if row["arm"] not in comparable:
            continue
        for name, grid, block, _, static, dynamic, _, number, mean, median, *first in row["kernels"]:
            if name in plain:
                launch = (name, grid, block, str(int(static) + int(dynamic)))
                code = figures[row["arm"]][name]["code"]
                each = median if number >= 5 else mean
                if is_stopped:
                    number = fewest[name, grid, block]
                    each = statistics.median(first[0][:number])
                times[launch][code].setdefault(row["round"], []).append(each)
                if row["arm"] == PLAIN:
                    counts[launch] = number
    for launch in longest(times, plain, counts):
        by_code = times[launch]
        name = launch[0]
        before = by_code.get(plain[name]["code"], {})
        for code, after in by_code.items():
            arms = [arm for arm, of in figures.items() if of[name]["code"] == code]
            ratios = compared(before, after)
            if len(ratios) >= 3 and launch in counts:
                sizes = {"kernel": name, "grid": launch[1], "block": launch[2], "shared": launch[3]}
                measured = {
                    "launches": counts[launch],
                    "nanoseconds": round(statistics.median(statistics.fmean(each) for each in before.values())),
                    "rounds": len(ratios),
                    "ratio": f"{statistics.median(ratios):.4f}",
                    "low": f"{min(ratios):.4f}",
                    "high": f"{max(ratios):.4f}",
                }
                both = {
                    f"{figure}_{when}": value
                    for when, of in (("before", plain[name]), ("after", figures[arms[0]][name]))
                    for figure, value in columns(of).items()
                }
                yield {"program": program, "arms": " ".join(arms), **sizes, **measured, **both}


def longest(
    times: Mapping[tuple[str, ...], Mapping[str, Mapping[int, list[float]]]],
    plain: Mapping[str, Mapping[str, Any]],
    counts: Mapping[tuple[str, ...], int],
) -> list[tuple[str, ...]]:
    """Of each kernel, the launch sizes that take the most time in the unchanged program."""

    def total(launch: tuple[str, ...]) -> float:
        rounds = times[launch].get(plain[launch[0]]["code"], {})
        return counts[launch] * statistics.fmean(each for of in rounds.values() for each in of)

    chosen: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for launch in sorted(counts, key=total, reverse=True):
        if len(chosen[launch[0]]) < MOST_SIZES:
            chosen[launch[0]].append(launch)
    return [launch for of in chosen.values() for launch in of]


def comparable_arms(executions: list[dict[str, Any]]) -> set[str]:
    """The arms that behave as the unchanged program in each execution that is not ended early: the same exit code, and
    the same launches."""

    def behaviour(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["exit"], sorted((tuple(each[:3]), each[7]) for each in row["kernels"])

    arms = {row["arm"] for row in executions}
    ended = [row for row in executions if row["exit"] != STOPPED]
    expected = next((behaviour(row) for row in ended if row["arm"] == PLAIN), None)
    return arms if expected is None else arms - {row["arm"] for row in ended if behaviour(row) != expected}


def compared(before: Mapping[int, list[float]], after: Mapping[int, list[float]]) -> list[float]:
    """The ratio of each round. Equal code is compared with itself, the first execution of a round with the others."""
    if before is after:
        halves = [each for each in before.values() if len(each) > 1]
        return [each[0] / statistics.fmean(each[1:]) for each in halves if all(each)]
    common = [number for number in before if number in after]
    pairs = [(statistics.fmean(before[number]), statistics.fmean(after[number])) for number in common]
    return [one / other for one, other in pairs if one and other]


def columns(figures: Mapping[str, Any]) -> dict[str, Any]:
    weighted = {
        name: sum(
            kinds.get(kind, 0) * loop_weight(depth)
            for depth, kinds in enumerate(figures["by_depth"])
            for kind in classes
        )
        for name, classes in CLASSES.items()
    }
    in_loops = sum(sum(kinds.values()) * loop_weight(depth) for depth, kinds in enumerate(figures["by_depth"]) if depth)
    return {**{name: round(figures[name], 3) for name in FIGURES}, "weight_in_loops": in_loops, **weighted}


def print_table(out: Path, results: Path) -> None:
    found = list(rows(out, results))
    writer = csv.DictWriter(sys.stdout, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    print_table(arguments.out, arguments.results)


if __name__ == "__main__":
    main()
