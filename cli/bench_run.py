"""`bench run`: turns arguments into a session; prints its progress, its table and its warnings."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..spelling import did_you_mean
from .fail_on import exit_code, failing, thresholds
from .outcome import BAD_INPUT, DIFFERENT, FINE, MISSING, CommandError, say, usage_error, warn

if TYPE_CHECKING:
    from ..harness.engines import Engine
    from ..harness.machine import Machine
    from ..harness.protocol import Plan
    from ..harness.results import ComparisonResult, ResultFile
    from ..harness.session import Task
    from ..programs.tasks import Problems
    from ..programs.variants import Variant
    from ..suites.registry import Benchmark

__all__ = ["run_benchmarks"]


def run_benchmarks(arguments: argparse.Namespace) -> int:
    """Run the programs; the exit code.

    1 for a mismatch, or for a regression that ``--fail-on`` names; 3 where a program could not run; 4 where the result
    file cannot be written; 5 for a verdict without a result that ``--fail-on`` names.
    """
    from ..harness.compare import FAILING
    from ..programs.tasks import Problems, select

    # `mismatch` always fails, and nothing is missing. They are accepted, so that one list serves `bench track`, too.
    fails = failing(arguments.fail_on, "", FAILING)
    plan, variants = _plan(arguments), _variants(arguments)
    if arguments.resume and not arguments.output:
        usage_error("--resume needs --json, the result file to continue")
    problems = Problems()
    programs = select(arguments.names, arguments.pattern, problems)
    if not programs:
        usage_error(f"no program's name matches '{arguments.pattern}'")
    broken = report_problems(problems)
    code = _on_machine(arguments, plan, variants, programs, fails)
    return code or (BAD_INPUT if broken else FINE)


def report_problems(problems: Problems) -> bool:
    """Print what was left out; whether a file could not be run."""
    from ..suites.registry import NoBenchmark

    for line in problems.skipped:
        warn(f"{line}: left out")
    broken = [each for each in problems.errors if not isinstance(each, NoBenchmark)]
    for error in broken:
        text = str(error)
        say(f"ptxmotion: {text}" if text.startswith("error: ") else text)  # an error may have no place
    return bool(broken)


def _on_machine(
    arguments: argparse.Namespace,
    plan: Plan,
    variants: Sequence[Variant],
    programs: Sequence[tuple[Benchmark, str]],
    fails: set[str],
) -> int:
    from ..programs.bench_session import run_once, tasks_of
    from ..programs.bench_sites import site
    from ..programs.lowered_variants import check_lowerings
    from ..programs.tasks import SuiteWork, sweep
    from ..programs.variants import Variants

    engine = arguments.engine or "local"
    if arguments.profile and engine != "local":
        usage_error("--profile runs in this process, so it takes no --engine")
    with site(engine, say) as where:
        machine, count, why = where.choose(arguments.backend or "auto", bool(arguments.require_gpu))
        say(why)
        size = arguments.size or ("full" if machine.stopwatch else "tiny")
        for benchmark, _ in programs:
            if size not in benchmark.sizes:
                usage_error(f"{benchmark.fullname} has no size '{size}'; there are {', '.join(benchmark.sizes)}")
            check_lowerings(benchmark, variants)
        sweeps = _sweeps(arguments, [benchmark for benchmark, _ in programs])
        names = [
            SuiteWork(benchmark.fullname, size, file, values).fullname
            for benchmark, file in programs
            for values in sweep(benchmark, sweeps)
        ]
        if arguments.dry_run:
            for name in names:
                print(f"{name} {size}: {', '.join(each.id for each in variants)}")
            return FINE
        info, distributor = where.start(machine, count, len(names), arguments.jobs)
        for each in [info, *info.get("workers", [])]:
            if each.get("processes"):
                warn(f"other processes use this GPU: {each['processes']}")
        with Variants() as maker:
            tasks = tasks_of(programs, size, variants, maker, arguments.arch, info, sweeps)
            if arguments.profile:
                run_once(machine, tasks, say)
                return FINE
            result = _session(arguments, plan, machine, distributor, tasks, info, variants)
    return _conclude(result, fails)


def _sweeps(arguments: argparse.Namespace, programs: Sequence[Benchmark]) -> dict[str, list[int | str]]:
    """The values of each parameter of ``--param``. Raises `CommandError` for one that no program has, and for values
    that a program does not take."""
    sweeps: dict[str, list[int | str]] = {}
    for name, values in arguments.param or ():
        sweeps[name] = list(dict.fromkeys([*sweeps.get(name, []), *values]))
    for name, values in sweeps.items():
        own = [each for each in programs if name in each.parameters or name in each.choices]
        if not own:
            known = sorted({each for program in programs for each in (*program.parameters, *program.choices)})
            usage_error(f"--param: no program has a parameter '{name}'; there are {', '.join(known) or 'none'}")
        for program in own:
            for value in values:
                if name in program.parameters and isinstance(value, str):
                    usage_error(f"--param: '{name}' of {program.fullname} is a number, not '{value}'")
                if name in program.choices and value not in program.choices[name]:
                    similar = did_you_mean(str(value), program.choices[name])
                    known = ", ".join(program.choices[name])
                    usage_error(f"--param: '{value}' is no {name} of {program.fullname}{similar}; there are {known}")
    return sweeps


def _plan(arguments: argparse.Namespace) -> Plan:
    from ..harness.protocol import Plan
    from ..harness.stats import Rule

    effect = arguments.min_effect or "1%"
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", effect)
    if percent is None or not 0 < float(percent[1]) < 100:
        usage_error(f"--min-effect: '{effect}' is not a percentage such as 1%")
    rule = Rule(min_effect=float(percent[1]) / 100)
    seeds = tuple(range(1, (arguments.seeds or 3) + 1))
    thresholds(arguments.threshold)
    given = tuple(arguments.threshold or ())
    return Plan(
        rounds=arguments.rounds or 30, samples=arguments.samples or 10, seeds=seeds, rule=rule, thresholds=given
    )


def _variants(arguments: argparse.Namespace) -> list[Variant]:
    """The variants, the baseline first."""
    from ..programs.variants import DEFAULT, VariantError, parse_variants

    specs = (arguments.baseline or "O3", *(arguments.variant or [DEFAULT]))
    try:
        given = [parse_variants(spec) for spec in specs]
    except VariantError as error:
        usage_error(str(error))
    # `thesis` stands for several variants. One of them may also be given by itself.
    alone = {each[0].id for each in given if len(each) == 1}
    variants = [variant for each in given for variant in each if len(each) == 1 or variant.id not in alone]
    if _launch(arguments) != "auto":
        variants = [replace(each, launch=arguments.launch) if each.launch == "auto" else each for each in variants]
    names = [each.id for each in variants]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        is_baseline = repeated[0] == names[0]
        nvcc = "; it is the output of nvcc, and the level is --variant=-O3" if repeated[0] == "O3" else ""
        what = f"'{repeated[0]}' is the baseline already{nvcc}" if is_baseline else f"two variants are '{repeated[0]}'"
        usage_error(f"{what}: give one of the two another name with NAME=SPEC")
    return variants


def _launch(arguments: argparse.Namespace) -> str:
    return arguments.launch or "auto"


def _session(
    arguments: argparse.Namespace,
    plan: Plan,
    machine: Machine,
    engine: Engine,
    tasks: Sequence[Task],
    info: dict[str, Any],
    variants: Sequence[Variant],
) -> ResultFile:
    from ..harness.results import ResultError, read
    from ..harness.session import Limits, Session
    from ..programs.bench_session import assembler_for, commit_info, new_result

    options: dict[str, Any] = {"variants": [each.id for each in variants]}
    if _launch(arguments) != "auto":
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
            limits=Limits(check=arguments.timeout or 300.0),
            report=report,
            engine=engine,
        )
        if arguments.resume and path is not None and path.exists():
            former = read(path)
            try:
                session.resume(former)
            except ResultError as error:
                raise CommandError(BAD_INPUT, f"ptxmotion: error: {path}: {error}") from error
        with _write_errors(path):
            return session.run(tasks)


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


def _conclude(result: ResultFile, fails: set[str]) -> int:
    """Print the verdicts, warnings and errors; the exit code. ``fails``: the verdicts that fail, in small letters."""
    with contextlib.redirect_stdout(sys.stderr):
        if result.control.aa_verdict == "NONE":
            _print_figures(result)
        else:
            _print_times(result)
    for each in result.benchmarks:
        if each.control is not None and not each.gates:
            warn(f"{each.fullname}: the baseline compared with itself is {each.control.verdict}: no verdict counts")
    failed = [each for each in result.benchmarks if each.error]
    for each in failed:
        say(f"ptxmotion: error: {each.fullname}: {each.error}")
    if any(arm.correctness.status != "ok" for each in result.benchmarks for arm in each.arms):
        return DIFFERENT
    if failed:
        return BAD_INPUT
    return exit_code({c.verdict.lower() for each in result.benchmarks for c in each.candidates} & fails)


def _print_times(result: ResultFile) -> None:
    from ..harness.throughput import throughput_text
    from .tables import print_table

    rows = [
        [
            each.fullname,
            comparison.candidate,
            comparison.verdict,
            comparison.speedup,
            _interval(comparison),
            "" if comparison.verdict in ("FASTER", "SLOWER", "SAME") else comparison.reason,
        ]
        for each in result.benchmarks
        for comparison in each.candidates
    ]
    print_table(["program", "variant", "verdict", "speedup", "interval", "reason"], rows)
    rates = [
        [each.fullname, arm.id, text]
        for each in result.benchmarks
        for arm in each.arms
        if arm.role != "control" and (text := throughput_text(result, each, arm))
    ]
    if rates:
        print()
        print_table(["program", "variant", "throughput"], rates)


def _interval(comparison: ComparisonResult) -> str:
    """The interval of a speedup. Identical code was not timed."""
    ci = None if comparison.verdict == "IDENTICAL" else comparison.ci
    return "" if ci is None else f"{ci[0]:.3f} to {ci[1]:.3f}"


def _print_figures(result: ResultFile) -> None:
    """The verdicts of a run that timed nothing, then each figure that differs."""
    from ..harness.exporters import estimate_text
    from ..harness.figures import FIGURES, MODEL, number_text, percent_text
    from .tables import print_table

    found = [(each.fullname, comparison) for each in result.benchmarks for comparison in each.candidates]
    rows = [[name, each.candidate, each.verdict, estimate_text(each), each.reason] for name, each in found]
    print_table(["program", "variant", "verdict", "estimated time", "reason"], rows)
    figures = [
        [
            name,
            each.candidate,
            f"{figure.kernel}: {FIGURES[figure.name].label}" if figure.kernel else FIGURES[figure.name].label,
            number_text(figure.before),
            number_text(figure.after),
            figure.unit,
            percent_text(figure.before, figure.after),
            figure.verdict,
        ]
        for name, each in found
        for figure in each.figures
        if figure.before != figure.after
    ]
    if figures:
        print()
        headings = ["program", "variant", "figure", "baseline", "variant's", "unit", "change", "verdict"]
        print_table(headings, figures)
    if any(each.estimate is not None for _, each in found):
        print(f"\nAn estimated time is not measured. It is the change of the cycles by {MODEL}.")


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
