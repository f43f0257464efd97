"""The tables of `image_isp.py`: how often `isp+m` is right, and what its kernels gain.

    python docs/experiments/image_isp_report.py FIGURES TIMES [TIMES] [--only REGEX] [--wrong]
    python docs/experiments/image_isp_report.py FIGURES TIMES [TIMES] --matrix [--only REGEX]
    python docs/experiments/image_isp_report.py FIGURES TIMES [TIMES] --spread [--only REGEX]
    python docs/experiments/image_isp_report.py FIGURES TIMES [TIMES] --fit [--only REGEX]
    python docs/experiments/image_isp_report.py FIGURES --expected [--only REGEX]

FIGURES is the folder that ``image_isp.py figures`` wrote, and each TIMES is the output of a run. The estimates are
those of the present `partition_time.py`, so old times can be compared with a new model. ``--only`` takes the filters
whose names match, and ``--wrong`` prints each wrong prediction. ``--matrix`` prints how many choices are right, by
program, boundary and size. ``--spread`` prints how far the expected gains are from the measured ones, by lowering and
by the warps that are held, as a share of those of the naive kernel. ``--fit`` prints numbers for
`partition_time.Times` that make the errors of the estimates smallest; it needs SciPy. ``--expected`` needs no times: it
prints what the model expects of each program.

A prediction is the answer to whether a kernel is faster than the naive one; a choice is the kernel that `isp+m` takes.
Two times are equal if they differ by less than the noise. Three levels of noise are reported: 0, 1 %, and the greater
of 1 % and what the two times of the same naive kernel differ by in 95 % of the kernels of the run that take as long.
A prediction is wrong if the kernel is expected to be faster and is slower, or the other way round. A choice is wrong if
the chosen kernel is slower than the naive one, or if it is the naive one and the fastest kernel is faster.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from image_isp import BOUNDARIES, PROGRAMS, graphs_of
from ptxmotion.cost import Figures
from ptxmotion.dsl.image.partition_model import Estimate, KernelFigures, RegionFigures
from ptxmotion.dsl.image.partition_time import H200_TIMES, Times, Work, seconds

#: Two times that differ by less are equal, whatever the noise of a run is.
LEAST_NOISE = 0.01
#: Kernels that take as long: times up to these microseconds are a class.
CLASSES = (3.0, 5.0, 10.0, 30.0, math.inf)

LOWERINGS = ("isp", "isp_warp", "isp_rows")

Key = tuple[str, ...]


@dataclass
class Run:
    """The lines of a run. ``kernels``: by program, boundary, size, block and name, the microseconds of each lowering.
    ``same`` has those of kernels that were timed for another program. ``programs``: by the same without a name, the
    microseconds for the bytes, and those of each lowering."""

    kernels: dict[Key, dict[str, float]]
    same: dict[Key, dict[str, float]]
    programs: dict[Key, tuple[float, dict[str, float]]]
    noise: dict[float, float]

    @staticmethod
    def read(path: Path, only: str) -> Run:
        """The lines of a file."""
        kernels: dict[Key, dict[str, float]] = {}
        same: dict[Key, dict[str, float]] = {}
        programs: dict[Key, tuple[float, dict[str, float]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, *parts = line.split(";")
            if kind not in ("kernel", "program") or not re.search(only, parts[0]):
                continue
            pairs = [part.split("=") for part in parts if "=" in part]
            micros = {word: float(time) for word, time in pairs}
            if kind == "program":
                programs[tuple(parts[:4])] = float(parts[4]), micros
            else:
                (kernels if parts[5] == "new" else same)[tuple(parts[:5])] = micros
        apart: dict[float, list[float]] = defaultdict(list)
        for micros in kernels.values():
            apart[_class(micros["naive"])].append(abs(micros["naive"] / micros["again"] - 1))
        noise = {size: float(np.quantile(each, 0.95)) for size, each in apart.items()}
        return Run(kernels, same, programs, noise)


def _class(micros: float) -> float:
    return next(size for size in CLASSES if micros <= size)


@cache
def _nodes(program: str, boundary: str, size: str) -> dict[str, Any]:
    width, height = (int(each) for each in size.split("x"))
    return {node.name: node for node in graphs_of(program, boundary)[0](width, height).nodes}


def estimates_of(path: Path, only: str) -> dict[Key, Estimate]:
    """The estimate of each kernel, by program, boundary, size, block and name."""
    found: dict[Key, Estimate] = {}
    figures: dict[str, dict[str, Any]] = {}
    for part in sorted(path.glob("*.json")):
        figures |= json.loads(part.read_text(encoding="utf-8"))
    for place, kernels in figures.items():
        key = tuple(place.split(";"))
        if re.search(only, key[0]):
            node = _nodes(*key[:3])[key[4]]
            across = int(key[3].split("x")[0])
            found[key] = Estimate(node, tuple(_kernel(word, each, across) for word, each in kernels.items()))
    return found


def _kernel(word: str, each: Mapping[str, Any], across: int) -> KernelFigures:
    regions = tuple(RegionFigures(name, blocks, {"all": count}) for name, blocks, count in each["regions"])
    code = Figures("", each["registers"], 0, each["held"], each["weight"], each["cycles"], exposed=each["exposed"])
    return KernelFigures(
        word,
        regions,
        each["warps"],
        each["registers"],
        each["occupancy"],
        code,
        each["kinds"],
        each["rows"],
        each["size"],
        each["trips"],
        across,
    )


# --- how often the model is right ---------------------------------------------------------------------------------


def confusion(run: Run, estimates: Mapping[Key, Estimate], noises: Sequence[str], *, wrong: bool) -> None:
    """Print predicted against measured."""
    shown = ", ".join(f"up to {size:g} us {noise:.1%}" for size, noise in sorted(run.noise.items()))
    print(f"Noise, 95 % of two times of a naive kernel: {shown}\n")
    print("| noise | | faster: is faster, equal, slower | not faster: is slower, equal, faster | right |")
    print("| --- | --- | --- | --- | --- |")
    for name in noises:
        counts: dict[str, Counter[tuple[bool, str]]] = defaultdict(Counter)
        lines: list[str] = []
        for key, micros in run.kernels.items():
            if key not in estimates:
                continue
            found, naive = estimates[key], micros["naive"]
            measured = max(1.0, run.noise[_class(naive)] / LEAST_NOISE) * LEAST_NOISE
            noise = {"0": 0.0, "1 %": LEAST_NOISE, "measured": measured}[name]

            def verdict(gain: float, noise: float = noise) -> str:
                return "faster" if gain > 1 + noise else "slower" if gain < 1 / (1 + noise) else "equal"

            for kernel in found.kernels[1:]:
                gain = naive / micros[kernel.lowering]
                predicted, is_so = not found.worse(kernel), verdict(gain)
                groups = ("predictions", f"predictions, {kernel.lowering}", "predictions, G > 1")
                for group in groups[:2]:
                    counts[group][predicted, is_so] += 1
                counts[groups[2]][found.gain(kernel) > 1, is_so] += 1
                if is_so == ("slower" if predicted else "faster"):
                    lines.append(f"{' '.join(key)}: {kernel.lowering}: {found.expected(kernel):.3f}, is {gain:.3f}")
            best = found.best.lowering
            fastest = min(micros[each.lowering] for each in found.kernels[1:])
            gain = naive / (micros[best] if best != "naive" else fastest)
            counts["choices"][best != "naive", verdict(gain)] += 1
        for group, each in sorted(counts.items()):
            yes = [each[True, word] for word in ("faster", "equal", "slower")]
            no = [each[False, word] for word in ("slower", "equal", "faster")]
            right = 1 - (yes[2] + no[2]) / each.total()
            print(f"| {name} | {group} | {', '.join(map(str, yes))} | {', '.join(map(str, no))} | {right:.1%} |")
        if wrong:
            print("\n".join(f"    {name}: {line}" for line in sorted(lines)))
    gains = [
        (min(micros[each.lowering] for each in estimates[key].kernels), micros[estimates[key].best.lowering], micros)
        for key, micros in run.kernels.items()
        if key in estimates
    ]
    mean = statistics.geometric_mean(micros["naive"] / chosen for _, chosen, micros in gains)
    most = statistics.geometric_mean(micros["naive"] / best for best, _, micros in gains)
    print(f"\nisp+m over naive {mean:.3f}, the fastest kernels over naive {most:.3f}\n")


def slower(runs: Sequence[Run], estimates: Mapping[Key, Estimate]) -> None:
    """Print where `isp+m` is slower than naive in each run."""
    sets: list[dict[Key, float]] = []
    for run in runs:
        known = {key: micros for key, micros in run.kernels.items() if key in estimates}
        gains = {key: micros["naive"] / micros[estimates[key].best.lowering] for key, micros in known.items()}
        sets.append({key: gain for key, gain in gains.items() if gain < 1 / (1 + LEAST_NOISE)})
        chosen = sum(estimates[key].best.lowering != "naive" for key in known)
        print(f"{len(sets[-1])} of {chosen} chosen kernels of {len(known)} are slower than naive by more than 1 %")
    both = set(sets[0]).intersection(*sets)
    print(f"slower in each run: {len(both)}")
    for key in sorted(both):
        word = estimates[key].best.lowering
        print(f"    {' '.join(key)}: {word}: {', '.join(f'{each[key]:.3f}' for each in sets)}")
    print()


def is_right(found: Estimate, micros: Mapping[str, float], noise: float = LEAST_NOISE) -> bool:
    """Whether the kernel that `isp+m` takes is not slower than naive, and no other one is faster if it is naive."""
    naive, best = micros["naive"], found.best.lowering
    if best != "naive":
        return naive * (1 + noise) >= micros[best]
    return all(naive <= micros[each.lowering] * (1 + noise) for each in found.kernels[1:])


def matrix(runs: Sequence[Run], estimates: Mapping[Key, Estimate]) -> None:
    """Print how many choices are right of how many, noise 1 %: by program, and by boundary and size."""
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    sizes: set[str] = set()
    for run in runs:
        for key, micros in run.kernels.items():
            if key in estimates:
                program, boundary, size, *_ = key
                sizes.add(size)
                for column in (boundary, size, "all"):
                    for row in (program, "all"):
                        counts[row, column].append(is_right(estimates[key], micros))
    columns = [*BOUNDARIES, *sorted(sizes, key=_pixels), "all"]
    print(f"| program | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    for program in [*(name for name in PROGRAMS if (name, "all") in counts), "all"]:
        cells = [f"{sum(counts[program, column])} of {len(counts[program, column])}" for column in columns]
        print(f"| {program} | {' | '.join(cells)} |")
    print()


def spread(runs: Sequence[Run], estimates: Mapping[Key, Estimate]) -> None:
    """Print the mean and the standard deviation of the logarithm of expected over measured gains, for expected gains
    from 0.75 to 1.35, where choices are decided."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        for key, micros in run.kernels.items():
            if key in estimates:
                found = estimates[key]
                for kernel in found.kernels[1:]:
                    expected, measured = found.expected(kernel), micros["naive"] / micros[kernel.lowering]
                    if 0.75 < expected < 1.35:
                        share = found.held(kernel) / found.held(found.kernels[0])
                        held = "at least as many" if share >= 1 else "over half" if share > 0.5 else "at most half"
                        errors[kernel.lowering, held].append(math.log(expected / measured))
    print("| lowering | warps held | kernels | mean | standard deviation |\n| --- | --- | --- | --- | --- |")
    for (word, held), each in sorted(errors.items()):
        print(f"| {word} | {held} | {len(each)} | {statistics.mean(each):+.3f} | {statistics.pstdev(each):.3f} |")
    print()


