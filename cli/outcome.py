"""What becomes of errors: one message, an exit code, and never a traceback.

Guarantees: every exception that a verb lets out ends here. One that no rule names is a fault of ours: it prints one
line, saves a reproducer (the input behind a header with the command and the traceback), and exits with 70.
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
    "CommandError",
    "guarded",
    "remember_input",
    "usage_error",
    "warn",
]

FINE, DIFFERENT, USAGE, BAD_INPUT, MISSING, INCONCLUSIVE, INTERNAL = 0, 1, 2, 3, 4, 5, 70
_INTERRUPTED, _PIPE_CLOSED = 130, 141


class CommandError(Exception):
    """The command ends with ``code`` and this message; ``message`` may begin with a place, ``file:line:col: ``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def usage_error(message: str) -> NoReturn:
    """End with the exit code for wrong usage."""
    raise CommandError(USAGE, f"ptxmotion: error: {message}")


def warn(message: str) -> None:
    """A warning on stderr."""
    say(f"ptxmotion: warning: {message}")


#: (name, bytes) of what was read, for a reproducer.
_inputs: list[tuple[str, bytes]] = []


def remember_input(name: str, data: bytes) -> None:
    """Keep an input, so that a reproducer of an internal error can hold it."""
    _inputs.append((name, data))


def guarded(argv: list[str], run: Callable[[list[str]], int]) -> int:
    """The exit code of ``run(argv)``, whatever it raises."""
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
        return _known(error) or _internal_error(argv, error)


def say(message: str) -> None:
    """A message on stderr, its first `error`, `warning` or `remark` in colour where that is wanted."""
    with contextlib.suppress(OSError):  # where nobody listens, the exit code must do
        print(color.message(message, sys.stderr), file=sys.stderr, flush=True)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return code


def _drop_stdout() -> None:
    """Send what is left in stdout's buffer nowhere: Python would try again at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):  # a stdout without a file has nothing to drop
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _known(error: Exception) -> int:
    """The exit code of an error that is not ours, after its message; 0 for one of ours."""
    # Asked of the loaded modules: what was never imported was never raised.
    errors = sys.modules.get("ptxmotion.ptx.errors")
    if errors is not None and isinstance(error, errors.PtxError):
        say(str(error))
        return BAD_INPUT
    toolchain = sys.modules.get("ptxmotion.toolchain.tools")
    if toolchain is not None and isinstance(error, toolchain.ToolMissing):
        say(f"ptxmotion: error: {error}")
        return MISSING
    if toolchain is not None and isinstance(error, toolchain.ToolchainError):
        say(f"ptxmotion: error: {error}")
        return BAD_INPUT
    cubin = sys.modules.get("ptxmotion.toolchain.cubin")
    if cubin is not None and isinstance(error, cubin.CubinError):
        say(f"ptxmotion: error: {error}")
        return BAD_INPUT
    settings = sys.modules.get("ptxmotion.settings")
    if settings is not None and isinstance(error, settings.SettingsError):
        say(f"ptxmotion: error: {error}")
        return USAGE
    return 0


def _internal_error(argv: list[str], error: Exception) -> int:
    _drop_stdout()
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        saved = _save_reproducer(argv, error)
        say(f"ptxmotion: internal error: {what}; please report it with {saved}")
    except OSError as why:
        say(f"ptxmotion: internal error: {what}; a reproducer could not be saved: {why}")
    return INTERNAL


def _save_reproducer(argv: list[str], error: Exception) -> str:
    """Write one file for each input, a comment with command and traceback at its head; the first one's name."""
    import shlex
    import tempfile
    import traceback

    from .. import __version__

    report = "".join(traceback.format_exception(error))
    header = f"ptxmotion {__version__}, Python {sys.version.split()[0]}: internal error\n"
    header += f"command: ptxmotion {shlex.join(argv)}\nin: {os.getcwd()}\n{report}"
    first = ""
    for name, data in _inputs or [("", b"")]:
        handle, path = tempfile.mkstemp(prefix="ptxmotion-crash-", suffix=".ptx")
        with os.fdopen(handle, "wb") as file:
            head = f"{header}input: {name}\n" if name else header
            comment = "".join(f"// {line}\n" for line in head.splitlines())
            file.write(comment.encode("utf-8", "surrogateescape") + data.removeprefix(b"\xef\xbb\xbf"))
        first = first or path
    return first
