"""The passes run again under a promise only for kernels about whose buffers they have asked something."""

import pytest
from caching_judges import RefusesOnce, Remembers
from motion import SUM_IN_MEMORY as SUM
from ptxmotion import Policy, optimize
from ptxmotion.analysis.memory.alias import Promise, RecordingPromise
from ptxmotion.ptx import Kernel, Module
from ptxmotion.transforms.gate.static_judge import StaticJudge
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import KernelTransform
from ptxmotion.transforms.remarks import Remarks

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"

COPY = (
    HEAD
    + """
.visible .entry copy(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.volatile.global.u32 %r1, [%rd1];
    mad.lo.u32 %r2, %r1, 3, %r1;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""
)


@pytest.mark.parametrize(("text", "times"), [(SUM, 1), (COPY, 0)])
def test_passes_run_under_a_promise_only_if_they_ask_for_it(
    text: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No question about the buffers arises in `copy`, so its result is the same under each promise."""
    promised: list[str] = []
    given = KernelTransform.__call__

    def call(self: KernelTransform, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
        if self.promise is not None and self.promise.everything and type(self.promise) is Promise:
            promised.append(kernel.name)
        return given(self, module, kernel, remarks)

    monkeypatch.setattr(KernelTransform, "__call__", call)
    result = optimize(text, "O3", Policy(contract=True, gate="static"))
    assert len(promised) == times
    reasons = [each.reason for each in result.remarks if each.pass_name == "versions" and each.kind == "Missed"]
    assert ("same" in reasons) == (times == 0)


def test_a_promise_records_the_pairs_that_are_queried() -> None:
    promise = RecordingPromise(pairs=frozenset([("k", "a", "b")]))
    assert promise.are_disjoint("k", "b", "a") and not promise.are_disjoint("k", "c", "a")
    assert promise.asked == {("k", "a", "b"), ("k", "a", "c")}


#: ``x[0] = 3 * x[0] + x[1]``. There is only one buffer, so a vector load needs no promise about buffers.
ADJACENT = (
    COPY.replace("ld.volatile.global.u32 %r1, [%rd1];", "ld.global.u32 %r1, [%rd1]; ld.global.u32 %r3, [%rd1+4];")
    .replace("%r1, 3, %r1", "%r1, 3, %r3")
    .replace("copy", "adjacent")
    .replace("[y]", "[x]")
)


@pytest.mark.parametrize("judge", [StaticJudge(), Remembers()])
def test_different_promises_have_different_outcomes_in_the_cache(judge: StaticJudge) -> None:
    """The version with a vector load assumes alignment only, and the kernel nothing. Twice: the second run recalls."""
    for _ in range(2):
        result = optimize(ADJACENT, "O3", Policy(contract=True, judge=judge))
        assert result.contract is not None
        *found, _ = result.contract.kernels["adjacent"].versions
        assert [each.description for each in found] == ["aligned"]
        before, _, after = result.text.partition(".entry adjacent(")
        assert ".v2.u32" in before and ".v2.u32" not in after


def test_a_kernel_is_not_replaced_by_an_outcome_that_assumes_alignment() -> None:
    """The kernel is judged, because it loads one element twice."""
    text = ADJACENT.replace("mad.lo.u32", "ld.global.u32 %r5, [%rd1]; add.u32 %r3, %r3, %r5;\n    mad.lo.u32")
    judge = RefusesOnce()
    optimize(text, "O3", Policy(contract=True, judge=judge))
    assert judge.has_refused
    assert ".v2.u32" not in optimize(text, "O3", Policy(judge=judge)).text


def test_each_promise_has_an_identity_of_its_own() -> None:
    """Only an empty promise is the same as none; `RecordingPromise` records what is asked, and promises nothing."""
    aligned = frozenset([("k", "a", 16)])
    promises = [None, Promise(aligned=aligned), Promise(pairs=frozenset([("k", "a", "b")])), Promise(everything=True)]
    found = [KernelTransform(passes_of("O3"), each).identity for each in promises]
    assert None not in found and len(set(found)) == len(found)
    for empty in (Promise(), RecordingPromise()):
        assert KernelTransform(passes_of("O3"), empty).identity == found[0]
