"""Entries that are equal except for names. Each must become what the passes would have made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.driver import optimize_module
from ptxmotion.ptx import Kernel, Module, parse, print_kernel, print_module
from ptxmotion.ptx.correspondence import Correspondence
from ptxmotion.ptx.verify import verify
from ptxmotion.transforms.equal_kernels import EqualKernels
from ptxmotion.transforms.gate.gate import Figures
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import KernelTransform, run_passes
from ptxmotion.transforms.remarks import Remarks

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .u32 table[8];\n"

#: An entry with names in every place where a kernel can have them.
ENTRY = """.visible .entry {name}(.param .u64 {name}_param_0)
{{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	.shared .align 4 .b8 {name}_buffer[64];
	ld.param.u64 %rd1, [{name}_param_0];
	mov.u64 %rd2, {name}_buffer;
	mov.u64 %rd3, table;
	mov.u32 %r1, %tid.x;
	st.shared.u32 [{name}_buffer+4], %r1;
	setp.eq.s32 %p1, %r1, 0;
	@%p1 bra $L_{name}_end;
	mul.lo.s32 %r2, %r1, {factor};
	st.global.u32 [%rd1], %r2;
$L_{name}_end:
	mul.lo.s32 %r3, %r1, {factor};
	ld.global.u32 %r4, [%rd3];
	st.global.u32 [%rd1+4], %r3;
	ld.shared.u32 %r5, [{name}_buffer+4];
	st.global.u32 [%rd1+8], %r5;
	ret;
}}
"""


def entry(name: str, factor: int = 7) -> str:
    return ENTRY.format(name=name, factor=factor)


class Judge:
    """A judge for which fewer instructions are better."""

    name = "counting"

    def __init__(self) -> None:
        self.judged: list[str] = []

    def figures(self, module: Module) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        for kernel in module.entries:
            self.judged.append(kernel.name)
            weight = float(sum(1 for _ in kernel.instructions()))
            found[kernel.name] = Figures(print_kernel(kernel), 10, 0, 64, weight)
        return found


class Result:
    """The result of a run over a module. ``ran`` has the entries that the passes ran over."""

    def __init__(self, module: Module, *, passes: str = "O3", judge: Judge | None = None, **options: Any) -> None:
        self.module = module
        self.remarks = Remarks(module)
        self.ran: list[str] = []
        ran = self.ran

        class Noted(KernelTransform):
            def __call__(self, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
                ran.append(kernel.name)
                return super().__call__(module, kernel, remarks)

        transform = Noted(passes_of(passes), **options)
        self.changed = bool(optimize_module(module, module.kernels, transform, judge, self.remarks))

    @property
    def all(self) -> object:
        """Everything that must be the same with and without equal entries."""
        places = [instr.pos for kernel in self.module.kernels for block in kernel.blocks for instr in block.instrs]
        remarks = self.remarks
        return print_module(self.module), remarks.items, remarks.counts, remarks.rewrites, places, self.changed


def without_reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EqualKernels, "find", lambda *_: None)  # pyright: ignore


@pytest.mark.parametrize("judge", [lambda: None, Judge])
def test_passes_run_over_the_first_of_equal_entries(
    judge: Callable[[], Judge | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD + entry("k_1") + entry("other", 9) + entry("a_longer_name") + entry("k_2")
    found = Result(parse(text, "a.ptx"), judge=judge())
    assert found.ran == ["k_1", "other"]
    assert found.changed and any(remark.line for remark in found.remarks.items)
    without_reuse(monkeypatch)
    expected = Result(parse(text, "a.ptx"), judge=judge())
    assert expected.ran == ["k_1", "other", "a_longer_name", "k_2"]
    assert found.all == expected.all


def test_the_first_of_equal_entries_is_judged() -> None:
    judge = Judge()
    Result(parse(HEAD + entry("k_1") + entry("k_2")), judge=judge)
    assert set(judge.judged) == {"k_1"}


def test_a_copied_outcome_can_be_transformed_further(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(HEAD + entry("k_1") + entry("k_2"), "a.ptx")
    Result(module, passes="cse")
    verify(module)
    again = Result(module, passes="scm,dce")
    without_reuse(monkeypatch)
    expected = parse(HEAD + entry("k_1") + entry("k_2"), "a.ptx")
    Result(expected, passes="cse")
    assert again.all == Result(expected, passes="scm,dce").all


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%r1, 0;", "%r1, 1;"),
        ("%r5, [k_2_buffer+4]", "%r5, [k_2_buffer+8]"),
        ("mov.u64 %rd3, table", "mov.u64 %rd3, chairs"),
        ("@%p1 bra", "@!%p1 bra"),
        ("st.global.u32 [%rd1+4], %r3", "st.global.u32 [%rd1+4], %r2"),
        (".shared .align 4 .b8 k_2_buffer", ".shared .align 8 .b8 k_2_buffer"),
        (".param .u64 k_2", ".param .u64 .ptr .global .align 4 k_2"),
        ("[%rd1+8], %r5;", "[%rd1+8], %r5;\n\tbar.sync 0;"),
        ("k_2_param_0)\n", "k_2_param_0)\n.maxntid 32, 1, 1\n"),
        (".reg .b32 %r<9>", ".reg .b32 %r<8>"),
        ("%r3, %r1, 7", "%r3, %r1, %r1"),
        ("mov.u32 %r1, %tid.x", "mov.u32 %r1, %tid.y"),
    ],
)
def test_kernels_that_differ_in_more_than_names_are_not_equal(old: str, new: str) -> None:
    head = HEAD + ".global .align 4 .u32 chairs[8];\n"
    other = entry("k_2").replace(old, new, 1)
    assert other != entry("k_2")
    module = parse(head + entry("k_1") + other)
    verify(module)
    assert Correspondence.of(*module.kernels) is None
    assert Result(module).ran == ["k_1", "k_2"]


def test_labels_that_are_exchanged_are_no_names_alone() -> None:
    body = "{{ .reg .pred %p; @%p bra {}; $L_a: exit; $L_b: exit; }}\n"
    module = parse(HEAD + ".entry k()\n" + body.format("$L_a") + ".entry l()\n" + body.format("$L_b"))
    assert Correspondence.of(*module.kernels) is None


def test_a_label_does_not_make_functions_of_the_module_alike() -> None:
    functions = ".func f_1() { ret; }\n.func f_2() { membar.gl; ret; }\n"
    body = "{{ call {0}; bra.uni {0}; {0}: exit; }}\n"
    module = parse(HEAD + functions + ".entry k()\n" + body.format("f_1") + ".entry l()\n" + body.format("f_2"))
    assert Correspondence.of(*module.entries) is None


def test_other_lines_in_the_source_are_no_names() -> None:
    head = HEAD + '.file 1 "a.cu"\n'
    located = entry("k_2").replace("\tmul", "\t.loc 1 3 4\n\tmul")
    assert Correspondence.of(*parse(head + located + located.replace("k_2", "k_1")).kernels) is not None
    other = located.replace("k_2", "k_1").replace("1 3 4", "1 3 5")
    assert Correspondence.of(*parse(head + located + other).kernels) is None


@pytest.mark.parametrize(
    "options",
    [{"promise": Promise.parse("restrict:k_1")}, {"verify_each": True}],
)
def test_each_equal_entry_is_transformed_itself_if_the_options_require_it(options: dict[str, Any]) -> None:
    assert Result(parse(HEAD + entry("k_1") + entry("k_2")), **options).ran == ["k_1", "k_2"]


def test_a_promise_about_all_kernels_does_not_prevent_reuse() -> None:
    assert Result(parse(HEAD + entry("k_1") + entry("k_2")), promise=Promise.parse("restrict")).ran == ["k_1"]


def test_a_limit_counts_the_rewrites_of_equal_entries() -> None:
    module = parse(HEAD + entry("k_1") + entry("k_2"))
    remarks = Remarks(module, 1)
    run_passes(module, "lcm:min_cost=0", remarks)
    assert remarks.rewrites == 1


def test_an_entry_with_labels_that_passes_made_is_transformed_itself() -> None:
    """Labels that passes make get numbers after the existing ones, so the entry is not equal to one without them."""
    equal = [entry(name).replace("$L_", "$edge_") for name in ("k_1", "k_2")]
    assert Result(parse(HEAD + "".join(equal))).ran == ["k_1", "k_2"]
