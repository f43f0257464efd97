"""Where a history is kept: a folder, or a branch of the git repository in the current folder.

A branch needs no checkout: entries are written into git's object database, and one commit is added to the branch for
each of them. Other files of the branch are not touched. Nothing is fetched or pushed.

Requires: git, for a branch. Guarantees: an entry is added as a whole or not at all.
Refuses: `BadInput` for what git refuses, with its message.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..harness.history import Entry, parse_entry
from ..harness.results import write_text
from .errors import BadInput

__all__ = ["BranchStore", "FolderStore", "Store"]


class Store(Protocol):
    """A place with the files of a history. ``name`` names it in messages."""

    @property
    def name(self) -> str:
        """Where the history is, for messages."""
        ...

    def read(self) -> list[Entry]:
        """All entries. Raises `OSError`, `ResultError`."""
        ...

    def add(self, entry: Entry) -> str:
        """Add an entry; entries that it replaces are removed. Returns the name of its file."""
        ...


@dataclass(frozen=True)
class FolderStore:
    """A folder with one file for each entry."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def _files(self) -> dict[Path, Entry]:
        paths = sorted(self.folder.glob("*.json"))
        return {path: parse_entry(path.read_text(encoding="utf-8"), str(path)) for path in paths}

    def read(self) -> list[Entry]:
        """The entries. Raises `OSError`, `ResultError`."""
        return list(self._files().values())

    def add(self, entry: Entry) -> str:
        """Raises `OSError`, `ResultError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        former = [path for path, each in self._files().items() if entry.replaces(each)]
        path = self.folder / entry.filename
        write_text(path, entry.dumps())
        for each in former:
            if each != path:
                each.unlink()
        return str(path)


#: The folder of the entries on a branch.
_ON_BRANCH = "history"


@dataclass(frozen=True)
class BranchStore:
    """A branch with one file for each entry, in the folder `history` of the branch."""

    branch: str

    @property
    def name(self) -> str:
        return f"branch {self.branch}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.branch}"

    def _tip(self) -> str:
        """The commit of the branch; empty if it does not exist."""
        return _git("rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}", may_fail=True)

    def _files(self, tip: str) -> dict[str, Entry]:
        names = _git("ls-tree", "-z", "--name-only", tip, f"{_ON_BRANCH}/").split("\0") if tip else []
        paths = [name for name in names if name.endswith(".json")]
        return {path: parse_entry(_git("show", f"{tip}:{path}"), f"{self.branch}:{path}") for path in paths}

    def read(self) -> list[Entry]:
        """The entries. Raises `BadInput`, `ResultError`."""
        tip = self._tip()
        if not tip:
            raise BadInput(f"there is no branch '{self.branch}'; `bench history add` makes it")
        return list(self._files(tip).values())

    def add(self, entry: Entry) -> str:
        """Raises `BadInput`, `ResultError`."""
        if self.branch in (_git("symbolic-ref", "--short", "-q", "HEAD", may_fail=True), ""):
            raise BadInput(f"branch '{self.branch}' is checked out: choose another branch, or a folder")
        tip = self._tip()
        former = [path for path, each in self._files(tip).items() if entry.replaces(each)]
        path = f"{_ON_BRANCH}/{entry.filename}"
        blob = _git("hash-object", "-w", "--stdin", text=entry.dumps())
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            if tip:
                _git("read-tree", tip, environment=index)
            if former:
                _git("update-index", "--force-remove", "--", *former, environment=index)
            _git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", environment=index)
            tree = _git("write-tree", environment=index)
        parents = ["-p", tip] if tip else []
        message = f"Add the results of {entry.id}"
        commit = _git("commit-tree", tree, *parents, "-m", message, environment=_identity())
        _git("update-ref", self._ref, commit, tip or "0" * len(commit))
        return f"{self.branch}:{path}"


def _identity() -> dict[str, str]:
    """Who commits, for a machine of CI where git does not know it: variables for git, none where it knows."""
    if _git("config", "user.email", may_fail=True) or os.environ.get("GIT_COMMITTER_EMAIL"):
        return {}
    names = {f"GIT_{role}_NAME": "ptxmotion" for role in ("AUTHOR", "COMMITTER")}
    return names | {f"GIT_{role}_EMAIL": "ptxmotion@localhost" for role in ("AUTHOR", "COMMITTER")}


def _git(
    *words: str, text: str | None = None, environment: dict[str, str] | None = None, may_fail: bool = False
) -> str:
    """The output of git. Settings of the repository that name programs are overridden."""
    command: Sequence[str] = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
    variables = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env=variables)
    except (OSError, subprocess.SubprocessError) as error:
        raise BadInput(f"git {words[0]}: {error}") from error
    if done.returncode and not may_fail:
        raise BadInput(f"git {words[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout if words[0] == "show" else done.stdout.strip()
