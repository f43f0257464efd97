"""`judges.Assembled`: which entries are assembled again."""

from typing import cast

import pytest
from ptxmotion.cost import Figures
from ptxmotion.judges import Assembled, judge_of
from ptxmotion.ptx import Module, parse
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import ToolTimeout
from ptxmotion.transforms.gate.search import module_of
from ptxmotion.work_times import WorkTimes

_HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"
_VARIABLE = ".global .u32 x;\n"
_ONE = ".entry one() { .reg .b32 r; mov.u32 r, 1; st.global.u32 [x], r; ret; }\n"
_TWO = ".entry two() { .reg .b32 r; mov.u32 r, 2; st.global.u32 [x], r; ret; }\n"
_CALLER = ".func f() { ret; }\n.entry caller() { call f; ret; }\n"


class Counted:
    """In place of `PtxasJudge`: the figures of an entry are the length of its name. ``texts`` were assembled."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.times = WorkTimes()

    def figures(self, text: str) -> dict[str, Figures]:
        self.texts.append(text)
        return {
            each.name: Figures(code=each.name, weight=float(len(each.name)), registers=8, spills=0, warps=64.0)
            for each in parse(text).entries
        }


def asked(*modules: Module) -> tuple[list[str], list[dict[str, Figures]]]:
    judge = Counted()
    assembled = Assembled(cast("PtxasJudge", judge))
    found = [assembled.figures(each) for each in modules]
    return judge.texts, found


def test_an_entry_is_assembled_once() -> None:
    module = parse(_HEADER + _VARIABLE + _ONE + _TWO)
    alone = module_of(module, [module.kernel("two")])
    texts, (both, one) = asked(module, alone)
    assert len(texts) == 1 and set(both) == {"one", "two"} and one == {"two": both["two"]}


def test_only_the_entry_that_changed_is_assembled() -> None:
    before, after = (parse(_HEADER + _VARIABLE + _ONE + two) for two in (_TWO, _TWO.replace(" 2;", " 3;")))
    texts, (_, found) = asked(before, after)
    assert len(texts) == 2 and ".entry one" not in texts[1] and ".entry two" in texts[1]
    assert set(found) == {"one", "two"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_HEADER + _VARIABLE + _ONE, _HEADER + _VARIABLE.replace("u32", "u64") + _ONE),
        (_HEADER + _VARIABLE + _ONE, _HEADER.replace("sm_90", "sm_100") + _VARIABLE + _ONE),
        (_HEADER + _CALLER, _HEADER + _CALLER),
    ],
    ids=["another variable", "another target", "calls"],
)
def test_an_entry_is_assembled_again(before: str, after: str) -> None:
    texts, _ = asked(parse(before), parse(after))
    assert len(texts) == 2


def prepared(*modules: Module) -> tuple[list[str], list[dict[str, Figures]]]:
    """As `asked`, but all modules are prepared first."""
    judge = Counted()
    assembled = Assembled(cast("PtxasJudge", judge))
    assembled.prepare(*modules)
    return judge.texts, [assembled.figures(each) for each in modules]


def test_entries_of_several_modules_are_assembled_together() -> None:
    before, after = (parse(_HEADER + _VARIABLE + _ONE + two) for two in (_TWO, _TWO.replace(" 2;", " 3;")))
    texts, found = prepared(before, after)
    assert len(texts) == 1 and [each.name for each in parse(texts[0]).entries] == ["one_0", "two_0", "two_1"]
    assert [set(each) for each in found] == [{"one", "two"}, {"one", "two"}]
    assert found[0]["one"] is found[1]["one"] and found[0]["two"].code == "two_0" and found[1]["two"].code == "two_1"


def test_a_name_that_a_parameter_has_is_not_taken() -> None:
    one = _ONE.replace("one()", "one(.param .u32 one_0)")
    texts, _ = prepared(parse(_HEADER + _VARIABLE + one + _TWO))
    assert [each.name for each in parse(texts[0]).entries] == ["one_1", "two_0"]


def test_a_name_that_a_variable_has_is_not_taken() -> None:
    """ptxas would refuse the module: the run would be in vain."""
    texts, _ = prepared(parse(_HEADER + _VARIABLE + ".const .u32 one_0 = 3;\n" + _ONE + _TWO))
    assert [each.name for each in parse(texts[0]).entries] == ["one_1", "two_0"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_HEADER + _VARIABLE + _ONE, _HEADER + _VARIABLE + _ONE),
        (_HEADER + _VARIABLE + _ONE, _HEADER + _VARIABLE.replace("u32", "u64") + _ONE),
        (_HEADER + _CALLER, _HEADER + _CALLER.replace("call f; ", "")),
    ],
    ids=["one entry", "another variable", "functions"],
)
def test_what_is_not_assembled_together(before: str, after: str) -> None:
    texts, _ = prepared(parse(before), parse(after))
    assert all(len(parse(text).entries) == 1 and "_0" not in text for text in texts)


def test_long_texts_are_not_assembled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxmotion.judges._MOST_TOGETHER", 100)
    texts, _ = prepared(parse(_HEADER + _VARIABLE + _ONE), parse(_HEADER + _VARIABLE + _TWO))
    assert [[each.name for each in parse(text).entries] for text in texts] == [["one"], ["two"]]


def test_what_ptxas_refuses_together_is_assembled_one_by_one() -> None:
    class Refusing(Counted):
        def figures(self, text: str) -> dict[str, Figures]:
            if "one_0" in text:
                self.texts.append(text)
                raise ToolTimeout("ptxas", 1)
            return super().figures(text)

    judge = Refusing()
    assembled = Assembled(cast("PtxasJudge", judge))
    modules = [parse(_HEADER + _VARIABLE + _ONE), parse(_HEADER + _VARIABLE + _ONE.replace(" 1;", " 2;"))]
    assembled.prepare(*modules)
    assert [set(assembled.figures(each)) for each in modules] == [{"one"}, {"one"}] and len(judge.texts) == 3


def test_entries_that_are_assembled_together_have_the_same_code() -> None:
    """With ptxas: the figures do not depend on the name, nor on the other entries."""
    loop = ".reg .pred p; .reg .b32 i; .shared .b8 s[64]; mov.u32 i, 0; L: st.shared.u32 [s], i; add.u32 i, i, STEP;"
    text = f"{_HEADER}.entry k(.param .u32 n) {{ {loop} setp.lt.u32 p, i, 99; @p bra L; ret; }}"
    modules = [parse(text.replace("STEP", step)) for step in ("1", "3")]
    alone, together = (judge_of("ptxas")[0] for _ in range(2))
    assert isinstance(alone, Assembled) and isinstance(together, Assembled)
    together.prepare(*modules)
    assert len(together._judged) == 2  # pyright: ignore[reportPrivateUsage]
    assert [together.figures(each) for each in modules] == [alone.figures(each) for each in modules]


def test_small_launches_share_what_was_assembled() -> None:
    judge, module = Counted(), parse(_HEADER + _VARIABLE + _ONE)
    assembled = Assembled(cast("PtxasJudge", judge))
    assembled.figures(module)
    few = assembled.for_small_launches(4).figures(module)
    assert len(judge.texts) == 1 and few["one"].warps <= 4
