"""The last instruction in front of a place in a block that may change the bytes in question.

Computes: for a stretch of a block's changes (instructions that may change memory, or order it behind other threads),
the last one that `kill_of` names a reason for. The last few are looked at one by one. The others are looked at by kind:
whether a kind of change may have to do with the bytes at all depends on its opcode and objects only. If it may, then
for the changes of a kind with one base their distance from the bytes decides, and the last one in reach is looked up.
So a question takes time in proportion to the kinds, and to the bases of those that may have to do with the bytes.

Requires: that the kernel does not change. Guarantees: the reason is that of the last change that has one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...analysis.memory.alias import Memory, Reference
from ...ptx import Instr

if TYPE_CHECKING:
    from .access_index import Question

__all__ = ["Changes"]

#: So many of the last changes are looked at one by one: most questions end there.
_NEAR = 8


@dataclass(slots=True)
class _Group:
    """Changes of one kind, base and number of bytes. ``reference`` is that of the first; ``indices`` (ascending) and
    ``offsets`` are those of all."""

    reference: Reference
    indices: list[int] = field(default_factory=list[int])
    offsets: list[int] = field(default_factory=list[int])
    #: By modulus, and by the offset modulo that: the indices (ascending) of the changes with such an offset.
    _by_residue: dict[int, dict[int, list[int]]] = field(default_factory=dict[int, dict[int, list[int]]])

    def last_in_reach(self, start: int, modulus: int, size: int, end: int) -> int:
        """The largest index below ``end`` of a change that shares a byte with ``size`` bytes. A change at offset
        ``start``, modulo ``modulus``, begins where these begin. -1 if there is none."""
        residues = self._by_residue.get(modulus)
        if residues is None:
            residues = self._by_residue[modulus] = {}
            for index, offset in zip(self.indices, self.offsets, strict=True):
                residues.setdefault(offset % modulus, []).append(index)
        steps = range(1 - self.reference.bytes, size)
        return max(_last_below(residues.get((start + step) % modulus, ()), end) for step in steps)


@dataclass(slots=True)
class _Kind:
    """Changes of one opcode that may touch the same objects. ``instr`` is the first, ``indices`` (ascending) are those
    of all; ``groups`` has those whose address is known, by base and bytes."""

    instr: Instr
    reference: Reference | None
    indices: list[int] = field(default_factory=list[int])
    groups: dict[tuple[int, int], _Group] = field(default_factory=dict[tuple[int, int], _Group])


class Changes:
    """The changes of one block in the order of the text: positions and instructions. ``kill_of(instr, question)`` says
    why an instruction may change the bytes of a question, or nothing."""

    def __init__(
        self, changes: Sequence[tuple[int, Instr]], memory: Memory, kill_of: Callable[[Instr, Question], str]
    ) -> None:
        self._positions = [position for position, _ in changes]
        self._instrs = [instr for _, instr in changes]
        self._memory = memory
        self._kill_of = kill_of
        self._kinds: list[_Kind] | None = None

    def reason(self, question: Question, after: int, end: int) -> str:
        """Why the last change behind position ``after`` and before ``end`` that may change the bytes does so; empty
        where none does."""
        first, last = bisect_right(self._positions, after), bisect_left(self._positions, end)
        near = max(first, last - _NEAR)
        for index in range(last - 1, near - 1, -1):
            reason = self._kill_of(self._instrs[index], question)
            if reason:
                return reason
        if near == first:
            return ""
        found = max(self._last_of(kind, question, near) for kind in self._by_kind())
        return self._kill_of(self._instrs[found], question) if found >= first else ""

    def _by_kind(self) -> list[_Kind]:
        if self._kinds is None:
            kinds: dict[Hashable, _Kind] = {}
            for index, instr in enumerate(self._instrs):
                reference = self._memory.reference(instr)
                place = self._memory.accesses(instr) if reference is None else (reference.space, reference.objects)
                key = instr.form.text, reference is None, place
                kind = kinds.get(key)
                if kind is None:
                    kind = kinds[key] = _Kind(instr, reference)
                kind.indices.append(index)
                if reference is not None:
                    group = kind.groups.get((reference.base, reference.bytes))
                    if group is None:
                        group = kind.groups[reference.base, reference.bytes] = _Group(reference)
                    group.indices.append(index)
                    group.offsets.append(reference.offset)
            self._kinds = list(kinds.values())
        return self._kinds

    def _last_of(self, kind: _Kind, question: Question, end: int) -> int:
        """The index of the last change of a kind before index ``end`` that may change the bytes; -1 for none."""
        written = kind.reference
        if written is None:
            return _last_below(kind.indices, end) if self._kill_of(kind.instr, question) else -1
        # If bytes that begin where this change does are kept, then by something else than their place.
        reason = self._kill_of(kind.instr, question.at(written.base, written.offset))
        if not reason:
            return -1
        if reason != "store":  # it orders memory, wherever it is itself
            return _last_below(kind.indices, end)
        return max(self._last_in_reach(group, question, end) for group in kind.groups.values())

    def _last_in_reach(self, group: _Group, question: Question, end: int) -> int:
        written = group.reference
        distance = self._memory.distance(written, question.reference)
        if distance is None:
            return _last_below(group.indices, end)
        away, modulus = distance
        return group.last_in_reach(written.offset - away, modulus, question.bytes, end)


def _last_below(indices: Sequence[int], end: int) -> int:
    """The largest of ascending ``indices`` that is less than ``end``; -1 for none."""
    place = bisect_left(indices, end)
    return indices[place - 1] if place else -1
