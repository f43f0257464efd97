"""Tables and a roofline plot of the times that `image_schedule_peers.py` and `image_schedule_torch.py` wrote.

    python docs/experiments/image_schedule_tables.py FILE.jsonl ... [--roofline FILE.svg]

Of several times of an arm the last one counts. Peers whose names end with ``li2018`` or ``anderson2021`` are automatic
schedules of Halide, those with ``random`` in their names are random samples of the latter, and all others are manual
schedules; of these, names that begin with ``app`` are those of its own applications. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from image_isp import bytes_of
from image_schedule_programs import PROGRAMS, TABLE_OF_FUSION
from ptxmotion.arch import H200_CLOCK, H200_MULTIPROCESSORS

#: By program and size: microseconds by the name of an arm.
Times: TypeAlias = "dict[tuple[str, int], dict[str, float]]"

LI, ANDERSON, RANDOM = "li2018", "anderson2021", "random"
OURS = ("fused", "greedy", "paper", "dynamic", "auto", "tuned")
#: The bytes and floating-point operations per second of an H200: a copy, and two operations of each lane and clock.
COPY, PEAK = 4257e9, H200_MULTIPROCESSORS * 128 * 2 * H200_CLOCK


def read(paths: Sequence[Path]) -> Times:
    """The times of several files."""
    found: Times = {}
    for path in paths:
        for line in path.read_text().splitlines():
            record: dict[str, Any] = json.loads(line)
            found.setdefault((record["program"], record["size"]), {}).update(record["times"])
    return found


def of_halide(times: dict[str, float], words: Sequence[str]) -> dict[str, float]:
    """The peers whose names have one of some words; without words, the manual schedules."""
    peers = {word[5:]: micros for word, micros in times.items() if word.startswith("peer:")}
    wanted = words or (LI, ANDERSON, RANDOM)
    return {name: micros for name, micros in peers.items() if any(word in name for word in wanted) == bool(words)}


def of_application(times: dict[str, float]) -> float:
    """The least time of the schedules of Halide's own application."""
    return least(micros for name, micros in of_halide(times, []).items() if name.startswith("app"))


def of_torch(times: dict[str, float]) -> float:
    """The least time of the variants of `torch.compile`."""
    return least(micros for word, micros in times.items() if word.startswith("torch") and word != "torch eager")


def least(times: Iterable[float]) -> float:
    """The least time, NaN if there is none."""
    return min(times, default=math.nan)


def ours(times: dict[str, float]) -> float:
    """The fastest one of our schedules."""
    return least(micros for word, micros in times.items() if word in OURS)


#: By title: a column of the table.
COLUMNS: dict[str, Callable[[dict[str, float]], float]] = {
    "naive": lambda times: times["naive"],
    **{f"`{word}`": lambda times, word=word: times.get(word, math.nan) for word in OURS},
    "contracted": lambda times: times.get("contracted", math.nan),
    "`torch.compile`": lambda times: of_torch(times),
    "CuPy `fuse`": lambda times: times.get("cupy", math.nan),
    "Li2018": lambda times: least(of_halide(times, [LI]).values()),
    "Anderson2021": lambda times: least(of_halide(times, [ANDERSON]).values()),
    "4 random": lambda times: least(of_halide(times, [RANDOM]).values()),
    "application": of_application,
    "manual": lambda times: least(of_halide(times, []).values()),
}

#: By title: a quotient of times of which the geometric mean is printed.
QUOTIENTS: dict[str, Callable[[dict[str, float]], float]] = {
    "naive / best of ours": lambda times: times["naive"] / ours(times),
    "naive / `auto`": lambda times: times["naive"] / times["auto"],
    "Halide's best automatic / best of ours": lambda times: (
        least(of_halide(times, [LI, ANDERSON]).values()) / ours(times)
    ),
    "Halide's best automatic / `auto`": lambda times: least(of_halide(times, [LI, ANDERSON]).values()) / times["auto"],
    "Halide's best automatic or random / `auto`": lambda times: (
        least(of_halide(times, [LI, ANDERSON, RANDOM]).values()) / times["auto"]
    ),
    "Halide's application / best of ours": lambda times: of_application(times) / ours(times),
    "Halide's application / `auto`": lambda times: of_application(times) / times["auto"],
    "Halide's best manual / best of ours": lambda times: least(of_halide(times, []).values()) / ours(times),
    "Halide's best manual / `auto`": lambda times: least(of_halide(times, []).values()) / times["auto"],
    "Halide's best manual / `auto`, contracted": lambda times: (
        least(of_halide(times, []).values()) / times.get("contracted", math.nan)
    ),
    "Halide's best manual / `greedy`": lambda times: least(of_halide(times, []).values()) / times["greedy"],
    "Li2018 / `greedy`": lambda times: least(of_halide(times, [LI]).values()) / times["greedy"],
    "`torch.compile` / best of ours": lambda times: of_torch(times) / ours(times),
    "CuPy `fuse` / best of ours": lambda times: times.get("cupy", math.nan) / ours(times),
}


