"""The variants of a benchmark: what text on the command line describes which PTX.

    O3, nvcc           the output of nvcc, unchanged (nvcc's own -O3)
    O1, O2             the levels of `opt`, the same as -O1 and -O2
    -O1 --gate=off     options of `opt`; text that begins with a dash
    cse,lcm:min_cost=4 a list of passes
    kernels.ptx        a file; its kernels replace those of the same name
    REV@…              one of the second to fourth form, with the optimizer of a git revision
    kf_trad, kfcm      the host program, fused with this strategy of `fuse`
    lowering:isp       an image pipeline by another lowering of `dsl.image`, as nvcc compiles it
    …+graph            the same, launched as a CUDA graph; graph alone is O3+graph
    …+branches         a CUDA graph in which launches only wait for those that they depend on; also alone
    tuned, tuned:DIR   the modules that `contract tune` has written to DIR, or to the folder "tuned"
    …+contract         options or passes, with versions of the kernels: each launch takes the first that its contract
                       allows
    NAME=…             one of these, under another name
    thesis             several variants: each pass of the thesis, and the levels of the optimizer

Guarantees: the optimizer runs as `ptxmotion opt` does, in its own process. Its output is cached on disk under a hash of
this package, the input and the options; equal input is optimized once.
Refuses: `VariantError` where a variant cannot be read, made or found; it has the message of the optimizer.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..cache import Cache, cache_folder, source_digest
from ..python_child import FOLDER, child_environment, module_command
from ..spelling import did_you_mean
from .errors import BadInput
from .fused_variants import FUSIONS

if TYPE_CHECKING:
    from ..transforms.kernel_fusion.kfcm import Strategy

__all__ = [
    "DEFAULT",
    "METHODS",
    "Optimizer",
    "Variant",
    "VariantError",
    "VariantFailed",
    "Variants",
    "parse_variant",
    "parse_variants",
    "run_opt",
]

#: The names of the unchanged output of nvcc.
PLAIN = ("O3", "nvcc")

#: The variant that is compared with nvcc's output by default: what `opt` does by default.
DEFAULT = "-O2"

#: The methods that figures 4.7 and 4.14 to 4.20 of the thesis compare, by the names of their passes. Dead code is
#: removed after each of them, as at every level.
METHODS = ("lcm", "scm", "spre", "sscm", "srqp", "esrqp", "ssrqp_s", "ssrqp")
_CLEAN_UP = "dce,emptyblocks"

#: What a variant that is a lowering begins with.
_LOWERING = "lowering:"
#: The variant whose modules `contract tune` has written, and its default folder.
_TUNED = "tuned"

_ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT = 600.0
#: The exit code of `opt` for wrong usage.
_USAGE = 2
#: The folders of this package on which the output of `opt` depends.
_PARTS = (".", "analysis", "cli", "contract", "harness", "ptx", "toolchain", "transforms", "versions")
#: The option of `opt` that writes a contract.
_CONTRACT = "--contract"


class VariantError(BadInput):
    """A variant cannot be made."""


class VariantFailed(VariantError):
    """The optimizer failed on one program. The variant can be made for other programs."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How to make an arm. ``options`` are those of `opt`, or None for the output of nvcc. ``file``, ``revision``,
    ``fusion`` (a strategy of `fuse`), ``lowering`` (of an image pipeline) and ``tuned`` (a folder of `contract tune`)
    are empty where they do not apply. ``contract``: with versions and a contract."""

    id: str
    options: tuple[str, ...] | None = None
    file: str = ""
    revision: str = ""
    launch: str = "auto"
    fusion: Strategy | Literal[""] = ""
    contract: bool = False
    lowering: str = ""
    tuned: str = ""


def parse_variants(text: str) -> list[Variant]:
    """Read a variant, or the name of several. Raises `VariantError`, also for an unknown pass.

    >>> [each.id for each in parse_variants("lcm,dce")]
    ['lcm,dce']
    """
    from ..transforms.passes import LEVELS, UnknownPass, passes_of

    variants = [parse_variant(text)]
    if text == "thesis":
        variants = [Variant(name, (f"--passes={name},{_CLEAN_UP}",)) for name in METHODS]
        variants += [parse_variant(f"-{level}") for level in LEVELS if level != "O0"]
    for variant in variants:
        for option in variant.options or ():
            if option.startswith("--passes=") and not variant.revision:
                try:
                    passes_of(option.removeprefix("--passes="))
                except UnknownPass as error:
                    raise VariantError(f"variant '{text}': {error}") from error
    return variants


def parse_variant(text: str) -> Variant:
    """Read a variant. Raises `VariantError`.

    >>> parse_variant("lcm,dce").options
    ('--passes=lcm,dce',)
    >>> fast = parse_variant("fast=-O1 --gate=off+graph")
    >>> fast.id, fast.options, fast.launch
    ('fast', ('-O1', '--gate=off'), 'graph')
    """
    label, equals, rest = text.partition("=")
    spec = rest if equals and re.fullmatch(r"[A-Za-z_][\w.() ]*", label) else text
    launch = next((mode for mode in ("graph", "branches") if spec.endswith(f"+{mode}")), "auto")
    what = spec.removesuffix(f"+{launch}")
    made = Variant(label if spec is rest and equals else spec, launch=launch)
    if what.endswith("+contract"):
        made = replace(parse_variant(what.removesuffix("+contract")), id=made.id, launch=launch, contract=True)
        if made.options is None or made.revision:
            raise VariantError(f"variant '{text}': a contract needs options or passes of this version")
        return made
    revision, at, passes = what.rpartition("@")
    if at and revision:
        made, what = replace(made, revision=revision), passes
    if what in PLAIN and not made.revision:
        return made
    if what.startswith(_LOWERING):
        return _lowered(made, what.removeprefix(_LOWERING), text)
    if what == _TUNED or what.startswith(f"{_TUNED}:"):
        return replace(made, tuned=what.partition(":")[2] or _TUNED)
    if what in ("graph", "branches") and not made.revision:
        return replace(made, launch=what)
    for strategy in FUSIONS:
        if what == strategy and made.revision:
            raise VariantError(f"variant '{text}': fusion is available in this version only, not of a revision")
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


def _lowered(made: Variant, lowering: str, text: str) -> Variant:
    """The variant with this lowering of image pipelines."""
    from ..dsl.image import LOWERINGS

    if made.revision:
        raise VariantError(f"variant '{text}': lowerings are available in this version only, not of a revision")
    if lowering not in LOWERINGS:
        similar = did_you_mean(lowering, LOWERINGS)
        known = ", ".join(LOWERINGS)
        raise VariantError(f"variant '{text}': there is no lowering '{lowering}'{similar}; there are {known}")
    return replace(made, lowering=lowering)


#: Runs `opt`: the folder of the package, the options, and the PTX give the optimized PTX. Raises `VariantError`.
Optimizer: TypeAlias = Callable[[str, Sequence[str], str], str]


def run_opt(folder: str, options: Sequence[str], ptx: str) -> str:
    """Run `opt` of the package in ``folder`` in a process of its own. Raises `VariantError`, `VariantFailed`."""
    try:
        done = subprocess.run(
            module_command("opt", "--no-config", *options, "-", folder=folder),
            input=ptx.encode("utf-8", "surrogateescape"),
            capture_output=True,
            env=child_environment(),
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise VariantFailed(f"no output within {_TIMEOUT:g} s") from None
    if done.returncode != 0:
        # Wrong options are wrong for every program.
        kind = VariantError if done.returncode == _USAGE else VariantFailed
        raise kind(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode("utf-8", "surrogateescape")


class Variants:
    """Makes the PTX of variants from the output of nvcc. Use it as a context manager: it unpacks the package of a git
    revision into a temporary folder, which it removes at the end.

    ``optimizer`` runs `opt`. In ``_outputs`` the key is revision, options and input; in ``_revisions`` the value is the
    folder of a revision's package.
    """

    def __init__(self, optimizer: Optimizer = run_opt) -> None:
        self._optimizer = optimizer
        self._folder = tempfile.TemporaryDirectory(prefix="ptxmotion-")
        self._outputs: dict[tuple[str, tuple[str, ...], str], tuple[str, str]] = {}
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
        if variant.tuned:
            return {name: _tuned_module(variant, name, text)[0] for name, text in plain.items()}
        if variant.options is None:
            return dict(plain)
        return {name: self._optimized(variant, text)[0] for name, text in plain.items()}

    def contracts(self, variant: Variant, plain: Mapping[str, str]) -> dict[str, str]:
        """The text of the contract of each module by the PTX of the module; empty for a variant without contract.
        Raises `VariantError`, `OSError`."""
        if variant.tuned:
            return dict(_tuned_module(variant, name, text) for name, text in plain.items())
        return dict(self._optimized(variant, text) for text in plain.values()) if variant.contract else {}

    def _optimized(self, variant: Variant, ptx: str) -> tuple[str, str]:
        """The PTX, and the text of its contract, which is empty for a variant without contract."""
        options = (*(variant.options or ()), *([_CONTRACT] if variant.contract else []))
        key = (variant.revision, options, ptx)
        if key not in self._outputs:
            self._outputs[key] = self._cached(variant, options, ptx)
        return self._outputs[key]

    def _cached(self, variant: Variant, options: Sequence[str], ptx: str) -> tuple[str, str]:
        """The optimized PTX and its contract from the cache on disk, or from the optimizer."""
        cache = Cache("opt", None if self._depends_on_more(variant) else cache_folder())
        identity = _package_hash(), "\0".join(options), ptx
        body = cache.get(*identity)
        if body is not None:
            return _parts(body)
        folder = self._of_revision(variant.revision) if variant.revision else FOLDER
        try:
            output = self._run(folder, options, ptx)
        except VariantError as error:
            raise type(error)(f"variant {variant.id}: {error}") from error
        cache.put(_joined(*output), *identity)
        return output

    def _run(self, folder: str, options: Sequence[str], ptx: str) -> tuple[str, str]:
        """Run the optimizer; the PTX and the text of the contract."""
        if _CONTRACT not in options:
            return self._optimizer(folder, options, ptx), ""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as place:
            file = Path(place) / "contract.json"
            given = [f"{_CONTRACT}={file}" if option == _CONTRACT else option for option in options]
            output = self._optimizer(folder, given, ptx)
            return output, file.read_text(encoding="utf-8")

    @staticmethod
    def _depends_on_more(variant: Variant) -> bool:
        """Whether the output depends on more than the input, the options and this package."""
        return bool(variant.revision) or any(map(_names_a_file, variant.options or ()))

    def _of_revision(self, revision: str) -> str:
        """The folder of a revision's package; unpacked once."""
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


