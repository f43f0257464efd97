"""A kernel that multiplies the first ``n`` floats of an array by a number."""

from __future__ import annotations

__all__ = ["HEAD", "SCALE", "scale_kernel"]

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"

#: The parameters, in the usual order.
_PARAMS = ("u64 x", "f32 a", "u32 n")


def scale_kernel(name: str = "scale", params: tuple[str, ...] = _PARAMS) -> str:
    """The kernel without the head of a module, with its parameters in any order."""
    declared = ", ".join(f".param .{each}" for each in params)
    return f"""
.visible .entry {name}({declared})
{{
    .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [x];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.u32 %d2, %r5, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.f32 %f2, [%d3];
    mul.rn.f32 %f3, %f2, %f1;
    st.global.f32 [%d3], %f3;
DONE:
    ret;
}}
"""


#: A module with this kernel.
SCALE = HEAD + scale_kernel()
