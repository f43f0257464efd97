"""Question propagation: figures 4.9 to 4.13 of the thesis, with the insertions, removals and refusals in its text.

The graphs are rebuilt from the text of the thesis. Blocks have the numbers of the nodes. ``%p1`` and ``%p2`` are
computed from the thread index and diverge; ``%p3`` is computed from a parameter and does not. ``A[i]`` is ``[%rd1]``,
and ``i = i + 1`` adds 4 to the address.

The thesis does not say whether a load may be executed on a path where the program has none. Here this is refused unless
the address is proved to be readable. ``readable=true`` promises that it is, as the thesis assumes.
"""

from __future__ import annotations

import pytest
from growth import assert_near_linear
from motion import blocks_with, kernel_of, optimized
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.ptx import Kernel, Module, parse
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from ptxmotion.transforms.scalar_replacement.access_index import Accesses, Provider
from ptxmotion.transforms.scalar_replacement.anticipation import Anticipation
from ptxmotion.transforms.scalar_replacement.availability_solver import solve
from ptxmotion.transforms.scalar_replacement.block_answers import THROUGH, Answer, State
from ptxmotion.transforms.scalar_replacement.question_propagation import Availability, Exploration, Reply
from ptxmotion.transforms.scalar_replacement.questions import Question

LOAD = "ld.global.u32"

PREDICATES = """
    mov.u32 %r40, %tid.x;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r41, [out];
    setp.eq.u32 %p1, %r40, 3;
    setp.eq.u32 %p2, %r40, 5;
    setp.eq.u32 %p3, %r41, 7;
"""


def reasons(remarks: Remarks) -> list[str]:
    return [remark.reason for remark in remarks.items if remark.kind == "Missed"]


# --- figure 4.9: partial redundancy -------------------------------------------------------------------------------

#: Node 1 changes an operand; 3 reads; 4 reads again.
FIGURE_4_9 = (
    PREDICATES
    + """
    @%p3 bra N3;
N1: add.s64 %rd1, %rd1, 8;
N2: add.s32 %r9, %r9, 1;
    bra.uni N4;
N3: ld.global.u32 %r1, [%rd1];
    st.shared.u32 [%r40], %r1;
N4: ld.global.u32 %r2, [%rd1];
    st.shared.u32 [%r40+4], %r2;
    st.shared.u32 [%r40+8], %r9;
    ret;
"""
)


def test_figure_4_9_the_expression_moves_from_node_4_to_node_2() -> None:
    module, remarks = optimized(FIGURE_4_9, "srqp")
    assert blocks_with(module, LOAD) == ["N2", "N3"]
    assert [remark.name for remark in remarks.items if remark.kind == "Passed"] == ["Moved"]


def test_figure_4_9_is_not_anticipated_where_node_4_may_not_read() -> None:
    may_leave = FIGURE_4_9.replace("N4: ", "N4: @%p3 bra N5;\n").replace("    ret;", "N5: ret;")
    module, remarks = optimized(may_leave, "srqp")
    assert "not-anticipated" in reasons(remarks)
    assert sum(instr.form.text == LOAD for instr in module.kernels[0].instructions()) == 2


# --- figure 4.10: no motion through an empty loop -----------------------------------------------------------------

#: 2 and 3 are a loop without a read; 5 reads, 4 does not, 6 reads.
FIGURE_4_10 = (
    PREDICATES
    + """
N1: add.s32 %r8, %r40, 1;
N2: @%p1 bra N23;
N3: add.s32 %r8, %r8, 1;
    setp.lt.s32 %p1, %r8, 9;
    bra.uni N2;
N23: @%p3 bra N5;
N4: add.s32 %r9, %r9, 1;
    bra.uni N6;
N5: ld.global.u32 %r1, [%rd1];
    st.shared.u32 [%r40], %r1;
N6: ld.global.u32 %r2, [%rd1];
    st.shared.u32 [%r40+4], %r2;
    st.shared.u32 [%r40+8], %r9;
    ret;
"""
)


def test_figure_4_10_inserts_into_node_4_and_not_above_the_loop() -> None:
    module, _ = optimized(FIGURE_4_10, "srqp")
    assert blocks_with(module, LOAD) == ["N4", "N5"]


# --- figure 4.11: redundancy between iterations -------------------------------------------------------------------

