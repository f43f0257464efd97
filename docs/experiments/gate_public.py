"""The gate against times of public programs: which kernels it keeps, and how much faster or slower these are.

    python docs/experiments/gate_public.py docs/experiments/gate_public.csv [--fit] [--verbose]
    python docs/experiments/gate_public.py docs/experiments/gate_unseen.csv --unseen [--verbose]
        [--without PROGRAM] [--again FILE] [--shortest NANOSECONDS] [--most KERNELS] [--steady SHARE]

The table is that of `kernel_times_table.py`. The programs are split into two halves by a hash of their names. With
`--unseen`, no threshold was chosen on any of them, and they are reported together. Each rule is reported on each group:

    kept       kernels of which the rule keeps a version; how many of them are slower, and faster, by more than 1 %
    worst      the slowest of them
    gain       the geometric mean of all kernels that some arm changes, if each one is as the rule keeps it
    best       the same for the fastest version of each kernel that is faster by more than 1 %, else nvcc's code
    share      the part of the logarithm of `best` that the rule keeps; n/a if no version is faster by more than 1 %
    programs   the share if each program counts once, with the mean of the logarithms of its kernels
    90 %       the interval of the share over samples of programs with replacement, 5 to 95 %

`without loops` is the gate without the rule for loops, `latencies of loops` with this rule as it was before, when the
instructions in loops did not count; on tables without figures of loops, these are the gate. `the arm gated` is what the
optimizer has kept when the arms were made, and `gated, better` what the gate accepts of it now, without the rule for
loops: the cycles of a loop depend on its address, which differs if a kernel is assembled alone.

A kernel is counted once. Its ratio is that of the times of all its launches. The versions that a rule may keep are
those of `gated` and `O3`; the first that it accepts is kept, in the order `O3`, `gated`. `best` is over these, too.

With `--again` and the table of another run of the same programs, kernels count that have times in both. A kernel is
slower or faster if it is in both runs. Its gain is the mean of both. The fastest version is chosen by the times of one
run, and its gain is that of the other run, so that noise is no possible gain; this is done both ways. Those that are
kept and slower are printed. With both options, FILE and the first table may be lists with commas, of runs of different
programs.

`--most N` counts at most N kernels of a program, the first ones by name. `--steady 0.05` leaves out kernels of which
the ratio of a version differs by more than 5 % between the rounds of a run.

`--shortest` leaves out kernels whose launches are shorter on average. The clock of CUPTI has steps of 32 ns, which is
1 % of 3,200 ns.

The second table has the launches of kernels with hoisted loads, the arm `hoisted`: of which launches a rule prefers
them, by the warps that a scheduler has. `--fit` prints both tables for other thresholds, on the first half only.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ptxmotion import cost
from ptxmotion.arch import H200_MULTIPROCESSORS
from ptxmotion.contract.conditions import warps_per_scheduler
from ptxmotion.cost import Figures, is_better, preferred_warps
from ptxmotion.toolchain.occupancy import occupancy

#: The GPU of the table: an H200.
_SM = 90

#: A difference of time that counts.
EFFECT = 0.01
#: The figures of loops. Older tables lack them.
OF_LOOPS = ("looped", "quickest", "weight_in_loops")
#: The arms whose versions a rule may keep.
OFFERED = ("O3", "gated")


@dataclass(frozen=True)
class Launch:
    """A size of launches of a kernel with one machine code, and what was measured."""

    blocks: int
    threads: int
    shared: int
    launches: int
    nanoseconds: float
    ratio: float
    low: float
    high: float

    def warps(self, figures: Figures) -> int:
        """Warps of the launch that a scheduler has at a time, if the kernel has these figures."""
        held = occupancy(_SM, self.threads, figures.registers, self.shared)
        blocks = held.blocks if held is not None else 1
        return warps_per_scheduler((self.blocks, 1, 1), (self.threads, 1, 1), H200_MULTIPROCESSORS, max(blocks, 1))


@dataclass(frozen=True)
class Version:
    """One machine code of a kernel, beside that of nvcc."""

    program: str
    kernel: str
    arms: tuple[str, ...]
    before: Figures
    after: Figures
    launches: tuple[Launch, ...]
    again: Version | None = None

    @property
    def ratios(self) -> list[float]:
        """The ratio in each run."""
        return [self.ratio] if self.again is None else [self.ratio, self.again.ratio]

    def is_steady(self, by: float) -> bool:
        """Whether no ratio differs by more than this share between the rounds of a run."""
        runs = [self, *([self.again] if self.again is not None else [])]
        return all(each.high <= (1 + by) * each.low for run in runs for each in run.launches)

    @property
    def gain(self) -> float:
        """The mean of the logarithms of the ratios."""
        return statistics.fmean(map(math.log, self.ratios))

    @property
    def ratio(self) -> float:
        """The time of all launches before, divided by that after."""
        before = sum(each.launches * each.nanoseconds for each in self.launches)
        return before / sum(each.launches * each.nanoseconds / each.ratio for each in self.launches)

    @property
    def nanoseconds(self) -> float:
        """The mean time of a launch before."""
        total = sum(each.launches * each.nanoseconds for each in self.launches)
        return total / sum(each.launches for each in self.launches)


Rule = Callable[[Version], bool]


def read(path: Path) -> list[Version]:
    """The versions of the table, without those of nvcc."""
    found: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            if "nvcc" not in row["arms"].split():
                found[row["program"], row["kernel"], row["arms"]].append(row)
    return [_version(rows) for rows in found.values()]


def equal_code(path: Path, shortest: float = 0) -> list[float]:
    """The ratios of the rows that compare nvcc's code with itself, without launches of fewer nanoseconds."""
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["nanoseconds"]) >= shortest]
    return [float(row["ratio"]) for row in rows if "nvcc" in row["arms"].split()]


