"""What a kernel may read and write through its parameters: what makes a statement a modification of its launch.

Guarantees: a parameter is left out only where the kernel's PTX shows that nothing is read, or written, through it.
Where an address is not known to come from a parameter, as one that was loaded from memory, the kernel may touch every
buffer there is (`KernelMemory.is_unknown`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.manager import Facts
from ...ptx import Kernel, Module, flatten_scopes

__all__ = ["KernelMemory", "kernel_memory"]


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """Positions of the parameters through which is read and written. ``is_unknown``: and perhaps elsewhere."""

    reads: frozenset[int]
    writes: frozenset[int]
    is_unknown: bool


def kernel_memory(kernel: Kernel, module: Module) -> KernelMemory:
    """The memory of ``kernel``, which stands in ``module`` and is not changed."""
    params = [param.name for param in kernel.params or ()]
    flat = kernel.clone()
    flatten_scopes(flat)
    buffers = Facts(flat, module).memory.buffers
    return KernelMemory(
        frozenset(at for at, name in enumerate(params) if name in buffers.reads),
        frozenset(at for at, name in enumerate(params) if name in buffers.writes),
        buffers.unknown_reads or buffers.unknown_writes,
    )
