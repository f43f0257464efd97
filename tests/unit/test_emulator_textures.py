"""Textures and surfaces on the emulator: fetches without filter, loads, stores and queries, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptxmotion.emulator import Emulator, EmulatorFault, LaunchError, LaunchResult, Surface, Texture
from ptxmotion.ptx import parse
from ptxmotion.ptx.verify import verify
from ptxmotion.toolchain.tools import ToolMissing, assemble

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 t, .param .u64 out, .param .u64 in)
{
.reg .b64 %t, %out, %in, %w; .reg .b32 %i, %x, %y, %z, %r<4>; .reg .f32 %f<4>, %u, %v; .reg .b16 %h<4>; .reg .pred %p;
ld.param.u64 %t, [t];
ld.param.u64 %out, [out];
ld.param.u64 %in, [in];
mov.u32 %i, %tid.x;
mad.wide.u32 %out, %i, 16, %out;
mad.wide.u32 %in, %i, 16, %in;
ld.global.v4.u32 {%x, %y, %z, %r0}, [%in];
setp.ge.s32 %p, %r0, 0;
cvt.rn.f32.s32 %u, %x;
cvt.rn.f32.s32 %v, %y;
add.f32 %u, %u, 0f3F700000;
add.f32 %v, %v, 0f3DCCCCCD;
mov.u32 %r0, 77; mov.u32 %r1, 77; mov.u32 %r2, 77; mov.u32 %r3, 77;
"""
WORDS = "st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};"
FLOATS = "st.global.v4.f32 [%out], {%f0, %f1, %f2, %f3};"
#: Coordinates inside and outside of an image of 5 × 7 × 3, the last one with a false guard.
PLACES = np.array(
    [[0, 0, 0, 0], [4, 6, 2, 0], [2, 3, 1, 0], [-1, 2, 1, 0], [5, 0, 0, 0], [1, 7, 3, 0], [1, 1, -9, 0], [3, 3, 1, -1]],
    np.int32,
)


def text_of(body: str) -> str:
    return f"{HEAD}{body}\nret;\n}}\n"


def run(body: str, image: Any, places: np.ndarray[Any, Any] = PLACES, *, keep_going: bool = False) -> Any:
    """The words that each thread stores. Thread ``i`` has the coordinates ``places[i]``."""
    out = np.zeros((len(places), 4), np.uint32)
    result = launched(body, image, out, places, keep_going=keep_going)
    assert keep_going or result.findings == []
    return out


def launched(
    body: str, image: Any, out: np.ndarray[Any, Any], places: np.ndarray[Any, Any], *, keep_going: bool = False
) -> LaunchResult:
    text = text_of(body)
    verify(parse(text))
    try:
        assemble(text)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    loaded = Emulator().load(text)
    return loaded.launch("k", 1, len(places), [image, out, places.copy()], keep_going=keep_going)