def spread(ratios: Sequence[float]) -> str:
    """What the comparisons of equal code show, in words."""
    if len(ratios) < 2:
        return f"equal code: {len(ratios)} comparisons"
    least, *_, most = statistics.quantiles(ratios, n=20, method="inclusive")
    half = statistics.median(abs(each - 1) for each in ratios)
    half_of_them = f"half of them within {half:.2%}, 90 % between {least:.4f} and {most:.4f}"
    return f"equal code: {len(ratios)} comparisons, {half_of_them}, all between {min(ratios):.4f} and {max(ratios):.4f}"


def _version(rows: Sequence[dict[str, str]]) -> Version:
    first = rows[0]
    figures = [
        Figures(
            code=when,
            registers=int(first[f"registers_{when}"]),
            spills=int(first[f"spills_{when}"]),
            warps=float(first[f"warps_{when}"]),
            weight=float(first[f"weight_{when}"]),
            cycles=float(first[f"cycles_{when}"]),
            looped=_number(first.get(f"looped_{when}")),
            quickest=_number(first.get(f"quickest_{when}")),
            weight_in_loops=_number(first.get(f"weight_in_loops_{when}")),
            fetched=_number(first.get(f"fetched_{when}")) or 0.0,
        )
        for when in ("before", "after")
    ]
    launches = [
        Launch(
            _product(row["grid"]),
            _product(row["block"]),
            int(row["shared"]),
            int(row["launches"]),
            float(row["nanoseconds"]),
            float(row["ratio"]),
            float(row["low"]),
            float(row["high"]),
        )
        for row in rows
    ]
    arms = tuple(first["arms"].split())
    return Version(first["program"], first["kernel"], arms, figures[0], figures[1], tuple(launches))


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _product(text: str) -> int:
    return math.prod(map(int, text.split(",")))


def is_first_half(program: str) -> bool:
    """Whether a program belongs to the half on which thresholds may be chosen."""
    return hashlib.sha256(f"half {program}".encode()).digest()[0] % 2 == 0


