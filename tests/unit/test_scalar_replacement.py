"""Scalar replacement: what is forwarded and how, chains over back edges, what keeps a load, options, and the gate."""

from __future__ import annotations

import re
from collections.abc import Container

import pytest
from motion import HEADER, blocks_with, count, kernel_of, optimized
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.register_limit import register_limit
from ptxmotion.analysis.values.no_wrap import NoWrap
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.driver import Policy, optimize_in_place
from ptxmotion.ptx import Instr, Kernel, Module, parse, print_module
from ptxmotion.transforms.gate.static_judge import StaticJudge
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from ptxmotion.transforms.scalar_replacement import passes as scalar_replacement
from ptxmotion.transforms.scalar_replacement.options import Options
from ptxmotion.transforms.scalar_replacement.queries import Queries

CLEAN = ",copyprop,dce"
START = "ld.param.u64 %rd1, [out];\nmov.u32 %r40, %tid.x;\nsetp.eq.u32 %p1, %r40, 3;\n"


def text_of(body: str, passes: str = "srqp") -> str:
    module, _ = optimized(START + body, passes + CLEAN)
    return print_module(module)


def missed(body: str, passes: str = "srqp") -> list[str]:
    _, remarks = optimized(START + body, passes)
    return [remark.reason for remark in remarks.items if remark.kind == "Missed"]


# --- forwarding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "load", "expected"),
    [
        ("st.global.u32 [%rd1], %r40", "ld.global.u32 %r1, [%rd1]", ""),
        ("st.global.f32 [%rd1], %f1", "ld.global.u32 %r1, [%rd1]", "mov.b32 %r1, %f1"),
        ("st.global.u8 [%rd1], %r40", "ld.global.u8 %r1, [%rd1]", "cvt.u32.u8 %r1, %r40"),
        ("st.global.u8 [%rd1], %r40", "ld.global.s8 %r1, [%rd1]", "cvt.s32.s8 %r1, %r40"),
        ("st.global.u16 [%rd1], %r40", "ld.global.s16 %r1, [%rd1]", "cvt.s32.s16 %r1, %r40"),
        ("st.global.u32 [%rd1], 7", "ld.global.u32 %r1, [%rd1]", "mov.b32 %r1, 0x7"),
        ("st.global.u8 [%rd1], -1", "ld.global.s8 %r1, [%rd1]", "mov.b32 %r1, 0xFFFFFFFF"),
        ("st.global.u8 [%rd1], -1", "ld.global.u8 %r1, [%rd1]", "mov.b32 %r1, 0xFF"),
        ("st.global.f32 [%rd1], 0f3F800000", "ld.global.u32 %r1, [%rd1]", "mov.b32 %r1, 0x3F800000"),
        ("st.global.v2.u32 [%rd1], {%r40, %r41}", "ld.global.u32 %r1, [%rd1+4]", ""),
        ("st.global.u64 [%rd1], %rd1", "ld.global.u64 %rd2, [%rd1]", ""),
    ],
)
def test_a_load_takes_what_was_stored(store: str, load: str, expected: str) -> None:
    result = re.findall(r"%r?d?\d+", load)[0]
    kind = "u64" if result.startswith("%rd") else "u32"
    found = text_of(
        f"mov.f32 %f1, 0f40000000;\nmov.u32 %r41, 5;\n{store};\n{load};\nst.shared.{kind} [%r40], {result};\nret;"
    )
    assert load.split()[0] not in found
    if expected:
        # The value goes through a register of the pass's own, which copy propagation removes or not.
        operation, operands = expected.split(" ", 1)
        source = operands.split(", ")[1]
        assert re.search(rf"{re.escape(operation)} %\w+, {re.escape(source)};", found), found
    else:
        assert re.search(r"st\.shared\.\w+ \[%r40\], %(r40|r41|rd1);", found), found


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("st.global.u8 [%rd1+3], %r40;", "store"),
        ("st.global.u16 [%rd1], %r40;", "store"),
        ("st.global.u32 [%rd9], %r40;", "store"),
        ("@%p1 st.global.u32 [%rd1], %r40;", "store"),
        ("bar.sync 0;", "barrier"),
        ("membar.gl;", "barrier"),
        ("ld.volatile.global.u32 %r9, [%rd1];", "ordered"),
        ("atom.global.add.u32 %r9, [%rd1], 1;", "ordered"),
    ],
)
def test_what_keeps_a_load(between: str, reason: str) -> None:
    body = (
        f"ld.param.u64 %rd9, [out];\nand.b64 %rd9, %rd9, -16;\n"
        f"st.global.u32 [%rd1], %r40;\n{between}\nld.global.u32 %r1, [%rd1];\n"
        f"st.shared.u32 [%r40], %r1;\nret;"
    )
    assert missed(body)[-1] == reason
    assert "ld.global.u32" in text_of(body)


