"""Remarks about what passes did and refused, counts, and the limit on rewrites.

A remark is ``Passed`` (a rewrite was made), ``Missed`` (a rewrite was refused, with a reason id) or ``Analysis``.
Remarks are written as LLVM optimization records (YAML), which opt-viewer and llvm-opt-report read, or as lines of text.
A record names the pass, the function, the place in the source, the expression, the blocks that it was in, the blocks or
edges that it is in now, and the reason. A refusal that every round of a pass repeats is reported once.

A pass calls `Remarks.may_rewrite` before each rewrite. So ``--bisect-limit N`` stops after N rewrites, not N passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ptx import Block, Instr, Kernel, Module

__all__ = ["Remark", "Remarks", "block_names"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark. ``name`` is its id within the pass, ``reason`` the reason id of a refusal. ``expression`` is an
    opcode; ``sources`` and ``targets`` are the labels of the blocks or edges from which and to which it was moved."""

    kind: str
    pass_name: str
    name: str
    kernel: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    reason: str = ""
    expression: str = ""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def refusal(self) -> object:
        """Equal for two refusals of the same expression, also after other rewrites between them."""
        if not self.line:
            return self
        return (self.pass_name, self.name, self.kernel, self.file, self.line, self.column, self.reason, self.expression)

    @property
    def text(self) -> str:
        """The remark as a line of text."""
        where = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        reason = f" [{self.reason}]" if self.reason else ""
        return f"{where}remark: {self.pass_name}: {self.kernel}: {self.message}{reason}"

    @property
    def yaml(self) -> str:
        """One YAML document of an LLVM optimization record."""
        lines = [f"--- !{self.kind}", f"Pass:            {self.pass_name}", f"Name:            {self.name}"]
        if self.line:
            place = f"{{ File: {_quoted(self.file)}, Line: {self.line}, Column: {self.column} }}"
            lines.append(f"DebugLoc:        {place}")
        lines += [f"Function:        {_quoted(self.kernel)}", "Args:", f"  - String:          {_quoted(self.message)}"]
        for key, value in (
            ("Expression:", self.expression),
            ("From:", ", ".join(self.sources)),
            ("To:", ", ".join(self.targets)),
            ("Reason:", self.reason),
        ):
            if value:
                lines.append(f"  - {key:16} {_quoted(value)}")
        return "\n".join([*lines, "...", ""])


#: The number of remarks, and the counts.
Checkpoint: TypeAlias = "tuple[int, Counter[tuple[str, str, str]]]"