#: 2 and 4 diverge; 5 reads A[i + 1], 8 reads A[i] and adds 1 to i.
FIGURE_4_11 = (
    PREDICATES
    + """
N1: mov.u32 %r8, 0;
N2: @%p1 bra N4;
N3: add.s32 %r9, %r9, 1;
    bra.uni N8;
N4: @%p2 bra N6;
N5: ld.global.u32 %r1, [%rd1+4];
    st.shared.u32 [%r40], %r1;
    bra.uni N7;
N6: add.s32 %r9, %r9, 2;
N7: add.s32 %r9, %r9, 3;
N8: ld.global.u32 %r2, [%rd1];
    st.shared.u32 [%r40+4], %r2;
    add.s64 %rd1, %rd1, 4;
    add.s32 %r8, %r8, 1;
    setp.lt.u32 %p4, %r8, %r41;
    @!%p4 bra E;
N9: bra.uni N2;
E:  st.shared.u32 [%r40+8], %r9;
    ret;
"""
)


def test_figure_4_11_srqp_inserts_into_nodes_1_3_and_6() -> None:
    module, remarks = optimized(FIGURE_4_11, "srqp:readable=true")
    assert blocks_with(module, LOAD) == ["N1", "N3", "N5", "N6"]
    assert "loaded on N1→N2" in next(remark.message for remark in remarks.items if remark.name == "Moved")


def test_figure_4_11_within_the_paper_s_two_visits() -> None:
    module, _ = optimized(FIGURE_4_11, "srqp:paper=true:readable=true")
    assert blocks_with(module, LOAD) == ["N1", "N3", "N5", "N6"]


def test_figure_4_11_is_refused_if_the_last_iteration_would_load_more() -> None:
    """Nodes 3 and 6 would read for the next iteration. The last one has no next: one more load, perhaps a fault."""
    module, remarks = optimized(FIGURE_4_11, "srqp")
    assert blocks_with(module, LOAD) == ["N5", "N8"]
    assert "not-anticipated" in reasons(remarks)


@pytest.mark.parametrize("passes", ["esrqp:readable=true", "esrqp:readable=true:paper=true"])
def test_figure_4_11_esrqp_keeps_out_of_the_arms(passes: str) -> None:
    module, remarks = optimized(FIGURE_4_11, passes)
    assert blocks_with(module, LOAD) == ["N5", "N8"]
    assert "divergent-insertion" in reasons(remarks)


# --- figure 4.12: speculation above a divergent branch ------------------------------------------------------------

#: The branches of N1 and N4 diverge; N2 and N5 load from the same address.
FIGURE_4_12 = (
    PREDICATES
    + """
N1: @%p1 bra N3;
N2: ld.global.u32 %r1, {address};
    st.shared.u32 [%r40], %r1;
    bra.uni N4;
N3: add.s32 %r9, %r9, 1;
N4: @{four} bra N6;
N5: ld.global.u32 %r2, {address};
    st.shared.u32 [%r40+4], %r2;
N6: st.shared.u32 [%r40+8], %r9;
    ret;
"""
)


def in_object(body: str) -> tuple[Module, Remarks]:
    module = parse(kernel_text(body).replace(".visible .entry", ".global .align 4 .b8 table[64];\n.visible .entry", 1))
    return module, Remarks(module)


def kernel_text(body: str) -> str:
    from ptxmotion.ptx import print_module

    return print_module(kernel_of(body.replace("[table+4]", "[%rd60+4]"))).replace("[%rd60+4]", "[table+4]")


def run(module: Module, remarks: Remarks, passes: str) -> None:
    run_passes(module, passes, remarks)


def test_figure_4_12_ssrqp_reads_once_at_node_1() -> None:
    module, remarks = in_object(FIGURE_4_12.format(address="[table+4]", four="%p2"))
    run(module, remarks, "ssrqp")
    assert blocks_with(module, LOAD) == ["N1"]
    assert [remark.name for remark in remarks.items if remark.kind == "Passed"] == ["Hoisted", "Redundant"]


def test_a_load_rises_only_where_another_one_becomes_redundant_by_it() -> None:
    alone = FIGURE_4_12.format(address="[table+4]", four="%p2").replace("N5: ld.global.u32 %r2, [table+4];", "N5:")
    for passes, blocks in (("ssrqp", ["N2"]), ("ssrqp:paper=true", ["N1"])):
        module, remarks = in_object(alone)
        run(module, remarks, passes)
        assert blocks_with(module, LOAD) == blocks, passes


def test_figure_4_12_esrqp_cannot() -> None:
    module, remarks = in_object(FIGURE_4_12.format(address="[table+4]", four="%p2"))
    run(module, remarks, "esrqp")
    assert blocks_with(module, LOAD) == ["N2", "N5"]


