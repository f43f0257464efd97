"""The judge of the gate that uses ptxas: it assembles a module and reads the figures of each kernel.

Figures are cached on disk, so a second run does not start ptxas. The key is a hash of the text, the architecture, the
identity of ptxas, and the source of the code that reads a cubin. ``-lineinfo`` does not change the machine code, so
`float_lines` reads the figures of its cubin as well. Requires: ptxas. Guarantees: the
figures are those of the cubin. A damaged entry is computed again (`cache`). Refuses: with `ToolchainError`, a module
that ptxas refuses, that makes it crash, or that takes too long. This is not cached.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arch import WARP
from ..cache import Cache, cache_folder, source_digest
from ..cost import BLOCK_WARPS, SCHEDULERS, Figures, Piece
from ..work_times import WorkTimes
from .tools import Tool, ToolchainError, arch_for, assemble_whole_or_relocatable, find_tool

if TYPE_CHECKING:
    from .cubin import KernelCode

__all__ = ["CACHED", "PTXAS", "READING", "SECONDS", "PtxasJudge", "figures_of", "largest_block", "resident", "warps"]

#: The names of the work of a judge, for `--time-passes`.
PTXAS, READING, CACHED = "runs of ptxas", "reading of machine code", "results from the cache"

#: The numbers of threads of a block if the kernel does not fix one. `warps` takes the mean over them.
USUAL_THREADS = (128, 256, 512)

#: The large blocks that must stay possible: each takes half of the registers that a thread of the next one can have.
LARGE_BLOCKS = (1024, 512, 256)

#: The time limit of ptxas for one module, in seconds.
SECONDS = 300.0


class PtxasJudge:
    """Judges PTX text by its machine code. ``arch`` overrides the target of the module. ``seconds`` is the time limit
    of ptxas. ``options`` are passed to ptxas. ``tool`` is the ptxas (default: that of `find_tool`). ``times`` are those
    of its work: `PTXAS`, `READING`, `CACHED`."""

    def __init__(
        self,
        arch: str | None = None,
        folder: Path | None = None,
        seconds: float = SECONDS,
        options: Sequence[str] = (),
        tool: Tool | None = None,
    ) -> None:
        self.arch = arch
        self.seconds = seconds
        self.cache = Cache("gate", folder or cache_folder())
        self.options = tuple(options)
        self.tool = tool or find_tool("ptxas")
        self.times = WorkTimes()
        #: Architecture and digest of a PTX text → its figures, from the cubin that `float_lines` read.
        self._from_lines: dict[tuple[str, str], dict[str, Figures]] = {}

    def figures(self, ptx: str) -> dict[str, Figures]:
        """The figures of each kernel by name. Raises `ToolchainError`."""
        try:
            return self._figures(ptx)
        except OSError as error:
            raise _not_run(error) from error

    def _figures(self, ptx: str) -> dict[str, Figures]:
        arch = self.arch or arch_for(ptx, self.tool)
        known = self._known_figures(ptx, arch)
        return known if known is not None else self._read_and_put(self._assembled(ptx, arch), ptx, arch)

    def known_figures(self, ptx: str) -> dict[str, Figures] | None:
        """The figures of each kernel by name where they need no run of ptxas; otherwise `None`. Raises
        `ToolchainError`."""
        try:
            return self._known_figures(ptx, self.arch or arch_for(ptx, self.tool))
        except OSError as error:
            raise _not_run(error) from error

    def _known_figures(self, ptx: str, arch: str) -> dict[str, Figures] | None:
        cached = self._get("figures", arch, ptx)
        if cached is not None:
            return {name: _figures_from(fields) for name, fields in cached.items()}
        return self._from_lines.get((arch, _digest(ptx)))

    def _read_and_put(self, cubin: bytes, ptx: str, arch: str) -> dict[str, Figures]:
        with self.times.measure(READING):
            by_kernel = _read_figures(cubin)
        self._put({name: asdict(figures) for name, figures in by_kernel.items()}, "figures", arch, ptx)
        return by_kernel

    def float_lines(self, ptx: str) -> dict[str, dict[int, frozenset[str]]]:
        """The kinds of floating-point machine instructions for each line of ``ptx`` (`float_lines.py`), by kernel.
        Raises `ToolchainError`."""
        try:
            return self._float_lines(ptx)
        except OSError as error:
            raise _not_run(error) from error

    def _float_lines(self, ptx: str) -> dict[str, dict[int, frozenset[str]]]:
        arch = self.arch or arch_for(ptx, self.tool)
        cached = self._get("lines", arch, ptx)
        if cached is not None:
            return {
                name: {int(line): frozenset(kinds) for line, kinds in lines.items()} for name, lines in cached.items()
            }
        cubin = self._assembled(ptx, arch, "-lineinfo")
        self._from_lines[arch, _digest(ptx)] = self._read_and_put(cubin, ptx, arch)
        with self.times.measure(READING):
            by_kernel = _read_lines(cubin)
        value = {name: {line: sorted(kinds) for line, kinds in lines.items()} for name, lines in by_kernel.items()}
        self._put(value, "lines", arch, ptx)
        return by_kernel

    def _assembled(self, ptx: str, arch: str, *flags: str) -> bytes:
        with self.times.measure(PTXAS):
            options = (*self.options, *flags)
            return assemble_whole_or_relocatable(ptx, arch, tool=self.tool, timeout=self.seconds, flags=options).cubin

    def recall(self, key: str) -> Any:
        """The value that `remember` stored under ``key`` for this architecture, or `None`."""
        entry = self._get("kept", str(self.arch), key)
        return entry["kept"] if entry is not None else None

    def remember(self, key: str, value: Any) -> None:
        """Store ``value``, which JSON can represent, under ``key`` for this architecture."""
        self._put({"kept": value}, "kept", str(self.arch), key)

    def _get(self, *key: str) -> dict[str, Any] | None:
        started = time.perf_counter()
        whole = self._key(key)
        body = self.cache.get(*whole) if whole else None
        if body is None:
            return None
        value = json.loads(body)
        self.times.add(CACHED, time.perf_counter() - started)
        return value

    def _put(self, value: Mapping[str, Any], *key: str) -> None:
        whole = self._key(key)
        if whole:
            self.cache.put(json.dumps(value).encode(), *whole)

    def _key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """``key`` with the identities of ptxas and of our code; empty, so that nothing is cached, if one cannot be
        read."""
        try:
            return (_readers(), self.tool.identity, repr(self.options), *key)
        except OSError:
            return ()


def _figures_from(fields: dict[str, Any]) -> Figures:
    """Figures from their form in JSON."""
    fields["pieces"] = tuple(Piece(*each) for each in fields["pieces"])
    fields["resident"] = tuple(fields["resident"])
    return Figures(**fields)


def _read_figures(cubin: bytes) -> dict[str, Figures]:
    """The figures of each kernel in a cubin. Raises `ToolchainError`."""
    from .cubin import CubinError, read_cubin  # slow to import, and most runs find their figures in the cache

    try:
        return {name: figures_of(code) for name, code in read_cubin(cubin).items()}
    except CubinError as error:
        raise ToolchainError(str(error)) from error


def _read_lines(cubin: bytes) -> dict[str, dict[int, frozenset[str]]]:
    """The kinds of instructions by kernel and line. Raises `ToolchainError`."""
    from .cubin import CubinError
    from .float_lines import float_lines

    try:
        return float_lines(cubin)
    except CubinError as error:
        raise ToolchainError(str(error)) from error


def _digest(ptx: str) -> str:
    return hashlib.sha256(ptx.encode("utf-8", "surrogateescape")).hexdigest()


def _not_run(error: OSError) -> ToolchainError:
    """ptxas cannot be started, or there is no room for its files."""
    place = f": {error.filename}" if error.filename else ""
    return ToolchainError(f"ptxas cannot be run: {error.strerror}{place}")


def figures_of(code: KernelCode) -> Figures:
    """The figures of a kernel that the gate compares."""
    return Figures(
        code=f"{code.code_sha256}/{code.data_sha256}",
        registers=code.registers,
        spills=code.local_accesses,
        warps=warps(code),
        weight=float(code.weighted_instructions),
        cycles=code.cycles,
        exposed=code.exposed,
        cached=code.cached,
        looped=code.looped,
        quickest=code.quickest,
        fetched=code.fetched,
        weight_in_loops=float(code.weighted_in_loops),
        requests=float(code.weighted_requests),
        pieces=tuple(Piece(*each) for each in code.pieces),
        barriers=float(code.weighted_of("barrier")),
        sm=code.sm,
        threads=largest_block(code),
        resident=resident(code),
    )


def largest_block(code: KernelCode) -> int:
    """The threads of the largest block with which the driver launches a kernel; 0 if the architecture is not known.
    ptxas limits the registers so that a block fits which the kernel states, unless ``.maxnreg`` allows more. Otherwise
    only `LARGE_BLOCKS` are considered: 512 threads are the answer for a kernel that can also be launched with 768."""
    from .occupancy import occupancy

    stated = code.required_threads or code.max_threads
    sizes = (stated, *(each for each in LARGE_BLOCKS if each < stated)) if stated else LARGE_BLOCKS
    fitting = ((each, occupancy(code.sm, each, code.registers, code.shared_bytes)) for each in sizes)
    return next((each for each, found in fitting if found is not None and found.blocks), 0)


def resident(code: KernelCode) -> tuple[int, ...]:
    """The warps on a multiprocessor for each size of block in `cost.BLOCK_WARPS`, but not larger than the block that
    the kernel states; empty if the architecture is not known."""
    from .occupancy import occupancy

    stated = code.required_threads or code.max_threads or LARGE_BLOCKS[0]
    sizes = [min(each * SCHEDULERS * WARP, stated) for each in BLOCK_WARPS]
    found = [occupancy(code.sm, each, code.registers, code.shared_bytes) for each in sizes]
    return tuple(each.warps for each in found if each is not None)


def warps(code: KernelCode) -> float:
    """The number of warps on a multiprocessor; 0 if the architecture is not known. The mean over block sizes is the
    harmonic mean, because time is inverse to it. A block that does not fit counts as one warp."""
    from .occupancy import occupancy

    threads = code.required_threads or code.max_threads
    occupancies = [occupancy(code.sm, each, code.registers, code.shared_bytes) for each in (threads,) if each]
    if not occupancies:
        occupancies = [occupancy(code.sm, each, code.registers, code.shared_bytes) for each in USUAL_THREADS]
    fitting = [max(each.warps, 1) for each in occupancies if each is not None]
    return len(fitting) / sum(1 / each for each in fitting) if fitting else 0.0


@cache
def _readers() -> str:
    """A hash of the source of the code that reads figures. It is a part of the keys of the cache."""
    root = Path(__file__).parents[1]
    return source_digest(root, [".", "toolchain"])
