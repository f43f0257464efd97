"""Conversions and comparisons over lanes, for cases that the recorded results do not contain."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.emulator.semantics import resolve
from ptxmotion.ptx.decoding import decode
from ptxmotion.ptx.types import TYPES

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
ROUNDINGS = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def run(mnemonic: str, *sources: int) -> int:
    form = decode(mnemonic, len(sources) + 1)
    function = resolve(form)
    assert function is not None, mnemonic
    specs = [spec for spec in form.specs if spec.role == "use"]
    widths = [TYPES[form.mods.get(spec.type, spec.type)].bits for spec in specs[: len(sources)]]
    arrays = [np.array([bits], f"u{width // 8}") for bits, width in zip(sources, widths, strict=True)]
    return int(function(arrays)[0][0])


def limits(name: str) -> tuple[int, int]:
    width = int(name[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if name[0] == "s" else (0, (1 << width) - 1)


def single(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def double(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


@pytest.mark.parametrize("target", INTEGERS)
def test_floats_become_the_nearest_integer_that_fits(target: str) -> None:
    least, most = limits(target)
    mask = (1 << int(target[1:])) - 1

    @given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-300, 300), st.sampled_from(sorted(ROUNDINGS)))
    def check(wide: float, near: float, mode: str) -> None:
        for value in (wide, near, float(most), float(least), near + float(most)):
            expected = min(max(ROUNDINGS[mode](value), least), most) & mask
            assert run(f"cvt.{mode}.{target}.f64", double(value)) == expected

    check()


def test_nan_becomes_what_the_manual_says() -> None:
    assert run("cvt.rzi.s32.f32", 0x7FC00000) == 0
    assert run("cvt.rzi.s64.f32", 0x7FC00000) == 1 << 63
    assert run("cvt.rzi.u32.f64", 0x7FF8 << 48) == 1 << 31
    assert run("cvt.rzi.s16.f64", 0x7FF8 << 48) == 1 << 15


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_integers_become_the_wanted_neighbour(value: int, mode: str) -> None:
    for name, least, digits in (("f32", single, 24), ("f64", double, 53)):
        bits = run(f"cvt.{mode}.{name}.s64", value & ((1 << 64) - 1))
        unpack = ("<I", "<f") if name == "f32" else ("<Q", "<d")
        got = Fraction(struct.unpack(unpack[1], struct.pack(unpack[0], bits))[0])
        step = Fraction(max(1, 1 << max(abs(value).bit_length() - digits, 0)))
        below, above = math.floor(value / step) * step, math.ceil(value / step) * step
        towards = below if value >= 0 else above
        wanted = {"rz": towards, "rm": below, "rp": above}.get(mode)
        if wanted is None:
            assert abs(got - value) <= step / 2
            assert bits == least(float(got))
        else:
            assert got == wanted


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.integers(0, (1 << 64) - 1))
def test_integers_saturate_or_wrap(source: str, target: str, bits: int) -> None:
    bits &= (1 << int(source[1:])) - 1
    value = bits - (1 << int(source[1:])) if source[0] == "s" and bits > limits(source)[1] else bits
    least, most = limits(target)
    mask = (1 << int(target[1:])) - 1
    assert run(f"cvt.{target}.{source}", bits) == value & mask
    assert run(f"cvt.sat.{target}.{source}", bits) == min(max(value, least), most) & mask


def test_eight_bit_floats_round_trip() -> None:
    for name, nans in (("e4m3x2", {0x7F}), ("e5m2x2", {0x7C, 0x7D, 0x7E, 0x7F})):
        for code in range(256):
            wide = run(f"cvt.rn.f16x2.{name}", code | code << 8)
            back = run(f"cvt.rn.satfinite.{name}.f16x2", wide)
            if code & 0x7F not in nans:
                assert back == code | code << 8
    assert run("cvt.rn.satfinite.e4m3x2.f32", single(1e9), single(-0.0)) == 0x7E80
    assert run("cvt.rn.satfinite.relu.e5m2x2.f32", single(-3.0), single(1.5)) == 0x003E


def test_two_singles_make_a_pair_of_halves() -> None:
    assert run("cvt.rn.f16x2.f32", single(1.0), single(-2.0)) == 0x3C00C000
    assert run("cvt.rz.satfinite.bf16x2.f32", single(math.inf), single(1.0)) == 0x7F7F3F80
    assert run("cvt.rn.relu.f16x2.f32", single(-1.0), single(0.5)) == 0x00003800


def test_packed_conversions_saturate() -> None:
    assert run("cvt.pack.sat.s16.s32", 70000, -70000 & 0xFFFFFFFF) == 0x7FFF8000
    assert run("cvt.pack.sat.u8.s32.b32", 300, 7, 0xABCD) == 0xABCDFF07
    assert run("cvt.pack.sat.s4.s32.b32", 9, -9 & 0xFFFFFFFF, 0x123) == 0x12378


def test_comparisons_of_packed_halves_give_two_predicates() -> None:
    function = resolve(decode("setp.lt.f16x2"))
    assert function is not None
    low, high = function([np.array([0x3C00_0000], np.uint32), np.array([0x0000_3C00], np.uint32)])
    assert low.tolist() == [True] and high.tolist() == [False]


def test_comparisons_join_with_a_predicate() -> None:
    function = resolve(decode("setp.gt.and.s32"))
    assert function is not None
    operands = [np.array([3, 3], np.uint32), np.array([5, 1], np.uint32), np.array([True, True])]
    assert [result.tolist() for result in function(operands)] == [[False, True], [True, False]]


def test_flushing_reads_subnormals_as_zeros() -> None:
    assert run("set.eq.ftz.u32.f32", 1, 0x80000001) == 0xFFFFFFFF
    assert run("set.eq.u32.f32", 1, 0x80000001) == 0
    assert run("slct.ftz.u32.f32", 7, 9, 0x80000001) == 7
    assert run("slct.u32.f32", 7, 9, 0x80000001) == 9
