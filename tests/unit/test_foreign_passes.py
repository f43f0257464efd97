"""What `optimize` is called with: passes of another distribution that fail or break a kernel, and wrong arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ptxmotion import Policy, optimize
from ptxmotion.transforms.passes import Pass, UnknownPass, passes_of
from ptxmotion.transforms.pipeline import PassFailed

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 a)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r0, [a];
    add.s32 %r1, %r0, 1;
    ret;
}
"""


def foreign(action: Callable[[Any], Any]) -> Pass:
    @dataclass(frozen=True)
    class Foreign:
        name: ClassVar[str] = "mine"

        def run(self, kernel: Any, facts: Any, remarks: Any) -> Any:
            return action(kernel)

    return Foreign()


def test_passes_and_names_may_be_mixed() -> None:
    lists = (["cse", "dce"], [foreign(lambda kernel: False), "cse,dce"], ["cse", *passes_of("dce")])
    assert {optimize(PTX, each).text for each in lists} == {optimize(PTX, "cse,dce").text}
    assert optimize(PTX, ["cse", "dce"]).changed == ("k",)
    with pytest.raises(UnknownPass, match="did you mean 'dce'"):
        optimize(PTX, ["cse", "dec"])


def raising(kernel: Any) -> bool:
    raise ValueError("my message")


def breaking(kernel: Any) -> bool:
    add = next(instr for instr in kernel.instructions() if instr.form.text == "add.s32")
    kernel.replace_operands(add, add.operands[:2])
    return True


def test_an_exception_of_a_pass_names_the_pass() -> None:
    with pytest.raises(PassFailed, match=r"^pass 'mine' broke 'k': ValueError: my message$") as caught:
        optimize(PTX, [foreign(raising)])
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_the_result_must_be_a_truth_value(value: object) -> None:
    with pytest.raises(PassFailed, match=r"pass 'mine' broke 'k': 'run' returned .*, but must return True or False"):
        optimize(PTX, [foreign(lambda kernel: value)])


def test_what_the_verifier_refuses_names_the_pass_if_that_is_known() -> None:
    broken = r"'add.s32' takes 3 operands, not 2"
    with pytest.raises(PassFailed, match=rf"(?s)^pass 'mine' broke 'k': .*{broken}"):
        optimize(PTX, [foreign(breaking)])
    several = [foreign(lambda kernel: False), foreign(breaking)]
    with pytest.raises(PassFailed, match=rf"(?s)^one of the passes \(--verify-each finds it\) broke 'k': .*{broken}"):
        optimize(PTX, several)
    with pytest.raises(PassFailed, match=r"^pass 'mine' broke 'k'"):
        optimize(PTX, several, Policy(verify_each=True))


@pytest.mark.parametrize("source", [Path("a.ptx"), PTX.encode(), None])
def test_what_is_no_ptx(source: Any) -> None:
    with pytest.raises(TypeError, match=rf"PTX is text, .*, and not a {type(source).__name__}"):
        optimize(source, "O1")
