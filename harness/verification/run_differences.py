"""Compares two runs of a kernel on equal inputs: same, different, or inconclusive.

Computes: the bytes in which arrays, sparse memory, module variables and the output differ; findings, skipped accesses
and accessed pages that only the second run has. Guarantees: *same* only if the first run changed something that is
compared and skipped no access; *different* only if the first run ended without a fault, or the faults differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...emulator import Finding
from ...emulator.sparse import PAGE
from ...ptx import Module
from .input_runs import EmulatedRun

__all__ = ["DIFFERENT", "INCONCLUSIVE", "SAME", "judge"]

SAME, DIFFERENT, INCONCLUSIVE = "same", "different", "inconclusive"


def judge(
    first: EmulatedRun, second: EmulatedRun, module: Module, describe: Callable[[int], str]
) -> tuple[str, list[str], int]:
    """The outcome, lines that explain it, and the number of compared bytes that the first run changed."""
    if first.fault is not None or second.fault is not None:
        return (*_judge_faults(first, second), 0)
    changed = _changed_bytes(first, second)
    details = _differences(first, second, module) + _memory_differences(first, second, describe)
    added = [f"new: {finding}" for finding in _new_findings(first, second)]
    added += [] if added else _new_accesses(first, second, describe)
    racing = next((finding for finding in first.findings if finding.kind == "race"), None)
    if first.skipped:
        what = ", ".join(sorted({f"{kind} in {space} memory" for kind, space, _ in first.skipped}))
        return INCONCLUSIVE, [*details, *added, f"the first run skips accesses ({what})"], changed
    if added:
        return DIFFERENT, [*details, *added], changed
    if details and racing is not None:
        return INCONCLUSIVE, [*details, f"but the first run has a race: {racing}"], changed
    if details:
        return DIFFERENT, details, changed
    if not changed:
        return INCONCLUSIVE, ["the first run changes nothing that is compared"], changed
    return SAME, [], changed


def _judge_faults(first: EmulatedRun, second: EmulatedRun) -> tuple[str, list[str]]:
    if first.fault is not None and second.fault is not None and first.fault.kind == second.fault.kind:
        return INCONCLUSIVE, [f"both end with: {first.fault}"]
    which, fault = ("second", second.fault) if first.fault is None else ("first", first.fault)
    return DIFFERENT, [f"only the {which} ends with: {fault}"]


def _changed_bytes(run: EmulatedRun, other: EmulatedRun) -> int:
    """How many bytes the run changed of memory, of the output, and of variables that ``other`` also has."""
    total = sum(len(line) + 1 for line in run.output)
    for current, original in zip(run.arguments, run.original, strict=True):
        if isinstance(current, np.ndarray):
            total += int(np.count_nonzero(_raw(current) != _raw(original)))
    for name, data in run.variables.items():
        if name not in other.variables:
            continue
        old = np.frombuffer(run.first[name], np.uint8)
        total += int(np.count_nonzero(np.frombuffer(data, np.uint8) != old))
    if run.memory is not None:
        for page in run.memory.slots:
            total += int(np.count_nonzero(run.memory.page(page) != run.memory.contents(page)))
    return total


def _raw(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _differences(first: EmulatedRun, second: EmulatedRun, module: Module) -> list[str]:
    differences: list[str] = []
    for number, (one, other) in enumerate(zip(first.arguments, second.arguments, strict=True)):
        if isinstance(one, np.ndarray):
            at = np.flatnonzero(_raw(one) != _raw(other))
            if at.size:
                where = int(at[0]) // one.itemsize
                values = f"{one.reshape(-1)[where]!r} and {other.reshape(-1)[where]!r}"
                differences.append(f"argument {number} differs in {at.size} bytes, first at element {where}: {values}")
    visible = {variable.name for variable in module.variables if ".visible" in variable.linkage}
    for name, data in first.variables.items():
        if second.variables.get(name, data) != data:
            differences.append(f"variable {name} differs")
        elif name in visible and name not in second.variables:
            differences.append(f"variable {name} is missing")
    if first.output != second.output:
        differences.append("the printed output differs")
    return differences


def _memory_differences(first: EmulatedRun, second: EmulatedRun, describe: Callable[[int], str]) -> list[str]:
    """One line for the bytes of sparse memory that differ."""
    if first.memory is None or second.memory is None:
        return []
    count, place = 0, 0
    for page in sorted({*first.memory.slots, *second.memory.slots}):
        one, other = first.memory.page(page), second.memory.page(page)
        at = np.flatnonzero(one != other)
        if at.size and not count:
            place = page * PAGE + int(at[0])
        count += int(at.size)
    if not count:
        return []
    page, at = divmod(place // 4 * 4, PAGE)
    values = [side.page(page)[at : at + 4].tobytes()[::-1].hex() for side in (first.memory, second.memory)]
    return [f"memory differs in {count} bytes, first {describe(place)}: 0x{values[0]} and 0x{values[1]}"]


def _new_findings(first: EmulatedRun, second: EmulatedRun) -> list[Finding]:
    """Findings of the second run whose kind and opcode do not occur in the first run."""
    in_first = {(finding.kind, finding.opcode.partition(".")[0]) for finding in first.findings}
    return [f for f in second.findings if (f.kind, f.opcode.partition(".")[0]) not in in_first]


def _new_accesses(first: EmulatedRun, second: EmulatedRun, describe: Callable[[int], str]) -> list[str]:
    """The accesses that only the second run skips, and the pages of memory that only it accesses."""
    lines: list[str] = []
    for (kind, space, verb), addresses in second.skipped.items():
        more = addresses - first.skipped.get((kind, space, verb), set())
        if more:
            lines.append(f"only the second {verb} {space} memory at {min(more):#x}, which is {kind}")
    pages = _pages(second) - _pages(first)
    if pages:
        lines.append(f"only the second accesses the page of memory at {describe(min(pages) * PAGE)}")
    return lines


def _pages(run: EmulatedRun) -> set[int]:
    """The numbers of the pages of sparse memory that the run accessed."""
    pages: set[int] = set()
    return pages.union(*run.touched.values())
