"""Integer and bit lane functions, compared with the definitions of the manual on Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.emulator.semantics import resolve
from ptxmotion.ptx.decoding import decode


def run(mnemonic: str, *sources: tuple[int, int], carry: bool = False) -> list[int]:
    """The results for one lane; each source is (width, bits)."""
    function = resolve(decode(mnemonic, len(sources) + 1))
    assert function is not None, mnemonic
    arrays = [np.array([bits & ((1 << width) - 1)], f"u{width // 8}") for width, bits in sources]
    return [int(result[0]) for result in function(arrays, np.array([carry]))]


def signed(bits: int, width: int) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def words(width: int) -> st.SearchStrategy[int]:
    top = 1 << (width - 1)
    return st.one_of(st.integers(0, 2 * top - 1), st.sampled_from([0, 1, top, top - 1, 2 * top - 1, top + 1]))


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", "us")
def test_products_quotients_and_sums(width: int, kind: str) -> None:
    scalar, mask = f"{kind}{width}", (1 << width) - 1
    number: Callable[[int], int] = (lambda bits: signed(bits, width)) if kind == "s" else (lambda bits: bits)

    @given(words(width), words(width), words(width))
    def check(a: int, b: int, c: int) -> None:
        pair, x, y = ((width, a), (width, b)), number(a), number(b)
        high = (x * y >> width) & mask
        assert run(f"mul.lo.{scalar}", *pair) == [x * y & mask]
        assert run(f"mul.hi.{scalar}", *pair) == [high]
        assert run(f"mad.hi.{scalar}", *pair, (width, c)) == [(high + c) & mask]
        assert run(f"sad.{scalar}", *pair, (width, c)) == [(c + abs(x - y)) & mask]
        assert run(f"max.{scalar}", *pair) == [max(x, y) & mask]
        if y:
            assert run(f"div.{scalar}", *pair) == [quotient(x, y) & mask]
            assert run(f"rem.{scalar}", *pair) == [(x - y * quotient(x, y)) & mask]
        if width < 64:
            assert run(f"mul.wide.{scalar}", *pair) == [x * y & ((1 << 2 * width) - 1)]

    check()


@pytest.mark.parametrize("width", [32, 64])
def test_carry_chains_add_and_subtract_long_numbers(width: int) -> None:
    scalar, both = f"u{width}", (1 << 2 * width) - 1

    @given(words(2 * width), words(2 * width))
    def check(a: int, b: int) -> None:
        parts = [((width, x), (width, y)) for x, y in ((a, b), (a >> width, b >> width))]
        for base, expected in (("add", (a + b) & both), ("sub", (a - b) & both)):
            low, flag = run(f"{base}.cc.{scalar}", *parts[0])
            (high,) = run(f"{base}c.{scalar}", *parts[1], carry=bool(flag))
            assert low | high << width == expected
        low, flag = run(f"mad.lo.cc.{scalar}", *parts[0], (width, a))
        (high,) = run(f"madc.hi.{scalar}", *parts[0], (width, a >> width), carry=bool(flag))
        short = (1 << width) - 1
        assert low | high << width == ((a & short) * (b & short) + a) & both

    check()


@given(words(32), words(32), words(32))
def test_every_lop3_table(a: int, b: int, c: int) -> None:
    for table in range(256):
        expected = sum(((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1))) & 1) << i for i in range(32))
        assert run("lop3.b32", (32, a), (32, b), (32, c), (32, table)) == [expected]


def test_a_lop3_table_may_vary_from_lane_to_lane() -> None:
    function = resolve(decode("lop3.b32"))
    assert function is not None
    words_ = [np.full(256, value, np.uint32) for value in (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA)]
    (result,) = function([*words_, np.arange(256, dtype=np.uint32)])
    assert (result & np.uint32(0xFF)).tolist() == list(range(256))


@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields_are_extracted_and_inserted(width: int) -> None:
    mask = (1 << width) - 1

    @given(words(width), words(width), st.integers(0, 255), st.integers(0, 255))
    def check(a: int, b: int, position: int, size: int) -> None:
        most = width - 1
        last = (a >> min(position + size - 1, most)) & 1 if size else 0
        bits = [(a >> (position + i)) & 1 if i < size and position + i <= most else 0 for i in range(width)]
        signs = [bits[i] if i < size and position + i <= most else last for i in range(width)]
        fields = (32, position), (32, size)
        assert run(f"bfe.u{width}", (width, a), *fields) == [sum(bit << i for i, bit in enumerate(bits))]
        assert run(f"bfe.s{width}", (width, a), *fields) == [sum(bit << i for i, bit in enumerate(signs))]
        inserted = b
        for i in range(size):
            if position + i <= most:
                inserted = inserted & ~(1 << position + i) | (a >> i & 1) << position + i
        assert run(f"bfi.b{width}", (width, a), (width, b), *fields) == [inserted & mask]

    check()


@given(words(64), st.integers(0, 80))
def test_shifts_clamp_their_count(a: int, count: int) -> None:
    assert run("shl.b64", (64, a), (32, count)) == [(a << count) & ((1 << 64) - 1)]
    assert run("shr.u64", (64, a), (32, count)) == [a >> count]
    assert run("shr.s16", (16, a), (32, count)) == [(signed(a, 16) >> count) & 0xFFFF]
    low, high = a & 0xFFFFFFFF, a >> 32
    pair, wide = ((32, low), (32, high), (32, count)), min(count, 32)
    assert run("shf.l.clamp.b32", *pair) == [(a << wide >> 32) & 0xFFFFFFFF]
    assert run("shf.r.wrap.b32", *pair) == [(a >> count % 32) & 0xFFFFFFFF]


@given(words(32), words(32), words(32))
def test_bytes_and_dot_products(a: int, b: int, c: int) -> None:
    source = (b << 32 | a).to_bytes(8, "little")
    chosen = 0
    for place in range(4):
        selector = c >> 4 * place & 15
        byte = source[selector & 7]
        chosen |= (byte if selector < 8 else 0xFF * (byte >> 7)) << 8 * place
    assert run("prmt.b32", (32, a), (32, b), (32, c)) == [chosen]
    dot = sum(signed(a >> 8 * i, 8) * (b >> 8 * i & 0xFF) for i in range(4))
    assert run("dp4a.s32.u32", (32, a), (32, b), (32, c)) == [(c + dot) & 0xFFFFFFFF]
    dot = sum((a >> 16 * i & 0xFFFF) * signed(b >> 16 + 8 * i, 8) for i in range(2))
    assert run("dp2a.hi.u32.s32", (32, a), (32, b), (32, c)) == [(c + dot) & 0xFFFFFFFF]


@given(words(64))
def test_bits_are_counted_and_found(a: int) -> None:
    assert run("popc.b64", (64, a)) == [a.bit_count()]
    assert run("clz.b64", (64, a)) == [64 - a.bit_length()]
    assert run("brev.b64", (64, a)) == [int(f"{a:064b}"[::-1], 2)]
    assert run("bfind.u64", (64, a)) == [(a.bit_length() - 1) & 0xFFFFFFFF]


@given(words(32), words(32))
def test_packed_halves_do_not_touch(a: int, b: int) -> None:
    pairs = [(signed(a >> shift, 16), signed(b >> shift, 16)) for shift in (0, 16)]
    expected = {
        "add": [x + y for x, y in pairs],
        "min": [min(x, y) for x, y in pairs],
        "max": [max(x, y) for x, y in pairs],
    }
    for mnemonic, (low, high) in expected.items():
        assert run(f"{mnemonic}.s16x2", (32, a), (32, b)) == [low & 0xFFFF | (high & 0xFFFF) << 16]


def test_division_by_zero_gives_what_hopper_gives() -> None:
    assert run("div.s32", (32, 5), (32, 0)) == [0xFFFFFFFF]
    assert run("rem.u64", (64, 5), (64, 0)) == [(1 << 64) - 1]
    assert run("div.s32", (32, 1 << 31), (32, 0xFFFFFFFF)) == [1 << 31]
