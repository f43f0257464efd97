"""What ptxas reports about a kernel, in the form that kernel fusion reads: occupancy, spills, resident blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from ..arch import MAX_THREADS

if TYPE_CHECKING:
    from ..harness.arm_code import ArmCode
    from ..transforms.kernel_fusion.benefit import Resources
    from ..transforms.kernel_fusion.kernel_code import KernelCode

__all__ = ["ptx_resources", "residency"]


@cache
def _assembled(ptx: str) -> ArmCode:
    """The machine code of a module. Memoized by its text."""
    from ..harness.arm_code import assemble_arm

    return assemble_arm({"module": ptx})


def residency(multiprocessors: int) -> Callable[[KernelCode, int, int], int | None]:
    """A function that counts the resident blocks on a GPU with ``multiprocessors`` multiprocessors.

    Its arguments are a kernel, the threads of a block, and the bytes of dynamic shared memory of a block. It returns
    how many such blocks the GPU runs at the same time. It returns None where ptxas is missing or the architecture is
    unknown, and 0 where ptxas rejects the kernel.
    """
    from ..toolchain.occupancy import occupancy
    from ..toolchain.tools import ToolFailed, ToolMissing

    def resident_blocks(code: KernelCode, threads: int, shared: int) -> int | None:
        try:
            machine = _assembled(code.text).kernels["module", code.entry.name].code
        except ToolMissing:
            return None
        except ToolFailed:
            return 0
        occupied = occupancy(machine.sm, threads, machine.registers, machine.shared_bytes + shared)
        return None if occupied is None else occupied.blocks * multiprocessors

    return resident_blocks


def ptx_resources() -> Callable[[KernelCode, int], Resources | None]:
    """A function from a kernel and the threads of a block to its occupancy and spills. Requires ptxas."""
    from ..toolchain.occupancy import occupancy
    from ..toolchain.tools import ToolFailed
    from ..transforms.kernel_fusion.benefit import Resources

    def resources(code: KernelCode, threads: int) -> Resources | None:
        try:
            kernel = _assembled(code.text).kernels["module", code.entry.name]
        except ToolFailed:
            return Resources(0.0, 0)  # ptxas rejects the kernel, so no block of it can run
        block = min(max(threads, 1), MAX_THREADS)
        occupied = occupancy(kernel.code.sm, block, kernel.code.registers, kernel.code.shared_bytes)
        return None if occupied is None else Resources(occupied.share, kernel.spill_bytes)

    return resources
