"""Memory of the emulated device: objects with addresses, and windows for shared and local memory.

Computes: loads and stores of lanes in an object; the object that an address belongs to.
Requires: aligned accesses (the caller checks), so that a view of the bytes with the type of the access is enough.
Guarantees: objects are at least `GUARD` bytes apart, so that an address just outside of an object is in no other one.
    A map has, for each byte, whether it was ever written. The generic addresses of constant memory, entry parameters
    and global memory are their own addresses. Shared and local memory have windows, as on hardware, which are the same
    for every block and thread.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .sparse import SparseMemory
    from .textures import Surface

__all__ = ["GUARD", "UINT", "AddressSpace", "MemoryObject", "Windows", "selector", "spread", "wrapped"]

Array: TypeAlias = npt.NDArray[Any]
Selector: TypeAlias = "slice | Array"

#: The least number of bytes between objects. After a larger object the gap is as large as the object, up to 1 MiB.
GUARD = 1 << 16

UINT: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
#: For each width, the element of the map if all bytes of the element are written.
_WRITTEN = {1: np.uint8(1), 2: np.uint16(0x0101), 4: np.uint32(0x01010101), 8: np.uint64(0x0101010101010101)}


def selector(index: Array) -> Selector:
    """``index`` itself, or the equal slice if the indices are evenly spaced: slices are several times faster."""
    count = index.shape[0]
    if count < 8:
        return index
    first, last = int(index[0]), int(index[-1])
    step, rest = divmod(last - first, count - 1)
    if rest or step <= 0 or int(index[1]) - first != step or not bool((index[1:] - index[:-1] == step).all()):
        return index
    return slice(first, last + 1, step)


def wrapped(address: int) -> int:
    """``address`` modulo 2⁶⁴ as a signed number: addresses and their offsets wrap around.

    >>> wrapped(0xFFFF_FFFF_FFFF_FFFF), wrapped(-1), wrapped(7)
    (-1, -1, 7)
    """
    return ((address + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def spread(value: Array, count: int) -> Array:
    """``value`` for each of ``count`` lanes."""
    return value if value.shape[0] == count else np.broadcast_to(value, (count, *value.shape[1:]))


class MemoryObject:
    """Bytes with an address. ``written`` is the map of written bytes; ``None`` if every byte counts as written.

    Shared and local memory have one part of ``stride`` bytes for each block or thread. Their offsets count from the
    start of the first part. ``views`` has the bytes and the map by the width of elements.
    """

    __slots__ = ("base", "bytes", "is_free", "is_read_only", "name", "nbytes", "races", "space", "views", "written")

    def __init__(self, name: str, space: str, base: int, nbytes: int, *, is_written: bool = False) -> None:
        self.name = name
        self.space = space
        self.base = base
        self.nbytes = nbytes
        self.is_read_only = False
        self.is_free = False
        #: The accesses since the launch began (`races.Races`), made at the first use.
        self.races: Any = None
        padded = -(-max(nbytes, 1) // 32) * 32
        self.bytes = np.zeros(padded, np.uint8)
        self.written: Array | None = None if is_written else np.zeros(padded, np.uint8)
        self.views: dict[int, tuple[Array, Array | None]] = {}

    def view(self, width: int) -> tuple[Array, Array | None]:
        """The bytes, and the map of written bytes, as elements of ``width`` bytes."""
        views = self.views.get(width)
        if views is None or (views[1] is None) != (self.written is None):
            written = None if self.written is None else self.written.view(UINT[width])
            views = self.views[width] = (self.bytes.view(UINT[width]), written)
        return views

    def load(self, index: Selector, width: int) -> Array:
        """A copy of the elements at ``index`` (in elements of ``width`` bytes)."""
        elements = self.view(width)[0][index]
        return elements.copy() if isinstance(index, slice) else elements

    def store(self, index: Selector, width: int, values: Array) -> None:
        """Write ``values``. If two lanes have the same address, the value of the later lane remains."""
        data, written = self.view(width)
        data[index] = values
        if written is not None:
            written[index] = _WRITTEN[width]

    def unwritten(self, index: Selector, width: int) -> Array | None:
        """Which of the lanes read a byte that was never written; ``None`` if no lane does."""
        written = self.view(width)[1]
        if written is None:
            return None
        bad = written[index] != _WRITTEN[width]
        return bad if bool(bad.any()) else None

    def fill_from(self, data: bytes | Array, offset: int = 0) -> None:
        """Copy bytes from the host into the object, and mark them as written."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self.bytes[offset : offset + raw.size] = raw
        if self.written is not None:
            if offset == 0 and raw.size >= self.nbytes:
                self.written = None
            else:
                self.written[offset : offset + raw.size] = 1


