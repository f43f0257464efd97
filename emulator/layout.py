"""Where variables and parameters lie: entry parameters, shared memory, a function's local frame.

Computes: byte offsets under natural or stated alignment. Guarantees: shared variables are `RED_ZONE` bytes apart at
least, so that an access past the end of one is seen and does not reach the next; the sizes that count against the
device's limit leave these gaps out. A variable of a range ``name<n>`` is n variables.
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
    """Bytes: stated, or the element's size."""
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
    """Every object declared in the body, nested scopes included."""
    yield from kernel.variables
    for block in kernel.blocks:
        for instr in block.instrs:
            if isinstance(instr, Directive) and isinstance(instr.declaration, Variable):
                yield instr.declaration


def names_of(variable: Variable) -> list[str]:
    """The name, or those of the range."""
    if variable.count is None:
        return [variable.name]
    return [f"{variable.name}{number}" for number in range(variable.count)]


@dataclass(slots=True)
class SharedLayout:
    """Offsets of shared variables in a block's shared memory; ``dynamic`` is where unsized ones begin."""

    offsets: dict[tuple[Variable, str], int] = field(default_factory=dict[tuple[Variable, str], int])
    sizes: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    static_bytes: int = 0
    dynamic: int = 0

    def stride(self, dynamic_bytes: int) -> int:
        """Bytes of one block's piece, a multiple of 32."""
        return _align(self.dynamic + dynamic_bytes + RED_ZONE, 32)

    def owners(self, dynamic_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        """For each byte of a piece the number of its variable, 0 for a gap."""
        found = np.zeros(self.stride(dynamic_bytes), np.int16)
        for number, (start, size, _) in enumerate(self.sizes, 1):
            found[start : start + size] = number
        if dynamic_bytes:
            found[self.dynamic : self.dynamic + dynamic_bytes] = len(self.sizes) + 1
        return found


def shared_layout(module: Module, functions: Iterable[Kernel], named: set[str]) -> SharedLayout:
    """The layout of module-level shared variables that ``named`` has, and of those in ``functions``."""
    found = SharedLayout()
    wanted = [v for v in module.variables if v.space.startswith("shared") and v.name in named]
    for function in functions:
        wanted += [v for v in local_variables(function) if v.space.startswith("shared")]
    unsized: list[Variable] = []
    end = 0
    align = 16
    for variable in dict.fromkeys(wanted):
        if variable.bytes is None or variable.bytes == 0:
            unsized.append(variable)
            align = max(align, alignment(variable))
            continue
        for name in names_of(variable):
            end = _align(end, alignment(variable))
            found.offsets[variable, name] = end
            found.sizes.append((end, variable.bytes, name))
            found.static_bytes = _align(found.static_bytes, alignment(variable)) + variable.bytes
            end += variable.bytes + RED_ZONE
    found.dynamic = _align(end, align)
    for variable in unsized:
        found.offsets[variable, variable.name] = found.dynamic
    return found


@dataclass(slots=True)
class Frame:
    """A function's local frame: its parameters and results, variables of calls, local arrays; sizes in bytes."""

    offsets: dict[tuple[object, str], int] = field(default_factory=dict[tuple[object, str], int])
    nbytes: int = 0


def local_frame(kernel: Kernel) -> Frame:
    """The frame of ``kernel``; local arrays lie last, so that running past their end leaves the frame."""
    frame = Frame()
    end = 0
    items: list[Param | Variable] = []
    if not kernel.is_entry:
        items += [param for param in [*(kernel.results or ()), *(kernel.params or ())] if param.space == "param"]
    variables = list(local_variables(kernel))
    items += [v for v in variables if v.space == "param"] + [v for v in variables if v.space == "local"]
    for item in items:
        for name in names_of(item) if isinstance(item, Variable) else [item.name]:
            end = _align(end, max(alignment(item), 4))
            frame.offsets[item, name] = end
            end += item.bytes or 0
    frame.nbytes = _align(end, 16) if end else 0
    # The last array may end before the frame's rounded end; the exact end is what accesses are checked against.
    if end:
        frame.nbytes = end
    return frame
