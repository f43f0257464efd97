"""Variants of a benchmark's PTX: nvcc's output, what the optimizer makes of it, files, earlier optimizers.

    O3, nvcc           nvcc's output as it is (which is nvcc's own -O3)
    O1, O2             levels of `opt`, as -O1 and -O2 are
    -O1 --gate=off     what begins with a dash: options of `opt`
    cse,lcm:min_cost=4 a list of passes
    kernels.ptx        a file; its kernels take the place of those of the same name
    REV@…              one of the second to fourth form, by the optimizer of a git revision
    kf_trad, kfcm      the host program fused by `fuse` with this strategy
    …+graph            the same, launched as a CUDA graph; graph alone is O3+graph
    NAME=…             one of these under another name
    thesis             several: the passes of the thesis one by one, and the optimizer's levels

Guarantees: the optimizer runs as `ptxmotion opt` does, in a process of its own; equal text is optimized once, and what
became of it is kept on disk under the hash of this package, of the text and of the options.
Refuses: `VariantError` where a variant cannot be read, made or found; the optimizer's own message is kept.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..cache import Cache, cache_folder, source_digest
from ..cli.outcome import USAGE
from ..python_child import FOLDER, child_environment, module_command
from .fused_variants import FUSIONS

if TYPE_CHECKING:
    from ..transforms.kernel_fusion.kfcm import Strategy

__all__ = [
    "DEFAULT",
    "METHODS",
    "Variant",
    "VariantError",
    "VariantFailed",
    "Variants",
    "parse_variant",
    "parse_variants",
]

#: nvcc's output as it is.
PLAIN = ("O3", "nvcc")

#: What is compared with nvcc's output where nothing is asked for: what `opt` does by default.
DEFAULT = "-O2"

#: The methods of the thesis whose times its figures 4.7 and 4.14 to 4.20 compare, by the names of their passes. What
#: is dead after them goes, as at every level.
METHODS = ("lcm", "scm", "spre", "sscm", "srqp", "esrqp", "ssrqp_s", "ssrqp")
_CLEAN_UP = "dce,emptyblocks"

_ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT = 600.0
#: The folders of this package on which what `opt` does depends.
_PARTS = (".", "analysis", "cli", "harness", "ptx", "toolchain", "transforms")


class VariantError(Exception):
    """A variant cannot be made."""


class VariantFailed(VariantError):
    """The optimizer failed on a program, or left PTX that is none: a fault of the optimizer, not of the variant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How to make an arm. ``options`` are those of `opt`, None for nvcc's output; ``file`` and ``revision`` may be
    empty, as may ``fusion``, a strategy of `fuse`."""

    id: str
    options: tuple[str, ...] | None = None
    file: str = ""
    revision: str = ""
    launch: str = "auto"
    fusion: Strategy | Literal[""] = ""


def parse_variants(text: str) -> list[Variant]:
    """Read a variant, or the name of several. Raises `VariantError`, also for a pass that there is not.

    >>> [each.id for each in parse_variants("lcm,dce")]
    ['lcm,dce']
    """
    from ..transforms.passes import LEVELS, UnknownPass, passes_of

    found = [parse_variant(text)]
    if text == "thesis":
        found = [Variant(name, (f"--passes={name},{_CLEAN_UP}",)) for name in METHODS]
        found += [parse_variant(f"-{level}") for level in LEVELS if level != "O0"]
    for variant in found:
        for option in variant.options or ():
            if option.startswith("--passes=") and not variant.revision:
                try:
                    passes_of(option.removeprefix("--passes="))
                except UnknownPass as error:
                    raise VariantError(f"variant '{text}': {error}") from error
    return found


def parse_variant(text: str) -> Variant:
    """Read a variant. Raises `VariantError`.

    >>> parse_variant("lcm,dce").options
    ('--passes=lcm,dce',)
    >>> parse_variant("fast=-O1 --gate=off+graph")
    Variant(id='fast', options=('-O1', '--gate=off'), file='', revision='', launch='graph', fusion='')
    """
    label, equals, rest = text.partition("=")
    spec = rest if equals and re.fullmatch(r"[A-Za-z_][\w.() ]*", label) else text
    launch = "graph" if spec.endswith("+graph") else "auto"
    what = spec.removesuffix("+graph")
    made = Variant(label if spec is rest and equals else spec, launch=launch)
    revision, at, passes = what.rpartition("@")
    if at and revision:
        made, what = replace(made, revision=revision), passes
    if what in PLAIN and not made.revision:
        return made
    if what == "graph" and not made.revision:
        return replace(made, launch="graph")
    for strategy in FUSIONS:
        if what == strategy and made.revision:
            raise VariantError(f"variant '{text}': fusion is that of this version, not of a revision")
        if what == strategy:
            return replace(made, fusion=strategy)
    if re.fullmatch(r"O\d", what):
        what = f"-{what}"
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
        self._lock = threading.Lock()

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
            cache = Cache("opt", None if self._depends_on_more(variant) else cache_folder())
            identity = _package_hash(), "\0".join(options), text
            body = cache.get(*identity)
            if body is not None:
                found = body.decode("utf-8", "surrogateescape")
            else:
                found = self._optimize(variant, text)
                cache.put(found.encode("utf-8", "surrogateescape"), *identity)
            self._done[key] = found
        return self._done[key]

    @staticmethod
    def _depends_on_more(variant: Variant) -> bool:
        """Whether what becomes of a text depends on more than the text, the options and this package."""
        return bool(variant.revision) or any(map(_names_a_file, variant.options or ()))

    def _optimize(self, variant: Variant, text: str) -> str:
        folder = self._of_revision(variant.revision) if variant.revision else FOLDER
        try:
            done = subprocess.run(
                module_command("opt", "--no-config", *(variant.options or ()), "-", folder=folder),
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env=child_environment(),
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise VariantFailed(f"variant {variant.id}: no output within {_TIMEOUT:g} s") from None
        if done.returncode != 0:
            # What is wrong with the options is wrong for all programs.
            kind = VariantError if done.returncode == USAGE else VariantFailed
            raise kind(f"variant {variant.id}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def _of_revision(self, revision: str) -> str:
        """The package of a revision: a folder."""
        with self._lock:
            return self._revisions.get(revision) or self._unpack(revision)

    def _unpack(self, revision: str) -> str:
        folder = Path(self._folder.name) / f"revision{len(self._revisions)}"
        command = ["git", "-C", str(_ROOT), "archive", "--format=tar", revision]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT)
        except FileNotFoundError as error:
            raise VariantError(f"variant of revision {revision}: git is not installed") from error
        if done.returncode != 0:
            raise VariantError(f"variant of revision {revision}: {done.stderr.decode(errors='replace').strip()}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        self._revisions[revision] = str(folder)
        return self._revisions[revision]


# What the optimizer made, on disk


def _names_a_file(option: str) -> bool:
    """Whether what an option does may depend on a file: then nothing is kept."""
    return any(Path(word).exists() for word in (option, option.partition("=")[2]) if word)


@cache
def _package_hash() -> str:
    """Of every module of this package, and of the ptxas that a gate would ask."""
    from ..toolchain.tools import ToolchainError, find_tool

    try:
        tool = find_tool("ptxas").identity
    except (ToolchainError, OSError):
        tool = "no ptxas"
    return f"{source_digest(_ROOT, _PARTS)}\0{tool}"


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
