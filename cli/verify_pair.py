"""`ptxmotion verify A B`: compares what the kernels of two files compute, and prints a verdict on each.

Verdicts go to stdout; progress and what is left undecided go to stderr. A kernel is *same* or *different* only if an
input shows it, or *same* if both files have the same text of everything that it may use.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..spelling import did_you_mean
from .argument_types import positive
from .files import read_module
from .outcome import BAD_INPUT, DIFFERENT, FINE, INCONCLUSIVE, CommandError, say, usage_error
from .progress import Progress

if TYPE_CHECKING:
    from ..harness.verification.equivalence import GivenLaunch, Verdict
    from ..ptx import Module

__all__ = ["add_pair_arguments", "run_pair"]


def add_pair_arguments(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """The arguments of `verify A B` besides the two files."""
    group.add_argument(
        "--inputs", metavar="FILE.py", help="a Python file whose function launches(seed) returns the inputs"
    )
    group.add_argument(
        "--seeds",
        type=positive,
        metavar="N",
        help="the number of inputs for each kernel (default: 48, or 3 with --inputs)",
    )
    group.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="the time for each kernel; small launches come first (default: 10)",
    )
    group.add_argument(
        "--restrict",
        action="store_true",
        default=None,
        help="use no inputs in which two pointers point to the same buffer",
    )
    group.add_argument("--kernel", action="append", metavar="NAME", help="compare only this kernel; may be repeated")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds greater than 0")
    return value


def run_pair(arguments: argparse.Namespace) -> int:
    """Compare the files ``before`` and ``after``; the exit code: 1 if they differ, 5 if a kernel is inconclusive."""
    from ..emulator import LaunchError
    from ..harness.verification.equivalence import launches_from_file

    first, second = read_module(arguments.before), read_module(arguments.after)
    names = _names(first, arguments)
    try:
        launches = launches_from_file(arguments.inputs) if arguments.inputs else None
        verdicts = _verdicts(first, second, names, launches, arguments)
    except LaunchError as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from error
    return _conclude(verdicts, given=launches is not None)


def _names(module: Module, arguments: argparse.Namespace) -> list[str]:
    """The kernels to compare."""
    names = list(dict.fromkeys(entry.name for entry in module.entries))
    chosen = arguments.kernel
    for name in chosen or ():
        if name not in names:
            usage_error(f"{arguments.before} has no kernel '{name}'{did_you_mean(name, names)}")
    names = [name for name in names if chosen is None or name in chosen]
    if not names:
        raise CommandError(INCONCLUSIVE, f"ptxmotion: error: {arguments.before} has no kernel to compare")
    return names


def _verdicts(
    first: Module,
    second: Module,
    names: Sequence[str],
    launches: Callable[[int], Sequence[GivenLaunch]] | None,
    arguments: argparse.Namespace,
) -> list[Verdict]:
    """Compare the kernels in turn and print the verdict on each."""
    from ..harness.verification.equivalence import SECONDS, Comparison, compare, equal_kernels, verdict

    seconds = arguments.budget or SECONDS
    seeds = None if arguments.seeds is None else range(arguments.seeds)
    equal = equal_kernels(first, second)
    verdicts: list[Verdict] = []
    with Progress() as progress:
        for number, name in enumerate(names, 1):
            found: list[Comparison] = []
            title = f"kernel {number} of {len(names)}: {name[:40]}"
            progress.update(f"{title}, finding what its pointers lead to")
            inputs = () if name in equal else compare(
                first, second, seeds=seeds, kernels=[name], launches=launches, seconds=seconds,
                restrict=bool(arguments.restrict),
            )  # fmt: skip
            for each in inputs:
                found.append(each)
                progress.update(f"{title}, {len(found)} inputs compared")
            verdicts.append(verdict(name, found, is_equal=name in equal))
            progress.print("".join(f"{line}\n" for line in _lines_of(verdicts[-1])))
    return verdicts


def _lines_of(found: Verdict) -> list[str]:
    """The lines for a kernel: its verdict, the differences with their inputs, and the undecided inputs."""
    lines = [f"{found.kernel}: {found.summary}"]
    for each in found.comparisons:
        if each.outcome == "different":
            place = f"input {each.seed} ({each.name}): " if each.name else ""
            lines += [f"  {place}{line}" for line in each.details]
    return lines + [f"  {line}" for line in found.undecided]


def _conclude(verdicts: Sequence[Verdict], *, given: bool) -> int:
    """Print the number of kernels by outcome, and how the undecided ones could be decided; the exit code.

    ``given``: the inputs are those of a file.
    """
    from ..harness.verification import equivalence

    outcomes = [each.outcome for each in verdicts]
    if len(verdicts) > 1:
        say("kernels: " + ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes)))
    undecided = [each for each in verdicts if each.outcome not in (equivalence.SAME, equivalence.DIFFERENT)]
    if undecided:
        names = ", ".join(each.kernel for each in undecided[:3]) + (", …" if len(undecided) > 3 else "")
        remedies = [] if given else ["name inputs with --inputs"]
        remedies += ["allow more time with --budget"] if any(each.is_out_of_time for each in undecided) else []
        remedy = f": {' or '.join(remedies)}" if remedies else ""
        say(f"ptxmotion: warning: nothing is known about {names}: no input decided{remedy}")
    if equivalence.DIFFERENT in outcomes:
        return DIFFERENT
    return INCONCLUSIVE if undecided else FINE