def block_names(blocks: Sequence[Block], numbers: Iterable[int]) -> tuple[str, ...]:
    """The labels of the blocks; ``block N`` for a block without a label."""
    labels = ((number, blocks[number].label) for number in numbers)
    return tuple(label.text if label is not None else f"block {number}" for number, label in labels)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Remarks:
    """Collects remarks and counts for one module.

    ``limit`` is the number of rewrites that are allowed in all, ``None`` for no limit. ``allowed`` are the keys of the
    rewrites that may be made, ``None`` for all. ``explains``: passes report also those refusals that take extra work to
    find.
    """

    def __init__(
        self,
        module: Module | None = None,
        limit: int | None = None,
        allowed: frozenset[str] | None = None,
        *,
        explains: bool = False,
    ) -> None:
        self.items: list[Remark] = []
        self.explains = explains
        #: `Remark.refusal` of the refusals so far.
        self._refusals: set[object] = set()
        #: (kernel, pass, what was counted) → number.
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.rewrites = 0
        self.limit = limit
        self.allowed = allowed
        #: The keys of the rewrites that were made, in order.
        self.keys: dict[str, None] = {}
        self._module = module
        #: Number of a ``.file`` directive → file name; `None` until the first use.
        self._files: dict[int, str] | None = None

    def may_rewrite(self, pass_name: str = "", instr: Instr | None = None) -> bool:
        """Count one rewrite; ``False`` where it must not be made: the limit is reached, or its key is not allowed.

        A rewrite of the expression that ``instr`` evaluates has a key. Clean-up has none: `allowed` does not limit it.
        """
        key = self._key(pass_name, instr) if instr is not None else ""
        if key and self.allowed is not None and key not in self.allowed:
            return False
        if self.limit is not None and self.rewrites >= self.limit:
            return False
        self.rewrites += 1
        if key:
            self.keys[key] = None
        return True

    def allows(self, pass_name: str, instr: Instr | None = None) -> bool:
        """Whether `may_rewrite` may return true for ``instr``, or for any instruction. Counts nothing.

        With it a pass avoids the search for rewrites that are not allowed, or that it has made already.
        """
        if self.allowed is None:
            return True
        if instr is not None:
            return self._key(pass_name, instr) in self.allowed
        prefix = f"{pass_name}:"
        return any(key not in self.keys and key.startswith(prefix) for key in self.allowed)

    def _key(self, pass_name: str, instr: Instr) -> str:
        """The key of a rewrite. It is the same in every run over the same kernel, whichever other rewrites are made.

        New registers have other names in another run, so the key contains the place of the instruction in the text; for
        an instruction without a place, its own text. A number distinguishes rewrites of copies of one instruction.
        """
        what = instr.form.text if instr.pos >= 0 else instr.text
        first = key = f"{pass_name}:{what}@{instr.pos}"
        number = 1
        while key in self.keys:
            number += 1
            key = f"{first}#{number}"
        return key

    def checkpoint(self) -> Checkpoint:
        """The remarks and counts so far, for `restore`."""
        return len(self.items), Counter(self.counts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Drop the remarks and counts since ``checkpoint``, except for refusals. The number of rewrites stays, so that
        a limit stops at the same rewrite in every run."""
        number, self.counts = checkpoint
        self.items[number:] = [remark for remark in self.items[number:] if remark.kind == "Missed"]

    def take(self, other: Remarks) -> None:
        """Add the remarks, counts and rewrites of ``other``."""
        for remark in other.items:
            self.put(remark)
        self.counts += other.counts
        self.rewrites += other.rewrites

    def take_refusals(self, other: Remarks) -> None:
        """Add the refusals of ``other``. They are valid also where its rewrites are reverted."""
        for remark in other.items:
            if remark.kind == "Missed":
                self.put(remark)

    def count(self, kernel: Kernel, pass_name: str, what: str, number: int = 1) -> None:
        """Add ``number`` to a count that ``--stats-json`` prints."""
        if number:
            self.counts[kernel.name, pass_name, what] += number

    def add(
        self,
        kind: str,
        pass_name: str,
        name: str,
        kernel: Kernel,
        message: str,
        *,
        instr: Instr | None = None,
        reason: str = "",
        sources: Iterable[str] = (),
        targets: Iterable[str] = (),
    ) -> None:
        """Add a remark of ``kind`` about the expression that ``instr`` computes, at its place in the source."""
        file, line, column = self.place(instr) if instr is not None else ("", 0, 0)
        expression = instr.form.text if instr is not None else ""
        where = (file, line, column, reason, expression, tuple(sources), tuple(targets))
        self.put(Remark(kind, pass_name, name, kernel.name, message, *where))

    def put(self, remark: Remark) -> None:
        """Add a remark, unless it is a refusal that has been reported already."""
        if remark.kind == "Missed":
            if remark.refusal in self._refusals:
                return
            self._refusals.add(remark.refusal)
        self.items.append(remark)

    def place(self, instr: Instr) -> tuple[str, int, int]:
        """Source file, line and column from ``.loc``, or those in the PTX text where there is no ``.loc``."""
        module = self._module
        if module is None:
            return "", 0, 0
        if instr.loc is not None:
            if self._files is None:
                self._files = module.files
            number, line, column = instr.loc.file_line_column
            return self._files.get(number, f"file {number}"), line, column
        if instr.pos >= 0:
            return module.source.name, *module.source.line_column(instr.pos)
        return "", 0, 0

    def matching(self, pattern: str) -> Iterable[Remark]:
        """Remarks whose pass name matches the regular expression, as LLVM's ``-Rpass`` selects them."""
        compiled = re.compile(pattern)
        return (remark for remark in self.items if compiled.search(remark.pass_name))

    def yaml(self) -> str:
        """All remarks as YAML documents."""
        return "".join(remark.yaml for remark in self.items)
