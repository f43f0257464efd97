"""No load is inserted before code that may never be reached: otherwise a kernel that waits forever would fault."""

from __future__ import annotations

import pytest
from ladder import transformed
from ptxmotion.analysis.graph.finite_loops import FiniteLoops
from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import parse, print_module

HEADER = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 o, .param .u32 n)
{
	.reg .b32 %r<40>;
	.reg .b64 %rd<20>;
	.reg .pred %p<10>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [o];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	setp.eq.u32 %p1, %r2, 0;
	mov.u32 %r5, 0;
"""
#: One arm loads, the other one does not. After a loop, both paths load from the same address.
PARTLY = """
	@%p1 bra ARM;
	bra.uni LOOP;
ARM:
	ld.global{nc}.u32 %r3, [%rd1];
	st.shared.u32 [%r5], %r3;
LOOP:
	{loop}
	ld.global{nc}.u32 %r4, [%rd1];
	st.shared.u32 [%r5+4], %r4;
	ret;
}}
"""
ENDLESS = {
    "waits": "ld.volatile.shared.u32 %r6, [%r5+8]; setp.eq.u32 %p2, %r6, 0; @%p2 bra LOOP;",
    "even step": "add.u32 %r7, %r7, 2; setp.lt.u32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "no step": "setp.lt.u32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "bound moves": "add.u32 %r7, %r7, 1; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "last bound": "add.u32 %r7, %r7, 1; setp.le.u32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "odd bound": "add.u32 %r7, %r7, 2; setp.ne.u32 %p2, %r7, 7; @%p2 bra LOOP;",
    "float": "add.rn.f32 %r7, %r7, 0f3F800000; setp.lt.f32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "skipped test": "@%p1 bra SKIP; add.u32 %r7, %r7, 1; setp.ge.u32 %p2, %r7, %r1; @%p2 bra OUT; SKIP: @!%p1 bra LOOP;"
    " @%p1 bra LOOP; OUT:",
}
FINITE = {
    "below": "add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "signed": "add.s32 %r7, %r7, 3; setp.lt.s32 %p2, %r7, %r1; @%p2 bra LOOP;",
    "down": "add.s32 %r7, %r7, -1; setp.ne.s32 %p2, %r7, 0; @%p2 bra LOOP;",
    "even to a constant": "add.u32 %r7, %r7, 4; setp.lt.u32 %p2, %r7, 100; @%p2 bra LOOP;",
    "even to even": "add.u32 %r7, %r7, 4; setp.ne.u32 %p2, %r7, 64; @%p2 bra LOOP;",
    "to a multiple": "add.u32 %r7, %r7, 4; setp.ne.u32 %p2, %r7, %r8; @%p2 bra LOOP;",
    "above": "setp.ge.u32 %p2, %r7, %r1; @%p2 bra OUT; add.u32 %r7, %r7, 1; bra LOOP; OUT:",
    "swapped": "add.u32 %r7, %r7, 1; setp.gt.u32 %p2, %r1, %r7; @%p2 bra LOOP;",
}
INSERTING = ("lcm:min_cost=0", "scm:min_cost=0", "sscm:min_cost=0", "spre:min_cost=0", "srqp", "esrqp", "ssrqp", "O3")


def kernel(loop: str, nc: str = "") -> str:
    start = "\tmov.u32 %r7, 0;\n\tand.b32 %r8, %r1, -4;\n"
    return HEADER + start + PARTLY.format(loop=loop.replace("; ", ";\n\t"), nc=nc)


def before_loop(text: str) -> int:
    """The number of loads of the address before the loop."""
    return text.partition("LOOP:")[0].count("ld.global")


def is_finite(ptx: str) -> bool:
    kernel = parse(ptx).kernel("k")
    facts = Facts(kernel)
    (loop,) = facts.loops.loops
    return facts.get(FiniteLoops).is_finite(loop)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_may_go_on_for_ever(name: str) -> None:
    assert not is_finite(kernel(ENDLESS[name]))
    for nc in ("", ".nc"):
        for passes in INSERTING:
            assert before_loop(print_module(transformed(kernel(ENDLESS[name], nc), passes))) == 1, passes


@pytest.mark.parametrize("name", FINITE)
def test_loads_rise_above_loops_that_end(name: str) -> None:
    assert is_finite(kernel(FINITE[name]))
    for nc in ("", ".nc"):
        for passes in ("lcm:min_cost=0", "srqp"):
            text = print_module(transformed(kernel(FINITE[name], nc), passes))
            assert text.count("ld.global") == 2, passes
            assert before_loop(text) == 2, passes


@pytest.mark.parametrize(
    "wait", ["bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.idx.b32 %r9, %r2, 0, 31, -1;", "call f;", "trap;"]
)
def test_what_may_not_return(wait: str) -> None:
    for passes in INSERTING:
        ptx = kernel(wait, ".nc").replace(".visible .entry", ".func f() { ret; }\n.visible .entry")
        assert before_loop(print_module(transformed(ptx, passes))) == 1, passes


@pytest.mark.parametrize("passes", INSERTING)
def test_an_access_in_each_iteration_is_enough(passes: str) -> None:
    """The loop may be endless, but a bad address causes a fault in its first iteration anyway."""
    loop = ENDLESS["waits"].replace(
        "ld.volatile", "ld.global.nc.u32 %r9, [%rd1]; st.shared.u32 [%r5+12], %r9; ld.volatile"
    )
    text = print_module(transformed(kernel(loop, ".nc"), passes))
    assert text.count("ld.global.nc") <= 3
    if passes in ("lcm:min_cost=0", "srqp"):
        assert before_loop(text) == 2
        assert text.count("ld.global.nc") == 2


def test_an_inner_loop_that_may_not_end() -> None:
    """The outer loop loads in each iteration, but after an inner loop."""
    loop = (
        "INNER: ld.volatile.shared.u32 %r6, [%r5+8]; setp.eq.u32 %p2, %r6, 0; @%p2 bra INNER; "
        "ld.global.nc.u32 %r9, [%rd1]; st.shared.u32 [%r5+12], %r9; "
        "add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, %r1; @%p3 bra LOOP;"
    )
    for passes in INSERTING:
        text = print_module(transformed(kernel(loop, ".nc"), passes))
        assert text.partition("INNER:")[0].count("ld.global.nc") == 1, passes


def test_a_load_that_cannot_fault_may_be_anywhere() -> None:
    """An element inside a constant array can always be read."""
    ptx = kernel(ENDLESS["waits"]).replace("ld.global.u32", "ld.const.u32").replace("[%rd1]", "[table+8]")
    ptx = ptx.replace(".visible .entry", ".const .align 4 .b8 table[64];\n.visible .entry")
    text = print_module(transformed(ptx, "lcm:min_cost=0"))
    assert text.partition("LOOP:")[0].count("ld.const") == 2
