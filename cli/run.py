"""`ptxmotion run`: runs a program that is not rebuilt, and optimizes its PTX when it is loaded."""

from __future__ import annotations

import argparse
import json
import os
import tempfile

from .outcome import MISSING, CommandError, say, usage_error, warn

EPILOG = """\
The exit status is that of the program; 128 and the number of the signal that ended it. A summary is printed on stderr
when the program has ended. Settings of the optimizer are environment variables: PTXMOTION_FLAGS (options of opt;
default: -O3), PTXMOTION_ONLY and PTXMOTION_SKIP (regular expressions for names of kernels), PTXMOTION_LOG,
PTXMOTION_SECONDS, PTXMOTION_PTXAS.

examples:
  ptxmotion run ./solver                                  (on a machine with a GPU)
  ptxmotion run --json summary.json python train.py       (on a machine with a GPU)
"""

_NO_SUCH_PROGRAM, _BY_SIGNAL = 127, 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `run`."""
    parser.add_argument("--json", metavar="FILE", help="write the summary to this file as JSON, and do not print it")
    parser.add_argument("program", metavar="PROGRAM", help="the program to run")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="the arguments of the program")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; the exit status of the program."""
    from ..injection.library import NoLibrary, environment, find_library
    from ..injection.server import LOG, run_program
    from .ptx_step import parse_flags

    try:
        library = find_library()
    except NoLibrary as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None
    command = [arguments.program, *arguments.words]
    with tempfile.TemporaryDirectory(prefix="ptxmotion-run-") as folder:
        try:
            status = run_program(command, environment(library, folder), folder, parse_flags)
        except FileNotFoundError as error:
            raise CommandError(_NO_SUCH_PROGRAM, f"ptxmotion: error: {error.filename}: {error.strerror}") from None
        except OSError as error:
            usage_error(f"{error.filename or command[0]}: {error.strerror}")
        with open(os.path.join(folder, LOG), encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    _report(lines, arguments.json)
    return status if status >= 0 else _BY_SIGNAL - status


def _report(lines: list[str], path: str | None) -> None:
    """Print or write the summary. The program has run; what fails here is a warning."""
    from ..injection.summary import summary_of

    summary = summary_of(lines)
    try:
        if log := os.environ.get("PTXMOTION_LOG"):
            with open(log, "a", encoding="utf-8") as file:
                file.write("".join(lines))
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(summary.to_json(), file, indent=2)
            return
    except OSError as error:
        warn(f"{error.filename}: {error.strerror}")
    say(summary.text().rstrip("\n"))
