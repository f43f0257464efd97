"""The slice of a kernel contains every value that a branch depends on, and gives the same divergent branches.

The slice is compared with a backward search from the branches, for kernels without carries and unknown opcodes.
"""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.divergence.branch_slice import BranchSlice
from ptxmotion.analysis.divergence.divergence import Divergence
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.values.ssa import Ssa
from ptxmotion.ptx import parse

from .random_pointers import pointer_kernel
from .random_programs import random_kernel


class _Unsure(BranchSlice):
    """A slice of which it is unknown whether branches depend on all of its values."""

    def __init__(self, ssa: Ssa, cfg: Cfg) -> None:
        super().__init__(ssa, cfg)
        self.is_for_branches = False


@pytest.mark.parametrize("seed", range(60))
def test_what_branches_depend_on_is_the_slice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse((random_kernel if seed % 2 else pointer_kernel)(seed, 60).ptx)
    facts = Facts(module.kernels[0], module)
    found = Divergence.of(facts, branches_only=True)
    monkeypatch.setattr("ptxmotion.analysis.divergence.divergence.BranchSlice", _Unsure)
    asked = Divergence.of(facts, branches_only=True)
    assert found.divergent_branches == asked.divergent_branches
    assert found.varying == asked.varying
    assert [found.why(block) for block in found.divergent_branches] == [
        asked.why(block) for block in asked.divergent_branches
    ]


def test_a_carry_is_not_for_branches() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	ld.param.u32 %r1, [n];
	add.cc.u32 %r2, %r1, %r1;
	addc.u32 %r3, %r1, 0;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra L;
L:	ret;
}
"""
    for code, is_for_branches in ((text, False), (text.replace("\tadd", "\t//"), True)):
        module = parse(code)
        facts = Facts(module.kernels[0], module)
        assert BranchSlice(facts.ssa, facts.cfg).is_for_branches == is_for_branches
