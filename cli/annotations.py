"""`--annotations`: changes between two results at the source lines of their kernels.

The place of a kernel is the first `.loc` in the PTX that was measured, which the cache of this machine has. A count of
the whole program is at the place of its first kernel. Without a place, or for a file outside of the current folder, an
annotation has none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..harness.compare import Change
    from ..harness.results import BenchmarkResult, ResultFile

__all__ = ["kernel_places", "print_annotations"]

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")


def print_annotations(form: str, changes: Sequence[Change], after: ResultFile) -> None:
    """Print the changes in a form of CI: `github` or `gitlab`."""
    from ..harness.change_report import Annotation, github_commands, gitlab_report
    from ..harness.compare import shared_changes

    places: dict[str, dict[str, tuple[str, int]]] = {}
    found: list[Annotation] = []
    for subject, change in shared_changes(changes, after):
        benchmark = next((each for each in after.benchmarks if _is_about(change, each)), None)
        file, line = "", 0
        if benchmark is not None:
            if benchmark.fullname not in places:
                places[benchmark.fullname] = _places_of(benchmark)
            known = places[benchmark.fullname]
            parts = change.subject.split(":")
            kernel = parts[-2] if len(parts) > 2 else ""
            file, line = known.get(kernel) or next(iter(known.values()), ("", 0))
        found.append(Annotation(subject, change, file, line))
    sys.stdout.write(github_commands(found) if form == "github" else gitlab_report(found))


def _is_about(change: Change, benchmark: BenchmarkResult) -> bool:
    return change.subject == benchmark.fullname or change.subject.startswith(f"{benchmark.fullname}:")


def _places_of(benchmark: BenchmarkResult) -> dict[str, tuple[str, int]]:
    """The places of the kernels of a program, in the order of its modules."""
    from ..programs.arm_texts import recall_arm

    base = next((each for each in benchmark.arms if each.role == "baseline"), None)
    modules = recall_arm(base.ptx_sha256) if base is not None else None
    found: dict[str, tuple[str, int]] = {}
    for text in (modules or {}).values():
        for kernel, (path, line) in kernel_places(text).items():
            relative = os.path.relpath(path)
            if not relative.startswith(os.pardir) and os.path.exists(relative):
                found.setdefault(kernel, (relative, line))
    return found


def kernel_places(text: str) -> dict[str, tuple[str, int]]:
    """The file and the line of the first `.loc` of each entry of a module.

    >>> kernel_places('.entry k() {\\n.loc 1 7 0\\nret;\\n}\\n.file 1 "a.cu"\\n')
    {'k': ('a.cu', 7)}
    """
    files = dict(_FILE.findall(text))
    found: dict[str, tuple[str, int]] = {}
    entries = list(_ENTRY.finditer(text))
    ends = [*(each.start() for each in entries[1:]), len(text)]
    for entry, end in zip(entries, ends, strict=True):
        for loc in _LOC.finditer(text, entry.end(), end):
            if loc[1] in files and int(loc[2]):
                found[entry[1]] = files[loc[1]], int(loc[2])
                break
    return found
