"""The program that runs after the step cicc of a build with `ptxmotion nvcc`. Its arguments are those of cicc.

Guarantees: exit status 0 and at most one warning, whatever happens. An interrupt ends it like every step of a build.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ..compiler.build_step import BuildStep
    from ..driver import Policy

__all__ = ["main", "parse_flags", "run_step"]

_INTERRUPTED = 130

#: How many new objects start the garbage collector. The process ends with its file. Finding the versions of two files
#: of 18 and 67 kB took 11 % more CPU time with 50,000, and 43 instead of 50 MB of memory (busy machine, Python 3.11).
_OBJECTS = 1_000_000

#: The options of `opt` that PTXMOTION_FLAGS may contain, by the names of their values. The others name files, or set
#: what the build decides.
_ALLOWED = frozenset(["level", "passes", "gate", "gate_timeout", "alias", "bisect_limit", "verify_each"])


def main(arguments: Sequence[str]) -> int:
    """Optimize the output of cicc; the exit status."""
    from ..compiler.build_step import step_of_cicc
    from ..compiler.replacing import replace_file

    try:
        found = step_of_cicc(arguments, _runs())
    except Exception as error:
        _warn(f"compiled without the optimizer: {' '.join(str(error).split()) or type(error).__name__}")
        return 0
    if found is None:
        return 0
    step, path = found
    return run_step(step, path, lambda text: replace_file(path, text.encode("utf-8", "surrogateescape")))


def run_step(step: BuildStep, path: str, use: Callable[[str], None]) -> int:
    """Optimize the PTX file ``path`` and call ``use`` with the text if it changed. The exit status is 0 unless there
    was an interrupt. Whatever fails is a warning."""
    import signal

    from ..compiler.build_step import time_limit
    from . import collect_garbage_rarely

    collect_garbage_rarely(_OBJECTS)
    try:
        signal.signal(signal.SIGTERM, _end)  # so that ptxas and temporary files do not stay
        with time_limit():
            with open(path, "rb") as file:
                given = file.read()
            if step.host_files is not None:
                step.host_files.include()
            entry = step.optimized(given, parse_flags)
            text, contracts = entry.pop("text"), entry.pop("contracts")
            if step.host_files is not None and contracts:
                step.host_files.write(contracts)
            if text is not None:
                use(text)
        _report(step, {**entry, "ptx": path})
    except (KeyboardInterrupt, SystemExit):
        return _INTERRUPTED
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        _warn(f"{step.source}: compiled without the optimizer: {problem}")
        nothing = {"kernels": [], "changed": [], "rewrites": 0, "remarks": [], "versioned": [], "warnings": [problem]}
        targets = [target for target, _ in step.runs]
        _log({"source": step.source, "targets": targets, "seconds": 0, "cached": False, **nothing, "ptx": path})
    return 0


def _report(step: BuildStep, entry: dict[str, Any]) -> None:
    for warning in entry["warnings"]:
        _warn(f"{step.source}: {warning}")
    if os.environ.get("PTXMOTION_VERBOSE"):
        _print(_summary(entry))
    _log(entry)


def _end(*_: object) -> NoReturn:
    sys.exit(_INTERRUPTED)


def _runs() -> list[tuple[str, str, list[str]]]:
    """The runs of ptxas, as `launch` has found them."""
    import json

    from ..compiler.launch import ASSEMBLIES

    runs: list[tuple[str, str, list[str]]] = json.loads(os.environ.get(ASSEMBLIES) or "[]")
    return runs


def parse_flags(text: str) -> tuple[str, Policy]:
    """The passes and the policy that the options in ``text`` select. Raises `StepFailed`.

    >>> parse_flags("-O1 --bisect-limit=3")[0]
    'O1'
    """
    import argparse
    import shlex

    from ..compiler.build_step import StepFailed
    from ..driver import GATED_LEVELS, Policy
    from . import opt

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise StepFailed(f"PTXMOTION_FLAGS: {message}")

    parser = Parser(add_help=False, allow_abbrev=False)
    opt.add_arguments(parser)
    unset = vars(parser.parse_args([]))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise StepFailed(f"PTXMOTION_FLAGS: {error}") from None
    given = parser.parse_args(words)
    for name, value in vars(given).items():
        if value != unset[name] and name not in _ALLOWED:
            option = "a file" if name == "files" else "--" + name.replace("_", "-")
            raise StepFailed(f"PTXMOTION_FLAGS: {option} is not possible in a build")
    passes = given.passes if given.passes is not None else f"O{given.level or 2}"
    policy = Policy(
        gate=given.gate or ("auto" if passes in GATED_LEVELS else "off"),
        gate_timeout=given.gate_timeout,
        promise=given.alias,
        limit=given.bisect_limit,
        verify_each=bool(given.verify_each),
    )
    return passes, policy


def _summary(entry: dict[str, Any]) -> str:
    """What changed, for the user."""
    from ..toolchain.demangle import demangled

    targets = ", ".join(entry["targets"])
    cached = ", from the cache" if entry["cached"] else ""
    number = f"{len(entry['changed'])} of {len(entry['kernels'])} kernels changed"
    if entry["versioned"]:
        number += f", {len(entry['versioned'])} with versions"
    lines = [f"ptxmotion: {entry['source']} ({targets}): {number} in {entry['seconds']:.2f} s{cached}"]
    for kernel in entry["changed"]:
        texts: list[str] = [text for name, text in entry["remarks"] if name == kernel]
        gain = "".join([text.partition(f" gate: {kernel}: ")[2] for text in texts][:1])
        lines.append(f"  {demangled(kernel)}{': ' if gain else ''}{gain}")
    return "\n".join(lines)


def _log(entry: dict[str, Any]) -> None:
    """Append an entry to the log, if there is one."""
    if log := os.environ.get("PTXMOTION_LOG"):
        try:
            _append(log, entry)
        except OSError as error:
            _warn(f"PTXMOTION_LOG: {log}: {error.strerror}")


def _append(log: str, entry: dict[str, Any]) -> None:
    """Append a line to the log. Parallel steps may write to it, so the line is written by one call."""
    import json

    line = json.dumps(entry) + "\n"
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def _warn(message: str) -> None:
    _print(f"ptxmotion: warning: {message}")


def _print(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        os.write(2, f"{message}\n".encode("utf-8", "surrogateescape"))
