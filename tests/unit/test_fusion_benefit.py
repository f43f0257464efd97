"""The estimate of what a fusion saves and costs."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ptxmotion.toolchain.occupancy import occupancy
from ptxmotion.transforms.kernel_fusion.benefit import BenefitModel, MachineCosts, Resources
from ptxmotion.transforms.kernel_fusion.kernel_code import KernelCode, KernelCodes
from ptxmotion.transforms.kernel_fusion.launch_site import Fusibility, LaunchSite

approx: Any = cast("Any", pytest).approx

#: ``y[i] = x[i] * k`` for i below n: each thread reads and writes 4 bytes.
KERNEL = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 k)
{
	.reg .u32 %i, %n, %k, %b, %s, %v;
	.reg .u64 %x, %y, %o;
	.reg .pred %p;
	ld.param.u64 %x, [x];
	ld.param.u64 %y, [y];
	ld.param.u32 %n, [n];
	ld.param.u32 %k, [k];
	mov.u32 %b, %ctaid.x;
	mov.u32 %s, %ntid.x;
	mov.u32 %i, %tid.x;
	mad.lo.u32 %i, %b, %s, %i;
	setp.ge.u32 %p, %i, %n;
	@%p ret;
	mul.wide.u32 %o, %i, 4;
	add.u64 %x, %x, %o;
	ld.global.u32 %v, [%x];
	mul.lo.u32 %v, %v, %k;
	add.u64 %y, %y, %o;
	st.global.u32 [%y], %v;
	ret;
}
"""


def code(text: str) -> KernelCode:
    from ptxmotion.dsl import ptx_source

    kernel = ptx_source(text)
    return KernelCodes(lambda kernel: kernel.ptx()).of(kernel)


def estimated(model: BenefitModel, kind: str = "thread") -> Any:
    one = code(KERNEL)
    site = LaunchSite(one.entry, one.module, (1024, 1, 1), (256, 1, 1))
    return model(one, one, one, (site, site, site), Fusibility(kind))


def test_the_estimate_of_a_fusion_adds_its_costs() -> None:
    costs = MachineCosts(bandwidth=1e13, launch=3e-6, graph_node=0.5e-6, barrier=1e-7)
    plain = estimated(BenefitModel(costs))
    assert plain.saved == approx(3e-6 + 8 * 1024 * 256 / 1e13) and plain.lost == 0
    assert estimated(BenefitModel(costs, as_graph=True)).saved == approx(0.5e-6 + 8 * 1024 * 256 / 1e13)
    assert estimated(BenefitModel(costs), "block").lost == approx(1e-7)

    # What takes longer than its launch hides the next one's: what is between kernels is left.
    slow = MachineCosts(bandwidth=1e11, launch=3e-6, graph_node=0.5e-6)
    assert estimated(BenefitModel(slow)).saved == approx(0.5e-6 + 8 * 1024 * 256 / 1e11)

    shares = iter([1.0, 0.5, 0.25])
    less = estimated(BenefitModel(costs, lambda code, threads: Resources(next(shares), 0)))
    assert less.lost == approx(16 * 1024 * 256 / 1e13 * 0.5) and "50% to 25%" in less.text
    spills = iter([0, 8, 16])
    worse = estimated(BenefitModel(costs, lambda code, threads: Resources(1.0, next(spills))))
    assert not worse.is_worth_it and "spills 16 bytes" in worse.text


@pytest.mark.parametrize(("block", "is_refused"), [("threads", True), (1024, False), (512, False)])
def test_blocks_that_the_host_computes(block: Any, is_refused: bool) -> None:
    """Two kernels of 60 registers, and a fused one of 70: blocks of 1024 threads would be refused by the driver."""
    one = code(KERNEL)
    fused = code(KERNEL.replace("scale", "scale_scale"))

    def resources(code: KernelCode, threads: int) -> Resources:
        registers = 70 if code is fused and block == "threads" else 60
        found = occupancy(90, threads, registers)
        assert found is not None
        return Resources(found.share, 0)

    site = LaunchSite(one.entry, one.module, (1024, 1, 1), (block, 1, 1))
    found = BenefitModel(MachineCosts(), resources)(one, one, fused, (site, site, site), Fusibility("thread"))
    assert ("too many registers for blocks of 1024 threads" in found.text) is is_refused
    assert found.is_worth_it is not is_refused
