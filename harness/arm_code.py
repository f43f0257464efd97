"""The machine code of an arm: its noise-free figures, and whether two arms have the same machine code.

Requires: ptxas. Guarantees: all arms are assembled by the same ptxas with the same flags; no GPU is used.
Refuses: `PtxasError` for a module that ptxas rejects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..toolchain.cubin import KernelCode, read_cubin
from ..toolchain.cubin_cache import assemble_kept
from ..toolchain.machine_diff import MachineFigures
from ..toolchain.occupancy import occupancy
from ..toolchain.ptxas_log import PtxasFigures, ptxas_figures
from ..toolchain.tools import arch_for, target_of
from .results import hashes

__all__ = ["ArmCode", "arch_on", "assemble_arm"]


def arch_on(ptx: str, sm: int | None) -> str:
    """The target to assemble a module for: one that a GPU of ``sm`` loads, or for None the target of the module.

    >>> arch_on(".target sm_90a", 90), arch_on(".target sm_80", 90)
    ('sm_90a', 'sm_90')
    """
    own = target_of(ptx)
    if sm is None:
        return arch_for(ptx)
    return own if own.removeprefix("sm_").rstrip("af") == str(sm) else f"sm_{sm}"


@dataclass(frozen=True)
class ArmCode:
    """``kernels`` maps module and kernel name to the figures; ``cubin_sha256`` is the hash of all cubins."""

    cubin_sha256: str
    kernels: Mapping[tuple[str, str], MachineFigures]

    def is_same_code(self, other: ArmCode) -> bool:
        """Whether both have the same kernels with equal machine code and resources."""
        return self.kernels.keys() == other.kernels.keys() and all(
            each.code.is_same_code(other.kernels[name].code) for name, each in self.kernels.items()
        )

    def static(self, launches: Mapping[str, tuple[int, int]] | None = None) -> dict[str, dict[str, Any]]:
        """The figures by kernel. ``launches`` maps a kernel to threads of a block and dynamic shared bytes."""
        return {name: _plain(each, (launches or {}).get(name)) for (_, name), each in self.kernels.items()}


def assemble_arm(modules: Mapping[str, str], sm: int | None = None) -> ArmCode:
    """Assemble the modules of an arm for a GPU (`arch_on`). Raises `PtxasError`, `CubinError`, `ToolMissing`."""
    cubins: dict[str, bytes] = {}
    kernels: dict[tuple[str, str], MachineFigures] = {}
    assembled: dict[str, Any] = {}  # by PTX
    for module, ptx in modules.items():
        done = assembled.get(ptx)
        if done is None:
            done = assembled[ptx] = assemble_kept(ptx, arch_on(ptx, sm))
        logged = ptxas_figures(done.log)
        cubins[module] = done.cubin
        for name, code in read_cubin(done.cubin).items():
            spills = logged.get(name, PtxasFigures())
            kernels[module, name] = MachineFigures(code, spills.spill_store_bytes + spills.spill_load_bytes)
    return ArmCode(hashes(cubins), kernels)


def _plain(of: MachineFigures, launch: tuple[int, int] | None) -> dict[str, Any]:
    code: KernelCode = of.code
    figures: dict[str, Any] = {
        "sm": code.sm,
        "code_sha256": code.code_sha256,
        "registers": code.registers,
        "spill_bytes": of.spill_bytes,
        "stack_bytes": code.stack_bytes,
        "shared_bytes": code.shared_bytes,
        "code_bytes": code.code_bytes,
        "instructions": code.instructions,
        "weighted_instructions": of.code.weighted_instructions,
        "loops": code.loops,
        "by_kind": code.by_kind,
        "in_loops": code.in_loops,
    }
    threads = launch[0] if launch else code.required_threads
    if threads:
        shared = code.shared_bytes + (launch[1] if launch else 0)
        occupied = occupancy(code.sm, threads, code.registers, shared)
        if occupied is not None:
            figures["occupancy"] = occupied.share
    return figures
