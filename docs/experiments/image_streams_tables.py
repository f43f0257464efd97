"""The tables of a page from what `image_streams.py fusion levels edges` printed.

    python docs/experiments/image_streams_tables.py FILE

Prints, in Markdown: pipelines fused and separate; each edge alone; pyramids as graphs. Then the geometric means,
the least gains of both passes, the root mean square of the errors of estimates (estimate over the mean of both
measurements, minus 1), and for how many edges the estimate and the measurement have the same sign.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ARM = re.compile(r"^    (.+?) +([\d.]+) +([\d.]+) estimate +([\d.]+) gain ")


@dataclass(frozen=True)
class Arm:
    """The microseconds of both passes, and the estimate."""

    first: float
    second: float
    estimate: float

    @property
    def mean(self) -> float:
        return (self.first + self.second) / 2

    @property
    def error(self) -> float:
        """The relative error of the estimate."""
        return self.estimate / self.mean - 1

    def over(self, other: Arm) -> tuple[float, float]:
        """How many times as long as the other one it takes, in both passes."""
        return self.first / other.first, self.second / other.second


#: By part, by title (program and size), by name of an arm: its times.
Parts = dict[str, dict[str, dict[str, Arm]]]


def read(path: Path) -> Parts:
    """The arms. Raises `ValueError` for rows that were not timed."""
    parts: Parts = {}
    rows: dict[str, dict[str, Arm]] = {}
    row: dict[str, Arm] = {}
    for line in path.read_text().splitlines():
        found = _ARM.match(line)
        if line.startswith("--- "):
            rows = parts.setdefault(line.removeprefix("--- "), {})
        elif found is not None:
            arm = Arm(*(float(found[at]) for at in (2, 3, 4)))
            row.update(dict.fromkeys(found[1].split("="), arm))
        elif re.match(r"^\w+ \d+$", line):
            row = rows.setdefault(line.replace(" ", ", "), {})
        elif "no time" in line or "failed" in line:
            raise ValueError(f"a row was not timed: {line}")
    return parts


def geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def root_mean_square(values: Iterable[float]) -> float:
    return math.sqrt(statistics.fmean(value * value for value in values))


def _both(values: tuple[float, float]) -> str:
    return f"{values[0]:.2f}, {values[1]:.2f}"


def fusion(rows: dict[str, dict[str, Arm]]) -> list[str]:
    """Fused over separate."""
    lines = ["| program, size | separate | fused, both runs | estimate | gain, both runs | along edges | minimum cut |"]
    lines.append("| --- " * 7 + "|")
    gains: dict[str, list[float]] = {word: [] for word in ("search", "edges", "cut")}
    least = math.inf
    for title, arms in rows.items():
        naive, fused = arms["naive"], arms["search"]
        for word, each in gains.items():
            each.append(geometric(naive.over(arms[word])))
        least = min(least, *naive.over(fused))
        cells = [f"{naive.mean:.2f}", _both((fused.first, fused.second)), f"{fused.estimate:.2f}"]
        cells += [_both(naive.over(fused)), f"{gains['edges'][-1]:.2f}", f"{gains['cut'][-1]:.2f}"]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    means = [f"{geometric(gains[word]):.2f}" for word in ("search", "edges", "cut")]
    lines += [f"| geometric mean | | | | {' | '.join(means)} |", "", f"least gain {least:.2f}"]
    lines += [
        f"{title}: the best partition by exhaustive search takes other times"
        for title, arms in rows.items()
        if "best" in arms and arms["best"] != arms["search"]
    ]
    errors = {title: arms["search"].error for title, arms in rows.items()}
    for program in dict.fromkeys(title.split(",")[0] for title in errors):
        of_program = [error for title, error in errors.items() if title.startswith(f"{program},")]
        lines.append(f"error of {program}: {root_mean_square(of_program):.0%}")
    lines.append(f"error of all fused: {root_mean_square(errors.values()):.0%}")
    naive_errors = {title: arms["naive"].error for title, arms in rows.items()}
    lines.append("errors of separate: " + "; ".join(f"{title} {error:.0%}" for title, error in naive_errors.items()))
    return lines


def edges(rows: dict[str, dict[str, Arm]]) -> list[str]:
    """What each edge saves."""
    sizes = list(dict.fromkeys(title.split(", ")[1] for title in rows))
    lines = [f"| program, edge | {' | '.join(f'{size}: estimate | measured' for size in sizes)} |"]
    lines.append("| --- " * (1 + 2 * len(sizes)) + "|")
    saved: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for title, arms in rows.items():
        program, size = title.split(", ")
        single = arms["single"]
        for word, arm in arms.items():
            if word != "single":
                found = single.estimate - arm.estimate, single.mean - arm.mean
                saved.setdefault((program, word.replace("->", " → ")), {})[size] = found
    for (program, edge), by_size in saved.items():
        cells = [f"{value:.2f}" for size in sizes for value in by_size[size]]
        lines.append(f"| {program}: {edge} | {' | '.join(cells)} |")
    every = [(where, size, *pair) for where, by_size in saved.items() for size, pair in by_size.items()]
    wrong = [(where, size) for where, size, estimate, measured in every if (estimate > 0) != (measured > 0)]
    lines += ["", f"same sign in {len(every) - len(wrong)} of {len(every)}; other signs: {wrong}"]
    return lines


def levels(rows: dict[str, dict[str, Arm]]) -> list[str]:
    """Pyramids as graphs."""
    columns = "separate launches | graph alone | fused launches | combined, both runs | estimate | over separate"
    lines = [f"| program, size | {columns} | over graph alone |", "| --- " * 8 + "|"]
    over: dict[str, list[float]] = {"separate": [], "branches": []}
    lowest: dict[str, float] = dict.fromkeys(over, math.inf)
    notes: list[str] = []
    for title, arms in rows.items():
        combined = arms["combined"]
        for word, gains in over.items():
            gains.append(geometric(arms[word].over(combined)))
            lowest[word] = min(lowest[word], *arms[word].over(combined))
        cells = [f"{arms[word].mean:.1f}" for word in ("separate", "branches", "fused")]
        cells += [f"{combined.first:.1f}, {combined.second:.1f}", f"{combined.estimate:.1f}"]
        cells += [_both(arms[word].over(combined)) for word in over]
        lines.append(f"| {title} | {' | '.join(cells)} |")
        best = min(arms, key=lambda word: arms[word].mean)
        if arms[best].mean < combined.mean * 0.975:
            notes.append(f"{title}: {best} takes {arms[best].mean / combined.mean:.2f} of combined")
        beside = arms["combined, fused beside"]
        if beside.mean > combined.mean * 1.025:
            notes.append(f"{title}: fused beside takes {beside.mean / combined.mean:.2f} of combined")
    means = {word: geometric(gains) for word, gains in over.items()}
    lines += ["", *(f"over {word}: {means[word]:.2f}, at least {lowest[word]:.2f}" for word in over)]
    lines.append(f"error of combined: {root_mean_square(arms['combined'].error for arms in rows.values()):.0%}")
    return lines + notes


def main() -> None:
    """Print the tables of a file."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    parts = read(Path(sys.argv[1]))
    for name, table in (("fusion", fusion), ("edges", edges), ("levels", levels)):
        if name in parts:
            print("\n".join(table(parts[name])), end="\n\n")


if __name__ == "__main__":
    main()
