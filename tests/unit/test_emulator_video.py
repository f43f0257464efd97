"""Video instructions on the emulator, against the definitions of the manual in exact integers.

`tests/golden/video.py` makes the kernels; `manual` is the pseudocode of PTX ISA 9.0, §9.7.18, for one thread.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.launch import emulated
from golden.video import video_cases, video_columns
from ptxmotion.emulator import Emulator, UnsupportedInstruction
from ptxmotion.ptx import PtxError, parse
from ptxmotion.ptx.verify import verify

#: Lanes of each case that are compared: every one takes the time of an interpreter.
LANES = 40
_INSTRUCTION = re.compile(r"(v\S+) %d\d+(?:\.(\w+))?, %s0(?:\.(\w+))?, %s1(?:\.(\w+))?(, %s2)?;")
_COMPARISONS = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}


def extended(bits: int, width: int, kind: str) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind == "s32" and bits >> (width - 1) else bits


def clamped(value: int, width: int, kind: str) -> int:
    low = -(1 << (width - 1)) if kind == "s32" else 0
    return max(low, min(value, low + (1 << width) - 1))


def selected(word: int, selector: str, kind: str) -> int:
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return extended(word >> (width * int(selector[1:] or 0)), width, kind)


def primary(base: str, words: list[str], a: int, b: int) -> int:
    if base == "vset":
        return int(getattr(a, _COMPARISONS[words[2]])(b))
    if base in ("vshl", "vshr"):
        count = min(b, 32) if "clamp" in words else b & 31
        return extended(a << count, 34, "s32") if base == "vshl" else a >> count
    if base == "vavrg":
        return (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1
    return {"vadd": a + b, "vsub": a - b, "vabsdiff": abs(a - b), "vmin": min(a, b), "vmax": max(a, b)}[base]


def manual(mnemonic: str, d: str, x: str, y: str, a: int, b: int, c: int) -> int:
    """The result of one instruction; ``d``, ``x`` and ``y`` are the selectors of the result and of two sources."""
    base, *words = mnemonic.split(".")
    kinds = words if not base.startswith("vset") else ["u32", *words]
    parts = int(base[-1]) if base[-1] in "24" else 0
    if base == "vmad":
        signed = "s32" if "s32" in kinds[1:3] else "u32"
        value = selected(a, x, kinds[1]) * selected(b, y, kinds[2]) + extended(c, 32, signed) + ("po" in words)
        value >>= 7 if "shr7" in words else 15 if "shr15" in words else 0
        return (clamped(value, 32, signed) if "sat" in words else value) & 0xFFFFFFFF
    if not parts:
        value = primary(base, words, selected(a, x, kinds[1]), selected(b, y, kinds[2]))
        width = {"": 32, "b": 8, "h": 16}[d[:1]]
        if "sat" in words:
            value = clamped(value, width, kinds[0])
        third = extended(c, 32, kinds[0])
        for name, combined in (("add", value + third), ("min", min(value, third)), ("max", max(value, third))):
            if words[-1] == name:
                return combined & 0xFFFFFFFF
        start, mask = width * int(d[1:] or 0), (1 << width) - 1
        return value & mask if not d else (value & mask) << start | c & ~(mask << start) & 0xFFFFFFFF
    width, base = 32 // parts, base[:-1]
    result = c
    for index in range(parts):
        if d and str(index) not in d[1:]:
            continue
        places = [int(text[-1 - index]) if text else default + index for text, default in ((x[1:], 0), (y[1:], parts))]
        both = b << 32 | a
        one, other = (
            extended(both >> (place * width), width, kind) for place, kind in zip(places, kinds[1:3], strict=True)
        )
        value = primary(base, words, one, other)
        if "sat" in words:
            value = clamped(value, width, kinds[0])
        mask = (1 << width) - 1
        shifted = (value & mask) << (index * width)
        result = result + value if "add" in words else result & ~(mask << (index * width)) | shifted
    return result & 0xFFFFFFFF


def test_every_form_computes_what_the_manual_says() -> None:
    batch = list(video_cases().values())
    columns = tuple(column[:: video_columns()[0].size // 256][:256] for column in video_columns())
    for number, (case, results) in enumerate(zip(batch, emulated(batch, lambda _: columns, 0), strict=True)):
        instructions = [match for line in case.lines if (match := _INSTRUCTION.fullmatch(line))]
        assert len(instructions) == len(results) == len(case.results)
        for match, result in zip(instructions, results, strict=True):
            mnemonic, d, x, y, third = (each or "" for each in match.groups())
            for lane in range(number % 6, 256, 256 // LANES):
                a, b, c = (int(column[lane]) & 0xFFFFFFFF for column in columns)
                expected = manual(mnemonic, d, x, y, a, b, c if third else 0)
                assert int(result[lane]) == expected, (match[0], hex(a), hex(b), hex(c))


HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b32 %r<8>; .reg .f32 %f<2>; .reg .b16 %h; .reg .b64 %d; .reg .pred %p;
ld.param.u64 %d, [x];
ld.global.v4.u32 {%r1, %r2, %r3, %r0}, [%d];
setp.gt.u32 %p, %r3, 9;
"""


