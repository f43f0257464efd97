"""`ptxmotion verify`: are files well-formed, and does a folder of PTX survive being parsed and printed?"""

from __future__ import annotations

import argparse
import sys

from .outcome import BAD_INPUT, DIFFERENT, FINE, say, usage_error

EPILOG = """\
examples:
  ptxmotion verify kernel.ptx
  ptxmotion verify --round-trip build/ptx --jobs 4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `verify`."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="PTX to check; every fault is reported; - is stdin")
    parser.add_argument(
        "--round-trip",
        metavar="DIR",
        help="parse and print every .ptx file below DIR; ptxas judges: is it accepted, is the machine code the same",
    )
    parser.add_argument(
        "--arch", metavar="SM", help="with --round-trip: assemble for this instead of each module's target"
    )
    parser.add_argument("--jobs", type=_jobs, metavar="N", help="with --round-trip: processes at a time (default: 1)")
    parser.add_argument(
        "--log", metavar="FILE", help="with --round-trip: keep results here and do not judge a file twice"
    )


def _jobs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of processes")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 1 where a round trip lost something, 3 where a file is not well-formed."""
    folder = arguments.round_trip
    if (folder is None) == (not arguments.files):
        usage_error("name files to check, or a folder with --round-trip")
    if folder is None:
        for option in ("arch", "jobs", "log"):
            if getattr(arguments, option) is not None:
                usage_error(f"--{option} goes with --round-trip")
        return max([_check(path) for path in arguments.files])
    return _round_trip(arguments)


def _check(path: str) -> int:
    from ..ptx import PtxError
    from ..ptx.verify import problems
    from .files import parse_bytes, read_bytes

    try:
        found = problems(parse_bytes(read_bytes(path), path))
    except PtxError as error:
        found = [error]
    except OSError as error:
        say(f"{path}: error: {error.strerror}")
        return BAD_INPUT
    for problem in found:
        say(str(problem))
    return BAD_INPUT if found else FINE


def _round_trip(arguments: argparse.Namespace) -> int:
    from ..harness.round_trip import check_folder

    report = check_folder(arguments.round_trip, jobs=arguments.jobs or 1, arch=arguments.arch, log=arguments.log)
    sys.stdout.write(report.table() + "\n")
    for failure in report.failures:
        say(f"{failure.path}: error: {failure.message}")
    return DIFFERENT if report.failures else FINE
