"""One of several files of `ptxmotion opt`: its run, in this process or in another one, and its result."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .outcome import guarded

__all__ = ["FileResult", "FileRun", "recorded", "run_one"]


class FileRun(Protocol):
    """`opt` for one file. After `run`, ``is_changed`` says whether a kernel changed, and ``versions`` how many versions
    of kernels were added."""

    is_changed: bool
    versions: int

    def run(self) -> int:
        """Run it; the exit code."""
        ...


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file: its exit code, whether a kernel changed, how many versions of kernels were added, and
    what was printed on stderr."""

    code: int
    is_changed: bool
    versions: int
    messages: str


def run_one(
    one_file: Callable[[argparse.Namespace], FileRun], path: str, own: argparse.Namespace
) -> tuple[int, bool, int]:
    """Run it in this process: (exit code, whether a kernel changed, number of versions added)."""
    each = one_file(own)
    code = guarded(_command(own, path), lambda _: each.run())
    return code, each.is_changed, each.versions


def recorded(one_file: Callable[[argparse.Namespace], FileRun], path: str, own: argparse.Namespace) -> FileResult:
    """Run it, and keep what it prints on stderr."""
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        code, is_changed, versions = run_one(one_file, path, own)
    return FileResult(code, is_changed, versions, messages.getvalue())


def _command(arguments: argparse.Namespace, path: str) -> list[str]:
    """The command line of ``arguments``, with ``path`` as its only input."""
    return [word for word in arguments.command if word not in arguments.files] + [path]
