"""The code of a page: PTX and machine code before and after, with the remarks of the optimizer at their lines.

Requires: ptxas and nvdisasm for machine code; without them the page says what is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..harness.code_view import CodeView, Line, Note, machine_code, machine_key, numbered, ptx_key, side_by_side

if TYPE_CHECKING:
    from ..transforms.remarks import Remark

__all__ = ["views_of"]


def views_of(
    before: str, after: str, remarks: Iterable[Remark], name: str, arch: str | None, options: Sequence[str] = ()
) -> list[CodeView]:
    """A view for each entry of a module. ``name`` is the file that remarks about PTX lines name; ``options`` are those
    of ptxas."""
    old, new = _entries(before), _entries(after)
    machine, why = _machine((before, after), arch, options)
    figures = _figures(before, after, arch)
    places = _places(before)
    every = list(dict.fromkeys(remarks))
    found: list[CodeView] = []
    for kernel, lines in old.items():
        at_lines: dict[int, list[Note]] = {}
        others: list[Note] = []
        for each in every:
            if each.kernel == kernel:
                line = each.line if each.file == name else places.get((each.file, each.line, each.column), 0)
                is_here = bool(lines) and lines[0][0] <= line <= lines[-1][0]
                at_lines.setdefault(line, []).append(_note(each, name)) if is_here else others.append(_note(each, name))
        if why:
            others.append(Note("Analysis", why))
        rows = side_by_side(lines, new.get(kernel, []), at_lines, ptx_key)
        codes = [numbered(each.get(kernel, [])) for each in machine]
        made = side_by_side(codes[0], codes[1], key=machine_key) if codes else []
        if codes and all(row.is_equal for row in made):
            same = codes[0] == codes[1]
            what = "is the same" if same else "differs in the numbers of registers and labels only"
            others.append(Note("Analysis", f"the machine code {what}"))
            made = []
        found.append(CodeView(kernel, rows, made, figures.get(kernel, []), others))
    return found


def _note(remark: Remark, name: str) -> Note:
    """The remark. ``name`` is the file that needs no name: that of the shown lines."""
    place = f"{os.path.basename(remark.file)}:{remark.line}: " if remark.line and remark.file != name else ""
    reason = f" [{remark.reason}]" if remark.reason else ""
    return Note(remark.kind, f"{place}{remark.pass_name}: {remark.message}{reason}")


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")


def _places(text: str) -> dict[tuple[str, int, int], int]:
    """The line of the first ``.loc`` for each file, line and column of the source."""
    lines = text.splitlines()
    files = {found[1]: found[2] for line in lines if (found := _FILE.match(line))}
    places: dict[tuple[str, int, int], int] = {}
    for number, line in enumerate(lines, start=1):
        if found := _LOC.match(line):
            place = (files.get(found[1], f"file {found[1]}"), int(found[2]), int(found[3]))
            places.setdefault(place, number)
    return places


_START = re.compile(r"\s*(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b")
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")


def _entries(text: str) -> dict[str, list[Line]]:
    """The lines of each entry of a module."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    found: dict[str, list[Line]] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if named := _ENTRY.search(lines[start]):
            found[named[1]] = numbered(lines[start:end], start + 1)
    return found


def _machine(texts: Iterable[str], arch: str | None, options: Sequence[str]) -> tuple[list[dict[str, list[str]]], str]:
    """The machine code of each text by kernel; or none, and why."""
    from ..toolchain.tools import ToolchainError, assemble, disassemble

    try:
        return [machine_code(disassemble(assemble(text, arch, flags=options).cubin)) for text in texts], ""
    except ToolchainError as error:
        return [], f"no machine code: {str(error).splitlines()[0]}"


def _figures(before: str, after: str, arch: str | None) -> dict[str, list[tuple[str, str, str]]]:
    """The figures of each kernel that differ: name, before, after. None of them where ptxas cannot assemble a text."""
    from ..toolchain.machine_diff import figures
    from ..toolchain.tools import ToolchainError

    try:
        one, other = figures(before, arch), figures(after, arch)
    except ToolchainError:
        return {}  # `_machine` says why
    found: dict[str, list[tuple[str, str, str]]] = {}
    for kernel in one.keys() & other.keys():
        old, new = one[kernel].table(), other[kernel].table()
        found[kernel] = [(name, str(value), str(new[name])) for name, value in old.items() if value != new[name]]
    return found
