"""Instructions that order memory or wait: no load or store may be moved across them or removed because of them.

The kernel stores, loads, executes one instruction, loads from the same addresses again, and stores again. A load after
an instruction that orders memory must remain after it. A store before it must not be removed, even if a later store
overwrites it.
"""

from __future__ import annotations

import pytest
from ladder import transformed
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.ptx import print_module

KERNEL = """\
.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 s[256];
.shared .align 8 .b64 mb;
.visible .entry k(.param .u64 a, .param .u64 o)
{{
	.reg .pred %p<10>;
	.reg .b32 %r<40>;
	.reg .b64 %rd<40>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [o];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	setp.gt.u32 %p1, %r1, 40;
	mov.u32 %r31, s;
	mov.u32 %r32, mb;
	shl.b32 %r33, %r1, 2;
	add.u32 %r34, %r31, %r33;
	st.global.u32 [%rd5], 11;
	st.shared.u32 [%r34], 12;
	ld.global.u32 %r2, [%rd4];
	ld.shared.u32 %r3, [%r34];
	ld.shared.u32 %r4, [s+64];
	// here
	{between}
	// there
	ld.global.u32 %r5, [%rd4];
	ld.shared.u32 %r6, [%r34];
	ld.shared.u32 %r7, [s+64];
	st.shared.u32 [%r34], 13;
	add.u32 %r8, %r2, %r3;
	add.u32 %r8, %r8, %r4;
	add.u32 %r8, %r8, %r5;
	add.u32 %r8, %r8, %r6;
	add.u32 %r8, %r8, %r7;
	st.global.u32 [%rd5], %r8;
	ret;
}}
"""
#: Instructions that order memory among the threads of a block or cluster, or that may do so.
WITHIN = """\
bar.sync 0;
barrier.sync 0;
bar.sync 3, 32;
bar.arrive 2, 64;
bar.red.popc.u32 %r30, 0, %p1;
bar.red.and.pred %p9, 0, %p1;
bar.warp.sync -1;
membar.cta;
fence.sc.cta;
fence.acq_rel.cluster;
fence.proxy.async;
fence.proxy.alias;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive;
barrier.cluster.wait;
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
cp.async.ca.shared.global [%r31], [%rd4], 4;
cp.async.commit_group;
cp.async.wait_group 0;
cp.async.wait_all;
ld.acquire.cta.shared.u32 %r30, [s+128];
ld.volatile.shared.u32 %r30, [s+128];
st.volatile.global.u32 [%rd2+512], %r1;
st.relaxed.cta.global.u32 [%rd2+512], %r1;
atom.global.add.u32 %r30, [%rd2+512], 1;
atom.shared.add.u32 %r30, [s+128], 1;
red.global.add.u32 [%rd2+512], 1;
red.add.u32 [%rd2+512], 1;
multimem.red.relaxed.sys.global.add.u32 [%rd2+512], %r1;
mbarrier.arrive.shared.b64 %rd30, [mb];
mbarrier.test_wait.shared.b64 %p9, [mb], 0;
W: mbarrier.try_wait.shared.b64 %p9, [mb], 0; @!%p9 bra W;
nanosleep.u32 20;
brkpt;
@%p1 trap;
pmevent 1;
discard.global.L2 [%rd2], 128;""".splitlines()
#: Instructions that also order memory with another grid or the host, or that complete later. After them, no memory is
#: read-only.
OUTSIDE = """\
membar.gl;
membar.sys;
fence.acq_rel.gpu;
fence.sc.sys;
griddepcontrol.wait;
griddepcontrol.launch_dependents;
ld.acquire.gpu.global.u32 %r30, [%rd2+512];
ld.relaxed.gpu.global.u32 %r30, [%rd2+512];
ld.volatile.global.u32 %r30, [%rd2+512];
ld.global.cv.u32 %r30, [%rd2+512];
W: ld.acquire.sys.global.u32 %r30, [%rd2+512]; setp.eq.u32 %p9, %r30, 0; @%p9 bra W;
st.release.gpu.global.u32 [%rd2+512], %r1;
red.release.gpu.global.add.u32 [%rd2+512], 1;
atom.acquire.gpu.global.exch.b32 %r30, [%rd2+512], 1;
atom.acq_rel.gpu.global.cas.b32 %r30, [%rd2+512], 1, 2;""".splitlines()
#: Asynchronous copies to memory that their operands choose.
BEHIND = """\
cp.async.mbarrier.arrive.shared.b64 [mb];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r31], [%rd1], 16, [%r32];
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r31], 16;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r31], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
cp.async.bulk.wait_group.read 0;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r31], %r1, [%r32];""".splitlines()
#: Instructions that exchange values between lanes and order no memory. Loads may be moved across them; stores may not,
#: since a lane that gets the value may read memory.
LANES = """\
shfl.sync.bfly.b32 %r30, %r1, 1, 31, -1;
vote.sync.ballot.b32 %r30, %p1, -1;
match.any.sync.b32 %r30, %r1, -1;
redux.sync.add.u32 %r30, %r1, -1;
activemask.b32 %r30;""".splitlines()
MOTION = ("lcm:min_cost=0", "lcm:naming=lexical:min_cost=0", "spre:min_cost=0:lazy=false", "srqp", "ssrqp_s")
RESTRICT = Promise.parse("restrict")


