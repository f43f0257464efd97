"""Constant expressions: their values, which are those of ptxas 13.0, and where they may occur."""

from __future__ import annotations

import numpy as np
import pytest
from ptxmotion.analysis import Facts
from ptxmotion.emulator.initializer import initial_bytes
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.ptx.constants import ConstantError, constant_integer, constant_literal
from ptxmotion.ptx.ir import Module
from ptxmotion.ptx.types import TYPES, literal_bits
from ptxmotion.ptx.verify import problems
from ptxmotion.transforms.pipeline import run_passes

HEAD = """.version 9.0
.target sm_90
.address_size 64
.global .align 4 .u32 g[16];
.func f(.param .u32 a) { ret; }
"""
REGISTERS = """.reg .u32 %r<9>; .reg .u64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred %p<5>; .reg .b16 %h<5>;
.shared .align 8 .u32 tab[16]; .shared .align 8 .b64 m[4][2]; .shared .align 8 .v2 .u32 v[4]; .shared .u32 one;
"""


def module_of(instruction: str) -> Module:
    module = parse(f"{HEAD}.visible .entry k(.param .u64 p) {{\n{REGISTERS}{instruction}\nret;\n}}\n")
    assert problems(module) == []
    return module


def printed(instruction: str) -> str:
    """The instruction as it is printed."""
    module = module_of(instruction)
    text = print_module(module)
    assert print_module(parse(text)) == text
    return next(module.kernel("k").instructions()).text


#: Expressions, and the 64 bits that ptxas writes to a variable with this initializer.
VALUES = {
    "1+2": 0x3,
    "(3)": 0x3,
    "~7": 0xFFFFFFFFFFFFFFF8,
    "!0": 0x1,
    "!5": 0x0,
    "1<<4|1": 0x11,
    "(5>3)?7:9": 0x7,
    "5>3?7:9": 0x7,
    "(.s64)3": 0x3,
    "( .u64 )1": 0x1,
    "(.u64)-3/2": 0x7FFFFFFFFFFFFFFE,
    "-3/2": 0xFFFFFFFFFFFFFFFF,
    "-3/2U": 0x7FFFFFFFFFFFFFFE,
    "7 % 4": 0x3,
    "-7 % 4": 0x1,
    "7 %(4)": 0x3,
    "WARP_SZ": 0x20,
    "WARP_SZ*2": 0x40,
    "-WARP_SZ": 0xFFFFFFFFFFFFFFE0,
    "WARP_SZ-33>>33": 0xFFFFFFFFFFFFFFFF,
    "1<<64": 0x1,
    "1<<65": 0x2,
    "1<<(-1)": 0x8000000000000000,
    "-1>>64": 0xFFFFFFFFFFFFFFFF,
    "-1U>>64": 0xFFFFFFFFFFFFFFFF,
    "-1>>33": 0xFFFFFFFFFFFFFFFF,
    "-1U>>33": 0x7FFFFFFF,
    "~0>>33": 0x7FFFFFFF,
    "0xFFFFFFFFFFFFFFFF>>33": 0x7FFFFFFF,
    "-1<1U": 0x0,
    "-1<1": 0x1,
    "-1<~0": 0x0,
    "(1?-1:1U)>>33": 0xFFFFFFFFFFFFFFFF,
    "(0?1U:-1)>>33": 0xFFFFFFFFFFFFFFFF,
    "(1?~0:1)>>33": 0x7FFFFFFF,
    "(1==1U)-2>>33": 0xFFFFFFFFFFFFFFFF,
    "(1U&&1U)-2>>33": 0xFFFFFFFFFFFFFFFF,
    "(!1U)-2>>33": 0xFFFFFFFFFFFFFFFF,
    "(7 % 4)-5>>33": 0x7FFFFFFF,
    "(.s64)(~0)>>33": 0xFFFFFFFFFFFFFFFF,
    "(.u64)-1>>33": 0x7FFFFFFF,
    "(-1&1U)-2>>33": 0x7FFFFFFF,
    "+1U-2>>33": 0x7FFFFFFF,
    "1 ? 2 : 0 ? 3 : 4": 0x2,
    "0 ? 2 : 1 ? 3 : 4": 0x3,
    "2*3+4<<1&7^1|8": 0xD,
    "1|2==2": 0x1,
    "5&3==3": 0x1,
    "10-3-2": 0x5,
    "2<3<1": 0x0,
    "2<3==1": 0x1,
    "1&&0||1": 0x1,
    "3^5": 0x6,
    "--3": 0x3,
    "+ + 3": 0x3,
    "1++2": 0x3,
    "1+-2": 0xFFFFFFFFFFFFFFFF,
    "017+1": 0x10,
    "0b101+1": 0x6,
    "0B101+1": 0x6,
    "-9223372036854775808/2": 0x4000000000000000,
    "(-9223372036854775808)/-1": 0x0,
    "9223372036854775807+1": 0x8000000000000000,
    "18446744073709551615+1": 0x0,
    "1.0>0.5": 0x1,
    "(1.0<=2.0)*2|1": 0x3,
    "!!5": 0x1,
}

