"""Reading inputs and writing outputs: all of them or none.

Guarantees: outputs are written beside their targets under other names, and take their places, one rename each, only
when all of them and stdout have been written; so a full disk, a folder that cannot be written to or an interrupt leaves
old files as they were, and nothing new behind. A target that is no regular file (`/dev/null`, a pipe) is written to
directly; a symbolic link stays one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, CommandError, remember_input, usage_error

if TYPE_CHECKING:
    from ..ptx import Module

__all__ = ["Outputs", "decoded", "parse_bytes", "read_bytes", "read_module"]

STDIN_NAME = "<stdin>"


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of stdin for ``-``. Raises `OSError` where it cannot be read."""
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
            usage_error("no input: name a file, or send PTX to stdin")
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            try:
                data = file.read()
            except OSError as error:  # a read, unlike an open, does not say of what
                error.filename = path
                raise
    remember_input(path, data)
    return data


def parse_bytes(data: bytes, path: str) -> Module:
    """The module that a file's bytes describe. Raises `PtxError`."""
    from ..ptx import parse

    return parse(decoded(data), STDIN_NAME if path == "-" else path)


def decoded(data: bytes) -> str:
    """The text of a file's bytes; bytes that are no UTF-8 come back out as they went in."""
    return data.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n")


def read_module(path: str) -> Module:
    """Read, parse and verify a PTX file, or stdin for ``-``. Raises `OSError`, `PtxError`."""
    from ..ptx.verify import verify

    module = parse_bytes(read_bytes(path), path)
    verify(module)
    return module


class Outputs:
    """Outputs to be written together: `add` each, then `commit`."""

    def __init__(self) -> None:
        self._targets: list[tuple[str, bytes]] = []

    def add(self, path: str, data: bytes | str) -> None:
        """``data`` shall become the file at ``path``, or go to stdout for ``-``."""
        raw = data.encode("utf-8", errors="surrogateescape") if isinstance(data, str) else data
        self._targets.append((path, raw))

    def commit(self) -> None:
        """Write everything. Raises `CommandError` where that fails, after having removed what was written."""
        staged: list[tuple[str, str]] = []
        try:
            for path, data in self._targets:
                if path != "-" and not _is_special(path):
                    staged.append(_stage(path, data))
            for path, data in self._targets:
                if path == "-":
                    _to_stdout(data)
                elif _is_special(path):
                    _to_special(path, data)
            while staged:
                os.replace(*staged[0])
                staged.pop(0)
        finally:
            for temporary, _ in staged:
                _remove(temporary)


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot_write(path, error) from error


def _stage(path: str, data: bytes) -> tuple[str, str]:
    """Write ``data`` to a new file beside ``path``; its name, and where it belongs."""
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:100]}.{os.getpid()}.tmp")
    try:
        mode = 0o666
        if os.path.exists(target):
            if not os.access(target, os.W_OK):
                raise PermissionError(13, os.strerror(13), path)
            mode = stat.S_IMODE(os.stat(target).st_mode)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode != 0o666:
            os.chmod(temporary, mode)  # the process's mask has taken bits away that the old file had
    except BaseException as error:
        _remove(temporary)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise
    return temporary, target


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def _to_special(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _to_stdout(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = "<stdout>"  # the handler of all errors sends the rest of the buffer nowhere
        raise


def _cannot_write(path: str, error: OSError) -> CommandError:
    return CommandError(BAD_INPUT, f"{path}: error: cannot write: {error.strerror or error}")