def around(between: str, passes: str, promise: Promise = CONSERVATIVE) -> tuple[list[str], list[str]]:
    """The loads and stores before and after the instruction in the result of ``passes``."""
    ptx = KERNEL.format(between=between).replace("// here", '.pragma "here";').replace("// there", '.pragma "there";')
    text = print_module(transformed(ptx, passes, promise))
    before, _, rest = text.partition('.pragma "here";')
    behind = rest.partition('.pragma "there";')[2]
    return accesses(before), accesses(behind)


def accesses(text: str) -> list[str]:
    starts = ("ld.global", "ld.shared", "st.")
    return [line.strip() for line in text.splitlines() if line.strip().startswith(starts)]


@pytest.mark.parametrize("between", [*WITHIN, *OUTSIDE, *BEHIND])
def test_loads_and_stores_stay_on_their_sides(between: str) -> None:
    before, behind = around(between, "none")
    assert (len(before), len(behind)) == (5, 5)
    for passes in MOTION:
        found, left = around(between, passes)
        assert [line for line in left if line.startswith("ld.")] == behind[:3], passes
        assert [line for line in found if line.startswith("st.")] == before[:2], passes
    for promise in (CONSERVATIVE, RESTRICT):
        assert around(between, "deadstores", promise) == (before, behind)


@pytest.mark.parametrize("between", LANES)
def test_lanes_order_no_memory(between: str) -> None:
    before, behind = around(between, "none")
    left = around(between, "srqp")[1]
    assert not [line for line in left if line.startswith("ld.")]
    for promise in (CONSERVATIVE, RESTRICT):
        assert around(between, "deadstores", promise) == (before, behind)


@pytest.mark.parametrize(
    ("is_outside", "between"), [(False, WITHIN[0]), (False, WITHIN[9]), *((True, each) for each in OUTSIDE)]
)
def test_nothing_is_read_only_that_others_may_write(is_outside: bool, between: str) -> None:
    found = [line for part in around(between, "readonly", RESTRICT) for line in part if ".nc" in line]
    assert len(found) == (0 if is_outside else 2)


LOOP = """\
	st.shared.u32 [%r34], 12;
	st.shared.u32 [s+64], 13;
	mov.u32 %r20, 0;
	mov.u32 %r21, 0;
HEAD:
	ld.global.u32 %r22, [%rd4];
	ld.shared.u32 %r23, [%r34];
	ld.shared.u32 %r24, [s+64];
	// here
	{between}
	// there
	mad.lo.u32 %r20, %r20, 3, %r22;
	mad.lo.u32 %r20, %r20, 3, %r23;
	mad.lo.u32 %r20, %r20, 3, %r24;
	add.u32 %r21, %r21, 1;
	setp.lt.u32 %p3, %r21, 4;
	@%p3 bra HEAD;
	st.global.u32 [%rd5], %r20;
	ret;
}}
"""


@pytest.mark.parametrize("between", [*WITHIN, *OUTSIDE, *BEHIND])
def test_each_iteration_of_a_waiting_loop_loads_again(between: str) -> None:
    """A loop that waits until another thread writes must load in each iteration."""
    ptx = (KERNEL.partition("\tst.global.u32 [%rd5], 11;")[0] + LOOP).format(between=between)
    for passes in MOTION:
        text = print_module(transformed(ptx, passes)).partition("HEAD:")[2]
        assert len([line for line in accesses(text) if line.startswith("ld.") and line not in between]) == 3, passes


def test_a_barrier_does_not_order_local_memory() -> None:
    """Other threads cannot access it."""
    ptx = KERNEL.format(between="bar.sync 0;").replace(".shared .align 16 .b8 s", ".local .align 16 .b8 s")
    ptx = ptx.replace("ld.shared.u32", "ld.local.u32").replace("st.shared.u32", "st.local.u32")
    text = print_module(transformed(ptx, "srqp"))
    assert text.count("ld.local") == 1  # from memory that the kernel never writes


