"""Which parameters a version with vector loads needs to be multiples of which numbers.

A vector load must be aligned to its size. The launch knows the addresses of buffers, and scalars such as the length of
a row. `assumed_alignments` is that all pointers are multiples of `POINTER` and all integers multiples of `SCALAR`. The
pass that merges loads finds how much of it is needed (`RecordingPromise.merges`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.manager import Facts
from ..analysis.memory.alias import Promise
from ..analysis.memory.points_to import is_pointer_parameter
from ..contract import Condition, Holds
from ..contract.expressions import argument, compare

__all__ = ["POINTER", "SCALAR", "alignment_conditions", "assumed_alignments", "single_pointers"]

#: What pointers and integers are assumed to be multiples of: the bytes of the widest load, and its elements of 4 bytes.
POINTER, SCALAR = 16, 4


def single_pointers(facts: Facts) -> frozenset[str]:
    """The parameters that point to memory which the kernel accesses. What a pointer in a structure points to cannot be
    checked by the launch."""
    buffers = facts.memory.buffers
    single = {param.name for param in facts.kernel.params or () if is_pointer_parameter(param, 64)}
    return frozenset((buffers.reads | buffers.writes) & single)


def assumed_alignments(facts: Facts) -> frozenset[tuple[str, str, int]]:
    """That the pointers and the integers of a kernel are aligned, as in `Promise.aligned`."""
    kernel, pointers = facts.kernel, single_pointers(facts)
    found: set[tuple[str, str, int]] = set()
    for param in kernel.params or ():
        if param.name in pointers:
            found.add((kernel.name, param.name, POINTER))
        elif param.bytes in (4, 8) and param.bytes == param.type.bytes and param.type.kind in "usb":
            found.add((kernel.name, param.name, SCALAR))
    return frozenset(found)


def alignment_conditions(promise: Promise, numbers: Mapping[str, int]) -> tuple[Condition, ...]:
    """The conditions that the parameters of a promise are aligned. ``numbers``: by name of a parameter its number."""
    ordered = sorted((numbers[name], divisor) for _, name, divisor in promise.aligned)
    return tuple(Holds(compare("==", argument(number) % divisor, 0)) for number, divisor in ordered)
