"""The search for the rewrites of a kernel that make it better, with a judge whose costs are known."""

from __future__ import annotations

import random

import pytest
from motion import kernel_of
from ptxmotion.cost import Figures, is_better
from ptxmotion.ptx import Kernel, Module, parse
from ptxmotion.transforms.gate.judge import Refused
from ptxmotion.transforms.gate.search import MOST_TRIALS, START, Search, budget, module_of, size_of, try_halves
from ptxmotion.transforms.remarks import Remarks

BODY = "".join(f"add.s32 %r{number}, %r0, {number};\n" for number in range(1, 9)) + "ret;"


def subtract(_: Module, kernel: Kernel, remarks: Remarks) -> bool:
    """Turns each sum into a difference: one rewrite for each."""
    changed = False
    for instr in list(kernel.instructions()):
        if instr.form.text == "add.s32" and remarks.may_rewrite("test", instr):
            kernel.replace_form(instr, "sub.s32")
            changed = True
    return changed


class Priced:
    """A kernel costs 100, and for each difference the price of its constant more."""

    name = "priced"

    def __init__(self, prices: list[int], refuses_at: int = 99) -> None:
        self.prices = prices
        self.trials = 0
        self.refuses_at = refuses_at

    def figures(self, module: Module) -> dict[str, Figures]:
        self.trials += 1
        if self.trials > self.refuses_at:
            raise Refused("no more")
        return {kernel.name: self.of(kernel) for kernel in module.kernels}

    def of(self, kernel: Kernel) -> Figures:
        subtracted = [int(each.operands[2].text) for each in kernel.instructions() if each.form.text == "sub.s32"]
        weight = 100 + sum(self.prices[number - 1] for number in subtracted)
        return Figures(code=str(subtracted), registers=10, spills=0, warps=64, weight=weight)


def searched(judge: Priced, most: float = 1e9) -> tuple[Search, bool]:
    module = kernel_of(BODY)
    original = module.kernels[0]
    whole, remarks = original.clone(), Remarks(module)
    subtract(module, whole, remarks)
    search = Search(original, judge.of(original), judge.of(whole), list(remarks.keys), "more")
    return search, try_halves(judge, subtract, module, [search], most)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_kernel_has_no_rewrite_that_costs(seed: int) -> None:
    choose = random.Random(seed)
    prices = [choose.choice([-5, -5, -1, 0, 200]) for _ in range(8)]
    judge = Priced(prices)
    search, is_complete = searched(judge)
    assert is_complete and judge.trials <= MOST_TRIALS
    if search.best is None:
        assert not search.result
        return
    found = judge.of(search.best)
    assert is_better(search.before, found) and found == search.best_figures
    assert len(search.result) == found.code.count(",") + 1
    if sum(price == 200 for price in prices) == 1:
        assert found.weight == 100 + sum(price for price in prices if price < 0)


def test_a_search_keeps_within_its_limits() -> None:
    judge = Priced([-1] * 7 + [200])
    size = size_of(kernel_of(BODY).kernels[0])
    search, is_complete = searched(judge, START + size)
    assert judge.trials == 1 and is_complete and search.best is not None
    judge = Priced([-1] * 7 + [200], refuses_at=1)
    search, is_complete = searched(judge)
    assert not is_complete and search.best is not None, "the best kernel so far stays"
    assert budget([search.original]) > size


def test_the_result_of_an_earlier_search_is_not_searched_again() -> None:
    first, _ = searched(Priced([-1] * 7 + [200]))
    module = kernel_of(BODY)
    judge = Priced([-1] * 7 + [200])
    again = Search(module.kernels[0], first.before, first.after, first.keys, "more")
    again.resume(first.result)
    assert try_halves(judge, subtract, module, [again], 1e9)
    assert judge.trials == 1 and again.result == first.result


def test_a_kernel_without_any_of_the_rewrites_is_not_tried() -> None:
    """Clean-up needs no leave. It is not what is searched for."""

    def only_cleans_up(_: Module, kernel: Kernel, remarks: Remarks) -> bool:
        kernel.replace_form(next(kernel.instructions()), "sub.s32")
        return remarks.may_rewrite()

    module = kernel_of(BODY)
    judge = Priced([-5] * 8)
    before = judge.of(module.kernels[0])
    search = Search(module.kernels[0], before, before, ["a", "b"], "more")
    assert try_halves(judge, only_cleans_up, module, [search], 1e9)
    assert judge.trials == 0 and search.best is None


def test_other_entries_are_left_out_unless_a_function_is_judged_that_they_may_call() -> None:
    """A call of another function counts, because that may call the changed one. So does an unknown instruction."""
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".func f() { ret; }\n.func g() { call f; ret; }\n"
        ".entry a() { ret; }\n.entry b() { call g; ret; }\n"
        ".entry c() { .reg .u64 %p; mov.u64 %p, f; call %p; ret; }\n.entry d() { unknown.op; ret; }\n"
    )
    module = parse(text)

    def names(*kernels: str) -> list[str]:
        return [each.name for each in module_of(module, [module.kernel(name) for name in kernels]).kernels]

    # What an entry cannot reach is left out, too.
    assert names("a") == ["a"]
    assert names("b") == ["f", "g", "b"] and names("d") == ["f", "g", "d"]
    assert names("f") == ["f", "g", "b", "c", "d"]
    assert names("f", "a") == ["f", "g", "a", "b", "c", "d"]


def test_the_functions_that_a_judged_function_calls_stay_where_no_entry_may_call() -> None:
    """As in relocatable PTX of sources without entries, and in front of a function that no entry calls."""
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.func g();\n"
        ".func f() { call g; ret; }\n.func g() { ret; }\n.func h() { ret; }\n"
    )
    for entry in ("", ".entry a() { ret; }\n"):
        module = parse(text + entry)
        functions = module_of(module, [module.kernel("f")]).kernels
        assert [each.name for each in functions] == ["f", "g", "h"], entry
        assert [each.name for each in module_of(module, [module.kernel("h")]).kernels] == ["h"], entry


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", ".reg .u64 %p; mov.u64 %p, f; st.global.u64 [0], %p;"),
        (".global .u64 table[2] = { 0, f };", ""),
        (".alias other, f;", ""),
        (".section .debug_info { .b64 $L__begin0 }", ""),
    ],
)
def test_a_function_that_something_else_names_is_not_left_out(before: str, body: str) -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    module = parse(f"{head}.func f();\n.func f() {{ ret; }}\n{before}\n.entry a() {{ {body} ret; }}\n")
    assert len(module_of(module, [module.kernel("a")]).items) == len(module.items)
    assert [each.name for each in module_of(module, [module.kernel("a")]).kernels] == ["f", "a"]


def test_a_function_is_left_out_with_its_declaration() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = f"{head}.func f();\n.extern .func g();\n.func f() {{ ret; }}\n.entry a() {{ ret; }}\n"
    module = parse(text)
    left = [each.name for each in module_of(module, [module.kernel("a")]).items if isinstance(each, Kernel)]
    assert left == ["g", "a"]