#: Instructions that may wait for the previous grid, or call a function that does. Memory is read-only after them, and
#: not before.
WAITS = ("griddepcontrol.wait;", "griddepcontrol.launch_dependents;", "call wait;", "zap.sync %r30, %r30;")
PROMISED = """\
	ld.global.nc.u32 %r2, [%rd4];
	add.u32 %r10, %r2, 5;
	{between}
	ld.global.nc.u32 %r3, [%rd4];
	add.u32 %r11, %r3, 5;
	st.global.u32 [%rd5], %r10;
	st.global.u32 [%rd5+4], %r11;
	ret;
}}
"""
PROMISED_IN_LOOP = """\
	mov.u32 %r20, 0;
	mov.u32 %r21, 0;
HEAD:
	{between}
	ld.global.nc.u32 %r2, [%rd4];
	mad.lo.u32 %r20, %r20, 3, %r2;
	add.u32 %r21, %r21, 1;
	setp.lt.u32 %p3, %r21, 4;
	@%p3 bra HEAD;
	st.global.u32 [%rd5], %r20;
	ret;
}}
"""
#: Both arms load, one of them before the wait and one after it. The block after the join loads again.
PROMISED_ON_PATHS = """\
	@%p1 bra OTHER;
	ld.global.nc.u32 %r2, [%rd4];
	{between}
	bra.uni JOIN;
OTHER:
	ld.global.nc.u32 %r2, [%rd4];
JOIN:
	ld.global.nc.u32 %r3, [%rd4];
	add.u32 %r3, %r3, %r2;
	st.global.u32 [%rd5], %r3;
	ret;
}}
"""
PROMISED_PASSES = (
    *MOTION,
    *("cse,dce", "scm:min_cost=0", "sscm:min_cost=0", "ssrqp", "esrqp", "O1", "O2", "O3", "vectormerge:aligned=16"),
)


def promised(body: str, between: str) -> str:
    head = KERNEL.partition("\tst.global.u32 [%rd5], 11;")[0]
    function = ".func wait() { griddepcontrol.wait; ret; }\n.visible .entry"
    return (head + body).format(between=between).replace(".visible .entry", function)


@pytest.mark.parametrize("between", WAITS)
@pytest.mark.parametrize("passes", PROMISED_PASSES)
def test_read_only_loads_do_not_cross_a_wait_for_a_grid(passes: str, between: str) -> None:
    text = print_module(transformed(promised(PROMISED, between), passes))
    for part in text.rpartition(between.split()[0])[::2]:
        assert part.count("ld.global.nc") == 1
    text = print_module(transformed(promised(PROMISED_IN_LOOP, between), passes))
    turn = text.partition("HEAD:")[2].partition("bra HEAD;")[0]
    assert turn.rpartition(between.split()[0])[2].count("ld.global.nc") == 1
    text = print_module(transformed(promised(PROMISED_ON_PATHS, between), passes))
    behind = text.rpartition(between.split()[0])[2]
    assert "ld.global.nc" in behind.partition("OTHER:")[0] + behind.partition("JOIN:")[2]


@pytest.mark.parametrize("between", [each for each in [*WITHIN, *OUTSIDE] if "griddepcontrol" not in each])
def test_read_only_loads_cross_everything_else(between: str) -> None:
    text = print_module(transformed(promised(PROMISED, between), "lcm:min_cost=0"))
    assert text.count("ld.global.nc") == 1
    text = print_module(transformed(promised(PROMISED, between), "srqp"))
    assert text.count("ld.global.nc") == 1


FUNCTION = """\
.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 s[256];
.func (.reg .u32 o) f(.reg .u64 p)
{{
	.reg .u32 %r<8>;
	.reg .pred %p<2>;
	ld.{space}.u32 %r1, [{address}];
	{between}
	ld.{space}.u32 %r2, [{address}];
	add.u32 o, %r1, %r2;
	ret;
}}
"""


@pytest.mark.parametrize(("space", "address"), [("global", "p"), ("shared", "s+8")])
@pytest.mark.parametrize("between", ["bar.sync 0;", "membar.cta;", "atom.shared.add.u32 %r3, [s+128], 1;"])
@pytest.mark.parametrize("passes", [*MOTION, "O1", "O2", "O3"])
def test_what_calls_a_function_may_write(space: str, address: str, between: str, passes: str) -> None:
    """A kernel that calls a function may write, even if the function does not."""
    ptx = FUNCTION.format(space=space, address=address, between=between)
    text = print_module(transformed(ptx, passes, RESTRICT))
    assert text.partition(between.partition(" ")[0])[2].count(f"ld.{space}") == 1
    assert ".nc" not in text
