"""How often each place of the code was executed: the profile that `analyze` and `opt` read.

Computes: for each kernel and function that ran, how often warps entered each block, and for each conditional branch
(also guarded `ret`, `exit` and `trap`) how often a warp executed it and how often its lanes took both sides. A warp
that has diverged counts once for each fragment.

Guarantees: counts are exact for the launches that were made. Profiles of several launches can be added. Places are
positions among the instructions of the kernel, without directives. They are valid only for code with the same digest
(`ptx/digest.py`). docs/analyze.md describes the document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ptx import Instr, Kernel
from ..ptx.digest import code_digest

if TYPE_CHECKING:
    from .image import Code

__all__ = ["FORMAT", "SCHEMA_VERSION", "Executions", "profile_document"]

FORMAT = "ptxmotion-profile"
SCHEMA_VERSION = 1


@dataclass(slots=True)
class Executions:
    """The counts of one kernel: by number of the block [warps, threads] that entered it; by branch [executed,
    diverged]."""

    launches: int = 0
    blocks: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    branches: dict[Instr, list[int]] = field(default_factory=dict[Instr, list[int]])

    def add(self, other: Executions) -> None:
        """Add the counts of other launches."""
        self.launches += other.launches
        for block, (warps, threads) in other.blocks.items():
            _add_pair(self.blocks.setdefault(block, [0, 0]), warps, threads)
        for branch, (executed, diverged) in other.branches.items():
            _add_pair(self.branches.setdefault(branch, [0, 0]), executed, diverged)


def _add_pair(target: list[int], first: int, second: int) -> None:
    target[0] += first
    target[1] += second


def starts(codes: Iterable[Code]) -> set[int]:
    """The indices of the segments with which blocks begin."""
    first: dict[tuple[Kernel, int], int] = {}
    for code in codes:
        first.setdefault((code.segment.kernel, code.segment.block), code.index)
    return set(first.values())


def profile_document(executed: dict[Kernel, Executions]) -> dict[str, Any]:
    """The profile as data for JSON. The counts of several loads of the same code are added."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for kernel, executions in executed.items():
        digest = code_digest(kernel)
        entry = _entry(kernel, digest, executions)
        sum_of_loads = entries.setdefault((kernel.name, digest), entry)
        if sum_of_loads is not entry:
            _add_entry(sum_of_loads, entry)
    return {"format": FORMAT, "schema_version": SCHEMA_VERSION, "kernels": [entries[key] for key in sorted(entries)]}


def _entry(kernel: Kernel, digest: str, executions: Executions) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    branches: list[dict[str, Any]] = []
    first = 0
    for number, block in enumerate(kernel.blocks):
        instrs = [instr for instr in block.instrs if not instr.is_directive]
        if not instrs:
            continue
        label = block.label.text if block.label is not None else None
        warps, threads = executions.blocks.get(number, (0, 0))
        blocks.append({"at": first, "label": label, "warps": warps, "threads": threads})
        for at, instr in enumerate(instrs, first):
            if instr in executions.branches:
                taken, diverged = executions.branches[instr]
                branches.append({"at": at, "text": instr.text, "executed": taken, "diverged": diverged})
        first += len(instrs)
    return {
        "name": kernel.name,
        "digest": digest,
        "launches": executions.launches,
        "blocks": blocks,
        "branches": branches,
    }


def _add_entry(known: dict[str, Any], entry: dict[str, Any]) -> None:
    known["launches"] += entry["launches"]
    for target, source in zip(known["blocks"], entry["blocks"], strict=True):
        target["warps"] += source["warps"]
        target["threads"] += source["threads"]
    by_place: dict[int, dict[str, int]] = {branch["at"]: branch for branch in known["branches"]}
    for branch in entry["branches"]:
        if branch["at"] in by_place:
            by_place[branch["at"]]["executed"] += branch["executed"]
            by_place[branch["at"]]["diverged"] += branch["diverged"]
        else:
            by_place[branch["at"]] = branch
    known["branches"] = [by_place[at] for at in sorted(by_place)]
