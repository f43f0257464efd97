"""Which instructions may change the bytes of a question, and which of them comes last before a position in a block.

Computes: `Kills`, the reason why one instruction may change the bytes, for this thread or by ordering it after another
thread. `BlockKills`, the same for the last such instruction in a range of a block. The last few changes of the range
are tested one by one. The others are grouped by opcode and objects, and one test decides for a group whether it can
concern the bytes at all. Where it can, the distance from the bytes decides for all changes with one base. So a query
takes time in proportion to the number of groups, and of the bases in the groups that can concern the bytes.

Requires: that the kernel does not change. Guarantees: `Kills.reason` gives a reason whenever the instruction may change
the bytes; `BlockKills.last_reason` gives the reason of the last instruction that has one.
Reference: thesis §4.3.2, rule (4).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ...analysis.memoized import memoized
from ...analysis.memory.alias import Memory, Reference
from ...ptx import Effect, Instr
from .questions import Question

__all__ = ["BlockKills", "Kills"]

#: The number of the last changes that are tested one by one. Most queries end there.
_NEAR = 8

#: The value number of an unknown address.
_UNKNOWN = -2


class Kills:
    """Tests single instructions of one kernel."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @memoized
    def reason(self, instr: Instr, question: Question) -> str:
        """Why ``instr`` may change the bytes of ``question``, which is named as at ``instr``; empty if it does not."""
        if not question.is_constant:
            return self.memory.kills(instr, question.reference)
        form = instr.form
        if not form.effects & Effect.GRID:
            return ""
        # Parameters and constants do not change during the kernel.
        if question.space in ("param", "const") and not form.is_opaque:
            return ""
        return "opaque" if form.is_opaque else form.op.base

    def reason_elsewhere(self, instr: Instr, written: Reference | None, question: Question) -> str:
        """As `reason`, for a question that is named as at some other point. ``written`` is what a plain store writes,
        named as at that point; `None` where that is unknown."""
        reason = self.reason(instr, self._at_unknown_address(question))
        if reason == "store" and written is not None and not self.memory.may_alias(written, question.reference):
            return ""
        return reason

    @memoized
    def _at_unknown_address(self, question: Question) -> Question:
        return question.at(_UNKNOWN, 0)


@dataclass(slots=True)
class _Base:
    """The changes of one group with one base and number of bytes. ``reference`` is that of the first change."""

    reference: Reference
    #: The index and the offset of each change; the indices are ascending.
    indices: list[int] = field(default_factory=list[int])
    offsets: list[int] = field(default_factory=list[int])
    #: Modulus → offset modulo that → the indices of the changes with such an offset, ascending.
    _by_residue: dict[int, dict[int, list[int]]] = field(default_factory=dict[int, dict[int, list[int]]])

    def last_overlapping(self, start: int, modulus: int, size: int, end: int) -> int:
        """The largest index below ``end`` of a change that shares a byte with ``size`` bytes; -1 if there is none.

        A change at offset ``start``, modulo ``modulus``, begins where these bytes begin.
        """
        residues = self._by_residue.get(modulus)
        if residues is None:
            residues = self._by_residue[modulus] = {}
            for index, offset in zip(self.indices, self.offsets, strict=True):
                residues.setdefault(offset % modulus, []).append(index)
        steps = range(1 - self.reference.bytes, size)
        return max(_last_below(residues.get((start + step) % modulus, ()), end) for step in steps)


@dataclass(slots=True)
class _Group:
    """Changes of one opcode that may touch the same objects. ``instr`` is the first of them."""

    instr: Instr
    reference: Reference | None
    #: The indices of all changes, ascending.
    indices: list[int] = field(default_factory=list[int])
    #: (base, bytes) → the changes whose address is known.
    bases: dict[tuple[int, int], _Base] = field(default_factory=dict[tuple[int, int], _Base])


class BlockKills:
    """The instructions of one block that may change memory: positions and instructions in the order of the text."""

    def __init__(self, changes: Sequence[tuple[int, Instr]], kills: Kills) -> None:
        self._positions = [position for position, _ in changes]
        self._instrs = [instr for _, instr in changes]
        self._kills = kills

    def last_reason(self, question: Question, after: int, end: int) -> str:
        """The reason of the last change after position ``after`` and before ``end`` that may change the bytes; empty
        where no change does."""
        first, last = bisect_right(self._positions, after), bisect_left(self._positions, end)
        near = max(first, last - _NEAR)
        for index in range(last - 1, near - 1, -1):
            reason = self._kills.reason(self._instrs[index], question)
            if reason:
                return reason
        if near == first:
            return ""
        index = max(self._last_of(group, question, near) for group in self._groups())
        return self._kills.reason(self._instrs[index], question) if index >= first else ""

    @memoized
    def _groups(self) -> list[_Group]:
        memory = self._kills.memory
        groups: dict[Hashable, _Group] = {}
        for index, instr in enumerate(self._instrs):
            reference = memory.reference(instr)
            touched = memory.accesses(instr) if reference is None else (reference.space, reference.objects)
            group = groups.setdefault((instr.form.text, reference is None, touched), _Group(instr, reference))
            group.indices.append(index)
            if reference is not None:
                base = group.bases.setdefault((reference.base, reference.bytes), _Base(reference))
                base.indices.append(index)
                base.offsets.append(reference.offset)
        return list(groups.values())

    def _last_of(self, group: _Group, question: Question, end: int) -> int:
        """The index of the last change of a group before index ``end`` that may change the bytes; -1 for none."""
        written = group.reference
        if written is None:
            return _last_below(group.indices, end) if self._kills.reason(group.instr, question) else -1
        # Test with bytes that begin where this change begins: where it keeps them, the address is not the reason.
        reason = self._kills.reason(group.instr, question.at(written.base, written.offset))
        if not reason:
            return -1
        if reason != "store":  # it orders memory, whatever its own address is
            return _last_below(group.indices, end)
        return max(self._last_at(base, question, end) for base in group.bases.values())

    def _last_at(self, base: _Base, question: Question, end: int) -> int:
        distance = self._kills.memory.distance(base.reference, question.reference)
        if distance is None:
            return _last_below(base.indices, end)
        away, modulus = distance
        return base.last_overlapping(base.reference.offset - away, modulus, question.bytes, end)


def _last_below(indices: Sequence[int], end: int) -> int:
    """The largest of ascending ``indices`` that is less than ``end``; -1 for none."""
    place = bisect_left(indices, end)
    return indices[place - 1] if place else -1
