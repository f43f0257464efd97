"""Replaces the content of a file at once."""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = ["replace_file"]


def replace_file(path: str, data: bytes) -> None:
    """Write a file next to the old one, and rename it. Raises `OSError`; the old file is then unchanged."""
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.tmp"
    mode = stat.S_IMODE(os.stat(target).st_mode)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