@pytest.mark.parametrize(
    "between", ["st.global.u32 [%rd1+4], %r40;", "st.shared.u32 [%r40], %r40;", "ld.global.u32 %r9, [%rd1+4];"]
)
def test_what_does_not_keep_a_load(between: str) -> None:
    body = f"st.global.u32 [%rd1], %r40;\n{between}\nld.global.u32 %r1, [%rd1];\nst.shared.u32 [%r40+4], %r1;\nret;"
    assert "[%rd1];" not in text_of(body)


def test_forwarding_is_an_option() -> None:
    body = "st.global.u32 [%rd1], %r40;\nld.global.u32 %r1, [%rd1];\nst.shared.u32 [%r40], %r1;\nret;"
    assert missed(body, "srqp:forwarding=false")[0] == missed(body, "srqp:paper=true")[0] == "store"


# --- loops ----------------------------------------------------------------------------------------------------------

STENCIL = """
    mov.u32 %r8, 0;
    mov.f32 %f9, 0f00000000;
P:  add.s64 %rd2, %rd1, 64;
L:  ld.global.f32 %f1, [%rd2];
    ld.global.f32 %f2, [%rd2+{second}];
    add.f32 %f9, %f9, %f1;
    add.f32 %f9, %f9, %f2;
    add.s64 %rd2, %rd2, 4;
    add.s32 %r8, %r8, 1;
    setp.lt.u32 %p2, %r8, {turns};
    @%p2 bra L;
    st.shared.f32 [%r40], %f9;
    ret;
"""


def loads_in(module: Module) -> list[str]:
    return blocks_with(module, "ld.global.f32")


def test_a_chain_over_two_turns_needs_a_loop_that_runs_twice() -> None:
    module, remarks = optimized(START + STENCIL.format(second=8, turns="%r40"), "srqp")
    assert loads_in(module) == ["L", "L"]
    assert "not-anticipated" in [remark.reason for remark in remarks.items]
    module, _ = optimized(START + STENCIL.format(second=8, turns=5), "srqp")
    assert loads_in(module) == ["P", "P", "L"]


#: A reads; behind B, C reads what A has, and D reads it in its own way.
TWO_READERS = """
    ld.param.u64 %rd1, [out];
    mov.u32 %r40, %tid.x;
    setp.eq.u32 %p1, %r40, 3;
    setp.eq.u32 %p2, %r40, 5;
    @%p1 bra B;
A:  ld.global.f32 %f1, [%rd1];
    st.shared.f32 [%r40], %f1;
B:  @%p2 bra D;
C:  ld.global.f32 %f2, [%rd1];
    st.shared.f32 [%r40+4], %f2;
    ret;
"""


def test_an_inserted_load_is_offset_by_all_loads_of_its_value() -> None:
    other = "D: ld.global.f32 %f3, [%rd1]; st.shared.f32 [%r40+4], %f3; ret;"
    module, _ = optimized(TWO_READERS + other, "srqp")
    assert loads_in(module) == ["A", "$edge_0"]


STAYS = [
    "D: ld.global.v2.f32 {%f3, %f4}, [%rd1]; st.shared.f32 [%r40+4], %f4; ret;",
    "D: @%p3 ld.global.f32 %f3, [%rd1]; ld.global.v2.f32 {%f3, %f4}, [%rd1]; st.shared.f32 [%r40+4], %f3; ret;",
]


@pytest.mark.parametrize("other", STAYS)
def test_an_insertion_that_a_load_that_stays_would_pay_for_is_refused(other: str) -> None:
    """From B to D the value would be read twice: on the edge and by the vector, which gets no insertions."""
    module, remarks = optimized(TWO_READERS + other, "srqp")
    assert loads_in(module)[:2] == ["A", "C"]
    assert "not-anticipated" in [remark.reason for remark in remarks.items]


