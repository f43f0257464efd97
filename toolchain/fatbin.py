"""PTX, cubins and other device code in executables, shared objects, objects, archives and fatbins.

A fatbin is a header of 16 bytes (magic number, version, size of the header, size of the rest) and images. An image is

    0  u16  kind: 1 PTX, 2 cubin, 8 LTO-IR         28 u32  the target, as in sm_90
    2  u16  version, 0x0101                        32 u32  offset and 36 u32 length of the name of its source
    4  u32  size of this header                    40 u64  flags, see below
    8  u64  size of the content, with padding      56 u64  size when it is not compressed
    16 u32  size when it is compressed, or 0
    20 u32  offset of the offset and the length (u32 each) of the options for ptxas; PTX only

and then its content. The flags say how it is compressed, and whether the target has the suffix ``a`` or ``f``. Fatbins
follow each other in the sections `.nv_fatbin` and `__nv_relfatbin`, the latter before device code is linked.

Requires: bytes of nvcc 11 or newer. Guarantees: no file is read as a whole, and no image is decompressed before its
content is needed. A size or an offset that points outside of its container is an error.
Refuses: with `FatbinError`, a damaged container, and an image whose compression is unknown.
Reference: NVIDIA documents none of this. It was found by comparing the output of fatbinary 13.0 with that of cuobjdump;
the structure of the outer header is in `fatbinary_section.h` and in the sources of ZLUDA (`fatbin.rs`).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .elf import ElfError, sections_of

__all__ = ["DeviceImage", "FatbinError", "device_images", "opened", "with_contents"]

#: A file that is mapped to memory, or bytes.
Data: TypeAlias = "bytes | mmap.mmap"

_MAGIC = struct.pack("<I", 0xBA55ED50)
_OUTER = struct.Struct("<IHHQ")
_INNER = struct.Struct("<HHIQIIHHIIIQQQ")
#: The positions of some fields in `_INNER`.
_HEADER, _PADDED, _PACKED, _FLAGS, _UNPACKED = 2, 3, 4, 11, 13
_ARCHIVE = b"!<arch>\n"
_MEMBER = 60
_EM_CUDA = 190
_OSABI_CUDA_13 = 65
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_KINDS = {1: "ptx", 2: "cubin", 8: "lto"}
_LZ4, _ZSTD = 0x2000, 0x8000
#: LTO-IR of nvcc 13 has this flag, and then neither decompressor reads it.
_ENCODED = 0x10000
_OTHER_COMPRESSIONS = 0x1000 | 0x4000
_SUFFIXES = {0x100000: "a", 0x200000: "f"}

#: The library that decompresses it.
_MODULES = {"zstd": "zstandard", "lz4": "lz4.block"}

#: The most bytes that an image may have when it is decompressed.
_LARGEST = 1 << 32


class FatbinError(ValueError):
    """The bytes are no device code that this module can read."""


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """One image.

    ``kind`` is ``ptx``, ``cubin``, ``lto`` or ``kind N``; ``target`` is as in ``sm_90a``. ``source`` is the name of the
    source and ``options`` are those for ptxas, where the image has them. ``member`` is the archive's member that
    contains it. ``compression`` is ``zstd``, ``lz4``, empty, or ``unknown`` with the flags. ``size`` is that of the
    content in bytes, not compressed. ``is_linked`` is false in a section of code for the device linker.
    """

    kind: str
    target: str
    source: str
    options: str
    member: str
    compression: str
    size: int
    is_linked: bool
    data: Data
    start: int
    end: int

    def content(self) -> bytes:
        """The cubin, or the PTX text without padding. Raises `FatbinError`."""
        stored = bytes(self.data[self.start : self.end])
        content = _decompressed(stored, self.compression, self.size)
        return content.rstrip(b"\0") if self.kind == "ptx" else content


def opened(path: str) -> Data:
    """The bytes of a file, mapped to memory. Raises `OSError`."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # a pipe, for example
            return file.read()