def _tuned_module(variant: Variant, name: str, ptx: str) -> tuple[str, str]:
    """The PTX and the text of the contract that `contract tune` has made of a module. Raises `VariantFailed`."""
    from .tuning import digest_of

    # The name is that of one of the kernels of the module; the digest is that of its PTX.
    found = sorted(Path(variant.tuned).glob(f"*-{digest_of(ptx)}.ptx"))
    if not found:
        reason = f"{variant.tuned} has no module that was made of the PTX of {name}"
        raise VariantFailed(f"variant {variant.id}: {reason}; `ptxmotion contract tune` makes it")
    text = found[0].read_text(encoding="utf-8", errors="surrogateescape")
    return text, found[0].with_suffix(".contract.json").read_text(encoding="utf-8")


# --- the cache on disk


def _joined(ptx: str, contract: str) -> bytes:
    """One text of both: the length of the contract in characters, a new line, the contract, the PTX."""
    return f"{len(contract)}\n{contract}{ptx}".encode("utf-8", "surrogateescape")


def _parts(body: bytes) -> tuple[str, str]:
    length, _, rest = body.decode("utf-8", "surrogateescape").partition("\n")
    return rest[int(length) :], rest[: int(length)]


def _names_a_file(option: str) -> bool:
    """Whether an option can name a file. Then the output is not cached."""
    return any(Path(word).exists() for word in (option, option.partition("=")[2]) if word)


@cache
def _package_hash() -> str:
    """A hash of every module that `opt` runs, and the identity of the ptxas that its gate uses."""
    from ..toolchain.tools import ToolchainError, find_tool

    try:
        tool = find_tool("ptxas").identity
    except (ToolchainError, OSError):
        tool = "no ptxas"
    return f"{source_digest(_ROOT, _PARTS)}\0{tool}"


def _from_file(path: str, plain: Mapping[str, str]) -> dict[str, str]:
    """The modules, with the file in place of each module whose kernels it has. Raises `VariantError`, `OSError`."""
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    entries = set(_entries(text))
    modules = {name: text if set(_entries(module)) <= entries else module for name, module in plain.items()}
    if all(modules[name] == module for name, module in plain.items()):
        wanted = ", ".join(dict.fromkeys(entry for module in plain.values() for entry in _entries(module)))
        raise VariantError(f"{path} has none of the kernels {wanted}")
    return modules


def _entries(ptx: str) -> list[str]:
    return re.findall(r"\.entry\s+([\w$%.]+)", ptx)
