"""The machine instructions of each line of PTX, by the line table of a cubin, and the contraction of sums by them."""

import re
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import pytest
from motion import DIVISION_AGAIN
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.contraction import Contraction
from ptxmotion.cost import Figures
from ptxmotion.driver import Policy, optimize
from ptxmotion.judges import Assembled
from ptxmotion.ptx import Instr, Kernel, Module, parse, print_module
from ptxmotion.toolchain.cubin import CubinError, read_image
from ptxmotion.toolchain.float_lines import float_lines
from ptxmotion.toolchain.ptxas_judge import PTXAS, PtxasJudge
from ptxmotion.toolchain.tools import ToolMissing, assemble, disassemble, find_tool
from ptxmotion.transforms.contraction_audit import keep_contraction
from ptxmotion.transforms.gate.judge import Refused
from ptxmotion.transforms.gate.search import module_of
from ptxmotion.transforms.machine_contraction import can_compare, is_same
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"

#: The product is used in another block, so that the PTX does not show whether it is contracted. The two divisions are
#: equal. With the remainder, the work takes longer than the latencies of the loads, so that fewer divisions are a gain.
OPEN = """.visible .entry k(.param .u64 A, .param .u64 O, .param .u32 N)
{
.reg .f32 %a, %b, %p, %s;
.reg .b64 %x, %o;
.reg .b32 %n, %i, %j, %d;
.reg .pred %k, %l;
ld.param.u64 %x, [A];
ld.param.u64 %o, [O];
ld.param.u32 %n, [N];
ld.volatile.global.f32 %a, [%x];
ld.volatile.global.f32 %b, [%x+4];
mul.f32 %p, %a, %b;
setp.gt.u32 %k, %n, 7;
@%k bra E;
bar.sync 0;
add.f32 %s, %p, 0f3F802000;
st.global.f32 [%o], %s;
E:
div.s32 %i, %n, 7;
st.global.u32 [%o+8], %i;
div.s32 %j, %n, 7;
st.global.u32 [%o+12], %j;
rem.s32 %d, %n, 13;
st.global.u32 [%o+16], %d;
ret;
}
"""

#: A division, for which ptxas calls an internal function; sums of f64 and f16; and a loop that ptxas unrolls.
MORE = """.visible .entry more(.param .u64 A)
{
.reg .f32 %a, %b, %c;
.reg .f64 %d, %e;
.reg .b16 %h, %g;
.reg .b64 %x;
.reg .b32 %i;
.reg .pred %k;
ld.param.u64 %x, [A];
ld.global.f32 %a, [%x];
ld.global.f64 %d, [%x+8];
ld.global.b16 %h, [%x+16];
mul.f64 %e, %d, %d; add.f64 %e, %e, %d;
mul.f16 %g, %h, %h;
add.f16 %g, %g, %h;
mov.f32 %b, %a;
mov.u32 %i, 0;
L: mul.f32 %c, %b, %a;
add.f32 %b, %c, %a;
add.u32 %i, %i, 1;
setp.lt.u32 %k, %i, 12;
@%k bra L;
div.rn.f32 %b, %b, %a;
st.global.f32 [%x], %b;
st.global.f64 [%x+8], %e;
st.global.b16 [%x+16], %g;
ret;
}
"""


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("ptxas", "nvdisasm"):
        try:
            find_tool(tool)
        except ToolMissing as missing:
            pytest.skip(str(missing))


