"""`ptxmotion bench`: run benchmarks, compare and track their results, report and export them.

Exit codes: 1 for a mismatch, a result file that contradicts itself, or a regression that ``--fail-on`` names; 4 where
a GPU is missing or the result file cannot be written; 5 for an invalid or inconclusive verdict, if ``--fail-on`` names
it. Improvements never fail.

A settings file may set the options of all actions in its table `bench`. So the options have no default values here:
``None`` means that the default of the help text is used.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .argument_types import target
from .bench_examples import EXAMPLES
from .fail_on import exit_code, failing, thresholds
from .outcome import BAD_INPUT, DIFFERENT, FINE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.compare import Change
    from ..harness.page_tables import Since
    from ..harness.results import ResultFile

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG = """\
examples:
  ptxmotion bench list
  ptxmotion bench run pathfinder --variant=-O2 --variant=cse,lcm --json results.json
  ptxmotion bench run rodinia --backend=emulator --size=tiny --dry-run
  ptxmotion bench compare before.json after.json --fail-on=slower,invalid
  ptxmotion bench history add results.json && ptxmotion bench history find
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
    each.add_argument("names", nargs="*", metavar="NAME", help="programs, suites, shell patterns, .py files or folders")
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
    each.add_argument(
        "--update",
        action="store_true",
        help="make the result the new baseline if the comparison passes; with --fail-on=none it always does",
    )
    _add_comparison(each)
    _add_history(action("history", "keep results over commits, and find the commits where a figure changed"))
    each = action("audit", "recompute the verdicts of result files and report contradictions")
    each.add_argument("results", nargs="+", metavar="RESULT", help="result files")
    each = action("report", "write a report of a result file: Markdown, plots, or a page")
    each.add_argument("result", metavar="RESULT", help="the result file")
    each.add_argument(
        "--format",
        default="markdown",
        metavar="LIST",
        help="png, svg, markdown, html, thesis, separated by commas (default: markdown)",
    )
    each.add_argument("--baseline", metavar="FILE", help="html: also what changed since this result file")
    _add_threshold(each, "with --baseline: how much a figure may get worse")
    place = each.add_mutually_exclusive_group()
    place.add_argument("--history", metavar="DIR", help="html: also the trends of the history in this folder")
    place.add_argument("--history-branch", metavar="NAME", help="html: also the trends of the history on this branch")
    each.add_argument("-o", dest="output", default="report", metavar="DIR", help="output folder (default: report)")
    each = action("export", "convert a result file to the format of another tool")
    each.add_argument("result", metavar="RESULT", help="the result file")
    each.add_argument("--format", required=True, metavar="FORMAT", help="gha, bmf, pytest-benchmark, csv, or markdown")
    each.add_argument("-o", dest="output", default="-", metavar="FILE", help="output file (default: stdout)")


