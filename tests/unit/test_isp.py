"""Iteration space partitioning with the gate, and with products that ptxas may contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ptxmotion import Policy, optimize
from ptxmotion.analysis.interior.block_bounds import BlockBounds, Needs, Unbounded
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.polynomial import Poly, variable
from ptxmotion.analysis.values.thread_affine import coordinate
from ptxmotion.cost import Figures, slower_loops
from ptxmotion.judges import Assembled
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import ToolMissing, find_ptxas
from ptxmotion.transforms.gate.static_judge import StaticJudge
from ptxmotion.transforms.gate.usual_figures import usual_figures, usual_part
from ptxmotion.transforms.pipeline import run_passes

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u64 a, .param .u64 o, .param .u32 n)
{
    .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<16>; .reg .pred %p<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [o];
    ld.param.u32 %r5, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    add.s32 %r6, %r4, -1;
    setp.lt.s32 %p1, %r6, 0;
    setp.ge.s32 %p2, %r4, %r5;
    ld.global.f32 %f1, [%rd4];
BODY
    ret;
}
"""


def kernel(*lines: str) -> str:
    return HEAD + KERNEL.replace("BODY", "\n".join(f"    {line}" for line in lines))


def copy_and_body(text: str) -> tuple[str, str]:
    copy, label, body = text.partition("$L_isp_border0:")
    assert label
    return copy, body


SUM = ("add.f32 %f3, %f2, 0f3F000000;", "st.global.f32 [%rd5], %f3;")


def test_a_contracted_product_stays_contracted_in_the_copy() -> None:
    text = optimize(kernel("@%p1 st.global.u32 [%rd5+4], %r5;", "mul.f32 %f2, %f1, %f1;", *SUM), "isp:least=1").text
    copy, body = copy_and_body(text)
    assert "mul.f32" in copy and "mul.f32" in body and "mul.rn" not in text


def test_a_kernel_with_a_product_that_the_copy_reads_less_often_is_not_split() -> None:
    """ptxas may contract the product with the sum although a guarded store reads it. The copy would have no store."""
    lines = ("mul.f32 %f2, %f1, %f1;", "add.f32 %f3, %f2, 0f3F000000;", "@%p1 st.global.f32 [%rd5+4], %f2;")
    result = optimize(kernel(*lines, "st.global.f32 [%rd5], %f3;"), "isp:least=1")
    assert result.changed == () and "contraction" in {remark.reason for remark in result.remarks}
    other = "@%p1 st.global.f32 [%rd5+4], %f1;"
    assert optimize(kernel(*lines[:2], other, "st.global.f32 [%rd5], %f3;"), "isp:least=1").changed


OPEN = (
    "mov.f32 %f2, 0f00000000;",
    "@%p1 bra JOIN;",
    "mul.f32 %f2, %f1, %f1;",
    "JOIN:",
    "add.f32 %f3, %f2, 0f3F000000;",
    "st.global.f32 [%rd5], %f3;",
)


def test_open_products_need_machine_code() -> None:
    assert optimize(kernel(*OPEN), "isp:least=1").changed == ()
    try:
        find_ptxas(".version 8.0")
    except ToolMissing as missing:
        pytest.skip(str(missing))
    text = optimize(kernel(*OPEN), "isp:least=1", Policy(gate="ptxas")).text
    if "isp_border" in text:  # where the gate keeps it, ptxas rounds the product in both
        assert "mul.rn.f32" in copy_and_body(text)[0]


def test_the_figures_of_a_split_kernel_are_those_of_the_interior() -> None:
    text = kernel("max.s32 %r7, %r6, 0;", "ld.global.f32 %f2, [%rd4+8];", "st.global.u32 [%rd5], %r7;")
    module = parse(text)
    before = usual_figures(StaticJudge(), module)["k"]
    assert usual_part(module.kernels[0], module) is None
    assert run_passes(module, "isp:least=1")
    part = usual_part(module.kernels[0], module)
    assert part is not None and part.name != "k"
    assert all(block.label is None or "border" not in block.label.text for block in part.blocks)
    assert "bra" not in " ".join(instr.form.text for instr in part.instructions())
    after = usual_figures(StaticJudge(), module)["k"]
    assert after.weight == before.weight  # the whole kernel has each access twice
    assert StaticJudge().figures(module)["k"].weight == 2 * before.weight


