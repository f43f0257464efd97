"""The cache of outcomes: what the passes and the gate made of a kernel in an earlier run.

The value is the resulting text of the kernel, where it changed, with its remarks, counts and number of rewrites. The
key is a hash of everything that it depends on: the kernel's text and the places of its instructions in the source; the
module without its entries, or the whole module; the passes and the other settings of the transform; and the code of
this package that reads, analyses and transforms. The judge adds to the key what its figures depend on.

Requires: no pass looks at another entry. For the key of an entry alone: the functions are as they were given.
Guarantees: a recalled outcome is the one of the run that recorded it, with places in the PTX text moved along with the
kernel. Its kernel has the name, parameters and directives of the given one, besides a limit of registers, and passes
the verifier. A value for which this is not true, or that cannot be read back as it was written, is ignored.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...cache import source_digest
from ...ptx import Instr, Kernel, Module, PtxError, print_kernel, print_module
from ...ptx.parser import parse_kernel
from ...ptx.verify import verify_kernel
from ...python_child import FOLDER
from ..attempt import Outcome
from ..remarks import Remark, Remarks
from .judge import RecordingJudge

__all__ = ["OutcomeCache"]

#: The folders of this package whose code decides the outcome of a kernel.
_DECIDERS = (".", "analysis", "ptx", "transforms")


@dataclass(frozen=True, slots=True)
class Given:
    """A kernel as it was given: its text, the key of its outcome, its offset in the PTX text and its line there."""

    kernel: Kernel
    text: str
    key: str
    pos: int
    line: int


class OutcomeCache:
    """The recorded outcomes of ``kernels`` of ``module``. The keys are those of the kernels when this is constructed.

    Where one of the kernels is a function, a change of the function may change the outcome of an entry. Then the key of
    each kernel covers the whole module, and either all outcomes are recalled or none. Otherwise the key of an entry
    covers the module without the other entries.
    """

    def __init__(
        self, judge: RecordingJudge, module: Module, kernels: Sequence[Kernel], identity: str, *, explains: bool
    ) -> None:
        self._judge = judge
        self._module = module
        self._explains = explains
        self._together = any(not kernel.is_entry for kernel in kernels)
        shared = [item for item in module.items if self._together or not _is_body_of_entry(item)]
        names = [kernel.name for kernel in kernels] if self._together else []
        parts = (_deciders(), identity, *names, print_module(replace(module, items=shared)))
        self._shared = hashlib.sha256(_encoded("\0".join(parts))).hexdigest()
        self._is_listing = module.source.name in module.files.values()
        self._given = {kernel.name: self._identify(kernel) for kernel in kernels}

    @classmethod
    def of(
        cls, judge: object, module: Module, kernels: Sequence[Kernel], identity: str | None, log: Remarks
    ) -> OutcomeCache | None:
        """The cache; `None` where the judge records nothing, where the transform has no ``identity``, or where the
        number of rewrites is limited."""
        if identity is None or log.limit is not None or not isinstance(judge, RecordingJudge):
            return None
        try:
            return cls(judge, module, kernels, identity, explains=log.explains)
        except OSError:  # the source files of this package cannot be read, so there is no key
            return None

    def recall(self) -> dict[str, Outcome]:
        """The outcomes that are recorded, by the names of the kernels; each kernel is put into the module."""
        outcomes: dict[str, Outcome] = {}
        for name, given in self._given.items():
            outcome = self._recall(given)
            if outcome is not None:
                outcomes[name] = outcome
                self._module.put(outcome.kernel)  # kernels that call it are parsed later, and refer to it
            elif self._together:
                for each in self._given.values():
                    self._module.put(each.kernel)
                return {}
        return outcomes

    def record(self, outcomes: Mapping[str, Outcome]) -> None:
        """Record ``outcomes`` for later runs."""
        for name, given in self._given.items():
            self._record(given, outcomes[name])

    def _identify(self, kernel: Kernel) -> Given:
        """``kernel`` before the passes, with the key of its outcome.

        The key is a hash of everything that outcome and remarks depend on: the shared part of the module and the passes
        (`_shared`), the printed text of the kernel, the text as it was written, and the places of its instructions.
        """
        text = print_kernel(kernel)
        source, start = self._module.source, kernel.pos
        places = array("q", (instr.pos - start if instr.pos >= 0 else -1 for instr in _all(kernel)))
        line, column = source.line_column(start) if start >= 0 else (0, 0)
        written = source.text[start : start + max(places, default=0) + 1] if start >= 0 else ""
        # The line is part of the key where a remark may name a file of the PTX text's name, or a message names lines.
        line_key = f"{source.name}:{line}" if self._explains or self._is_listing else ""
        digest = hashlib.sha256(places.tobytes())
        for part in (self._shared, str(self._explains), line_key, str(column), text, written):
            digest.update(_encoded(f"{len(part)}\0{part}"))
        return Given(kernel, text, "outcome\0" + digest.hexdigest(), start, line)

    def _recall(self, given: Given) -> Outcome | None:
        """The outcome of the kernel in an earlier run."""
        entry = self._judge.recall(given.key)
        if entry is None:
            return None
        try:
            return self._outcome(given, entry)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None  # the entry is no outcome: another program has written it

    def _outcome(self, given: Given, entry: dict[str, Any]) -> Outcome | None:
        """The outcome that an entry describes; `None` where its kernel cannot replace the given one."""
        kernel = given.kernel if entry["text"] is None else self._read_back(given, entry)
        if kernel is None:
            return None
        remarks = Remarks(self._module)
        remarks.rewrites = entry["rewrites"]
        for fields in entry["remarks"]:
            remarks.put(self._moved(given, fields))
        for pass_name, what, number in entry["counts"]:
            remarks.counts[given.kernel.name, pass_name, what] = number
        return Outcome(kernel, remarks, entry["changed"])

    def _record(self, given: Given, outcome: Outcome) -> None:
        text = print_kernel(outcome.kernel)
        is_same = text == given.text
        instrs = list(_all(outcome.kernel))
        places = [instr.pos - given.pos if instr.pos >= 0 else None for instr in instrs]
        # New instructions have no .loc, but in the text they would get that of the instruction before.
        located = any(instr.loc is not None for instr in instrs)
        bare = [number for number, instr in enumerate(instrs) if instr.loc is None] if located else []
        remarks = outcome.remarks
        self._judge.remember(
            given.key,
            {
                "text": None if is_same else text,
                "places": None if is_same else places,
                "bare": None if is_same else bare,
                "changed": outcome.is_changed,
                "rewrites": remarks.rewrites,
                "remarks": [self._relative(given, remark) for remark in remarks.items],
                "counts": [[pass_name, what, number] for (_, pass_name, what), number in remarks.counts.items()],
            },
        )

    def _read_back(self, given: Given, entry: dict[str, Any]) -> Kernel | None:
        """The recorded kernel with the recorded places of its instructions; `None` where it is damaged."""
        text: str = entry["text"]
        places: list[int | None] = entry["places"]
        try:
            kernel = parse_kernel(text, self._module, given.kernel)
            verify_kernel(kernel, self._module.source)
        except PtxError:
            return None
        instrs = list(_all(kernel))
        if len(instrs) != len(places) or print_kernel(kernel) != text or _heading(text) != _heading(given.text):
            return None
        for instr, place in zip(instrs, places, strict=True):
            instr.pos = -1 if place is None else given.pos + place
        for number in entry["bare"]:
            instrs[number].loc = None
        kernel.pos = given.pos
        return kernel

    def _relative(self, given: Given, remark: Remark) -> list[Any]:
        """The fields of a remark. For a place in the PTX text, the file is `None`, and the line is relative to that of
        the kernel."""
        is_listed = remark.line != 0 and remark.file == self._module.source.name
        place = (None, remark.line - given.line) if is_listed else (remark.file, remark.line)
        named = (remark.kind, remark.pass_name, remark.name, remark.message)
        return [*named, *place, remark.column, remark.reason, remark.expression, remark.sources, remark.targets]

    def _moved(self, given: Given, fields: list[Any]) -> Remark:
        """The opposite of `_relative`."""
        kind, pass_name, name, message, file, line, column, reason, expression, sources, targets = fields
        if file is None:
            file, line = self._module.source.name, line + given.line
        where = (file, line, column, reason, expression, tuple(sources), tuple(targets))
        return Remark(kind, pass_name, name, given.kernel.name, message, *where)


def _all(kernel: Kernel) -> Iterator[Instr]:
    """Every instruction and directive in text order."""
    return (instr for block in kernel.blocks for instr in block.instrs)


def _heading(text: str) -> str:
    """The text before a kernel's body: its name, parameters and directives, which no pass changes, without the limit of
    registers, which the gate may set."""
    return "\n".join(line for line in text.partition("\n{")[0].split("\n") if not line.startswith(".maxnreg "))


def _is_body_of_entry(item: object) -> bool:
    return isinstance(item, Kernel) and item.is_entry and not item.is_declaration


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@cache
def _deciders() -> str:
    """A hash of the code that decides outcomes: other code may have other outcomes. Raises `OSError`."""
    return source_digest(Path(FOLDER), _DECIDERS)
