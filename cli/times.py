"""`ptxmotion times`: how long the kernels of a program take, alone or compared with another command."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .outcome import FINE, MISSING, CommandError, usage_error, warn

if TYPE_CHECKING:
    from ..programs.kernel_times import Comparison, KernelTime

EPILOG = """\
It needs a GPU and libcupti, which is a part of CUDA and of nvidia-cuda-cupti. The programs are not changed. Their
output is not shown. With --before, both commands are executed several times, and the mean times of launches are
compared. A verdict is FASTER or SLOWER if the 99 % interval lies outside of 1 %.

examples:
  ptxmotion times ./solver                                               (on a machine with a GPU)
  ptxmotion times --before ./solver ptxmotion run ./solver               (on a machine with a GPU)
  ptxmotion times --before 'nvcc/solver 10' ptxmotion/solver 10          (on a machine with a GPU)
"""

_ROUNDS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `times`."""
    from .argument_types import positive

    parser.add_argument("--before", metavar="COMMAND", help="compare with this command, one argument in quotes")
    parser.add_argument("--rounds", type=positive, metavar="N", help=f"rounds of the comparison (default: {_ROUNDS})")
    parser.add_argument("--json", metavar="FILE", help="also write the times to this file as JSON")
    parser.add_argument("program", metavar="COMMAND", help="the program to run")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="the arguments of the program")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    from ..injection.library import NoLibrary, find_library
    from ..programs.kernel_times import Recorder, compared, find_cupti

    if arguments.rounds and arguments.before is None:
        usage_error("--rounds is for a comparison: name the other command with --before")
    after = [arguments.program, *arguments.words]
    before = None if arguments.before is None else _words(arguments.before)
    try:
        recorder = Recorder(find_library("_times"), find_cupti(), warn)
    except NoLibrary as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None
    if before is None:
        found = recorder.executed(after)
        _write(arguments.json, {"kernels": [_time_to_json(*each) for each in found.items()]})
        _print_times(found)
        return FINE
    from .progress import Progress

    rounds = arguments.rounds or _ROUNDS
    with Progress() as progress:
        rows, others = compared(
            lambda: recorder.executed(before),
            lambda: recorder.executed(after),
            rounds,
            lambda done: progress.update(f"round {done + 1} of {rounds}", done, rounds),
        )
    _write(arguments.json, {"comparisons": [_comparison_to_json(each) for each in rows], "not_compared": others})
    _print_comparisons(rows, others)
    return FINE


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        usage_error(f"--before: {error}")
    if not words:
        usage_error("--before is empty")
    return words


def _print_times(found: Mapping[str, KernelTime]) -> None:
    from .tables import print_table

    total = sum(each.seconds for each in found.values())
    rows = [
        (_source_name(name), each.launches, each.seconds * 1e3, each.mean * 1e6, each.seconds / total)
        for name, each in sorted(found.items(), key=lambda item: item[1].seconds, reverse=True)
    ]
    print_table(("kernel", "launches", "ms", "µs per launch", "share"), rows)


def _print_comparisons(rows: Sequence[Comparison], others: Sequence[str]) -> None:
    from .tables import print_table

    cells = [
        (
            _source_name(row.kernel),
            _launches(row),
            row.before * 1e6,
            row.after * 1e6,
            row.estimate.speedup,
            row.estimate.low,
            row.estimate.high,
            row.verdict,
        )
        for row in rows
    ]
    headings = ("kernel", "launches", "µs before", "µs after", "speedup", "low", "high", "verdict")
    print_table(headings, cells)
    before, after = (sum(each) for each in zip(*(_milliseconds(row) for row in rows), strict=True)) if rows else (0, 0)
    print(f"all kernels of an execution: {before:.3f} ms before, {after:.3f} ms after")
    for name in others:
        warn(f"{_source_name(name)} is not launched in each execution of both commands, and is not compared")


def _milliseconds(row: Comparison) -> tuple[float, float]:
    """The time of the kernel in one execution of each command."""
    return row.before * row.launches[0] * 1e3, row.after * row.launches[1] * 1e3


def _launches(row: Comparison) -> str:
    before, after = row.launches
    return f"{before:g}" if before == after else f"{before:g} → {after:g}"


def _source_name(kernel: str) -> str:
    from ..toolchain.demangle import demangled

    return demangled(kernel)


def _time_to_json(kernel: str, time: KernelTime) -> dict[str, Any]:
    return {"kernel": kernel, "launches": time.launches, "seconds": time.seconds}


def _comparison_to_json(row: Comparison) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "launches": row.launches,
        "seconds_before": row.before,
        "seconds_after": row.after,
        "speedup": row.estimate.speedup,
        "low": row.estimate.low,
        "high": row.estimate.high,
        "control": row.control.speedup,
        "verdict": row.verdict,
    }


def _write(path: str | None, content: dict[str, Any]) -> None:
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema_version": 1, **content}, file, indent=2)
