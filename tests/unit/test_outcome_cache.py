"""What the gate caches for each kernel from run to run, and when it ignores the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from motion import DIVISION_AGAIN
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.cli import main
from ptxmotion.cli.observers import Observers
from ptxmotion.driver import optimize_module
from ptxmotion.ptx import Module, PtxError, Sym, parse, print_kernel, print_module
from ptxmotion.ptx.parser import parse_kernel
from ptxmotion.transforms.gate import outcome_cache
from ptxmotion.transforms.gate.gate import Figures, Refused
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import KernelTransform, run_passes
from ptxmotion.transforms.remarks import Remarks

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .u32 table[8];\n"

ENTRY = """.visible .entry {name}(.param .u64 out)
{{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, table;
	mov.u32 %r1, %tid.x;
	mul.lo.s32 %r2, %r1, 3;
	mul.lo.s32 %r3, %r1, 3;
	mul.lo.s32 %r4, %r1, 5;
	mul.lo.s32 %r5, %r1, 5;
	st.global.u32 [%rd1], %r2;
	st.global.u32 [%rd1+4], %r3;
	st.global.u32 [%rd1+8], %r4;
	st.global.u32 [%rd2+12], %r5;
	ret;
}}
"""

FUNCTION = """.func (.param .b32 back) f(.param .b32 given)
{
	.reg .b32 %r<9>;
	ld.param.b32 %r1, [given];
	mul.lo.s32 %r2, %r1, 3;
	mul.lo.s32 %r3, %r1, 3;
	add.s32 %r4, %r2, %r3;
	st.param.b32 [back], %r4;
	ret;
}
"""

SAME = Figures(code="a", registers=10, spills=0, warps=64, weight=100)

Weights = dict[tuple[str, ...], float]

KEPT: Weights = {("3", "3", "5", "5"): 100, ("3", "5"): 90}
IN_PART: Weights = {("3", "3", "5", "5"): 100, ("3", "5"): 105, ("3", "5", "5"): 90, ("3", "3", "5"): 115}
GIVEN_BACK: Weights = {("3", "3", "5", "5"): 100, ("3", "5"): 105, ("3", "5", "5"): 120, ("3", "3", "5"): 115}
IDENTICAL: Weights = {("3", "3", "5", "5"): 100, ("3", "5"): 100}


class Judge:
    """A judge with a cache. Its figures are weights computed from the products that remain."""

    name = "scripted"

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.kept: dict[str, str] = {}
        self.asked = 0

    def figures(self, module: Module) -> dict[str, Figures]:
        self.asked += 1
        found: dict[str, Figures] = {}
        for kernel in module.entries:
            left = tuple(i.operands[2].text for i in kernel.instructions() if i.form.text == "mul.lo.s32")
            weight = self.weights.get(left, 100)
            found[kernel.name] = replace(SAME, code=str(weight), weight=weight)
        return found

    def recall(self, key: str) -> Any:
        return json.loads(self.kept.get(key, "null"))

    def remember(self, key: str, value: Any) -> None:
        self.kept[key] = json.dumps(value)


class Result:
    """The result of a run."""

    def __init__(
        self,
        judge: Judge,
        text: str,
        passes: str = "cse,dce",
        name: str = "a.ptx",
        remarks: Callable[[Module], Remarks] = Remarks,
        only: Callable[[str], bool] = lambda name: True,
        **options: Any,
    ) -> None:
        self.module = parse(text, name)
        self.remarks = remarks(self.module)
        transform = KernelTransform(passes_of(passes), **options)
        kernels = [kernel for kernel in self.module.kernels if only(kernel.name)]
        self.changed = bool(optimize_module(self.module, kernels, transform, judge, self.remarks))
        self.ran = bool(transform.timings)

    @property
    def all(self) -> object:
        """The values that must be equal in two runs."""
        places = [instr.pos for kernel in self.module.kernels for block in kernel.blocks for instr in block.instrs]
        remarks = self.remarks
        return print_module(self.module), remarks.items, remarks.counts, remarks.rewrites, places, self.changed


ONE = HEAD + ENTRY.format(name="k")


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [(KEPT, "kept"), (IN_PART, "kept"), (GIVEN_BACK, "gate-worse"), (IDENTICAL, "gate-identical")],
)
def test_a_second_run_says_the_same_and_runs_nothing(weights: Weights, verdict: str) -> None:
    judge = Judge(weights)
    first = Result(judge, ONE)
    asked = judge.asked
    second = Result(judge, ONE)
    assert first.ran and not second.ran
    assert judge.asked == asked
    assert second.all == first.all
    assert second.remarks.counts["k", "gate", verdict] == 1


def test_where_the_passes_find_nothing_they_do_not_run_again() -> None:
    judge = Judge({})
    text = HEAD + ".entry k()\n{\n\tret;\n}\n"
    assert Result(judge, text, "cse").ran
    second = Result(judge, text, "cse")
    assert not second.ran and not second.changed


def test_what_is_read_back_has_the_symbols_of_its_module_and_can_be_transformed_further() -> None:
    judge = Judge(KEPT)
    Result(judge, ONE)
    module = Result(judge, ONE).module
    symbols = [each for instr in module.kernel("k").instructions() for each in instr.operands if isinstance(each, Sym)]
    assert [symbol.declaration for symbol in symbols] == module.variables
    run_passes(module, "lcm,dce")


def test_a_kernel_that_has_moved_in_its_file_is_recalled_with_its_lines_moved() -> None:
    judge = Judge(KEPT)
    other = ENTRY.format(name="other")
    first = Result(judge, HEAD + ENTRY.format(name="k") + other)
    asked = judge.asked
    moved = Result(judge, HEAD + "\n// a comment\n" + ENTRY.format(name="k") + other, name="b.ptx")
    assert judge.asked == asked and not moved.ran
    assert [(r.file, r.line) for r in moved.remarks.items if r.line] == [
        ("b.ptx", r.line + 2) for r in first.remarks.items if r.line
    ]
    fresh = Result(Judge(KEPT), HEAD + "\n// a comment\n" + ENTRY.format(name="k") + other, name="b.ptx")
    assert moved.all == fresh.all


def test_equal_entries_are_recalled_separately() -> None:
    judge = Judge(KEPT)
    text = HEAD + ENTRY.format(name="k_1") + ENTRY.format(name="a_longer_name")
    first = Result(judge, text)
    second = Result(judge, text)
    assert first.ran and not second.ran
    assert second.all == first.all
    assert second.remarks.counts["a_longer_name", "gate", "kept"] == 1
    assert len([key for key in judge.kept if key.startswith("outcome")]) == 2


def test_only_the_kernel_that_was_edited_is_judged_again() -> None:
    judge = Judge(KEPT)
    Result(judge, ONE + ENTRY.format(name="other"))
    edited = ONE + ENTRY.format(name="other").replace("%tid.x", "%tid.y")
    found = Result(judge, edited)
    assert found.ran
    assert found.all == Result(Judge(KEPT), edited).all
    assert len([key for key in judge.kept if key.startswith("outcome")]) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"passes": "cse,dce,emptyblocks"},
        {"passes": "lcm:rounds=2,dce"},
        {"promise": Promise.parse("restrict:k")},
        {"text": ONE.replace("table[8]", "table[9]")},
        {"text": ONE.replace("sm_80", "sm_90")},
        {"text": ONE.replace("ret;", "// here\n\tret;")},
        {"remarks": lambda module: Remarks(module, explains=True)},  # pyright: ignore
        {"remarks": lambda module: Remarks(module, 1)},  # pyright: ignore
        {"verify_each": True},
    ],
)
def test_what_an_outcome_depends_on_is_in_its_key(changed: dict[str, Any]) -> None:
    judge = Judge(KEPT)
    Result(judge, ONE)
    options: dict[str, Any] = {"text": ONE, **changed}
    assert Result(judge, **options).ran


def test_other_code_of_the_optimizer_decides_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(KEPT)
    Result(judge, ONE)
    monkeypatch.setattr(outcome_cache, "_deciders", lambda: "another")
    assert Result(judge, ONE).ran


def test_our_code_is_known_by_its_bytes() -> None:
    assert len(outcome_cache._deciders()) == 64  # pyright: ignore[reportPrivateUsage]


def test_code_that_cannot_be_read_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(outcome_cache, "_deciders", missing)
    judge = Judge(KEPT)
    assert Result(judge, ONE).all == Result(judge, ONE).all
    assert judge.kept == {}


def test_a_dump_shows_the_passes_at_work(tmp_path: Path) -> None:
    judge = Judge(KEPT)
    Result(judge, ONE)
    assert Result(judge, ONE, observer=Observers(False, str(tmp_path / "dump"))).ran
    assert list((tmp_path / "dump").iterdir())


@pytest.mark.parametrize("weights", [KEPT, IN_PART, GIVEN_BACK, IDENTICAL])
def test_where_functions_change_a_module_is_recalled_as_a_whole(weights: Weights) -> None:
    judge = Judge(weights)
    text = HEAD + FUNCTION + ENTRY.format(name="k") + ENTRY.format(name="other")
    first = Result(judge, text)
    asked = judge.asked
    second = Result(judge, text)
    assert not second.ran and judge.asked == asked
    assert second.all == first.all
    edited = text.replace("tid.x", "tid.y", 1)
    found = Result(judge, edited)
    assert found.ran and found.all == Result(Judge(weights), edited).all
    assert Result(judge, text, only="k".__eq__).ran


def test_a_module_of_which_a_part_is_known_is_done_as_a_whole() -> None:
    judge = Judge(KEPT)
    text = HEAD + FUNCTION + ENTRY.format(name="k") + ENTRY.format(name="other")
    first = Result(judge, text)
    del judge.kept[[key for key in judge.kept if key.startswith("outcome")][-1]]
    second = Result(judge, text)
    assert second.ran and second.all == first.all


def test_a_judge_that_refuses_keeps_nothing() -> None:
    class Refusing(Judge):
        def figures(self, module: Module) -> dict[str, Figures]:
            raise Refused("no figures today")

    judge = Refusing(KEPT)
    Result(judge, ONE)
    assert judge.kept == {}


def test_a_search_that_was_cut_short_is_made_again() -> None:
    class Tiring(Judge):
        def figures(self, module: Module) -> dict[str, Figures]:
            if self.asked == 2:
                raise Refused("no figures any more")
            return super().figures(module)

    judge = Tiring(IN_PART)
    assert not Result(judge, ONE).changed
    assert judge.kept == {}


FOREIGN: dict[str, Callable[[dict[str, Any]], object]] = {
    "another kernel": lambda kept: kept.update(text=kept["text"].replace(" k(", " other(")),
    "another parameter": lambda kept: kept.update(text=kept["text"].replace(".param .u64 out", ".param .u32 out")),
    "a directive": lambda kept: kept.update(text=kept["text"].replace("\n{", "\n.maxntid 1, 1, 1\n{", 1)),
    "a type error": lambda kept: kept.update(text=kept["text"].replace("mov.u32 %r1", "mov.u32 %rd1")),
    "no text": lambda kept: kept.update(text=3),
    "no places": lambda kept: kept.update(places=None),
    "other places": lambda kept: kept.update(places=["x"] * len(kept["places"])),
    "a bare number": lambda kept: kept.update(bare=[10_000]),
    "no remarks": lambda kept: kept.update(remarks=[[1]]),
    "no counts": lambda kept: kept.update(counts=7),
    "nothing": lambda kept: kept.clear(),
}


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_an_outcome_that_does_not_fit_its_kernel_is_not_taken(change: Callable[[dict[str, Any]], object]) -> None:
    """Another program or a damaged disk may have changed the entry.

    Its text becomes the output, so it must be checked.
    """
    judge = Judge(KEPT)
    first = Result(judge, ONE)
    (key,) = [key for key in judge.kept if key.startswith("outcome")]
    good = judge.kept[key]
    kept = json.loads(good)
    change(kept)
    assert json.dumps(kept) != good
    judge.kept[key] = json.dumps(kept)
    again = Result(judge, ONE)
    assert again.ran and again.all == first.all
    assert judge.kept[key] == good  # the entry was replaced


@pytest.mark.parametrize("text", ["", "ret;", ".version 8.0", ".entry k()", ".entry k() { foo %r1; }", "{", "\0"])
def test_a_text_that_is_no_kernel_is_not_taken(text: str) -> None:
    judge = Judge(KEPT)
    first = Result(judge, ONE)
    for key, value in judge.kept.items():
        kept = json.loads(value)
        judge.kept[key] = json.dumps({**kept, "text": text}) if isinstance(kept, dict) else value
    second = Result(judge, ONE)
    assert second.ran
    assert second.all == first.all


def test_a_kernel_is_read_in_the_place_of_another() -> None:
    module = parse(ONE)
    (kernel,) = module.kernels
    assert print_kernel(parse_kernel(print_kernel(kernel), module, kernel)) == print_kernel(kernel)
    with pytest.raises(PtxError, match="not declared"):
        parse_kernel(print_kernel(kernel), replace(module, items=[kernel, *module.variables]), kernel)
    for text in (".global .u32 x;", print_kernel(kernel) * 2, ".entry k();"):
        with pytest.raises(PtxError):
            parse_kernel(text, module, kernel)


def test_scopes_and_what_is_declared_in_them_come_out_the_same() -> None:
    scoped = ONE.replace(
        "\tst.global.u32 [%rd1], %r2;", "\t{\n\t.reg .b32 t;\n\t.shared .u32 s;\n\tst.shared.u32 [s], %r2;\n\t}"
    )
    for weights in (KEPT, IDENTICAL, IN_PART, GIVEN_BACK):
        for text in (scoped, ONE + scoped.partition("table[8];")[2].replace(" k(", " other(")):
            judge = Judge(weights)
            assert Result(judge, text).all == Result(judge, text).all


# --- by the command line, with ptxas ------------------------------------------------------------------------------


def opt(path: Path, *arguments: object) -> int:
    return main(["opt", str(path), *map(str, arguments)])


def without_seconds(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    del document["seconds"]
    return document


def test_the_command_line_says_the_same_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    source, stats = tmp_path / "in.ptx", tmp_path / "stats.json"
    source.write_text(DIVISION_AGAIN)
    results: list[object] = []
    for _ in range(2):
        assert opt(source, "--remarks", f"--stats-json={stats}", "--remarks-output", tmp_path / "r.yaml") == 0
        results.append((capfd.readouterr(), without_seconds(stats), (tmp_path / "r.yaml").read_text()))
        monkeypatch.setattr("ptxmotion.toolchain.ptxas_judge.assemble_whole_or_relocatable", None)
    assert results[0] == results[1]


def test_a_diff_of_what_each_pass_changed_is_the_same_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "in.ptx"
    source.write_text(DIVISION_AGAIN)
    assert opt(source) == 0
    plain = capfd.readouterr().out
    assert opt(source, "--print-changed=diff") == 0
    shown = capfd.readouterr()
    assert shown.out == plain
    assert "after sscm" in shown.err
