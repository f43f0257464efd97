"""`ptxmotion verify`: checks that a file is well-formed, that two files compute the same, or a folder's round trip."""

from __future__ import annotations

import argparse
import sys

from .argument_types import target
from .outcome import BAD_INPUT, DIFFERENT, FINE, say, usage_error

EPILOG = """\
Exit codes: 1 if two files compute different results or a round trip changed a file, 3 if a file is not well-formed,
5 if the comparison of a kernel is inconclusive: no input changed the compared memory, or no run reached its end.

Without --inputs, the inputs are generated from the kernel. A file of inputs is Python, and is executed:
  def launches(seed):
      x = np.arange(64, dtype=np.float32) + seed
      yield dict(kernel="scale", grid=1, block=64, args=[np.float32(2), x, np.uint32(64)])

The table of --round-trip counts, for each folder, the files that ptxmotion parses, those that ptxas accepts (accepted)
and also accepts as ptxmotion prints them (again), and those of which ptxas then makes the same code (identical).

examples:
  ptxmotion verify kernel.ptx
  ptxmotion verify kernel.ptx faster.ptx --seeds 50 --budget 60
  ptxmotion verify kernel.ptx faster.ptx --inputs inputs.py
  ptxmotion verify --round-trip build/ptx --jobs 4
"""

_OF_FOLDER = ("arch", "jobs", "log")
_OF_PAIR = ("inputs", "seeds", "kernel", "budget", "restrict")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `verify`."""
    from .verify_pair import add_pair_arguments

    parser.add_argument("before", nargs="?", metavar="A", help="PTX to check; all errors are reported; - is stdin")
    parser.add_argument(
        "after", nargs="?", metavar="B", help="PTX that must compute the same as A; both run on the emulator"
    )
    pair = parser.add_argument_group("options for A and B")
    add_pair_arguments(pair)
    folder = parser.add_argument_group("options for a folder")
    folder.add_argument(
        "--round-trip",
        metavar="DIR",
        help="parse and print every .ptx file below DIR; check that the machine code stays the same",
    )
    folder.add_argument(
        "--arch", type=target, metavar="SM", help="the target to assemble for (default: that of each module)"
    )
    folder.add_argument("--jobs", type=_jobs, metavar="N", help="number of parallel processes (default: 1)")
    folder.add_argument(
        "--log", metavar="FILE", help="write results to FILE, and skip files whose results it already has"
    )


def _jobs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of processes")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    folder = arguments.round_trip
    if (folder is None) == (arguments.before is None):
        usage_error("name a file to check, two to compare, or a folder with --round-trip")
    _refuse(arguments, _OF_FOLDER if folder is None else _OF_PAIR, "--round-trip" if folder is None else "two files")
    if folder is not None:
        return _round_trip(arguments)
    if arguments.after is None:
        _refuse(arguments, _OF_PAIR, "two files")
        return _check(arguments.before)
    if "-" in (arguments.before, arguments.after):
        usage_error("two files are compared by name: stdin cannot be one of them")
    code = max(_check(arguments.before), _check(arguments.after))
    if code:
        return code
    from .verify_pair import run_pair

    return run_pair(arguments)


def _refuse(arguments: argparse.Namespace, options: tuple[str, ...], use: str) -> None:
    for option in options:
        if getattr(arguments, option) is not None:
            usage_error(f"--{option} is an option for {use}")


def _check(path: str) -> int:
    from ..ptx import PtxError
    from ..ptx.verify import problems
    from .files import parse_bytes, read_bytes

    try:
        errors = problems(parse_bytes(read_bytes(path), path))
    except PtxError as error:
        errors = [error]
    for error in errors:
        say(str(error))
    return BAD_INPUT if errors else FINE


def _round_trip(arguments: argparse.Namespace) -> int:
    from ..toolchain.round_trip import check_folder

    report = check_folder(arguments.round_trip, jobs=arguments.jobs or 1, arch=arguments.arch, log=arguments.log)
    sys.stdout.write(report.table() + "\n")
    for failure in report.failures:
        say(f"{failure.path}: error: {failure.message}")
    return DIFFERENT if report.failures else FINE
