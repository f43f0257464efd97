"""The layout of entry parameters, of shared memory, and of the local frame of a function.

Computes: byte offsets, with natural or stated alignment. Guarantees: shared variables, and the local arrays of a
function, are at least `RED_ZONE` bytes apart, so that an access after the end of a variable is found and does not reach
the next one. These gaps do not count in the sizes that are compared with the limit of the device. A variable with a
range ``name<n>`` is n variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ..ptx.instructions import Directive
from ..ptx.ir import Kernel, Module, Param, Variable

__all__ = [
    "Frame",
    "ParamLayout",
    "SharedLayout",
    "alignment",
    "local_frame",
    "local_variables",
    "param_layout",
    "shared_layout",
]

RED_ZONE = 32


def alignment(item: Param | Variable) -> int:
    """The alignment in bytes: as stated, or else the size of an element."""
    return item.align or max(item.type.bytes * item.lanes, 1)


def _align(offset: int, align: int) -> int:
    return -(-offset // align) * align


@dataclass(frozen=True, slots=True)
class ParamLayout:
    """Offsets of an entry's parameters in the parameter block, and its size."""

    offsets: dict[str, int]
    nbytes: int


def param_layout(params: Iterable[Param]) -> ParamLayout:
    """The layout of ``params``."""
    offsets: dict[str, int] = {}
    end = 0
    for param in params:
        end = _align(end, alignment(param))
        offsets[param.name] = end
        end += param.bytes
    return ParamLayout(offsets, end)


def local_variables(kernel: Kernel) -> Iterator[Variable]:
    """Every variable declared in the body, also in nested scopes."""
    yield from kernel.variables
    for block in kernel.blocks:
        for instr in block.instrs:
            if isinstance(instr, Directive) and isinstance(instr.declaration, Variable):
                yield instr.declaration


def names_of(variable: Variable) -> list[str]:
    """The name, or the names of a range."""
    if variable.count is None:
        return [variable.name]
    return [f"{variable.name}{number}" for number in range(variable.count)]


@dataclass(slots=True)
class SharedLayout:
    """The layout of the shared memory of a block.

    ``offsets`` has the offset of each variable and name, ``sizes`` the start, size and name of each sized variable.
    ``dynamic`` is the offset of all unsized variables.
    """

    offsets: dict[tuple[Variable, str], int] = field(default_factory=dict[tuple[Variable, str], int])
    sizes: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    static_bytes: int = 0
    dynamic: int = 0

    def stride(self, dynamic_bytes: int) -> int:
        """The bytes from the shared memory of one block to that of the next, a multiple of 32."""
        return _align(self.dynamic + dynamic_bytes + RED_ZONE, 32)

    def owners(self, dynamic_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        """For each byte of the shared memory of a block, the number of its variable; 0 in a gap."""
        numbers = np.zeros(self.stride(dynamic_bytes), np.int16)
        for number, (start, size, _) in enumerate(self.sizes, 1):
            numbers[start : start + size] = number
        if dynamic_bytes:
            numbers[self.dynamic : self.dynamic + dynamic_bytes] = len(self.sizes) + 1
        return numbers


def shared_layout(module: Module, functions: Iterable[Kernel], named: set[str]) -> SharedLayout:
    """The layout of the module-level shared variables in ``named``, and of those declared in ``functions``."""
    layout = SharedLayout()
    variables = [v for v in module.variables if v.space.startswith("shared") and v.name in named]
    for function in functions:
        variables += [v for v in local_variables(function) if v.space.startswith("shared")]
    unsized: list[Variable] = []
    end = 0
    align = 16
    for variable in dict.fromkeys(variables):
        if variable.bytes is None or variable.bytes == 0:
            unsized.append(variable)
            align = max(align, alignment(variable))
            continue
        for name in names_of(variable):
            end = _align(end, alignment(variable))
            layout.offsets[variable, name] = end
            layout.sizes.append((end, variable.bytes, name))
            layout.static_bytes = _align(layout.static_bytes, alignment(variable)) + variable.bytes
            end += variable.bytes + RED_ZONE
    layout.dynamic = _align(end, align)
    for variable in unsized:
        layout.offsets[variable, variable.name] = layout.dynamic
    return layout


@dataclass(slots=True)
class Frame:
    """The local frame of a function: parameters and results, variables for calls, local arrays.

    ``offsets`` has the offset of each of these with its name, ``nbytes`` the size, ``variable_bytes`` the size without
    gaps. ``owners`` has for each byte the number of its variable, 0 in a gap; it is `None` without gaps.
    """

    offsets: dict[tuple[object, str], int] = field(default_factory=dict[tuple[object, str], int])
    nbytes: int = 0
    variable_bytes: int = 0
    owners: np.ndarray[tuple[int], np.dtype[np.int32]] | None = None


def local_frame(kernel: Kernel) -> Frame:
    """The frame of ``kernel``. Local arrays are last, so that an access after their end is outside of the frame."""
    frame = Frame()
    items: list[Param | Variable] = []
    if not kernel.is_entry:
        items += [param for param in [*(kernel.results or ()), *(kernel.params or ())] if param.space == "param"]
    variables = list(local_variables(kernel))
    items += [v for v in variables if v.space == "param"] + [v for v in variables if v.space == "local"]
    parts: list[tuple[int, int]] = []
    end = 0  # the exact end of the last item: accesses are checked against it
    for item in items:
        for name in names_of(item) if isinstance(item, Variable) else [item.name]:
            align = max(alignment(item), 4)
            start = _align(end + (RED_ZONE if parts and item.space == "local" else 0), align)
            end = start + (item.bytes or 0)
            frame.offsets[item, name] = start
            frame.variable_bytes = _align(frame.variable_bytes, align) + (item.bytes or 0)
            parts.append((start, end))
    frame.nbytes = end
    if len(parts) > 1 and items[-1].space == "local":
        frame.owners = np.zeros(end, np.int32)
        for number, (start, stop) in enumerate(parts, 1):
            frame.owners[start:stop] = number
    return frame
