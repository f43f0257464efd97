"""The number of registers that a thread of a kernel may use before ptxas spills values to local memory.

Computes: the minimum of the hardware limit (255) and of the limits from the directives of the kernel: ``.maxnreg``, and
that with which the resident threads fit that ``.maxntid`` or ``.reqntid`` and ``.minnctapersm`` require.
Reference: PTX ISA 9.0, §11.4 (performance-tuning directives); CUDA C++ Programming Guide, compute capabilities.
"""

from __future__ import annotations

from math import prod

from ..arch import MAX_REGISTERS, WARP, most_registers
from ..ptx import Kernel

__all__ = ["register_limit"]


def register_limit(kernel: Kernel) -> int:
    """The limit per thread, in registers of 32 bits.

    >>> from ptxmotion.ptx import Kernel
    >>> register_limit(Kernel("k", True, directives=[".maxntid 512, 1, 1"]))
    128
    """
    limits = [MAX_REGISTERS]
    maximum = kernel.directive_numbers("maxnreg")
    if maximum:
        limits.append(maximum[0])
    threads = kernel.directive_numbers("reqntid") or kernel.directive_numbers("maxntid")
    if threads:
        blocks = kernel.directive_numbers("minnctapersm") or (1,)
        resident = -(-prod(threads) // WARP) * WARP * blocks[0]
        if resident > 0:
            limits.append(most_registers(resident))
    return min(limits)