#: Floating-point expressions, and the bits of the double.
FLOATS = {
    "1.0+2.0": 0x4008000000000000,
    "-(1.5)": 0xBFF8000000000000,
    "(1.5)": 0x3FF8000000000000,
    "1.0/3.0": 0x3FD5555555555555,
    "1.0-2.0*3.0/4.0": 0xBFE0000000000000,
    "1.+.5": 0x3FF8000000000000,
    "1.5e1+1e1": 0x4039000000000000,
    "0.1+0.2": 0x3FD3333333333334,
    "- -1.5": 0x3FF8000000000000,
    "-(0.0)": 0x8000000000000000,
    "1e300*1e300": 0x7FF0000000000000,
    "(0f3F800000)": 0x3F800000,
    "((0d3FF0000000000000))": 0x3FF0000000000000,
    "(0f3F800000)+1.0": 0x3FF0000000000000,
    "-(0f3F800000)": 0x800000003F800000,
}


@pytest.mark.parametrize(("text", "bits"), VALUES.items())
def test_values_are_those_of_ptxas(text: str, bits: int) -> None:
    assert literal_bits(constant_literal(text), TYPES["u64"]) == bits
    assert constant_integer(text) & ((1 << 64) - 1) == bits


@pytest.mark.parametrize(("text", "bits"), FLOATS.items())
def test_floating_point_values_are_those_of_ptxas(text: str, bits: int) -> None:
    assert literal_bits(constant_literal(text), TYPES["f64"]) == bits


@pytest.mark.parametrize(
    "text",
    "7%4|7/0|7 % 0|0?1/0:5|0&&(1/0)|1.0/0.0|(.s32)3|(.f64)1|(. u64)1|1+|()|(1)(2)|1 2|1=1|1?2,3:4|(0,1)|1+2.0|!1.0|~1.0"
    "|1.0&&0.5|1.5?3:4|1?3.0:4.0|1.0 % 2.0|1.0<2|(.s64)1.0|09+1|99999999999999999999|1.0e400+0.0|-(0f3F800000|1+%r1"
    "|0f3F800000+1.0|-0d3FF0000000000000|1e300*1e300-1e300*1e300|WARP_SZ(1)|WARP_SZ2".split("|"),
)
def test_what_is_no_constant_expression(text: str) -> None:
    with pytest.raises(ConstantError):
        constant_literal(text)


def test_deep_and_long_expressions_are_refused_at_once() -> None:
    for text in ("(" * 100_000, "-" * 100_000 + "1", "1?" * 60_000 + "1", "1+" * 100_000 + "1"):
        with pytest.raises(ConstantError):
            constant_literal(text)
    deepest = "1||1&&1|1^1&1==1<1<<1+1*(" * 40
    assert constant_literal(deepest + "1" + ")" * 40) == "1"


#: Instructions, and their printed text if it is different.
FORMS = {
    "add.u32 %r2, %r1, WARP_SZ+1;": "add.u32 %r2, %r1, 33;",
    "mov.u32 %r1, WARP_SZ;": "mov.u32 %r1, WARP_SZ;",
    "mov.u32 %r1, (5>3)?7:9;": "mov.u32 %r1, 7;",
    "mov.u32 %r1, !0;": "mov.u32 %r1, 1;",
    "mov.f32 %f1, 1.0+2.0;": "mov.f32 %f1, 0d4008000000000000;",
    "mov.f32 %f1, (0f7F800001);": "mov.f32 %f1, 0f7F800001;",
    "mov.pred %p1, !1;": "mov.pred %p1, 0;",
    "and.pred %p1, %p2, !%p3;": "and.pred %p1, %p2, !%p3;",
    "mov.b64 %rd1, {1+1, (2)};": "mov.b64 %rd1, {2, 2};",
    "st.global.v2.u32 [%rd1+4*2], {1+1, (2)};": "st.global.v2.u32 [%rd1+8], {2, 2};",
    "ld.global.u32 %r1, [%rd1+5>3?8:4];": "ld.global.u32 %r1, [%rd1+8];",
    "ld.global.u32 %r1, [%rd1+~3];": "ld.global.u32 %r1, [%rd1+-4];",
    "ld.global.u32 %r1, [%rd1+8-4];": "ld.global.u32 %r1, [%rd1+4];",
    "ld.global.u32 %r1, [%rd1+0*1];": "ld.global.u32 %r1, [%rd1+0];",
    "ld.shared.u32 %r1, [tab+WARP_SZ];": "ld.shared.u32 %r1, [tab+32];",
    "ld.local.u32 %r1, [2*2];": "ld.local.u32 %r1, [4];",
    "mov.u32 %r1, tab[2];": "mov.u32 %r1, tab+8;",
    "mov.u32 %r1, tab [ WARP_SZ/8 ];": "mov.u32 %r1, tab+16;",
    "mov.u32 %r1, tab[0];": "mov.u32 %r1, tab;",
    "mov.u32 %r1, m[1];": "mov.u32 %r1, m+8;",
    "mov.u32 %r1, v[1];": "mov.u32 %r1, v+4;",
    "mov.u32 %r1, tab+4|1;": "mov.u32 %r1, tab+5;",
    "mov.u32 %r1, tab+(4);": "mov.u32 %r1, tab+4;",
    "mov.u32 %r1, tab+~3;": "mov.u32 %r1, tab+-4;",
    "add.u32 %r1, %r2, tab+0;": "add.u32 %r1, %r2, tab+0;",
    "add.u32 %r1, %r2, tab+(4-4);": "add.u32 %r1, %r2, tab+0;",
    "call f, (1+2);": "call f, (3);",
    "call f, ((5>3)?7:9);": "call f, (7);",
    "@%p1 mov.u32 %r1, (3);": "@%p1 mov.u32 %r1, 3;",
    "@!%p1 call f, (~0);": "@!%p1 call f, (18446744073709551615);",
    "bar.sync 0, WARP_SZ*2;": "bar.sync 0, 64;",
    "mov.u32 %r1,\n\t(1 +\n 2);": "mov.u32 %r1, 3;",
}


