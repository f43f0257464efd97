"""`bench run`: turns arguments into a session; prints its progress, its table and its warnings."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outcome import BAD_INPUT, DIFFERENT, FINE, MISSING, CommandError, say, usage_error, warn

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.protocol import Plan
    from ..harness.results import ResultFile
    from ..harness.session import Task
    from ..programs.variants import Variant
    from ..suites.registry import Benchmark

__all__ = ["run_benchmarks"]


def run_benchmarks(arguments: argparse.Namespace) -> int:
    """Run the programs; the exit code.

    1 for a mismatch, 3 where a program could not run, 4 where the result file cannot be written.
    """
    from ..programs.tasks import select

    plan, variants = _plan(arguments), _variants(arguments)
    if arguments.resume and not arguments.output:
        usage_error("--resume needs --json, the result file to continue")
    programs = select(arguments.names, arguments.pattern)
    if not programs:
        usage_error(f"no program's name matches '{arguments.pattern}'")
    return _on_machine(arguments, plan, variants, programs)


def _on_machine(
    arguments: argparse.Namespace,
    plan: Plan,
    variants: Sequence[Variant],
    programs: Sequence[tuple[Benchmark, str]],
) -> int:
    from ..harness.machine import choose
    from ..programs.bench_session import default_jobs, run_once, tasks_of
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
    info = _machine_info(machine, count)
    with Variants() as maker:
        tasks = tasks_of(programs, size, variants, maker, arguments.arch, info)
        if arguments.profile:
            run_once(machine, tasks, say)
            return FINE
        jobs = arguments.jobs or default_jobs(machine, count, os.cpu_count() or 1)
        return _session(arguments, plan, machine, (jobs, count), tasks, info, variants)


def _plan(arguments: argparse.Namespace) -> Plan:
    from ..harness.protocol import Plan
    from ..harness.stats import Rule

    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", arguments.min_effect)
    if percent is None or not 0 < float(percent[1]) < 100:
        usage_error(f"--min-effect: '{arguments.min_effect}' is not a percentage such as 1%")
    rule = Rule(min_effect=float(percent[1]) / 100)
    seeds = tuple(range(1, arguments.seeds + 1))
    return Plan(rounds=arguments.rounds, samples=arguments.samples, seeds=seeds, rule=rule)


def _variants(arguments: argparse.Namespace) -> list[Variant]:
    """The variants, the baseline first."""
    from ..programs.variants import DEFAULT, VariantError, parse_variants

    specs = (arguments.baseline, *(arguments.variant or [DEFAULT]))
    try:
        variants = [variant for spec in specs for variant in parse_variants(spec)]
    except VariantError as error:
        usage_error(str(error))
    if arguments.launch != "auto":
        variants = [replace(each, launch=arguments.launch) if each.launch == "auto" else each for each in variants]
    names = [each.id for each in variants]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        is_baseline = repeated[0] == names[0]
        nvcc = "; it is the output of nvcc, and the level is --variant=-O3" if repeated[0] == "O3" else ""
        what = f"'{repeated[0]}' is the baseline already{nvcc}" if is_baseline else f"two variants are '{repeated[0]}'"
        usage_error(f"{what}: give one of the two another name with NAME=SPEC")
    return variants


def _machine_info(machine: Machine, count: int) -> dict[str, Any]:
    from ..programs.bench_session import describe_computer

    info = describe_computer(machine)
    if info.get("processes"):
        warn(f"other processes use this GPU: {info['processes']}")
    if count > 1 and machine.stopwatch:
        info["gpus"] = count
    return info


def _session(
    arguments: argparse.Namespace,
    plan: Plan,
    machine: Machine,
    jobs: tuple[int, int],
    tasks: Sequence[Task],
    info: dict[str, Any],
    variants: Sequence[Variant],
) -> int:
    """Run the tasks. ``jobs`` is how many run at the same time, and on how many machines."""
    from ..harness.results import ResultError, read
    from ..harness.session import Limits, Session
    from ..programs.bench_session import assembler_for, commit_info, new_result

    options: dict[str, Any] = {"variants": [each.id for each in variants]}
    if arguments.launch != "auto":
        options["launch"] = arguments.launch
    result = new_result(machine, info, plan, commit=commit_info(), options=options)
    path = Path(arguments.output) if arguments.output else None
    with _progress(len(tasks)) as report:
        session = Session(
            machine,
            plan,
            result,
            assembler=assembler_for(info),
            path=path,
            jobs=jobs[0],
            machines=jobs[1],
            limits=Limits(check=arguments.timeout),
            report=report,
        )
        if arguments.resume and path is not None and path.exists():
            former = read(path)
            try:
                session.resume(former)
            except ResultError as error:
                raise CommandError(BAD_INPUT, f"ptxmotion: error: {path}: {error}") from error
        with _write_errors(path):
            session.run(tasks)
    return _conclude(result)


@contextlib.contextmanager
def _write_errors(path: Path | None) -> Generator[None]:
    """Turn an error of writing the result file into a message that says what is left on disk."""
    try:
        yield
    except OSError as error:
        if path is None or error.filename != str(path):
            raise
        message = f"{path}: error: cannot write: {error.strerror}; the last complete version of the file is intact"
        raise CommandError(MISSING, message) from error


def _conclude(result: ResultFile) -> int:
    """Print the verdicts, warnings and errors; the exit code."""
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
            warn(f"{each.fullname}: the baseline compared with itself is {each.control.verdict}: no verdict counts")
    failed = [each for each in result.benchmarks if each.error]
    for each in failed:
        say(f"ptxmotion: error: {each.fullname}: {each.error}")
    wrong = [arm for each in result.benchmarks for arm in each.arms if arm.correctness.status != "ok"]
    return DIFFERENT if wrong else BAD_INPUT if failed else FINE


#: A line about a step of a program. Every other line says that a program is finished.
_STEP = re.compile(r": (round|prepared) \d+ of \d+$")


@contextlib.contextmanager
def _progress(total: int) -> Generator[Callable[[str], None]]:
    """A function that shows lines of progress: a bar on a terminal, otherwise one line for each finished program."""
    if not sys.stderr.isatty():

        def print_line(line: str) -> None:
            if not _STEP.search(line):
                say(line)

        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        programs = bar.add_task("benchmarks", total=total)

        def advance(line: str) -> None:
            bar.update(programs, description=line[:70])
            if not _STEP.search(line):
                bar.advance(programs)
                bar.console.print(line, highlight=False)

        yield advance
