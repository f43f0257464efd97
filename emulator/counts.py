"""What a launch executed: the figures that need no GPU (docs/emulator.md).

Guarantees: counts are exact. They do not depend on the schedule, unless the control flow of the program does.
A warp instruction is counted each time a warp fragment issues it, also if it is guarded. Thread instructions are the
sum of the threads of these fragments. Requests are accesses of warps to global memory with at least one active lane.
Sectors are the distinct 32-byte pieces that each request touches. Bank conflicts are the passes beyond the first that
an access to shared memory needs with 32 banks of 4 bytes; accesses of 8 bytes are executed by half warps, those of 16
bytes by quarter warps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .profile import Executions, profile_document

if TYPE_CHECKING:
    from ..ptx import Kernel
    from .image import Code

__all__ = ["Branch", "Counts"]


@dataclass(slots=True)
class Branch:
    """A branch: its place, how often a warp fragment executed it, and how often its threads took both sides."""

    kernel: str
    line: int
    text: str
    executed: int = 0
    diverged: int = 0


@dataclass(slots=True)
class Counts:
    """The counts of one launch, or of several added up."""

    warp_instructions: int = 0
    thread_instructions: int = 0
    by_class: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  #: class → [warp, thread]
    by_block: dict[tuple[str, int], list[int]] = field(default_factory=dict[tuple[str, int], list[int]])
    branches: dict[tuple[str, int], Branch] = field(default_factory=dict[tuple[str, int], Branch])
    #: By kernel: how often each block and branch was executed.
    executions: dict[Kernel, Executions] = field(default_factory=dict["Kernel", Executions])
    global_load_requests: int = 0
    global_store_requests: int = 0
    global_load_sectors: int = 0
    global_store_sectors: int = 0
    shared_requests: int = 0
    shared_bank_conflicts: int = 0
    local_requests: int = 0
    barriers: int = 0  #: arrivals of warps at barriers
    atomics: int = 0  #: atomic operations, counted by thread
    launches: int = 0

    @property
    def active_lane_ratio(self) -> float:
        """Threads per issued warp instruction, as a share of 32."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0

    @property
    def branches_executed(self) -> int:
        """How often warps executed a conditional branch."""
        return sum(branch.executed for branch in self.branches.values())

    @property
    def branches_diverged(self) -> int:
        """How often a warp diverged at a conditional branch."""
        return sum(branch.diverged for branch in self.branches.values())

    def issue(self, code: Code, warps: int, threads: int) -> None:
        """Count the instructions of a segment: ``warps`` fragments ran it, with ``threads`` threads in all."""
        kernel = code.segment.kernel.name
        block = self.by_block.setdefault((kernel, code.segment.block), [0, 0])
        number = len(code.instructions)
        self.warp_instructions += number * warps
        self.thread_instructions += number * threads
        block[0] += number * warps
        block[1] += number * threads
        for instr in code.instructions:
            entry = self.by_class.setdefault(class_of(instr.form.op.semantics, instr.form.text), [0, 0])
            entry[0] += warps
            entry[1] += threads

    def enter(self, code: Code, warps: int, threads: int) -> None:
        """Count the fragments and threads that entered the block whose first segment is ``code``."""
        _add_pair(self._of(code).blocks.setdefault(code.segment.block, [0, 0]), warps, threads)

    def branch(self, code: Code, line: int, executed: int, diverged: int) -> None:
        """Count executions of the branch, or of the guard of another instruction, at the end of a segment."""
        end = code.segment.end
        assert end is not None
        if end.is_terminator:
            _add_pair(self._of(code).branches.setdefault(end, [0, 0]), executed, diverged)
        if code.segment.kind == "guard":
            return
        key = (code.segment.kernel.name, line)
        counted = self.branches.setdefault(key, Branch(code.segment.kernel.name, line, end.text))
        counted.executed += executed
        counted.diverged += diverged

    def _of(self, code: Code) -> Executions:
        return self.executions.setdefault(code.segment.kernel, Executions())

    def profile(self) -> dict[str, Any]:
        """The profile of these launches as data for JSON (docs/analyze.md)."""
        return profile_document(self.executions)

    def add(self, other: Counts) -> None:
        """Add the counts of another launch."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, (warps, threads) in other.by_class.items():
            _add_pair(self.by_class.setdefault(name, [0, 0]), warps, threads)
        for place, (warps, threads) in other.by_block.items():
            _add_pair(self.by_block.setdefault(place, [0, 0]), warps, threads)
        for kernel, executions in other.executions.items():
            self.executions.setdefault(kernel, Executions()).add(executions)
        for key, branch in other.branches.items():
            sum_of_branch = self.branches.setdefault(key, Branch(branch.kernel, branch.line, branch.text))
            sum_of_branch.executed += branch.executed
            sum_of_branch.diverged += branch.diverged

    def as_dict(self) -> dict[str, Any]:
        """The counts as data for JSON."""
        data: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        data["active_lane_ratio"] = self.active_lane_ratio
        data["branches_executed"] = self.branches_executed
        data["branches_diverged"] = self.branches_diverged
        data["by_class"] = {
            name: {"warp": warps, "thread": threads} for name, (warps, threads) in sorted(self.by_class.items())
        }
        data["by_block"] = [
            {"kernel": kernel, "block": block, "warp": warps, "thread": threads}
            for (kernel, block), (warps, threads) in sorted(self.by_block.items())
        ]
        data["branches"] = [
            {"kernel": b.kernel, "line": b.line, "text": b.text, "executed": b.executed, "diverged": b.diverged}
            for _, b in sorted(self.branches.items())
        ]
        return data


def _add_pair(target: list[int], warps: int, threads: int) -> None:
    target[0] += warps
    target[1] += threads


_NUMBERS = (
    "warp_instructions thread_instructions global_load_requests global_store_requests global_load_sectors "
    "global_store_sectors shared_requests shared_bank_conflicts local_requests barriers atomics launches"
).split()

_CLASSES = {
    "int": "integer",
    "float": "float",
    "double": "float",
    "half": "half",
    "mixed": "half",
    "compare": "compare",
    "bits": "logic",
    "move": "move",
    "convert": "convert",
    "address": "address",
    "memory": "memory",
    "control": "control",
    "sync": "sync",
}


def class_of(semantics: str, mnemonic: str) -> str:
    """The class of an instruction in the counts: memory by its state space, others by the family of their semantics."""
    family = semantics.partition("_")[0]
    if family == "memory":
        words = mnemonic.split(".")
        space = next((w.partition("::")[0] for w in words[1:] if w.partition("::")[0] in _SPACES), "generic")
        return f"{words[0]}.{space}"
    if family == "float" and mnemonic.endswith("f64"):
        return "double"
    return _CLASSES.get(family, family)


_SPACES = frozenset(["global", "shared", "local", "const", "param"])
