"""Measurements of kernels: how often their blocks ran, and how often warps diverged at their branches.

Computes: for the kernels of a profile file, which the emulator writes (`ptxmotion emulate --profile`), the counts of
each block and branch. They are matched by the name of the kernel, the digest of its code (`ptx/digest.py`) and the
position of the instructions.

Requires: a kernel is matched (`match`) before any pass changes it; its scopes may be flattened. The match stays valid
while passes change the kernel, because instructions and blocks are identified by their objects.
Guarantees: counts of other code are never used. `match` returns the reason if a kernel has no counts.
Refuses: a file that is no profile, with `ProfileError`.

A profile describes executions with some inputs, not all possible ones. So it may decide whether a change is worthwhile,
but not whether it is correct. It may be used for

- weights of blocks (`Facts.block_weight`), to compare costs;
- which branches are *expected* to diverge (`expected.py`): for the ∪ of SSCM and for the CDRND that bounds insertions.
  Both estimate what a warp executes anyway, and so what an evaluation costs.

It must not be used where a wrong answer breaks a program: whether a value or branch is uniform (`Divergence`), whether
lanes execute a barrier, vote or shuffle together, whether a load may fault (`may_speculate`), which references alias.
Reference: Fukuhara's thesis, §7.2 (dynamic divergence instead of the pessimistic one).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ..ptx import Block, Instr, Kernel
from ..ptx.digest import code_digest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Measured", "Profile", "ProfileError"]

FORMAT = "ptxmotion-profile"
SCHEMA_VERSION = 1


class ProfileError(ValueError):
    """A file is not a valid profile; the message has its name and the reason."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The counts of one kernel by position of the instruction in it. ``blocks``: how often warps, or fragments of
    diverged warps, entered the block that starts there. ``branches``: (executions by a warp, of which it diverged)."""

    name: str
    digest: str
    launches: int
    blocks: dict[int, int]
    branches: dict[int, tuple[int, int]]


@dataclass
class Profile:
    """The measurements of a profile, and the kernels that are matched with them.

    ``by_name``: by kernel name the measurements of all codes with that name.
    """

    source: str
    by_name: dict[str, list[Measured]]
    _kernels: dict[int, tuple[Kernel, Measured | None]] = field(
        default_factory=dict[int, "tuple[Kernel, Measured | None]"]
    )
    _blocks: dict[Block, int] = field(default_factory=dict[Block, int])
    _branches: dict[Instr, tuple[int, int]] = field(default_factory=dict[Instr, "tuple[int, int]"])

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """The profile in a file. Raises `OSError`, and `ProfileError` if it is not valid."""
        import json
        from pathlib import Path

        raw = Path(path).read_bytes()
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ProfileError(f"{path}: no profile: {error}") from None
        return cls.of(data, str(path))

    @classmethod
    def of(cls, data: object, source: str = "<profile>") -> Profile:
        """The profile from a parsed JSON document, as `Counts.profile` of the emulator returns it. Raises
        `ProfileError` for a document of another form."""
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != FORMAT:
            raise ProfileError(f"{source}: no profile: its format is not '{FORMAT}'")
        document = cast("dict[str, Any]", data)
        if document.get("schema_version") != SCHEMA_VERSION:
            version = document.get("schema_version")
            raise ProfileError(f"{source}: schema_version is {version!r}, and this is read: {SCHEMA_VERSION}")
        by_name: dict[str, list[Measured]] = {}
        try:
            for entry in document["kernels"]:
                measured = _measured(entry)
                by_name.setdefault(measured.name, []).append(measured)
        except (KeyError, TypeError, ValueError) as error:
            raise ProfileError(f"{source}: no profile: an entry is incomplete or wrong ({error!r})") from None
        return cls(source, by_name)

    def match(self, kernel: Kernel) -> str:
        """Match ``kernel`` with its measurement, once. Returns the reason if there is none, else an empty string."""
        if id(kernel) not in self._kernels:
            self._kernels[id(kernel)] = kernel, self._find(kernel)
        if self._kernels[id(kernel)][1] is not None:
            return ""
        if kernel.name not in self.by_name:
            return f"the profile {self.source} has no kernel '{kernel.name}'"
        return f"the profile {self.source} was measured of other code of '{kernel.name}'"

    def _find(self, kernel: Kernel) -> Measured | None:
        candidates = self.by_name.get(kernel.name)
        if not candidates:
            return None
        digest = code_digest(kernel)
        measured = next((each for each in candidates if each.digest == digest), None)
        if measured is not None:
            self._note(kernel, measured)
        return measured

    def _note(self, kernel: Kernel, measured: Measured) -> None:
        at = 0
        for block in kernel.blocks:
            start = at
            for instr in block.instrs:
                if not instr.is_directive:
                    if at in measured.branches:
                        self._branches[instr] = measured.branches[at]
                    at += 1
            if at > start:
                self._blocks[block] = measured.blocks.get(start, 0)

    def of_kernel(self, kernel: Kernel) -> Measured | None:
        """The measurement of ``kernel``; ``None`` if there is none."""
        self.match(kernel)
        return self._kernels[id(kernel)][1]

    def block(self, block: Block) -> int | None:
        """How often warps entered ``block``; ``None`` if it was empty, was made by a transform, or is not matched."""
        return self._blocks.get(block)

    def blocks(self, kernel: Kernel) -> list[int | None]:
        """`block` for each block of ``kernel``."""
        self.match(kernel)
        return [self._blocks.get(block) for block in kernel.blocks]

    def branch(self, instr: Instr) -> tuple[int, int] | None:
        """(executions of the branch by a warp, executions at which the warp diverged); ``None`` if it was not executed
        or its kernel is not matched."""
        return self._branches.get(instr)


def _measured(entry: dict[str, Any]) -> Measured:
    def count(holder: dict[str, Any], key: str) -> int:
        value = holder[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{key} is {value!r}")
        return value

    branches: dict[int, tuple[int, int]] = {}
    for branch in entry["branches"]:
        executed, diverged = count(branch, "executed"), count(branch, "diverged")
        if diverged > executed:
            raise ValueError(f"a branch diverged {diverged} times in {executed}")
        if executed:
            branches[count(branch, "at")] = executed, diverged
    blocks = {count(block, "at"): count(block, "warps") for block in entry["blocks"]}
    name, digest = entry["name"], entry["digest"]
    if not isinstance(name, str) or not isinstance(digest, str):
        raise ValueError("name and digest are strings")
    return Measured(name, digest, count(entry, "launches"), blocks, branches)
