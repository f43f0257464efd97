"""The printed text comes from the IR: a change of any kind of instruction is printed, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptxmotion.ptx import (
    Guard,
    Imm,
    Instr,
    Kernel,
    Loc,
    Mem,
    Operand,
    Reg,
    load,
    parse,
    print_kernel,
    print_module,
    substitute,
)
from ptxmotion.ptx.instructions import Return
from ptxmotion.ptx.printer import print_with_lines

SYNTAX = sorted((Path(__file__).parent.parent / "ptx").glob("syntax_*.ptx"))
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


@pytest.mark.parametrize("path", SYNTAX, ids=lambda path: path.stem)
def test_parsing_what_was_printed_gives_the_same_text(path: Path) -> None:
    text = print_module(load(str(path)))
    assert print_module(parse(text)) == text


@pytest.mark.parametrize("path", SYNTAX, ids=lambda path: path.stem)
def test_the_lines_of_instructions(path: Path) -> None:
    """Each instruction is at the line at which the parser finds it in the text."""
    text, lines = print_with_lines(load(str(path)))
    printed = parse(text)
    assert text == print_module(printed)
    assert lines == {
        kernel.name: [printed.source.line_column(instr.pos)[0] for instr in kernel.instructions()]
        for kernel in printed.kernels
    }


def edited(kernel: Kernel, instr: Instr) -> str | None:
    """Rename every register of ``instr``. Returns the text that must then be printed; ``None`` without registers."""
    found: dict[Operand, Reg] = {}
    implicit = instr.implicit if isinstance(instr, Return) else ()
    for reg in (*instr.defs(), *(reg for reg in instr.uses() if reg not in implicit)):
        found[reg] = Reg(f"edited_{reg.name.strip('%$_')}", reg.type, reg.lanes)
    if not found:
        return None
    kernel.replace_operands(instr, tuple(substitute(operand, found) for operand in instr.operands))
    if instr.guard is not None and isinstance(instr.guard.reg, Reg):
        instr.guard = Guard(found[instr.guard.reg], negated=instr.guard.negated)
    assert all(new.name in instr.text for new in found.values())
    return instr.text


@pytest.mark.parametrize("path", SYNTAX, ids=lambda path: path.stem)
def test_an_edit_of_every_instruction_comes_out(path: Path) -> None:
    module = load(str(path))
    for kernel in module.kernels:
        for instr in kernel.instructions():
            before = print_kernel(kernel).splitlines()
            expected = edited(kernel, instr)
            if expected is None:
                continue
            after = print_kernel(kernel).splitlines()
            changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
            assert [new for _, new in changed] == [f"\t{expected}"]


def body(text: str) -> Kernel:
    return parse(f"{HEAD}.entry k()\n{{\n.reg .b32 %r<4>;\n.reg .b64 %rd<2>;\n{text}\n}}\n").kernel("k")


def lines(kernel: Kernel) -> list[str]:
    return [line.strip() for line in print_kernel(kernel).splitlines()[4:-1]]


def test_an_opcode_can_be_replaced() -> None:
    kernel = body("add.s32 %r1, %r2, 7;")
    (instr,) = kernel.instructions()
    version = kernel.version
    kernel.replace_form(instr, "sub.s32")
    assert lines(kernel)[-1] == "sub.s32 %r1, %r2, 7;"
    assert kernel.version > version


def test_offsets_and_literals_are_printed_as_they_were_given() -> None:
    kernel = body("ld.global.u32 %r1, [%rd1+-4]; ld.global.u32 %r1, [%rd1+0]; ld.global.u32 %r1, [ %rd1 - 8 ];")
    texts = [instr.address.text for instr in kernel.instructions() if instr.address is not None]
    assert texts == ["[%rd1+-4]", "[%rd1+0]", "[%rd1+-8]"]


def test_instructions_without_operands_have_no_blank_before_the_semicolon() -> None:
    assert lines(body("bar.warp.sync -1; ret ;"))[-2:] == ["bar.warp.sync -1;", "ret;"]


def test_new_instructions_and_registers_are_printed_with_their_declaration() -> None:
    kernel = body("ret;")
    reg = kernel.new_reg("b32")
    (block,) = kernel.blocks
    from ptxmotion.ptx import decode

    kernel.set_instrs(block, [Instr(decode("mov.b32", 2), (reg, Imm(3))), *block.instrs])
    text = print_kernel(kernel)
    assert f".reg .b32 {reg.name[:-1]}<1>;" in text
    assert f"mov.b32 {reg.name}, 3;" in text
    parse(HEAD + text)


def test_a_location_is_printed_where_it_changes() -> None:
    kernel = body(".loc 1 2 3\nmov.b32 %r1, 1; mov.b32 %r2, 2;\n.loc 1 3 1\nmov.b32 %r3, 3;")
    assert [line for line in lines(kernel) if line.startswith(".loc")] == [".loc 1 2 3", ".loc 1 3 1"]
    first = next(kernel.instructions())
    first.loc = Loc("1 9 9")
    assert [line for line in lines(kernel) if line.startswith(".loc")] == [".loc 1 9 9", ".loc 1 2 3", ".loc 1 3 1"]


def test_substitute_leaves_what_does_not_change_and_refuses_what_cannot_stand() -> None:
    kernel = body("st.global.v2.b32 [%rd1+8], {%r1, %r2};")
    (instr,) = kernel.instructions()
    address, vector = instr.operands
    assert isinstance(address, Mem)
    assert substitute(vector, {address.base: Imm(0)}) is vector
    assert substitute(address, {address.base: Imm(4096)}).text == "[4096+8]"
    kernel = body("vadd.s32.s32.s32 %r1, %r2.h0, 0;")
    (instr,) = kernel.instructions()
    with pytest.raises(TypeError):
        substitute(instr.operands[1], {instr.uses()[0]: Imm(1)})
