"""Memory that exists at every address: a page is made when a kernel first accesses it.

Computes: the offsets of addresses in one object that holds all pages; the pages that each instruction accessed.
Requires: aligned accesses (the caller checks), so that no access crosses a page. Guarantees: the initial contents of a
page depend only on its address. So two programs that run with equal `contents` read equal memory, however they compute
addresses. Refuses: pages beyond ``limit``, which bounds the memory of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from .memory import MemoryObject

__all__ = ["PAGE", "SparseMemory"]

Array: TypeAlias = npt.NDArray[Any]

#: Bytes of a page.
PAGE = 4096
_SHIFT = np.int64(12)
_FIRST_PAGES = 16


class SparseMemory:
    """Pages by number (address divided by `PAGE`). ``contents(number)`` gives the initial bytes of a page."""

    def __init__(self, contents: Callable[[int], Array], limit: int = 2048) -> None:
        self.contents = contents
        self.limit = limit
        self.target = MemoryObject("memory", "global", 0, _FIRST_PAGES * PAGE, is_written=True)
        #: The position of each page in `target`, in pages, by the page's number.
        self.slots: dict[int, int] = {}
        #: The numbers of the pages that each instruction accessed.
        self.touched: dict[Instr, set[int]] = {}

    def offsets(self, addresses: Array, instr: Instr) -> tuple[Array, Array | None]:
        """The offsets of ``addresses`` in `target`, and which of them have no page because the limit is reached.

        The offset of an address without a page is meaningless.
        """
        numbers = addresses >> _SHIFT
        low = addresses & np.int64(PAGE - 1)
        first = int(numbers[0])
        touched = self.touched.setdefault(instr, set())
        if bool((numbers == first).all()):
            slot = self._slot(first)
            touched.add(first)
            return (slot << _SHIFT) + low, np.ones(addresses.size, bool) if slot < 0 else None
        distinct, positions = np.unique(numbers, return_inverse=True)
        pages: list[int] = distinct.tolist()
        slots = np.array([self._slot(page) for page in pages], np.int64)
        touched.update(pages)
        page_slots: Array = slots[positions]
        missing = page_slots < 0
        return (page_slots << _SHIFT) + low, missing if bool(missing.any()) else None

    def page(self, number: int) -> Array:
        """The current contents of the page."""
        slot = self.slots.get(number)
        return self.contents(number) if slot is None else self.target.bytes[slot * PAGE : (slot + 1) * PAGE]

    def _slot(self, number: int) -> np.int64:
        slot = self.slots.get(number)
        if slot is None:
            if len(self.slots) >= self.limit:
                return np.int64(-1)
            slot = self.slots[number] = len(self.slots)
            if (slot + 1) * PAGE > self.target.nbytes:
                self._grow()
            self.target.bytes[slot * PAGE : (slot + 1) * PAGE] = self.contents(number)
        return np.int64(slot)

    def _grow(self) -> None:
        target = self.target
        target.bytes = np.concatenate([target.bytes, np.zeros(target.nbytes, np.uint8)])
        target.nbytes = target.bytes.size
        target.views.clear()
        if target.races is not None:
            target.races.grow(target.nbytes)
