"""Branch divergence that is computed late describes the kernel before any motion."""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.ptx import Kernel, parse
from ptxmotion.transforms.code_motion.branch_divergence import BranchDivergence

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


def kernel_and_facts() -> tuple[Kernel, Facts]:
    module = parse(TEXT)
    return module.kernels[0], Facts(module.kernels[0], module)


@pytest.mark.parametrize("is_deferred", [False, True])
def test_what_was_settled_holds_after_a_change(is_deferred: bool) -> None:
    kernel, facts = kernel_and_facts()
    divergence = BranchDivergence(facts, is_deferred=is_deferred)
    divergence.settle()
    # The branch is uniform now, but what is asked for is how it was.
    first = kernel.blocks[0]
    kernel.set_instrs(first, first.instrs[2:])
    assert divergence.blocks(facts) == [0]
    assert divergence.is_divergent(facts, 0)
    assert not divergence.is_divergent(facts, 2)


def test_what_was_not_settled_cannot_be_asked_after_a_change() -> None:
    kernel, facts = kernel_and_facts()
    divergence = BranchDivergence(facts, is_deferred=True)
    kernel.changed()
    with pytest.raises(RuntimeError, match="not settled"):
        divergence.blocks(facts)


def test_what_nobody_asks_for_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _, facts = kernel_and_facts()
    asked: list[Facts] = []
    monkeypatch.setattr(Facts, "expected_divergence", property(asked.append))
    BranchDivergence(facts, is_deferred=True)
    assert not asked
