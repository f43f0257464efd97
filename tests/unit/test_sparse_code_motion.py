"""SCM, SPRE and SSCM: the thesis's figures 3.2, 4.1, 4.4 and 4.6 with their counts; refusals; random kernels.

The graphs are rebuilt from the prose, since the figures themselves are not at hand: the nodes that it names bear its
numbers, ``%p1`` and ``%p2`` come from the thread index and diverge, ``%p3`` comes from a parameter and does not.
"""

from __future__ import annotations

import pytest
from motion import blocks_with, check_random_kernels, count, optimized
from ptxmotion.transforms.passes import UnknownPass, create_pass

PREDICATES = """
    mov.u32 %r40, %tid.x;
    ld.param.u32 %r1, [out];
    ld.param.u32 %r2, [out+4];
    setp.eq.u32 %p1, %r40, 3;
    setp.eq.u32 %p2, %r40, 5;
    setp.eq.u32 %p3, %r1, 7;
"""

#: Figure 4.6b, and with ``%p3`` for ``%p1`` figure 4.4b: occurrences at nodes 3, 7 and 8.
FIGURE_4_6 = (
    PREDICATES
    + """
N1: @%p3 bra N6;
N2: add.s32 %r9, %r9, 1;
N4: @{four} bra N5;
N3: mul.lo.s32 %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
N5: bra.uni N10;
N6: @{six} bra N8;
N7: mul.lo.s32 %r4, %r1, %r2;
    st.global.u32 [%rd1+4], %r4;
    bra.uni N9;
N8: mul.lo.s32 %r5, %r1, %r2;
    st.global.u32 [%rd1+8], %r5;
N9: st.global.u32 [%rd1+12], %r9;
N10: ret;
"""
)


def test_figure_4_4_scm_decreases_three_occurrences_to_two() -> None:
    module, _ = optimized(FIGURE_4_6.format(four="%p3", six="%p3"), "scm:weights=uniform")
    assert blocks_with(module, "mul.lo.s32") == ["N3", "N6"]


def test_figure_4_4_lcm_leaves_three_occurrences() -> None:
    module, _ = optimized(FIGURE_4_6.format(four="%p3", six="%p3"), "lcm")
    assert blocks_with(module, "mul.lo.s32") == ["N3", "N7", "N8"]


@pytest.mark.parametrize("weights", ["uniform", "loop"])
def test_figure_4_6_sscm_decreases_three_occurrences_to_one_at_node_1(weights: str) -> None:
    module, _ = optimized(FIGURE_4_6.format(four="%p1", six="%p2"), f"sscm:weights={weights}")
    assert blocks_with(module, "mul.lo.s32") == ["N1"]


def test_figure_4_6_sscm_is_scm_where_nothing_diverges() -> None:
    module, _ = optimized(FIGURE_4_6.format(four="%p3", six="%p3"), "sscm")
    assert blocks_with(module, "mul.lo.s32") == ["N3", "N6"]


def test_spre_speculates_at_any_branch() -> None:
    module, _ = optimized(FIGURE_4_6.format(four="%p3", six="%p3"), "spre")
    assert blocks_with(module, "mul.lo.s32") == ["N1"]


#: Figure 4.1a: an expression in one side of divergent branch 2 and in node 7, partially redundant there.
FIGURE_4_1 = (
    PREDICATES
    + """
N1: @%p1 bra N6;
N2: @%p2 bra N4;
N3: mul.lo.s32 %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
    bra.uni N5;
N4: add.s32 %r9, %r9, 1;
N5: add.s32 %r9, %r9, 2;
    bra.uni N7;
N6: add.s32 %r9, %r9, 3;
N7: mul.lo.s32 %r4, %r1, %r2;
    st.global.u32 [%rd1+4], %r4;
    st.global.u32 [%rd1+8], %r9;
    ret;
"""
)


def test_figure_4_1_lcm_inserts_into_the_arms_of_divergent_branches() -> None:
    module, _ = optimized(FIGURE_4_1, "lcm")
    assert sorted(blocks_with(module, "mul.lo.s32")) == ["N3", "N4", "N6"]