@pytest.mark.parametrize("other", STAYS)
@pytest.mark.parametrize("variant", ["srqp", "ssrqp"])
def test_what_an_attempt_has_found_out_changes_no_later_one(
    other: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[scalar_replacement.Round] = []

    class Anew(scalar_replacement.Round):
        """A round that keeps nothing of the one before."""

        def __init__(
            self,
            options: Options,
            kernel: Kernel,
            queries: Queries,
            remarks: Remarks,
            excluded: Container[Instr],
        ) -> None:
            attempts.append(self)
            super().__init__(options, kernel, Queries(queries.facts, options), remarks, excluded)

    kept, remarks = optimized(TWO_READERS + other, variant)
    monkeypatch.setattr(scalar_replacement, "Round", Anew)
    anew, others = optimized(TWO_READERS + other, variant)
    assert len(attempts) > 1
    assert print_module(kept) == print_module(anew)
    assert remarks.items == others.items


@pytest.mark.parametrize(("threshold", "expected"), [(1, ["L", "L"]), (2, ["P", "P", "L"]), (4, ["P", "P", "L"])])
def test_the_threshold_bounds_a_chain(threshold: int, expected: list[str]) -> None:
    module, _ = optimized(START + STENCIL.format(second=8, turns=5), f"srqp:threshold={threshold}")
    assert loads_in(module) == expected


@pytest.mark.parametrize(
    ("first", "guard", "kind", "step", "again", "is_neighbour"),
    [
        ("0", "ge", "u32", 1, "lt", True),
        ("%r41", "ge", "u32", 1, "lt", True),
        ("%r41", "ge", "s32", 1, "lt", True),
        ("%r41", "le", "s32", -1, "gt", True),
        ("%r41", "gt", "s32", 1, "le", False),  # n may be the greatest number; then the loop does not end
        ("%r41", "ge", "s32", 1, "ne", False),
        ("%r41", "eq", "s32", 1, "lt", False),  # no test in front of the first iteration
    ],
)
def test_an_index_of_32_bits_that_is_proven_not_to_wrap_has_neighbours(
    first: str, guard: str, kind: str, step: int, again: str, *, is_neighbour: bool
) -> None:
    body = f"""
    ld.param.u32 %r41, [out];
    mov.u32 %r8, {first};
P:  setp.{guard}.{kind} %p3, %r8, %r40;
    @%p3 bra E;
B:  add.s32 %r9, %r8, 1;
L:  mul.wide.{kind} %rd2, %r8, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3];
    ld.global.u32 %r2, [%rd3+4];
    add.s32 %r8, %r8, {step};
    add.s32 %r10, %r1, %r2;
    st.shared.u32 [%r40], %r10;
    setp.{again}.{kind} %p2, %r8, %r40;
    @%p2 bra L;
E:  ret;"""
    module, _ = optimized(START + body, "srqp")
    assert blocks_with(module, "ld.global.u32") == (["B", "L"] if is_neighbour else ["L", "L"])


def test_the_first_block_is_entered_from_outside() -> None:
    """The kernel begins with the loop, so the test at the loop's end says nothing of the first iteration."""
    module = kernel_of("""
L:  setp.lt.s32 %p2, %r9, 100;
    add.s32 %r8, %r8, 1;
    @%p2 bra L;
    ret;""")
    facts = Facts(module.kernels[0], module)
    head = facts.loops.loops[0].header
    compared = facts.cfg.blocks[head].instrs[0]
    symbols = SymbolicValues(facts)
    known = NoWrap(symbols)
    limit = symbols.values.of_operand(compared, compared.operands[1], compared.form.type)
    assert not known.is_proven("s", limit, 1, head)
    assert symbols.phis[head]
    assert not any(known.is_proven("s", number, 1, head) for number in symbols.phis[head])


@pytest.mark.parametrize(("results", "expected"), [("%p3", True), ("%p2|%p3", False)])
def test_the_second_result_of_a_comparison_is_the_opposite(results: str, expected: bool) -> None:
    module = kernel_of(f"""
    ld.param.u32 %r8, [out];
    setp.lt.s32 {results}, %r8, 100;
    @!%p3 bra E;
B:  add.s32 %r9, %r8, 1;
E:  ret;""")
    facts = Facts(module.kernels[0], module)
    compared = next(instr for instr in module.kernels[0].instructions() if instr.text.startswith("setp"))
    symbols = SymbolicValues(facts)
    number = symbols.values.of_operand(compared, compared.operands[1], compared.form.type)
    labels = [each.label.text if each.label is not None else "" for each in facts.cfg.blocks]
    assert NoWrap(symbols).is_proven("s", number, 1, labels.index("B")) == expected


@pytest.mark.parametrize(("results", "is_read"), [("%p3", True), ("%p2|%p3", False)])
def test_the_second_result_of_a_comparison_decides_the_opposite_branch(results: str, is_read: bool) -> None:
    """The load in the loop is executed in the first iteration, or in all others. A load is inserted before the loop
    only in the first case."""
    text = text_of(
        f"""
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
    @%p1 bra L;
    ld.global.u32 %r3, [%rd1];
L:  setp.eq.u32 {results}, %r2, 0;
    @!%p3 bra NEXT;
    ld.global.u32 %r4, [%rd1];
    add.u32 %r3, %r3, %r4;
NEXT:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p4, %r2, %r40;
    @%p4 bra L;
    st.shared.u32 [%r40], %r3;
    ret;""",
        "ssrqp_s",
    )
    assert ("ld.global.u32 %r4, [%rd1]" not in text) == is_read


# --- options, limits, levels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directives", "limit"),
    [
        ([], 255),
        ([".maxnreg 40"], 40),
        ([".maxntid 1024, 1, 1"], 64),
        ([".maxntid 256", ".minnctapersm 4"], 64),
        ([".maxntid 640"], 96),
        ([".maxntid 257"], 168),
        ([".maxntid 96", ".minnctapersm 8"], 80),
    ],
)
def test_the_limit_of_registers(directives: list[str], limit: int) -> None:
    """The numbers are those of ptxas 13.0 for kernels that need more."""
    module = parse(HEADER + "ret;\n}\n")
    module.kernels[0].directives = directives
    assert register_limit(module.kernels[0]) == limit