def judge() -> Assembled:
    return Assembled(PtxasJudge())


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_lines_agree_with_nvdisasm(arch: str) -> None:
    cubin = assemble(HEAD + OPEN + MORE, arch, flags=("-lineinfo",)).cubin
    expected: dict[str, dict[int, set[str]]] = {}
    kernel, line, constants = "", 0, 0
    for text in disassemble(cubin, flags=("-gp", "-c")).splitlines():
        if match := re.match(r"\s*\.section\s+\.text\.([^,\s]+)", text):
            kernel = match[1]
            expected[kernel] = defaultdict(set)
        elif match := re.search(r'nv_debug_ptx_txt", line (\d+)', text):
            line = int(match[1])
        elif re.search(r"\bHFMA2\S* \w+, -?RZ,", text):
            constants += 1
        elif match := re.search(r"\bU?[FDH](FMA|ADD|MUL)2?\b", text):
            expected[kernel][line].add(match[1].lower())
    assert float_lines(cubin) == {
        name: {line: frozenset(kinds) for line, kinds in lines.items()} for name, lines in expected.items()
    }
    assert expected["k"] and expected["more"]
    assert constants or arch == "sm_75"  # for these targets ptxas does not use HFMA2 to make constants


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_line_tables_change_no_code(arch: str) -> None:
    plain, with_lines = (read_image(assemble(HEAD + OPEN + MORE, arch, flags=flags).cubin)
                         for flags in ((), ("-lineinfo",)))  # fmt: skip
    for name in ("k", "more"):
        assert plain.data(f".text.{name}") == with_lines.data(f".text.{name}") != b""


class Separate(Assembled):
    """Assembles all kernels for their figures, as if nothing had been assembled before."""

    def _figures_alone(self, module: Module) -> dict[str, Figures]:
        return {}


@pytest.mark.parametrize(
    ("others", "numbers"),
    [
        # Before and after: of each of three kernels for the comparison.
        ("", [6, 8, 0]),
        # And for the figures, of what is left, before and after together. `Separate` assembles the others for each.
        (f".visible{DIVISION_AGAIN.partition('.visible')[2]}", [7, 9, 0]),
    ],
)
def test_code_that_was_compared_gives_the_figures_too(tmp_path: Path, others: str, numbers: list[int]) -> None:
    """The result and the figures are the same, with less work for ptxas."""
    # Not equal, because equal kernels are transformed once.
    open_kernels = [OPEN.replace(".entry k(", f".entry k{n}(").replace("%n, 7;", f"%n, {n + 7};") for n in range(3)]
    source = HEAD + "".join(open_kernels) + MORE + others
    results: list[tuple[str, list[str]]] = []
    runs: list[int] = []
    for kind, folder in ((Assembled, "a"), (Separate, "b"), (Assembled, "a")):
        judge = kind(PtxasJudge(folder=tmp_path / folder))
        result = optimize(source, "O2", Policy(judge=judge))
        results.append((result.text, [remark.text for remark in result.remarks]))
        runs.append(judge.times.numbers.get(PTXAS, 0))
    assert results[0] == results[1] == results[2]
    assert runs == numbers
    judge, whole = Assembled(PtxasJudge(folder=tmp_path / "c")), PtxasJudge(folder=tmp_path / "d")
    module = parse(source)
    for kernel in module.entries:
        judge.float_code(module_of(module, [kernel]))
    started = judge.times.numbers[PTXAS]
    # The code of a kernel does not depend on the other kernels of its module.
    assert judge.figures(module) == whole.figures(print_module(module))
    assert judge.times.numbers[PTXAS] == started
    # So is a module that declares a function, because its entries may have to be assembled as relocatable code.
    declared = parse(source.replace(".visible .entry k0", ".extern .func other();\n" + ".visible .entry k0", 1))
    for kernel in declared.entries:
        judge.float_code(module_of(declared, [kernel]))
    started = judge.times.numbers[PTXAS]
    assert judge.figures(declared).keys() == judge.figures(module).keys()
    assert judge.times.numbers[PTXAS] == started + 1
    # A module with another text of the kernel is assembled.
    assert "more" in judge.figures(parse(source.replace("0f3F802000", "0f3F803000")))
    assert judge.times.numbers[PTXAS] == started + 2


