"""Flattening: names of nested scopes are moved out, the meaning is unchanged, and call sequences keep their braces."""

from __future__ import annotations

import pytest
from growth import assert_near_linear
from ptxmotion.ptx import Kernel, Module, Reg, flatten_scopes, parse, print_module

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def flat(body: str, before: str = "") -> tuple[Kernel, str]:
    module = parse(f"{HEAD}{before}.entry k(.param .u64 a)\n{{\n{body}\n}}\n")
    kernel = module.kernel("k")
    flatten_scopes(kernel)
    text = print_module(module)
    assert print_module(parse(text)) == text
    return kernel, text


def statements(kernel: Kernel) -> list[str]:
    return [instr.text for block in kernel.blocks for instr in block.instrs]


def test_a_name_that_is_free_is_kept_and_a_taken_one_is_numbered() -> None:
    kernel, text = flat(
        ".reg .b32 %r<4>;\n"
        "{ .reg .b32 t; mov.b32 t, 1; mov.b32 %r1, t; }\n"
        "{ .reg .b32 t, %r2; mov.b32 t, 2; mov.b32 %r2, t; }\n"
        "{ .reg .f32 t; mov.f32 t, 0f00000000; }"
    )
    assert statements(kernel) == [
        "mov.b32 t, 1;",
        "mov.b32 %r1, t;",
        "mov.b32 t_0, 2;",
        "mov.b32 %r_0, t_0;",
        "mov.f32 t__0, 0f00000000;",
    ]
    assert "{\n" not in text.partition("{\n")[2]


def test_registers_of_one_name_stay_different_registers() -> None:
    kernel, _ = flat(".reg .b32 x; mov.b32 x, 0; { .reg .b32 x; mov.b32 x, 1; } mov.b32 x, 2;")
    first, second, third = (instr.defs()[0] for instr in kernel.instructions())
    assert first is third
    assert first is not second
    assert first.name != second.name


def test_guards_addresses_vectors_and_pairs_follow_a_renamed_register() -> None:
    kernel, _ = flat(
        ".reg .pred p; .reg .b32 x, y; .reg .b64 q;\n"
        "{ .reg .pred p; .reg .b32 x, y; .reg .b64 q;\n"
        "mov.b64 q, 0; setp.eq.b32 p, 0, 0; mov.b64 {x, y}, q; shfl.sync.idx.b32 x|p, y, 0, 31, -1;\n"
        "@!p st.global.v2.b32 [q+8], {x, y}; vadd.s32.s32.s32 x, y.h1, x.b0; setp.ne.and.b32 p, x, y, !p; }"
    )
    assert statements(kernel)[3:] == [
        "shfl.sync.idx.b32 x_0|p_0, y_0, 0, 31, -1;",
        "@!p_0 st.global.v2.b32 [q_0+8], {x_0, y_0};",
        "vadd.s32.s32.s32 x_0, y_0.h1, x_0.b0;",
        "setp.ne.and.b32 p_0, x_0, y_0, !p_0;",
    ]


def test_labels_of_scopes_get_different_names() -> None:
    kernel, text = flat(".reg .pred p; setp.eq.b32 p, 0, 0; { @p bra L; L: } { @p bra L; L: } { L: bra L; } ret;")
    labels = [block.label.name for block in kernel.blocks if block.label is not None]
    assert labels == ["L", "L_0", "L_1"]
    assert text.count("bra L_1;") == 1


def test_a_module_level_name_is_not_captured() -> None:
    kernel, _ = flat(
        ".reg .b64 x; .reg .b32 y; { .reg .b32 g; mov.b32 g, 1; } mov.b64 x, g; ld.global.b32 y, [g+4];",
        before=".global .align 4 .b32 g[4];\n",
    )
    assert statements(kernel) == ["mov.b32 g_0, 1;", "mov.b64 x, g;", "ld.global.b32 y, [g+4];"]


def test_variables_and_initialisers_that_name_them_follow() -> None:
    scope = "{ .global .b32 g[2]; .global .u64 at = generic(g)+4; ld.global.u64 x, [at]; ld.global.u64 x, [g]; }"
    kernel, text = flat(f".reg .b64 x; {scope} {scope}", before=".global .b32 g;\n")
    assert statements(kernel)[2:] == ["ld.global.u64 x, [at_0];", "ld.global.u64 x, [g_1];"]
    assert ".global .u64 at = generic(g_0)+4;" in text
    assert ".global .u64 at_0 = generic(g_1)+4;" in text


def test_a_range_that_could_produce_the_new_name_is_avoided() -> None:
    kernel, _ = flat(".reg .b32 %r<4>, %r_<2>; { .reg .b32 %r1; mov.b32 %r1, 0; }")
    assert statements(kernel) == ["mov.b32 %r__0, 0;"]


def test_a_call_sequence_keeps_its_braces_but_not_its_registers() -> None:
    kernel, text = flat(
        ".reg .b32 %r<3>;\n"
        "{ .reg .b32 t; .param .b32 p0; st.param.b32 [p0], %r1; .param .b32 r0; call (r0), f, (p0);"
        " { .reg .b32 t; ld.param.b32 t, [r0]; } }",
        before=".func (.param .b32 r) f(.param .b32 p) { ret; }\n",
    )
    assert [instr.text for block in kernel.blocks for instr in block.instrs] == [
        "{",
        ".param .b32 p0;",
        "st.param.b32 [p0], %r1;",
        ".param .b32 r0;",
        "call (r0), f, (p0);",
        "ld.param.b32 t_0, [r0];",
        "}",
    ]
    assert text.count("\t{") == 1


def test_unknown_opcodes_follow_as_well() -> None:
    kernel, _ = flat(".reg .b32 x; { .reg .b32 x; mov.b32 x, 0; zap.b32 x+1, frob(x, y); }")
    assert statements(kernel)[1] == "zap.b32 x_0+1, frob(x_0, y);"


def test_flattening_changes_the_version_once_and_leaves_a_flat_kernel_alone() -> None:
    kernel, _ = flat(".reg .b32 x; { mov.b32 x, 0; }")
    version = kernel.version
    flatten_scopes(kernel)
    assert kernel.version == version > 0
    untouched, _ = flat(".reg .b32 x; mov.b32 x, 0;")
    assert untouched.version == 0


def nested(count: int) -> Module:
    scope = "{ .reg .pred p; .reg .b32 t<2>; setp.eq.b32 p, 0, %r1; @p bra L; add.s32 t1, %r1, 1; L: }\n"
    return parse(f"{HEAD}.entry k() {{ .reg .b32 %r<2>;\n{scope * count}\n}}\n")


@pytest.mark.slow
def test_time_is_linear_in_the_number_of_scopes() -> None:
    assert_near_linear(lambda count: nested(count).kernel("k"), flatten_scopes, 2_000)


def test_all_registers_are_declared_once() -> None:
    module = nested(50)
    kernel = module.kernel("k")
    flatten_scopes(kernel)
    names = {reg.name for instr in kernel.instructions() for reg in instr.defs()}
    assert len(names) == 100
    again = parse(print_module(module)).kernel("k")
    assert all(isinstance(reg, Reg) for instr in again.instructions() for reg in instr.uses())