def by_kernel(versions: Sequence[Version]) -> list[list[Version]]:
    """The versions of each kernel that a rule may keep, in the order in which it is offered them."""
    kernels: dict[tuple[str, str], list[Version]] = defaultdict(list)
    for arm in OFFERED:
        for version in versions:
            of = kernels[version.program, version.kernel]
            if arm in version.arms and version not in of:
                of.append(version)
    return [each for each in kernels.values() if each]


@dataclass(frozen=True)
class Report:
    """The result of a rule; the docstring of the file explains the figures. ``gain`` and ``best`` are ratios;
    ``of_programs`` has for each program the sums and the numbers of their logarithms."""

    kernels: int
    kept: int
    slower: int
    faster: int
    worst: float
    gain: float
    best: float
    of_programs: tuple[tuple[float, float, int], ...]

    @property
    def share(self) -> str:
        """The part of the possible gain that the rule keeps; n/a if there is none."""
        return _share(math.log(self.gain), math.log(self.best))

    def row(self) -> str:
        """The figures as cells of a table."""
        figures = f"{self.kernels} | {self.kept} | {self.slower} | {self.faster} | {self.worst:.3f}"
        once = _share(*(sum(each[part] / each[2] for each in self.of_programs) for part in (0, 1)))
        return f"{figures} | {self.gain:.4f} | {self.best:.4f} | {self.share} | {once} | {self.interval}"

    @property
    def interval(self) -> str:
        """The share over samples of as many programs, 5 and 95 %."""
        generator = random.Random(1)
        sums: list[tuple[float, float]] = []
        for _ in range(2000):
            sample = generator.choices(self.of_programs, k=len(self.of_programs))
            sums.append((sum(each[0] for each in sample), sum(each[1] for each in sample)))
        shares = sorted(gain / best for gain, best in sums if best > 0)
        return f"{shares[len(shares) // 20]:.0%} to {shares[-len(shares) // 20]:.0%}" if shares else "n/a"


def _share(gain: float, best: float) -> str:
    return f"{gain / best:.0%}" if best > 0 else "n/a"


def kept_by(versions: Sequence[Version], rule: Rule) -> dict[tuple[str, str], Version]:
    """Program and kernel → the version that the rule keeps."""
    chosen = (next((each for each in offered if rule(each)), None) for offered in by_kernel(versions))
    return {(each.program, each.kernel): each for each in chosen if each is not None}


def best_gain(offered: Sequence[Version]) -> float:
    """The logarithm of the ratio of the fastest version, 0 if it is not faster by more than 1 %. It is chosen in one
    run; the ratio is that of the other one, if there is another one."""
    gains: list[float] = []
    for run in range(len(offered[0].ratios)):
        fastest = max(offered, key=lambda version: version.ratios[run])
        gains.append(math.log(fastest.ratios[run - 1]) if fastest.ratios[run] > 1 + EFFECT else 0.0)
    return statistics.fmean(gains)


def with_another_run(versions: Sequence[Version], others: Sequence[Version]) -> list[Version]:
    """The versions that have times in both runs."""
    again = {(each.program, each.kernel, each.arms): each for each in others}
    found = ((each, again.get((each.program, each.kernel, each.arms))) for each in versions)
    return [replace(each, again=other) for each, other in found if other is not None]


def steady(versions: Sequence[Version], by: float) -> list[Version]:
    """The versions of the kernels all of whose versions are steady."""
    unsteady = {(each.program, each.kernel) for each in versions if not each.is_steady(by)}
    return [each for each in versions if (each.program, each.kernel) not in unsteady]


def first_kernels(versions: Sequence[Version], most: int) -> list[Version]:
    """The versions of the first ``most`` kernels of each program by name, of those that an arm changes."""
    kernels: dict[str, set[str]] = defaultdict(set)
    for offered in by_kernel(versions):
        kernels[offered[0].program].add(offered[0].kernel)
    first = {program: sorted(names)[:most] for program, names in kernels.items()}
    return [each for each in versions if each.kernel in first.get(each.program, [])]