# --- what is gained -----------------------------------------------------------------------------------------------


def gains(runs: Sequence[Run], estimates: Mapping[Key, Estimate]) -> None:
    """Print geometric means of each program over naive, and the share of the shortest time for its bytes. The time of
    `isp+m` is that of naive, less what the chosen kernels save."""
    edges = " | ".join((*BOUNDARIES, "all"))
    print(f"| program | isp | isp_warp | isp_rows | isp+m: {edges} | least | most | bytes |")
    print("| --- | --- | --- | --- | " + "--- | " * (len(BOUNDARIES) + 4))
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    shares: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        saved: dict[Key, float] = defaultdict(float)
        for key, micros in (run.kernels | run.same).items():
            if key in estimates:
                saved[key[:4]] += micros["naive"] - micros[estimates[key].best.lowering]
        for key, (least, micros) in run.programs.items():
            if key not in saved:
                continue
            program, boundary, size, _ = key
            for word in micros.keys() - {"naive"}:
                found[program][word].append(micros["naive"] / micros[word])
            gain = micros["naive"] / (micros["naive"] - saved[key])
            found[program][boundary].append(gain)
            found[program]["isp+m"].append(gain)
            if size in ("4096x4096", "3840x2160") and boundary == "clamp":
                shares[program].append(least / micros["naive"])
    for program in sorted(found, key=lambda name: PROGRAMS.index(name) if name in PROGRAMS else len(PROGRAMS)):
        each = found[program]
        columns = [_mean(each[word]) for word in (*LOWERINGS, *BOUNDARIES, "isp+m")]
        share = f"{max(shares[program]):.2f}" if shares[program] else ""
        least, most = min(each["isp+m"]), max(each["isp+m"])
        print(f"| {program} | {' | '.join(columns)} | {least:.3f} | {most:.3f} | {share} |")


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(values):.3f}" if values else ""


