"""Tunes contracts: times the versions of kernels in the launches of a host program, and keeps what was faster.

1. *Trials*: for each module of the program, the versions and what further options make of each kernel
   (`tuning_trials`).
2. *Launches*: the program runs twice under observation. For each kernel and each of its most frequent classes of
   launches, by the number of threads, up to `LAUNCHES` launches are kept with the memory that they find.
3. *Timing*: the trials whose conditions hold in these launches are checked and timed against the kernel by the protocol
   of the harness (`harness.session`).
4. *Decision*: a trial is preferred in a class if its verdict is `FASTER`, and the baseline was equal to itself.

Without a machine that times, nothing is timed: the contract is that of `-O3`, in which the gate decides.

Requires: a host program that makes the same launches in each run. Guarantees: a version computes the same in every
launch for which its conditions hold, whatever was measured; a trial that computed something else in a launch is not in
the module, and is reported.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..contract import Contract, LaunchClass, TunedMachine, Tuning
from ..harness.launch_work import LaunchWork, ObservedLaunch, Snapshot
from ..harness.session import Session, Task
from ..harness.worker import Worker
from ..harness.workload import Arm, Work
from .tuning_trials import ModuleTrials, Trial

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.protocol import Plan
    from ..harness.results import BenchmarkResult, ResultFile

__all__ = [
    "CLASSES",
    "LAUNCHES",
    "ClassResult",
    "TunedModule",
    "Tuner",
    "class_of",
    "digest_name",
    "digest_of",
    "recorded_works",
    "wanted_launches",
]

#: The most launches of a class that are timed, one after another.
LAUNCHES = 3
#: The most classes of a kernel that are timed: those with the most threads in all.
CLASSES = 4
#: The most bytes of the buffers of a class, beside those of its first launch.
MOST_BYTES = 1 << 30
#: The name of the kernel itself among the arms.
KERNEL = "kernel"


def class_of(threads: int) -> tuple[int, int]:
    """The least and the most threads of the class of a launch: from a power of four up to the next one.

    >>> class_of(1), class_of(256), class_of(1023)
    ((1, 3), (256, 1023), (256, 1023))
    """
    least = 1 << ((max(threads, 1).bit_length() - 1) // 2 * 2)
    return least, 4 * least - 1


@dataclass(frozen=True)
class ClassResult:
    """What was measured for a class of launches of a kernel. ``verdicts`` maps the name of a trial to its verdict and
    its speedup; a trial whose conditions do not hold has the verdict `CONDITIONS`."""

    kernel: str
    least: int
    most: int
    launches: int
    verdicts: Mapping[str, tuple[str, float | None]]
    preferred: tuple[str, ...]


@dataclass(frozen=True)
class TunedModule:
    """A tuned module: a name for its files, its PTX, its contract, and what was measured."""

    name: str
    ptx: str
    contract: Contract
    results: tuple[ClassResult, ...] = ()


@dataclass
class Tuner:
    """Tunes the modules of works on a machine. ``assembler`` assembles arms (`bench_session.assembler_for`), ``info``
    describes the machine, ``new_result`` makes the result file, ``report`` receives lines of progress.

    ``today`` is the date of the tunings; by default that of the call. ``former``: by digest of a module (`digest_of`)
    the contract that an earlier run has made of it. Its tunings for other machines are kept.
    """

    machine: Machine
    plan: Plan
    info: Mapping[str, Any]
    assembler: Callable[[Mapping[str, str]], Any]
    new_result: Callable[[], ResultFile]
    report: Callable[[str], None] = lambda line: None
    arch: str | None = None
    path: Path | None = None
    limit: float = 300.0
    today: str = ""
    former: Mapping[str, Contract] = field(default_factory=dict[str, Contract])

    def tune(self, work: Work, modules: Mapping[str, str]) -> list[TunedModule]:
        """Tune the modules of a work, by name. Raises `WorkerError`, `MachineMissing`, and what `optimize` raises."""
        trials = self._trials(modules)
        works = self.record(work, modules) if self.machine.stopwatch else []
        return self._tuned(trials, works)

    def tune_nothing(self, modules: Mapping[str, str]) -> list[TunedModule]:
        """The modules with the contracts of `-O3`, in which the gate decides."""
        return self._tuned(self._trials(modules), [])

    def tune_recorded(self, works: Sequence[LaunchWork]) -> list[TunedModule]:
        """Tune the modules of recorded launches. Raises what `tune` raises."""
        modules = {each.kernel: each.ptx for work in works for each in work.launches}
        return self._tuned(self._trials(modules), _united(works) if self.machine.stopwatch else [])

    def record(self, work: Work, modules: Mapping[str, str]) -> list[LaunchWork]:
        """The launches of a work that are timed, as works of their own. Raises `WorkerError`, `MachineMissing`."""
        arm = Arm("given", dict(modules))
        seed = self.plan.seeds[0]
        with Worker(self.machine) as worker:
            seen = worker.observe(work, arm, seed, self.limit)
            wanted = wanted_launches(seen)
            numbers = [number for group in wanted.values() for number in group]
            kept = worker.snapshots(work, arm, seed, numbers, self.limit) if numbers else {}
        return recorded_works(work.fullname, seen, wanted, kept)

    def _trials(self, modules: Mapping[str, str]) -> dict[str, tuple[str, ModuleTrials]]:
        """By the PTX of a module its name and its trials."""
        found: dict[str, tuple[str, ModuleTrials]] = {}
        for name, ptx in modules.items():
            if ptx not in found:
                found[ptx] = digest_name(name, ptx), ModuleTrials.of(ptx, self.arch)
                self.report(f"{name}: {sum(map(len, found[ptx][1].trials.values()))} trials")
        return found

    def _tuned(self, trials: Mapping[str, tuple[str, ModuleTrials]], works: Sequence[LaunchWork]) -> list[TunedModule]:
        valid = {each.fullname: _valid(trials[each.launches[0].ptx][1], each) for each in works}
        tasks = [self._task(trials[each.launches[0].ptx][1], each, valid[each.fullname]) for each in works]
        timed = self._time(tasks) if tasks else {}
        made: list[TunedModule] = []
        for ptx, (name, module) in trials.items():
            own = [each for each in works if each.launches[0].ptx == ptx]
            made.append(self._decided(name, module, own, valid, timed))
        return made

    def _task(self, module: ModuleTrials, work: LaunchWork, valid: Sequence[Trial]) -> Task:
        kernel = work.launches[0].kernel

        def make() -> tuple[Work, Sequence[Arm]]:
            arms: list[Arm] = []
            for trial in (None, *valid):
                text, contract = module.arm(kernel, trial)
                contracts = {text: contract} if contract else {}
                arms.append(Arm(trial.name if trial else KERNEL, {work.module: text}, contracts=contracts))
            return work, arms

        return Task(work.fullname, make)

    def _time(self, tasks: Sequence[Task]) -> dict[str, BenchmarkResult]:
        session = Session(
            self.machine, self.plan, self.new_result(), assembler=self.assembler, path=self.path, report=self.report
        )
        return {each.fullname: each for each in session.run(tasks).benchmarks}

    def _decided(
        self,
        name: str,
        module: ModuleTrials,
        works: Sequence[LaunchWork],
        valid: Mapping[str, Sequence[Trial]],
        timed: Mapping[str, BenchmarkResult],
    ) -> TunedModule:
        """The tuned module, from what was measured."""
        results: list[ClassResult] = []
        refused: dict[str, list[Trial]] = {}
        for work in works:
            kernel = work.launches[0].kernel
            benchmark = timed[work.fullname]
            outcome = _verdicts(benchmark, valid[work.fullname], module.trials[kernel])
            wrong = [each for each in module.trials[kernel] if outcome[each.name][0] == "MISMATCH"]
            refused.setdefault(kernel, []).extend(wrong)
            least, most = class_of(work.launches[0].threads)
            results.append(ClassResult(kernel, least, most, len(work.launches), outcome, ()))
        results = [_with_preferred(each, module, refused.get(each.kernel, ())) for each in results]
        tunings = module.earlier(self.former[digest]) if (digest := digest_of(module.given)) in self.former else {}
        for kernel in dict.fromkeys(each.kernel for each in results):
            own = sorted((each for each in results if each.kernel == kernel), key=lambda each: each.least)
            tuning = Tuning(self._machine(), self._driver(), self._date(), tuple(map(_launch_class, own)))
            others = [each for each in tunings.get(kernel, []) if each.machine != tuning.machine]
            tunings[kernel] = [*others, tuning]
        kept: dict[str, list[Trial]] = {}
        for kernel, several in tunings.items():
            wanted = {entry for each in several for one in each.classes for entry in one.preferred}
            wrong = {each.name for each in refused.get(kernel, ())}
            trials = [each for each in module.trials[kernel] if each.name in wanted - wrong and not each.entry]
            kept[kernel] = trials
        text, contract = module.tuned(kept, tunings, refused)
        return TunedModule(name, text, contract, tuple(results))

    def _machine(self) -> TunedMachine:
        return TunedMachine(str(self.info["gpu"]), int(self.info["multiprocessors"]))

    def _driver(self) -> str:
        return str(self.info.get("driver") or self.info.get("driver_cuda") or "unknown")

    def _date(self) -> str:
        return self.today or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def digest_name(name: str, ptx: str) -> str:
    """A name for the files of a tuned module, which contains a digest of the PTX that it was made of."""
    return f"{re.sub(r'[^A-Za-z0-9_]+', '_', name)}-{digest_of(ptx)}"


def digest_of(ptx: str) -> str:
    """A digest of PTX, for names of files."""
    return sha256(ptx.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def wanted_launches(seen: Sequence[ObservedLaunch]) -> dict[tuple[str, str, int], list[int]]:
    """By module, kernel and least number of threads of a class, the numbers of the launches to be kept."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, each in enumerate(seen):
        groups.setdefault((each.ptx, each.kernel, class_of(each.threads)[0]), []).append(number)
    chosen: dict[tuple[str, str, int], list[int]] = {}
    for ptx, kernel in dict.fromkeys((each.ptx, each.kernel) for each in seen):
        own = {key: numbers for key, numbers in groups.items() if key[:2] == (ptx, kernel)}
        largest = sorted(own, key=lambda key: -sum(seen[number].threads for number in own[key]))[:CLASSES]
        for key in largest:
            numbers, count = own[key], min(LAUNCHES, len(own[key]))
            chosen[key] = [numbers[(2 * place + 1) * len(numbers) // (2 * count)] for place in range(count)]
    return chosen


def recorded_works(
    program: str,
    seen: Sequence[ObservedLaunch],
    wanted: Mapping[tuple[str, str, int], Sequence[int]],
    kept: Mapping[int, Snapshot],
) -> list[LaunchWork]:
    """A work for each class of launches, of the snapshots that are of the wanted kernel and class."""
    works: list[LaunchWork] = []
    for (ptx, kernel, least), numbers in wanted.items():
        launches: list[Snapshot] = []
        for number in numbers:
            each = kept.get(number)
            if each is None or (each.ptx, each.kernel, class_of(each.threads)[0]) != (ptx, kernel, least):
                continue
            if not launches or sum(one.nbytes for one in (*launches, each)) <= MOST_BYTES:
                launches.append(each)
        if launches:
            params = {"kernel": kernel, "least_threads": least, "launches": len(launches)}
            works.append(LaunchWork(f"{program}/{kernel}/{least}", tuple(launches), params))
    return works


def _united(works: Sequence[LaunchWork]) -> list[LaunchWork]:
    """The works, with one for all launches of a class of a kernel."""
    found: dict[tuple[str, str, int], LaunchWork] = {}
    for each in works:
        first = each.launches[0]
        key = first.ptx, first.kernel, class_of(first.threads)[0]
        former = found.get(key)
        found[key] = each if former is None else replace(former, launches=(*former.launches, *each.launches))
    return list(found.values())


def _valid(module: ModuleTrials, work: LaunchWork) -> list[Trial]:
    """The trials whose conditions hold in all launches of a work."""
    contract = module.contract.kernels[work.launches[0].kernel]
    facts = [each.facts(contract) for each in work.launches]
    return [each for each in module.trials[contract.name] if all(map(each.is_valid, facts))]


def _verdicts(
    benchmark: BenchmarkResult, valid: Sequence[Trial], trials: Sequence[Trial]
) -> dict[str, tuple[str, float | None]]:
    """By name of a trial its verdict and its speedup."""
    names = {each.name for each in valid}
    found: dict[str, tuple[str, float | None]] = {
        each.name: ("INVALID" if each.name in names else "CONDITIONS", None) for each in trials
    }
    for each in benchmark.candidates:
        is_counted = benchmark.gates or each.verdict not in ("FASTER", "SLOWER", "SAME")
        found[each.candidate] = (each.verdict if is_counted else "INVALID"), each.speedup
    return found


def _with_preferred(result: ClassResult, module: ModuleTrials, refused: Sequence[Trial]) -> ClassResult:
    """The result with the trials that are preferred.

    At a launch the first preferred version whose conditions hold is taken. So a trial that is slower than the best one
    is preferred only if its versions stand behind those of the faster ones.
    """
    wrong = {each.name for each in refused}
    order = {each.name: place for place, each in enumerate(sorted(module.trials[result.kernel], key=_place))}
    faster = [
        (speedup, name)
        for name, (verdict, speedup) in result.verdicts.items()
        if verdict == "FASTER" and speedup is not None and name not in wrong
    ]
    preferred: list[str] = []
    for _, name in sorted(faster, reverse=True):
        if all(order[name] > order[other] for other in preferred):
            preferred.append(name)
    return replace(result, preferred=tuple(preferred))


def _place(trial: Trial) -> int:
    """Where the versions of a trial stand: first further options with conditions, then the versions of `-O3`, then
    further options without conditions. `ModuleTrials.tuned` puts them there."""
    return 1 if trial.entry else 2 if trial.is_always_valid else 0


def _launch_class(result: ClassResult) -> LaunchClass:
    speedups = {name: round(speedup, 4) for name, (_, speedup) in result.verdicts.items() if speedup is not None}
    return LaunchClass(result.least, result.most, result.preferred, speedups)
