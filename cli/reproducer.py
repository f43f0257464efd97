"""What an internal error leaves behind: its inputs, with what is needed to run the command again.

There is one file for each input. It begins with the version, the command, the settings file and the traceback as
comments of PTX, so it can be given to the command instead of the input. The line ``again:`` is the command with these
files as inputs, without the output file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence

__all__ = ["save_reproducer"]


def save_reproducer(argv: Sequence[str], error: BaseException, inputs: Sequence[tuple[str, bytes]]) -> list[str]:
    """Save ``inputs`` (names and contents) and say how ``error`` came about; the paths of the files. Raises `OSError`.

    Without inputs there is one file, with the comments alone.
    """
    files: dict[str, str] = {}  # the name of an input → the path of its copy
    for name, data in dict(inputs or [("", b"")]).items():  # a file may have been read twice
        handle, path = tempfile.mkstemp(prefix="ptxmotion-crash-", suffix=".ptx" if name else ".txt")
        with os.fdopen(handle, "wb") as file:
            file.write(data.removeprefix(b"\xef\xbb\xbf"))
        files[name] = path
    comments = _comments(argv, error, files)
    for name, path in files.items():
        head = f"{comments}input: {name}\n" if name else comments
        with open(path, "rb+") as file:
            data = file.read()
            file.seek(0)
            file.write("".join(f"// {line}\n" for line in head.splitlines()).encode("utf-8", "surrogateescape") + data)
    return list(files.values())


def _comments(argv: Sequence[str], error: BaseException, files: dict[str, str]) -> str:
    import shlex
    import traceback

    from .. import __version__

    lines = [
        f"ptxmotion {__version__}, Python {sys.version.split()[0]}: internal error",
        f"command: ptxmotion {shlex.join(argv)}",
        f"again: ptxmotion {shlex.join(_again(argv, files))}",
        f"in: {os.getcwd()}",
    ]
    return "\n".join([*lines, *_settings(argv), "".join(traceback.format_exception(error))])


def _again(argv: Sequence[str], files: dict[str, str]) -> list[str]:
    """The command with the copies of its inputs, and without its output."""
    words: list[str] = []
    skips = False
    for word in argv:
        if not skips and word != "-o" and not (word.startswith("-o") and len(word) > 2):
            words.append(files.get(word, word))
        skips = word == "-o" and not skips
    # Stdin need not be named.
    return words + [path for name, path in files.items() if name and name not in argv]


def _settings(argv: Sequence[str]) -> list[str]:
    """The settings file that the command may have read."""
    if "--no-config" in argv:
        return []
    from ..settings import SettingsError, find_settings

    try:
        found = find_settings(os.getcwd())
    except (SettingsError, OSError) as problem:
        return [f"settings: {problem}"]
    return [f"settings: {found.path}"] if found is not None else []