def image_of(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    bits = np.random.default_rng(7).integers(0, 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    if dtype == "f4":
        bits[..., 3] &= 0x3F
    return np.ascontiguousarray(bits).view(dtype)[..., 0]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4"])
@pytest.mark.parametrize("border", ["clamp", "zero"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("by", ["s32", "f32"])
def test_a_fetch_gives_the_element_at_the_coordinates(dtype: str, border: str, dimensions: int, by: str) -> None:
    shape = (3, 7, 5)[3 - dimensions :]
    data = image_of(shape, dtype)
    places = {1: "{%x}", 2: "{%x, %y}", 3: "{%x, %y, %z, %z}"}[dimensions]
    start = ""
    if by == "f32":  # between two elements
        start = ".reg .f32 %w3; cvt.rn.f32.s32 %w3, %z;"
        places = {1: "{%u}", 2: "{%u, %v}", 3: "{%u, %v, %w3, %w3}"}[dimensions]
    kind = "f32" if dtype == "f4" else "s32" if dtype[0] == "i" else "u32"
    registers = "{%f0, %f1, %f2, %f3}" if kind == "f32" else "{%r0, %r1, %r2, %r3}"
    body = f"{start} tex.{dimensions}d.v4.{kind}.{by} {registers}, [%t, {places}]; "
    found = run(body + (FLOATS if kind == "f32" else WORDS), Texture(data, border=border))
    for place, row in zip(PLACES, found, strict=True):
        at = [int(each) for each in place[:dimensions]]
        near = [min(max(each, 0), extent - 1) for each, extent in zip(at, reversed(shape), strict=True)]
        value = data[tuple(reversed(near))]
        if (border == "zero" or by == "s32") and near != at:
            value = data.dtype.type(0)
        expected = value.view(np.uint32) if kind == "f32" else np.uint32(int(value) & 0xFFFFFFFF)
        assert row.tolist() == [int(expected), 0, 0, 0], at


def test_channels_and_a_guard() -> None:
    data = np.arange(7 * 5 * 4, dtype=np.uint8).reshape(7, 5, 4)
    found = run("@%p tex.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x, %y}]; " + WORDS, Texture(data, channels=4))
    assert found[1].tolist() == data[6, 4].tolist()
    assert found[-1].tolist() == [77] * 4


def test_queries_of_textures_and_surfaces() -> None:
    texture = Texture(np.zeros((3, 7, 5), np.float32))
    body = "txq.width.b32 %r0, [%t]; txq.height.b32 %r1, [%t]; txq.depth.b32 %r2, [%t]; " + WORDS
    assert run(body, texture)[0].tolist() == [5, 7, 3, 77]
    body = "suq.width.b32 %r0, [%t]; suq.height.b32 %r1, [%t]; " + WORDS
    assert run(body, Surface(np.zeros((7, 5, 2), np.float32), channels=2))[0].tolist() == [5, 7, 77, 77]


@pytest.mark.parametrize("outside", ["clamp", "zero"])
def test_loads_and_stores_of_surfaces(outside: str) -> None:
    """The first coordinate is an offset in bytes. Threads 3 to 6 are outside."""
    data = np.arange(7 * 5, dtype=np.uint32).reshape(7, 5)
    body = f"shl.b32 %x, %x, 2; suld.b.2d.b32.{outside} %r0, [%t, {{%x, %y}}]; {WORDS}"
    found = run(body, Surface(data.copy()))
    at = [(min(max(int(y), 0), 6), min(max(int(x), 0), 4)) for x, y, _, _ in PLACES]
    is_inside = [(y, x) == (int(py), int(px)) for (y, x), (px, py, _, _) in zip(at, PLACES, strict=True)]
    expected = [data[y, x] if outside == "clamp" or inside else 0 for (y, x), inside in zip(at, is_inside, strict=True)]
    assert found[:, 0].tolist() == expected
    target = data.copy()
    body = f"shl.b32 %x, %x, 2; add.u32 %r0, %i, 100; sust.b.2d.b32.{outside} [%t, {{%x, %y}}], %r0;"
    places = PLACES[[0, 1, 2, 4]]
    assert launched(body, Surface(target), np.zeros((4, 4), np.uint32), places).findings == []
    wanted = data.copy()
    for number, (x, y, _, _) in enumerate(places):
        if outside == "clamp" or x < 5:
            wanted[y, min(x, 4)] = 100 + number
    assert np.array_equal(target, wanted)


def test_vectors_of_surfaces() -> None:
    data = np.arange(4 * 3 * 4, dtype=np.uint16).reshape(3, 4, 4)
    body = """shl.b32 %x, %x, 3; suld.b.2d.v4.b16.zero {%h0, %h1, %h2, %h3}, [%t, {%x, %y}];
    cvt.u32.u16 %r0, %h0; cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h2; cvt.u32.u16 %r3, %h3;
    sust.b.2d.v2.b32.zero [%t, {%x, %y}], {%r3, %r2}; """
    target = data.copy()
    places = np.array([[1, 2, 0, 0], [3, 0, 0, 0]], np.int32)
    found = run(body + WORDS, Surface(target, channels=4), places)
    assert found.tolist() == [data[2, 1].tolist(), data[0, 3].tolist()]
    assert target[2, 1].tolist() == [data[2, 1, 3], 0, data[2, 1, 2], 0]
    assert np.array_equal(target[1], data[1])


def test_an_access_outside_traps() -> None:
    with pytest.raises(EmulatorFault, match=r"outside of a surface of \(5, 7\)"):
        run("suld.b.2d.b32.trap %r0, [%t, {%x, %y}];", Surface(np.zeros((7, 5), np.uint32)))


def test_a_race_of_two_stores_is_reported() -> None:
    body = "mov.u32 %x, 4; mov.u32 %y, 1; sust.b.2d.b32.zero [%t, {%x, %y}], %i;"
    found = launched(body, Surface(np.zeros((7, 5), np.uint32)), np.zeros((8, 4), np.uint32), PLACES).findings
    assert {finding.kind for finding in found} == {"race"}


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Surface(np.zeros((7, 5), np.uint32)), "is no texture"),
        (np.uint64(12345), "0x3039 is no texture"),
        (Texture(np.zeros(5, np.uint32)), "the texture has 1 dimensions"),
        (Texture(np.zeros((7, 5), np.float32)), "the texture has elements of float32"),
    ],
)
def test_what_does_not_fit_is_a_fault(image: Any, message: str) -> None:
    with pytest.raises(EmulatorFault, match=message):
        run("tex.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x, %y}];", image)


def test_wrong_images_are_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        Texture(np.zeros(3))
    with pytest.raises(ValueError, match="2 channels"):
        Surface(np.zeros((3, 4), np.uint8), channels=2)
    with pytest.raises(ValueError, match="border 'wrap'"):
        Texture(np.zeros(3, np.uint8), border="wrap")
    with pytest.raises(ValueError, match="shape"):
        Texture(np.zeros((1, 2, 3, 4), np.uint8))
    text = text_of(WORDS).replace(".u64 t,", ".u32 t,").replace("ld.param.u64 %t, [t];", "")
    with pytest.raises(LaunchError, match=r"parameter 't' \(.u32\) cannot take a Texture"):
        Emulator().load(text).launch("k", 1, 1, [Texture(np.zeros(3, np.uint8)), PLACES.copy(), PLACES.copy()])