@dataclass(frozen=True, slots=True)
class Windows:
    """The start of shared and local memory in the generic space, their size, and the first address of global
    objects."""

    shared: int
    local: int
    size: int
    first: int
    code: int

    @staticmethod
    def of(address_size: int) -> Windows:
        """The windows of a module with ``.address_size`` 32 or 64."""
        if address_size == 32:
            return Windows(0x0100_0000, 0x0200_0000, 0x0100_0000, 0x1000_0000, 0x1000)
        return Windows(0x7F80_0000_0000, 0x7F90_0000_0000, 0x0100_0000, 0x7FA0_0000_0000, 0x1000)


@dataclass(slots=True)
class AddressSpace:
    """The objects that have generic addresses, ordered by address.

    With ``sparse``, all other addresses are memory, too, except for the first `GUARD` bytes and the gaps between
    objects.
    """

    windows: Windows
    sparse: SparseMemory | None = None
    objects: list[MemoryObject] = field(default_factory=list[MemoryObject])
    images: dict[int, Surface] = field(default_factory=dict[int, "Surface"])  #: textures and surfaces by their handle
    _next: int = 0
    _bases: list[int] = field(default_factory=list[int])
    _table: Array | None = None

    def allocate(
        self, name: str, space: str, nbytes: int, *, is_written: bool = False, align: int = 256
    ) -> MemoryObject:
        """A new object of ``nbytes`` bytes. Its address is a multiple of ``align`` and of 256."""
        align = max(align, 256)
        start = -(-max(self._next, self.windows.first) // align) * align
        target = MemoryObject(name, space, start, nbytes, is_written=is_written)
        self._next = start + nbytes + max(GUARD, min(nbytes, 1 << 20))
        self.objects.append(target)
        insort(self._bases, start)
        self._table = None
        return target

    def rewind(self) -> None:
        """Let the next object begin after the last existing one, so that addresses of freed objects are used again."""
        ends = [target.base + target.nbytes + max(GUARD, min(target.nbytes, 1 << 20)) for target in self.objects]
        self._next = max(ends, default=0)

    def free(self, target: MemoryObject) -> None:
        """Remove ``target``. Its address is not used again before `rewind`."""
        target.is_free = True
        position = bisect_right(self._bases, target.base) - 1
        del self._bases[position], self.objects[position]
        self._table = None

    def is_sparse(self, addresses: Array) -> Array:
        """Which of the addresses are in sparse memory. All of them must be outside of every object."""
        if self.sparse is None:
            return np.zeros(addresses.shape, bool)
        is_near_objects = (addresses >= self.windows.first - GUARD) & (addresses < max(self._next, self.windows.first))
        return ~is_near_objects & ((addresses < 0) | (addresses >= GUARD))

    def at(self, address: int) -> MemoryObject | None:
        """The object that contains the byte at ``address``; ``None`` if there is none."""
        position = bisect_right(self._bases, address) - 1
        if position < 0:
            return None
        target = self.objects[position]
        return target if address < target.base + target.nbytes else None

    def nearest(self, address: int) -> MemoryObject | None:
        """The object nearest to an address outside of all objects, within 16 MiB."""
        position = bisect_right(self._bases, address) - 1
        below = self.objects[position] if position >= 0 else None
        above = self.objects[position + 1] if position + 1 < len(self.objects) else None
        reach = 1 << 24
        near = [
            (abs(address - (o.base if address < o.base else o.base + o.nbytes)), o)
            for o in (below, above)
            if o is not None
        ]
        near = [item for item in near if item[0] < reach]
        return min(near, key=lambda item: item[0])[1] if near else None

    def numbers(self, addresses: Array) -> Array:
        """The position in ``objects`` of the last object that begins at or before each address, or -1."""
        if self._table is None:
            self._table = np.array(self._bases, np.int64)
        return np.searchsorted(self._table, addresses, side="right") - 1
