"""Kernels in which a pointer goes through random computations from a parameter to an address.

Computes: the text of a kernel that stores through the pointer, with the store or without it. The pointer
goes through structures, global, local and shared memory, functions, masks, selections, parts of registers, and large
indices, in any order.
"""

from __future__ import annotations

import random

from random_comparisons import respelled

__all__ = ["kernel_with_route"]

HEAD = """.version 9.0
.target sm_90
.address_size 64
.visible .global .align 8 .u64 slot[4];
.const .align 8 .b8 table[64];
.func (.param .b64 r) same(.param .b64 q) { .reg .b64 %z; ld.param.b64 %z, [q]; st.param.b64 [r], %z; ret; }
.func (.param .b64 r) held(.param .align 8 .b8 q[16]) {
.reg .b64 %z; ld.param.b64 %z, [q+8]; st.param.b64 [r], %z; ret; }
"""

BEGINNINGS = (
    "ld.param.u64 %d2, [a];",
    "ld.param.u64 %d2, [s+8];",
    "mov.u64 %d1, s; add.u64 %d1, %d1, 16; ld.param.u64 %d2, [%d1];",
    "ld.param.v2.u64 {%d1, %d2}, [s];",
    "ld.global.u64 %d2, [slot+16];",
    "ld.const.u64 %d2, [table+24];",
)

#: Each step leaves in %d2 the same pointer, or a pointer that was loaded through it.
STEPS = (
    "ld.global.u64 %d2, [%d2];",
    "ld.global.u64 %d2, [%d2+40];",
    "ld.global.v2.u64 {%d1, %d2}, [%d2+16];",
    "mul.wide.u32 %d3, %r0, 8; add.u64 %d2, %d2, %d3; ld.u64 %d2, [%d2];",
    "mul.wide.u32 %d3, %r0, 24; add.u64 %d2, %d2, %d3; ld.global.u64 %d2, [%d2+8];",
    "st.local.u64 [l+8], %d2; ld.local.u64 %d2, [l+8];",
    "mov.u64 %d3, l; cvta.local.u64 %d3, %d3; st.u64 [%d3], %d2; ld.u64 %d2, [%d3];",
    "shl.b32 %r1, %r0, 3; mov.u32 %r2, sh; add.u32 %r2, %r2, %r1; st.shared.u64 [%r2], %d2; ld.shared.u64 %d2, [%r2];",
    "{ .param .b64 x; .param .b64 y; st.param.b64 [x], %d2; call (y), same, (x); ld.param.b64 %d2, [y]; }",
    "{ .param .align 8 .b8 x[16]; .param .b64 y; st.param.b64 [x], %d0; st.param.b64 [x+8], %d2;"
    " call (y), held, (x); ld.param.b64 %d2, [y]; }",
    "and.b64 %d2, %d2, -32;",
    "or.b64 %d2, %d2, 64;",
    "xor.b64 %d2, %d2, 128;",
    "mov.b64 {%r1, %r2}, %d2; mov.b64 %d2, {%r1, %r2};",
    "shr.u64 %d3, %d2, 32; cvt.u32.u64 %r1, %d3; cvt.u32.u64 %r2, %d2; mov.b64 %d2, {%r2, %r1};",
    "setp.gt.u32 %p1, %r0, 7; add.u64 %d3, %d2, 65536; selp.b64 %d2, %d2, %d3, %p1;",
    "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; mul.wide.u32 %d3, %r1, 4; add.u64 %d2, %d2, %d3; and.b64 %d2, %d2, -32;",
    "add.u64 %d2, %d2, 4000000;",
    "sub.u64 %d2, %d2, 12288;",
    "cvta.to.global.u64 %d2, %d2;",
)


def kernel_with_route(rng: random.Random, steps: int) -> tuple[str, str]:
    """A kernel in which each thread changes its own element, and the same kernel without the store."""
    route = [rng.choice(BEGINNINGS), *(rng.choice(STEPS) for _ in range(steps))]
    index = rng.choice(["%d0", "%d0", "%d4"])
    body = [
        ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .local .align 8 .b8 l[16];",
        ".shared .align 8 .b8 sh[8192];",
        "mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; mul.wide.u32 %d4, %r0, 100;",
        *route,
        f"add.u64 %d5, %d2, {index}; ld.global.u32 %r5, [%d5]; add.u32 %r5, %r5, 1;",
    ]
    params = ".param .u64 a, .param .align 16 .b8 s[32]"
    texts = [
        f"{HEAD}.visible .entry k({params})\n{{\n" + "\n".join([*body, *store, "ret;\n}\n"])
        for store in (["st.global.u32 [%d5], %r5;"], [])
    ]
    return respelled(texts[0], rng), respelled(texts[1], rng)
