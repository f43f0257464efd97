"""`judges.Assembled`: which entries are assembled again."""

from typing import cast

import pytest
from ptxmotion.cost import Figures
from ptxmotion.judges import Assembled
from ptxmotion.ptx import Module, parse
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
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


def test_small_launches_share_what_was_assembled() -> None:
    judge, module = Counted(), parse(_HEADER + _VARIABLE + _ONE)
    assembled = Assembled(cast("PtxasJudge", judge))
    assembled.figures(module)
    few = assembled.for_small_launches(4).figures(module)
    assert len(judge.texts) == 1 and few["one"].warps <= 4
