"""The cache on disk: bytes under a hash of everything that they were made of.

One folder holds a folder for each kind of entry (``gate``, ``cubin``, ``ptx``, ``opt``), and that one folder for each
first byte of a key.

Guarantees: an entry that is read was written under the same kind and key, byte for byte: it begins with a digest of the
three. What is cut short, overwritten, renamed, or no regular file (a folder, a pipe, a link) counts as not there, and
reading it never blocks. Entries are written whole, by a rename, so that processes may share a folder, and a process
that is killed leaves no half of one. The oldest entries are removed where a kind takes more than `LIMIT`. Nothing is
executed or decoded but bytes, so that an entry of a stranger is at most a wrong answer: whoever reads one checks what
it says. A folder that cannot be made, read or written, a full disk, and a user without a home folder cost time only.

Requires: nothing of this package. It is imported by every run of ``opt``, so it imports little itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMIT", "Cache", "Usage", "cache_folder", "file_identity", "source_digest", "usage"]

#: Bytes that one kind of entries may take, all together.
LIMIT = 512 << 20

#: Folders by the first byte of the key; each may take its share of the limit, and is looked through at each write.
_SHARES = 256

#: An entry that is read counts as used again where the last use is longer ago than this, in seconds.
_FRESH = 3600.0

_DIGITS = 64


def cache_folder() -> Path | None:
    """``$PTXMOTION_CACHE``, else ``ptxmotion`` in the user's cache folder; None where the user has no home folder."""
    if own := os.environ.get("PTXMOTION_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "ptxmotion"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "ptxmotion" if os.path.isabs(home) else None


class Cache:
    """The entries of one kind below ``folder``; with None nothing is kept. A key is a sequence of texts or bytes."""

    def __init__(self, kind: str, folder: Path | None) -> None:
        self.kind = kind
        self.folder = folder / kind if folder is not None else None

    def get(self, *key: str | bytes) -> bytes | None:
        """What was put under the key; None where nothing was, or where it is damaged."""
        name, path = self._place(key)
        found = _read(path) if path is not None else None
        if found is None or found[:_DIGITS] != _digest(self.kind, name, found[_DIGITS:]):
            return None
        return found[_DIGITS:]

    def put(self, body: bytes, *key: str | bytes) -> None:
        """Keep ``body`` under the key, or nothing where it cannot be written."""
        name, path = self._place(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(path, _digest(self.kind, name, body) + body)
            _prune(path, LIMIT // _SHARES)

    def _place(self, key: tuple[str | bytes, ...]) -> tuple[str, Path | None]:
        name = _hash(key)
        return name, self.folder / name[:2] / name[2:] if self.folder is not None else None


def _hash(key: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in key:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        digest.update(b"%d\0" % len(data) + data)  # no two sequences of parts give the same bytes
    return digest.hexdigest()


def _digest(kind: str, name: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{kind}\0{name}\0".encode() + body).hexdigest().encode()


def _read(path: Path) -> bytes | None:
    """The bytes of a regular file; None for everything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return None
        if time.time() - found.st_mtime > _FRESH:
            with contextlib.suppress(OSError):  # another user's entry may be read all the same
                os.utime(path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(handle)


def _write(path: Path, data: bytes) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()  # a rename replaces everything but a folder; one that holds something stays
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _prune(newest: Path, limit: int) -> None:
    """Remove the entries beside ``newest``, least recently used first, until they take ``limit`` bytes at most."""
    entries = sorted(_files(newest.parent), key=lambda entry: entry[1].st_mtime)
    total = sum(found.st_size for _, found in entries)
    for path, found in entries:
        if total <= limit:
            return
        if path != newest:
            with contextlib.suppress(OSError):
                path.unlink()
            total -= found.st_size


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The regular files of a folder. Raises `OSError`."""
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield Path(entry.path), about


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the cache is, and what it holds. ``problem`` says why it keeps nothing; empty where it does."""

    folder: Path | None
    entries: int
    bytes: int
    problem: str = ""


def usage() -> Usage:
    """What the cache holds now."""
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


# --- what keys are made of


def file_identity(path: Path) -> str:
    """What tells a file, such as a program, from every other one that has stood at its path.

    By size, times, device and inode, not by content: ptxas has some 30 MB, which every run of ``opt`` would have to
    read. The time of the last change of the inode cannot be set back, as that of the content can. Raises `OSError`.
    """
    found = os.stat(path)
    numbers = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)
    return f"{os.path.realpath(path)}\0{numbers}"


def source_digest(root: Path, folders: Iterable[str]) -> str:
    """A hash of the names and bytes of every Python file below these folders of ``root``; of ``.`` those files that
    stand in ``root`` itself. Raises `OSError`."""
    digest = hashlib.sha256()
    for folder in folders:
        for name in _sources(root / folder, is_deep=folder != "."):
            with open(name, "rb") as file:
                data = file.read()
            digest.update(f"{os.path.relpath(name, root)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _sources(folder: Path, *, is_deep: bool) -> list[str]:
    found: list[str] = []

    def fail(error: OSError) -> None:
        raise error

    for path, folders, names in os.walk(folder, onerror=fail):
        found += [os.path.join(path, name) for name in names if name.endswith(".py")]
        if not is_deep:
            folders.clear()
    return sorted(found)