@pytest.mark.parametrize(("instruction", "text"), FORMS.items())
def test_every_place_takes_an_expression(instruction: str, text: str) -> None:
    assert printed(instruction) == text


@pytest.mark.parametrize(
    "instruction",
    [
        "mov.u32 %r1, %laneid-1;",
        "mov.u32 %r1, %laneid+1.0;",
        "mov.u32 %r1, %laneid+%r2;",
        "mov.u32 %r1, %laneid[1];",
        "mov.f32 %f1, %f2+1;",
        "mov.pred %p1, %p2+1;",
        "mov.u32 %r1, 1+%laneid;",
        "mov.u32 %r1, (%r2);",
        "mov.u32 %r1, tab[2]+4;",
        "mov.u32 %r1, m[1][1];",
        "mov.u32 %r1, one[0];",
        "mov.u32 %r1, tab[1.0];",
        "mov.u32 %r1, tab*2;",
        "mov.u32 %r1, 4+tab;",
        "mov.u32 %r1, (1;",
        "mov.u32 %r1, 1);",
        "ld.shared.u32 %r1, [tab[2]];",
        "ld.global.u32 %r1, [4+%rd1];",
        "ld.global.u32 %r1, [%rd1+1.0];",
        "ld.global.u32 %r1, [%rd1*4];",
        "call f, (%r1+1);",
        "call f, (1+2;",
        "@!!%p1 mov.u32 %r1, 1;",
        "@(1) mov.u32 %r1, 1;",
        ".reg .u32 %q<2+2>;",
        ".reg .u32 .u64 %q;",
        ".shared .align 2+2 .u32 q;",
        ".shared .u32 .u64 q;",
        ".shared .u32 q[2+2];",
        ".shared .align 4 .align 8 .u32 q;",
    ],
)
def test_what_is_no_operand_is_refused_at_its_place(instruction: str) -> None:
    with pytest.raises(PtxError) as caught:
        module_of(instruction)
    assert caught.value.source.line_column(caught.value.pos)[0] == 9


def test_directives_take_warp_sz_and_no_expressions() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".global .align WARP_SZ .u32 a[WARP_SZ][010];\n"
        ".entry k() .maxntid WARP_SZ, 2 { .reg .u32 %r<WARP_SZ>; mov.u32 %r31, 1; ret; }\n"
    )
    shown = print_module(parse(text))
    assert ".align 32 .u32 a[32][8];" in shown and ".maxntid 32, 2" in shown and "%r<32>" in shown
    for old, new in (("WARP_SZ, 2", "WARP_SZ*2"), ("WARP_SZ, 2", "WARP_SZ,"), ("[010]", "[+8]"), ("[010]", "[(8)]")):
        with pytest.raises(PtxError):
            parse(text.replace(old, new))


def test_a_register_at_module_scope_is_refused_by_name() -> None:
    with pytest.raises(PtxError, match="register cannot be declared outside of a function: the ABI"):
        parse(".version 9.0\n.target sm_90\n.address_size 64\n.reg .u32 %m;\n")


