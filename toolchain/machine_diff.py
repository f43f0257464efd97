"""The comparison of the machine code of two PTX modules, kernel by kernel.

Computes: for each kernel of either module, the figures before and after; whether the machine code, and all properties
that matter to a launch or to the linker, are identical; which costs are higher or lower; and the verdict. Spill bytes
are from the log of ptxas, all other figures from the cubin.

Requires: ptxas. The rule of the gate (`cost`) decides whether a kernel is worse.
Guarantees: no GPU is needed, and nothing is timed. Equal input gives equal output.
Refuses: with `PtxasError`, a module that ptxas refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..cost import Figures, is_better, worse
from .cubin import KernelCode, read_cubin
from .ptxas_judge import figures_of, warps
from .ptxas_log import PtxasFigures, ptxas_figures
from .tools import assemble_whole_or_relocatable

__all__ = ["COSTS", "KernelDiff", "MachineFigures", "figures"]

#: The figures that are costs. A kernel with a higher cost is not always worse; the rule of the gate weighs all of them.
COSTS = ("registers", "spill bytes", "stack bytes", "shared bytes", "weighted instructions", "cycles of one warp")

#: Cycles are from a model of latencies. Numbers that differ by a smaller share than this count as equal.
_RESOLUTION = 0.001


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """The figures of one kernel. ``spill_bytes`` is the sum of stored and loaded bytes, as ptxas counts them.

    ``usual``: of a kernel that is split into code for most blocks of threads and code for a few, the machine code of
    the former alone. Weighted instructions and cycles are those of it.
    """

    code: KernelCode
    spill_bytes: int
    usual: KernelCode | None = None

    @property
    def judged(self) -> Figures:
        """The figures that the rule of the gate compares."""
        whole = figures_of(self.code)
        if self.usual is None:
            return whole
        usual = figures_of(self.usual)
        return replace(whole, weight=usual.weight, cycles=usual.cycles)

    def table(self) -> dict[str, int]:
        """The figures by name, costs first."""
        code, usual = self.code, self.usual or self.code
        return {
            "registers": code.registers,
            "spill bytes": self.spill_bytes,
            "stack bytes": code.stack_bytes,
            "shared bytes": code.shared_bytes,
            "weighted instructions": usual.weighted_instructions,
            "cycles of one warp": round(usual.cycles),
            "local accesses": code.local_accesses,
            "warps": round(warps(code)),
            "instructions": code.instructions,
            "instructions in loops": sum(code.in_loops.values()),
            "code bytes": code.code_bytes,
        }


@dataclass(frozen=True, slots=True)
class KernelDiff:
    """One kernel before and after; `None` if a module does not have it."""

    name: str
    before: MachineFigures | None
    after: MachineFigures | None

    @property
    def is_identical(self) -> bool:
        """Whether both run the same instructions on the same constants and variables with the same resources, and have
        the same properties for a launch."""
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
    def worse(self) -> str:
        """Why the kernel is worse by the rule of the gate, or an empty string."""
        if self.before is None:
            return ""
        if self.after is None:
            return "the kernel is missing"
        return worse(self.before.judged, self.after.judged)

    @property
    def verdict(self) -> str:
        """``identical``; ``worse`` or ``better`` by the rule of the gate; ``worse`` if the kernel is missing after;
        ``added`` if it is missing before; else ``different``."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "worse"
        if self.is_identical:
            return "identical"
        before, after = self.before.judged, self.after.judged
        return "worse" if worse(before, after) else "better" if is_better(before, after) else "different"

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """(name, before, after) of further differences: attributes and variables of the module. Hashes of the code and
        of initialised data are included only if nothing else shows the difference."""
        if self.before is None or self.after is None:
            return []
        one, two = self.before.code, self.after.code
        differences = _changes(one.attributes, two.attributes, "")
        differences += _changes(one.variables, two.variables, "variable ")
        if one.code_sha256 != two.code_sha256 and self.before.table() == self.after.table():
            differences.append(("code", one.code_sha256[:12], two.code_sha256[:12]))
        if one.data_sha256 != two.data_sha256 and one.variables == two.variables:
            differences.append(("initialised data", one.data_sha256[:12], two.data_sha256[:12]))
        return differences

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
            "worse": self.worse,
            "grown": list(self.grown),
            "shrunk": list(self.shrunk),
            "changes": [list(change) for change in self.changes],
            "before": _side(self.before),
            "after": _side(self.after),
        }


def _changes(before: Mapping[str, str], after: Mapping[str, str], prefix: str) -> list[tuple[str, str, str]]:
    """(name, before, after) of the entries that differ."""
    names = {**before, **after}
    return [
        (prefix + name, before.get(name, "none"), after.get(name, "none"))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _less(left: dict[str, int], right: dict[str, int]) -> tuple[str, ...]:
    """The costs that are lower in ``left``."""
    limits = {name: right[name] * _RESOLUTION if name.startswith("cycles") else 0 for name in COSTS}
    return tuple(name for name in COSTS if right[name] - left[name] > limits[name])


def _side(side: MachineFigures | None) -> dict[str, Any] | None:
    return {**side.code.to_json(), "figures": side.table()} if side is not None else None


def figures(ptx: str, arch: str | None = None, options: Sequence[str] = ()) -> dict[str, MachineFigures]:
    """Assemble a module with ``options`` of ptxas and read the figures of its kernels. Raises `PtxasError`,
    `CubinError`, `ToolMissing`."""
    done = assemble_whole_or_relocatable(ptx, arch, verbose=True, flags=options)
    from_log = ptxas_figures(done.log)
    by_name: dict[str, MachineFigures] = {}
    for name, code in read_cubin(done.cubin).items():
        logged = from_log.get(name, PtxasFigures())
        by_name[name] = MachineFigures(code, logged.spill_store_bytes + logged.spill_load_bytes)
    return by_name
