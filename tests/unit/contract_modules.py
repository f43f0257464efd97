"""PTX modules with versions, and their contracts, written by hand."""

from __future__ import annotations

from ptxmotion.contract import (
    Contract,
    Disjoint,
    Expression,
    Holds,
    Inside,
    KernelContract,
    LaunchChange,
    Number,
    Parameter,
    Range,
    Version,
    parse,
)
from ptxmotion.contract.document import digest_of

HEADER = ".version 8.0\n.target sm_75\n.address_size 64\n"

#: y[i] += sum over j < n of x[i + j]. The kernel keeps the sum in memory; the version `sum_1` in a register, which is
#: the same only if y is not x. Each writes a mark behind the results, so that a test sees which one ran.
_SUM = """
.visible .entry {name}(.param .u64 y, .param .u64 x, .param .u32 n, .param .u64 mark{more})
{{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd0, [y];
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r0, [n];
    ld.param.u64 %rd4, [mark];
    mov.u32 %r1, %tid.x;
    mov.u32 %r5, %ctaid.x;
    mov.u32 %r6, %ntid.x;
    mad.lo.u32 %r1, %r5, %r6, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd5, %rd1, %rd2;
    st.global.u32 [%rd4], {mark};
    mov.u32 %r2, 0;
{before}
LOOP:
    setp.ge.u32 %p, %r2, %r0;
    @%p bra END;
    ld.global.f32 %f1, [%rd5];
{inside}
    add.s64 %rd5, %rd5, 4;
    add.u32 %r2, %r2, 1;
    bra LOOP;
END:
{behind}
    ret;
}}
"""
_LOAD, _STORE = "    ld.global.f32 %f0, [%rd3];\n", "    st.global.f32 [%rd3], %f0;\n"
_ADD = "    add.f32 %f0, %f0, %f1;\n"


def sum_kernel(name: str, mark: int, *, in_register: bool, more: str = "") -> str:
    """The text of the kernel; ``more`` are further parameters."""
    if in_register:
        parts = {"before": _LOAD, "inside": _ADD, "behind": _STORE}
    else:
        parts = {"before": "", "inside": _LOAD + _ADD + _STORE, "behind": ""}
    return _SUM.format(name=name, mark=mark, more=more, **parts)


#: The number of threads of a launch, and the bytes of x that the kernel reads.
THREADS = "block_x * grid_x"
X_BYTES = f"4 * ({THREADS} + arg2 - 1) if arg2 > 0 else 0"

SUM_PTX = (
    HEADER
    + sum_kernel("sum_1", 1, in_register=True)
    + sum_kernel("sum_2", 2, in_register=True, more=", .param .u32 extra")
    + sum_kernel("sum", 3, in_register=False)
)

SUM_PARAMETERS = (
    Parameter("y", 0, 8, "u64", pointer=True),
    Parameter("x", 8, 8, "u64", pointer=True),
    Parameter("n", 16, 4, "u32"),
    Parameter("mark", 24, 8, "u64", pointer=True),
)


def part(pointer: int, stop: str) -> Range:
    """The first bytes of a buffer."""
    return Range(pointer, Number(0), parse(stop))


def sum_contract(
    *,
    prefer_when: Expression | None = None,
    first_prefer: Expression | None = None,
    ptx: str = SUM_PTX,
) -> Contract:
    """Two versions: if the allocations differ; and if the ranges do, with a further argument."""
    versions = (
        Version(
            "sum_1",
            (Disjoint(Range(0), Range(1)), Disjoint(Range(3), Range(1)), Inside(part(1, X_BYTES))),
            first_prefer if first_prefer is not None else prefer_when,
            description="buffers disjoint",
        ),
        Version(
            "sum_2",
            (
                Disjoint(part(0, f"4 * {THREADS}"), part(1, X_BYTES)),
                Disjoint(part(3, "4"), part(1, X_BYTES)),
                Holds(parse("arg2 > 0 and arg0 % 4 == 0")),
            ),
            prefer_when,
            LaunchChange(arguments=(parse("arg2 + 1"),)),
            "ranges disjoint",
        ),
        Version("sum"),
    )
    return Contract(digest_of(ptx), {"sum": KernelContract("sum", SUM_PARAMETERS, versions)}, "test")