def report(versions: Sequence[Version], rule: Rule) -> Report:
    """Apply a rule to the versions of each kernel."""
    kernels = by_kernel(versions)
    found = kept_by(versions, rule)
    kept = list(found.values())
    best: list[float] = []
    of_programs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for offered in kernels:
        best.append(best_gain(offered))
        version = found.get((offered[0].program, offered[0].kernel))
        of_programs[offered[0].program].append((version.gain if version is not None else 0.0, best[-1]))
    return Report(
        len(kernels),
        len(kept),
        sum(is_slower(each) for each in kept),
        sum(min(each.ratios) > 1 + EFFECT for each in kept),
        math.exp(min((each.gain for each in kept), default=0.0)),
        math.exp(sum(each.gain for each in kept) / max(1, len(kernels))),
        math.exp(sum(best) / max(1, len(kernels))),
        tuple((sum(x for x, _ in each), sum(y for _, y in each), len(each)) for each in of_programs.values()),
    )


def is_slower(version: Version) -> bool:
    """Whether a version is slower by more than 1 % in each run."""
    return max(version.ratios) < 1 - EFFECT


def of_the_gate(version: Version) -> bool:
    """The rule of the gate."""
    return is_better(version.before, version.after)


def of_the_gate_before(version: Version) -> bool:
    """Any gain that can be resolved decides, and fewer resident warps count in the model only."""
    with patch.object(cost, "LEAST_GAIN", cost.RESOLUTION), patch.object(cost, "RESERVE", 0.0):
        return of_the_gate(version)


def without(version: Version, *figures: str) -> bool:
    """The rule of the gate if it does not know these figures."""
    unknown: dict[str, Any] = dict.fromkeys(figures)
    return is_better(replace(version.before, **unknown), replace(version.after, **unknown))


RULES: dict[str, Rule] = {
    "everything": lambda version: True,
    "the gate before": of_the_gate_before,
    "the gate": of_the_gate,
    "without loops": lambda version: without(version, *OF_LOOPS),
    "latencies of loops": lambda version: without(version, "weight_in_loops"),
    "the arm gated": lambda version: "gated" in version.arms,
    "gated, better": lambda version: "gated" in version.arms and without(version, *OF_LOOPS),
}

#: Up to how many warps per scheduler a version is preferred, `None` for any number.
Limit = Callable[[Version], "int | None"]


def by_model(version: Version) -> int | None:
    """The limit of the cost model."""
    return preferred_warps(version.before, version.after)


LIMITS: dict[str, Limit] = {
    "always": lambda version: None,
    "at most 4 warps": lambda version: 4,
    "the model": by_model,
}


