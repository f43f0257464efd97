"""`ptxmotion bench`: run benchmarks, compare and track their results, report and export them.

Exit codes are those of all verbs: 1 for a regression, a mismatch or a result file that contradicts itself, 4 where a
GPU or a disk is missing, 5 for what could not be decided, where it was asked to fail on that. Improvements never fail.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, DIFFERENT, FINE, INCONCLUSIVE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.compare import Change
    from ..harness.results import ResultFile

EPILOG = """\
examples:
  ptxmotion bench list
  ptxmotion bench run rodinia --variant=-O2 --variant=cse,lcm --json results.json
  ptxmotion bench run pathfinder --backend=emulator --size=tiny --json results.json
  ptxmotion bench compare before.json after.json --fail-on=slower,invalid
  ptxmotion bench report results.json --format=png,markdown -o report
"""

_FAIL_ON = "slower,worse,mismatch,missing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench` and of each of its actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text.capitalize() + ".")

    each = action("list", "list the programs")
    each.add_argument("names", nargs="*", metavar="NAME", help="programs, suites or shell patterns (default: all)")
    _add_run(action("run", "run programs, check and time their variants"))
    each = action("compare", "compare two result files")
    each.add_argument("before", metavar="BEFORE")
    each.add_argument("after", metavar="AFTER")
    _add_gate(each)
    each = action("track", "compare a result file with a committed baseline")
    each.add_argument("result", metavar="RESULT")
    each.add_argument("--baseline", metavar="FILE", required=True, help="the baseline; it need not exist with --update")
    each.add_argument("--update", action="store_true", help="if nothing failed, make the result the baseline")
    _add_gate(each)
    each = action("audit", "check that result files bear out what they say")
    each.add_argument("results", nargs="+", metavar="RESULT")
    each = action("report", "draw and write a report")
    each.add_argument("result", metavar="RESULT")
    each.add_argument(
        "--format", default="markdown", metavar="LIST", help="png, svg, markdown, thesis (default: markdown)"
    )
    each.add_argument("-o", dest="output", default="report", metavar="DIR", help="folder (default: report)")
    each = action("export", "write a result file in another tool's form")
    each.add_argument("result", metavar="RESULT")
    each.add_argument("--format", required=True, metavar="FORM", help="gha, bmf, pytest-benchmark, csv, markdown")
    each.add_argument("-o", dest="output", default="-", metavar="FILE", help="where to write (default: stdout)")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs, suites, shell patterns or .py files (default: all)"
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("-k", dest="pattern", metavar="REGEX", help="only programs whose name matches")
    what.add_argument("--size", choices=("tiny", "small", "full"), help="default: full on a GPU, tiny on the emulator")
    what.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="SPEC",
        help="O3, options of opt (-O3), a list of passes, a .ptx file, REV@SPEC; NAME=SPEC names it, SPEC+graph "
        "launches it as a graph; thesis: every method of the thesis; may be repeated (default: -O2, gated as opt is)",
    )
    what.add_argument("--baseline", default="O3", metavar="SPEC", help="what variants are compared with (default: O3)")
    where = parser.add_argument_group("where")
    where.add_argument("--backend", choices=("auto", "cuda", "emulator"), default="auto")
    where.add_argument("--require-gpu", action="store_true", help="fail, with 4, where there is no GPU")
    where.add_argument("--arch", metavar="SM", help="what nvcc compiles for (default: the GPU's, or sm_90a)")
    where.add_argument("--jobs", type=_positive, metavar="N", help="programs at a time (default: by GPUs and cores)")
    how = parser.add_argument_group("how")
    how.add_argument("--rounds", type=_positive, default=30, metavar="N", help="rounds of timing (default: 30)")
    how.add_argument("--samples", type=_positive, default=10, metavar="N", help="in each round (default: 10)")
    how.add_argument("--seeds", type=_positive, default=3, metavar="N", help="inputs to check on (default: 3)")
    how.add_argument("--min-effect", default="1%", metavar="P%%", help="the least effect that counts (default: 1%%)")
    how.add_argument(
        "--launch",
        choices=("auto", "stream", "graph"),
        default="auto",
        help="how variants without +graph are timed: call by call, as a CUDA graph, or, by default, as a graph where "
        "they are short or of several launches",
    )
    how.add_argument("--timeout", type=float, default=300.0, metavar="S", help="for checking one variant")
    how.add_argument("--dry-run", action="store_true", help="list what would be run, and run nothing")
    how.add_argument("--profile", action="store_true", help="run each variant once and time nothing, for a profiler")
    out = parser.add_argument_group("results")
    out.add_argument("--json", dest="output", metavar="FILE", help="write the result file, after each program")
    out.add_argument("--resume", action="store_true", help="take over what is in the result file already")


def _add_gate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        default=_FAIL_ON,
        metavar="LIST",
        help=f"slower, worse, mismatch, missing, invalid, inconclusive, or none (default: {_FAIL_ON})",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="REGEX=P%%",
        help="how much figures may get worse whose benchmark:arm:kernel:figure matches; may be repeated",
    )
    parser.add_argument("--json", dest="output", metavar="FILE", help="write the differences as JSON; - is stdout")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "run": _run,
        "compare": lambda given: _compare(given, given.before, given.after),
        "track": _track,
        "audit": _audit,
        "report": _report,
        "export": _export,
    }
    return actions[arguments.action](arguments)


def _run(arguments: argparse.Namespace) -> int:
    from .bench_run import run_benchmarks

    return run_benchmarks(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from ..programs.tasks import select
    from .tables import print_table

    with dsl_errors():
        found = [each for each, _ in select(arguments.names, None)]
    rows = [[b.fullname, ", ".join(b.kernels), ", ".join(b.sizes), b.description] for b in found]
    print_table(["program", "kernels", "sizes", "what it does"], rows)
    return FINE


@contextlib.contextmanager
def dsl_errors() -> Generator[None]:
    """Turn errors of programs into ours."""
    from ..dsl import DslError

    try:
        yield
    except DslError as error:
        raise CommandError(BAD_INPUT, str(error) if error.place is not None else f"ptxmotion: {error}") from error


def read_result(path: str) -> ResultFile:
    """Read a result file. Raises `CommandError` where it is none."""
    from ..harness.results import ResultError, read

    try:
        return read(path)
    except ResultError as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from error


# Comparing


def _compare(arguments: argparse.Namespace, before: str, after: str) -> int:
    return _gate(arguments, read_result(before), read_result(after))


def _track(arguments: argparse.Namespace) -> int:
    from ..harness.compare import slimmed
    from ..harness.results import write

    result = read_result(arguments.result)
    _refuse_contradictions(arguments.result, result)
    if not Path(arguments.baseline).exists() and arguments.update:
        code = FINE
    else:
        code = _gate(arguments, read_result(arguments.baseline), result)
    if arguments.update and code == FINE:
        write(arguments.baseline, slimmed(result))
        say(f"{arguments.baseline}: is now the result of {result.datetime}")
    return code


def _refuse_contradictions(path: str, result: ResultFile) -> None:
    from ..harness.audit import audit

    if wrong := audit(result):
        raise CommandError(BAD_INPUT, "\n".join(f"{path}: error: {line}" for line in wrong))


def _gate(arguments: argparse.Namespace, before: ResultFile, after: ResultFile) -> int:
    import json

    from ..harness.compare import KINDS, changes_to_json, compare_results, parse_threshold

    fail_on = [each for each in arguments.fail_on.split(",") if each not in ("", "none")]
    if unknown := sorted(set(fail_on) - set(KINDS[:-2])):
        usage_error(f"--fail-on: {', '.join(unknown)}; there are {', '.join(KINDS[:-2])}")
    try:
        thresholds = [parse_threshold(each) for each in arguments.threshold]
    except ValueError as error:
        usage_error(f"--threshold: {error}")
    changes = compare_results(before, after, thresholds)
    if arguments.output:
        from .files import Outputs

        outputs = Outputs()
        outputs.add(arguments.output, json.dumps(changes_to_json(changes), indent=1, ensure_ascii=False) + "\n")
        outputs.commit()
    _tell(changes)
    kinds = {each.kind for each in changes} & set(fail_on)
    if kinds - {"inconclusive", "invalid"}:
        return DIFFERENT
    return INCONCLUSIVE if kinds else FINE


def _tell(changes: Sequence[Change]) -> None:
    for each in changes:
        say(str(each))
    counts = {kind: sum(each.kind == kind for each in changes) for kind in dict.fromkeys(c.kind for c in changes)}
    say(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no differences")


def _audit(arguments: argparse.Namespace) -> int:
    from ..harness.audit import audit

    code = FINE
    for path in arguments.results:
        result = read_result(path)
        wrong = audit(result)
        for line in wrong:
            say(f"{path}: error: {line}")
        if wrong:
            code = DIFFERENT
        else:
            print(f"{path}: {len(result.benchmarks)} benchmarks; bears out what it says")
    return code


# Showing


def _report(arguments: argparse.Namespace) -> int:
    from ..harness.report import FORMS, PlotsMissing, report
    from .outcome import MISSING

    forms = arguments.format.split(",")
    if unknown := sorted(set(forms) - {*FORMS, "thesis"}):
        usage_error(f"no form of a report: {', '.join(unknown)}; there are {', '.join(FORMS)}, thesis")
    result, folder = read_result(arguments.result), Path(arguments.output)
    try:
        written = report(result, folder, [form for form in forms if form != "thesis"])
    except PlotsMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from error
    if "thesis" in forms:
        from ..harness.results import write_text
        from ..suites.thesis_report import thesis_report

        written.append(folder / "thesis.md")
        write_text(written[-1], thesis_report(result))
    for path in written:
        print(path)
    return FINE


def _export(arguments: argparse.Namespace) -> int:
    from ..harness.exporters import FORMATS, export
    from .files import Outputs

    if arguments.format not in FORMATS:
        usage_error(f"--format: no form '{arguments.format}'; there are {', '.join(FORMATS)}")
    outputs = Outputs()
    outputs.add(arguments.output, export(read_result(arguments.result), arguments.format))
    outputs.commit()
    return FINE


__all__ = ["EPILOG", "add_arguments", "dsl_errors", "read_result", "run"]
