"""`bench history`: keeps the figures of result files over commits, prints them, and finds the commits of steps."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .argument_types import regex
from .fail_on import exit_code, failing
from .outcome import BAD_INPUT, FINE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.history import Series, SeriesStep
    from ..programs.history_store import Store

__all__ = ["DEFAULT_FOLDER", "add_arguments", "run_history", "store_of"]

#: Where a history is, unless `--folder` or `--branch` names a place.
DEFAULT_FOLDER = "benchmarks/history"

_FAILING = ("slower", "worse")
#: By name of an action: the end of its help.
_EXAMPLES = {
    "add": """\
examples:
  ptxmotion bench history add results.json
  ptxmotion bench history add results.json --folder history
""",
    "show": """\
examples:
  ptxmotion bench history show
  ptxmotion bench history show --all -k pathfinder
""",
    "find": """\
examples:
  ptxmotion bench history find
  ptxmotion bench history find --min-effect=2% --fail-on=slower,worse
""",
}
_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench history`."""
    works = parser.add_subparsers(dest="work", metavar="WORK", required=True)

    def work(name: str, text: str) -> argparse.ArgumentParser:
        each = works.add_parser(name, help=text, description=text.capitalize() + ".", epilog=_EXAMPLES[name])
        place = each.add_mutually_exclusive_group()
        place.add_argument("--folder", metavar="DIR", help=f"the folder of the history (default: {DEFAULT_FOLDER})")
        place.add_argument("--branch", metavar="NAME", help="a branch of the current git repository, not a folder")
        return each

    each = work("add", "add the figures of a result file")
    each.add_argument("result", metavar="RESULT", help="the result file")
    for name, text in (
        ("show", "print the figures over commits"),
        ("find", "find the commits where a figure changed, and by how much"),
    ):
        each = work(name, text)
        each.add_argument(
            "-k",
            dest="pattern",
            type=regex,
            metavar="REGEX",
            help="only figures whose name program:variant:kernel:figure matches",
        )
        each.add_argument("--json", dest="output", metavar="FILE", help="write them as JSON; - is stdout")
        if name == "show":
            each.add_argument("--all", action="store_true", help="also figures that never changed")
            continue
        each.add_argument(
            "--min-effect", metavar="P%", help="the smallest step of a speedup or a time that counts (default: 1%%)"
        )
        each.add_argument("--since", metavar="COMMIT", help="only steps of results after those of this commit")
        each.add_argument(
            "--fail-on", metavar="LIST", help="exit code 1 for these steps: slower, worse, or none (default: none)"
        )


def store_of(arguments: argparse.Namespace) -> Store:
    """The place of the history."""
    from ..programs.history_store import BranchStore, FolderStore

    return BranchStore(arguments.branch) if arguments.branch else FolderStore(Path(arguments.folder or DEFAULT_FOLDER))


def run_history(arguments: argparse.Namespace) -> int:
    """Run `bench history`; its exit code."""
    works = {"add": _add, "show": _show, "find": _find}
    return works[arguments.work](arguments)


def _add(arguments: argparse.Namespace) -> int:
    from ..harness.audit import audit
    from ..harness.history import entry_of
    from ..harness.results import read

    result = read(arguments.result)
    if contradictions := audit(result):
        raise CommandError(BAD_INPUT, "\n".join(f"{arguments.result}: error: {line}" for line in contradictions))
    entry = entry_of(result)
    store = store_of(arguments)
    where = store.add(entry)
    programs = f"{len(entry.results)} program{'s' if len(entry.results) != 1 else ''}"
    say(f"{where}: {sum(map(len, entry.results.values()))} results of {programs} at {entry.id}")
    return FINE


def _selected(arguments: argparse.Namespace) -> list[Series]:
    from ..harness.history import series_of

    store = store_of(arguments)
    entries = store.read()
    if not entries:
        raise CommandError(BAD_INPUT, f"{store.name}: error: no results; `bench history add` adds them")
    pattern: re.Pattern[str] | None = arguments.pattern
    return [each for each in series_of(entries) if pattern is None or pattern.search(_name(each))]


