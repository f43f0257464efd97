"""Which barriers all threads of a block reach."""

from __future__ import annotations

import pytest
from ptxmotion.analysis.divergence.block_uniform import partial_barriers
from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import parse

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 n)
{
	.reg .pred %p<9>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [a];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, 0;
"""
OVER = "setp.lt.u32 %p1, {value}, 5; @%p1 bra X; bar.sync 0; X: ret;"
LOOP = "L: add.u32 %r4, %r4, 1; {inside} setp.lt.u32 %p1, %r4, {count}; @%p1 bra L; {behind} ret;"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("bar.sync 0; ret;", 0),
        (OVER.format(value="%r1"), 0),
        (OVER.format(value="%r2"), 1),
        (OVER.format(value="%r3"), 0),
        ("ld.global.u32 %r5, [%rd1]; " + OVER.format(value="%r5"), 1),  # another thread may write it
        ("shfl.sync.idx.b32 %r5, %r1, 0, 31, -1; " + OVER.format(value="%r5"), 1),
        ("atom.global.add.u32 %r5, [%rd1], 1; " + OVER.format(value="%r5"), 1),
        ("add.u32 %r5, %r1, %r3; mad.lo.u32 %r5, %r5, %r1, 4; " + OVER.format(value="%r5"), 0),
        ("setp.eq.u32 %p2, %r2, 0; @%p2 mov.u32 %r4, 7; " + OVER.format(value="%r4"), 1),
        # Where threads took different ways, a value differs, though each way gives it a constant.
        ("setp.eq.u32 %p2, %r2, 0; @%p2 bra A; mov.u32 %r4, 7; A: " + OVER.format(value="%r4"), 1),
        ("setp.eq.u32 %p2, %r3, 0; @%p2 bra A; mov.u32 %r4, 7; A: " + OVER.format(value="%r4"), 0),
        # All threads get the same result of a reduction.
        ("setp.eq.u32 %p2, %r2, 0; bar.red.popc.u32 %r5, 0, %p2; " + OVER.format(value="%r5"), 0),
        ("setp.eq.u32 %p2, %r2, 0; @%p2 bar.sync 0; ret;", 1),
        ("setp.eq.u32 %p2, %r3, 0; @%p2 bar.sync 0; ret;", 0),
        (LOOP.format(inside="bar.sync 0;", count="%r1", behind=""), 0),
        (LOOP.format(inside="bar.sync 0;", count="%r2", behind=""), 1),
        (LOOP.format(inside="", count="%r2", behind="bar.sync 0;"), 0),
        # Threads leave the loop in different iterations, so the counter differs behind it, and not in it.
        (LOOP.format(inside="", count="%r2", behind=OVER.format(value="%r4")), 1),
        (LOOP.format(inside="", count="%r1", behind=OVER.format(value="%r4")), 0),
        # So does a result that all threads of one iteration have in common.
        (LOOP.format(inside="bar.red.popc.u32 %r5, 0, %p2;", count="%r2", behind=OVER.format(value="%r5")), 2),
    ],
)
def test_barriers_that_some_threads_may_not_reach(body: str, count: int) -> None:
    module = parse(f"{HEAD}{body}\n}}\n")
    assert len(partial_barriers(Facts(module.kernels[0], module))) == count
