"""Divergence: explanations, versions and growth. `tests/ptx/divergence` has the other tests."""

from growth import assert_near_linear
from ptxmotion.analysis import Facts
from ptxmotion.ptx import Kernel, parse
from pytest import mark

HEAD = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{\n"
    ".reg .pred %p<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<9>;\n"
)


def kernel(body: str) -> Kernel:
    return parse(HEAD + body + "\n}\n").kernels[0]


LOADED = """
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
ld.global.u32 %r7, [%rd3];
setp.eq.u32 %p3, %r7, 0;
@%p3 bra L;
mov.u32 %r2, 1;
L:
ret;
"""


def test_an_explanation_goes_back_to_its_source() -> None:
    found = Facts(kernel(LOADED)).divergence
    assert found.divergent_branches == [0]
    chain = "%p3 ← %r7 ← ld.global.u32 at a divergent address ← %rd3 ← %rd2 ← %r1 ← %tid.x"
    assert found.explain(0) == f"branch diverges: {chain}"


def test_each_step_has_its_place() -> None:
    module = parse(HEAD + LOADED + "\n}\n")
    steps = Facts(module.kernels[0]).divergence.why(0)
    text = module.source.text
    assert [text[step.instr.pos :].split()[0] for step in steps if step.instr is not None] == [
        "bra",
        "setp.eq.u32",
        "ld.global.u32",
        "ld.global.u32",
        "add.s64",
        "mul.wide.u32",
        "mov.u32",
        "mov.u32",
    ]


def test_a_known_shape_helps_and_reqntid_overrules_it() -> None:
    body = "mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 5;\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 ret;\nmov.u32 %r3, 1;\nret;"
    code = kernel(body)
    assert Facts(code).divergence.divergent_branches == [0]
    assert Facts(code, shape=(64, 2, 1)).divergence.divergent_branches == []
    fixed = parse(HEAD.replace("\n{\n", "\n.reqntid 48, 2, 1\n{\n", 1) + body + "\n}\n").kernels[0]
    assert Facts(fixed, shape=(64, 2, 1)).divergence.divergent_branches == [0]


@mark.parametrize(
    ("read", "is_divergent"),
    [
        ("mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid;", True),
        (".reg .v4 .u32 %v; mov.v4.u32 %v, %tid; mov.u32 %r1, %v.x;", True),
        ("mov.b64 %rd1, {%tid.x, %r2}; cvt.u32.u64 %r1, %rd1;", True),
        ("mov.b64 %rd1, {%r2, %laneid}; mov.b64 {%r3, %r1}, %rd1;", True),
        ("mov.v4.u32 {%r1, %r2, %r3, %r4}, %ctaid;", False),
        ("mov.b64 %rd1, {%ctaid.x, %nctaid.x}; cvt.u32.u64 %r1, %rd1;", False),
    ],
)
def test_special_registers_in_vectors(read: str, is_divergent: bool) -> None:
    code = kernel(f"ld.param.u32 %r2, [n];\n{read}\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 ret;\nmov.u32 %r3, 1;\nret;")
    assert Facts(code).divergence.divergent_branches == [0] * is_divergent


def test_an_unknown_opcode_that_names_a_label_diverges() -> None:
    code = kernel("zap.jump L;\nmov.u32 %r1, 1;\nM:\nret;\nL:\nret;")
    found = Facts(code).divergence
    assert found.divergent_branches == [0]
    assert found.explain(0).endswith("an unknown opcode that may branch")


def test_a_branch_to_the_next_block_may_be_divergent_and_parts_nobody() -> None:
    code = kernel("mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;\nL:\nadd.u32 %r3, %r2, 1;\nret;")
    found = Facts(code).divergence
    assert found.is_divergent(0)
    assert found.cdrnd == [True, True]


def test_each_value_at_a_join_knows_that_lanes_meet_there() -> None:
    """%p1 and %r2 are joined at L. When %p1 is visited again, it turns out that lanes which diverged meet there."""
    found = Facts(
        kernel(
            """
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, 9;
            setp.ne.u32 %p1, %r1, 5;
            L:
            sub.u32 %r2, %r2, 1;
            setp.eq.u32 %p2, %r2, 0;
            @%p2 ret;
            @!%p1 bra L;
            setp.lt.u32 %p1, %r1, 20;
            sub.u32 %r2, %r2, 1;
            bra L;
            """
        )
    ).divergence
    assert found.divergent_branches == [1, 2]
    assert found.explain(1).endswith("lanes that diverge at '@!%p1 bra L;' meet at L")


def chain(count: int) -> str:
    """A sequence of diamonds. Each branches on a value that the one before made divergent."""
    lines = ["mov.u32 %r1, %tid.x;"]
    for number in range(count):
        lines += [
            "setp.eq.u32 %p1, %r1, 3;",
            f"@%p1 bra A{number};",
            "mov.u32 %r1, 1;",
            f"bra B{number};",
            f"A{number}:",
            "mov.u32 %r1, 2;",
            f"B{number}:",
            "add.u32 %r2, %r1, 1;",
        ]
    return "\n".join([*lines, "st.global.u32 [%rd1], %r1;", "ret;"])


def early_exits(count: int) -> str:
    lines = ["mov.u32 %r1, %tid.x;", "mov.u32 %r2, 0;"]
    for number in range(count):
        lines += [f"setp.eq.u32 %p1, %r1, {number};", "@%p1 bra END;", "add.u32 %r2, %r2, 1;"]
    return "\n".join([*lines, "END:", "st.global.u32 [%rd1], %r2;", "ret;"])


def loop_around(count: int) -> str:
    """The same sequence in a loop, whose first diamond branches on a value of the last iteration."""
    body = (
        chain(count).replace("ret;", "").replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1, 0;\nmov.u32 %r9, %tid.x;\nL:", 1)
    )
    return body + "\nadd.u32 %r1, %r1, %r9;\nsetp.lt.u32 %p2, %r1, 100;\n@%p2 bra L;\nret;"


def nested_loops(count: int) -> str:
    lines = ["mov.u32 %r9, %tid.x;"]
    for number in range(count):
        lines += [f"mov.u32 %x{number}, 0;", f"L{number}:"]
    for number in reversed(range(count)):
        lines += [f"add.u32 %x{number}, %x{number}, 1;", f"setp.lt.u32 %p1, %x{number}, %r9;", f"@%p1 bra L{number};"]
    return f".reg .b32 %x<{count}>;\n" + "\n".join([*lines, "ret;"])


@mark.parametrize(
    ("shape", "small"),
    [(chain, 500), (early_exits, 1000), (loop_around, 300), (nested_loops, 40)],
    ids=lambda v: str(v)[:20],
)
def test_divergence_takes_near_linear_time(shape: object, small: int) -> None:
    assert callable(shape)

    def prepare(count: int) -> Facts:
        facts = Facts(kernel(str(shape(count))))
        assert facts.ssa and facts.control_dependence
        return facts

    found = prepare(small).divergence
    assert len(found.divergent_branches) >= small
    assert any(found.cdrnd)
    assert_near_linear(prepare, lambda facts: facts.divergence, small)
