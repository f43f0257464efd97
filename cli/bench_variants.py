"""Variants of a benchmark's PTX: nvcc's output, what the optimizer makes of it, files, earlier optimizers.

    O3                 nvcc's output as it is
    -O1 --gate=off     what begins with a dash: options of `opt`
    cse,lcm:min_cost=4 a list of passes
    kernels.ptx        a file; its kernels take the place of those of the same name
    REV@…              one of the second or third form, by the optimizer of a git revision
    …+graph            the same, launched as a CUDA graph
    NAME=…             one of these under another name

Guarantees: the optimizer runs as `ptxmotion opt` does, in a process of its own; equal text is optimized once.
Refuses: `VariantError` where a variant cannot be read, made or found; the optimizer's own message is kept.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["Variant", "VariantError", "Variants", "parse_variant"]

#: nvcc's output as it is.
PLAIN = "O3"

_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT = 600.0


class VariantError(Exception):
    """A variant cannot be made."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How to make an arm. ``options`` are those of `opt`, None for nvcc's output; ``file`` and ``revision`` may be
    empty."""

    id: str
    options: tuple[str, ...] | None = None
    file: str = ""
    revision: str = ""
    launch: str = "auto"


def parse_variant(text: str) -> Variant:
    """Read a variant. Raises `VariantError`.

    >>> parse_variant("lcm,dce").options
    ('--passes=lcm,dce',)
    >>> parse_variant("fast=-O1 --gate=off+graph")
    Variant(id='fast', options=('-O1', '--gate=off'), file='', revision='', launch='graph')
    """
    label, equals, rest = text.partition("=")
    spec = rest if equals and re.fullmatch(r"[A-Za-z_][\w.() ]*", label) else text
    launch = "graph" if spec.endswith("+graph") else "auto"
    what = spec.removesuffix("+graph")
    made = Variant(label if spec is rest and equals else spec, launch=launch)
    revision, at, passes = what.rpartition("@")
    if at and revision:
        made, what = replace(made, revision=revision), passes
    if what == PLAIN and not made.revision:
        return made
    if what.endswith(".ptx") and not made.revision:
        return replace(made, file=what)
    if what.startswith("-"):
        try:
            return replace(made, options=tuple(shlex.split(what)))
        except ValueError as error:
            raise VariantError(f"variant '{text}': {error}") from error
    if not re.fullmatch(r"[\w:=.,-]+", what):
        raise VariantError(f"variant '{text}' is neither O3, options of opt, passes, nor a .ptx file")
    return replace(made, options=(f"--passes={what}",))


class Variants:
    """Makes arms' PTX from nvcc's. A context: earlier optimizers are kept in a folder that goes at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ptxmotion-")
        self._done: dict[tuple[str, tuple[str, ...], str], str] = {}
        self._revisions: dict[str, str] = {}

    def __enter__(self) -> Variants:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def modules(self, variant: Variant, plain: Mapping[str, str]) -> dict[str, str]:
        """The PTX of each kernel by name. Raises `VariantError`, `OSError`."""
        if variant.file:
            return _from_file(variant.file, plain)
        if variant.options is None:
            return dict(plain)
        return {name: self._optimized(variant, text) for name, text in plain.items()}

    def _optimized(self, variant: Variant, text: str) -> str:
        options = variant.options or ()
        key = (variant.revision, options, text)
        if key not in self._done:
            path = [self._of_revision(variant.revision)] if variant.revision else []
            path += [each or os.getcwd() for each in sys.path]
            done = subprocess.run(
                [sys.executable, "-m", _PACKAGE, "opt", "--no-config", *options, "-"],
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                timeout=_TIMEOUT,
            )
            if done.returncode != 0:
                raise VariantError(f"variant {variant.id}: {done.stderr.decode(errors='replace').strip()}")
            self._done[key] = done.stdout.decode("utf-8", "surrogateescape")
        return self._done[key]

    def _of_revision(self, revision: str) -> str:
        """A folder from which the optimizer of a revision is imported."""
        if revision not in self._revisions:
            folder = Path(self._folder.name) / f"revision{len(self._revisions)}"
            command = ["git", "-C", str(_ROOT), "archive", "--format=tar", revision]
            try:
                done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT)
            except FileNotFoundError as error:
                raise VariantError(f"variant of revision {revision}: git is not installed") from error
            if done.returncode != 0:
                raise VariantError(f"variant of revision {revision}: {done.stderr.decode(errors='replace').strip()}")
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
                archive.extractall(folder / _PACKAGE, filter="data")
            self._revisions[revision] = str(folder)
        return self._revisions[revision]


def _from_file(path: str, plain: Mapping[str, str]) -> dict[str, str]:
    """The modules with the file in place of each whose kernels it has. Raises `VariantError`, `OSError`."""
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    entries = set(_entries(text))
    found = {name: text if set(_entries(module)) <= entries else module for name, module in plain.items()}
    if all(found[name] == module for name, module in plain.items()):
        wanted = ", ".join(dict.fromkeys(entry for module in plain.values() for entry in _entries(module)))
        raise VariantError(f"{path} has none of the kernels {wanted}")
    return found


def _entries(ptx: str) -> list[str]:
    return re.findall(r"\.entry\s+([\w$%.]+)", ptx)
