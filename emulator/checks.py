"""Findings, and the errors that end or refuse a launch.

Guarantees: a `Finding` has its kind, the opcode, the line of the PTX, the block and the thread. Equal findings (same
    kind, same instruction) are stored once, with the number of times they occurred and the first place.
Kinds: `out-of-bounds`, `misaligned`, `read-only`, `uninitialised-register`, `uninitialised-memory`, `partial-barrier`,
    `divergent-barrier`, `race`, `same-value-race` (a note: all writers store the same value), `membermask`,
    `absent-lane` (a note: `shfl` reads a lane that does not take part), `deadlock`, `endless`, `assert`, `trap`,
    `call`, `barrier-count`, `mbarrier` (an object that is not initialised, or a count that it cannot have).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ptx.instructions import Instr

__all__ = ["EmulatorError", "EmulatorFault", "Finding", "Findings", "LaunchError", "Place", "UnsupportedInstruction"]

Triple = tuple[int, int, int]


class EmulatorError(Exception):
    """The base class of the errors that the emulator raises."""


class LaunchError(EmulatorError):
    """A launch that cannot begin: wrong arguments, an unknown kernel, a grid or block that no device accepts."""


class UnsupportedInstruction(EmulatorError):
    """A kernel has an instruction that the emulator does not execute. Raised before anything runs."""

    def __init__(self, kernel: str, items: list[tuple[str, int]]) -> None:
        self.kernel = kernel
        self.items = items = list(dict.fromkeys(items))
        first = "; ".join(f"line {line}: {text}" for text, line in items[:5])
        more = f" and {len(items) - 5} more" if len(items) > 5 else ""
        super().__init__(f"'{kernel}' has instructions that the emulator does not execute: {first}{more}")


@dataclass(frozen=True, slots=True)
class Place:
    """A thread of a launch."""

    block: Triple
    thread: Triple

    def __str__(self) -> str:
        return f"block {triple_text(self.block)} thread {triple_text(self.thread)}"


def triple_text(value: Triple) -> str:
    """``(x,y,z)``."""
    return f"({value[0]},{value[1]},{value[2]})"


@dataclass(slots=True)
class Finding:
    """An error or note about an instruction.

    ``line`` is the 1-based line of the PTX text; ``source`` is ``file:line`` of its ``.loc``.
    """

    kind: str
    message: str
    kernel: str
    opcode: str
    line: int
    place: Place | None
    source: str = ""
    other: Place | None = None  #: the second thread of a race
    address: int | None = None
    count: int = 1
    severity: str = "error"  #: or ``note``

    def __str__(self) -> str:
        where = f" by {self.place}" if self.place is not None else ""
        source = f" ({self.source})" if self.source else ""
        times = f" [{self.count} times]" if self.count > 1 else ""
        return f"{self.kernel}: line {self.line}{source}: {self.opcode}: {self.kind}: {self.message}{where}{times}"


class EmulatorFault(EmulatorError):
    """A launch ended by a fault, as a GPU would end it.

    ``findings`` are those up to the fault, ``output`` is what was printed.
    """

    def __init__(self, finding: Finding, findings: list[Finding]) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.findings = findings
        self.output = ""


#: Kinds that end a launch unless ``keep_going``.
FAULTS = frozenset(["out-of-bounds", "misaligned", "read-only"])
#: Kinds that end a launch always.
FATAL = frozenset(["deadlock", "endless", "assert", "trap", "call", "barrier-count"])


@dataclass(slots=True)
class Findings:
    """The findings of one launch.

    ``skipped`` has the addresses of the accesses that were skipped, by kind of finding, state space, and what the
    access does. ``_recorded`` has the findings by kind, instruction and detail.
    """

    keep_going: bool = False
    limit: int = 1000
    skipped: dict[tuple[str, str, str], set[int]] = field(default_factory=dict[tuple[str, str, str], set[int]])
    _recorded: dict[tuple[str, Instr | None, str], Finding] = field(
        default_factory=dict[tuple[str, Instr | None, str], Finding]
    )

    def add(self, finding: Finding, instr: Instr | None, count: int = 1, detail: str = "") -> None:
        """Record ``finding``. Raises `EmulatorFault` if its kind ends the launch."""
        recorded = self._recorded.get((finding.kind, instr, detail))
        if recorded is not None:
            recorded.count += count
        elif len(self._recorded) < self.limit:
            finding.count = count
            self._recorded[finding.kind, instr, detail] = finding
        if finding.kind in FATAL or (finding.kind in FAULTS and not self.keep_going):
            raise EmulatorFault(finding, self.all)

    def skip(self, kind: str, space: str, verb: str, addresses: Iterable[int]) -> None:
        """Record the addresses of accesses that are skipped."""
        self.skipped.setdefault((kind, space, verb), set()).update(addresses)

    @property
    def all(self) -> list[Finding]:
        """The findings, in the order in which they were found."""
        return list(self._recorded.values())
