"""Liveness compared with its definition by paths on random kernels; partial definitions; growth of the time."""

from growth import assert_near_linear
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.graph.cfg import Cfg, build_cfg
from ptxmotion.analysis.values import liveness
from ptxmotion.analysis.values.liveness import Liveness, certain_defs
from ptxmotion.ptx import Kernel, parse
from pytest import MonkeyPatch

HEAD = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n.reg .pred %p<4>;\n"
    ".reg .b32 %r<20>;\n.reg .v4 .f32 %v<2>;\n"
)


def kernel(body: str) -> Kernel:
    return parse(HEAD + body + "\n}\n").kernels[0]


def live(body: str) -> tuple[list[str], list[str]]:
    """Live registers at the start and the end of each block, as words."""
    facts = Liveness(build_cfg(kernel(body)))
    ins = [" ".join(sorted(reg.text for reg in facts.registers(row))) for row in facts.live_in]
    outs = [" ".join(sorted(reg.text for reg in facts.registers(row))) for row in facts.live_out]
    return ins, outs


def test_registers_of_a_loop_are_live_around_it() -> None:
    ins, outs = live("mov.u32 %r1, 0;\nL:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, %r2;\n@%p1 bra L;\nret;")
    assert ins == ["%r2", "%r1 %r2", ""]
    assert outs == ["%r1 %r2", "%r1 %r2", ""]


def test_registers_of_one_block_have_no_number() -> None:
    facts = Liveness(build_cfg(kernel("mov.u32 %r1, 0;\nadd.u32 %r2, %r1, 1;\nL:\nret;")))
    assert facts.regs == []
    assert list(facts.live_in) == [0, 0]


def test_a_guarded_definition_does_not_kill() -> None:
    assert live("L:\n@%p1 mov.u32 %r1, 0;\nM:\nadd.u32 %r2, %r1, 1;\nret;")[0][:2] == ["%p1 %r1", "%p1 %r1"]
    assert live("L:\nmov.u32 %r1, 0;\nM:\nadd.u32 %r2, %r1, 1;\nret;")[0][:2] == ["", ""]


def test_a_component_does_not_kill_its_vector() -> None:
    body = "L:\nmov.f32 %v1.x, 0f00000000;\nM:\nmov.f32 %v0.y, %v1.z;\nret;"
    assert "%v1" in live(body)[0][1].split()


def test_an_opaque_instruction_reads_and_does_not_kill() -> None:
    assert live("L:\nzap.u32 %r1, %r2;\nM:\nadd.u32 %r3, %r1, 1;\nret;")[0][1] == "%r1 %r2"


def test_both_results_of_a_pair_and_all_of_a_vector_are_killed() -> None:
    instrs = list(kernel("setp.eq.u32 %p1|%p2, %r1, %r2;\nld.global.v2.u32 {%r3, _}, [%r4];\nret;").instructions())
    assert [[reg.text for reg in certain_defs(instr)] for instr in instrs] == [["%p1", "%p2"], ["%r3"], []]


def test_unreachable_blocks_are_empty() -> None:
    ins, outs = live("bra L;\nadd.u32 %r1, %r2, 1;\nL:\nret;")
    assert (ins, outs) == (["", "", ""], ["", "", ""])


def test_walks_through_a_block() -> None:
    code = kernel("mov.u32 %r1, 0;\nadd.u32 %r2, %r1, 1;\nL:\nadd.u32 %r3, %r2, %r2;\nret;")
    facts = Liveness(build_cfg(code))
    walked = [(position, {reg.text for reg in regs}) for position, _, regs in facts.backwards(0)]
    assert walked == [(1, {"%r2"}), (0, {"%r1"})]
    assert facts.is_live_out(facts.regs[0], 0) and not facts.is_live_in(facts.regs[0], 0)


@st.composite
def random_kernels(draw: st.DrawFn) -> Kernel:
    count = draw(st.integers(1, 6))
    reg = st.integers(0, 15).map(lambda number: f"%r{number}")
    lines: list[str] = []
    for number in range(count):
        lines.append(f"L{number}:")
        for _ in range(draw(st.integers(0, 4))):
            guard = draw(st.sampled_from(["", "", "@%p1 "]))
            lines.append(f"{guard}add.u32 {draw(reg)}, {draw(reg)}, {draw(reg)};")
        end = draw(st.sampled_from(["", f"bra L{draw(st.integers(0, count - 1))};", "ret;"]))
        lines.append((draw(st.sampled_from(["", "@%p1 "])) if end else "") + end)
    return kernel("\n".join(lines))


def by_paths(cfg: Cfg, name: str) -> list[bool]:
    """Whether a register is live at the start of each block: walk forwards until a read or a certain write."""
    found: list[bool] = []
    for start in range(len(cfg)):
        seen: set[int] = set()
        work = [start]
        is_live = False
        while work and not is_live:
            block = work.pop()
            if block in seen:
                continue
            seen.add(block)
            for instr in cfg.blocks[block].instrs:
                if name in [reg.text for reg in instr.uses()]:
                    is_live = True
                    break
                if name in [reg.text for reg in instr.defs()] and instr.guard is None:
                    break
            else:
                work.extend(cfg.succ[block])
        found.append(is_live)
    return found


def check(facts: Liveness) -> None:
    cfg = facts.cfg
    for name in [*(f"%r{number}" for number in range(16)), "%p1"]:
        expected = by_paths(cfg, name)
        reg = next((reg for reg in facts.regs if reg.text == name), None)
        for block in cfg.rpo:
            assert (reg is not None and facts.is_live_in(reg, block)) == expected[block], (name, block)
            out = any(expected[to] for to in cfg.succ[block])
            assert (reg is not None and facts.is_live_out(reg, block)) == out, (name, block)


@given(random_kernels())
def test_liveness_is_that_of_the_definition(code: Kernel) -> None:
    check(Liveness(build_cfg(code)))


@given(random_kernels())
def test_columns_make_no_difference(code: Kernel) -> None:
    cfg = build_cfg(code)
    whole = Liveness(cfg)
    with MonkeyPatch.context() as patch:
        patch.setattr(liveness, "COLUMN", 8)
        columns = Liveness(cfg)
        assert list(columns.live_in) == list(whole.live_in)
        assert columns.live_out[0:] == list(whole.live_out)


def many_columns(count: int) -> Kernel:
    """A chain of blocks. Each reads the register that the block before wrote. Two registers are live in all of them."""
    lines = ["mov.u32 %r1, 0;", "mov.u32 %r2, 1;", "mov.u32 %x0, 0;"]
    for number in range(1, count):
        lines += [f"@%p1 bra END;\nadd.u32 %x{number}, %x{number - 1}, %r1;"]
    text = HEAD + f".reg .b32 %x<{count}>;\n" + "\n".join(lines) + "\nEND:\nadd.u32 %r3, %r1, %r2;\nret;\n}\n"
    return parse(text).kernels[0]


def test_liveness_takes_near_linear_time() -> None:
    count = 5_000
    facts = Liveness(build_cfg(many_columns(count)))
    middle = facts.registers(facts.live_in[count // 2])
    assert {reg.text for reg in middle} == {"%r1", "%r2", "%p1", f"%x{count // 2 - 1}"}
    assert_near_linear(lambda count: build_cfg(many_columns(count)), Liveness, count)
