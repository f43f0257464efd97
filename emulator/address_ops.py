"""Generic addresses: `cvta`, `cvta.to`, `isspacep`. PTX ISA 9.0, §9.7.9.20 and §9.7.9.21.

Guarantees: global, constant and parameter addresses are also their generic addresses. Shared and local addresses are
moved into their windows. `isspacep.param` is about the parameters of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.types import TYPES
from .memory import Windows
from .registers import Binder, Refused, dtype_of
from .segments import semantics

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"


def _window(windows: Windows, space: str) -> int:
    return {"shared": windows.shared, "local": windows.local}.get(space, 0)


def bind(binder: Binder, instr: Instr, windows: Windows) -> Step:
    """The step of an address conversion or of `isspacep`."""
    name = semantics(instr)
    if name == "address_isspacep":
        return _isspacep(binder, instr, windows)
    form = instr.form
    if form.type is None:
        raise Refused("")
    read = binder.source(instr.operands[1], form.type)
    write = binder.destination(instr.operands[0], form.type)
    guard = binder.guard(instr)
    start = _window(windows, form.space)
    if not start:
        return lambda c: write(c, read(c), None if guard is None else guard(c))
    dtype = dtype_of(form.type)
    step = dtype.type(start)
    if name == "address_cvta_to":
        return lambda c: write(c, read(c) - step, None if guard is None else guard(c))
    return lambda c: write(c, read(c) + step, None if guard is None else guard(c))


def _isspacep(binder: Binder, instr: Instr, windows: Windows) -> Step:
    read = binder.source(instr.operands[1], None)
    write = binder.destination(instr.operands[0], TYPES["pred"])
    guard = binder.guard(instr)
    space = instr.form.space

    def step(c: Cohort) -> None:
        address = read(c).astype(np.int64)
        write(c, _is_in(c, address, space, windows), None if guard is None else guard(c))

    return step


def _is_in(c: Cohort, address: Array, space: str, windows: Windows) -> Array:
    def within(start: int) -> Array:
        return (address >= start) & (address < start + windows.size)

    if space in ("shared", "local"):
        return within(_window(windows, space))

    def within_objects(kind: str) -> Array:
        is_inside = np.zeros(address.shape, bool)
        for target in c.batch.launch.space.objects:
            if target.space == kind:
                is_inside |= (address >= target.base) & (address < target.base + target.nbytes)
        return is_inside

    if space in ("const", "param"):
        return within_objects(space)
    # On Hopper, the global window contains the parameters, but not the constants.
    return ~within(windows.shared) & ~within(windows.local) & ~within_objects("const")
