"""The gate limits the registers of a changed kernel whose largest block would no longer fit on a multiprocessor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.cost import Figures, is_better
from ptxmotion.driver import Policy, optimize_in_place
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.toolchain.occupancy import occupancy
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from scripted_judges import SAME, TEXT, Scripted, gated, products


def test_a_block_that_was_launched_must_still_fit() -> None:
    """However much is gained, and although fewer warps may fit: the driver refuses blocks with too many registers."""
    before = replace(SAME, cycles=1e6, registers=64, warps=64.0)
    faster = replace(before, code="b", cycles=5e5, registers=72, warps=56.0)
    assert is_better(before, faster)
    assert not is_better(before, replace(faster, threads=512))


def many_registers(live: int, directive: str) -> str:
    """A kernel with so many values that are needed at the same time."""
    loads = [f"\tld.volatile.global.u32 %r{number}, [%rd1+{4 * number}];" for number in range(live)]
    stores = [f"\tst.volatile.global.u32 [%rd1+{4 * number}], %r{number};" for number in range(live)]
    head = [".version 8.0", ".target sm_90", ".address_size 64", ".visible .entry k(.param .u64 out)", directive, "{"]
    body = [f"\t.reg .b32 %r<{live}>;", "\t.reg .b64 %rd<2>;", "\tld.param.u64 %rd1, [out];", *loads, *stores]
    return "\n".join([*head, *body, "\tret;", "}", ""])


@pytest.mark.parametrize(
    ("live", "directive", "threads"),
    [(20, "", 1024), (54, "", 1024), (66, "", 512), (118, "", 512), (150, "", 256), (230, "", 256)]
    + [(230, f".maxntid {size}, 1, 1", size) for size in (257, 512, 640, 1024)]
    + [(118, ".maxntid 1024\n.maxnreg 128", 512), (230, ".maxntid 640\n.maxnreg 200", 256)]
    + [(230, ".maxntid 128\n.maxnreg 200", 128)],
)
def test_the_largest_block_that_fits(tmp_path: Path, live: int, directive: str, threads: int) -> None:
    """ptxas limits the registers of a kernel whose largest block is stated, so that this block fits. It does not if the
    kernel states a number of registers, too."""
    figures = PtxasJudge(folder=tmp_path).figures(many_registers(live, directive))["k"]
    assert figures.threads == threads, figures.registers
    found = occupancy(90, threads, figures.registers)
    assert found is not None and found.blocks > 0
    more = occupancy(90, 2 * threads, figures.registers)
    assert directive or (more is not None and more.blocks == 0)


class NeedsMore(Scripted):
    """A judge for which a changed kernel needs 72 registers, unless it states a limit, and ``slower`` with one."""

    def __init__(self, slower: bool) -> None:
        self.limited: list[bool] = []

        def of(text: str) -> Figures:
            count, is_limited = len(products(parse(text))), ".maxnreg 64" in text
            if count == 4:
                return SAME
            self.limited.append(is_limited)
            weight = 120.0 if slower and is_limited else 90.0
            return replace(SAME, code=text, weight=weight, registers=64, threads=1024 if is_limited else 512)

        super().__init__(of)


class NeedsMoreEach(NeedsMore):
    """`NeedsMore` for modules with several kernels."""

    def __init__(self) -> None:
        super().__init__(slower=False)

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each kernel alone."""
        alone = [replace(module, items=[kernel]) for kernel in module.entries]
        return {name: found for each in alone for name, found in super(NeedsMoreEach, self).figures(each).items()}


def test_a_kernel_with_too_many_registers_gets_a_limit() -> None:
    module, remarks = gated(NeedsMore(slower=False))
    assert module.kernels[0].directives == [".maxnreg 64"] and len(products(module)) == 2
    assert any("with .maxnreg 64" in remark.message for remark in remarks.items)
    judge = NeedsMore(slower=True)
    module, _ = gated(judge)
    assert judge.limited[:2] == [False, True]
    assert print_module(module) == print_module(parse(TEXT)), "no subset of its rewrites may have smaller blocks either"


class NeedsMoreAndRemembers(NeedsMore):
    """`NeedsMore` with a cache of outcomes."""

    def __init__(self) -> None:
        super().__init__(slower=False)
        self.kept: dict[str, Any] = {}

    def recall(self, key: str) -> Any:
        return self.kept.get(key)

    def remember(self, key: str, value: Any) -> None:
        self.kept[key] = value


@pytest.mark.parametrize("given", ["", "\n.maxnreg 128"])
def test_a_kernel_with_a_limit_is_recalled(given: str) -> None:
    judge, text = NeedsMoreAndRemembers(), TEXT.replace("\n{", f"{given}\n{{", 1)
    first = optimize_in_place(parse(text), "cse,dce", Policy(judge=judge))  # pyright: ignore[reportArgumentType]
    asked, module = judge.asked, parse(text)
    again = optimize_in_place(module, "cse,dce", Policy(judge=judge))  # pyright: ignore[reportArgumentType]
    assert judge.asked == asked and again.text == first.text
    assert module.kernels[0].directives == [".maxnreg 64"]


def test_equal_kernels_get_the_same_limit() -> None:
    entry = TEXT[TEXT.index(".visible") :]
    module = parse(TEXT + entry.replace("entry k(", "entry other("))
    optimize_in_place(module, "cse,dce", Policy(judge=NeedsMoreEach()))  # pyright: ignore[reportArgumentType]
    assert [each.directives for each in module.kernels] == [[".maxnreg 64"], [".maxnreg 64"]]


def test_a_stated_limit_of_registers_is_replaced() -> None:
    """Of two limits, ptxas takes the last one."""
    module = parse(TEXT.replace("\n{", "\n.maxnreg 128\n{", 1))
    optimize_in_place(module, "cse,dce", Policy(judge=NeedsMore(slower=False)))  # pyright: ignore[reportArgumentType]
    assert module.kernels[0].directives == [".maxnreg 64"] and len(products(module)) == 2


def test_a_kernel_with_calls_gets_no_limit() -> None:
    """nvlink would refuse it if a function of another object has more registers."""
    text = TEXT.replace(".visible .entry", ".extern .func other();\n.visible .entry").replace(
        "\tret;", "\tcall other;\n\tret;"
    )
    judge, module = NeedsMore(slower=False), parse(text)
    optimize_in_place(module, "cse,dce", Policy(judge=judge))  # pyright: ignore[reportArgumentType]
    assert judge.limited and not any(judge.limited)
    assert print_module(module) == print_module(parse(text))
