"""Lazy code motion: the thesis's figure 3.1, what may and may not move, and random kernels against a walk."""

from __future__ import annotations

import pytest
from motion import blocks_with, check_random_kernels, count, kernel_of, optimized
from ptxmotion.ptx import print_module
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

FIGURE_3_1 = """
mov.u32 %r1, 3;
mov.u32 %r2, 5;
N1: @%p1 bra N3;
N2: add.s32 %r9, %r9, 1;
N4: mul.lo.s32 %r3, %r1, %r2;
    add.s32 %r9, %r9, %r3;
    @%p2 bra N4;
N6: bra.uni N9;
N3: add.s32 %r9, %r9, 2;
N5: @%p3 bra N8;
N7: add.s32 %r9, %r9, 3;
    bra.uni N9;
N8: add.s32 %r9, %r9, 4;
N9: mul.lo.s32 %r4, %r1, %r2;
    st.global.u32 [%r9], %r4;
    ret;
"""


@pytest.mark.parametrize("naming", ["lexical", "value"])
def test_figure_3_1_places_the_expression_in_nodes_2_7_and_8(naming: str) -> None:
    module, _ = optimized(FIGURE_3_1, f"lcm:naming={naming}")
    assert sorted(blocks_with(module, "mul.lo.s32")) == ["N2", "N7", "N8"]


INVARIANT_LOAD = """
    L:  {kill}
        ld.{space}.f32 %f1, [%rd1];
        add.f32 %f2, %f2, %f1;
        add.s32 %r1, %r1, -1;
        setp.ne.s32 %p1, %r1, 0;
        @%p1 bra L;
        st.global.f32 [%rd2], %f2;
        ret;
"""


@pytest.mark.parametrize(
    ("kill", "space", "moves"),
    [
        ("", "global", True),
        ("st.global.f32 [%rd1+4], %f2;", "global", True),
        ("st.global.f32 [%rd1+2], %f2;", "global", False),
        ("st.global.f32 [%rd3], %f2;", "global", False),
        ("st.shared.f32 [%rd3], %f2;", "global", True),
        ("st.f32 [%rd3], %f2;", "global", False),
        ("st.f32 [%rd3], %f2;", "shared", False),
        ("bar.sync 0;", "global", False),
        ("membar.gl;", "global", False),
        ("fence.acq_rel.gpu;", "global", False),
        ("fence.acq_rel.gpu;", "shared", True),  # which nobody writes
        ("atom.global.add.u32 %r9, [%rd3], 1;", "global", False),
        ("red.shared.add.u32 [%rd3], 1;", "global", False),
        ("ld.volatile.global.f32 %f9, [%rd3];", "global", False),
        ("unknown.op %r9, %r9;", "global", False),
        ("bar.sync 0;", "global.nc", False),  # some thread may never come to the barrier
        ("st.global.f32 [%rd3], %f2;", "global.nc", True),
        ("bar.sync 0;", "const", False),
        ("membar.gl;", "global.nc", True),
        ("membar.gl;", "const", True),
        ("", "volatile.global", False),
        ("", "relaxed.gpu.global", False),
        ("add.s64 %rd1, %rd1, 4;", "global", False),
        ("@%p2 add.s64 %rd1, %rd1, 4;", "global", False),
        ("@%p2 ret;", "global", False),
    ],
)
def test_which_loads_leave_a_loop(kill: str, space: str, moves: bool) -> None:
    load = f"ld.{space}.f32"
    module, _ = optimized(INVARIANT_LOAD.format(kill=kill, space=space))
    text = print_module(module)
    assert (text.index(load) < text.index("L:")) == moves, text
    assert count(module, load) == 1