def test_code_that_was_compared_gives_the_figures_without_a_cache_on_disk(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    judge, whole = PtxasJudge(folder=file), PtxasJudge(folder=tmp_path / "cache")
    judge.float_lines(HEAD + OPEN)
    assert judge.figures(HEAD + OPEN) == judge.figures(HEAD + OPEN) == whole.figures(HEAD + OPEN)
    assert judge.times.numbers[PTXAS] == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        # A register of a nested scope, whose name is taken at the top.
        ("{\n.reg .b32 %n, %a;\nmov.u32 %n, %tid.x;\nst.global.u32 [%o+4], %n;\n}\n", ""),
        # A variable.
        ("{\n.local .b32 N;\n.reg .b64 %x;\nmov.u64 %x, N;\nst.global.u64 [%o+24], %x;\n", "}\n"),
    ],
)
def test_ptxas_runs_once_for_each_version_of_a_kernel_that_is_compared(tmp_path: Path, before: str, after: str) -> None:
    """The gate assembles the kernel as it was given, also if it has nested scopes. So does the comparison."""
    source = HEAD + OPEN.replace("mul.f32", before + "mul.f32").replace("E:\n", after + "E:\n")
    judge = Assembled(PtxasJudge(folder=tmp_path))
    result = optimize(source, "O2", Policy(judge=judge))
    assert result.log.counts["k", "contraction", "compared"] == 1
    assert judge.times.numbers[PTXAS] == 2


def test_machine_code_is_not_compared_where_only_clean_up_was_done(tmp_path: Path) -> None:
    """The gate reverts such a kernel anyway. Where ptxas does not optimize, the gate judges it."""
    copy = OPEN.replace("mul.f32 %p, %a, %b;", "mov.f32 %s, %a;\nmul.f32 %p, %s, %b;")
    for options, runs in (((), 0), (("-O1",), 2)):
        compares = Assembled(PtxasJudge(folder=tmp_path, options=options))
        optimize(HEAD + copy, "copyprop,dce", Policy(judge=compares, ptxas_options=options))
        assert compares.times.numbers.get(PTXAS, 0) == runs


def test_a_cubin_without_lines_is_refused() -> None:
    with pytest.raises(CubinError, match=r"nv_debug_line_sass"):
        float_lines(assemble(HEAD + OPEN).cubin)


def test_what_became_of_each_instruction() -> None:
    module = parse(HEAD + MORE.replace("more", "k"))
    found = judge().float_code(module)["k"]
    kinds = {instr.form.text: each for instr, each in zip(module.kernels[0].instructions(), found, strict=True) if each}
    for name in ("f64", "f32", "f16"):
        assert kinds[f"add.{name}"] == {"fma"}
        assert f"mul.{name}" not in kinds


def test_an_open_product_no_longer_stops_the_passes() -> None:
    text = HEAD + OPEN
    for reader, divisions in ((None, 2), (judge(), 1)):
        module = parse(text)
        remarks = Remarks(module)
        run_passes(module, "O3", remarks, float_code=reader)
        assert print_module(module).count("div.s32") == divisions
        assert any(remark.reason == "contraction" for remark in remarks.items) == (reader is None)


class OtherCode:
    """A judge that reports, for the last version of the kernel, an FMA instead of its sum."""

    def __init__(self) -> None:
        self.calls = 0

    def float_code(self, module: object) -> dict[str, list[frozenset[str]]]:
        self.calls += 1
        kernel = parse(print_module(module)).kernels[0]  # type: ignore[arg-type]
        of = {"mul": frozenset(["mul"]), "add": frozenset(["add"])}
        if self.calls == 2:
            of = {"mul": frozenset[str](), "add": frozenset(["fma"])}
        return {"k": [of.get(instr.form.op.base, frozenset[str]()) for instr in kernel.instructions()]}


def test_other_machine_code_reverts_the_kernel() -> None:
    module = parse(HEAD + OPEN)
    remarks = Remarks(module)
    reader = OtherCode()
    assert not run_passes(module, "O3", remarks, float_code=reader)
    assert reader.calls == 2
    assert print_module(module).count("div.s32") == 2
    assert [remark.name for remark in remarks.items if remark.reason == "contraction"] == ["Reverted"]


