"""Entries of the cache on disk: bytes under a name that is a hash of what they were made of.

Guarantees: an entry that is read is, byte for byte, one that was written; one that was cut short, overwritten or is
there as something else is as if it were not there. Entries are written whole, by a rename, so that processes may share
a folder, and a process that is killed leaves no half of one. A folder that cannot be made, read or written, and a full
disk, cost time only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "read_entry", "write_entry"]


def cache_folder() -> Path:
    """Where entries are kept: ``$PTXMOTION_CACHE``, else ``ptxmotion`` in the user's cache folder."""
    own = os.environ.get("PTXMOTION_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "ptxmotion" if base else Path.home() / ".cache" / "ptxmotion"


def read_entry(path: Path) -> bytes | None:
    """What was written there; None where nothing was, or where it is damaged."""
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return body if hashlib.sha256(body).hexdigest().encode() == digest else None


def write_entry(path: Path, body: bytes) -> None:
    """Keep ``body``, or nothing where it cannot be written."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
