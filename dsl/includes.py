"""The disk cache of PTX compiled from CUDA C++. An entry depends on the files that the source includes.

nvcc lists the files that it has read (``-MD``). An entry contains each of these files with a digest of its content. It
is used only if all files are unchanged, and if no include path now finds another file instead of one of them.

Refuses: nothing is cached if the source may include something but nvcc wrote no list, or if the source tests whether a
header exists.
Reference: CUDA Compiler Driver NVCC 13.0, §4.2.1 (``--generate-dependencies-with-compile``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..cache import Cache

__all__ = ["IncludingCache", "include_folders", "may_include", "read_dependencies"]

#: Directives that include other files, whatever character they begin with, as ``#`` or ``%:``.
_DIRECTIVES = ("include", "import", "embed")
#: Flags that name files or folders to include from, or a file with more flags.
_FLAGS = ("-I", "-i", "--include", "--pre-include", "--system-include", "-optf", "--options-file", "-X", "--compiler-")
#: Flags after which the name of an include folder follows.
_PLAIN = ("-isystem=", "-isystem", "--include-path=", "--system-include=", "-I")


class IncludingCache:
    """Compiled translation units. ``files`` maps each file that was read to the digest of its content."""

    def __init__(self, folder: Path | None) -> None:
        self._cache = Cache("ptx", folder)

    def get(self, key: Sequence[str], folders: Sequence[Path]) -> str | None:
        """The PTX that was cached under the key, if a compilation now would read the same files."""
        body = self._cache.get(*key)
        if body is None:
            return None
        head, _, text = body.partition(b"\n")
        files, candidates = json.loads(head)
        if candidates != _candidates(files, folders) or any(
            _digest(name) != cached_digest for name, cached_digest in files.items()
        ):
            return None
        return text.decode("utf-8", "surrogateescape")

    def put(self, ptx: str, key: Sequence[str], files: Mapping[str, str], folders: Sequence[Path]) -> None:
        """Cache the PTX of a unit that was compiled from ``files``."""
        head = json.dumps([dict(files), _candidates(files, folders)])
        self._cache.put(head.encode() + b"\n" + ptx.encode("utf-8", "surrogateescape"), *key)


def may_include(source: str, flags: Iterable[str]) -> bool:
    """Whether a compilation of the source may read other files than those of the compiler."""
    joined = re.sub(r"\\[ \t]*\r?\n", "", source)
    return any(word in joined for word in _DIRECTIVES) or any(flag.startswith((*_FLAGS, "@")) for flag in flags)


def include_folders(flags: Sequence[str]) -> list[Path]:
    """The folders in which the flags let nvcc look for headers."""
    include_paths: list[Path] = []
    for number, flag in enumerate(flags):
        for prefix in _PLAIN:
            if flag == prefix and number + 1 < len(flags):
                include_paths.append(Path(flags[number + 1]))
            elif flag.startswith(prefix) and flag != prefix:
                include_paths.append(Path(flag.removeprefix(prefix).removeprefix("=")))
            else:
                continue
            break
    return include_paths


def read_dependencies(listed: Path, folders: Sequence[Path]) -> dict[str, str] | None:
    """The files of a Make rule, each with its digest.

    None if a later compilation may read other files although these are unchanged, because a header in one of
    ``folders`` tests whether another header exists.

        >>> _names("module.ptx : a.cu \\\\\\n  /usr/b\\\\ c.h $$d.h\\n")
        ['a.cu', '/usr/b c.h', '$d.h']
    """
    try:
        names = _names(listed.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return None
    digests: dict[str, str] = {}
    for name in names:
        if os.path.basename(name) == "module.cu" and not os.path.exists(name):
            continue  # the source itself in the compiler's temporary folder; the cache key contains its text
        digest = _digest(name)
        if not digest:
            return None
        digests[name] = digest
        if any(folder in Path(name).parents for folder in folders) and "__has_include" in _text(name):
            return None
    return digests


def _names(rule: str) -> list[str]:
    text = re.sub(r"\\\r?\n", " ", rule).partition(" : ")[2]
    words = re.findall(r"(?:\\.|[^\s\\])+", text)
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _digest(name: str) -> str:
    """The digest of the file's content; empty if the file cannot be read."""
    try:
        with open(name, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _text(name: str) -> str:
    return Path(name).read_text(encoding="utf-8", errors="surrogateescape")


def _candidates(files: Iterable[str], folders: Sequence[Path]) -> list[str]:
    """The files in the folders that an ``#include`` of one of ``files`` may find, by the last parts of its path."""
    paths: set[str] = set()
    for name in files:
        parts = Path(name).parts
        for folder in folders:
            ends = (folder.joinpath(*parts[at:]) for at in range(max(1, len(parts) - 4), len(parts)))
            paths |= {str(end) for end in ends if end.is_file()}
    return sorted(paths)
