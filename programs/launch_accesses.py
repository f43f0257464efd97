"""What the kernels of an arm read and write, for timing as a graph with the real dependences (`…+branches`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..harness.workload import Arm
from .fused_variants import host_of

if TYPE_CHECKING:
    from ..suites.registry import Benchmark

__all__ = ["with_accesses"]


def with_accesses(arm: Arm, benchmark: Benchmark) -> Arm:
    """The arm with the accesses of its kernels, if its launch mode needs them. Raises `DslError`, `PtxError`."""
    if arm.launch != "branches" or arm.error:
        return arm
    from ..transforms.kernel_fusion.kernel_code import KernelCodes

    host, ptx = host_of(benchmark, arm.modules)
    codes = KernelCodes(ptx)
    found: dict[tuple[str, str], tuple[frozenset[int], frozenset[int]]] = {}
    for kernel in host.kernels.values():
        code = codes.of(kernel)
        if not code.memory.is_unknown:
            found[code.text, code.entry.name] = frozenset(code.memory.reads), frozenset(code.memory.writes)
    return replace(arm, accesses=found)
