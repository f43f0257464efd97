"""Functions that return registers: ``ret`` reads the registers, so they are live there in every analysis."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptxmotion.analysis.manager import Facts
from ptxmotion.cli import main
from ptxmotion.ptx import Kernel, Module, Return, parse, print_module
from ptxmotion.transforms.pipeline import run_passes

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
ADD = HEADER + ".func (.reg .u32 o) f(.reg .u32 x) { add.u32 o, x, 1; ret; }\n"
FILES = Path(__file__).parents[1] / "ptx" / "adversarial"


def function(text: str) -> Kernel:
    return parse(HEADER + text).kernel("f")


def optimized(ptx: str, passes: str) -> Module:
    module = parse(ptx)
    run_passes(module, passes)
    return module


@pytest.mark.parametrize(
    "passes",
    [
        *("O1", "O2", "O3", "cse,dce", "lcm:min_cost=0", "scm:min_cost=0", "sscm:min_cost=0", "spre:min_cost=0"),
        *("srqp,dce", "esrqp,dce", "ssrqp,dce", "ssrqp_s,dce", "motion,dce", "copyprop,dce", "deadstores,dce"),
    ],
)
def test_the_result_is_computed(passes: str) -> None:
    assert "add.u32 o, x, 1;" in print_module(optimized(ADD, passes))


def test_a_return_reads_the_results() -> None:
    kernel = function(".func (.reg .u32 o, .reg .pred p) f(.reg .u32 x) { .reg .pred q; @q ret; ret.uni; }")
    guarded, last = list(kernel.instructions())
    assert [reg.text for reg in guarded.uses()] == ["q", "o", "p"]
    assert [reg.text for reg in last.uses()] == ["o", "p"]
    assert last.text == "ret.uni;"
    copied = [instr for instr in kernel.clone().instructions() if isinstance(instr, Return)]
    assert [instr.uses() for instr in copied] == [guarded.uses(), last.uses()]


@pytest.mark.parametrize(
    "body", ["mov.u32 o, x;", "@p ret; mov.u32 o, 1;", "L: mov.u32 o, x; @p bra L;", "mov.u32 o, x; @p ret;"]
)
def test_running_off_the_end_is_a_return(body: str) -> None:
    kernel = function(f".func (.reg .u32 o) f(.reg .u32 x) {{ .reg .pred p; {body} }}")
    assert isinstance(kernel.blocks[-1].terminator, Return)
    assert kernel.blocks[-1].terminator.guard is None


def test_no_return_is_added_where_none_is_reached() -> None:
    kernel = function(".func (.reg .u32 o) f(.reg .u32 x) { L: mov.u32 o, x; bra L; }")
    assert [instr.form.op.base for instr in kernel.instructions()] == ["mov", "bra"]


def test_results_in_memory_are_as_before() -> None:
    kernel = function(".func (.param .b32 o) f(.reg .u32 x) { st.param.b32 [o], x; ret; }")
    assert not any(isinstance(instr, Return) for instr in kernel.instructions())


def test_the_results_are_live_throughout() -> None:
    kernel = function(".func (.reg .u32 o) f(.reg .u32 x) { .reg .pred p; mov.u32 o, x; L: @p bra L; ret; }")
    live = Facts(kernel).liveness
    result = next(reg for instr in kernel.instructions() for reg in instr.defs())
    assert [live.is_live_out(result, block) for block in range(len(kernel.blocks))] == [
        block.terminator is None or block.terminator.form.op.base != "ret" for block in kernel.blocks
    ]


@pytest.mark.parametrize("name", ["register_results", "vector_registers"])
def test_every_verb_takes_them(name: str, tmp_path: Path) -> None:
    file = str(FILES / f"{name}.ptx")
    assert main(["analyze", file, "--no-config"]) == 0
    for level in ("-O1", "-O2", "-O3"):
        assert main(["opt", level, file, "-o", str(tmp_path / "out.ptx"), "--no-config", "--gate=static"]) == 0
        assert main(["verify", file, str(tmp_path / "out.ptx"), "--no-config"]) == 0
