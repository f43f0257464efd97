"""The state of an mbarrier as a number of 64 bits.

Its fields are the pending count, the expected count, the bytes that have not arrived (plus 2**20) and the parity of the
phase, with 20, 20, 21 and 1 bits. Bit `MARK` states that the object is initialised. Computes: the number after an
update, for arrays of numbers. When a phase is complete, the next one begins.
Reference: PTX ISA 9.0, §9.7.13.15.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["COUNT", "MARK", "PHASE", "initial", "update_of", "updated"]

Array: TypeAlias = npt.NDArray[Any]

COUNT = (1 << 20) - 1
_BYTES = (1 << 21) - 1
_NO_BYTES = 1 << 20
_EXPECTED, _UNDER_WAY = 20, 40
PHASE, MARK = 61, 62
#: An update has the arrivals in bits 0 to 19, the bytes (plus 2**20) in bits 20 to 40, and here whether the arrivals
#: also reduce the expected count.
_DROP = 41


def update_of(count: int | Array, nbytes: int | Array, *, drops: bool = False) -> Array:
    """The update for ``count`` arrivals and ``nbytes`` more bytes that have not arrived."""
    size = np.asarray(nbytes, np.int64) + _NO_BYTES
    return np.asarray(count, np.int64) | size << 20 | np.int64(int(drops) << _DROP)


def updated(old: Array, update: Array) -> Array:
    """The object ``old`` after ``update``. If this completes the phase, the next one begins."""
    state, change = old.view(np.int64), update.view(np.int64)
    count = change & COUNT
    expected = ((state >> _EXPECTED) & COUNT) - np.where((change >> _DROP) & 1 == 1, count, 0)
    pending = (state & COUNT) - count
    under_way = ((state >> _UNDER_WAY) & _BYTES) + ((change >> 20) & _BYTES) - _NO_BYTES
    done = (pending == 0) & (under_way == _NO_BYTES)
    phase = ((state >> PHASE) & 1) ^ done
    pending = np.where(done, expected, pending)
    counts = (pending & COUNT) | (expected & COUNT) << _EXPECTED | (under_way & _BYTES) << _UNDER_WAY
    return (counts | phase << PHASE | np.int64(1) << MARK).view(old.dtype)


def initial(counts: Array) -> Array:
    """Objects in their first phase that expect ``counts`` arrivals."""
    pending = counts.astype(np.int64) & COUNT
    state = pending | pending << _EXPECTED | np.int64(_NO_BYTES << _UNDER_WAY) | np.int64(1) << MARK
    return state.view(np.uint64)
