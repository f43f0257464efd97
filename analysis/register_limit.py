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
    maximum = _numbers(kernel.directive("maxnreg"))
    if maximum:
        limits.append(maximum[0])
    threads = _numbers(kernel.directive("reqntid")) or _numbers(kernel.directive("maxntid"))
    if threads:
        blocks = _numbers(kernel.directive("minnctapersm")) or [1]
        resident = -(-prod(threads) // WARP) * WARP * blocks[0]
        if resident > 0:
            limits.append(most_registers(resident))
    return min(limits)


def _numbers(text: str | None) -> list[int]:
    """The operands of a directive as numbers; empty if one is not a decimal number."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    return [int(word) for word in words] if all(word.isdigit() for word in words) else []
