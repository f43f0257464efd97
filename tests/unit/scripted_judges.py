"""Judges for the gate whose figures a test computes from the text, and the kernel that they judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptxmotion.cost import Figures
from ptxmotion.driver import Policy, optimize_in_place
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.transforms.remarks import Remarks

__all__ = ["SAME", "TEXT", "Scripted", "by_products", "gated", "products"]

#: Its second and fourth product are redundant.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mul.lo.s32 %r2, %r1, 3;
	mul.lo.s32 %r3, %r1, 3;
	mul.lo.s32 %r4, %r1, 5;
	mul.lo.s32 %r5, %r1, 5;
	st.global.u32 [%rd1], %r2;
	st.global.u32 [%rd1+4], %r3;
	st.global.u32 [%rd1+8], %r4;
	st.global.u32 [%rd1+12], %r5;
	ret;
}
"""

SAME = Figures(code="a", registers=10, spills=0, warps=64, weight=100, threads=1024)


class Scripted:
    """A judge whose figures are computed from the text."""

    name = "scripted"

    def __init__(self, of: Callable[[str], Figures]) -> None:
        self.of = of
        self.asked = 0
        self.sm = 90

    def figures(self, module: Module) -> dict[str, Figures]:
        self.asked += 1
        return {kernel.name: replace(self.of(print_module(module)), sm=self.sm) for kernel in module.entries}


def gated(judge: object, passes: str = "cse,dce") -> tuple[Module, Remarks]:
    module = parse(TEXT)
    return module, optimize_in_place(module, passes, Policy(judge=judge)).log  # pyright: ignore[reportArgumentType]


def products(module: Module) -> list[str]:
    return [i.operands[2].text for i in module.kernels[0].instructions() if i.form.text == "mul.lo.s32"]


def by_products(weights: dict[tuple[str, ...], float]) -> Callable[[str], Figures]:
    """Figures computed from the products that remain in the kernel."""

    def of(text: str) -> Figures:
        left = tuple(products(parse(text)))
        return replace(SAME, code=str(left), weight=weights[left])

    return of
