"""A cohort: warp fragments at the same program point that run together, and the threads in them.

Computes: which threads (positions in the batch) the rows contain, and the values of registers for exactly these
threads. A row is a warp fragment.
Guarantees: ``env`` has the values of registers by key, as arrays of shape (n,), or of shape (1,) if all lanes agree. A
    register that is not in ``env`` is in the file of the batch. The threads of a row are adjacent and ascend by lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .memory import Selector, selector

if TYPE_CHECKING:
    from .batch import Batch

__all__ = ["Cohort"]

Array: TypeAlias = npt.NDArray[Any]

_LANES = np.arange(32, dtype=np.int64)
_BITS = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
_FULL = 0xFFFF_FFFF


class Cohort:
    """``ids`` are rows of the pool, ``masks`` their lanes; ``threads`` are positions in the batch."""

    __slots__ = (
        "_cache",
        "batch",
        "depth",
        "dirty",
        "env",
        "full",
        "function",
        "ids",
        "live_out",
        "masks",
        "n",
        "sel",
        "threads",
        "uniform_rows",
        "warps",
    )

    def __init__(self, batch: Batch, ids: Array, masks: Array, warps: Array, depth: int, function: int) -> None:
        self.batch = batch
        self.ids = ids
        self.masks = masks
        self.warps = warps
        self.depth = depth
        self.function = function
        self.env: dict[int, Array] = {}
        self.dirty: set[int] = set()
        self.live_out: frozenset[int] = frozenset()
        self._cache: dict[str, Array] = {}
        self.uniform_rows = bool((masks == _FULL).all())
        starts = batch.warp_start[warps]
        if self.uniform_rows:
            self.threads: Array = (starts[:, None] + _LANES).reshape(-1)
        else:
            flat = np.flatnonzero((masks[:, None] & _BITS) != 0)
            rows = flat >> 5
            self._cache["rows"] = rows
            self.threads = starts[rows] + (flat & 31)
        self.n = int(self.threads.size)
        self.full = self.n == batch.threads and bool((warps[1:] > warps[:-1]).all())
        self.sel: Selector = slice(0, self.n, 1) if self.full else selector(self.threads)

    # --- properties of the threads ---------------------------------------------------------------------------------

    @property
    def rows(self) -> Array:
        """For each lane the row that contains it."""
        rows = self._cache.get("rows")
        if rows is None:
            rows = self._cache["rows"] = np.repeat(np.arange(self.ids.size), 32)
        return rows

    def column(self, name: str) -> Array:
        """A property of the threads (``tid0``, ``lane``, ``block``; see `Batch`), for these threads."""
        values = self._cache.get(name)
        if values is None:
            values = self._cache[name] = self.batch.columns[name][self.sel]
        return values

    @property
    def blocks(self) -> Array:
        """For each lane the number of its block in the batch."""
        return self.column("block")

    def block_number(self) -> Array:
        """For each lane the number of its block in the grid."""
        return (self.blocks + self.batch.first_block).astype(np.uint32)

    def global_threads(self) -> Array:
        """For each lane the number of its thread in the grid."""
        return self.threads + self.batch.first_block * self.batch.block_size

    def stamps(self, lanes: Array | None) -> tuple[Array, Array, Array]:
        """For the race check, for each lane: its stamp, the largest stamp before the last barrier of its block, and the
        number of the first thread of its block + 1. See `races`.
        """
        order = self.batch.order
        cache = self._cache
        version = cache.get("version")
        if version is None or int(version[0]) != order.version:
            cache["version"] = np.array([order.version])
            everyone = order.stamps_of_all(wanted=4 * self.n >= self.batch.threads)
            if everyone is not None:
                cache["stamp"], cache["base"], cache["low"] = (column[self.sel] for column in everyone)
            else:
                blocks = self.blocks
                high = cache.get("high")
                if high is None:
                    high = cache["high"] = self.global_threads() + 1
                    cache["low"] = (blocks + self.batch.first_block) * self.batch.block_size + 1
                cache["stamp"] = high | (order.clock << np.int64(32))[blocks]
                # No stamp of the block up to the clock of the barrier is larger.
                cache["base"] = ((order.base + 1 << np.int64(32)) - 1)[blocks]
        if lanes is None:
            return cache["stamp"], cache["base"], cache["low"]
        return cache["stamp"][lanes], cache["base"][lanes], cache["low"][lanes]

    # --- masks -----------------------------------------------------------------------------------------------------

    def row_masks(self, flags: Array) -> Array:
        """For each row the lanes for which ``flags`` holds, as bits."""
        if flags.shape[0] == 1 and self.n != 1:
            return self.masks.copy() if bool(flags[0]) else np.zeros_like(self.masks)
        if self.uniform_rows:
            return np.packbits(flags.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32)[:, 0]
        bits = np.where(flags, _BITS[self.column("lane")], np.uint32(0))
        starts = self._cache.get("starts")
        if starts is None:
            rows = self.rows
            starts = self._cache["starts"] = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        return np.bitwise_or.reduceat(bits, starts)

    # --- registers -------------------------------------------------------------------------------------------------

    def gather(self, keys: tuple[int, ...]) -> None:
        """Read from the file those registers in ``keys`` that ``env`` does not have."""
        env = self.env
        for key in keys:
            if key not in env:
                env[key] = self.batch.read_register(self, key)

    def spill(self) -> None:
        """Write the registers that have changed and are live back to the file."""
        live = self.live_out
        env = self.env
        for key in self.dirty:
            if key in live and key in env:
                self.batch.write_register(self, key, env[key])
        self.dirty.clear()

    def move_to(self, depth: int, function: int) -> None:
        """Continue in another function or frame with the same threads."""
        self.spill()
        self.env = {}
        self.depth = depth
        self.function = function
