"""The divergence of branches is correct at each query in a pass, and the passes of the package preserve it."""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.ptx import Block, Imm, Kernel, parse
from ptxmotion.transforms.code_motion.branch_divergence import BranchDivergence, divergent_blocks
from ptxmotion.transforms.pipeline import run_passes

TEXT = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u32 n){
	.reg .pred %p<4>;
	.reg .b32 %r<4>;
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 4;
	@%p1 bra A;
	ret;
A:	ld.param.u32 %r2, [n];
	setp.lt.u32 %p2, %r2, 4;
	@%p2 bra B;
	ret;
B:	ret;
}
"""

#: Redundant computations, and a load in an arm of a divergent branch in a loop.
LOOP = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n){
	.reg .pred %p<4>;
	.reg .b32 %r<12>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.lo.s32 %r3, %r2, %r1;
	mul.lo.s32 %r4, %r2, %r1;
	add.s32 %r5, %r3, %r4;
	mov.u32 %r6, 0;
L:	setp.lt.s32 %p1, %r5, 7;
	@%p1 bra M;
	rem.s32 %r7, %r5, %r1;
	add.s32 %r5, %r5, %r7;
	ld.global.u32 %r8, [%rd1];
	add.s32 %r5, %r5, %r8;
M:	div.s32 %r9, %r3, %r1;
	add.s32 %r5, %r5, %r9;
	ld.global.u32 %r10, [%rd1];
	add.s32 %r5, %r5, %r10;
	add.s32 %r6, %r6, 1;
	setp.lt.s32 %p2, %r6, %r1;
	@%p2 bra L;
	st.global.u32 [%rd1+4], %r5;
	ret;
}
"""


def kernel_and_facts() -> tuple[Kernel, Facts]:
    module = parse(TEXT)
    return module.kernels[0], Facts(module.kernels[0], module)


def test_queries_follow_a_change_of_the_kernel() -> None:
    kernel, facts = kernel_and_facts()
    divergence = BranchDivergence(facts)
    assert divergence.blocks() == [0]
    assert divergence.is_divergent(0) and not divergence.is_divergent(2)
    assert divergence.cdrnd() == [True, False, False, False, False]
    first = kernel.blocks[0]
    kernel.replace_operands(first.instrs[0], (first.instrs[0].operands[0], Imm("1")))
    assert divergence.blocks() == []
    assert BranchDivergence(facts).blocks() == []


def test_the_value_survives_new_blocks_where_it_is_preserved() -> None:
    kernel, facts = kernel_and_facts()
    divergence = BranchDivergence(facts)
    assert divergence.blocks() == [0]
    before = facts.get(divergent_blocks)
    with facts.preserve(divergent_blocks, because="a new block at the start ends in no branch"):
        kernel.insert_block(0, Block(None, []))
        assert divergence.blocks() == [1]
    assert facts.get(divergent_blocks) is before


def test_making_the_object_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, facts = kernel_and_facts()
    computed: list[Facts] = []
    monkeypatch.setattr(Facts, "expected_divergence", property(computed.append))
    BranchDivergence(facts)
    assert not computed


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_passes_compute_the_divergence_once(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = Facts.expected_divergence.fget
    assert compute is not None

    def counting(facts: Facts) -> object:
        computed.append(facts.kernel.name)
        return compute(facts)

    monkeypatch.setattr(Facts, "checks_preserved", False)
    monkeypatch.setattr(Facts, "expected_divergence", property(counting))
    module = parse(LOOP)
    assert run_passes(module, level)
    assert computed == ([] if level == "O1" else ["k"])


#: A uniform value is computed in both arms of a divergent branch and behind them. Before that, a remainder is computed
#: in one arm of a uniform branch and behind it: the passes insert it into the other arm,
#: and read the divergence for that.
MERGED = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n){
	.reg .pred %p<3>;
	.reg .b32 %r<7>;
	.reg .b64 %rd<1>;
	ld.param.u64 %rd0, [p];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p2, %r0, 4;
	@%p2 bra C;
	rem.u32 %r5, %r0, 7;
	st.global.u32 [%rd0+12], %r5;
C:	rem.u32 %r6, %r0, 7;
	st.global.u32 [%rd0+16], %r6;
	setp.lt.u32 %p0, %r1, 7;
	@%p0 bra A;
	rem.u32 %r2, %r0, 5;
	st.global.u32 [%rd0], %r2;
	bra J;
A:	rem.u32 %r3, %r0, 5;
	st.global.u32 [%rd0+4], %r3;
J:	rem.u32 %r4, %r0, 5;
	setp.eq.u32 %p1, %r4, 0;
	@%p1 bra X;
	st.global.u32 [%rd0+8], %r1;
X:	ret;
}
"""


def test_the_preserved_fact_may_be_more_precise_than_a_new_one() -> None:
    """One register takes the value of both arms. Divergent code writes it, so a new analysis calls it divergent."""
    module = parse(MERGED)
    kernel = module.kernels[0]
    before = Facts(kernel).get(divergent_blocks)
    run_passes(module, "O3")
    assert before < Facts(kernel).get(divergent_blocks)
