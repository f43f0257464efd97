"""Settings from a file: defaults for the options of the verbs.

`[tool.ptxmotion]` of a `pyproject.toml`, or a `ptxmotion.toml` whose tables are those below `[tool.ptxmotion]`. One
table for each verb, with the long options of that verb as keys:

    [tool.ptxmotion.opt]
    passes = "cse,lcm"
    verify-each = true

The nearest file counts, from the current folder upwards; a `ptxmotion.toml` before a `pyproject.toml` beside it; a
`pyproject.toml` without the table is passed over. What the command line says comes first.

Refuses: a table that is no verb, a key that is no option of it, a value of the wrong type: `SettingsError`, which names
the file and the key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Settings", "SettingsError", "find_settings", "read_settings"]


class SettingsError(ValueError):
    """A settings file cannot be read, or says what no option takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The tables of one file, by verb. ``path`` is ``None`` where no file was found."""

    path: str | None
    tables: dict[str, dict[str, Any]]

    def table(self, verb: str) -> dict[str, Any]:
        """The settings of one verb, by option."""
        return self.tables.get(verb, {})


def find_settings(folder: str) -> str | None:
    """The settings file that holds for ``folder``, an absolute path; ``None`` where there is none."""
    while True:
        own = os.path.join(folder, "ptxmotion.toml")
        if os.path.isfile(own):
            return own
        project = os.path.join(folder, "pyproject.toml")
        # Reading TOML costs more than most files take to optimize: look whether it speaks of us first.
        if os.path.isfile(project) and b"tool.ptxmotion" in _bytes(project) and "ptxmotion" in _tool_tables(project):
            return project
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def read_settings(path: str | None, verbs: frozenset[str]) -> Settings:
    """The settings of the file at ``path``; none where it is ``None``. Raises `SettingsError`."""
    if path is None:
        return Settings(None, {})
    found = _tool_tables(path).get("ptxmotion", {}) if os.path.basename(path) == "pyproject.toml" else _toml(path)
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: [tool.ptxmotion] is no table")
    tables = cast("dict[str, Any]", found)
    for name, table in tables.items():
        if name not in verbs:
            raise SettingsError(f"{path}: unknown key '{name}'; there are tables for {', '.join(sorted(verbs))}")
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: '{name}' is no table; options of a verb stand in a table of its name")
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
