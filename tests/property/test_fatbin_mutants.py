"""Containers of device code with random faults: an error of its own class, and never another exception."""

import contextlib
import importlib
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.toolchain.fatbin import FatbinError, device_images

TEXT = b".version 9.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n" * 8


def image(
    kind: int, content: bytes, flags: int, size: int, *, options: bytes = b"", source: bytes = b"a.cu\0\0\0\0"
) -> bytes:
    """An image with a name, and with options for ptxas."""
    place = 64 + len(source)
    extra = struct.pack("<II", place + 8, len(options)) + options + b"\0" * (-len(options) % 8)
    header = place + len(extra)
    padded = content + b"\0" * (-len(content) % 8)
    packed = len(content) if flags & 0xA000 else 0
    numbers = (kind, 0x101, header, len(padded), packed, place, 0, 9, 90, 64, len(source), flags, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *numbers) + source + extra + padded


def fatbin(*images: bytes) -> bytes:
    body = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def containers() -> list[bytes]:
    """A fatbin with every compression, the same in an archive, and two fatbins after each other."""
    lz4: Any = importlib.import_module("lz4.block")
    zstandard: Any = importlib.import_module("zstandard")

    plain = image(1, TEXT, 0x11, 0, options=b"-O2 --compile-only")
    packed = image(1, zstandard.ZstdCompressor().compress(TEXT), 0x8011, len(TEXT))
    fast = image(2, lz4.compress(TEXT, store_size=False), 0x2011, len(TEXT))
    whole = fatbin(plain, packed, fast)
    member = b"name/           0           0     0     644     %-10d`\n" % len(whole) + whole + b"\n" * (len(whole) % 2)
    return [whole, b"!<arch>\n" + member, whole + bytes(16) + fatbin(packed)]


def test_what_was_packed_is_read() -> None:
    whole, archive, two = containers()
    for data, number in ((whole, 3), (archive, 3), (two, 4)):
        images = device_images(data)
        assert len(images) == number
        assert {each.content() for each in images} == {TEXT}
        assert {each.compression for each in images} == {"", "zstd", "lz4"}
        assert images[0].options == "-O2 --compile-only" and images[0].source == "a.cu"


@given(st.data())
def test_damaged_containers_raise_no_other_error(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(containers())))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, content[place] ^ 1]))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    with contextlib.suppress(FatbinError):
        for each in device_images(bytes(content)):
            with contextlib.suppress(FatbinError):
                each.content()
