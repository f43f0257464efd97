"""How often groups of the blocks of a grid execute each basic block.

Requires: a number of a group for each block of the grid, by its linear number. Guarantees: the counts of all groups
together are those of `counts.Counts.executions`, of the same launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ..ptx import Kernel
    from .batch import Batch
    from .cohort import Cohort
    from .image import Image

__all__ = ["BlockGroups"]

Array: TypeAlias = npt.NDArray[Any]


class BlockGroups:
    """Counts of one launch by groups of blocks. ``groups[b]`` is the group of block ``b``, from 0 on.

    ``warps`` has, by kernel and number of a basic block, how many warp fragments of each group entered it.

    >>> BlockGroups([0, 1, 1, 0]).number
    2
    """

    def __init__(self, groups: Sequence[int] | Array) -> None:
        self.groups: Array = np.asarray(groups, np.int64)
        self.number = int(self.groups.max()) + 1
        self.warps: dict[tuple[Kernel, int], Array] = {}
        self._of_warp: Array = np.zeros(0, np.int64)
        self._entered: Array = np.zeros((0, 0), np.int64)

    def start(self, batch: Batch) -> None:
        """Begin a batch of blocks."""
        self._of_warp = self.groups[batch.first_block + batch.warp_block]
        self._entered = np.zeros((batch.segments, self.number), np.int64)

    def enter(self, index: int, c: Cohort) -> None:
        """Record that the warp fragments of ``c`` run the segment ``index``."""
        self._entered[index] += np.bincount(self._of_warp[c.warps], minlength=self.number)

    def finish(self, image: Image) -> None:
        """Add the counts of the batch."""
        for index in np.flatnonzero(self._entered.any(axis=1)).tolist():
            if index in image.starts:
                segment = image.codes[index].segment
                key = segment.kernel, segment.block
                self.warps[key] = self.warps.get(key, 0) + self._entered[index]
