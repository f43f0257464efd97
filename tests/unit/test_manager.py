"""Analyses are computed once, and are never older than their kernel."""

import importlib
import operator
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from operator import methodcaller

import pytest
from ptxmotion import analysis
from ptxmotion.analysis import Facts
from ptxmotion.analysis.fact_marks import for_any_promise, is_for_any_promise
from ptxmotion.analysis.manager import NotPreserved
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.analysis.profile import Profile
from ptxmotion.ptx import Block, Instr, Kernel, Reg, decode, parse, print_kernel
from ptxmotion.transforms.pipeline import KernelTransform

TEXT = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n.reg .pred %p<4>;\n"
    ".reg .b32 %r<9>;\nadd.u32 %r1, %r2, 1;\n@%p1 bra L;\nadd.u32 %r3, %r1, 1;\nL:\nret;\n}\n"
)


COPY = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {\n"
    ".reg .b32 %r<2>;\n.reg .f32 %f<2>;\n.reg .b64 %d<6>;\nld.param.u64 %d1, [x];\nld.param.u64 %d2, [y];\n"
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d3, %r1, 4;\nadd.u64 %d4, %d1, %d3;\nadd.u64 %d5, %d2, %d3;\n"
    "ld.global.f32 %f1, [%d4];\nst.global.f32 [%d5], %f1;\nret;\n}\n"
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


def add_an_addition(kernel: Kernel) -> None:
    block = kernel.blocks[1]
    kernel.set_instrs(block, [block.instrs[0].clone(), *block.instrs])


def has_additions(facts: Facts) -> bool:
    return count_additions(facts) > 0


def test_a_preserved_fact_survives_changes_of_code_and_edges() -> None:
    kernel, facts = fresh()
    calls: list[int] = []

    def counted(facts: Facts) -> bool:
        calls.append(facts.kernel.version)
        return has_additions(facts)

    with facts.preserve(counted, because="additions are only added"):
        assert not calls
        assert facts.get(counted)
        add_an_addition(kernel)
        assert facts.get(counted)
        kernel.insert_block(0, Block(None, []))
    first = calls[0]
    assert set(calls) == {first, kernel.version} and calls[0] != calls[-1], "computed once, and once to check it"
    assert facts.get(counted) and len(calls) == 2
    kernel.changed()
    assert facts.get(counted) and len(calls) == 3


def test_only_the_named_fact_is_preserved() -> None:
    kernel, facts = fresh()
    assert facts.get(count_additions) == 2
    with facts.preserve(has_additions, because="additions are only added"):
        add_an_addition(kernel)
        assert facts.get(count_additions) == 3


def test_a_fact_that_is_out_of_date_at_the_start_is_not_preserved() -> None:
    kernel, facts = fresh()
    assert facts.get(count_additions) == 2
    add_an_addition(kernel)
    with facts.preserve(count_additions, because="nothing changes"):
        assert facts.get(count_additions) == 3


def test_a_fact_that_was_not_preserved_is_an_error_in_the_tests() -> None:
    assert Facts.checks_preserved, "conftest.py sets it"
    kernel, facts = fresh()
    facts.get(count_additions)
    message = "'count_additions' of 'k' was preserved because it is constant; preserved: 2; recomputed: 3"
    with pytest.raises(NotPreserved, match=message), facts.preserve(count_additions, because="it is constant"):
        add_an_addition(kernel)


def test_agreement_is_decided_by_the_given_comparison() -> None:
    kernel, facts = fresh()
    facts.get(count_additions)
    with facts.preserve(count_additions, because="it is a lower bound", agrees=operator.le):
        add_an_addition(kernel)
    assert facts.get(count_additions) == 2
    bound = facts.preserve(count_additions, because="it is a lower bound", agrees=operator.le)
    with pytest.raises(NotPreserved), bound:
        kernel.set_instrs(kernel.blocks[1], [])


def test_contexts_of_one_fact_nest() -> None:
    kernel, facts = fresh()
    assert facts.get(has_additions)
    with facts.preserve(has_additions, because="additions are only added"):
        with facts.preserve(has_additions, because="nothing changes"):
            pass
        add_an_addition(kernel)
        assert has_additions in facts._preserved  # pyright: ignore[reportPrivateUsage]
    assert not facts._preserved  # pyright: ignore[reportPrivateUsage]


def test_an_error_inside_the_context_is_not_hidden_by_the_check() -> None:
    kernel, facts = fresh()
    facts.get(count_additions)
    with pytest.raises(ZeroDivisionError), facts.preserve(count_additions, because="it is constant"):
        add_an_addition(kernel)
        assert facts.get(count_additions) == 2
        raise ZeroDivisionError
    assert facts.get(count_additions) == 3, "dropped, since the change may be incomplete"


def test_importing_the_package_loads_no_analysis() -> None:
    code = "import sys, ptxmotion.analysis; print([m for m in sys.modules if m.startswith('ptxmotion.analysis.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "['ptxmotion.analysis.fact_marks', 'ptxmotion.analysis.manager']"


@for_any_promise
def additions_under_any_promise(facts: Facts) -> list[Instr]:
    return [instr for instr in facts.kernel.instructions() if instr.form.op.base == "add"]


def test_what_depends_on_no_promise_is_computed_once() -> None:
    _, facts = fresh()
    promise = Promise(everything=True)
    other = facts.under(promise)
    assert other.promise is promise and facts.promise is not promise
    for name in "cfg dominance post_dominance loops liveness pressure control_dependence ssa values divergence".split():
        assert getattr(other, name) is getattr(facts, name), name
    assert other.get(additions_under_any_promise) is facts.get(additions_under_any_promise)
    assert other.memory is not facts.memory and other.memory.promise is promise
    assert other.get(count_additions) == 2 and count_additions not in facts._of_code  # pyright: ignore[reportPrivateUsage]


class Silent(Promise):
    """A promise that must not be read."""

    def __getattribute__(self, name: str) -> object:
        assert name.startswith("__"), f"a fact for any promise has read {name}"
        return super().__getattribute__(name)


def marked_functions() -> dict[str, Callable[[Facts], object]]:
    """The marked functions, class methods and classes of all analyses, by name."""
    found: dict[str, Callable[[Facts], object]] = {}
    for each in pkgutil.walk_packages(analysis.__path__, f"{analysis.__name__}."):
        module = importlib.import_module(each.name)
        own = [item for item in vars(module).values() if getattr(item, "__module__", "") == each.name]
        methods = [getattr(item, name) for item in own if isinstance(item, type) for name in vars(item)]
        marked = [item for item in (*own, *methods) if is_for_any_promise(item)]
        found |= {f"{each.name}.{item.__qualname__}": item for item in marked}
    return found


def test_what_is_computed_once_for_all_promises_reads_none() -> None:
    found = marked_functions()
    assert {name.rpartition(".")[2] for name in found} >= {"_ssa", "_values", "_divergence", "AccessRanges", "of"}
    for name, compute in found.items():
        assert Facts(parse(COPY).kernels[0], promise=Silent()).get(compute) is not None, name


def test_nothing_is_shared_after_a_change() -> None:
    kernel, facts = fresh()
    other = facts.under(Promise(everything=True))
    assert len(other.get(additions_under_any_promise)) == 2
    add_an_addition(kernel)
    assert len(other.get(additions_under_any_promise)) == 3 and other.ssa is not facts.ssa
    again = facts.under(Promise(everything=True))
    assert again.ssa is facts.ssa


def test_a_profile_is_not_shared() -> None:
    """Weights of blocks follow from the graph and from the profile."""
    kernel, _ = fresh()
    profile = Profile("measured.json", {})
    transform = KernelTransform([], profile=profile, known={kernel.name: Facts(kernel)})
    found = transform._facts(parse(TEXT), kernel)  # pyright: ignore[reportPrivateUsage]
    assert found.profile is profile and found._shared is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "change",
    [
        methodcaller("changed"),
        methodcaller("cfg_changed"),
        methodcaller("new_reg", "b32"),
        methodcaller("new_label", "L"),
        methodcaller("insert_block", 0, Block(None, [])),
    ],
    ids=["instructions", "edges", "register", "label", "block"],
)
def test_a_copy_is_no_longer_as_its_original(change: Callable[[Kernel], object]) -> None:
    original, _ = fresh()
    copy = original.clone()
    assert copy.is_still(original)
    change(copy)
    assert not copy.is_still(original)


def test_a_register_that_no_instruction_uses_leaves_a_copy_as_it_was() -> None:
    original, _ = fresh()
    copy = original.clone()
    copy.new_reg("b32")
    copy.drop_unused_new_registers()
    assert copy.is_still(original) and print_kernel(copy) == print_kernel(original)