def expected(estimates: Mapping[Key, Estimate]) -> None:
    """Print the expected gains over naive of each program and size, as geometric means over boundaries and blocks, and
    which kernels are chosen."""
    print(
        "| program | size | isp | isp_warp | isp_rows | isp+m | chosen |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    times: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    chosen: dict[Key, Counter[str]] = defaultdict(Counter)
    for key, each in estimates.items():
        program, _, size, *_ = key
        naive = each.seconds(each.kernels[0])
        by_word = {kernel.lowering: each.seconds(kernel) for kernel in each.kernels}
        for word in ("naive", *LOWERINGS):
            times[key[:4]][word] += by_word.get(word, naive)
        times[key[:4]]["isp+m"] += by_word[each.best.lowering]
        chosen[program, size][each.best.lowering] += 1
    for program, size in sorted(chosen, key=lambda place: (place[0], _pixels(place[1]))):
        own = [each for key, each in times.items() if (key[0], key[2]) == (program, size)]
        means = [_mean([each["naive"] / each[word] for each in own]) for word in (*LOWERINGS, "isp+m")]
        words = ", ".join(f"{word} {count}" for word, count in chosen[program, size].most_common())
        print(f"| {program} | {size} | {' | '.join(means)} | {words} |")


def _pixels(size: str) -> int:
    width, height = size.split("x")
    return int(width) * int(height)


# --- fitting ------------------------------------------------------------------------------------------------------

#: The numbers that are fitted. The others come from probes (`image_probes.cu`).
FITTED = (
    *("kernel", "cache", "latency", "waiting", "fetch", "fetched", "regions", "tests", "edge", "overlap", "few_warps"),
    *("access", "narrow_access", "further_row", "further_row_two_bytes", "further_row_byte", "other_slots"),
)
CLASSES_OF_SLOTS = ("wide", "integer", "fp32")
#: The weight of the logarithm by which a number changes, beside the errors of all kernels.
KEPT = 0.5


def with_numbers(values: Sequence[float]) -> Times:
    """The numbers of a GPU with these in place of those that are fitted, by their logarithms."""
    numbers = [math.exp(value) for value in values]
    slots = dict(zip(CLASSES_OF_SLOTS, numbers[len(FITTED) :], strict=True))
    made = dict(zip(FITTED, numbers, strict=False))
    return replace(H200_TIMES, slots={**H200_TIMES.slots, **slots}, **made)


def fit(runs: Sequence[Run], estimates: Mapping[Key, Estimate]) -> None:
    """Print numbers that make the errors of times and of gains smallest."""
    optimize: Any = importlib.import_module("scipy.optimize")
    known: list[tuple[list[Work], list[float]]] = []
    for run in runs:
        for key, micros in run.kernels.items():
            if key in estimates:
                kernels = estimates[key].kernels
                works = [estimates[key].work(each) for each in kernels]
                known.append((works, [micros[each.lowering] * 1e-6 for each in kernels]))

    def errors(values: Any) -> list[float]:
        times = with_numbers(values)
        found: list[float] = []
        for works, measured in known:
            logs = [math.log(seconds(work, times) / time) for work, time in zip(works, measured, strict=True)]
            # What decides is the ratio to the naive kernel.
            found += [logs[0], *(2 * (each - logs[0]) for each in logs[1:])]
        return found

    first = [getattr(H200_TIMES, name) for name in FITTED] + [H200_TIMES.slots[name] for name in CLASSES_OF_SLOTS]
    start = np.log(np.maximum(first, 1e-12))

    def kept(values: Any) -> list[float]:
        return [*errors(values), *(KEPT * (values - start))]

    result = optimize.least_squares(kept, start, loss="soft_l1", f_scale=0.05, max_nfev=60)
    last: list[float] = list(result.x)
    for word, values in (("before", list(start)), ("fitted", last)):
        apart = np.array(errors(values))
        print(f"{word}: root of the mean square {np.sqrt(np.mean(apart**2)):.4f}, median {np.median(abs(apart)):.4f}")
    times = with_numbers(last)
    print({name: float(f"{getattr(times, name):.4g}") for name in FITTED})
    print({name: round(slots, 2) for name, slots in times.slots.items()})


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path)
    parser.add_argument("times", type=Path, nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--expected", action="store_true")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    estimates = estimates_of(options.figures, options.only)
    if options.expected:
        expected(estimates)
        return
    if not options.times:
        parser.error("the report compares with times: name the output of a run")
    runs = [Run.read(path, options.only) for path in options.times]
    if options.fit:
        fit(runs, estimates)
        return
    if options.matrix:
        matrix(runs, estimates)
        return
    if options.spread:
        spread(runs, estimates)
        return
    for number, each in enumerate(runs, 1):
        print(f"## Run {number}: {len(each.kernels)} kernels, {len(each.programs)} programs\n")
        confusion(each, estimates, ("0", "1 %", "measured"), wrong=options.wrong)
    slower(runs, estimates)
    gains(runs, estimates)


if __name__ == "__main__":
    main()