def test_a_rewrite_that_is_not_allowed_is_not_made() -> None:
    body = START + STENCIL.format(second=4, turns="%r40")
    module = parse(HEADER + body + "\n}\n")
    again = Remarks(module, allowed=frozenset())
    run_passes(module, "srqp", again)
    assert count(module, "ld.global.f32") == 2 and not again.rewrites


def test_the_level_with_a_gate_keeps_what_is_better() -> None:
    body = START + STENCIL.format(second=4, turns="%r40")
    module = parse(HEADER + body + "\n}\n")
    optimize_in_place(module, "O3", Policy(judge=StaticJudge()))
    by_label = [
        instr.form.space for block in module.kernels[0].blocks for instr in block.instrs if instr.form.op.base == "ld"
    ]
    assert by_label.count("global") == 2
    ungated, _ = optimized(body, "O3")
    assert blocks_with(ungated, "ld.global.nc.f32") == ["P", "L"]


AHEAD = """
F:  ld.global.u32 %r1, [%rd1+{first}];
    mov.u64 %rd2, %rd1;
L:  ld.global.u32 %r2, [%rd2-16];
    st.shared.u32 [%r40], %r2;
    add.s64 %rd2, %rd2, {step};
    setp.lt.u32 %p1, %r2, %r40;
    @%p1 bra L;
    st.shared.u32 [%r40+4], %r1;
    ret;
"""


@pytest.mark.parametrize(
    ("first", "step", "is_read"),
    [(-16, 4, True), (0, 4, True), (400, 4, True), (2, 4, False), (-20, 4, False), (-20, -4, True), (-400, -4, True)],
)
def test_a_load_may_read_what_it_comes_to_in_a_later_turn(first: int, step: int, is_read: bool) -> None:
    """Also after more iterations than those over which values are carried."""
    module = kernel_of(START + AHEAD.format(first=first, step=step))
    facts = Facts(module.kernels[0], module)
    queries = Queries(facts, Options())
    loads = [load for each in queries.accesses.blocks.values() for _, load in each.loads]
    before, in_loop = (load for load in loads if load.form.space == "global")
    question = queries.accesses.question(before)
    assert question is not None
    assert (in_loop in queries.candidates.readers(question)) == is_read


def test_a_condition_of_a_value_that_many_joins_change() -> None:
    """Each φ of %r41 depends on the one above it, over more joins than Python can call functions."""
    lines = ["mov.u32 %r41, 0;", "L:"]
    for number in range(600):
        lines += [f"setp.gt.s32 %p1, %r41, {number};", f"@%p1 bra A{number};", "add.s32 %r41, %r41, 1;"]
        lines += ["ld.global.u32 %r1, [%rd1];"] * (number % 100 == 0)
        lines.append(f"A{number}:")
    lines += ["ld.global.u32 %r2, [%rd1];", "st.global.u32 [%rd1+4], %r2;", "setp.lt.s32 %p1, %r41, %r40;"]
    module, _ = optimized(START + "\n".join([*lines, "@%p1 bra L;", "ret;"]), "srqp")
    assert count(module, "ld.global.u32") >= 1


IN_VAIN = """
.local .align 4 .b8 depot[8];
mov.u32 %r41, %ctaid.x;
L:
T: .branchtargets E, C, L, B;
{branch}
B:
add.u32 %r42, %r41, 1;
A:
add.u32 %r42, %r42, 1;
C:
ld.local.u32 %r1, [depot];
st.global.u32 [%rd1], %r1;
@%p1 bra A;
E:
ret;
"""


@pytest.mark.parametrize("branch", ["brx.idx %r41, T;", "@%p2 bra C;\n@%p3 bra E;\n@%p4 bra L;"])
def test_no_load_rises_above_a_uniform_branch_that_may_lead_past_it(branch: str) -> None:
    """A load is not inserted on an edge of an indirect branch, nor before it, where a warp may not need it."""
    setting = "setp.eq.u32 %p2, %r41, 0;\nsetp.eq.u32 %p3, %r41, 1;\nsetp.eq.u32 %p4, %r41, 2;\nL:"
    body = START + IN_VAIN.format(branch=branch).replace("L:", setting)
    module, _ = optimized(body, "ssrqp")
    assert "ld.local.u32" not in print_module(module).partition("B:")[0]
    assert count(module, "ld.local.u32") >= 1
