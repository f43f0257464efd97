"""What a run may be accused of: findings, and the errors that end a launch or refuse it.

Guarantees: a `Finding` names its kind, opcode, line of the PTX, block and thread; equal findings (same kind, same
    instruction) are kept once, with the number of times they occurred and the first place.
Kinds: `out-of-bounds`, `misaligned`, `read-only`, `uninitialised-register`, `uninitialised-memory`, `partial-barrier`,
    `divergent-barrier`, `race`, `same-value-race` (a note: all writers store the same value), `membermask`, `deadlock`,
    `endless`, `assert`, `trap`, `call`, `barrier-count`, `mbarrier` (an object that is not initialised, a count that it
    does not take).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ptx.instructions import Instr

__all__ = ["EmulatorError", "EmulatorFault", "Finding", "Findings", "LaunchError", "Place", "UnsupportedInstruction"]

Triple = tuple[int, int, int]


class EmulatorError(Exception):
    """Base of what the emulator raises."""


class LaunchError(EmulatorError):
    """A launch that cannot begin: wrong arguments, an unknown kernel, a grid or block that no device takes."""


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
    """One accusation. ``line`` is the 1-based line of the PTX text; ``source`` is ``file:line`` of its ``.loc``."""

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

    ``findings`` holds what was found up to there, ``output`` what was printed.
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
    """The findings of one launch, by kind and instruction.

    ``skipped`` has the addresses of the accesses that were left out, by kind of finding, state space, and what the
    access does.
    """

    keep_going: bool = False
    limit: int = 1000
    skipped: dict[tuple[str, str, str], set[int]] = field(default_factory=dict[tuple[str, str, str], set[int]])
    _known: dict[tuple[str, Instr | None, str], Finding] = field(
        default_factory=dict[tuple[str, Instr | None, str], Finding]
    )

    def add(self, finding: Finding, instr: Instr | None, count: int = 1, detail: str = "") -> None:
        """File ``finding``; raises `EmulatorFault` where its kind ends the launch."""
        known = self._known.get((finding.kind, instr, detail))
        if known is not None:
            known.count += count
        elif len(self._known) < self.limit:
            finding.count = count
            self._known[finding.kind, instr, detail] = finding
        if finding.kind in FATAL or (finding.kind in FAULTS and not self.keep_going):
            raise EmulatorFault(finding, self.all)

    def skip(self, kind: str, space: str, verb: str, addresses: Iterable[int]) -> None:
        """Note accesses that are left out."""
        self.skipped.setdefault((kind, space, verb), set()).update(addresses)

    @property
    def all(self) -> list[Finding]:
        return list(self._known.values())