def test_figure_4_12_with_an_address_that_may_be_out_of_bounds_is_refused() -> None:
    module, remarks = optimized(FIGURE_4_12.format(address="[%rd1]", four="%p2"), "ssrqp")
    assert blocks_with(module, LOAD) == ["N2", "N5"]
    assert "may-fault" in reasons(remarks)


def test_figure_4_12_a_uniform_branch_is_speculated_above_by_ssrqp_s_only() -> None:
    body = FIGURE_4_12.format(address="[table+4]", four="%p3").replace("N1: @%p1", "N1: @%p3")
    for passes, blocks in (("ssrqp", ["N2", "N5"]), ("ssrqp_s", ["N1"])):
        module, remarks = in_object(body)
        run(module, remarks, passes)
        assert blocks_with(module, LOAD) == blocks, passes


# --- figure 4.13: speculation, then redundancy between iterations --------------------------------------------------


def test_figure_4_13_ssrqp_hoists_to_node_2_and_reads_the_first_element_at_node_1() -> None:
    module, _ = optimized(FIGURE_4_11, "ssrqp:readable=true")
    assert blocks_with(module, LOAD) == ["N1", "N2"]


def test_figure_4_13_is_refused_where_it_might_fault() -> None:
    module, remarks = optimized(FIGURE_4_11, "ssrqp")
    assert blocks_with(module, LOAD) == ["N5", "N8"]
    assert reasons(remarks)[0] == "may-fault"


# --- the questions by themselves ------------------------------------------------------------------------------------


def asked(body: str) -> tuple[Kernel, Facts, Availability, Anticipation, Accesses]:
    module = kernel_of(body)
    facts = Facts(module.kernels[0], module)
    symbols = SymbolicValues(facts)
    accesses = Accesses(facts, symbols)
    return (
        module.kernels[0],
        facts,
        Availability(facts, symbols, accesses),
        Anticipation(facts, symbols, accesses),
        accesses,
    )


def question_of(kernel: Kernel, accesses: Accesses, label: str) -> tuple[int, int, Question]:
    """Block, position and question of the first load in the block of that label."""
    for number, block in enumerate(kernel.blocks):
        if block.label is not None and block.label.text == label:
            for position, instr in enumerate(block.instrs):
                if instr.form.text == LOAD:
                    question = accesses.question(instr)
                    assert question is not None
                    return number, position, question
    raise AssertionError(label)


def test_a_question_changes_its_name_over_the_back_edge() -> None:
    kernel, facts, availability, _, accesses = asked(FIGURE_4_11)
    block, _, question = question_of(kernel, accesses, "N8")
    found = availability.explore(block, question)
    offsets = {state.question.offset for state in found.replies if state.question.base == question.base}
    assert offsets == {0, 4}  # no load reads the next element, so there is no question for it
    assert found.has_source
    assert not solve(found, lambda reply, state, names: "no").is_available
    assert len(found.replies) <= (availability.threshold + 1) * len(facts.cfg) < availability.budget


def test_questions_without_an_answer_make_no_states() -> None:
    """A long loop over ``A[i]`` with reads before it. Over the back edge, the address matches no load or store."""
    arms = "".join(
        f"""
N{number}: @%p3 bra M{number};
    add.s32 %r9, %r9, {number};
M{number}: add.s32 %r9, %r9, 1;
"""
        for number in range(30)
    )
    body = f"""
    ld.global.u32 %r1, [%rd1];
    st.shared.u32 [%r40], %r1;
    @%p3 bra L;
    add.s64 %rd1, %rd1, 256;
L:  ld.global.u32 %r2, [%rd1];
    add.s32 %r9, %r9, %r2;
    {arms}
    add.s64 %rd1, %rd1, 4;
    add.s32 %r41, %r41, 1;
    setp.lt.s32 %p4, %r41, 100;
    @%p4 bra L;
    st.shared.u32 [%r40+8], %r9;
    ret;
"""
    kernel, _, availability, _, accesses = asked(PREDICATES + body)
    block, _, question = question_of(kernel, accesses, "L")
    found = availability.explore(block, question)
    assert found.has_source
    assert found.reasons == ["no-earlier-access"]
    assert len(found.replies) == 1  # the blocks of the loop are not visited again for each iteration


def test_within_a_block_the_nearest_access_answers() -> None:
    kernel, _, availability, _, accesses = asked(
        PREDICATES
        + """
    st.global.u32 [%rd1], %r40;
    st.global.u32 [%rd1+4], %r41;
B:  ld.global.u32 %r1, [%rd1];
    ld.global.u32 %r2, [%rd2];
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+8], %r2;
    ret;
"""
    )
    block, position, question = question_of(kernel, accesses, "B")
    assert availability.search.within(block, question, position) is THROUGH
    before = availability.answers_to(question).at_end(block - 1)
    assert isinstance(before.provider, Provider) and before.provider.is_store
    other = accesses.question(kernel.blocks[block].instrs[1])
    assert other is not None
    assert availability.answers_to(other).at_end(block - 1).reason == "store"


