"""Optimizes a PTX file of a build: between nvcc's steps cicc and ptxas, or before a ptxas that another program runs.

Environment variables, which are the settings of a build:

- PTXMOTION_FLAGS: options of `ptxmotion opt` (default: -O3);
- PTXMOTION_ONLY, PTXMOTION_SKIP: regular expressions; only kernels whose name matches, or none of them, are changed.
  A name is compared as it is in PTX and as it is in the source;
- PTXMOTION_LOG: a file to which one line of JSON is appended for each PTX file;
- PTXMOTION_VERBOSE: if it is not empty, print which kernels changed;
- PTXMOTION_SECONDS: the time limit for a PTX file (default: 600);
- PTXMOTION_CONTRACT: add versions of kernels for launches with known facts, where there is a host object that can
  contain their contracts (`host_contracts`);
- PTXMOTION_TUNED: a folder of `contract tune`, whose modules take the place of optimized ones (`tuned_modules`).

Guarantees: a file is replaced at once, and only by PTX that ptxas accepts with the options and for each target of the
build. If there is no such PTX, the file stays as it is. Results are cached; the key contains the PTX, all settings, the
options and the identity of ptxas, and that of this package.
Refuses: PTX for debugging (``-G``) and for link-time optimization (``-dlto``), which stay as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..cache import Cache, cache_path, file_identity, source_identity
from ..python_child import FOLDER
from .host_contracts import TUNED, HostFiles, contracts_of, host_files_of

if TYPE_CHECKING:
    from ..driver import Policy
    from .tuned_modules import TunedFiles

__all__ = ["BuildStep", "Flags", "StepFailed", "step_of_cicc", "time_limit"]

_DECIDERS = (".", "analysis", "cli", "compiler", "contract", "ptx", "toolchain", "transforms", "versions")

#: Options of cicc by which its output is no PTX, or PTX that ptxas does not optimize.
_NOT_OPTIMIZED = frozenset(["-g", "--debug_mode", "-lto", "-olto"])

#: From PTXMOTION_FLAGS to the passes, and a function from the ptxas options and the target to the policy.
Flags = Callable[[str], "tuple[str, Policy]"]


#: What is in each PTX file with a kernel or a function.
_KERNEL = re.compile(rb"\.(entry|func)\b")


class StepFailed(Exception):
    """The PTX file stays as it is; the text says why."""


class BuildStep:
    """The optimization of one PTX file. ``source`` is the name of the source, for messages. ``runs`` has the target and
    the options of each run of ptxas over the file. With ``host_files``, versions for launches with known facts are
    added."""

    def __init__(
        self, source: str, runs: Sequence[tuple[str, tuple[str, ...]]], host_files: HostFiles | None = None
    ) -> None:
        self.source = source
        self.runs = list(runs)
        self.host_files = host_files

    def optimized(self, given: bytes, parse_flags: Flags) -> dict[str, Any]:
        """An entry of the log, and ``text``: the optimized PTX, or `None` if no kernel changed; and ``contracts``: the
        bytes of a contract for each kernel with versions. Raises `StepFailed` and errors of the optimizer."""
        started = time.perf_counter()
        cache = Cache("nvcc", cache_path())
        tuned = self._tuned(given)
        key = self._key(given, tuned)
        entry = _decoded(cache.get(*key)) if key else None
        is_cached = entry is not None
        if entry is None and tuned is None and not _KERNEL.search(given):
            entry = _unchanged()  # such as a source file of the host only, which needs no optimizer
        elif entry is None:
            entry = self._optimized(given, parse_flags, key, tuned)
            if key and not entry["warnings"]:
                cache.put(_encoded(entry), *key)
        seconds = round(time.perf_counter() - started, 4)
        targets = [target for target, _ in self.runs]
        return {"source": self.source, "targets": targets, "seconds": seconds, "cached": is_cached, **entry}

    def _tuned(self, given: bytes) -> TunedFiles | None:
        """The tuned module that takes the place of the optimized one. Raises `StepFailed`."""
        if self.host_files is None or not os.environ.get(TUNED):
            return None
        from .tuned_modules import UnusableTuning, tuned_files

        try:
            found = tuned_files(given)
        except UnusableTuning as error:
            raise StepFailed(str(error)) from error
        excluded = [name for name in ("PTXMOTION_ONLY", "PTXMOTION_SKIP") if os.environ.get(name)]
        if found is not None and excluded:
            raise StepFailed(f"{TUNED} excludes {excluded[0]}: all kernels of a module are tuned together")
        return found

    def _key(self, given: bytes, tuned: TunedFiles | None) -> tuple[str | bytes, ...]:
        """Everything that the result depends on; empty, so that nothing is cached, if something cannot be read."""
        settings = [os.environ.get(f"PTXMOTION_{name}", "") for name in ("FLAGS", "ONLY", "SKIP")]
        settings.append("contract" if self.host_files is not None else "")
        own = (tuned.ptx, tuned.contract) if tuned is not None else ()
        try:
            ptxas = os.environ["PTXMOTION_PTXAS"]
            tool = file_identity(ptxas)
            return (source_identity(FOLDER, _DECIDERS), tool, repr(self.runs), *settings, *own, given)
        except (OSError, KeyError):
            return ()

    def _optimized(
        self, given: bytes, parse_flags: Flags, key: Sequence[str | bytes], tuned: TunedFiles | None
    ) -> dict[str, Any]:
        """What the optimizer makes of PTX, as an entry of the cache. ``text`` is `None` if no kernel changed. ``key``
        is that of the cache. ``tuned`` takes the place of the result of the optimizer."""
        from dataclasses import replace

        from ..driver import optimize
        from ..ptx import parse

        passes, policy = parse_flags(os.environ.get("PTXMOTION_FLAGS") or "-O3")
        target, options = self.runs[0] if self.runs else ("", ())
        policy = replace(
            policy, arch=target if target.startswith("sm_") else None, ptxas_options=options, kernels=_selection()
        )
        if self.host_files is not None:
            if policy.promise is not None or policy.limit is not None:
                raise StepFailed("PTXMOTION_CONTRACT excludes --alias and --bisect-limit in PTXMOTION_FLAGS")
            # The names of versions show that an image was made from this PTX, with these settings.
            suffix = f"_{hashlib.sha256(repr(key or (given, os.urandom(16))).encode()).hexdigest()[:16]}"
            if tuned is not None:
                return self._of_tuned(given, tuned, suffix)
            policy = replace(policy, contract=True, version_suffix=suffix)
        # Remarks without -lineinfo name lines of the PTX, and the key of the cache contains no name of a file.
        module = parse(given.decode("utf-8", "surrogateescape"), "module.ptx")
        kernels = [kernel.name for kernel in module.kernels if not kernel.is_declaration]
        result = optimize(module, passes, policy)
        contracts = contracts_of(result.contract) if result.contract is not None else {}
        is_changed = bool(result.changed or contracts)
        if is_changed:
            self._check(result.text)
        refused = [each for each in result.remarks if each.reason == "gate-refused"]
        return {
            "kernels": kernels,
            "changed": list(result.changed),
            "rewrites": result.log.rewrites,
            "remarks": [[each.kernel, each.text] for each in result.remarks if each.kind == "Passed"],
            "warnings": [*result.warnings, *(f"{each.kernel}: {each.message}" for each in refused[:1])],
            "versioned": list(contracts),
            "contracts": list(contracts.values()),
            "text": result.text if is_changed else None,
        }

    def _of_tuned(self, given: bytes, tuned: TunedFiles, suffix: str) -> dict[str, Any]:
        """The entry of the cache for a tuned module. Raises `StepFailed`."""
        from ..ptx import parse, print_kernel, print_module
        from .tuned_modules import UnusableTuning

        before = parse(given.decode("utf-8", "surrogateescape"), "module.ptx")
        try:
            module, contract = tuned.read(before, suffix)
        except UnusableTuning as error:
            raise StepFailed(str(error)) from error
        contracts = contracts_of(contract)
        changed = [each.name for each in before.entries if print_kernel(each) != print_kernel(module.kernel(each.name))]
        text = print_module(module)
        self._check(text)
        return {
            "kernels": [kernel.name for kernel in before.kernels if not kernel.is_declaration],
            "changed": changed,
            "rewrites": 0,
            "remarks": [],
            "warnings": [],
            "versioned": list(contracts),
            "contracts": list(contracts.values()),
            "text": text,
        }

    def _check(self, text: str) -> None:
        """Raise `StepFailed` if ptxas refuses PTX in one of the runs of the build. The gate has assembled most
        results already; then its figures are in the cache."""
        from ..toolchain.ptxas_judge import PtxasJudge
        from ..toolchain.tools import ToolchainError, find_ptxas

        for target, options in self.runs or [("", ())]:
            arch = target if target.startswith("sm_") else None
            try:
                judge = PtxasJudge(arch, options=options, tool=find_ptxas(text))
                judge.figures(text)
            except ToolchainError as error:
                raise StepFailed(f"ptxas refuses the optimized PTX: {' '.join(str(error).split())[:300]}") from error


def _unchanged() -> dict[str, Any]:
    """The entry of the cache for PTX without kernels."""
    names = ("kernels", "changed", "remarks", "warnings", "versioned", "contracts")
    return {**{name: list[str]() for name in names}, "rewrites": 0, "text": None}


def step_of_cicc(
    arguments: Sequence[str], runs: Sequence[tuple[str, str, Sequence[str]]]
) -> tuple[BuildStep, str] | None:
    """The step behind a cicc with these arguments, and the PTX file that cicc has written; `None` if it has written
    none that can be optimized. ``runs`` are those of the whole build: (PTX file, target, options). One without a name
    is a run over every PTX file."""
    from .dry_run import is_same_file

    output = _value(arguments, "-o")
    if not output.endswith(".ptx") or _NOT_OPTIMIZED.intersection(arguments) or not _is_regular(output):
        return None
    every = [(target, tuple(options)) for _, target, options in runs]
    named = [not name or is_same_file(name, output) for name, _, _ in runs]
    own = [run for run, is_own in zip(every, named, strict=True) if is_own]
    # nvcc chooses another number for a temporary file if one with that name exists.
    own = own or (every[:1] if len(set(every)) == 1 else [])
    host_files = host_files_of(dict(pairwise(arguments)))
    return BuildStep(_value(arguments, "--orig_src_file_name") or output, own, host_files), output


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _value(arguments: Sequence[str], option: str) -> str:
    """The word behind an option; empty if there is none."""
    return next((value for name, value in pairwise(arguments) if name == option), "")


def _selection() -> Callable[[str], bool] | None:
    """Which kernels PTXMOTION_ONLY and PTXMOTION_SKIP select; `None` for all. Raises `StepFailed`."""
    only, skip = _pattern("PTXMOTION_ONLY"), _pattern("PTXMOTION_SKIP")
    if only is None and skip is None:
        return None

    def is_selected(name: str) -> bool:
        return (only is None or _matches(only, name)) and (skip is None or not _matches(skip, name))

    return is_selected


def _matches(pattern: re.Pattern[str], name: str) -> bool:
    from ..toolchain.demangle import demangled

    return pattern.search(name) is not None or pattern.search(demangled(name)) is not None


def _pattern(variable: str) -> re.Pattern[str] | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise StepFailed(f"{variable}: '{text}' is not a regular expression: {error}") from None


def _encoded(entry: dict[str, Any]) -> bytes:
    """An entry of the cache: its fields as JSON, in the first line, and its text."""
    import json

    text = entry["text"]
    fields = {name: value for name, value in entry.items() if name != "text"}
    fields["contracts"] = [each.hex() for each in entry["contracts"]]
    head = json.dumps({**fields, "has_text": text is not None}).encode()
    return head + b"\n" + (text or "").encode("utf-8", "surrogateescape")


def _decoded(body: bytes | None) -> dict[str, Any] | None:
    """The fields of an entry; `None` for one that another program has written."""
    if body is None:
        return None
    import json

    head, _, text = body.partition(b"\n")
    try:
        fields = json.loads(head)
        names = ("kernels", "changed", "rewrites", "remarks", "warnings", "versioned")
        content = text.decode("utf-8", "surrogateescape") if fields["has_text"] else None
        contracts = [bytes.fromhex(each) for each in fields["contracts"]]
        return {**{name: fields[name] for name in names}, "contracts": contracts, "text": content}
    except (ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def time_limit() -> Generator[None]:
    """Raise `StepFailed` in the `with` after the seconds in PTXMOTION_SECONDS, or at once if that is no number."""
    import signal

    text = os.environ.get("PTXMOTION_SECONDS") or "600"
    try:
        seconds = float(text)
    except ValueError:
        raise StepFailed(f"PTXMOTION_SECONDS: '{text}' is not a number") from None

    def stop(*_: object) -> None:
        raise StepFailed(f"it took longer than {seconds:g} s (PTXMOTION_SECONDS)")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
