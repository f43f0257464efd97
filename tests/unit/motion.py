"""Small kernels for the tests of code motion: built from a body, optimized and inspected; and random kernels."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from walker import Endless, Walk, walk

HEADER = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<64>;
.reg .f32 %f<64>;
.reg .b64 %rd<64>;
.reg .pred %p<8>;
"""

#: A division that is computed again after a branch. One arm of the branch has computed it.
DIVISION_AGAIN = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 a)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [a];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r2, %tid.x;
	setp.gt.s32 %p1, %r1, 7;
	@%p1 bra RIGHT;
	div.s32 %r3, %r1, %r2;
	st.global.u32 [%rd2], %r3;
	bra.uni JOIN;
RIGHT:
	st.global.u32 [%rd2+8], %r1;
JOIN:
	div.s32 %r4, %r1, %r2;
	st.global.u32 [%rd2+4], %r4;
	ret;
}
"""


def kernel_of(body: str) -> Module:
    return parse(HEADER + body + "\n}\n")


def optimized(body: str, passes: str = "lcm:min_cost=0") -> tuple[Module, Remarks]:
    module = kernel_of(body)
    remarks = Remarks(module)
    run_passes(module, passes, remarks)
    return module, remarks


def blocks_with(module: Module, opcode: str) -> list[str]:
    """The labels of the blocks that contain ``opcode``, in text order."""
    kernel = module.kernels[0]
    return [
        block.label.text if block.label else f"#{number}"
        for number, block in enumerate(kernel.blocks)
        for instr in block.instrs
        if instr.form.text == opcode
    ]


def count(module: Module, opcode: str) -> int:
    return sum(instr.form.text == opcode for kernel in module.kernels for instr in kernel.instructions())


def random_body(choose: random.Random) -> str:
    """A random graph of blocks over a few registers. Every block may be reached from any other."""
    blocks = choose.randint(2, 9)
    lines: list[str] = []
    for number in range(blocks):
        lines.append(f"B{number}:")
        lines += [random_statement(choose) for _ in range(choose.randint(0, 5))]
        kind = choose.random()
        if kind < 0.55:
            lines.append(f"@%p1 bra B{choose.randrange(blocks)};")
        elif kind < 0.7:
            lines.append(f"bra.uni B{choose.randrange(blocks)};")
        elif kind < 0.78:
            lines.append("ret;")
    lines.append("st.global.u32 [%r1], %r2;\nret;")
    return "\n".join(lines)


def random_statement(choose: random.Random) -> str:
    reg = lambda: f"%r{choose.randint(1, 5)}"  # noqa: E731
    result = f"%r{choose.randint(1, 9)}"
    return choose.choice(
        [
            f"mul.lo.s32 {result}, {reg()}, {reg()};",
            f"mul.lo.s32 {result}, {reg()}, {reg()};",
            f"add.s32 {result}, {reg()}, {choose.choice(['4', '8', reg()])};",
            f"mov.u32 {result}, {choose.choice(['7', reg()])};",
            f"ld.global.u32 {result}, [{reg()}+{choose.choice([0, 4, 8])}];",
            f"ld.global.u32 {result}, [{reg()}];",
            f"st.global.u32 [{reg()}+{choose.choice([0, 4])}], {reg()};",
        ]
    )


def check_random_kernels(passes: str, seeds: Iterable[int], *, keeps_counts: bool) -> None:
    """Walks through random kernels store the same before and after ``passes``. ``keeps_counts``: they do not evaluate
    more either."""
    for seed in seeds:
        choose = random.Random(seed)
        body = random_body(choose)
        before, module = kernel_of(body).kernels[0], kernel_of(body)
        run_passes(module, passes)
        after = parse(print_module(module)).kernels[0]
        for _ in range(12):
            decisions = [choose.random() < 0.5 for _ in range(24)]
            registers = {f"%r{n}": choose.choice([0, 4, 8, 100, choose.getrandbits(32)]) for n in range(64)}
            try:
                old, new = (walk(kernel, decisions, registers, {}) for kernel in (before, after))
            except Endless:
                continue
            context = f"seed {seed}\n{body}\n--- became\n{print_module(module)}"
            assert new.stores == old.stores, context
            # Where the decisions ran out, the old kernel may not have come to what the new one has evaluated early.
            if keeps_counts and old.left:
                assert costly(new) <= costly(old), context
                assert new.ran["add.s32"] <= old.ran["add.s32"], context


def costly(result: Walk) -> int:
    """The products and loads that a walk evaluated."""
    return result.ran["mul.lo.s32"] + result.ran["ld.global.u32"]


#: ``for (j = 0; j < n; j++) y[i] += a[i*n + j] * x[j], z[i] += x[j]``: two sums that every iteration loads and stores.
SUM_IN_MEMORY = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry sum(.param .u64 a, .param .u64 x, .param .u64 y, .param .u32 n, .param .u64 z)
.maxntid 256, 1, 1
.minnctapersm 2
{
    .reg .pred %p;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [y];
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd11, [z];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra END;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd3, %rd4;
    add.s64 %rd12, %rd11, %rd4;
    mul.lo.s32 %r6, %r5, %r1;
    mov.u32 %r7, 0;
LOOP:
    ld.global.u32 %r8, [%rd5];
    add.s32 %r9, %r6, %r7;
    mul.wide.s32 %rd6, %r9, 4;
    add.s64 %rd7, %rd1, %rd6;
    ld.global.u32 %r10, [%rd7];
    mul.wide.s32 %rd8, %r7, 4;
    add.s64 %rd9, %rd2, %rd8;
    ld.global.u32 %r11, [%rd9];
    mad.lo.s32 %r12, %r10, %r11, %r8;
    st.global.u32 [%rd5], %r12;
    ld.global.u32 %r13, [%rd12];
    add.s32 %r14, %r13, %r11;
    st.global.u32 [%rd12], %r14;
    add.s32 %r7, %r7, 1;
    setp.lt.s32 %p, %r7, %r1;
    @%p bra LOOP;
END:
    ret;
}
"""