def device_images(data: Data) -> list[DeviceImage]:
    """The images of a file, in the order of the file. Raises `FatbinError` for a file that is no container.

    >>> device_images(b"text")
    Traceback (most recent call last):
    ptxmotion.toolchain.fatbin.FatbinError: it is no ELF file, archive, fatbin or cubin
    """
    try:
        return list(_images(data, 0, len(data), ""))
    except struct.error as error:
        raise FatbinError(f"it is damaged: {error}") from error


def _images(data: Data, start: int, end: int, member: str) -> Iterator[DeviceImage]:
    head = data[start : start + 8]
    if head[:4] == _MAGIC:
        yield from _fatbins(data, start, end, member, is_linked=True)
    elif head == _ARCHIVE:
        for name, first, last in _members(data, start, end):
            if data[first : first + 4] in (b"\x7fELF", _MAGIC):
                yield from _images(data, first, last, name)
    elif head[:4] == b"\x7fELF":
        yield from _of_elf(data, start, end, member)
    else:
        raise FatbinError("it is no ELF file, archive, fatbin or cubin")


# --- archives


def _members(data: Data, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of each member of an archive. Long names are in a member `//`, or before the content."""
    names = b""
    at = start + len(_ARCHIVE)
    while at + _MEMBER <= end:
        header = data[at : at + _MEMBER]
        if header[58:60] != b"`\n":
            raise FatbinError("the archive is damaged")
        try:
            size = int(header[48:58])
        except ValueError:
            raise FatbinError("the archive is damaged") from None
        first, last = at + _MEMBER, at + _MEMBER + size
        if last > end:
            raise FatbinError("the archive is cut short")
        name = header[:16].rstrip()
        if name == b"//":
            names = bytes(data[first:last])
        elif name[:1] == b"/" and name[1:].isdigit():
            offset = int(name[1:])
            yield names[offset : names.find(b"\n", offset)].rstrip(b"/").decode("utf-8", "replace"), first, last
        elif name[:3] == b"#1/" and name[3:].isdigit():
            length = int(name[3:])
            yield bytes(data[first : first + length]).rstrip(b"\0").decode("utf-8", "replace"), first + length, last
        elif name not in (b"/", b"/SYM64/"):
            yield name.rstrip(b"/").decode("utf-8", "replace"), first, last
        at = last + size % 2


# --- ELF files


def _of_elf(data: Data, start: int, end: int, member: str) -> Iterator[DeviceImage]:
    """The images of the ELF file from ``start`` to ``end``: of its sections, or anywhere in a file without sections."""
    if struct.unpack_from("<H", data, start + 18)[0] == _EM_CUDA:
        (flags,) = struct.unpack_from("<I", data, start + 48)
        sm = flags >> 8 & 0xFF if data[start + 7] == _OSABI_CUDA_13 else flags & 0xFF
        yield DeviceImage("cubin", f"sm_{sm}", "", "", member, "", end - start, True, data, start, end)
        return
    try:
        sections = sections_of(data, start, end)
    except ElfError as error:
        raise FatbinError(str(error)) from None
    if not sections:
        yield from _fatbins(data, start, end, member, is_linked=True)
    for section in sections:
        if section.name in _SECTIONS and section.has_bytes:
            is_linked = section.name == _SECTIONS[0]
            yield from _fatbins(data, section.start, section.start + section.size, member, is_linked=is_linked)


# --- fatbins


def _fatbins(data: Data, start: int, end: int, member: str, *, is_linked: bool) -> Iterator[DeviceImage]:
    """The images of the fatbins between two offsets. Padding and other bytes between fatbins are left out."""
    at = data.find(_MAGIC, start, end)
    while at >= 0:
        _, _, header, size = _OUTER.unpack_from(data, at)
        last = at + header + size
        if header != _OUTER.size or last > end:
            # Four bytes that are equal to the magic number by chance, in another section.
            at = data.find(_MAGIC, at + 4, end)
            continue
        image = at + header
        while image + _INNER.size <= last:
            found, image = _image(data, image, last, member, is_linked)
            yield found
        at = data.find(_MAGIC, last, end)


def _image(data: Data, at: int, last: int, member: str, is_linked: bool) -> tuple[DeviceImage, int]:
    """The image at an offset, and the offset of the next one."""
    kind, _, header, padded, packed, options, _, _, sm, name, length, flags, _, size = _INNER.unpack_from(data, at)
    start, end = at + header, at + header + padded
    if header < _INNER.size or end > last or packed > padded or name + length > header:
        raise FatbinError("the fatbin is damaged")
    compression = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""
    if flags & _ENCODED:
        compression = "unknown (encoded)"
    if flags & _OTHER_COMPRESSIONS and not compression:
        compression = f"unknown ({flags & _OTHER_COMPRESSIONS:#x})"
    suffix = next((text for flag, text in _SUFFIXES.items() if flags & flag), "")
    return (
        DeviceImage(
            kind=_KINDS.get(kind, f"kind {kind}"),
            target=f"sm_{sm}{suffix}",
            source=bytes(data[at + name : at + name + length]).rstrip(b"\0").decode("utf-8", "replace").strip(),
            options=_options(data, at, header, options) if kind == 1 else "",
            member=member,
            compression=compression,
            size=size if compression else padded,
            is_linked=is_linked,
            data=data,
            start=start,
            end=start + packed if compression else end,
        ),
        end,
    )


def with_contents(fatbin: bytes, contents: Mapping[int, bytes]) -> bytes:
    """The fatbin with other contents for some images: number of the image, from 0, → content. They are not compressed.
    Everything else stays as it is. Raises `FatbinError` for what is no single fatbin."""
    if fatbin[:4] != _MAGIC or len(fatbin) < _OUTER.size:
        raise FatbinError("it is no fatbin")
    magic, version, header, size = _OUTER.unpack_from(fatbin)
    if header != _OUTER.size or header + size != len(fatbin):
        raise FatbinError("the fatbin is damaged")
    images: list[bytes] = []
    at = header
    while at + _INNER.size <= len(fatbin):
        _, end = _image(fatbin, at, len(fatbin), "", is_linked=True)
        content = contents.get(len(images))
        images.append(fatbin[at:end] if content is None else _with_content(fatbin[at:end], content))
        at = end
    body = b"".join(images)
    return _OUTER.pack(magic, version, header, len(body)) + body


def _with_content(image: bytes, content: bytes) -> bytes:
    """The image with another content, which is not compressed. PTX ends with a zero."""
    fields = list(_INNER.unpack_from(image))
    content += b"\0" if fields[0] == 1 else b""
    padded = content + bytes(-len(content) % 8)
    fields[_PADDED], fields[_PACKED], fields[_UNPACKED] = len(padded), 0, 0
    fields[_FLAGS] &= ~(_LZ4 | _ZSTD | _OTHER_COMPRESSIONS)
    return _INNER.pack(*fields) + image[_INNER.size : fields[_HEADER]] + padded


def _options(data: Data, at: int, header: int, offset: int) -> str:
    if not offset or offset + 8 > header:
        return ""
    first, length = struct.unpack_from("<II", data, at + offset)
    if first + length > header:
        return ""
    text = bytes(data[at + first : at + first + length]).rstrip(b"\0").decode("utf-8", "replace")
    return re.sub(r"\s+", " ", text).strip()


def _decompressed(stored: bytes, compression: str, size: int) -> bytes:
    """Raises `FatbinError`."""
    if not compression:
        return stored
    if size > _LARGEST:
        raise FatbinError(f"an image of {size} bytes is too large")
    if compression not in _MODULES:
        raise FatbinError(f"the compression is {compression}")
    module: Any = _module(_MODULES[compression])
    try:
        if compression == "zstd":
            content: bytes = module.ZstdDecompressor().decompress(stored, max_output_size=size)
        else:
            content = module.decompress(stored, uncompressed_size=size)
    except Exception as error:  # each library has its own class
        raise FatbinError(f"an image is damaged: {error}") from error
    if len(content) != size:
        raise FatbinError(f"an image has {len(content)} bytes instead of {size}")
    return content


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise FatbinError(f"{package} is missing: {sys.executable} -m pip install {package}") from None