#: A sum over a window whose loop ptxas does not unroll.
LOOP = (
    "mov.f32 %f9, 0f00000000;",
    "mov.u32 %r10, -4;",
    "add.s32 %r12, %r5, -1;",
    '$L_head: .pragma "nounroll";',
    "add.s32 %r11, %r4, %r10;",
    "min.s32 %r11, %r11, %r12;",
    "max.s32 %r11, %r11, 0;",
    "mul.wide.s32 %rd6, %r11, 4;",
    "add.s64 %rd7, %rd1, %rd6;",
    "ld.global.f32 %f2, [%rd7];",
    "add.f32 %f9, %f9, %f2;",
    "add.s32 %r10, %r10, 1;",
    "setp.lt.s32 %p3, %r10, 5;",
    "@%p3 bra $L_head;",
    "st.global.f32 [%rd5], %f9;",
)


def test_the_loops_of_a_split_kernel_are_those_of_the_interior() -> None:
    try:
        judge = Assembled(PtxasJudge(tool=find_ptxas(".version 8.0")))
    except ToolMissing as missing:
        pytest.skip(str(missing))
    module = parse(kernel(*LOOP))
    before = usual_figures(judge, module)["k"]
    assert run_passes(module, "isp:least=1,copyprop,dce")
    whole, usual = judge.figures(module)["k"], usual_figures(judge, module)["k"]
    for name in ("looped", "quickest", "exposed", "cached", "requests", "weight_in_loops"):
        old, all_code, own = (getattr(each, name) for each in (before, whole, usual))
        assert all_code > 1.5 * own and own <= old, name
    for name in ("code", "registers", "warps", "threads"):
        assert getattr(usual, name) == getattr(whole, name) != 0, name
    assert not slower_loops(before, usual)


def test_spills_are_those_of_the_worse_side() -> None:
    class Fixed(StaticJudge):
        def figures(self, module: Module) -> dict[str, Figures]:
            spills = {"k": 9}
            return {each.name: Figures("", 8, spills.get(each.name, 4), 64, 1) for each in module.entries}

    module = parse(kernel("max.s32 %r7, %r6, 0;", "st.global.u32 [%rd5], %r7;"))
    assert run_passes(module, "isp:least=1")
    assert usual_figures(Fixed(), module)["k"].spills == 5


def test_the_resident_warps_are_those_of_the_whole_kernel() -> None:
    class Fixed(StaticJudge):
        def figures(self, module: Module) -> dict[str, Figures]:
            found = {each.name: Figures("", 8, 0, 64, 1, resident=(64,) * 4) for each in module.entries}
            return {**found, "k": replace(found["k"], registers=168, warps=8, resident=(12, 8, 0, 0))}

    module = parse(kernel("max.s32 %r7, %r6, 0;", "st.global.u32 [%rd5], %r7;"))
    assert run_passes(module, "isp:least=1")
    usual = usual_figures(Fixed(), module)["k"]
    assert (usual.registers, usual.warps, usual.resident) == (168, 8, (12, 8, 0, 0))


def test_a_split_kernel_is_not_split_again() -> None:
    text = kernel("max.s32 %r7, %r6, 0;", "st.global.u32 [%rd5], %r7;")
    once = optimize(text, "isp:least=1").text
    again = optimize(once, "isp:least=1")
    assert again.changed == () and print_module(parse(once)) == again.text


