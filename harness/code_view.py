"""Two versions of a text side by side, for the page of a report: PTX with remarks at its lines, and machine code.

Computes: the rows of the comparison, in which long parts without differences and remarks are left out; the machine code
of each kernel out of the text of nvdisasm, without addresses, so that equal instructions are equal lines.

Requires: nothing but Python. Guarantees: every line that differs, and every line with a remark, is in a row, up to
`LONGEST` rows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "CodeView",
    "Line",
    "Note",
    "Row",
    "machine_code",
    "machine_key",
    "numbered",
    "ptx_key",
    "side_by_side",
]

#: A line and its number.
Line: TypeAlias = tuple[int, str]

#: The largest number of rows of a table.
LONGEST = 500

#: Equal lines that are shown before and after a difference.
CONTEXT = 3

#: In the text of nvdisasm: registers, predicates and labels, the start of the code of a kernel, and an address.
_NUMBERED = re.compile(r"\b(U?[RPB]|\.L_x_|L_x_)\d+\b")
_SECTION = re.compile(r"^//-+ \.text\.(\S+)\s+-+$", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*/\*[0-9a-f]+\*/\s*")


@dataclass(frozen=True, slots=True)
class Note:
    """A remark at a line: ``kind`` is `Passed`, `Missed` or `Analysis`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a line of each side with its number, or None. ``skipped`` > 0: so many equal lines are left
    out here; -1: the rest is left out."""

    left: Line | None = None
    right: Line | None = None
    is_equal: bool = True
    notes: tuple[Note, ...] = ()
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class CodeView:
    """The code of one kernel or module in two versions. ``figures`` are name, before and after, in words.

    ``notes`` are remarks without a line. ``missing`` says why there is no code; then the rest is empty.
    """

    title: str
    ptx: Sequence[Row] = ()
    machine: Sequence[Row] = ()
    figures: Sequence[tuple[str, str, str]] = ()
    notes: Sequence[Note] = ()
    missing: str = ""


def side_by_side(
    left: Sequence[Line],
    right: Sequence[Line],
    notes: Mapping[int, Sequence[Note]] | None = None,
    key: Callable[[str], str] = str.strip,
) -> list[Row]:
    """The rows of two texts. ``notes`` maps the number of a line of ``left`` to its remarks. Lines with equal ``key``
    are equal.

    >>> [row.is_equal for row in side_by_side([(1, "a"), (2, "b")], [(1, "a "), (2, "c")])]
    [True, False]
    """
    rows = list(_shortened(list(_rows(left, right, notes or {}, key))))
    if len(rows) > LONGEST:
        rows = [*rows[:LONGEST], Row(skipped=-1)]
    return rows


def _rows(
    left: Sequence[Line], right: Sequence[Line], notes: Mapping[int, Sequence[Note]], key: Callable[[str], str]
) -> Iterator[Row]:
    keys = [[key(text) for _, text in side] for side in (left, right)]
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for offset in range(max(i2 - i1, j2 - j1)):
            one = left[i1 + offset] if i1 + offset < i2 else None
            other = right[j1 + offset] if j1 + offset < j2 else None
            yield Row(one, other, tag == "equal", tuple(notes.get(one[0], ())) if one else ())


def numbered(lines: Sequence[str], first: int = 1) -> list[Line]:
    """The lines that are not blank, with their numbers."""
    return [(number, line) for number, line in enumerate(lines, start=first) if line.strip()]


def ptx_key(line: str) -> str:
    """What must be equal in two lines of PTX: not the spaces.

    >>> ptx_key("\tmov.u32 \t%r1, 2;")
    'mov.u32 %r1, 2;'
    """
    return " ".join(line.split())


def machine_key(line: str) -> str:
    """What must be equal in two machine instructions: not the numbers of registers, predicates and labels.

    >>> machine_key("@P0 IADD3 R1, R2, UR3 ;")
    '@P IADD3 R, R, UR ;'
    """
    return _NUMBERED.sub(r"\1", line.strip())


def _shortened(rows: Sequence[Row]) -> Iterator[Row]:
    wanted: set[int] = set()
    for number, row in enumerate(rows):
        if row.notes or not row.is_equal:
            wanted.update(range(number - CONTEXT, number + CONTEXT + 1))
    skipped = 0
    for number, row in enumerate(rows):
        if number in wanted:
            if skipped:
                yield Row(skipped=skipped)
                skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield Row(skipped=skipped)


def machine_code(text: str) -> dict[str, list[str]]:
    """The instructions and labels of each kernel, out of the output of nvdisasm; without the padding at the end."""
    parts = _SECTION.split(text)
    found: dict[str, list[str]] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.partition("//-----")[0].splitlines()
        kept = [
            line.strip() if line.startswith(".L_") else f"    {_ADDRESS.sub('', line).strip()}"
            for line in lines
            if line.startswith(".L_") or _ADDRESS.match(line)
        ]
        while kept and (kept[-1].strip().startswith("NOP") or kept[-1].startswith(".L_")):
            kept.pop()
        found[name] = kept
    return found
