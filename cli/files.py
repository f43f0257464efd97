"""Reads inputs, and writes all outputs or none.

Guarantees: each output is first written to a temporary file in the folder of its target. The temporary files are
renamed only when all of them and stdout are written. So a full disk, a read-only folder or an interrupt leaves the old
files unchanged and no new files. A target that is not a regular file (`/dev/null`, a pipe) is written directly. A
symbolic link stays a link.
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

__all__ = ["Outputs", "decoded", "is_folder", "parse_bytes", "read_bytes", "read_module", "refuse_source"]

STDIN_NAME = "<stdin>"

#: The endings of the names of CUDA C++ files.
_CUDA = (".cu", ".cuh")


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
            except OSError as error:  # an error of read, unlike one of open, has no file name
                error.filename = path
                raise
    remember_input(path, data)
    return data


def parse_bytes(data: bytes, path: str) -> Module:
    """The module that a file's bytes describe. Raises `PtxError`, and `CommandError` for CUDA C++."""
    from ..ptx import PtxError, parse

    try:
        return parse(decoded(data), STDIN_NAME if path == "-" else path)
    except PtxError:
        refuse_source(path)
        raise


def refuse_source(path: str) -> None:
    """Raise `CommandError` if the name of a file that is no PTX is that of CUDA C++ or Python."""
    if path.endswith(".py"):
        message = f"{path}: error: this is Python, not PTX: `ptxmotion bench run {path}` runs a benchmark"
        raise CommandError(BAD_INPUT, message) from None
    if path.endswith(_CUDA):
        message = f"{path}: error: this is CUDA C++, not PTX: compile it with nvcc -ptx first"
        raise CommandError(BAD_INPUT, message) from None


def decoded(data: bytes) -> str:
    """The text of a file. Bytes that are not UTF-8 are preserved when the text is written again."""
    return data.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n")


def read_module(path: str) -> Module:
    """Read, parse and verify a PTX file, or stdin for ``-``. Raises `OSError`, `PtxError`."""
    from ..ptx.verify import verify

    module = parse_bytes(read_bytes(path), path)
    verify(module)
    return module


def is_folder(path: str) -> bool:
    """Whether a name on the command line is that of a folder: it ends with a slash, or the folder exists."""
    return path.endswith(os.sep) or os.path.isdir(path)


class Outputs:
    """Outputs that are written together: call `add` for each, then `commit`, which also makes ``folder``."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._targets: list[tuple[str, bytes]] = []

    def add(self, path: str, data: bytes | str) -> None:
        """Add the content of the file at ``path``, or of stdout for ``-``."""
        raw = data.encode("utf-8", errors="surrogateescape") if isinstance(data, str) else data
        self._targets.append((path, raw))

    def commit(self) -> None:
        """Write everything. If that fails, remove the temporary files and raise `CommandError` or `OSError`."""
        staged: list[tuple[str, str]] = []
        if self._folder:
            try:
                os.makedirs(self._folder, exist_ok=True)
            except OSError as error:
                raise _cannot_write(self._folder, error) from error
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
    """Write ``data`` to a temporary file in the folder of ``path``; its name, and the path of the target."""
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
            os.chmod(temporary, mode)  # the umask has removed permissions that the old file had
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
        error.filename = "<stdout>"  # `outcome.guarded` discards the rest of the buffer
        raise


def _cannot_write(path: str, error: OSError) -> CommandError:
    return CommandError(BAD_INPUT, f"{path}: error: cannot write: {error.strerror or error}")
