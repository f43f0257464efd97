"""`ptxmotion bench`: run benchmarks, compare and track their results, report and export them.

Exit codes: 1 for a regression, a mismatch, or a result file that contradicts itself; 4 where a GPU is missing or the
result file cannot be written; 5 for an inconclusive verdict, if ``--fail-on`` names it. Improvements never fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import target
from .bench_examples import EXAMPLES
from .outcome import BAD_INPUT, DIFFERENT, FINE, INCONCLUSIVE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.compare import Change
    from ..harness.results import ResultFile

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG = """\
examples:
  ptxmotion bench list
  ptxmotion bench run pathfinder --variant=-O2 --variant=cse,lcm --json results.json
  ptxmotion bench run rodinia --backend=emulator --size=tiny --dry-run
  ptxmotion bench compare before.json after.json --fail-on=slower,invalid
  ptxmotion bench report results.json -o report

ptxmotion bench ACTION --help explains an action and has examples of it.
"""

_FAIL_ON = "slower,worse,mismatch,missing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench` and of each of its actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        description = f"{text[0].upper()}{text[1:]}."
        return actions.add_parser(name, help=text, description=description, epilog=EXAMPLES.get(name))

    each = action("list", "list the programs")
    each.add_argument("names", nargs="*", metavar="NAME", help="programs, suites or shell patterns (default: all)")
    _add_run(action("run", "run programs; check and time their variants"))
    each = action("compare", "compare two result files")
    each.add_argument("before", metavar="BEFORE", help="the earlier result file")
    each.add_argument("after", metavar="AFTER", help="the later result file")
    _add_comparison(each)
    each = action("track", "compare a result file with a committed baseline")
    each.add_argument("result", metavar="RESULT", help="the result file")
    each.add_argument(
        "--baseline", metavar="FILE", required=True, help="the baseline; with --update it may not exist yet"
    )
    each.add_argument("--update", action="store_true", help="make the result the new baseline if the comparison passes")
    _add_comparison(each)
    each = action("audit", "recompute the verdicts of result files and report contradictions")
    each.add_argument("results", nargs="+", metavar="RESULT", help="result files")
    each = action("report", "write a report of a result file, with plots")
    each.add_argument("result", metavar="RESULT", help="the result file")
    each.add_argument(
        "--format",
        default="markdown",
        metavar="LIST",
        help="png, svg, markdown, thesis, separated by commas (default: markdown)",
    )
    each.add_argument("-o", dest="output", default="report", metavar="DIR", help="output folder (default: report)")
    each = action("export", "convert a result file to the format of another tool")
    each.add_argument("result", metavar="RESULT", help="the result file")
    each.add_argument("--format", required=True, metavar="FORMAT", help="gha, bmf, pytest-benchmark, csv, or markdown")
    each.add_argument("-o", dest="output", default="-", metavar="FILE", help="output file (default: stdout)")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs, suites, shell patterns or .py files (default: all)"
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("-k", dest="pattern", metavar="REGEX", help="only programs whose name matches")
    what.add_argument(
        "--size", choices=("tiny", "small", "full"), help="input size (default: full on a GPU, tiny on the emulator)"
    )
    what.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="SPEC",
        help="a variant to compare with the baseline; may be repeated (default: -O2, gated as opt is). SPEC is O3 "
        "(nvcc's output), options of opt (-O3), a list of passes, a .ptx file, a fusion strategy (kf_trad, kfcm), "
        "REV@SPEC (the optimizer of a git revision), or thesis (every method of the thesis). NAME=SPEC gives it a "
        "name. SPEC+graph launches it as a CUDA graph",
    )
    what.add_argument(
        "--baseline", default="O3", metavar="SPEC", help="the variant that the others are compared with (default: O3)"
    )
    where = parser.add_argument_group("where to run")
    where.add_argument(
        "--backend",
        choices=("auto", "cuda", "emulator"),
        default="auto",
        help="the GPU, or the emulator, which counts instead of timing (default: the GPU if there is one)",
    )
    where.add_argument("--require-gpu", action="store_true", help="fail with exit code 4 if there is no GPU")
    where.add_argument(
        "--arch", type=target, metavar="SM", help="the target that nvcc compiles for (default: the GPU's, or sm_90a)"
    )
    where.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="programs that run at the same time (default: from the number of GPUs and cores)",
    )
    how = parser.add_argument_group("how to measure")
    how.add_argument("--rounds", type=_positive, default=30, metavar="N", help="rounds of timing (default: 30)")
    how.add_argument("--samples", type=_positive, default=10, metavar="N", help="samples in each round (default: 10)")
    how.add_argument(
        "--seeds", type=_positive, default=3, metavar="N", help="inputs that the outputs are checked on (default: 3)"
    )
    how.add_argument(
        "--min-effect", default="1%", metavar="P%", help="the smallest difference that counts (default: 1%%)"
    )
    how.add_argument(
        "--launch",
        choices=("auto", "stream", "graph"),
        default="auto",
        help="how variants without +graph are launched: one by one in a stream, or as a CUDA graph (default: as a "
        "graph if a run is short or has many launches)",
    )
    how.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for checking one variant (default: 300)"
    )
    how.add_argument("--dry-run", action="store_true", help="list what would run; run nothing")
    how.add_argument(
        "--profile", action="store_true", help="run each variant once without timing, for a profiler such as ncu"
    )
    out = parser.add_argument_group("results")
    out.add_argument(
        "--json", dest="output", metavar="FILE", help="write the result file; it is updated after each program"
    )
    out.add_argument("--resume", action="store_true", help="skip programs whose results are already in the file")


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        default=_FAIL_ON,
        metavar="LIST",
        help="the kinds of changes that fail: slower, worse, mismatch, missing, invalid, inconclusive, or none "
        f"(default: {_FAIL_ON})",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="REGEX=P%",
        help="how much a figure may get worse if its name benchmark:arm:kernel:figure matches; may be repeated",
    )
    parser.add_argument("--json", dest="output", metavar="FILE", help="write the differences as JSON; - is stdout")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "run": _run,
        "compare": _compare,
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

    programs = [benchmark for benchmark, _ in select(arguments.names, None)]
    rows = [[b.fullname, ", ".join(b.kernels), ", ".join(b.sizes), b.description] for b in programs]
    print_table(["program", "kernels", "sizes", "what it does"], rows)
    return FINE


# --- comparing


def _compare(arguments: argparse.Namespace) -> int:
    from ..harness.results import read

    return _report_changes(arguments, read(arguments.before), read(arguments.after))


def _track(arguments: argparse.Namespace) -> int:
    from ..harness.compare import slimmed
    from ..harness.results import read, write

    result = read(arguments.result)
    _check_consistency(arguments.result, result)
    if not Path(arguments.baseline).exists() and arguments.update:
        code = FINE
    else:
        code = _report_changes(arguments, read(arguments.baseline), result)
    if arguments.update and code == FINE:
        write(arguments.baseline, slimmed(result))
        say(f"{arguments.baseline}: is now the result of {result.datetime}")
    return code


def _check_consistency(path: str, result: ResultFile) -> None:
    """Raise `CommandError` for a result file that contradicts itself."""
    from ..harness.audit import audit

    if contradictions := audit(result):
        raise CommandError(BAD_INPUT, "\n".join(f"{path}: error: {line}" for line in contradictions))


def _report_changes(arguments: argparse.Namespace, before: ResultFile, after: ResultFile) -> int:
    """Print the changes between two results; the exit code by ``--fail-on``."""
    import json

    from ..harness.compare import KINDS, changes_to_json, compare_results, parse_threshold

    fail_on = [each for each in arguments.fail_on.split(",") if each not in ("", "none")]
    if unknown := sorted(set(fail_on) - set(KINDS[:-2])):
        usage_error(f"--fail-on: unknown: {', '.join(unknown)}; there are {', '.join(KINDS[:-2])}")
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
    _print_changes(changes)
    failed = {each.kind for each in changes} & set(fail_on)
    if failed - {"inconclusive", "invalid"}:
        return DIFFERENT
    return INCONCLUSIVE if failed else FINE


def _print_changes(changes: Sequence[Change]) -> None:
    for each in changes:
        say(str(each))
    counts = {kind: sum(each.kind == kind for each in changes) for kind in dict.fromkeys(c.kind for c in changes)}
    say(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no differences")


def _audit(arguments: argparse.Namespace) -> int:
    from ..harness.audit import audit
    from ..harness.results import read

    code = FINE
    for path in arguments.results:
        result = read(path)
        contradictions = audit(result)
        for line in contradictions:
            say(f"{path}: error: {line}")
        if contradictions:
            code = DIFFERENT
        else:
            print(f"{path}: {len(result.benchmarks)} benchmarks; no contradictions")
    return code


# --- reports and exports


def _report(arguments: argparse.Namespace) -> int:
    from ..harness.report import FORMS, report
    from ..harness.results import read, write_text

    formats = arguments.format.split(",")
    if unknown := sorted(set(formats) - {*FORMS, "thesis"}):
        usage_error(f"--format: unknown: {', '.join(unknown)}; there are {', '.join(FORMS)}, thesis")
    result, folder = read(arguments.result), Path(arguments.output)
    written = report(result, folder, [each for each in formats if each != "thesis"])
    if "thesis" in formats:
        from ..suites.thesis_report import thesis_report

        written.append(folder / "thesis.md")
        write_text(written[-1], thesis_report(result))
    for path in written:
        print(path)
    return FINE


def _export(arguments: argparse.Namespace) -> int:
    from ..harness.exporters import FORMATS, export
    from ..harness.results import read
    from .files import Outputs

    if arguments.format not in FORMATS:
        usage_error(f"--format: unknown: {arguments.format}; there are {', '.join(FORMATS)}")
    outputs = Outputs()
    outputs.add(arguments.output, export(read(arguments.result), arguments.format))
    outputs.commit()
    return FINE
