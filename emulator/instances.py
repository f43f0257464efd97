"""Finds branches at which lanes of a warp that execute the same instance of a block take different sides.

Two lanes execute the same instance of a block if they are in the same iterations of all loops around it. Computes: for
each thread the number of its iteration in each loop around a block; and for each branch, how often two such lanes took
different sides. Divergence analysis describes only these branches. The scheduler also merges lanes of which some are an
iteration ahead. There, a branch on the loop counter diverges, although all lanes have the same counter in each
iteration.

Requires: the loop nest, as an argument, since the emulator does not import the analyses. It is a function that gives,
for each block of a kernel, the headers of the loops around it, outermost first. In a loop with several entries,
iterations are counted at its header. Calls are not followed: lanes in a function are compared by its own loops.
Guarantees: results do not depend on the schedule, unless the values that the program computes do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx import Instr, Kernel

if TYPE_CHECKING:
    from .cohort import Cohort
    from .image import Code, Image

__all__ = ["InstanceJudge", "LoopNest"]

Array: TypeAlias = npt.NDArray[Any]
LoopNest: TypeAlias = "Callable[[Kernel], Sequence[Sequence[int]]]"


class InstanceJudge:
    """Observes the branches of launches.

    ``parted`` counts, for each branch, how often lanes of one instance took different sides. ``_enters`` has, for the
    first segment of each loop header, the column of the loop in ``_rounds`` and those of its inner loops. ``_around``
    has, for each segment, the columns of the loops around it. ``_rounds[thread, column]`` is the number of the
    iteration.
    """

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.parted: dict[Instr, int] = {}
        self._nests: dict[Kernel, Sequence[Sequence[int]]] = {}
        self._enters: dict[int, tuple[int, list[int]]] = {}
        self._around: dict[int, list[int]] = {}
        self._rounds: Array = np.zeros((0, 0), np.int64)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels and functions that have been observed."""
        return list(self._nests)

    def start(self, image: Image, threads: int) -> None:
        """Begin a batch with this number of threads."""
        columns: dict[tuple[Kernel, int], int] = {}
        inner: dict[tuple[Kernel, int], set[int]] = {}
        kernels = dict.fromkeys(code.segment.kernel for code in image.codes)
        for kernel in kernels:
            if kernel not in self._nests:
                self._nests[kernel] = self.nest(kernel)
            for headers in self._nests[kernel]:
                for header in headers:
                    columns.setdefault((kernel, header), len(columns))
        for kernel in kernels:
            for headers in self._nests[kernel]:
                for position, header in enumerate(headers):
                    inner_columns = inner.setdefault((kernel, header), set())
                    inner_columns.update(columns[kernel, inner_header] for inner_header in headers[position + 1 :])
        self._enters.clear()
        self._around.clear()
        for code in image.codes:
            kernel, block = code.segment.kernel, code.segment.block
            if code.index in image.starts and (kernel, block) in columns:
                self._enters[code.index] = columns[kernel, block], sorted(inner[kernel, block])
            if block < len(self._nests[kernel]):
                self._around[code.index] = [columns[kernel, header] for header in self._nests[kernel][block]]
        self._rounds = np.zeros((threads, max(len(columns), 1)), np.int64)

    def enter(self, index: int, c: Cohort) -> None:
        """Record that the threads of ``c`` run the segment ``index``."""
        columns = self._enters.get(index)
        if columns is not None:
            column, inner = columns
            self._rounds[c.threads, column] += 1
            for inner_column in inner:
                self._rounds[c.threads, inner_column] = 0

    def judge(self, code: Code, c: Cohort, targets: Array) -> None:
        """Record the targets that the threads of ``c`` take after ``code``: a number for each thread."""
        around = self._around.get(code.index)
        if around is None:
            return
        instances = np.column_stack([c.warps[c.rows], self._rounds[c.threads][:, around]])
        _, group = np.unique(instances, axis=0, return_inverse=True)
        group = group.reshape(-1)
        count = int(group.max()) + 1
        least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
        values = np.broadcast_to(targets, (c.n,)).astype(np.int64)
        np.minimum.at(least, group, values)
        np.maximum.at(most, group, values)
        times = int((least != most).sum())
        assert code.segment.end is not None
        if times:
            end = code.segment.end
            self.parted[end] = self.parted.get(end, 0) + times