def test_anticipation_follows_a_loop_that_is_known_to_run_twice() -> None:
    body = """
    ld.param.u64 %rd1, [out];
    mov.u32 %r8, 0;
L:  ld.global.u32 %r1, [%rd1];
    add.s64 %rd1, %rd1, 4;
    add.s32 %r8, %r8, 1;
    setp.lt.s32 %p1, %r8, {turns};
    @%p1 bra L;
    ret;
"""
    for turns, second in ((1, False), (2, True), (3, True)):
        kernel, facts, _, anticipation, accesses = asked(body.format(turns=turns))
        block, _, _ = question_of(kernel, accesses, "L")
        before = next(p for p in facts.cfg.pred[block] if p != block)
        values = anticipation.symbols
        first = accesses.question(kernel.blocks[block].instrs[0])
        assert first is not None
        named = values.translate(first.base, before, block)
        assert named is not None
        at_edge = first.at(named, first.offset)
        assert anticipation.is_evaluated(before, block, at_edge)
        assert anticipation.is_evaluated(before, block, at_edge.at(named, 4)) == second
        assert anticipation.is_dereferenced(before, block, at_edge.at(named, 4)) == second
        assert not anticipation.is_evaluated(before, block, at_edge.at(named, 12))


# --- cost -----------------------------------------------------------------------------------------------------------


def chain_of_loops(count: int) -> Module:
    """A sequence of loops that read what their last iteration has read, and of diamonds that read in one arm."""
    lines = ["ld.param.u64 %rd1, [out];", "mov.u32 %r1, %tid.x;", "setp.eq.u32 %p1, %r1, 3;"]
    for number in range(count):
        lines += [
            f"mul.wide.u32 %rd3, %r1, {4 * number + 4};",
            "add.s64 %rd2, %rd1, %rd3;",
            "mov.u32 %r2, 0;",
            f"L{number}: ld.global.u32 %r3, [%rd2];",
            "ld.global.u32 %r4, [%rd2+4];",
            "add.s32 %r5, %r3, %r4;",
            "add.s64 %rd2, %rd2, 4;",
            "add.s32 %r2, %r2, 1;",
            "setp.lt.u32 %p2, %r2, %r1;",
            f"@%p2 bra L{number};",
            f"@%p1 bra J{number};",
            "ld.global.u32 %r6, [%rd1];",
            "add.s32 %r5, %r5, %r6;",
            f"J{number}: ld.global.u32 %r7, [%rd1];",
            "add.s32 %r5, %r5, %r7;",
        ]
    return kernel_of("\n".join([*lines, "st.global.u32 [%rd1], %r5;", "ret;"]))


def test_time_is_near_linear() -> None:
    assert_near_linear(chain_of_loops, lambda module: run(module, Remarks(module), "srqp:rounds=1"), 60)


def test_reasons_come_in_the_order_in_which_they_are_met() -> None:
    root = State(0, Question("global", 1, 0, 4, 64))
    met = ["store", "", "barrier", "call", "operand", "store", "threshold", "entry"]
    found = Exploration(root, {root: [Reply(1, None, Answer(reason=reason)) for reason in met]})
    assert found.reasons == ["store", "barrier", "call", "operand", "threshold", "entry"]


@pytest.mark.parametrize(("results", "expected"), [("%p4", True), ("%p5|%p4", False)])
def test_the_second_result_of_a_comparison_decides_no_path(results: str, expected: bool) -> None:
    """The second result is the opposite: the first turn of this loop would not reach the load."""
    kernel, facts, _, anticipation, accesses = asked(f"""{PREDICATES}
    mov.u32 %r1, 0;
    bra TEST;
TEST: setp.lt.s32 {results}, %r1, 4;
    @!%p4 bra OUT;
BODY: ld.global.u32 %r5, [%rd1];
    st.shared.u32 [%r40], %r5;
    add.s32 %r1, %r1, 1;
    bra TEST;
OUT: ret;""")
    body, _, question = question_of(kernel, accesses, "BODY")
    (test,) = facts.cfg.pred[body]
    before = next(each for each in facts.cfg.pred[test] if each != body)
    assert anticipation.is_dereferenced(before, test, question) == expected
