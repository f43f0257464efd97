"""Runs forms of `launched.py` on the emulator as kernels, as the recording ran them on the GPU.

Computes: the columns of results that the kernel of a form stores. Guarantees: a result is truncated to the width of its
    type, as the recorded one is. Requires: operands for whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ptxmotion.emulator import Emulator

from .forms import Frame, module_text
from .launched import BLOCK, CELL, Launched, columns_of
from .operands import width_of

__all__ = ["emulated", "bytes_of_cells", "trimmed"]

Lanes = npt.NDArray[Any]


def bytes_of_cells(batch: Sequence[Launched]) -> int:
    """Bytes of the global cells that the forms of ``batch`` share."""
    return CELL * max(columns_of(case)[0].size for case in batch)


def trimmed(case: Frame, words: Lanes) -> tuple[Lanes, ...]:
    """The stored ``words``, one column for each result, without the bits above its width."""
    masks = [np.uint64((1 << width_of(kind)) - 1) for kind in case.results]
    return tuple(column & mask for column, mask in zip(words, masks, strict=True))


def emulated(
    batch: Sequence[Launched],
    columns_for: Callable[[Launched], tuple[Lanes, ...]] = columns_of,
    cells: int | None = None,
) -> Iterator[tuple[Lanes, ...]]:
    """The emulator's results for each form, in order. ``columns_for`` gives the operands of a form; ``cells`` is the
    size of the global cells that the forms share, by default as much as they need."""
    text, _ = module_text(batch, bytes_of_cells(batch) if cells is None else cells)
    module = Emulator().load(text)
    for number, case in enumerate(batch):
        columns = columns_for(case)
        lanes = columns[0].size
        words = np.zeros((len(case.results), lanes), np.uint64)
        inputs = np.ascontiguousarray(np.stack(columns))
        module.launch(
            f"k{number}", lanes // BLOCK, BLOCK, [inputs, words, np.uint32(lanes)], checks=False, counts=False
        )
        yield trimmed(case, words)
