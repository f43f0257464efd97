"""Analyses are computed once, and are never older than their kernel."""

import subprocess
import sys

from ptxmotion.analysis import Facts
from ptxmotion.ptx import Block, Instr, Kernel, Reg, decode, parse

TEXT = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n.reg .pred %p<4>;\n"
    ".reg .b32 %r<9>;\nadd.u32 %r1, %r2, 1;\n@%p1 bra L;\nadd.u32 %r3, %r1, 1;\nL:\nret;\n}\n"
)


def fresh() -> tuple[Kernel, Facts]:
    kernel = parse(TEXT).kernels[0]
    return kernel, Facts(kernel)


def test_every_fact_is_computed_once() -> None:
    _, facts = fresh()
    for name in "cfg dominance post_dominance loops liveness pressure control_dependence ssa values divergence".split():
        assert getattr(facts, name) is getattr(facts, name), name


def test_a_change_of_instructions_keeps_the_graph_only() -> None:
    kernel, facts = fresh()
    cfg, dominance, liveness = facts.cfg, facts.dominance, facts.liveness
    assert [reg.text for reg in liveness.registers(liveness.live_in[1])] == ["%r1"]
    add = kernel.blocks[1].instrs[0]
    kernel.replace_operands(add, (add.operands[0], add.operands[0], add.operands[2]))
    assert facts.cfg is cfg and facts.dominance is dominance
    assert [reg.text for reg in facts.liveness.registers(facts.liveness.live_in[1])] == ["%r3"]


def test_a_change_of_edges_drops_everything() -> None:
    kernel, facts = fresh()
    old = [facts.cfg, facts.dominance, facts.post_dominance, facts.loops, facts.control_dependence, facts.liveness]
    kernel.insert_block(1, Block(None, [Instr(decode("ret"), ())]))
    new = [facts.cfg, facts.dominance, facts.post_dominance, facts.loops, facts.control_dependence, facts.liveness]
    assert not any(a is b for a, b in zip(old, new, strict=True))
    assert len(facts.cfg) == 4


def count_additions(facts: Facts) -> int:
    return sum(instr.form.op.base == "add" for instr in facts.kernel.instructions())


def test_facts_of_ones_own() -> None:
    kernel, facts = fresh()
    assert facts.get(count_additions) == 2
    kernel.set_instrs(kernel.blocks[1], [])
    assert facts.get(count_additions) == 1


def test_a_fact_of_the_graph_of_ones_own() -> None:
    kernel, facts = fresh()
    assert facts.get(count_additions, graph_only=True) == 2
    reg = next(operand for operand in kernel.blocks[0].instrs[0].operands if isinstance(operand, Reg))
    kernel.set_instrs(kernel.blocks[1], [])
    assert facts.get(count_additions, graph_only=True) == 2, (reg, "kept until edges change")
    kernel.cfg_changed()
    assert facts.get(count_additions, graph_only=True) == 1


def test_importing_the_package_loads_no_analysis() -> None:
    code = "import sys, ptxmotion.analysis; print([m for m in sys.modules if m.startswith('ptxmotion.analysis.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "['ptxmotion.analysis.manager']"