def test_figure_4_1_cdrnd_keeps_lcm_out_of_them() -> None:
    module, remarks = optimized(FIGURE_4_1, "lcm:cdrnd_insertion=true")
    assert blocks_with(module, "mul.lo.s32") == ["N3", "N7"]
    assert [remark.reason for remark in remarks.items] == ["divergent-insertion"]


def test_figure_4_1_sscm_evaluates_once_before_the_branches() -> None:
    module, _ = optimized(FIGURE_4_1, "sscm")
    assert blocks_with(module, "mul.lo.s32") == ["N1"]


#: Figure 3.2a: 1 leads to 3; 3 to 2 (and back) or 4; 4 to 5 or 6; occurrences at 2 and 5.
FIGURE_3_2 = (
    PREDICATES
    + """
N1: add.s32 %r9, %r9, 1;
N3: @{loop} bra N4;
N2: mul.lo.s32 %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
    bra.uni N3;
N4: @{last} bra N6;
N5: mul.lo.s32 %r4, %r1, %r2;
    st.global.u32 [%rd1+4], %r4;
N6: add.s32 %r9, %r9, 2;
N7: st.global.u32 [%rd1+8], %r9;
    ret;
"""
)


@pytest.mark.parametrize("passes", ["lcm", "scm", "scm:weights=uniform"])
def test_figure_3_2_safe_code_motion_does_nothing(passes: str) -> None:
    module, _ = optimized(FIGURE_3_2.format(loop="%p3", last="%p3"), passes)
    assert blocks_with(module, "mul.lo.s32") == ["N2", "N5"]


def test_figure_3_2_speculation_moves_both_to_node_1() -> None:
    module, _ = optimized(FIGURE_3_2.format(loop="%p3", last="%p3"), "spre")
    assert blocks_with(module, "mul.lo.s32") == ["N1"]


def test_figure_3_2_sscm_speculates_at_divergent_branches() -> None:
    module, _ = optimized(FIGURE_3_2.format(loop="%p1", last="%p2"), "sscm")
    assert blocks_with(module, "mul.lo.s32") == ["N1"]


@pytest.mark.parametrize("passes", ["spre", "sscm"])
def test_a_load_that_may_fault_is_not_speculated(passes: str) -> None:
    body = FIGURE_4_6.format(four="%p1", six="%p2").replace("mul.lo.s32 %r3, %r1, %r2", "ld.global.nc.u32 %r3, [%rd9]")
    body = body.replace("mul.lo.s32 %r4, %r1, %r2", "ld.global.nc.u32 %r4, [%rd9]")
    body = body.replace("mul.lo.s32 %r5, %r1, %r2", "ld.global.nc.u32 %r5, [%rd9]")
    module, _ = optimized(body, passes)
    assert blocks_with(module, "ld.global.nc.u32") == ["N3", "N6"]


@pytest.mark.parametrize("pinned", ["shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;", "vote.sync.ballot.b32 %r3, %p1, -1;"])
def test_pinned_instructions_are_not_speculated(pinned: str) -> None:
    body = FIGURE_4_6.format(four="%p1", six="%p2").replace("mul.lo.s32 %r3, %r1, %r2;", pinned)
    module, _ = optimized(body.replace("mul.lo.s32 %r4, %r1, %r2;", pinned), "sscm")
    assert count(module, pinned.partition(" ")[0]) == 2


@pytest.mark.parametrize(
    "passes", ["scm:min_cost=0", "scm:min_cost=0:weights=uniform", "spre:min_cost=0", "sscm:min_cost=0"]
)
@pytest.mark.parametrize("chunk", range(3))
def test_random_kernels_store_the_same(passes: str, chunk: int) -> None:
    seeds = range(chunk * 40, chunk * 40 + 40)
    check_random_kernels(f"{passes},copyprop,dce,emptyblocks", seeds, keeps_counts=passes.startswith("scm"))


@pytest.mark.parametrize("text", ["sscm:weights=heavy", "lcm:naming=values"])
def test_an_unknown_value_of_an_option_is_refused(text: str) -> None:
    with pytest.raises(UnknownPass, match=r"option '(weights|naming)' of pass '(sscm|lcm)' is "):
        create_pass(text)