def run(line: str, *words: int) -> int:
    """The value of ``%r0`` after ``line``; before it, ``%r0`` is 5 and ``%r1``, ``%r2`` and ``%r3`` are ``words``."""
    x = np.array([*words, 5], np.uint32)
    text = f"{HEAD}{line}\nst.global.u32 [%d], %r0;\nret;\n}}\n"
    verify(parse(text))
    assert Emulator().load(text).launch("k", 1, 1, [x]).findings == []
    return int(x[0])


@pytest.mark.parametrize(
    ("line", "words", "result"),
    [
        ("vadd.s32.u32.s32.sat %r0, %r1.b0, %r2.h1;", (0xFF, 0x8000_1234, 0), 0xFFFF_80FF),
        ("vadd.u32.u32.u32.sat %r0, %r1, 0xFFFFFFFF;", (1, 0, 0), 0xFFFF_FFFF),
        ("vsub.u32.u32.u32.sat %r0, %r1, %r2;", (1, 2, 0), 0),
        ("vmin.s32.s32.s32.sat.add %r0, %r1, %r2, -7;", (3, 4, 0), 0xFFFF_FFFC),
        ("vabsdiff.s32.s32.s32.sat %r0.h0, %r1.b0, %r2.b2, %r3;", (0x80, 0x7F_0000, 0xABCD_1234), 0xABCD_00FF),
        ("vadd2.s32.s32.s32.sat %r0.h1, %r1, %r2, %r3;", (0x7FFF_0001, 0x0001_0001, 0xABCD_1234), 0x7FFF_1234),
        ("vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;", (0x0102_0304, 0x0403_0201, 100), 108),
        ("vavrg4.s32.s32.s32 %r0, %r1, %r2, %r3;", (0x01FF_0304, 0x04FE_0201, 100), 0x03FE_0303),
        ("vmad.u32.u32.u32.shr15 %r0, %r1, %r2, %r3;", (2**32 - 1,) * 3, 0xFFFE_0000),
        ("@%p vadd.u32.u32.u32 %r0, %r1, %r2;", (1, 2, 9), 5),
        ("@%p vadd.u32.u32.u32 %r0, %r1, %r2;", (1, 2, 10), 3),
    ],
)
def test_video_instructions_compute_as_the_manual_defines(line: str, words: tuple[int, int, int], result: int) -> None:
    assert run(line, *words) == result


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vadd.s32.u32.s32 %r0, %r1.h2, %r2;", "selector '.h2'"),
        ("vadd4.s32.s32.s32 %r0, %r1.b0, %r2, %r3;", "selector '.b0'"),
        ("vadd2.s32.s32.s32 %r0, %r1.h04, %r2, %r3;", "not declared"),
        ("vadd4.s32.s32.s32 %r0.b12, %r1, %r2, %r3;", "selector '.b12' of the result"),
        ("vmad.s32.s32.s32 %r0.h0, %r1, %r2, %r3;", "selector '.h0'"),
        ("vadd.s32.s32.s32.add %r0, %r1, %r2;", "no third source"),
        ("vadd.s32.s32.s32.add %r0.b1, %r1, %r2, %r3;", "a second operation and a part of the result"),
        ("vmad.s32.s32.s32 %r0, -%r1, %r2, %r3;", "vmad.s32.s32.s32 %r0, -%r1, %r2, %r3"),
    ],
)
def test_what_is_refused(line: str, message: str) -> None:
    with pytest.raises((UnsupportedInstruction, PtxError)) as caught:
        run(line, 1, 2, 3)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vadd.u32.u32.u32 %r0, %f1, %r2;", "'%f1' is a .f32 register, 'vadd.u32.u32.u32' takes .u32 here"),
        ("vadd.u32.u32.u32 %r0, %h.b0, %r2;", "'%h.b0' is a .b16 register, 'vadd.u32.u32.u32' takes .u32 here"),
        ("mov.b32 %r0, %r1.b0;", "'%r1.b0' is a part of a register"),
    ],
)
def test_the_verifier_knows_their_types(line: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        run(line, 1, 2, 3)
    assert message in str(caught.value)
