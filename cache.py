"""The cache on disk: entries of bytes, under a hash of everything that they depend on.

The cache has one folder for each kind of entries (``gate``, ``cubin``, ``ptx``, ``opt``), which has one folder for each
first byte of a key.

Guarantees: an entry that is read was written under the same kind and key, byte for byte; it begins with a digest of the
three. An entry that is cut short, overwritten, renamed, or no regular file (a folder, a pipe, a link) is ignored, and
reading never blocks. An entry is written completely and then renamed, so several processes may share a folder, and a
process that is killed leaves no partial entry. The oldest entries are removed where a kind takes more than `LIMIT`
bytes. Entries are bytes that are never executed. So an entry that another user wrote can at most be a wrong value; the
reader of an entry must check its content. A folder that cannot be created, read or written, a full disk, and a user
without a home folder only cost time.

Requires: no other module of this package. Every run of ``opt`` imports this module, so it imports little.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "LIMIT",
    "Cache",
    "Usage",
    "cache_folder",
    "cache_path",
    "file_identity",
    "source_digest",
    "source_identity",
    "usage",
]

#: The most bytes of all entries of one kind.
LIMIT = 512 << 20

#: The number of folders of a kind. Each may hold 1/256 of `LIMIT`. A write searches only its own folder.
_SHARES = 256

#: Seconds after which a read of an entry updates the time of its last use.
_FRESH = 3600.0

_DIGITS = 64


def cache_path() -> str | None:
    """``$PTXMOTION_CACHE``, else ``ptxmotion`` in the user's cache folder; `None` where the user has no home folder."""
    if own := os.environ.get("PTXMOTION_CACHE"):
        return own
    if base := os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(base, "ptxmotion")
    home = os.path.expanduser("~")
    return os.path.join(home, ".cache", "ptxmotion") if os.path.isabs(home) else None


def cache_folder() -> Path | None:
    """`cache_path` as a `Path`."""
    from pathlib import Path

    path = cache_path()
    return Path(path) if path is not None else None


class Cache:
    """The entries of one kind below ``folder``; with `None` none are stored. A key is a sequence of texts or bytes."""

    def __init__(self, kind: str, folder: Path | str | None) -> None:
        self.kind = kind
        self.folder = os.path.join(folder, kind) if folder is not None else None

    def get(self, *key: str | bytes) -> bytes | None:
        """The bytes that were put under the key; `None` where there are none, or the entry is damaged."""
        name, path = self._place(key)
        entry = _read(path) if path is not None else None
        if entry is None or entry[:_DIGITS] != _digest(self.kind, name, entry[_DIGITS:]):
            return None
        return entry[_DIGITS:]

    def put(self, body: bytes, *key: str | bytes) -> None:
        """Store ``body`` under the key, if it can be written."""
        name, path = self._place(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True, mode=0o700)
            _write(path, _digest(self.kind, name, body) + body)
            _prune(path, LIMIT // _SHARES)

    def _place(self, key: tuple[str | bytes, ...]) -> tuple[str, str | None]:
        name = _hash(key)
        return name, os.path.join(self.folder, name[:2], name[2:]) if self.folder is not None else None


def _hash(key: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in key:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        digest.update(b"%d\0" % len(data) + data)  # so that different sequences of parts give different bytes
    return digest.hexdigest()


def _digest(kind: str, name: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{kind}\0{name}\0".encode() + body).hexdigest().encode()


def _read(path: str) -> bytes | None:
    """The bytes of a regular file; `None` for everything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if time.time() - status.st_mtime > _FRESH:
            with contextlib.suppress(OSError):  # the entry may belong to another user; it can still be read
                os.utime(path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(handle)


def _write(path: str, data: bytes) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)  # a rename does not replace a folder; a folder with files in it stays
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _prune(newest: str, limit: int) -> None:
    """Remove other entries in the folder of ``newest``, least recently used first, until all take at most ``limit``
    bytes."""
    entries = sorted(_files(os.path.dirname(newest)), key=lambda entry: entry[1].st_mtime)
    total = sum(status.st_size for _, status in entries)
    for path, status in entries:
        if total <= limit:
            return
        if path != newest:
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= status.st_size


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files of a folder. Raises `OSError`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield entry.path, status


class Usage(NamedTuple):
    """Where the cache is, and how many entries and bytes it holds. ``problem``: why it stores nothing; empty where it
    does."""

    folder: Path | None
    entries: int
    bytes: int
    problem: str = ""


def usage() -> Usage:
    """The usage of the cache now."""
    folder = cache_folder()
    if folder is None:
        return Usage(None, 0, 0, "there is no home folder: set PTXMOTION_CACHE to a folder")
    existing = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Usage(folder, 0, 0, f"{existing} cannot be written to")
    count = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
                count += 1
    return Usage(folder, count, size)


# --- parts of keys


def file_identity(path: Path | str) -> str:
    """A text that differs for each file, such as a program, that has ever been at the path.

    It consists of size, times, device and inode. It does not depend on the content, because ptxas has about 30 MB,
    which every run of ``opt`` would have to read. The change time of the inode cannot be set back, in contrast to the
    modification time. Raises `OSError`.
    """
    status = os.stat(path)
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)
    return f"{os.path.realpath(path)}\0{numbers}"


def source_digest(root: Path, folders: Iterable[str]) -> str:
    """A hash of the names and bytes of all Python files below these folders of ``root``. The folder ``.`` stands for
    the files in ``root`` itself, without its folders. Raises `OSError`."""
    digest = hashlib.sha256()
    for folder in folders:
        for name in _sources(root / folder, is_deep=folder != "."):
            with open(name, "rb") as file:
                data = file.read()
            digest.update(f"{os.path.relpath(name, root)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def source_identity(root: str, folders: Iterable[str]) -> str:
    """A hash of the names, sizes and times of the files that `source_digest` reads. It takes a tenth of the time, and
    also changes where a file is written again with the same content. Raises `OSError`."""
    digest = hashlib.sha256()
    for folder in folders:
        for name in _sources(os.path.join(root, folder), is_deep=folder != "."):
            status = os.stat(name)
            digest.update(f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\0".encode())
    return digest.hexdigest()


def _sources(folder: Path | str, *, is_deep: bool) -> list[str]:
    files: list[str] = []

    def fail(error: OSError) -> None:
        raise error

    for path, folders, names in os.walk(folder, onerror=fail):
        files += [os.path.join(path, name) for name in names if name.endswith(".py")]
        if not is_deep:
            folders.clear()
    return sorted(files)
