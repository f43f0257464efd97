"""Which parameters a kernel may read and write through.

This decides whether a host statement is a modification statement of the kernel's launch.
Guarantees: a parameter is left out only if the kernel's PTX shows that nothing is read, or written, through it. If an
address does not provably come from a parameter, for example because it was loaded from memory, the kernel may access
any buffer (`KernelMemory.is_unknown`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.manager import Facts
from ...ptx import Kernel, Module, flatten_scopes

__all__ = ["KernelMemory", "kernel_memory"]


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """``reads`` and ``writes`` are positions of parameters. ``is_unknown``: the kernel may also access memory that
    these parameters do not point to."""

    reads: frozenset[int]
    writes: frozenset[int]
    is_unknown: bool


def kernel_memory(kernel: Kernel, module: Module) -> KernelMemory:
    """The memory that ``kernel`` of ``module`` accesses. Neither is changed."""
    params = [param.name for param in kernel.params or ()]
    flat = kernel.clone()
    flatten_scopes(flat)
    buffers = Facts(flat, module).memory.buffers
    return KernelMemory(
        frozenset(at for at, name in enumerate(params) if name in buffers.reads),
        frozenset(at for at, name in enumerate(params) if name in buffers.writes),
        buffers.unknown_reads or buffers.unknown_writes,
    )