class StoreOfProduct:
    """A pass that stores the product in its own block. According to the PTX, the product is then rounded."""

    name: ClassVar[str] = "storeofproduct"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        [block] = [block for block in kernel.blocks if any(instr.form.text == "mul.f32" for instr in block.instrs)]
        store = next(instr for instr in kernel.instructions() if instr.form.text == "st.global.f32")
        [at] = [at for at, instr in enumerate(block.instrs) if instr.form.text == "mul.f32"]
        product = block.instrs[at].operands[0]
        stored = Instr(store.form, (store.operands[0], product))
        kernel.set_instrs(block, [*block.instrs[: at + 1], stored, *block.instrs[at + 1 :]])
        return True


def test_machine_code_is_compared_for_what_was_open_before_the_passes() -> None:
    module = parse(HEAD + OPEN)
    remarks = Remarks(module)
    assert not run_passes(module, [StoreOfProduct()], remarks, float_code=OtherCode())
    assert [remark.name for remark in remarks.items if remark.reason == "contraction"] == ["Reverted"]


def test_a_kernel_whose_machine_code_cannot_be_read_is_reverted_and_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Assembled.float_code

    def refuse(self: Assembled, module: Module) -> dict[str, list[frozenset[str]]]:
        raise Refused("it took too long")

    results: list[bool] = []
    for reader in (refuse, original):
        monkeypatch.setattr(Assembled, "float_code", reader)
        result = optimize(HEAD + OPEN, "O3", Policy(judge=Assembled(PtxasJudge(folder=tmp_path))))
        results.append(result.changed == ("k",))
    assert results == [False, True]


def test_kernels_with_calls_are_not_compared() -> None:
    text = HEAD + ".func f() { ret; }\n.entry k() { call f; ret; }\n.entry l() { ret; }\n"
    assert [can_compare(kernel) for kernel in parse(text).kernels] == [False, False, True]


ADD, FMA, MUL, BOTH, NONE = ({"add"}, {"fma"}, {"mul"}, {"add", "fma"}, set[str]())


@pytest.mark.parametrize(
    ("product", "total", "new_product", "new_total", "same"),
    [
        (MUL, ADD, MUL, ADD, True),
        (NONE, FMA, NONE, FMA, True),
        (MUL, ADD, NONE, FMA, False),
        (NONE, FMA, MUL, ADD, False),
        (MUL, BOTH, MUL, BOTH, False),  # some copies are contracted, and it is not known which
        (NONE, NONE, NONE, NONE, False),  # ptxas merged the sum with another one
        (MUL, FMA, MUL, FMA, False),  # an FMA, but it is unknown of which product
    ],
)
def test_which_code_is_the_same(
    product: set[str], total: set[str], new_product: set[str], new_total: set[str], same: bool
) -> None:
    module = parse(HEAD + OPEN)
    before = Contraction.of(Facts(module.kernels[0], module))
    by_name = {instr.form.text: instr for instr in before.fixed}

    def code(*kinds: set[str]) -> dict[Instr, frozenset[str]]:
        return {by_name[name]: frozenset(each) for name, each in zip(("mul.f32", "add.f32"), kinds, strict=True)}

    assert is_same(before, set(before.fixed), code(product, total), code(new_product, new_total)) == same


def test_a_new_sum_of_an_open_product_is_no_case_for_comparison() -> None:
    module = parse(HEAD + OPEN)
    kernel = module.kernels[0]
    facts = Facts(kernel, module)
    before = facts.get(Contraction.of)
    [block] = [block for block in kernel.blocks if any(instr.form.text == "add.f32" for instr in block.instrs)]
    kernel.set_instrs(block, [copy for instr in block.instrs for copy in (instr, instr.clone())])
    assert keep_contraction(kernel, facts, before, is_compared=True) == -1