def preferences(versions: Iterable[Version], limit: Limit) -> str:
    """The row of a limit: launches, those for which it prefers hoisted loads, slower and faster ones of these, the
    slowest, and the share of the gain. Launches of one kernel count together as one."""
    launches = taken = slower = faster = 0
    gain = best = 0.0
    worst = 1.0
    for version in versions:
        if "hoisted" not in version.arms:
            continue
        most = limit(version)
        share = 1 / len(version.launches)
        for each in version.launches:
            launches += 1
            best += share * max(0.0, math.log(each.ratio))
            if most is None or each.warps(version.before) <= most:
                taken += 1
                slower += each.ratio < 1 - EFFECT
                faster += each.ratio > 1 + EFFECT
                worst = min(worst, each.ratio)
                gain += share * math.log(each.ratio)
    return f"{launches} | {taken} | {slower} | {faster} | {worst:.3f} | {gain / best if best else 1:.0%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--fit", action="store_true", help="other thresholds, on the first half")
    group.add_argument("--unseen", action="store_true", help="no threshold was chosen on these programs: no halves")
    parser.add_argument("--verbose", action="store_true", help="each version as well")
    parser.add_argument("--again", type=Path, metavar="FILE", help="the table of another run")
    parser.add_argument("--shortest", type=float, default=0, metavar="NANOSECONDS", help="leave out shorter kernels")
    parser.add_argument("--most", type=int, default=0, metavar="KERNELS", help="count so many kernels of a program")
    parser.add_argument("--steady", type=float, metavar="SHARE", help="leave out kernels whose rounds differ by more")
    parser.add_argument("--without", action="append", default=[], metavar="PROGRAM", help="leave out a program")
    arguments = parser.parse_args()
    versions, others = (
        [
            each
            for table in str(tables).split(",")
            for each in read(Path(table))
            if each.program not in arguments.without and each.nanoseconds >= arguments.shortest
        ]
        for tables in (arguments.table, arguments.again or arguments.table)
    )
    if arguments.again:
        versions = with_another_run(versions, others)
    if arguments.steady is not None:
        versions = steady(versions, arguments.steady)
    if arguments.most:
        versions = first_kernels(versions, arguments.most)
    groups = {
        name: [each for each in versions if is_first_half(each.program) is (name == "first")]
        for name in ("first", "other")
    }
    if arguments.unseen:
        groups = {"unseen": versions}
    for name, of in groups.items():
        print(f"{name}: {len({each.program for each in of})} programs, {len(of)} versions of kernels")
    for table in str(arguments.table).split(","):
        print(spread(equal_code(Path(table), arguments.shortest)))
    if arguments.verbose:
        print_versions(versions)
    print("\n| rule | programs | kernels | kept | slower | faster | worst | gain | best | share | programs | 90 % |")
    print("| --- " * 12 + "|")
    for name, rule in RULES.items():
        for half, of in groups.items():
            print(f"| {name} | {half} | {report(of, rule).row()} |")
    if arguments.again:
        print_slower_again(versions)
    if arguments.fit:
        for least in (0.001, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.01, 0.02):
            with patch.object(cost, "LEAST_GAIN", least):
                print(f"| least gain {least:.2%} | first | {report(groups['first'], of_the_gate).row()} |")
    print("\n| hoisted loads preferred | programs | launches | preferred | slower | faster | worst | share |")
    print("| --- " * 8 + "|")
    for name, limit in LIMITS.items():
        for half, of in groups.items():
            print(f"| {name} | {half} | {preferences(of, limit)} |")
    if arguments.fit:
        for least, reserve in itertools.product((0.0025, 0.005, 0.01, 0.02, 0.05), (1.0, 2.0, 4.0, 8.0)):
            with patch.object(cost, "LEAST_PREFERENCE", least), patch.object(cost, "RESERVE_TO_HOIST", reserve):
                print(
                    f"| gain of {least:.2%}, reserve {reserve:g} | first | {preferences(groups['first'], by_model)} |"
                )
    return 0


def print_slower_again(versions: Sequence[Version]) -> None:
    """For each rule, the kernels that it keeps and that are slower in both runs."""
    print()
    for name, rule in RULES.items():
        kept = kept_by(versions, rule).values()
        slower = [each for each in kept if is_slower(each)]
        named = "".join(f"; {each.program} {each.kernel[:40]}" for each in slower)
        print(
            f"{name}: {len(kept)} kernels are kept, {len(slower)} of them slower by more than 1 % in both runs{named}"
        )


def print_versions(versions: Iterable[Version]) -> None:
    """Each version with its figures, after divided by before."""
    print(
        "\n| ratio | program | kernel | arms | kept | cycles | full | weight | registers | resident warps | launched |"
    )
    print("| --- " * 11 + "|")
    for each in sorted(versions, key=lambda version: version.ratio):
        before, after = each.before, each.after
        figures = (after.cycles / before.cycles, after.full / before.full, after.weight / before.weight)
        launched = [launch.warps(before) for launch in each.launches]
        cells = [
            ", ".join(f"{ratio:.3f}" for ratio in each.ratios),
            each.program,
            each.kernel[:30],
            " ".join(each.arms),
            "yes" if of_the_gate(each) else "no",
            *(f"{figure:.4f}" for figure in figures),
            f"{before.registers} → {after.registers}",
            f"{before.warps:.0f} → {after.warps:.0f}",
            f"{min(launched)}–{max(launched)}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main())