@pytest.mark.parametrize(
    ("declaration", "values"),
    [
        (".global .u32 a = 1+2;", [3]),
        (".global .u32 a[3] = {1+1, (5>3)?7:9, WARP_SZ << 1};", [2, 7, 64]),
        (".global .u64 a[4] = {b+2*4, generic(b)+(1<<2), b + WARP_SZ, b+8-4};", [1008, 1004, 1032, 1004]),
        (".global .u8 a[3] = {0xff(b+4), 0xff00(generic(b)+(2*4)), 255(b)};", [0xEC, 0x03, 0xE8]),
        (".global .s32 a[2] = {- 3, 7 % 4};", [(1 << 32) - 3, 3]),
        (".global .f32 a[2] = {1.0+1.0, -(2.0)};", [0x40000000, 0xC0000000]),
        (".global .v2 .u32 a = {1+1,2};", [2, 2]),
    ],
)
def test_initializers_take_expressions(declaration: str, values: list[int]) -> None:
    module = parse(f".version 9.0\n.target sm_90\n.address_size 64\n.global .u32 b[64];\n{declaration}\n")
    assert problems(module) == []
    variable = module.variables[1]
    size = variable.type.bytes
    data = initial_bytes(variable, {"b": 1000}.__getitem__, size * len(values))
    assert np.frombuffer(data, f"<u{size}").tolist() == values


@pytest.mark.parametrize("text", ["1+", "b-4", "(b)", "generic(b+4)", "1 2", "{1}", "b+1.0", "mask(b)"])
def test_what_is_no_initializer_is_refused(text: str) -> None:
    module = parse(f".version 9.0\n.target sm_90\n.address_size 64\n.global .u32 b[64];\n.global .u64 a = {text};\n")
    with pytest.raises(ValueError, match=r"constant|address|integer|ends too early"):
        initial_bytes(module.variables[1], {"b": 1000}.__getitem__, 8)


#: Instructions with a register and a constant, and the instructions that they are parsed to.
SUMS = {
    "mov.u32 %r1, %laneid+1;": "mov.b32 %sum0, %laneid; add.u32 %sum1, %sum0, 1; mov.u32 %r1, %sum1;",
    "mul.lo.u32 %r1, %laneid+(3-5), %r2;": (
        "mov.b32 %sum0, %laneid; add.u32 %sum1, %sum0, -2; mul.lo.u32 %r1, %sum1, %r2;"
    ),
    "mov.u32 %r1, %r2+1;": "add.u32 %sum0, %r2, 1; mov.u32 %r1, %sum0;",
    "@%p1 st.global.u32 [%rd1+4], %r2+1;": "add.u32 %sum0, %r2, 1; @%p1 st.global.u32 [%rd1+4], %sum0;",
    "cvt.u64.u8 %rd1, %r2+300;": "add.u32 %sum0, %r2, 300; cvt.u64.u8 %rd1, %sum0;",
    "mad.lo.u32 %r1, %r2+1, %r2+1, %r2+12;": (
        "add.u32 %sum0, %r2, 1; add.u32 %sum1, %r2, 1; add.u32 %sum2, %r2, 12; mad.lo.u32 %r1, %sum0, %sum1, %sum2;"
    ),
    "st.global.u64 [%rd1+4], %rd1+4;": "add.u64 %sum0, %rd1, 4; st.global.u64 [%rd1+4], %sum0;",
}


@pytest.mark.parametrize(("instruction", "text"), SUMS.items())
def test_a_register_plus_a_constant_is_an_addition(instruction: str, text: str) -> None:
    instrs = [instr.text for instr in module_of(instruction).kernel("k").instructions()]
    assert " ".join(instrs[: text.count(";")]) == text


def test_the_new_registers_have_names_of_their_own() -> None:
    module = module_of("mov.u32 %r1, %r2+1;\n{ .reg .u32 %sum0;\nmov.u32 %sum0, %r1+2;\n}")
    assert "add.u32 %sum_0, %r2, 1;" in print_module(module)
    assert print_module(parse(print_module(module))) == print_module(module)


def test_no_level_loses_an_offset() -> None:
    text = print_module(module_of("mov.u32 %r1, %laneid+1;\nadd.u32 %r2, %r1, WARP_SZ+1;\nst.global.u32 [%rd1], %r2;"))
    for level in ("none", "O1", "O2", "O3"):
        module = parse(text)
        run_passes(module, level)
        shown = print_module(module)
        assert ", 1;" in shown and ", 33;" in shown, level


def test_a_special_register_with_an_offset_diverges() -> None:
    module = module_of(
        "mov.u32 %r1, %laneid+1;\nmov.u32 %r2, WARP_SZ+1;\n"
        "setp.eq.u32 %p1, %r1, 3;\nsetp.eq.u32 %p2, %r2, 33;\n@%p2 bra A;\n@%p1 bra A;\nmov.u32 %r3, 1;\nA:"
    )
    found = Facts(module.kernel("k")).divergence
    assert found.divergent_branches == [1]
