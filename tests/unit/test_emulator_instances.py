"""Branches that separate lanes of one instance, and branches at which only lanes of different iterations differ."""

import numpy as np
from ptxmotion.analysis import Facts
from ptxmotion.emulator import Emulator, InstanceJudge
from ptxmotion.ptx import Instr, Kernel, parse

HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n"
#: Some lanes may return. So lanes that diverge at the first branch are sure to reconverge only after the loop.
KERNEL = """
.visible .entry k(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.lt.u32 %p1, %r2, 16;
    mov.u32 %r3, 0;
LOOP:
    @%p1 bra SKIP;
    add.u32 %r4, %r3, %r2;
    setp.eq.u32 %p2, %r4, 1000;
    @%p2 ret;
SKIP:

AGAIN:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r3;
    ret;
}
"""


def around(kernel: Kernel) -> list[list[int]]:
    facts = Facts(kernel)
    return [[loop.header for loop in facts.loops.around(block)] for block in range(len(facts.cfg))]


def branch(kernel: Kernel, text: str) -> Instr:
    return next(instr for instr in kernel.instructions() if instr.text == text)


def test_lanes_of_different_rounds_are_no_instance() -> None:
    module = parse(HEAD + KERNEL)
    kernel = module.kernels[0]
    first, last = branch(kernel, "@%p1 bra SKIP;"), branch(kernel, "@%p3 bra LOOP;")
    assert not Facts(kernel).divergence.is_divergent(Facts(kernel).cfg.index[kernel.blocks[-2]])
    loaded = Emulator().load(module)
    judge = InstanceJudge(around)
    looked_parted = 0
    for seed in range(20):
        x = np.zeros(32, np.uint32)
        done = loaded.launch("k", 1, 32, [x, np.uint32(5)], schedule="random", seed=seed, judge=judge)
        assert (x == 5).all()
        looked_parted += done.counts.executions[kernel].branches[last][1]
    assert looked_parted
    assert last not in judge.parted
    assert judge.parted[first] > 0
    assert judge.kernels == [kernel]


def test_a_counter_that_differs_within_a_round_is_parted() -> None:
    module = parse(HEAD + KERNEL.replace("setp.lt.u32 %p3, %r3, %r1;", "setp.lt.u32 %p3, %r3, %r2;"))
    judge = InstanceJudge(around)
    x = np.zeros(32, np.uint32)
    Emulator().load(module).launch("k", 1, 32, [x, np.uint32(5)], judge=judge)
    assert branch(module.kernels[0], "@%p3 bra LOOP;") in judge.parted


def test_a_table_is_judged_too() -> None:
    body = KERNEL.replace(
        "@%p3 bra LOOP;", "selp.u32 %r5, 0, 1, %p3;\nT: .branchtargets LOOP, END;\nbrx.idx %r5, T;\nEND:"
    )
    for old, expected in (("%r3, %r1", False), ("%r3, %r2", True)):
        module = parse(HEAD + body.replace("%p3, %r3, %r1", f"%p3, {old}"))
        judge = InstanceJudge(around)
        Emulator().load(module).launch("k", 1, 32, [np.zeros(32, np.uint32), np.uint32(5)], judge=judge)
        assert (branch(module.kernels[0], "brx.idx %r5, T;") in judge.parted) == expected