def _add_history(parser: argparse.ArgumentParser) -> None:
    from .bench_history import add_arguments

    add_arguments(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs, suites, shell patterns, .py files or folders (default: all)"
    )
    _add_what(parser)
    _add_where(parser)
    _add_how(parser)
    _add_results(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to run")
    what.add_argument("-k", dest="pattern", metavar="REGEX", help="only programs whose name matches")
    what.add_argument(
        "--size", choices=("tiny", "small", "full"), help="input size (default: full on a GPU, tiny on the emulator)"
    )
    what.add_argument(
        "--param",
        action="append",
        type=_sweep,
        metavar="NAME=LIST",
        help="run with each of these values of a parameter, as in n=1k,1M (k, M, G are powers of 1000; Ki, Mi, Gi of "
        "1024) or boundary=clamp,mirror; may be repeated",
    )
    what.add_argument(
        "--variant",
        action="append",
        metavar="SPEC",
        help="a variant to compare with the baseline; may be repeated (default: -O2, gated as opt is). SPEC is O3 "
        "(nvcc's output), options of opt (-O3), a list of passes, a .ptx file, a fusion strategy (kf_trad, kfcm), "
        "REV@SPEC (the optimizer of a git revision), thesis (every method of the thesis), or, for image pipelines, "
        "lowering:NAME (isp, isp_warp, isp_rows, isp+m). NAME=SPEC gives it a name. SPEC+contract adds versions of "
        "kernels for launches with known facts. tuned:DIR is what contract tune has written to DIR. SPEC+graph "
        "launches it as a CUDA graph, SPEC+branches as one in which launches only wait for those that they depend on",
    )
    what.add_argument("--baseline", metavar="SPEC", help="the variant that the others are compared with (default: O3)")


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where to run")
    where.add_argument(
        "--backend",
        choices=("auto", "cuda", "emulator"),
        help="the GPU, or the emulator, which counts instead of timing (default: the GPU if there is one)",
    )
    where.add_argument(
        "--require-gpu", action="store_true", default=None, help="fail with exit code 4 if there is no GPU"
    )
    where.add_argument(
        "--arch", type=target, metavar="SM", help="the target that nvcc compiles for (default: the GPU's, or sm_90a)"
    )
    where.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="programs that run at the same time (default: from the number of GPUs and cores)",
    )
    where.add_argument(
        "--engine",
        choices=("local", "ray"),
        help="what distributes the programs: this computer, or a Ray cluster with one worker for each GPU (default: "
        "local)",
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how to measure")
    how.add_argument("--rounds", type=_positive, metavar="N", help="rounds of timing (default: 30)")
    how.add_argument("--samples", type=_positive, metavar="N", help="samples in each round (default: 10)")
    how.add_argument("--seeds", type=_positive, metavar="N", help="inputs that the outputs are checked on (default: 3)")
    how.add_argument("--min-effect", metavar="P%", help="the smallest difference that counts (default: 1%%)")
    how.add_argument(
        "--launch",
        choices=("auto", "stream", "graph"),
        help="how variants without +graph are launched: one by one in a stream, or as a CUDA graph (default: as a "
        "graph if a run is short or has many launches)",
    )
    how.add_argument("--timeout", type=float, metavar="S", help="seconds for checking one variant (default: 300)")
    how.add_argument("--dry-run", action="store_true", help="list what would run; run nothing")
    how.add_argument(
        "--profile", action="store_true", help="run each variant once without timing, for a profiler such as ncu"
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group("results")
    out.add_argument(
        "--json", dest="output", metavar="FILE", help="write the result file; it is updated after each program"
    )
    out.add_argument("--resume", action="store_true", help="skip programs whose results are already in the file")
    out.add_argument(
        "--fail-on",
        metavar="LIST",
        help="the verdicts that fail, besides wrong results: slower, worse, invalid, inconclusive, or none "
        "(default: none)",
    )
    _add_threshold(out, "how much worse than the baseline a figure may be")


_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _sweep(text: str) -> tuple[str, list[int | str]]:
    """The argparse type of ``--param``: the name of a parameter, and its values, which are numbers or words.

    >>> _sweep("n=1k,2Mi"), _sweep("boundary=clamp")
    (('n', [1000, 2097152]), ('boundary', ['clamp']))
    """
    name, _, values = text.partition("=")
    made = [_value(each) for each in values.split(",")]
    if not name.isidentifier() or None in made:
        raise argparse.ArgumentTypeError(f"'{text}' is not a parameter with values such as n=1k,1M")
    return name, [each for each in made if each is not None]


def _value(text: str) -> int | str | None:
    """A number with its unit, or a word; None for other text."""
    number = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    if number is not None:
        return int(number[1]) * _FACTORS[number[2]] if number[2] in _FACTORS else None
    return text if text.isidentifier() else None


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        metavar="LIST",
        help="the kinds of changes that fail: slower, worse, mismatch, missing, invalid, inconclusive, or none "
        f"(default: {_FAIL_ON})",
    )
    _add_threshold(parser, "how much a figure may get worse")
    parser.add_argument("--json", dest="output", metavar="FILE", help="write the differences as JSON; - is stdout")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write them as Markdown, for a job summary or a comment; - is stdout"
    )
    parser.add_argument(
        "--annotations",
        choices=("github", "gitlab"),
        help="print them on stdout at the source lines of their kernels: as commands of GitHub Actions, or as a "
        "Code Quality report of GitLab",
    )


def _add_threshold(parser: Any, what: str) -> None:
    parser.add_argument(
        "--threshold",
        action="append",
        metavar="REGEX=P%",
        help=f"{what} if its name benchmark:variant:kernel:figure matches; may be repeated",
    )


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
        "history": _history,
        "audit": _audit,
        "report": _report,
        "export": _export,
    }
    return actions[arguments.action](arguments)


