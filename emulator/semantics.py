"""The lane function of a form of the opcode table.

Computes: the arithmetic of a mnemonic over lanes, specialised for its types and modifiers.
Requires: the names in the column `semantics` of `ptx.ops`. Guarantees: each form has one function, which is made once.
Refuses: a form without arithmetic (memory, control, synchronisation) or without meaning, with ``None``. The emulator
    then refuses the kernel by name before anything runs.
"""

from __future__ import annotations

from functools import cache

from ..ptx.notation import Form
from . import lanes_approx, lanes_bits, lanes_compare, lanes_convert, lanes_float, lanes_half, lanes_int
from .lane_types import Factory, LaneFunction, Lanes

__all__ = ["FACTORIES", "LaneFunction", "Lanes", "resolve"]

#: The factories of all lane functions by the name in the opcode table.
FACTORIES: dict[str, Factory] = {
    **lanes_int.FACTORIES,
    **lanes_bits.FACTORIES,
    **lanes_compare.FACTORIES,
    **lanes_float.FACTORIES,
    **lanes_half.FACTORIES,
    **lanes_convert.FACTORIES,
    **lanes_approx.FACTORIES,
}


@cache
def resolve(form: Form) -> LaneFunction | None:
    """The lane function of ``form``, or ``None`` where it has none.

    Sources are raw bits, in operand order after the results. ``setp`` always gives two results. A result may be one of
    the sources itself.

    >>> import numpy as np
    >>> from ptxmotion.ptx.decoding import decode
    >>> add = resolve(decode("add.sat.s32"))
    >>> add([np.array([0x7FFFFFFF], np.uint32), np.array([1], np.uint32)])
    (array([2147483647], dtype=uint32),)
    """
    factory = FACTORIES.get(form.op.semantics)
    return factory(form) if factory is not None else None
