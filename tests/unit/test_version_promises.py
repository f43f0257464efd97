"""The passes run again under a promise only for kernels about whose buffers they have asked something."""

import pytest
from motion import SUM_IN_MEMORY as SUM
from ptxmotion import Policy, optimize
from ptxmotion.analysis.memory.alias import Promise, RecordingPromise
from ptxmotion.ptx import Kernel, Module
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


def test_a_promise_records_what_is_asked() -> None:
    promise = RecordingPromise(pairs=frozenset([("k", "a", "b")]))
    assert promise.are_disjoint("k", "b", "a") and not promise.are_disjoint("k", "c", "a")
    assert promise.asked == {("k", "a", "b"), ("k", "a", "c")}
