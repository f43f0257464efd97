"""Remarks of code motion: what blocks a load, and rewrites that are made although others were refused."""

from __future__ import annotations

from motion import blocks_with, count, kernel_of, optimized
from ptxmotion.ptx import parse
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remark, Remarks

LOOP = """
    ld.param.u64 %rd1, [out];
    mov.u32 %r2, 0;
L:  ld.global.u32 %r3, [%rd1];
    st.global.u32 [%rd2], %r3;
    {behind}
    add.u64 %rd2, %rd2, 4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 9;
    @%p1 bra L;
    ret;
"""


def explained(body: str, passes: str = "lcm") -> list[Remark]:
    module = kernel_of(body)
    remarks = Remarks(module, explains=True)
    run_passes(module, passes, remarks)
    return [remark for remark in remarks.items if remark.name == "LoadStays"]


def test_a_load_that_a_store_may_change_names_the_store() -> None:
    (remark,) = explained(LOOP.format(behind=""))
    assert remark.kind == "Missed"
    assert remark.reason == "memory-store"
    assert remark.expression == "ld.global.u32"
    assert remark.sources == remark.targets == ("L",)
    assert "is evaluated again: 'st.global.u32' at " in remark.message


def test_a_load_behind_a_barrier_names_the_nearest_obstacle_before_it() -> None:
    (remark,) = explained(LOOP.format(behind="bar.sync 0;"))
    assert remark.reason == "memory-barrier"
    assert "it cannot be reused across 'bar.sync'" in remark.message


def test_loads_that_leave_or_are_evaluated_once_have_no_such_remark() -> None:
    assert explained(LOOP.format(behind="").replace("st.global", "st.shared")) == []
    assert explained("ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1; ret;") == []


def test_they_are_found_for_those_who_read_remarks_only() -> None:
    _, remarks = optimized(LOOP.format(behind=""), "lcm")
    assert not any(remark.name == "LoadStays" for remark in remarks.items)


def test_a_refusal_is_recorded_once() -> None:
    module = kernel_of(LOOP.format(behind=""))
    remarks = Remarks(module, explains=True)
    run_passes(module, "lcm,lcm,sscm", remarks)
    assert remarks.yaml().count("memory-store") == 1
    assert "  - Expression:      'ld.global.u32'\n  - From:            'L'\n" in remarks.yaml()


def test_where_an_insertion_is_refused_what_is_redundant_still_goes() -> None:
    body = """
        mov.u32 %r9, %tid.x;
        setp.lt.u32 %p1, %r9, 7;
    N1: @%p1 bra N3;
    N2: ld.global.u32 %r1, [%rd1];
        st.shared.u32 [%r9], %r1;
    N3: ld.global.u32 %r2, [%rd1];
        ld.global.u32 %r3, [%rd1];
        st.shared.u32 [%r9+4], %r2;
        st.shared.u32 [%r9+8], %r3;
        ret;
    """
    module, remarks = optimized(body, "lcm:cdrnd_insertion=true")
    assert blocks_with(module, "ld.global.u32") == ["N2", "N3"]
    assert [(remark.kind, remark.reason) for remark in remarks.items] == [
        ("Missed", "divergent-insertion"),
        ("Passed", ""),
    ]


#: A load in both arms of an inner branch, which is in one arm of an outer branch, and after the join. Speculation above
#: the outer branch replaces all three by one.
SPECULATED = """
    .shared .align 4 .b8 s[{bytes}];
    mov.u32 %r9, %tid.x;
    and.b32 %r9, %r9, 31;
    shl.b32 %r8, %r9, 2;
    mov.u32 %r7, s;
    add.u32 %r6, %r7, %r8;
    ld.param.u64 %rd1, [out];
    setp.lt.u32 %p1, %r9, 7;
    setp.lt.u32 %p2, %r9, 3;
N1: @%p1 bra N5;
N2: @%p2 bra N4;
N3: ld.shared.u32 %r1, [%r6];
    st.global.u32 [%rd1], %r1;
    bra.uni N6;
N4: ld.shared.u32 %r2, [%r6];
    st.global.u32 [%rd1+4], %r2;
    bra.uni N6;
N5: setp.lt.u32 %p3, %r9, 5;
    @%p3 bra N7;
    ld.shared.u32 %r3, [%r6];
    st.global.u32 [%rd1+8], %r3;
    bra.uni N6;
N7: st.global.u32 [%rd1+12], %r9;
N6: ret;
"""


def test_a_load_inside_its_array_is_speculated() -> None:
    for passes in ("sscm", "spre"):
        module, remarks = optimized(SPECULATED.format(bytes=128), passes)
        assert count(module, "ld.shared.u32") == 1, passes
        assert not any(remark.name == "NotSpeculated" for remark in remarks.items)


def test_a_load_that_may_lie_outside_is_not_speculated_and_the_remark_says_so() -> None:
    for passes in ("sscm", "spre"):
        module, remarks = optimized(SPECULATED.format(bytes=64), passes)
        assert count(module, "ld.shared.u32") == 2, passes  # one load in each arm of the inner branch
        refused = [remark for remark in remarks.items if remark.name == "NotSpeculated"]
        assert {remark.reason for remark in refused} == {"may-fault"}, passes
        assert "may read an address that the program would not read" in refused[0].message


def test_scm_speculates_no_load() -> None:
    module, _ = optimized(SPECULATED.format(bytes=128), "scm")
    assert count(module, "ld.shared.u32") == 2


def test_what_was_speculated_parses_again() -> None:
    from ptxmotion.ptx import print_module

    module, _ = optimized(SPECULATED.format(bytes=128), "sscm")
    assert print_module(parse(print_module(module))) == print_module(module)
