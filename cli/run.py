"""`ptxmotion run`: runs a program that is not rebuilt, and optimizes its PTX when it is loaded."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable

from .outcome import MISSING, CommandError, say, usage_error, warn

EPILOG = """\
The exit status is that of the program, or 128 plus the number of the signal that ended it. When the program has ended,
a summary is printed on stderr. Settings of the optimizer are environment variables: PTXMOTION_FLAGS (options of opt;
default: -O3), PTXMOTION_ONLY and PTXMOTION_SKIP (regular expressions for names of kernels), PTXMOTION_LOG,
PTXMOTION_SECONDS, PTXMOTION_PTXAS.

examples:
  ptxmotion run ./solver                                  (on a machine with a GPU)
  ptxmotion run --json summary.json python train.py       (on a machine with a GPU)
"""

_NO_EXECUTABLE, _NO_SUCH_PROGRAM, _BY_SIGNAL = 126, 127, 128

#: The most characters of the folder for temporary files, so that the path of a socket below it is not too long.
_LONGEST = 70


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `run`."""
    parser.add_argument("--json", metavar="FILE", help="write the summary to this file as JSON, and do not print it")
    parser.add_argument("program", metavar="COMMAND", help="the program to run")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="the arguments of the program")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; the exit status of the program."""
    from ..compiler.host_contracts import TUNED
    from ..injection.library import NoLibrary, environment, find_library
    from ..injection.server import LOG, listening, run_program
    from .ptx_step import parse_flags

    if os.environ.get(TUNED):
        usage_error(
            f"{TUNED} is for programs that check their launches: `PTXMOTION_CONTRACT=1 ptxmotion nvcc` builds them;"
            " `ptxmotion run` replaces kernels and adds no checks"
        )
    try:
        library = find_library()
    except NoLibrary as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None
    command = [arguments.program, *arguments.words]
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(_folder())
            listener = stack.enter_context(listening(folder))
        except OSError as error:
            warn(f"{command[0]} runs without the optimizer: {error}")
            return _status(command, lambda: subprocess.call(command))
        variables = environment(library, folder)
        status = _status(command, lambda: run_program(command, variables, folder, listener, parse_flags))
        with open(os.path.join(folder, LOG), encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    _report(lines, arguments.json)
    return status


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of this run. It is in the folder for temporary files, or in ``/tmp`` if that path is too
    long: the path of a socket has at most 107 characters. Raises `OSError`."""
    usual = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="ptxmotion-run-", dir=usual if len(usual) < _LONGEST else "/tmp")


def _status(command: list[str], start: Callable[[], int]) -> int:
    """The exit status of a program, as a shell gives it. Raises `CommandError` if it cannot be started."""
    try:
        status = start()
    except OSError as error:
        code = _NO_SUCH_PROGRAM if isinstance(error, FileNotFoundError) else _NO_EXECUTABLE
        raise CommandError(code, f"ptxmotion: error: {error.filename or command[0]}: {error.strerror}") from None
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
