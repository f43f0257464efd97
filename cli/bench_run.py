"""`bench run`: from arguments to a session, its progress, its table, its exit code."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arch import target_of_sm
from .bench import dsl_errors, read_result
from .outcome import BAD_INPUT, DIFFERENT, FINE, MISSING, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.protocol import Plan
    from ..harness.results import ResultFile
    from ..harness.session import Task
    from ..programs.variants import Variant, Variants
    from ..suites.registry import Benchmark

__all__ = ["run_benchmarks"]


def run_benchmarks(arguments: argparse.Namespace) -> int:
    """Run; the exit code: 1 for a mismatch, 3 where a benchmark could not be run, 4 without machine or disk."""
    from ..harness.machine import MachineMissing

    plan, variants = _plan(arguments), _variants(arguments)
    if arguments.resume and not arguments.output:
        usage_error("--resume needs --json: the file to go on with")
    with dsl_errors():
        from ..programs.tasks import select

        programs = select(arguments.names, arguments.pattern)
    if not programs:
        usage_error(f"no program's name matches '{arguments.pattern}'")
    try:
        return _on_machine(arguments, plan, variants, programs)
    except MachineMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from error


def _on_machine(
    arguments: argparse.Namespace,
    plan: Plan,
    variants: Sequence[Variant],
    programs: Sequence[tuple[Benchmark, str]],
) -> int:
    from ..harness.machine import choose
    from ..programs.variants import Variants

    machine, count, why = choose(arguments.backend, arguments.require_gpu)
    say(why)
    size = arguments.size or ("full" if machine.stopwatch else "tiny")
    for benchmark, _ in programs:
        if size not in benchmark.sizes:
            usage_error(f"{benchmark.fullname} has no size '{size}'; there are {', '.join(benchmark.sizes)}")
    if arguments.dry_run:
        for benchmark, _ in programs:
            print(f"{benchmark.fullname} {size}: {', '.join(each.id for each in variants)}")
        return FINE
    told = _describe(machine)
    if count > 1 and machine.stopwatch:
        told["gpus"] = count
    with Variants() as maker:
        tasks = _tasks(arguments, programs, size, variants, maker, told)
        if arguments.profile:
            return _profile(machine, tasks)
        jobs = arguments.jobs or _jobs(machine, count, os.cpu_count() or 1)
        return _session(arguments, plan, machine, (jobs, count), tasks, told, variants)


def _jobs(machine: Machine, count: int, cores: int) -> int:
    """How many programs are under way at a time: on a GPU some are checked beside each other, and one alone is timed.

    >>> from ptxmotion.harness.machine import CUDA, EMULATOR
    >>> [_jobs(CUDA, *each) for each in ((1, 2), (1, 16), (2, 32))], _jobs(EMULATOR, 1, 2)
    ([1, 4, 8], 2)
    """
    return count * min(4, max(1, cores // (4 * count))) if machine.stopwatch else cores


def _plan(arguments: argparse.Namespace) -> Plan:
    from ..harness.protocol import Plan
    from ..harness.stats import Rule

    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", arguments.min_effect)
    if found is None or not 0 < float(found[1]) < 100:
        usage_error(f"--min-effect: '{arguments.min_effect}' is no share: 1% is the form")
    rule = Rule(min_effect=float(found[1]) / 100)
    seeds = tuple(range(1, arguments.seeds + 1))
    return Plan(rounds=arguments.rounds, samples=arguments.samples, seeds=seeds, rule=rule)


def _variants(arguments: argparse.Namespace) -> list[Variant]:
    from ..programs.variants import DEFAULT, VariantError, parse_variants

    try:
        given = (arguments.baseline, *(arguments.variant or [DEFAULT]))
        found = [variant for each in given for variant in parse_variants(each)]
    except VariantError as error:
        usage_error(str(error))
    if arguments.launch != "auto":
        found = [replace(each, launch=arguments.launch) if each.launch == "auto" else each for each in found]
    names = [each.id for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        usage_error(f"two variants are called '{twice[0]}': name one with NAME=SPEC")
    return found


def _tasks(
    arguments: argparse.Namespace,
    programs: Sequence[tuple[Benchmark, str]],
    size: str,
    variants: Sequence[Variant],
    maker: Variants,
    told: dict[str, Any],
) -> list[Task]:
    from ..programs.tasks import task_of

    sm = told.get("compute_capability")
    arch = arguments.arch or target_of_sm(sm or None)

    @cache
    def nvcc() -> Any:
        from ..suites.runner import compiler

        return compiler(arch)

    return [task_of(benchmark, file, size, variants, maker, nvcc) for benchmark, file in programs]


def _describe(machine: Machine) -> dict[str, Any]:
    """The machine, and the computer that it is in."""
    from ..harness.worker import Worker

    told: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": sys.version.split()[0],
    }
    if machine.stopwatch:
        with Worker(machine) as worker:
            told |= worker.describe(120.0)
        if told.get("processes"):
            say(f"ptxmotion: warning: others use this GPU: {told['processes']}")
    return told


def _commit() -> dict[str, Any]:
    """The commit of the folder that the command runs in; nothing where there is none.

    An exported tree has none: whoever exported it may say in the environment which one it is of.
    """
    if told := os.environ.get("PTXMOTION_COMMIT"):
        return {"id": told, "time": None, "dirty": None}

    def git(*words: str) -> str:
        # A repository's own settings can name programs to run; these two would be run by what is asked here.
        command = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        dirty = bool(git("status", "--porcelain", "--untracked-files=no"))
        return {"id": git("rev-parse", "HEAD"), "time": git("log", "-1", "--format=%cI"), "dirty": dirty}
    except (OSError, subprocess.SubprocessError):
        return {}


def _session(
    arguments: argparse.Namespace,
    plan: Plan,
    machine: Machine,
    jobs: tuple[int, int],
    tasks: Sequence[Task],
    told: dict[str, Any],
    variants: Sequence[Variant],
) -> int:
    from .. import __version__
    from ..harness.arm_code import assemble_arm
    from ..harness.results import ResultError, ResultFile
    from ..harness.session import Limits, Session

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    options = {**plan.options(), "variants": [each.id for each in variants]}
    if arguments.launch != "auto":
        options["launch"] = arguments.launch
    result = ResultFile(now, __version__, machine.name, told, _commit(), options)
    assembler = partial(assemble_arm, sm=told.get("compute_capability"))
    path = Path(arguments.output) if arguments.output else None
    with _progress(len(tasks)) as tell:
        session = Session(
            machine,
            plan,
            result,
            assembler=assembler,
            path=path,
            jobs=jobs[0],
            machines=jobs[1],
            limits=Limits(check=arguments.timeout),
            tell=tell,
        )
        if arguments.resume and path is not None and path.exists():
            try:
                session.resume(read_result(str(path)))
            except ResultError as error:
                raise CommandError(BAD_INPUT, f"ptxmotion: error: {path}: {error}") from error
        with _errors(path):
            session.run(tasks)
    return _conclude(result)


@contextlib.contextmanager
def _errors(path: Path | None) -> Generator[None]:
    """Errors of programs, variants and disks as ours."""
    from ..programs.variants import VariantError

    try:
        with dsl_errors():
            yield
    except VariantError as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from error
    except OSError as error:
        if path is None or error.filename != str(path):
            raise
        message = f"{path}: error: cannot write: {error.strerror}; what was written before is intact"
        raise CommandError(MISSING, message) from error


def _conclude(result: ResultFile) -> int:
    from .tables import print_table

    rows = [
        [
            each.fullname,
            comparison.candidate,
            comparison.verdict,
            comparison.speedup,
            "" if comparison.ci is None else f"{comparison.ci[0]:.3f} to {comparison.ci[1]:.3f}",
            "" if comparison.verdict in ("FASTER", "SLOWER", "SAME") else comparison.reason,
        ]
        for each in result.benchmarks
        for comparison in each.candidates
    ]
    with contextlib.redirect_stdout(sys.stderr):
        print_table(["program", "variant", "verdict", "speedup", "interval", "reason"], rows)
    for each in result.benchmarks:
        if each.control is not None and not each.gates:
            said = f"the baseline is {each.control.verdict} as itself: no verdict"
            say(f"ptxmotion: warning: {each.fullname}: {said}")
    failed = [each for each in result.benchmarks if each.error]
    for each in failed:
        say(f"ptxmotion: error: {each.fullname}: {each.error}")
    wrong = [arm for each in result.benchmarks for arm in each.arms if arm.correctness.status != "ok"]
    return DIFFERENT if wrong else BAD_INPUT if failed else FINE


def _profile(machine: Machine, tasks: Sequence[Task]) -> int:
    """Each variant once, in this process: a profiler sees these launches and nothing else."""
    backend = machine.open()
    with _errors(None):
        for task in tasks:
            work, arms = task.make()
            for arm in arms:
                say(f"{task.fullname}: {arm.id}{f': could not be made: {arm.error}' if arm.error else ''}")
                if arm.error:
                    continue
                work.run(backend, arm.modules, 1)
                backend.synchronize()
    return FINE


#: A line about a step of a benchmark; every other one is about a benchmark that is done.
_STEP = re.compile(r": (round|prepared) \d+ of \d+$")


@contextlib.contextmanager
def _progress(total: int) -> Generator[Callable[[str], None]]:
    """Hear of progress: a bar on a terminal, elsewhere a line for each benchmark."""
    if not sys.stderr.isatty():

        def tell_plainly(line: str) -> None:
            if not _STEP.search(line):
                say(line)

        yield tell_plainly
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        every = bar.add_task("benchmarks", total=total)

        def tell(line: str) -> None:
            bar.update(every, description=line[:70])
            if not _STEP.search(line):
                bar.advance(every)
                bar.console.print(line, highlight=False)

        yield tell
