"""The gate against times of public programs: which kernels it keeps, and how much faster or slower these are.

    python docs/experiments/gate_public.py docs/experiments/gate_public.csv [--fit] [--verbose]

The table is that of `kernel_times.py`. The programs are split into two halves by a hash of their names. `--fit`
searches the parameters of the model on the first half. Each rule is reported on both:

    kept       kernels of which the rule keeps a version; how many of them are slower, and faster, by more than 1 %
    worst      the slowest of them
    gain       the geometric mean of all kernels that some arm changes, if each one is as the rule keeps it
    best       the same for the fastest version of each kernel, nvcc's code included
    share      the part of the logarithm of `best` that the rule keeps

A kernel is counted once. Its ratio is that of the times of all its launches. The versions that a rule may keep are
those of `gated` and `O3`; the first that it accepts is kept, in the order `O3`, `gated`. `best` is over these, too.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxmotion.contract.conditions import warps_per_scheduler
from ptxmotion.cost import Figures, is_better
from ptxmotion.toolchain.occupancy import occupancy

#: The GPU of the table: an H200.
_SM = 90
_MULTIPROCESSORS = 132

#: A difference of time that counts.
EFFECT = 0.01
LEGAL = ("O3", "gated", "ssrqp", "lcm", "sscm")
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
        return warps_per_scheduler((self.blocks, 1, 1), (self.threads, 1, 1), _MULTIPROCESSORS, max(blocks, 1))


@dataclass(frozen=True)
class Version:
    """One machine code of a kernel, beside that of nvcc."""

    program: str
    kernel: str
    arms: tuple[str, ...]
    before: Figures
    after: Figures
    launches: tuple[Launch, ...]
    extra: dict[str, float]

    @property
    def ratio(self) -> float:
        """The time of all launches before, divided by that after."""
        before = sum(each.launches * each.nanoseconds for each in self.launches)
        return before / sum(each.launches * each.nanoseconds / each.ratio for each in self.launches)


Rule = Callable[[Version], bool]


def read(path: Path) -> list[Version]:
    """The versions of the table, without those of nvcc."""
    found: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            if "nvcc" not in row["arms"].split():
                found[row["program"], row["kernel"], row["arms"]].append(row)
    return [_version(rows) for rows in found.values()]


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
    extra = {name: float(value) for name, value in first.items() if name.endswith(("_before", "_after"))}
    return Version(first["program"], first["kernel"], tuple(first["arms"].split()), *figures, tuple(launches), extra)


def _product(text: str) -> int:
    return math.prod(map(int, text.split(",")))


def is_first_half(program: str) -> bool:
    return hashlib.sha256(f"half {program}".encode()).digest()[0] % 2 == 0


def by_kernel(versions: Iterable[Version]) -> list[list[Version]]:
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
    kernels: int
    kept: int
    slower: int
    faster: int
    worst: float
    gain: float
    best: float

    @property
    def share(self) -> float:
        return math.log(self.gain) / math.log(self.best)

    def row(self) -> str:
        figures = f"{self.kernels} | {self.kept} | {self.slower} | {self.faster} | {self.worst:.3f}"
        return f"{figures} | {self.gain:.4f} | {self.best:.4f} | {self.share:.0%}"


def report(versions: Iterable[Version], rule: Rule) -> Report:
    kept: list[float] = []
    best: list[float] = []
    kernels = by_kernel(versions)
    for offered in kernels:
        chosen = next((each for each in offered if rule(each)), None)
        if chosen is not None:
            kept.append(chosen.ratio)
        best.append(max(1.0, *(each.ratio for each in offered)))
    return Report(
        len(kernels),
        len(kept),
        sum(each < 1 - EFFECT for each in kept),
        sum(each > 1 + EFFECT for each in kept),
        min(kept, default=1.0),
        math.exp(sum(map(math.log, kept)) / max(1, len(kernels))),
        math.exp(sum(map(math.log, best)) / max(1, len(kernels))),
    )


def current(version: Version) -> bool:
    return is_better(version.before, version.after)


RULES: dict[str, Rule] = {"everything": lambda version: True, "the gate": current}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--verbose", action="store_true", help="each version as well")
    arguments = parser.parse_args()
    versions = read(arguments.table)
    halves = [[each for each in versions if is_first_half(each.program) is first] for first in (True, False)]
    print("| rule | half | kernels | kept | slower | faster | worst | gain | best | share |")
    print("| --- " * 10 + "|")
    for name, rule in RULES.items():
        for half, of in zip(("fitted", "other"), halves, strict=True):
            print(f"| {name} | {half} | {report(of, rule).row()} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
