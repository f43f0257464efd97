"""The sections of ELF files, also of damaged ones and of files with very many sections."""

from __future__ import annotations

import random
import struct

import pytest
from ptxmotion.toolchain.elf import ElfError, Section, sections_of

_HEADER = struct.Struct("<IIQQQQIIQQ")
#: SHT_NOBITS, and uninitialised global, local, shared, and reserved shared memory in relocatable cubins.
WITHOUT_BYTES = (8, 0x70000007, 0x70000009, 0x7000000A, 0x70000015)


def elf(sections: list[tuple[str, int, bytes]], *, is_extended: bool = False) -> bytes:
    """An ELF file with a null section, these sections (name, kind, content), and one with names. ``is_extended``: their
    number and the index of the names are in the null section, as in files with 65,280 sections."""
    names = b"\0"
    contents = b""
    headers = [b""]
    for name, kind, content in [*sections, (".shstrtab", 3, b"")]:
        place = len(names)
        names += name.encode() + b"\0"
        if name == ".shstrtab":
            content = names
        headers.append(_HEADER.pack(place, kind, 0, 0, 64 + len(contents), len(content), 0, 0, 1, 0))
        contents += b"" if kind in WITHOUT_BYTES else content
    count, last = (0, 0xFFFF) if is_extended else (len(headers), len(headers) - 1)
    given = (len(headers), len(headers) - 1) if is_extended else (0, 0)
    headers[0] = _HEADER.pack(0, 0, 0, 0, 0, given[0], given[1], 0, 0, 0)
    start = b"\x7fELF\2\1\1" + bytes(33) + struct.pack("<Q", 64 + len(contents)) + bytes(10)
    return start + struct.pack("<HHH", 64, count, last) + contents + b"".join(headers)


@pytest.mark.parametrize("kind", WITHOUT_BYTES)
@pytest.mark.parametrize("is_extended", [False, True])
def test_sections_of_an_elf_file(is_extended: bool, kind: int) -> None:
    file = elf([(".text.k", 1, b"code"), (".bss", kind, bytes(1000)), (".text.ß", 1, b"more")], is_extended=is_extended)
    for data, start in ((file, 0), (b"archive" + file + b"rest", 7)):
        _, text, bss, more, names = sections_of(data, start, start + len(file))
        assert text == Section(".text.k", 1, start + 64, 4)
        assert data[text.start : text.start + text.size] == b"code"
        assert (bss.name, bss.kind, bss.size, bss.has_bytes) == (".bss", kind, 1000, False)
        assert text.has_bytes and more.has_bytes
        assert (more.name, data[more.start : more.start + more.size]) == (".text.ß", b"more")
        assert names.name == ".shstrtab"


def test_a_file_without_sections() -> None:
    assert sections_of(b"\x7fELF\2\1" + bytes(58), 0, 64) == []


def test_other_classes_are_refused() -> None:
    file = elf([(".text.k", 1, b"code")])
    for place, value in ((4, 1), (5, 2)):
        damaged = bytearray(file)
        damaged[place] = value
        with pytest.raises(ElfError, match="not of 64 bits and little-endian"):
            sections_of(bytes(damaged), 0, len(damaged))


def test_damaged_files_are_refused_or_read() -> None:
    file = elf([(".text.k", 1, b"code"), (".bss", 8, bytes(1000))])
    generator = random.Random(0)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(file[: generator.choice([len(file), generator.randrange(64, len(file))])])
        for _ in range(generator.randrange(3)):
            damaged[generator.randrange(6, len(damaged))] = generator.randrange(256)
        try:
            found = sections_of(bytes(damaged), 0, len(damaged))
        except (ElfError, struct.error):
            refused += 1
        else:
            assert all(not each.has_bytes or each.start + each.size <= len(damaged) for each in found)
    assert 500 < refused < 2000
