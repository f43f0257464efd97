"""The gate's judge on ptxas: assembles a module and reads what became of each kernel.

Figures are cached on disk under the hash of the text, the architecture and the assembler, so that a second run starts
no assembler. Requires: ptxas (`toolchain`). Guarantees: the figures are those of the cubin; a damaged cache entry is
made anew. Reference: shared notes on code motion, §2.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .cubin import CubinError, KernelCode, read_cubin
from .occupancy import occupancy
from .toolchain import ToolchainError, arch_for, assemble, find_tool

__all__ = ["PtxasJudge", "cache_folder"]

#: Threads of a block where the kernel does not say: how many warps fit is the mean over these.
USUAL_THREADS = (128, 256, 512)

#: Bump when the figures or their meaning change.
_VERSION = 2


def cache_folder() -> Path:
    """Where figures are kept: ``$PTXMOTION_CACHE``, else ``ptxmotion`` in the user's cache folder."""
    own = os.environ.get("PTXMOTION_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "ptxmotion" if base else Path.home() / ".cache" / "ptxmotion"


class PtxasJudge:
    """Judges PTX text by its machine code. ``arch`` overrides the module's target."""

    def __init__(self, arch: str | None = None, folder: Path | None = None) -> None:
        self.arch = arch
        self.folder = (folder or cache_folder()) / "gate"
        self.tool = find_tool("ptxas")

    def figures(self, ptx: str) -> Mapping[str, dict[str, Any]]:
        """For each kernel ``code``, ``registers``, ``spills``, ``warps``, ``weight``, ``cycles``.

        Raises `ToolchainError`.
        """
        arch = self.arch or arch_for(ptx, self.tool)
        path = self._place(f"{arch}\0{ptx}")
        known = _read(path)
        if known is None:
            try:
                cubin = assemble(ptx, arch, tool=self.tool).cubin
                known = {name: _figures(code) for name, code in read_cubin(cubin).items()}
            except CubinError as error:
                raise ToolchainError(str(error)) from error
            _write(path, known)
        return known

    def recall(self, key: str) -> list[str] | None:
        """What has been kept under ``key``; machine code in the key says for which architecture."""
        found = _read(self._place(f"search\0{key}"))
        return found.get("kept") if found is not None else None

    def remember(self, key: str, value: list[str]) -> None:
        """Keep ``value`` under ``key``."""
        _write(self._place(f"search\0{key}"), {"kept": value})

    def _place(self, identity: str) -> Path:
        whole = f"{_VERSION}\0{self.tool.path}\0{self.tool.version}\0{identity}"
        return self.folder / (hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest() + ".json")


def _figures(code: KernelCode) -> dict[str, Any]:
    weight = sum(8.0 ** min(depth, 6) * sum(kinds.values()) for depth, kinds in enumerate(code.by_depth))
    return {
        "code": f"{code.code_sha256}/{code.data_sha256}",
        "registers": code.registers,
        "spills": code.local_accesses,
        "warps": _warps(code),
        "weight": weight,
        "cycles": code.cycles,
    }


def _warps(code: KernelCode) -> float:
    """Warps on a multiprocessor, 0 where the architecture is not known. The mean over block sizes is the harmonic one,
    since what is shared among the warps is time; a block that does not fit counts as one warp."""
    threads = code.required_threads or code.max_threads
    found = [occupancy(code.sm, each, code.registers, code.shared_bytes) for each in (threads,) if each]
    if not found:
        found = [occupancy(code.sm, each, code.registers, code.shared_bytes) for each in USUAL_THREADS]
    warps = [max(each.warps, 1) for each in found if each is not None]
    return len(warps) / sum(1 / each for each in warps) if warps else 0.0


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not there, or damaged: it is made anew


def _write(path: Path, figures: Mapping[str, Any]) -> None:
    """Keep the figures; a cache that cannot be written costs time only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(figures, file)
        os.replace(name, path)
    except OSError:
        return
