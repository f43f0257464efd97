"""Run a level over every PTX file below a folder, and let ptxas assemble the outputs.

    python docs/experiments/lcm_corpus.py DIR [--jobs 2] [--cache FILE] [--json FILE]

For each subfolder: how many files ptxas accepts before and after; redundant expressions found by the names of their
operands and by value; what was moved, what was redundant, what was refused; kernels whose machine code is the same,
better, worse or different; and the sums of registers, spill bytes and machine instructions before and after. Files
that ptxas refuses as they are count as such and are left out of the rest. Refused outputs and errors of ptxmotion are
printed when they happen, and make the exit code 1.

With a cache, nothing is assembled twice, so a run after a change of a pass starts ptxas for changed outputs only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ptxmotion.ptx import Module, PtxError, load, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.machine_diff import COSTS, figures
from ptxmotion.toolchain.tools import PtxasError, ToolTimeout, find_tool
from ptxmotion.transforms.opportunities import opportunities
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

Side = dict[str, dict[str, Any]]  #: By kernel: its figures, and a digest of all that the cubin contains about it.

VERDICTS = ("identical", "better", "worse", "different")
SUMMED = ("registers", "spill bytes", "instructions", "weighted instructions")


@dataclass
class Outcome:
    """The outcome for one file. ``problem`` describes the error; it is empty where there is none."""

    path: str
    state: str = "ok"  #: or ``refused before``, ``unreadable``, ``refused after``, ``error``
    problem: str = ""
    kernels: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    before: Counter[str] = field(default_factory=Counter[str])
    after: Counter[str] = field(default_factory=Counter[str])
    changed: list[tuple[str, str, str]] = field(default_factory=list["tuple[str, str, str]"])
    seconds: float = 0.0
    cached: dict[str, Any] = field(default_factory=dict[str, Any])


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--passes", default="O1", metavar="LIST", help="a level or a list of passes (default: O1)")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep what ptxas said here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here as well")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path has this in it")
    parser.add_argument("--list-changed", action="store_true", help="name every kernel whose machine code changed")
    arguments = parser.parse_args()
    found = list(_outcomes(arguments))
    _print_table(found)
    if arguments.list_changed:
        for each in found:
            for kernel, verdict, what in each.changed:
                print(f"{verdict}: {each.path}: {kernel}: {what}")
    if arguments.json:
        document = [{k: v for k, v in vars(each).items() if k != "cached"} for each in found]
        arguments.json.write_text(json.dumps({"schema_version": 1, "files": document}, indent=1), encoding="utf-8")
    return 1 if any(each.state in ("refused after", "error") for each in found) else 0


def _outcomes(arguments: argparse.Namespace) -> Iterator[Outcome]:
    root: Path = arguments.folder
    paths = sorted(str(p.relative_to(root)) for p in root.rglob("*.ptx") if arguments.only in str(p))
    known = _read_cache(arguments.cache)
    judge = partial(_judge, root, arguments.passes, known, find_tool("ptxas").version)
    with process_pool(max(1, arguments.jobs)) as pool:
        for number, outcome in enumerate(pool.map(judge, paths, chunksize=4), 1):
            _append_cache(arguments.cache, outcome.cached)
            if outcome.state in ("refused after", "error"):
                print(f"{outcome.path}: {outcome.state}: {outcome.problem}", file=sys.stderr, flush=True)
            if number % 100 == 0:
                print(f"{number} of {len(paths)} files", file=sys.stderr, flush=True)
            yield outcome


def _judge(root: Path, passes: str, known: dict[str, Any], ptxas: str, path: str) -> Outcome:
    outcome = Outcome(path)
    try:
        _run(root / path, passes, known, ptxas, outcome)
    except Exception as error:  # the error is reported for this file, and the run continues
        outcome.state, outcome.problem = "error", f"{type(error).__name__}: {error}"
    return outcome


def _run(path: Path, passes: str, known: dict[str, Any], ptxas: str, outcome: Outcome) -> None:
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    before = _assembled(text, known, ptxas, outcome)
    if isinstance(before, str):
        outcome.state, outcome.problem = "refused before", before
        return
    started = time.perf_counter()
    try:
        module = load(str(path))
        verify(module)
    except PtxError as error:
        outcome.state, outcome.problem = "error", f"ptxas accepts it, we do not: {error}"
        return
    outcome.kernels = len(module.entries)
    outcome.seconds = time.perf_counter() - started
    _count_opportunities(module, outcome)
    started = time.perf_counter()
    remarks = Remarks(module)
    run_passes(module, passes, remarks)
    printed = print_module(module)
    outcome.counts["moved by value"] += sum(n for (_, _, what), n in remarks.counts.items() if what == "moved by value")
    outcome.counts["moved lexically"] += sum(
        n for (_, _, what), n in remarks.counts.items() if what == "moved lexically"
    )
    outcome.seconds += time.perf_counter() - started
    _count_remarks(remarks, outcome)
    after = _assembled(printed, known, ptxas, outcome)
    if isinstance(after, str):
        outcome.state, outcome.problem = "refused after", after
        return
    _compare(before, after, outcome)


def _count_opportunities(module: Module, outcome: Outcome) -> None:
    for kernel in module.kernels:
        found = opportunities(kernel, module)
        for name, redundancy in (("by name", found.lexically), ("by value", found.by_value)):
            if redundancy is not None:
                outcome.counts[name] += redundancy.classes
                outcome.counts[f"{name}, occurrences"] += redundancy.occurrences


def _count_remarks(remarks: Remarks, outcome: Outcome) -> None:
    for remark in dict.fromkeys(remarks.items):
        if remark.kind == "Passed":
            outcome.counts[remark.name.lower()] += 1
        elif remark.reason:
            outcome.counts["refused"] += 1
            outcome.counts[f"refused: {remark.reason}"] += 1


def _compare(before: Side, after: Side, outcome: Outcome) -> None:
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            outcome.state, outcome.problem = "error", f"kernel {name} is gone"
            return
        for what in SUMMED:
            outcome.before[what] += old[what]
            outcome.after[what] += new[what]
        grown = [what for what in COSTS if new[what] > old[what]]
        shrunk = [what for what in COSTS if new[what] < old[what]]
        same = old["digest"] == new["digest"]
        verdict = "identical" if same else "worse" if grown else "better" if shrunk else "different"
        outcome.counts[verdict] += 1
        if verdict != "identical":
            what = ", ".join(f"{w} {old[w]} → {new[w]}" for w in (*grown, *shrunk))
            outcome.changed.append((name, verdict, what))


# What ptxas said


def _assembled(text: str, known: dict[str, Any], ptxas: str, outcome: Outcome) -> Side | str:
    """The figures of each kernel, or what ptxas refused."""
    key = hashlib.sha256(f"{ptxas}\n{text}".encode("utf-8", "surrogateescape")).hexdigest()
    if key in known:
        return known[key]
    result: Side | str
    try:
        result = {
            name: {
                **each.table(),
                "digest": hashlib.sha256(json.dumps(each.code.to_json(), sort_keys=True).encode()).hexdigest(),
            }
            for name, each in figures(text).items()
        }
    except (PtxasError, ToolTimeout) as error:
        result = " | ".join(str(error).splitlines()[:4])
    outcome.cached[key] = result
    return result


def _read_cache(path: Path | None) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                key, result = json.loads(line)
            except ValueError:  # a line that an interruption cut off
                continue
            known[key] = result
    return known


def _append_cache(path: Path | None, entries: dict[str, Any]) -> None:
    if path is not None and entries:
        with path.open("a", encoding="utf-8") as file:
            for entry in entries.items():
                file.write(json.dumps(entry) + "\n")


# The table

_COLUMNS = (
    "by name",
    "by name, occurrences",
    "by value",
    "by value, occurrences",
    "moved",
    "redundant",
    "refused",
    *VERDICTS,
)


def _print_table(found: list[Outcome]) -> None:
    suites: dict[str, list[Outcome]] = {}
    for each in found:
        suites.setdefault(os.path.dirname(each.path) or ".", []).append(each)
    rows = [_row(name, outcomes) for name, outcomes in suites.items()]
    if len(suites) > 1:
        rows.append(_row("all", found))
    headings = ["suite", "files", "accepted", "again", "kernels", *_COLUMNS, "registers", "spills", "instr", "weighted"]
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    for row in [headings, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells]))
    refusals = Counter[str]()
    for each in found:
        refusals.update({k[9:]: n for k, n in each.counts.items() if k.startswith("refused: ")})
    for reason, number in refusals.most_common():
        print(f"refused {number:8}  {reason}")


def _row(name: str, outcomes: list[Outcome]) -> list[str]:
    accepted = [each for each in outcomes if each.state != "refused before"]
    fine = [each for each in accepted if each.state == "ok"]
    counts = sum((each.counts for each in fine), Counter[str]())
    before = sum((each.before for each in fine), Counter[str]())
    after = sum((each.after for each in fine), Counter[str]())
    sums = [f"{before[what]} {after[what] - before[what]:+}" for what in SUMMED]
    numbers = [len(outcomes), len(accepted), len(fine), sum(each.kernels for each in fine)]
    return [name, *map(str, numbers), *(str(counts[column]) for column in _COLUMNS), *sums]


if __name__ == "__main__":
    sys.exit(main())