@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.sync.idx.b32 %r5, %r6, 0, 31, -1;",
        "vote.sync.ballot.b32 %r5, %p2, -1;",
        "activemask.b32 %r5;",
        "mov.u32 %r5, %clock;",
        "mov.u32 %r5, %warpid;",
        "mov.b64 %rd5, {%clock, %r6};",
        "@%p2 mul.lo.s32 %r5, %r6, %r6;",
        "add.cc.u32 %r5, %r6, %r6;",
        "addc.u32 %r5, %r6, %r6;",
        "atom.global.add.u32 %r5, [%rd1], 1;",
        "unknown.op %r5, %r6;",
    ],
)
def test_what_is_pinned_stays(instruction: str) -> None:
    body = f"""
        @%p1 bra B;
    A:  {instruction}
        st.global.u32 [%rd2], %r5;
        bra.uni C;
    B:  st.global.u32 [%rd2+8], %r6;
    C:  {instruction}
        st.global.u32 [%rd2+4], %r5;
        {instruction}
        st.global.u32 [%rd2+4], %r5;
        ret;
    """
    module, _ = optimized(body, "O1")
    text = print_module(module)
    assert text.count(instruction) == 3, text


@pytest.mark.parametrize("passes", ["O1", "lcm:min_cost=0", "sscm:min_cost=0", "cse,copyprop,dce"])
def test_nothing_reads_an_accumulator_before_it_is_waited_for(passes: str) -> None:
    body = """
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        mul.f32 %f8, %f1, %f2;
        mov.f32 %f9, %f1;
        @%p1 bra B;
    A:  wgmma.wait_group.sync.aligned 0;
        div.rn.f32 %f5, %f1, %f2;
        st.global.f32 [%rd2], %f5;
        bra C;
    B:  st.global.u32 [%rd2+8], %r2;
    C:  wgmma.wait_group.sync.aligned 0;
        div.rn.f32 %f6, %f1, %f2;
        mul.f32 %f7, %f1, %f2;
        add.f32 %f7, %f7, %f9;
        add.f32 %f7, %f7, %f8;
        st.global.f32 [%rd2+4], %f6;
        st.global.f32 [%rd2+4], %f7;
        ret;
    """
    module, _ = optimized(body, passes)
    before = kernel_of(body).kernels[0].instructions()
    assert [i.text for i in module.kernels[0].instructions()] == [i.text for i in before]


def test_equal_values_under_other_names_are_found_by_value_only() -> None:
    body = """
        @%p1 bra B;
    A:  mul.wide.s32 %rd3, %r1, 4;
        add.s64 %rd4, %rd1, %rd3;
        ld.global.f32 %f1, [%rd4+8];
        st.shared.f32 [%r2], %f1;
        bra.uni C;
    B:  st.shared.f32 [%r2], %f3;
    C:  mul.wide.s32 %rd5, %r1, 4;
        add.s64 %rd6, %rd5, %rd1;
        ld.global.f32 %f2, [%rd6+8];
        st.shared.f32 [%r2+4], %f2;
        ret;
    """
    _, lexical = optimized(body, "lcm:naming=lexical:rounds=1")
    module, by_value = optimized(body, "lcm:naming=value")
    # Lexically only the product is seen; by value the sum and the load follow it.
    assert lexical.counts["k", "lcm", "moved lexically"] == 1
    assert by_value.counts["k", "lcm", "moved by value"] == 3
    assert blocks_with(module, "ld.global.f32") == ["A", "B"]


def test_bisect_limit_counts_rewrites() -> None:
    module = kernel_of(FIGURE_3_1)
    remarks = Remarks(module, limit=0)
    before = print_module(kernel_of(FIGURE_3_1))
    run_passes(module, "O1", remarks)
    assert remarks.rewrites == 0
    assert print_module(module) == before


# --- random kernels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("naming", ["lexical", "value", "both"])
@pytest.mark.parametrize("chunk", range(4))
def test_random_kernels_store_the_same_and_never_evaluate_more(naming: str, chunk: int) -> None:
    seeds = range(chunk * 40, chunk * 40 + 40)
    check_random_kernels(f"lcm:naming={naming}:min_cost=0,copyprop,dce,emptyblocks", seeds, keeps_counts=True)
