"""How the command ends: one message and an exit code for each error, never a traceback.

Guarantees: every exception of a verb ends here. An exception that has no rule is an internal error: the command prints
one line, saves its inputs with the command and the traceback (`reproducer.py`), and exits with 70.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from . import color

__all__ = [
    "BAD_INPUT",
    "DIFFERENT",
    "FINE",
    "INCONCLUSIVE",
    "INTERNAL",
    "MISSING",
    "USAGE",
    "USER_ERRORS",
    "CommandError",
    "guarded",
    "remember_input",
    "usage_error",
    "warn",
]

FINE, DIFFERENT, USAGE, BAD_INPUT, MISSING, INCONCLUSIVE, INTERNAL = 0, 1, 2, 3, 4, 5, 70
_INTERRUPTED, _PIPE_CLOSED = 130, 141


class CommandError(Exception):
    """Ends the command with the exit code ``code`` and this message, which begins with ``ptxmotion`` or a place."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def usage_error(message: str) -> NoReturn:
    """End the command with the exit code for wrong usage."""
    raise CommandError(USAGE, f"ptxmotion: error: {message}")


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"ptxmotion: warning: {message}")


#: The inputs that were read, for a reproducer: file name and content.
_inputs: list[tuple[str, bytes]] = []


def remember_input(name: str, data: bytes) -> None:
    """Keep an input for the reproducer of an internal error."""
    _inputs.append((name, data))


def guarded(argv: list[str], run: Callable[[list[str]], int]) -> int:
    """Run ``run(argv)``; its exit code, also where it raises an exception."""
    _inputs.clear()
    try:
        code = run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as exit:  # argparse, after --help, --version or wrong usage
        return _flushed(exit.code if isinstance(exit.code, int) else USAGE if exit.code else FINE)
    except CommandError as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return _PIPE_CLOSED
    except OSError as error:
        _drop_stdout()
        where = str(error.filename) if error.filename is not None else "ptxmotion"
        say(f"{where}: error: {error.strerror or error}")
        return BAD_INPUT
    except Exception as error:
        ending = _user_error(error)
        if ending is None:
            return _internal_error(argv, error)
        code, message = ending
        say(message)
        return code


def say(message: str) -> None:
    """Print a message on stderr. Its first `error`, `warning` or `remark` is coloured if colour is on."""
    with contextlib.suppress(OSError):  # a closed stderr leaves only the exit code
        print(color.message(message, sys.stderr), file=sys.stderr, flush=True)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return code


def _drop_stdout() -> None:
    """Discard the buffer of stdout. Otherwise Python writes it again when it exits, and prints another error."""
    with contextlib.suppress(OSError, ValueError):  # a stdout without a file descriptor has no buffer
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


#: The errors that the user can correct: module, class, exit code, and whether the text of the error begins with its
#: place (``file:line:col: error: ``). An error is of the first class that fits.
USER_ERRORS = (
    ("ptx.errors", "PtxError", BAD_INPUT, True),
    ("dsl.errors", "DslError", BAD_INPUT, True),
    ("programs.errors", "BadRequest", USAGE, False),
    ("programs.errors", "BadInput", BAD_INPUT, False),
    ("programs.errors", "RequirementMissing", MISSING, False),
    ("programs.errors", "WrongOutputs", DIFFERENT, False),
    ("harness.machine", "MachineMissing", MISSING, False),
    ("harness.results", "ResultError", BAD_INPUT, False),
    ("harness.report", "PlotsMissing", MISSING, False),
    ("toolchain.tools", "ToolMissing", MISSING, False),
    ("toolchain.tools", "ToolchainError", BAD_INPUT, False),
    ("toolchain.cubin", "CubinError", BAD_INPUT, False),
    ("settings", "SettingsError", USAGE, False),
)


def _user_error(error: Exception) -> tuple[int, str] | None:
    """The exit code and the message of an error that the user can correct; None for an internal error."""
    for module, name, code, has_place in USER_ERRORS:
        # A module that is not loaded cannot have raised the error; importing all of them would be slow.
        loaded = sys.modules.get(f"ptxmotion.{module}")
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return code, _message(error, has_place)
    return None


def _message(error: Exception, has_place: bool) -> str:
    text = str(error)
    if has_place:
        return f"ptxmotion: {text}" if text.startswith("error: ") else text  # a DslError may have no place
    return f"{getattr(error, 'place', '') or 'ptxmotion'}: error: {text}"


def _internal_error(argv: list[str], error: Exception) -> int:
    _drop_stdout()
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        from .reproducer import save_reproducer

        saved = ", ".join(save_reproducer(argv, error, _inputs))
        say(f"ptxmotion: internal error: {summary}; the input and the traceback are saved in {saved}")
    except OSError as why:
        say(f"ptxmotion: internal error: {summary}; the input and the traceback could not be saved: {why}")
    return INTERNAL
