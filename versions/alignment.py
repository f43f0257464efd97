"""Which parameters a version with vector loads needs to be multiples of which numbers.

A vector load must be aligned to its size. The launch knows the addresses of buffers, and scalars such as the length of
a row. So the passes run under the promise that all pointers are multiples of `POINTER` and all integers multiples of
`SCALAR`. Then parameters are left out as long as the passes give the same kernel.

Requires: an entry without nested scopes. Guarantees: under the promise for the returned parameters alone, the passes
give the same kernel as under that for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from ..analysis.memory.alias import Promise
from ..contract import Condition, Holds
from ..contract.expressions import argument, compare
from ..ptx import Kernel

__all__ = ["POINTER", "SCALAR", "aligned_promise", "alignment_conditions", "needed_alignments"]

#: What pointers and integers are assumed to be multiples of: the bytes of the widest load, and its elements of 4 bytes.
POINTER, SCALAR = 16, 4
#: The most parameters that are tried one by one. A trial runs all passes.
_MOST_TRIALS = 12


def aligned_promise(promise: Promise, kernel: Kernel, pointers: Set[str]) -> Promise:
    """``promise``, and that the pointers and the integers of a kernel are aligned."""
    found: set[tuple[str, str, int]] = set()
    for param in kernel.params or ():
        if param.name in pointers:
            found.add((kernel.name, param.name, POINTER))
        elif param.bytes in (4, 8) and param.bytes == param.type.bytes and param.type.kind in "usb":
            found.add((kernel.name, param.name, SCALAR))
    return replace(promise, aligned=frozenset(found))


def needed_alignments(promise: Promise, transformed: Callable[[Promise], str]) -> Promise:
    """The promise without the parameters that the result does not need. ``transformed`` gives the text of the kernel
    after the passes under a promise."""
    wanted = transformed(promise)
    scalars = frozenset(each for each in promise.aligned if each[2] == SCALAR)
    trials = [scalars, *(frozenset([each]) for each in sorted(promise.aligned))]
    for trial in trials[: _MOST_TRIALS + 1]:
        fewer = replace(promise, aligned=promise.aligned - trial)
        if fewer.aligned < promise.aligned and transformed(fewer) == wanted:
            promise = fewer
    return promise


def alignment_conditions(promise: Promise, numbers: Mapping[str, int]) -> tuple[Condition, ...]:
    """The conditions that the parameters of a promise are aligned. ``numbers``: by name of a parameter its number."""
    ordered = sorted((numbers[name], divisor) for _, name, divisor in promise.aligned)
    return tuple(Holds(compare("==", argument(number) % divisor, 0)) for number, divisor in ordered)
