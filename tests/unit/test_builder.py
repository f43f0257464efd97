"""The builder makes instructions that print, parse and verify, and refuses those that the opcode table refuses."""

import re

import pytest
from ptxmotion.ptx import TYPES, Block, Guard, Module, PtxError, parse, print_module
from ptxmotion.ptx.builder import Builder, address, float_literal, vector
from ptxmotion.ptx.verify import verify

TEXT = """.version 9.0
.target sm_90
.address_size 64
.func (.param .b32 r) f(.param .b32 a) { ret; }
.visible .entry k(.param .u64 p) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; ret; }
"""


@pytest.fixture
def module() -> Module:
    return parse(TEXT)


def builder(module: Module) -> Builder:
    kernel = module.kernel("k")
    block = Block()
    kernel.insert_block(1, block)
    first = kernel.blocks[0]
    block.instrs.append(first.instrs.pop())
    return Builder(kernel, first)


def lines(b: Builder) -> list[str]:
    return [instr.text for instr in b.block.instrs[1:]]


def test_results_get_the_type_of_the_row(module: Module) -> None:
    b = builder(module)
    tid = b.mov("u32", b.special("%tid.x"))
    wide = b.mul("wide.u32", tid, 4)
    half = b.cvt("rn.f16.f32", float_literal(1.0))
    same = b.setp("eq.s32", tid, 3)
    both = b.cvt("rn.f16x2.f32", float_literal(1.0), float_literal(2.0))
    count = b.popc("b64", wide)
    both_true = b.and_("pred", same, same)
    found = [reg.type.name for reg in (tid, wide, half, same, both, count, both_true) if reg is not None]
    assert found == ["u32", "u64", "b16", "pred", "b32", "u32", "pred"]
    verify(module)
    printed = print_module(module)
    assert print_module(parse(printed)) == printed
    verify(parse(printed))


def test_memory_vectors_guards_and_branches(module: Module) -> None:
    b = builder(module)
    kernel = b.kernel
    base = kernel.blocks[0].instrs[0].defs()[0]
    quad = [b.new_reg("f32") for _ in range(4)]
    b.emit("ld.global.v4.f32", vector(quad), address(base, 16))
    condition = b.new_reg("pred")
    b.emit("setp.lt.f32", condition, quad[0], quad[1])
    b.guard = Guard(condition, negated=True)
    b.st("global.f32", address(base, -4), quad[2])
    b.emit("bra", kernel.blocks[1])
    b.guard = None
    assert lines(b) == [
        "ld.global.v4.f32 {%m_f32_0, %m_f32_1, %m_f32_2, %m_f32_3}, [%rd1+16];",
        "setp.lt.f32 %m_pred_0, %m_f32_0, %m_f32_1;",
        "@!%m_pred_0 st.global.f32 [%rd1+-4], %m_f32_2;",
        "@!%m_pred_0 bra $L_0;",
    ]
    verify(module)


def test_a_call_has_arguments_and_results(module: Module) -> None:
    b = builder(module)
    result = b.new_reg("b32")
    b.call(module.kernel("f"), [7], [result])
    assert lines(b) == ["call.uni (%m_b32_0), f, (7);"]
    verify(module)


def test_refuses_what_the_row_does_not_take(module: Module) -> None:
    b = builder(module)
    version = b.kernel.version
    reg = b.new_reg("f32")
    with pytest.raises(PtxError, match=re.escape("'%m_f32_0' is a .f32 register, 'add.s32' takes .s32 here")):
        b.add("s32", reg, 1)
    with pytest.raises(PtxError, match=re.escape("'add.s32' takes 3 operands, not 2")):
        b.emit("add.s32", b.new_reg("s32"), 1)
    with pytest.raises(ValueError, match=re.escape("no opcode 'zap.u32'")):
        b.zap("u32", 1)
    with pytest.raises(ValueError, match="use emit"):
        b.ld("global.v2.u32", address(reg))
    with pytest.raises(ValueError, match="no special register"):
        b.special("%nothing")
    assert b.kernel.version == version
    assert lines(b) == []


@pytest.mark.parametrize("type_name", [name for name, scalar in TYPES.items() if scalar.kind in "usfbp"])
def test_new_registers_have_a_type_that_ptxas_declares(module: Module, type_name: str) -> None:
    b = builder(module)
    reg = b.new_reg(type_name)
    assert reg.type.bits >= TYPES[type_name].bits
    verify(module)