def geometric(values: Iterable[float]) -> float:
    """The geometric mean of those that are numbers."""
    known = [math.log(each) for each in values if each == each]
    return math.exp(sum(known) / len(known)) if known else math.nan


def _micros(value: float) -> str:
    return "" if value != value else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def table(times: Times, size: int) -> list[str]:
    """The times of images of one size."""
    rows = {name: each for (name, of_size), each in times.items() if of_size == size}
    columns = {
        title: column
        for title, column in COLUMNS.items()
        if any(column(each) == column(each) for each in rows.values())
    }
    lines = [f"| {size}² | {' | '.join(columns)} | name |", f"| --- {'| --- ' * (len(columns) + 1)}|"]
    for name, each in rows.items():
        manual = of_halide(each, [])
        best = min(manual, key=manual.__getitem__, default="")
        cells = " | ".join(_micros(column(each)) for column in columns.values())
        lines.append(f"| {name} | {cells} | {best} |")
    return lines


def quotients(times: Times) -> list[str]:
    """The geometric means, by size and of all."""
    sizes = sorted({size for _, size in times})
    lines = [f"| geometric mean | {' | '.join(f'{size}²' for size in sizes)} | all | least |"]
    lines.append(f"| --- {'| --- ' * (len(sizes) + 2)}|")
    for title, quotient in QUOTIENTS.items():
        made = {key: quotient(each) for key, each in times.items()}
        if all(value != value for value in made.values()):
            continue
        cells = [geometric(value for (_, of), value in made.items() if of == size) for size in sizes]
        cells += [geometric(made.values()), least(value for value in made.values() if value == value)]
        lines.append(f"| {title} | {' | '.join('' if cell != cell else f'{cell:.2f}' for cell in cells)} |")
    slower = [f"{name} {size}²" for (name, size), each in times.items() if each["auto"] > each["naive"]]
    lines += ["", f"`auto` is slower than naive kernels: {', '.join(slower) or 'nowhere'}."]
    return lines


#: The arms of figure 9 of Jangda and Guha: tiles of blocks, of warps in shared memory, in registers, and hybrid; and
#: tiles of lanes.
TILES = ("block", "warp", "registers", "hybrid", "lanes")


def tiles(times: Times, size: int) -> list[str]:
    """The best manual schedule over each kind of tiles of ours."""
    lines = [f"| manual over …, {size}² | {' | '.join(TILES)} | `dynamic` |", f"| --- {'| --- ' * (len(TILES) + 1)}|"]
    rows: list[list[float]] = []
    for (name, of_size), each in times.items():
        if of_size == size and TILES[0] in each:
            manual = least(of_halide(each, []).values())
            rows.append([manual / each.get(word, math.nan) for word in (*TILES, "dynamic")])
            lines.append(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in rows[-1])} |")
    if rows:
        lines.append(
            f"| geometric mean | {' | '.join(f'{geometric(cells):.2f}' for cells in zip(*rows, strict=True))} |"
        )
    return lines


#: The programs of the first paper and of the greedy search among ours. A spline is a pyramid that is blended.
WARP = ("unsharp", "harris", "bilateral_grid", "interpolate", "camera", "spline")
GREEDY = (*WARP[:-1], "stencil_chain", "max_filter", "nl_means", "lens_blur", "local_laplacian")


def papers(times: Times, size: int) -> list[str]:
    """Table 4 of Jangda and Guha, and figure 8 of the greedy search."""
    columns: dict[str, Callable[[dict[str, float]], float]] = {
        "Halide, manual": lambda each: least(of_halide(each, []).values()),
        "`paper`": lambda each: each["paper"],
        "manual / `paper`": lambda each: least(of_halide(each, []).values()) / each["paper"],
        "`auto`": lambda each: each["auto"],
        "manual / `auto`": lambda each: least(of_halide(each, []).values()) / each["auto"],
    }
    found = {name: each for (name, of), each in times.items() if of == size}
    lines = [f"| table 4, {size}² | {' | '.join(columns)} |", f"| --- {'| --- ' * len(columns)}|"]
    for name in WARP:
        if name in found:
            cells = [column(found[name]) for column in columns.values()]
            lines.append(f"| {name} | {' | '.join(_three(cell) for cell in cells)} |")
    quotient = [geometric(column(found[name]) for name in WARP if name in found) for column in columns.values()]
    lines += [f"| geometric mean | | | {quotient[2]:.2f} | | {quotient[4]:.2f} |", ""]
    lines += [f"| figure 8, {size}² | manual / `greedy` | Li2018 / `greedy` | manual / `auto` | Li2018 / `auto` |"]
    lines += [f"| --- {'| --- ' * 4}|"]
    rows: list[list[float]] = []
    for name in GREEDY:
        if name in found:
            each = found[name]
            peers = least(of_halide(each, []).values()), least(of_halide(each, [LI]).values())
            rows.append([peer / each[word] for word in ("greedy", "auto") for peer in peers])
            lines.append(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in rows[-1])} |")
    lines.append(f"| geometric mean | {' | '.join(f'{geometric(cells):.2f}' for cells in zip(*rows, strict=True))} |")
    return lines


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else _micros(value)