def test_a_tree_that_reads_each_value_twice_has_few_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not followed along each of its paths, which are thousands here."""
    calls = 0
    within = BlockBounds.within

    def counting(self: BlockBounds, form: Poly, kind: str, bits: int, needs: Needs) -> None:
        nonlocal calls
        calls += 1
        within(self, form, kind, bits, needs)

    monkeypatch.setattr(BlockBounds, "within", counting)
    chain = [f"or.b32 %r{number}, %r{number - 1}, %r{number - 2};" for number in range(10, 30)]
    first = ["add.s32 %r8, %r4, -1;", "add.s32 %r9, %r4, -2;"]
    text = kernel(*first, *chain, "setp.lt.s32 %p3, %r29, 0;", "@%p3 st.global.u32 [%rd5], %r5;")
    copy, _ = copy_and_body(optimize(text, "isp:least=1,dce").text)
    assert "st.global" not in copy and calls < 200


def test_conditions_with_many_terms_are_compared_only_where_their_difference_is_not_too_long() -> None:
    names = [f"n{number}" for number in range(60)]
    lines = ["mov.u32 %r6, %r4;", "mov.u32 %r7, %r4;"]
    for number, name in enumerate(names):
        register = "%r6" if number < 30 else "%r7"
        lines += [f"ld.param.u32 %r8, [{name}];", f"sub.s32 {register}, {register}, %r8;"]
    for predicate, register in (("%p3", "%r6"), ("%p4", "%r7")):
        lines += [f"setp.lt.s32 {predicate}, {register}, 0;", f"@{predicate} st.global.u32 [%rd5], %r5;"]
    params = ", ".join(f".param .u32 {name}" for name in ["n", *names])
    text = kernel(*lines).replace(".param .u32 n)", f"{params})")
    copy, body = copy_and_body(optimize(text, "isp:least=1").text)
    assert "st.global" not in copy and body.count("st.global") == 2


def test_a_variable_of_a_call_with_the_name_of_a_parameter() -> None:
    """The test at the entry reads the parameter, which has another width."""
    function = (
        ".func (.param .b64 r) f()\n{\n    .reg .b64 %x;\n    mov.b64 %x, 1;\n    st.param.b64 [r], %x;\n    ret;\n}\n"
    )
    call = ("{", ".param .b64 n;", "call.uni (n), f, ();", "ld.param.b64 %rd6, [n];", "}")
    text = kernel(*call, "min.s32 %r7, %r4, %r5;", "st.global.u32 [%rd5], %r7;").replace(HEAD, HEAD + function)
    copy, body = copy_and_body(optimize(text, "isp:least=1").text)
    assert copy.count("ld.param.u32") == 2 and copy.count("[n]") == body.count("[n]") + 1
    assert copy.count("ld.param.b64") == body.count("ld.param.b64") == 1 and "ld.param.u64 %isp_u64" not in copy


def bounds() -> BlockBounds:
    return BlockBounds(Facts(parse(kernel()).kernels[0]))


def least(form: Poly) -> list[str]:
    needs = Needs()
    bounds().not_negative(form, needs)
    return [str(each) for each in needs.conditions]


def test_the_least_value_over_the_threads_of_a_block() -> None:
    tid, ntid = variable(coordinate("tid", "x")), variable(coordinate("ntid", "x"))
    first = variable(coordinate("ctaid", "x")) * ntid
    assert least(first + tid - 1) == ["ctaid.x*ntid.x - 1"]
    assert least(-first - tid + 9) == ["-ctaid.x*ntid.x - ntid.x + 10"]
    assert least(tid) == []
    with pytest.raises(Unbounded, match="not-affine"):
        least(first - tid * tid)
    with pytest.raises(Unbounded, match="too-large"):
        least(first * first * first - tid)


#: Stores beyond the lower edge (%p1) and beyond the upper one (%p2).
BOTH_EDGES = ("@%p1 st.global.f32 [%rd5+4], %f1;", "@%p2 st.global.f32 [%rd5+8], %f1;", "st.global.f32 [%rd5], %f1;")


def test_a_block_at_one_edge_keeps_the_checks_of_this_edge_only() -> None:
    result = optimize(kernel(*BOTH_EDGES), "isp:least=1:edges=1000,dce")
    (message,) = (each.message for each in result.remarks if each.pass_name == "isp" and each.kind == "Passed")
    # Without the upper condition, the index may wrap, so the outcome of the lower check is not known either.
    assert message.startswith("2 border checks") and message.endswith(", and 1 in blocks at one edge")
    interior, rest = copy_and_body(result.text)
    switch, label, rest = rest.partition("$L_isp_edge0:")
    assert label and "bra $L_isp_edge0;" in switch and "bra $L_isp_body0;" in switch
    edge, label, body = rest.partition("$L_isp_body0:")
    assert label
    stores = {part: [part.count(f"+{at}], ") for at in (4, 8)] for part in (interior, edge, body)}
    assert stores == {interior: [0, 0], edge: [1, 0], body: [1, 1]}


def test_edges_get_no_copies_beyond_the_limit() -> None:
    text = kernel(*BOTH_EDGES)
    size = sum(1 for _ in parse(text).entries[0].instructions())
    for limit, copies in ((0, 0), (size - 1, 0), (size, 1)):
        assert optimize(text, f"isp:least=1:edges={limit}").text.count("$L_isp_edge0:") == copies
    # `least` is also the least number of checks that such a copy loses.
    assert "isp_edge" not in optimize(text, "isp:least=2:edges=1000").text
