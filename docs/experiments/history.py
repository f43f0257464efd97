"""Does `bench history find` find steps, and what does it report where there is none?

    python docs/experiments/history.py

makes 60 histories of 40 results for each kind of noise and prints a table. A third of the histories have no step, a
third one, and a third two, of 1 to 5 % in either direction. The noise is that of the emulator (none), and that of
speedups and of times between runs on an H200. It is measured: the result files in `tests/results` contain the same
machine code (baseline, candidate, size and launch mode) in several runs. The differences from the mean of each such
group are the noise from which a history draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

from ptxmotion.harness.results import read
from ptxmotion.harness.steps import Step, exact_steps, noisy_steps

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "results"
HISTORIES, LENGTH = 60, 40
#: A step is found if it is reported within so many results of its place.
NEAR = 1


def measured_noise() -> dict[str, list[float]]:
    """Differences of the logarithms from their group's mean, for speedups and times between runs."""
    speedups: dict[tuple[object, ...], set[float]] = {}
    times: dict[tuple[object, ...], set[float]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        for each in read(path).benchmarks:
            if not each.gates or each.timing is None:
                continue
            base = next(arm for arm in each.arms if arm.role == "baseline")
            key = (each.fullname, str(each.params), base.cubin_sha256, each.timing.mode)
            if base.stats is not None:
                times.setdefault(key, set()).add(math.log(base.stats.median))
            for comparison in each.candidates:
                arm = each.arm(comparison.candidate)
                # A fused program has the same kernels and another host program: it is another thing to time.
                if (
                    comparison.rounds
                    and comparison.speedup
                    and arm.ptx_sha256 != base.ptx_sha256
                    and "kf" not in arm.id
                ):
                    launch = "graph" if "graph" in arm.id else ""
                    value = math.log(comparison.speedup)
                    speedups.setdefault((*key, arm.cubin_sha256, launch), set()).add(value)
    return {"speedups on an H200": _differences(speedups), "times on an H200": _differences(times)}


def _differences(groups: dict[tuple[object, ...], set[float]]) -> list[float]:
    found: list[float] = []
    for group in groups.values():
        if len(group) > 1:
            mean, scale = sum(group) / len(group), math.sqrt(len(group) / (len(group) - 1))
            found += [(value - mean) * scale for value in sorted(group)]
    return found


@dataclass(frozen=True)
class History:
    """Values, and the places of the planted steps."""

    values: list[float]
    planted: list[int]


def make_history(number: int, noise: Sequence[float], generator: random.Random) -> History:
    """A history with ``number % 3`` steps, at least six results apart from each other and from the ends."""
    places: list[int] = []
    while len(places) < number % 3:
        place = generator.randrange(6, LENGTH - 5)
        if all(abs(place - other) >= 6 for other in places):
            places.append(place)
    level, levels = generator.uniform(100, 10000), list[float]()
    for index in range(LENGTH):
        if index in places:
            level *= math.exp(generator.choice((-1, 1)) * math.log1p(generator.uniform(0.01, 0.05)))
        levels.append(level)
    if not noise:
        return History([float(round(1e6 * each)) for each in levels], places)
    return History([each * math.exp(generator.choice(noise)) for each in levels], places)


def counts(history: History, found: Sequence[Step]) -> tuple[int, int, int]:
    """Planted steps that were found at their place; found near it; reported steps that were not planted."""
    exact = sum(any(each.index == place for each in found) for place in history.planted)
    near = sum(any(abs(each.index - place) <= NEAR for each in found) for place in history.planted)
    false = sum(all(abs(each.index - place) > NEAR for place in history.planted) for each in found)
    return exact, near, false


def rows() -> list[tuple[str, str, str, int, int, int, int, int]]:
    """Noise, penalty, least effect, histories, steps planted, found at their commit, found near it, false alarms."""
    found: list[tuple[str, str, str, int, int, int, int, int]] = []
    settings = [("none (emulator)", list[float]()), *measured_noise().items()]
    for name, noise in settings:
        for penalty in (0.0,) if not noise else (1.0, 2.0, 4.0, 8.0):
            for effect in (0.0,) if not noise else (0.005, 0.01):
                generator = random.Random(1)
                histories = [make_history(number, noise, generator) for number in range(HISTORIES)]
                steps = [
                    exact_steps(each.values) if not noise else noisy_steps(each.values, effect, penalty)
                    for each in histories
                ]
                totals = [sum(each) for each in zip(*map(counts, histories, steps), strict=True)]
                planted = sum(len(each.planted) for each in histories)
                label = f"{penalty:g}" if noise else "-"
                least = f"{effect:.1%}" if noise else "-"
                found.append((name, label, least, HISTORIES, planted, totals[0], totals[1], totals[2]))
    return found


def main() -> None:
    """Print the noise and the table."""
    for name, noise in measured_noise().items():
        size = median(map(abs, noise))
        print(f"{name}: {len(noise)} differences, median size {size:.3%}, standard deviation {stdev(noise):.3%}")
    print("\n| noise | penalty | least step | histories | planted | at the commit | within 1 | false alarms |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows():
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
