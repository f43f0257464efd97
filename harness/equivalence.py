"""Do two PTX files compute the same? Both run on the emulator with the same inputs.

Computes, for every entry of the first file and every input: whether the second file has it, with the same parameters;
whether all arrays and module variables end with the same bits; whether the second run has a finding that the first has
not. Inputs are generated from the kernel (`generated_inputs`) or come from a Python file.
Guarantees: bit for bit, NaN payloads included. Where the first run is ended by a fault or the budget, that input says
nothing (`INCONCLUSIVE`), unless the second ends otherwise. A kernel that races is inconclusive where results differ.
Refuses: kernels that the emulator does not execute; they are named (`UNSUPPORTED`).

A Python file of inputs defines ``launches(seed)``, which gives dictionaries with the keys ``kernel``, ``grid``,
``block``, ``args`` and perhaps ``shared``.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..ptx import Module
from .emulator import Emulator, EmulatorFault, EmulatorModule, Finding, LaunchError, UnsupportedInstruction
from .generated_inputs import generate

__all__ = ["DIFFERENT", "INCONCLUSIVE", "SAME", "UNSUPPORTED", "Comparison", "Launch", "compare", "launches_from_file"]

SAME, DIFFERENT, INCONCLUSIVE, UNSUPPORTED = "same", "different", "inconclusive", "unsupported"

#: Instructions that one run may issue: an input that was made up may well loop for ever.
BUDGET = 200_000


@dataclass(slots=True)
class Launch:
    """One launch; ``arguments`` makes fresh ones."""

    kernel: str
    grid: Any
    block: Any
    shared: int
    arguments: Callable[[], Sequence[Any]]


@dataclass(slots=True)
class Comparison:
    """The outcome for one kernel and input. ``details`` are lines that say what differs, or why nothing is known."""

    kernel: str
    seed: int
    outcome: str
    details: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Run:
    args: list[Any]
    variables: dict[str, bytes]
    visible: set[str]
    findings: list[Finding]
    output: list[str]
    fault: Finding | None


def compare(
    before: Module,
    after: Module,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    kernels: Sequence[str] | None = None,
    launches: Callable[[int], Sequence[Launch]] | None = None,
    budget: int = BUDGET,
    schedule: str = "order",
) -> Iterator[Comparison]:
    """Compare every entry of ``before`` (or those named) with that of ``after``; one result for each input."""
    wanted = [entry for entry in before.entries if kernels is None or entry.name in kernels]
    for entry in wanted:
        other = next((kernel for kernel in after.entries if kernel.name == entry.name), None)
        if other is None:
            yield Comparison(entry.name, 0, DIFFERENT, ["the kernel is missing"])
            continue
        mine = [param.text for param in entry.params or ()]
        if len(mine) != len(other.params or ()) or [p.bytes for p in entry.params or ()] != [
            p.bytes for p in other.params or ()
        ]:
            yield Comparison(entry.name, 0, DIFFERENT, ["the parameters differ"])
            continue
        for seed in seeds:
            if launches is not None:
                chosen = [launch for launch in launches(seed) if launch.kernel == entry.name]
            else:
                made = generate(entry, seed, before.address_size or 64)
                chosen = [Launch(entry.name, made.grid, made.block, made.shared, made.arguments)]
            if not chosen:
                yield Comparison(entry.name, seed, INCONCLUSIVE, ["there is no input for it"])
            for launch in chosen:
                yield _compare(before, after, launch, seed, budget, schedule)


def _compare(before: Module, after: Module, launch: Launch, seed: int, budget: int, schedule: str) -> Comparison:
    try:
        first = _run(before, launch, seed, budget, schedule)
        second = _run(after, launch, seed, budget, schedule)
    except UnsupportedInstruction as error:
        return Comparison(launch.kernel, seed, UNSUPPORTED, [str(error)])
    except LaunchError as error:
        return Comparison(launch.kernel, seed, INCONCLUSIVE, [str(error)])
    if first.fault is not None or second.fault is not None:
        if first.fault is not None and second.fault is not None and first.fault.kind == second.fault.kind:
            return Comparison(launch.kernel, seed, INCONCLUSIVE, [f"both end with: {first.fault}"])
        if first.fault is not None and first.fault.kind == "endless":
            return Comparison(launch.kernel, seed, INCONCLUSIVE, [f"the first does not end: {first.fault}"])
        which, fault = ("second", second.fault) if first.fault is None else ("first", first.fault)
        return Comparison(launch.kernel, seed, DIFFERENT, [f"only the {which} ends with: {fault}"])
    details = _differences(first, second)
    news = _new_findings(first, second)
    if news:
        return Comparison(launch.kernel, seed, DIFFERENT, [*details, *(f"new: {finding}" for finding in news)])
    if details:
        racing = next((finding for finding in first.findings if finding.kind == "race"), None)
        if racing is not None:
            return Comparison(launch.kernel, seed, INCONCLUSIVE, [*details, f"but the first races: {racing}"])
        return Comparison(launch.kernel, seed, DIFFERENT, details)
    return Comparison(launch.kernel, seed, SAME)


def _run(module: Module, launch: Launch, seed: int, budget: int, schedule: str) -> _Run:
    loaded = Emulator(budget=budget).load(module)
    args = list(launch.arguments())
    fault: Finding | None = None
    findings: list[Finding] = []
    output = ""
    try:
        result = loaded.launch(
            launch.kernel,
            launch.grid,
            launch.block,
            args,
            launch.shared,
            counts=False,
            keep_going=True,
            schedule=schedule,
            seed=seed,
        )
        findings, output = result.findings, result.output
    except EmulatorFault as error:
        fault, findings = error.finding, error.findings
    visible = {variable.name for variable in module.variables if ".visible" in variable.linkage}
    return _Run(args, _variables(loaded), visible, findings, sorted(output.splitlines()), fault)


def _variables(loaded: EmulatorModule) -> dict[str, bytes]:
    return {
        name: found.bytes[: found.nbytes].tobytes()
        for name, found in loaded.loaded.variables.items()
        if not found.is_read_only
    }


def _differences(first: _Run, second: _Run) -> list[str]:
    found: list[str] = []
    for number, (mine, other) in enumerate(zip(first.args, second.args, strict=True)):
        if isinstance(mine, np.ndarray):
            at = np.flatnonzero(mine.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
            if at.size:
                where = int(at[0]) // mine.itemsize
                values = f"{mine.reshape(-1)[where]!r} and {other.reshape(-1)[where]!r}"
                found.append(f"argument {number} differs in {at.size} bytes, first at element {where}: {values}")
    for name, data in first.variables.items():
        if second.variables.get(name, data) != data:
            found.append(f"variable {name} differs")
        elif name in first.visible and name not in second.variables:
            found.append(f"variable {name} is missing")
    if first.output != second.output:
        found.append("what is printed differs")
    return found


def _new_findings(first: _Run, second: _Run) -> list[Finding]:
    """Findings of the second run of a kind, at a kind of instruction, that the first does not have."""
    known = {(finding.kind, finding.opcode.partition(".")[0]) for finding in first.findings}
    return [f for f in second.findings if (f.kind, f.opcode.partition(".")[0]) not in known]


def launches_from_file(path: str) -> Callable[[int], Sequence[Launch]]:
    """The inputs that a Python file defines. Raises `LaunchError` where it does not, `OSError`."""
    try:
        names = runpy.run_path(path)
    except OSError:
        raise
    except Exception as error:
        raise _failed(path, error) from error
    found: Any = names.get("launches")
    if not callable(found):
        raise LaunchError(f"{path} defines no function 'launches'")
    make = cast("Callable[[int], Any]", found)

    def launches(seed: int) -> Sequence[Launch]:
        try:
            made: list[Any] = list(make(seed))
        except Exception as error:
            raise _failed(path, error) from error
        return [_launch(path, item) for item in made]

    return launches


def _failed(path: str, error: Exception) -> LaunchError:
    return LaunchError(f"{path} fails: {type(error).__name__}: {error}")


def _launch(path: str, item: Any) -> Launch:
    known = {"kernel", "grid", "block", "args", "shared"}
    if not isinstance(item, Mapping):
        raise LaunchError(f"{path}: launches gives a {type(item).__name__}, not a dictionary")
    keys = {str(key) for key in cast("Mapping[Any, Any]", item)}
    for what, names in (("lacks", known - {"shared"} - keys), ("has an unknown key", keys - known)):
        if names:
            raise LaunchError(f"{path}: a launch {what} '{min(names)}'")
    found = cast("Mapping[str, Any]", item)
    args = list(found["args"])
    return Launch(
        found["kernel"],
        found["grid"],
        found["block"],
        int(found.get("shared", 0)),
        lambda: [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args],
    )
