"""Memory of the emulated device: objects with addresses, windows for shared and local memory.

Computes: gathers and scatters of lanes in an object, and which object an address belongs to.
Requires: aligned accesses (the caller checks), so that a typed view of the bytes serves every access.
Guarantees: objects are `GUARD` bytes apart at least, so that an address just outside of one belongs to none; a byte
    map says which bytes have ever been written. Constant memory, entry parameters and global memory have generic
    addresses equal to their own; shared and local memory have windows, as on hardware, the same for every block
    and thread.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .sparse import SparseMemory

__all__ = ["GUARD", "UINT", "AddressSpace", "MemoryObject", "Windows", "selector", "spread", "wrapped"]

Array: TypeAlias = npt.NDArray[Any]
Selector: TypeAlias = "slice | Array"

#: Bytes between objects, at least; the gap also grows with the object before it, up to 1 MiB.
GUARD = 1 << 16

UINT: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
#: All bytes written, as one number of each width.
_WRITTEN = {1: np.uint8(1), 2: np.uint16(0x0101), 4: np.uint32(0x01010101), 8: np.uint64(0x0101010101010101)}


def selector(index: Array) -> Selector:
    """``index`` itself, or the equal slice where the numbers rise by one step: slices are several times faster."""
    count = index.shape[0]
    if count < 8:
        return index
    first, last = int(index[0]), int(index[-1])
    step, rest = divmod(last - first, count - 1)
    if rest or step <= 0 or int(index[1]) - first != step or not bool((index[1:] - index[:-1] == step).all()):
        return index
    return slice(first, last + 1, step)


def wrapped(address: int) -> int:
    """``address`` modulo 2⁶⁴ as a signed number: addresses and their offsets wrap.

    >>> wrapped(0xFFFF_FFFF_FFFF_FFFF), wrapped(-1), wrapped(7)
    (-1, -1, 7)
    """
    return ((address + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def spread(value: Array, count: int) -> Array:
    """``value`` for each of ``count`` lanes."""
    return value if value.shape[0] == count else np.broadcast_to(value, (count, *value.shape[1:]))


class MemoryObject:
    """Bytes with an address. ``written`` is ``None`` where every byte counts as written.

    A lane memory (shared, local) holds one piece of ``stride`` bytes for each owner; offsets then count from the start
    of the first owner's piece.
    """

    __slots__ = ("base", "bytes", "is_free", "is_read_only", "name", "nbytes", "races", "space", "views", "written")

    def __init__(self, name: str, space: str, base: int, nbytes: int, *, is_written: bool = False) -> None:
        self.name = name
        self.space = space
        self.base = base
        self.nbytes = nbytes
        self.is_read_only = False
        self.is_free = False
        #: Who touched what since the launch began; made by `races` when first needed.
        self.races: Any = None
        padded = -(-max(nbytes, 1) // 32) * 32
        self.bytes = np.zeros(padded, np.uint8)
        self.written: Array | None = None if is_written else np.zeros(padded, np.uint8)
        self.views: dict[int, tuple[Array, Array | None]] = {}

    def view(self, width: int) -> tuple[Array, Array | None]:
        """The bytes and the map of written bytes as numbers of ``width`` bytes."""
        found = self.views.get(width)
        if found is None or (found[1] is None) != (self.written is None):
            written = None if self.written is None else self.written.view(UINT[width])
            found = self.views[width] = (self.bytes.view(UINT[width]), written)
        return found

    def load(self, index: Selector, width: int) -> Array:
        """A copy of the elements at ``index`` (in elements of ``width`` bytes)."""
        found = self.view(width)[0][index]
        return found.copy() if isinstance(index, slice) else found

    def store(self, index: Selector, width: int, values: Array) -> None:
        """Write ``values``; of two lanes with one address the later wins."""
        data, written = self.view(width)
        data[index] = values
        if written is not None:
            written[index] = _WRITTEN[width]

    def unwritten(self, index: Selector, width: int) -> Array | None:
        """Which of the lanes read a byte that was never written; ``None`` where none does."""
        written = self.view(width)[1]
        if written is None:
            return None
        bad = written[index] != _WRITTEN[width]
        return bad if bool(bad.any()) else None

    def fill_from(self, data: bytes | Array, offset: int = 0) -> None:
        """Copy host bytes in and count them as written."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self.bytes[offset : offset + raw.size] = raw
        if self.written is not None:
            if offset == 0 and raw.size >= self.nbytes:
                self.written = None
            else:
                self.written[offset : offset + raw.size] = 1


@dataclass(frozen=True, slots=True)
class Windows:
    """Where shared and local memory lie in the generic space, and where global objects begin."""

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

    With ``sparse`` every other address is memory, too, except for the first `GUARD` bytes and the gaps among objects.
    """

    windows: Windows
    sparse: SparseMemory | None = None
    objects: list[MemoryObject] = field(default_factory=list[MemoryObject])
    _next: int = 0
    _bases: list[int] = field(default_factory=list[int])
    _table: Array | None = None

    def allocate(
        self, name: str, space: str, nbytes: int, *, is_written: bool = False, align: int = 256
    ) -> MemoryObject:
        """A new object of ``nbytes`` bytes; its address is a multiple of ``align`` (and of 256)."""
        align = max(align, 256)
        start = -(-max(self._next, self.windows.first) // align) * align
        found = MemoryObject(name, space, start, nbytes, is_written=is_written)
        self._next = start + nbytes + max(GUARD, min(nbytes, 1 << 20))
        self.objects.append(found)
        insort(self._bases, start)
        self._table = None
        return found

    def rewind(self) -> None:
        """Let the next object begin behind the last one there is: addresses of freed objects are used again."""
        ends = [each.base + each.nbytes + max(GUARD, min(each.nbytes, 1 << 20)) for each in self.objects]
        self._next = max(ends, default=0)

    def free(self, found: MemoryObject) -> None:
        """Forget ``found``; its address is not used again before `rewind`."""
        found.is_free = True
        position = bisect_right(self._bases, found.base) - 1
        del self._bases[position], self.objects[position]
        self._table = None

    def is_sparse(self, addresses: Array) -> Array:
        """Which of the addresses, all outside of every object, are those of sparse memory."""
        if self.sparse is None:
            return np.zeros(addresses.shape, bool)
        among = (addresses >= self.windows.first - GUARD) & (addresses < max(self._next, self.windows.first))
        return ~among & ((addresses < 0) | (addresses >= GUARD))

    def at(self, address: int) -> MemoryObject | None:
        """The object whose bytes ``address`` belongs to."""
        position = bisect_right(self._bases, address) - 1
        if position < 0:
            return None
        found = self.objects[position]
        return found if address < found.base + found.nbytes else None

    def nearest(self, address: int) -> MemoryObject | None:
        """The object that an address outside of all objects was probably meant for."""
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