def roofline(times: Times, size: int, path: Path) -> None:
    """Operations per second by operations per byte of the inputs and outputs."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    plt.rcParams["svg.fonttype"] = "none"
    plt.rcParams["svg.hashsalt"] = "roofline"
    figure, axes = plt.subplots(figsize=(7.2, 4.6))
    low, high = 0.5, 400.0
    edges = [low, PEAK / COPY, high]
    axes.plot(edges, [min(PEAK, COPY * each) / 1e12 for each in edges], color="#444444", linewidth=1.2)
    half = PEAK / 2
    axes.plot([half / COPY, high], [half / 1e12] * 2, color="#444444", linewidth=0.8, linestyle="--")
    axes.text(high, PEAK / 1e12 * 1.06, "FFMA", ha="right", fontsize=8)
    axes.text(high, half / 1e12 * 1.06, "FADD, FMUL", ha="right", fontsize=8)
    arms: dict[str, tuple[str, str, Callable[[dict[str, float]], float]]] = {
        "naive kernels": ("o", "#999999", lambda each: each["naive"]),
        "ours": ("s", "#1f5fa8", ours),
        "Halide, automatic": ("^", "#d08a1d", lambda each: least(of_halide(each, [LI, ANDERSON]).values())),
        "Halide, manual": ("D", "#b03030", lambda each: least(of_halide(each, []).values())),
    }
    chosen = {name: each for (name, of), each in times.items() if of == size}
    if not chosen:
        sys.exit(f"there are no times of images with {size} x {size} pixels; --size names another size")
    # Names of programs whose points have nearly the same place along x are written at different heights.
    height = 0
    placed = sorted(chosen, key=intensity)
    for before, name in zip([None, *placed], placed, strict=False):
        height = (height + 1) % 4 if before and intensity(name) / intensity(before) < 1.7 else 0
        axes.text(intensity(name), 0.026 * 1.5**height, name, ha="center", fontsize=8)
    for word, (marker, colour, column) in arms.items():
        points = [(intensity(name), rate(name, size, column(each))) for name, each in chosen.items()]
        known = [(x, y) for x, y in points if y == y]
        axes.plot(*zip(*known, strict=True), marker, color=colour, markersize=5, label=word, alpha=0.9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(0.02, 120)
    axes.set_xlabel("floating-point operations per byte of inputs and outputs")
    axes.set_ylabel("10¹² operations per second")
    axes.set_title(f"Image programs with {size} x {size} pixels on an H200", fontsize=10)
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    axes.grid(True, which="major", linewidth=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def intensity(name: str) -> float:
    """Operations per byte of the inputs and outputs."""
    graph = PROGRAMS[name].graph(64)
    moved = sum(bytes_of(image) for image in (*graph.inputs, *graph.outputs))
    return PROGRAMS[name].work * 64 * 64 / moved


def rate(name: str, size: int, micros: float) -> float:
    """10 ** 12 operations per second."""
    return PROGRAMS[name].work * size * size / micros / 1e6


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--roofline", type=Path, help="write the plot to this file")
    parser.add_argument("--size", type=int, default=4096, help="the size of images in the plot")
    chosen = parser.parse_args()
    every = read(chosen.files)
    times = {key: each for key, each in every.items() if key[0] not in TABLE_OF_FUSION}
    fusion = {key: each for key, each in every.items() if key[0] in TABLE_OF_FUSION}
    for group in (times, fusion):
        for size in sorted({size for _, size in group}):
            print("\n".join(table(group, size)), end="\n\n")
        if group:
            print("\n".join(quotients(group)), end="\n\n")
    if times and fusion:
        print("all programs\n")
        print("\n".join(quotients(every)), end="\n\n")
    print("\n".join(tiles(times, 2048)), end="\n\n")
    print("\n".join(papers(times, 2048)))
    if chosen.roofline:
        roofline(times, chosen.size, chosen.roofline)


if __name__ == "__main__":
    main()
