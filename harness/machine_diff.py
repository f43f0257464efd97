"""Compare what ptxas makes of two PTX modules, kernel by kernel.

Computes: for each kernel name of either module the figures of both, whether the machine code is identical, and whether
any figure grew. Spills come from ptxas's log, all else from the cubin.

Requires: ptxas. Guarantees: no GPU is asked and nothing is timed; equal input gives equal output.
Refuses: what ptxas refuses, with `PtxasError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cubin import KernelCode, read_cubin
from .ptxas_log import PtxasFigures, ptxas_figures
from .toolchain import assemble

__all__ = ["COSTS", "Figures", "KernelDiff", "compare", "figures"]

#: How often an instruction in a loop of depth d is taken to run, for want of a profile: this to the power of d, d being
#: at most `_DEEPEST`, since the depth of what is called through a pointer is a bound and no more.
_TRIPS = 8
_DEEPEST = 6

#: The figures that are costs: a kernel is worse when one of them grew.
COSTS = ("registers", "spill bytes", "stack bytes", "shared bytes", "weighted instructions", "cycles of one warp")

#: Cycles come from a model of latencies; what differs by less than this share is the same.
_RESOLUTION = 0.001


@dataclass(frozen=True, slots=True)
class Figures:
    """What one kernel takes. ``spill_bytes`` are those stored and those loaded, as ptxas counts them."""

    code: KernelCode
    spill_bytes: int

    @property
    def weighted_instructions(self) -> int:
        """Machine instructions, each counted `_TRIPS` to the power of its loop depth times."""
        return sum(
            sum(kinds.values()) * _TRIPS ** min(depth, _DEEPEST) for depth, kinds in enumerate(self.code.by_depth)
        )

    def table(self) -> dict[str, int]:
        """The figures by name, costs first."""
        code = self.code
        return {
            "registers": code.registers,
            "spill bytes": self.spill_bytes,
            "stack bytes": code.stack_bytes,
            "shared bytes": code.shared_bytes,
            "weighted instructions": self.weighted_instructions,
            "cycles of one warp": round(code.cycles),
            "instructions": code.instructions,
            "instructions in loops": sum(code.in_loops.values()),
            "code bytes": code.code_bytes,
        }


@dataclass(frozen=True, slots=True)
class KernelDiff:
    """One kernel before and after; `None` where a module does not have it."""

    name: str
    before: Figures | None
    after: Figures | None

    @property
    def is_identical(self) -> bool:
        """Whether both run the same instructions on the same constants with the same resources."""
        return self.before is not None and self.after is not None and self.before.code.is_same_code(self.after.code)

    @property
    def grown(self) -> tuple[str, ...]:
        """The costs that are higher after than before."""
        if self.before is None or self.after is None:
            return ()
        return _less(self.before.table(), self.after.table())

    @property
    def shrunk(self) -> tuple[str, ...]:
        """The costs that are lower after than before."""
        if self.before is None or self.after is None:
            return ()
        return _less(self.after.table(), self.before.table())

    @property
    def verdict(self) -> str:
        """``identical``; ``worse`` where a cost grew or the kernel is missing after; ``better`` where costs only
        shrank; ``added``; else ``different``."""
        if self.before is None:
            return "added"
        if self.after is None or self.grown:
            return "worse"
        if self.is_identical:
            return "identical"
        return "better" if self.shrunk else "different"

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Machine instructions by class, before and after."""
        before = self.before.code.by_kind if self.before is not None else {}
        after = self.after.code.by_kind if self.after is not None else {}
        return {kind: (before.get(kind, 0), after.get(kind, 0)) for kind in sorted({*before, *after})}

    def to_json(self) -> dict[str, Any]:
        """All figures of both sides."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "grown": list(self.grown),
            "shrunk": list(self.shrunk),
            "before": _side(self.before),
            "after": _side(self.after),
        }


def _less(left: dict[str, int], right: dict[str, int]) -> tuple[str, ...]:
    """The costs that are lower on the left."""
    limits = {name: right[name] * _RESOLUTION if name.startswith("cycles") else 0 for name in COSTS}
    return tuple(name for name in COSTS if right[name] - left[name] > limits[name])


def _side(side: Figures | None) -> dict[str, Any] | None:
    return {**side.code.to_json(), "figures": side.table()} if side is not None else None


def figures(ptx: str, arch: str | None = None) -> dict[str, Figures]:
    """Assemble a module and read the figures of its kernels. Raises `PtxasError`, `CubinError`, `ToolMissing`."""
    done = assemble(ptx, arch, verbose=True)
    told = ptxas_figures(done.log)
    found: dict[str, Figures] = {}
    for name, code in read_cubin(done.cubin).items():
        said = told.get(name, PtxasFigures())
        found[name] = Figures(code, said.spill_store_bytes + said.spill_load_bytes)
    return found


def compare(before: str, after: str, arch: str | None = None) -> list[KernelDiff]:
    """The kernels of two modules side by side, in the order of the first, then those only the second has."""
    first, second = figures(before, arch), figures(after, arch)
    return [KernelDiff(name, first.get(name), second.get(name)) for name in {**first, **second}]
