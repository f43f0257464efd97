"""Loads of at most 32 bits into registers of 64 bits, such as ``ld.global.s32 %rd1, [%rd2]``.

nvcc makes them of ``a[b[i]]``: the load extends the index. So a value of 64 bits is known to be an extended one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ptx import Reg
from ...ptx.operations import Operation
from ..fact_marks import for_any_promise

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["wide_loads"]


@for_any_promise
def wide_loads(facts: Facts) -> dict[int, str]:
    """By class of the value that such a load gives: ``s`` if the load sign-extends, ``u`` if it zero-extends."""
    found: dict[int, str] = {}
    for instr in facts.kernel.instructions():
        form = instr.form
        if form.operation is not Operation.LOAD or form.lanes != 1 or form.type is None or instr.guard is not None:
            continue
        result = instr.operands[0]
        is_wide = isinstance(result, Reg) and result.type.bits == 64 and form.type.bits <= 32
        if is_wide and form.type.kind in "su" and form.type.lanes == 1 and instr in facts.values.result:
            found[facts.values.result[instr]] = form.type.kind
    return found
