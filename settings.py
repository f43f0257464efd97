"""Settings from a file: defaults for the options of the verbs.

The file is a `pyproject.toml` with tables below `[tool.ptxmotion]`, or a `ptxmotion.toml` with the same tables at its
top level. There is one table for each verb. Its keys are the long options of that verb:

    [tool.ptxmotion.opt]
    passes = "cse,lcm"
    verify-each = true

An action of a verb can have a table below that of its verb, such as `[tool.ptxmotion.bench.run]`.

The nearest file is used, from the current folder upwards to the root of its git repository, or to the root of the file
system where there is no repository. In one folder, a `ptxmotion.toml` has precedence over a `pyproject.toml`; a
`pyproject.toml` without the table is ignored. Options on the command line have precedence over settings.

A folder above the current one may belong to another user, such as the system's folder for temporary files. So a file
that was found, and not named with ``--config``, may name Python code to execute or files to write only under two
conditions: it is in a git repository; and the repository, its root, the file and the file's folder belong to the user
and are not writable by everybody. `Source.doubt` names the condition that does not hold.

Refuses: a table that is no verb, a key that is no option of it, a value of the wrong type: `SettingsError`, which names
the file and the key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

from .spelling import did_you_mean

__all__ = ["Settings", "SettingsError", "Source", "find_settings", "read_settings"]


class SettingsError(ValueError):
    """A settings file cannot be read, or has a value that no option takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The tables of one file: verb → option → value. ``path`` is ``None`` where no file was found."""

    path: str | None
    tables: dict[str, dict[str, Any]]

    def table(self, verb: str) -> dict[str, Any]:
        """The settings of one verb, by option."""
        return self.tables.get(verb, {})


@dataclass(frozen=True, slots=True)
class Source:
    """A settings file. ``doubt``: why it may not name code to execute or files to write; empty where it may."""

    path: str
    doubt: str = ""


def find_settings(folder: str) -> Source | None:
    """The settings file for ``folder``, an absolute path; ``None`` where there is none."""
    start = folder
    while True:
        is_root = os.path.lexists(os.path.join(folder, ".git"))
        if path := _settings_in(folder):
            return Source(path, _doubt(path, start))
        above = os.path.dirname(folder)
        if is_root or above == folder:
            return None
        folder = above


def _settings_in(folder: str) -> str | None:
    own = os.path.join(folder, "ptxmotion.toml")
    if os.path.isfile(own):
        return own
    project = os.path.join(folder, "pyproject.toml")
    # Parsing TOML takes longer than the optimization of most files, so search the text for the package first.
    if os.path.isfile(project) and b"tool.ptxmotion" in _bytes(project) and "ptxmotion" in _tool_tables(project):
        return project
    return None


def _doubt(path: str, folder: str) -> str:
    """Why the file may not belong to the user's own project, which contains ``folder``; empty where it does."""
    root = folder
    while not os.path.lexists(os.path.join(root, ".git")):
        if root == os.path.dirname(root):
            return "it is in no git repository"
        root = os.path.dirname(root)
    for each in (os.path.join(root, ".git"), root, os.path.dirname(path), path):
        if why := _foreign(each):
            return why
    return ""


def _foreign(path: str) -> str:
    """Why another user may have written what is at ``path``; empty where none can."""
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    return f"everybody may write to {path}" if status.st_mode & 0o002 else ""


def read_settings(path: str | None, verbs: frozenset[str]) -> Settings:
    """The settings of the file at ``path``; empty settings where it is ``None``. Raises `SettingsError`."""
    if path is None:
        return Settings(None, {})
    content = _tool_tables(path).get("ptxmotion", {}) if os.path.basename(path) == "pyproject.toml" else _toml(path)
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: [tool.ptxmotion] is not a table")
    tables = cast("dict[str, Any]", content)
    for name, table in tables.items():
        if name not in verbs:
            similar = did_you_mean(name, verbs)
            listed = ", ".join(sorted(verbs))
            raise SettingsError(f"{path}: unknown key '{name}'{similar}; there are tables for {listed}")
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: '{name}' is not a table; the options of a verb are in a table with its name")
    return Settings(path, tables)


def _tool_tables(path: str) -> dict[str, Any]:
    tool = _toml(path).get("tool", {})
    return cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}


def _toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
