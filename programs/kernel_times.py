"""Times of the kernels of programs that are not changed: of one command, or of two commands that are compared.

A command is executed as it is. The driver loads `injection/kernel_times.c` into each of its processes that uses CUDA,
and CUPTI records how long each launch took on the GPU.

For a comparison, three arms are executed in each round, in a random order: the command before, the same command again,
and the other one. The figure of an arm in a round is the mean time of a launch of the kernel. The verdict is that of
`harness.stats`. If the command before is not SAME as itself, the verdict is INCONCLUSIVE.

Requires: commands that launch the same kernels each time they are executed; Linux, the library, and libcupti.
Guarantees: a version of a kernel (`versions/`) counts as its kernel.
Refuses: a command that fails, or of which no launch was recorded.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..toolchain.places import system_folders, wheel_folders
from .errors import BadInput, BadRequest, RequirementMissing

if TYPE_CHECKING:
    from ..harness.stats import Estimate

__all__ = ["Comparison", "KernelTime", "Recorder", "compared", "find_cupti"]

#: What a contract appends to the name of a kernel for a version in a program that nvcc builds.
_VERSION = re.compile(r"__ptxmotion_\d+(_[0-9a-f]{16})?$")

#: The last bytes of the messages of a program that failed.
_SHOWN = 2000

_MESSAGE = "kernel_times: "

#: The version in the name of a library.
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class KernelTime:
    """The launches of a kernel in one execution, and their seconds on the GPU altogether."""

    launches: int
    seconds: float

    @property
    def mean(self) -> float:
        """The mean seconds of a launch."""
        return self.seconds / self.launches


@dataclass(frozen=True)
class Comparison:
    """A kernel of two commands. ``before`` and ``after`` are the seconds of a launch, the median of all rounds;
    ``launches`` are those of an execution, the median of all rounds. ``control`` compares the command before with
    itself."""

    kernel: str
    launches: tuple[float, float]
    before: float
    after: float
    estimate: Estimate
    control: Estimate

    @property
    def verdict(self) -> str:
        """INCONCLUSIVE if the command before differs from itself."""
        is_stable = self.control.verdict == "SAME"
        return str(self.estimate.verdict) if is_stable else "INCONCLUSIVE"


class Recorder:
    """Executes commands and records their launches. ``warn`` gets messages of CUPTI."""

    def __init__(self, library: str, cupti: str, warn: Callable[[str], None]) -> None:
        self._library = library
        self._cupti = cupti
        self._warn = warn

    def executed(self, command: Sequence[str]) -> dict[str, KernelTime]:
        """The kernels of one execution, by their names in PTX. Raises `BadInput`, `BadRequest`, `OSError`."""
        if other := os.environ.get("CUDA_INJECTION64_PATH"):
            raise BadRequest(f"CUDA_INJECTION64_PATH is set to {other}, and the driver loads only one such library")
        with tempfile.TemporaryDirectory(prefix="ptxmotion-times-") as folder:
            lines = os.path.join(folder, "times.tsv")
            own = {"CUDA_INJECTION64_PATH": self._library, "KERNEL_TIMES_CUPTI": self._cupti, "KERNEL_TIMES_OUT": lines}
            with open(os.path.join(folder, "output"), "w+b") as output:
                done = subprocess.run(
                    command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
                output.seek(max(0, output.tell() - _SHOWN))
                text = output.read().decode("utf-8", "replace")
            for line in text.splitlines():
                if line.startswith(_MESSAGE):
                    self._warn(line.removeprefix(_MESSAGE))
            if done.returncode:
                status = f"the program ended with exit status {done.returncode}; its last output:"
                raise BadInput(f"{status}\n{text}", command[0])
            found = kernels_of(Path(lines)) if os.path.exists(lines) else {}
        if not found:
            reasons = "it launches none, ends without exit handlers, or uses CUPTI itself"
            raise BadInput(f"no launch of a kernel was recorded: {reasons}", command[0])
        return found


def kernels_of(path: Path) -> dict[str, KernelTime]:
    """The kernels in a file that the library has written."""
    sums: dict[str, list[int]] = {}
    for line in path.read_text("utf-8", "replace").splitlines():
        name, *_, nanoseconds = line.split("\t")
        pair = sums.setdefault(_VERSION.sub("", name), [0, 0])
        pair[0] += 1
        pair[1] += int(nanoseconds)
    return {name: KernelTime(launches, time / 1e9) for name, (launches, time) in sums.items() if time}


def compared(
    before: Callable[[], Mapping[str, KernelTime]],
    after: Callable[[], Mapping[str, KernelTime]],
    rounds: int,
    show: Callable[[int], None],
) -> tuple[list[Comparison], list[str]]:
    """Execute and compare two commands in ``rounds``. The kernels that take the most time come first. The second list
    has those that are not in each execution of both. ``show`` gets the number of rounds that have ended."""
    arms = {"before": before, "again": before, "after": after}
    shuffled = random.Random(0)
    runs: dict[str, list[Mapping[str, KernelTime]]] = {name: [] for name in arms}
    for number in range(rounds):
        show(number)
        for name in shuffled.sample(sorted(arms), len(arms)):
            runs[name].append(arms[name]())
    every = [run for each in runs.values() for run in each]
    names = dict.fromkeys(name for run in every for name in run)
    shared = [name for name in names if all(name in run for run in every)]
    rows = [_comparison(name, runs) for name in shared]
    rows.sort(key=lambda row: row.before * row.launches[0], reverse=True)
    return rows, [name for name in names if name not in shared]


def _comparison(name: str, runs: Mapping[str, Sequence[Mapping[str, KernelTime]]]) -> Comparison:
    from statistics import median

    from ..harness.stats import estimate

    means = {arm: [[run[name].mean] for run in each] for arm, each in runs.items()}
    keep = [True] * len(runs["before"])
    launches = [median(run[name].launches for run in runs[arm]) for arm in ("before", "after")]
    return Comparison(
        kernel=name,
        launches=(launches[0], launches[1]),
        before=median(value for (value,) in means["before"]),
        after=median(value for (value,) in means["after"]),
        estimate=estimate(means["before"], means["after"], keep),
        control=estimate(means["before"], means["again"], keep),
    )


def find_cupti() -> str:
    """The path of libcupti: that in KERNEL_TIMES_CUPTI, of NVIDIA's wheels, or of an installed CUDA. Raises
    `RequirementMissing`."""
    if own := os.environ.get("KERNEL_TIMES_CUPTI"):
        return own
    roots = [Path(folder).parent for folder in (*wheel_folders(), *system_folders())]
    places = [root / each for root in roots for each in ("lib", "extras/CUPTI/lib64", "lib64")]
    for folder in dict.fromkeys(places):
        found = sorted(folder.glob("libcupti.so.*"), key=lambda path: [int(n) for n in _NUMBERS.findall(path.name)])
        if found:
            return str(found[-1])
    raise RequirementMissing(
        "libcupti is missing: install nvidia-cuda-cupti, or name the library in KERNEL_TIMES_CUPTI"
    )
