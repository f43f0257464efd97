"""Which branches part lanes of a warp that execute the same instance of a block.

Computes: for each thread how many rounds it is into each loop around a block; and of each branch whose lanes disagree,
whether two lanes disagree that are in the same rounds. An analysis of divergence speaks of those only: the scheduler
merges lanes that meet at one instruction, also where some are a round ahead, and then a counter "diverges" that is the
same for all in every round.

Requires: the loop nest, handed in, since the emulator sees no analysis: a function that gives, for each block of a
kernel, the headers of the loops around it, outermost first; in a loop with several entries the rounds are those of its
header. Calls are not looked into: lanes in a function are compared by its own loops.
Guarantees: schedules do not matter, but for values that do depend on them.
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
    """Judges the branches of launches. ``parted`` counts, for each branch, how often lanes of one instance parted."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.parted: dict[Instr, int] = {}
        self._nests: dict[Kernel, Sequence[Sequence[int]]] = {}
        self._enters: dict[int, tuple[int, list[int]]] = {}
        self._around: dict[int, list[int]] = {}
        self._rounds: Array = np.zeros((0, 0), np.int64)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels and functions that have been judged."""
        return list(self._nests)

    def start(self, image: Image, threads: int) -> None:
        """Begin a batch of so many threads."""
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
                    found = inner.setdefault((kernel, header), set())
                    found.update(columns[kernel, each] for each in headers[position + 1 :])
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
        """The threads of ``c`` run the segment ``index``."""
        found = self._enters.get(index)
        if found is not None:
            column, inner = found
            self._rounds[c.threads, column] += 1
            for each in inner:
                self._rounds[c.threads, each] = 0

    def judge(self, code: Code, c: Cohort, ways: Array) -> None:
        """The threads of ``c`` go on by ``ways``, a number for each, at the end of ``code``."""
        around = self._around.get(code.index)
        if around is None:
            return
        same = np.column_stack([c.warps[c.rows], self._rounds[c.threads][:, around]])
        _, group = np.unique(same, axis=0, return_inverse=True)
        group = group.reshape(-1)
        count = int(group.max()) + 1
        least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
        values = np.broadcast_to(ways, (c.n,)).astype(np.int64)
        np.minimum.at(least, group, values)
        np.maximum.at(most, group, values)
        parted = int((least != most).sum())
        assert code.segment.end is not None
        if parted:
            end = code.segment.end
            self.parted[end] = self.parted.get(end, 0) + parted