def _run(arguments: argparse.Namespace) -> int:
    from .bench_run import run_benchmarks

    return run_benchmarks(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from ..programs.tasks import Problems, select
    from .bench_run import report_problems
    from .tables import print_table

    problems = Problems()
    programs = [benchmark for benchmark, _ in select(arguments.names, None, problems)]
    broken = report_problems(problems)
    # The kernels can be many. They stand last, where they make no other column wider.
    rows = [[b.fullname, b.description, ", ".join(b.sizes), ", ".join(b.kernels)] for b in programs]
    print_table(["program", "what it does", "sizes", "kernels"], rows)
    return BAD_INPUT if broken else FINE


# --- comparing


def _compare(arguments: argparse.Namespace) -> int:
    from ..harness.results import read

    return _report_changes(arguments, read(arguments.before), read(arguments.after))


def _track(arguments: argparse.Namespace) -> int:
    from ..harness.compare import slimmed
    from ..harness.results import read, write

    result = read(arguments.result)
    _check_consistency(arguments.result, result)
    if not Path(arguments.baseline).exists():
        if not arguments.update:
            message = f"{arguments.baseline}: error: No such file or directory; --update makes the result the baseline"
            raise CommandError(BAD_INPUT, message)
        code = FINE
    else:
        code = _report_changes(arguments, read(arguments.baseline), result)
    if arguments.update and code == FINE:
        write(arguments.baseline, slimmed(result))
        say(f"{arguments.baseline}: is now the result of {result.datetime}")
    elif arguments.update:
        say(f"{arguments.baseline}: stays as it was; --fail-on=none --update accepts the changes")
    return code


def _check_consistency(path: str, result: ResultFile) -> None:
    """Raise `CommandError` for a result file that contradicts itself."""
    from ..harness.audit import audit

    if contradictions := audit(result):
        raise CommandError(BAD_INPUT, "\n".join(f"{path}: error: {line}" for line in contradictions))


def _report_changes(arguments: argparse.Namespace, before: ResultFile, after: ResultFile) -> int:
    """Print the changes between two results; the exit code by ``--fail-on``."""
    import json

    from ..harness.compare import FAILING, changes_to_json, compare_results

    fail_on = failing(arguments.fail_on, _FAIL_ON, FAILING)
    changes = compare_results(before, after, thresholds(arguments.threshold))
    if arguments.output:
        from .files import Outputs

        outputs = Outputs()
        outputs.add(arguments.output, json.dumps(changes_to_json(changes), indent=1, ensure_ascii=False) + "\n")
        outputs.commit()
    failed = {each.kind for each in changes} & fail_on
    if arguments.markdown:
        from ..harness.change_report import changes_markdown
        from .files import Outputs

        outputs = Outputs()
        outputs.add(arguments.markdown, changes_markdown(changes, before, after, failed))
        outputs.commit()
    if arguments.annotations:
        from .annotations import print_annotations

        print_annotations(arguments.annotations, changes, after)
    _print_changes(changes, before)
    return exit_code(failed)


def _print_changes(changes: Sequence[Change], before: ResultFile) -> None:
    from ..harness.compare import change_lines, counted_changes

    for line in change_lines(changes, before):
        say(line)
    counts = counted_changes(changes, before)
    say(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no differences")


def _history(arguments: argparse.Namespace) -> int:
    from .bench_history import run_history

    return run_history(arguments)


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
    if unknown := sorted(set(formats) - {*FORMS, "html", "thesis"}):
        usage_error(f"--format: unknown: {', '.join(unknown)}; there are {', '.join(FORMS)}, html, thesis")
    result, folder = read(arguments.result), Path(arguments.output)
    # All texts are made before anything is written. They may need what is not installed.
    texts: dict[Path, str] = {}
    if "html" in formats:
        texts[folder / "report.html"] = _page(arguments, result)
    if "thesis" in formats:
        from ..suites.thesis_report import thesis_report

        texts[folder / "thesis.md"] = thesis_report(result)
    written = report(result, folder, [each for each in formats if each not in ("html", "thesis")])
    for path, text in texts.items():
        write_text(path, text)
    for path in [*written, *texts]:
        print(path)
    return FINE


def _page(arguments: argparse.Namespace, result: ResultFile) -> str:
    from ..harness.history import entry_of, series_of, steps_of
    from ..harness.page import result_page
    from ..programs.history_store import BranchStore, FolderStore
    from .page_arms import codes_of

    codes, since = codes_of(result), _since(arguments, result)
    if not arguments.history and not arguments.history_branch:
        return result_page(result, codes, since=since)
    store = BranchStore(arguments.history_branch) if arguments.history_branch else FolderStore(Path(arguments.history))
    programs = entry_of(result).results
    series = [each for each in series_of(store.read()) if each.program in programs]
    return result_page(result, codes, series, steps_of(series), since)


def _since(arguments: argparse.Namespace, result: ResultFile) -> Since | None:
    """The changes since the result file of `--baseline`; None without it."""
    from ..harness.compare import compare_results
    from ..harness.page_tables import Since
    from ..harness.results import read

    if not arguments.baseline:
        return None
    before = read(arguments.baseline)
    return Since(arguments.baseline, before, compare_results(before, result, thresholds(arguments.threshold)))


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