def _name(series: Series) -> str:
    return f"{series.program}:{series.arm}:{series.figure}"


def _show(arguments: argparse.Namespace) -> int:
    from ..harness.figures import number_text, percent_text
    from .tables import print_table

    series = [each for each in _selected(arguments) if arguments.all or len(set(each.values)) > 1]
    if arguments.output:
        _write(arguments.output, [_series_json(each) for each in series])
        return FINE
    rows: list[Sequence[str | int | float | None]] = []
    for each in series:
        values = [number_text(value) for value in each.values[-_SHOWN:]]
        shown = " ".join(["…", *values] if len(each.values) > _SHOWN else values)
        change = percent_text(each.values[0], each.values[-1])
        rows.append((each.program, each.arm, each.figure, shown, each.unit, change, each.entries[-1].id))
    if not rows:
        say("no figure changed; --all prints all of them")
        return FINE
    print_table(["program", "variant", "figure", "values", "unit", "change", "last commit"], rows)
    return FINE


def _find(arguments: argparse.Namespace) -> int:
    from ..harness.history import steps_of
    from .tables import print_table

    fails = failing(arguments.fail_on, "", (*_FAILING, "mismatch", "missing", "invalid", "inconclusive"))
    steps = _since(arguments.since, steps_of(_selected(arguments), _effect(arguments.min_effect)))
    if arguments.output:
        _write(arguments.output, [_step_json(each) for each in steps])
    elif steps:
        print_table(["commit", "before it", "program", "variant", "figure", "change", "step"], list(map(_row, steps)))
    counts = {kind: sum(each.kind == kind for each in steps) for kind in dict.fromkeys(each.kind for each in steps)}
    say(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no steps")
    return exit_code({each.kind for each in steps} & fails)


def _effect(text: str | None) -> float:
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", text or "1%")
    if percent is None or not 0 < float(percent[1]) < 100:
        usage_error(f"--min-effect: '{text}' is not a percentage such as 1%")
    return float(percent[1]) / 100


def _since(commit: str | None, steps: list[SeriesStep]) -> list[SeriesStep]:
    """The steps after the last result of a commit, which may be shortened. All steps where ``commit`` is None."""
    if commit is None:
        return steps
    entries = [entry for each in steps for entry in each.series.entries]
    orders = [entry.order for entry in entries if str(entry.commit.get("id") or "").startswith(commit)]
    if steps and not orders:
        usage_error(f"--since: the history has no result of commit '{commit}'")
    return [each for each in steps if each.first.order > max(orders)]


def _row(each: SeriesStep) -> list[str]:
    from ..harness.figures import number_text, percent_text

    variants = f"(all {len(each.arms)} variants)" if each.is_all else ", ".join(each.arms)
    change = f"{number_text(each.step.before)} → {number_text(each.step.after)} {each.series.unit}"
    percent = percent_text(each.step.before, each.step.after)
    return [
        each.first.id,
        each.last.id,
        each.series.program,
        variants,
        each.series.figure,
        f"{change} ({percent})",
        each.kind,
    ]


def _series_json(each: Series) -> dict[str, Any]:
    points = [
        {"commit": entry.commit, "datetime": entry.datetime, "value": value}
        for entry, value in zip(each.entries, each.values, strict=True)
    ]
    names = {"environment": each.environment, "program": each.program, "variant": each.arm, "figure": each.figure}
    return {**names, "unit": each.unit, "points": points}


def _step_json(each: SeriesStep) -> dict[str, Any]:
    from ..harness.figures import percent_of

    return {
        "environment": each.series.environment,
        "program": each.series.program,
        "variants": list(each.arms),
        "figure": each.series.figure,
        "unit": each.series.unit,
        "commit": each.first.commit,
        "last_commit_before": each.last.commit,
        "before": each.step.before,
        "after": each.step.after,
        "percent": percent_of(each.step.before, each.step.after),
        "kind": each.kind,
        "regressed": each.regressed,
    }


def _write(path: str, data: Any) -> None:
    from .files import Outputs

    outputs = Outputs()
    outputs.add(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    outputs.commit()
