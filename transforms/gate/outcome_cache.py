"""What the gate came to for a kernel, kept from run to run.

An outcome is the kernel's text as it stays, where it was changed, and everything that was said of it: remarks, counts,
the number of rewrites. It is kept under a hash of all that it depends on: the kernel's text and the places of its
instructions in the source, the module without its entries, or all of it, the passes and what else the pipeline goes by,
and the code of this package that reads, analyses and transforms. The judge adds what it goes by itself.

Requires: that no pass looks at another entry; of the memory of entries alone, that the functions are as they were
given. Guarantees: a recalled outcome is the one that the run that kept it had, places in the PTX text moved along with
the kernel. Its kernel has the name, parameters and directives of the given one, and passes the verifier. An entry of
which that is not true, or that cannot be read back as it was written, counts as not there.
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
from ..attempt import Outcome
from ..remarks import Remark, Remarks
from .judge import Remembering

__all__ = ["OutcomeCache"]

#: The folders whose code decides what becomes of a kernel.
_DECIDERS = (".", "analysis", "ptx", "transforms")


@dataclass(frozen=True, slots=True)
class Given:
    """A kernel as it was given, and where its outcome is kept."""

    kernel: Kernel
    text: str
    key: str
    pos: int
    line: int


class OutcomeCache:
    """The recorded outcomes of ``kernels`` of ``module``, as they were when this was made.

    Where there is a function among them, an entry may change because a function does. The key of each kernel then
    covers the whole module, and either all outcomes are recalled or none. Otherwise the key of an entry covers the
    module without the other entries.
    """

    def __init__(
        self, judge: Remembering, module: Module, kernels: Sequence[Kernel], identity: str, *, explains: bool
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
        self._given = {kernel.name: self.given(kernel) for kernel in kernels}

    @classmethod
    def of(
        cls, judge: object, module: Module, kernels: Sequence[Kernel], identity: str | None, log: Remarks
    ) -> OutcomeCache | None:
        """The cache, where the judge keeps one, ``identity`` says what the transform depends on, and the number of
        rewrites is not limited."""
        if identity is None or log.limit is not None or not isinstance(judge, Remembering):
            return None
        try:
            return cls(judge, module, kernels, identity, explains=log.explains)
        except OSError:  # the source files of this package cannot be read, so there is no key
            return None

    def recall(self) -> dict[str, Outcome]:
        """The outcomes that are recorded, by the names of the kernels; each kernel is put into the module."""
        found: dict[str, Outcome] = {}
        for name, given in self._given.items():
            outcome = self._recall(given)
            if outcome is not None:
                found[name] = outcome
                self._module.put(outcome.kernel)  # a kernel that calls it is read back with it
            elif self._together:
                for each in self._given.values():
                    self._module.put(each.kernel)
                return {}
        return found

    def record(self, outcomes: Mapping[str, Outcome]) -> None:
        """Record ``outcomes`` for later runs."""
        for name, given in self._given.items():
            self.remember(given, outcomes[name])

    def given(self, kernel: Kernel) -> Given:
        """The kernel as it is now, before anything is done to it."""
        text = print_kernel(kernel)
        source, start = self._module.source, kernel.pos
        places = array("q", (instr.pos - start if instr.pos >= 0 else -1 for instr in _all(kernel)))
        line, column = source.line_column(start) if start >= 0 else (0, 0)
        written = source.text[start : start + max(places, default=0) + 1] if start >= 0 else ""
        # Where a remark's place may be one in the PTX text or not, and where messages tell lines, lines must not move.
        line_kept = f"{source.name}:{line}" if self._explains or self._is_listing else ""
        digest = hashlib.sha256(places.tobytes())
        for part in (self._shared, str(self._explains), line_kept, str(column), text, written):
            digest.update(_encoded(f"{len(part)}\0{part}"))
        return Given(kernel, text, "outcome\0" + digest.hexdigest(), start, line)

    def _recall(self, given: Given) -> Outcome | None:
        """What became of the kernel in an earlier run."""
        kept = self._judge.recall(given.key)
        if kept is None:
            return None
        try:
            return self._outcome(given, kept)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None  # it has not the form of an outcome: another program has written it

    def _outcome(self, given: Given, kept: dict[str, Any]) -> Outcome | None:
        """The outcome that an entry describes; `None` where its kernel cannot stand in the place of the given one."""
        kernel = given.kernel if kept["text"] is None else self._read_back(given, kept)
        if kernel is None:
            return None
        said = Remarks(self._module)
        said.rewrites = kept["rewrites"]
        for each in kept["remarks"]:
            said.put(self._moved(given, each))
        for pass_name, what, number in kept["counts"]:
            said.counts[given.kernel.name, pass_name, what] = number
        return Outcome(kernel, said, kept["changed"])

    def remember(self, given: Given, outcome: Outcome) -> None:
        """Keep what became of the kernel."""
        text = print_kernel(outcome.kernel)
        is_same = text == given.text
        instrs = list(_all(outcome.kernel))
        places = [instr.pos - given.pos if instr.pos >= 0 else None for instr in instrs]
        # What passes made may have no .loc where, in the text, one is in force.
        located = any(instr.loc is not None for instr in instrs)
        bare = [number for number, instr in enumerate(instrs) if instr.loc is None] if located else []
        said = outcome.said
        self._judge.remember(
            given.key,
            {
                "text": None if is_same else text,
                "places": None if is_same else places,
                "bare": None if is_same else bare,
                "changed": outcome.is_changed,
                "rewrites": said.rewrites,
                "remarks": [self._fixed(given, remark) for remark in said.items],
                "counts": [[pass_name, what, number] for (_, pass_name, what), number in said.counts.items()],
            },
        )

    def _read_back(self, given: Given, kept: dict[str, Any]) -> Kernel | None:
        """The kernel that was kept, with the places that its instructions had; `None` if that cannot be."""
        text: str = kept["text"]
        places: list[int | None] = kept["places"]
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
        for number in kept["bare"]:
            instrs[number].loc = None
        kernel.pos = given.pos
        return kernel

    def _fixed(self, given: Given, remark: Remark) -> list[Any]:
        """The remark's fields, with no file and a line counted from the kernel's, where it is one of the PTX text."""
        is_listed = remark.line != 0 and remark.file == self._module.source.name
        place = (None, remark.line - given.line) if is_listed else (remark.file, remark.line)
        named = (remark.kind, remark.pass_name, remark.name, remark.message)
        return [*named, *place, remark.column, remark.reason, remark.expression, remark.sources, remark.targets]

    def _moved(self, given: Given, kept: list[Any]) -> Remark:
        """The opposite of `_fixed`."""
        kind, pass_name, name, message, file, line, column, reason, expression, sources, targets = kept
        if file is None:
            file, line = self._module.source.name, line + given.line
        where = (file, line, column, reason, expression, tuple(sources), tuple(targets))
        return Remark(kind, pass_name, name, given.kernel.name, message, *where)


def _all(kernel: Kernel) -> Iterator[Instr]:
    """Every instruction and directive in text order."""
    return (instr for block in kernel.blocks for instr in block.instrs)


def _heading(text: str) -> str:
    """What stands before a kernel's body: its name, parameters and directives, which no pass changes."""
    return text.partition("\n{")[0]


def _is_body_of_entry(item: object) -> bool:
    return isinstance(item, Kernel) and item.is_entry and not item.is_declaration


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@cache
def _deciders() -> str:
    """A hash of the code that decides: what became of a kernel under other code is not what this would make of it.
    Raises `OSError`."""
    return source_digest(Path(__file__).parents[2], _DECIDERS)
