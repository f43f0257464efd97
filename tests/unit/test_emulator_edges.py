"""Declarations, calls and addresses that ptxas accepts and compilers seldom generate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from ptxmotion.cli import main
from ptxmotion.emulator import Emulator, EmulatorFault, LaunchResult
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.emulator.schedule import SCHEDULES
from ptxmotion.ptx import PtxError

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
OWN = """
    .reg .b32 %t, %v, %w; .reg .b64 %a, %o, %l; .reg .b16 %h; .reg .f32 %f; .reg .pred %p, %q;
    ld.param.u64 %a, [x]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %a, %a, %o;
"""
Words = npt.NDArray[np.uint32]


def text_of(body: str, module: str = "") -> str:
    return f"{HEAD}{module}\n.visible .entry k(.param .u64 x)\n{{{OWN}{body}\n}}\n"


def run(body: str, threads: int = 1, *, module: str = "", schedule: str = "order") -> tuple[Words, LaunchResult]:
    x = np.zeros(threads, np.uint32)
    return x, Emulator(budget=20_000).load(text_of(body, module)).launch("k", 1, threads, [x], schedule=schedule)


def kinds(result: LaunchResult) -> list[str]:
    return [finding.kind for finding in result.findings]


# --- what the verifier refuses ---------------------------------------------------------------------------------------

MALFORMED = text_of("add.u32 %h, %t, 1; st.global.u32 [%a], %t; ret;")


def test_a_malformed_module_is_refused_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for load in (Emulator().load, EmulatorBackend().load):
        with pytest.raises(PtxError, match="'%h'"):
            load(MALFORMED)
    file = tmp_path / "bad.ptx"
    file.write_text(MALFORMED)
    assert main(["emulate", str(file), "--arg", "u32[1]"]) == 3
    assert "'%h'" in capsys.readouterr().err


# --- calls -----------------------------------------------------------------------------------------------------------

INCREMENT = """.func (.param .u32 o) inc(.param .u32 n)
{ .reg .u32 %y; ld.param.u32 %y, [n]; add.u32 %y, %y, 1; st.param.u32 [o], %y; ret; }"""


def test_registers_for_parameters_in_memory() -> None:
    x, result = run("call (%v), inc, (%t); st.global.u32 [%a], %v; ret;", 4, module=INCREMENT)
    assert x.tolist() == [1, 2, 3, 4]
    assert kinds(result) == []


def test_variables_for_parameters_in_registers() -> None:
    module = ".func (.reg .u32 o) inc(.reg .u32 n) { add.u32 o, n, 1; ret; }"
    body = """
    { .param .u32 given; .param .u32 got; st.param.u32 [given], %t;
      call (got), inc, (given); ld.param.u32 %v, [got]; }
    st.global.u32 [%a], %v; ret;"""
    x, result = run(body, 4, module=module)
    assert x.tolist() == [1, 2, 3, 4]
    assert kinds(result) == []


@pytest.mark.parametrize(
    ("kind", "literal", "word"),
    [("u64", "-1", 0xFFFFFFFF), ("s64", "-1", 0xFFFFFFFF), ("u64", "0x500000003", 5), ("f64", "1.5", 0x3FF80000)],
)
def test_a_literal_has_the_type_of_its_parameter(kind: str, literal: str, word: int) -> None:
    module = f""".func (.param .u32 o) high(.param .{kind} n)
{{ .reg .b64 %y; .reg .b32 %h, %i; ld.param.b64 %y, [n]; mov.b64 {{%i, %h}}, %y; st.param.b32 [o], %h; ret; }}"""
    x, result = run(f"call (%v), high, ({literal}); st.global.u32 [%a], %v; ret;", module=module)
    assert x[0] == word
    assert kinds(result) == []


def test_a_literal_in_an_indirect_call_has_the_size_in_the_prototype() -> None:
    module = """.func (.param .u32 o) high(.param .u64 n)
{ .reg .b64 %y; .reg .b32 %h, %i; ld.param.b64 %y, [n]; mov.b64 {%i, %h}, %y; st.param.b32 [o], %h; ret; }"""
    body = """
    mov.u64 %l, high;
    { shape: .callprototype (.param .b32 _) _ (.param .b64 _); call (%v), %l, (0x700000001), shape; }
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, module=module)
    assert x[0] == 7


def test_a_result_in_a_register_that_is_never_written() -> None:
    module = ".func (.reg .u32 o) f(.reg .u32 n) { ret; }"
    _, result = run("call (%v), f, (%t); st.global.u32 [%a], %v; ret;", module=module)
    assert kinds(result) == ["uninitialised-register"]
    _, result = run("call (_), f, (%t); st.global.u32 [%a], 3; ret;", module=module)
    assert kinds(result) == ["uninitialised-register"]


def test_a_result_in_memory_that_is_never_written() -> None:
    module = ".func (.param .u32 o) f() { ret; }"
    _, result = run("call (%v), f; st.global.u32 [%a], %v; ret;", module=module)
    assert kinds(result) == ["uninitialised-memory"]


# --- addresses -------------------------------------------------------------------------------------------------------


MINUS_ONE = ["0xffffffffffffffff", "18446744073709551615", "-1", "0x1ffffffffffffffff"]


@pytest.mark.parametrize("offset", MINUS_ONE)
def test_offsets_of_addresses_wrap(offset: str) -> None:
    """ptxas, too, reads each of these offsets as -1."""
    x, _ = run(f"add.u64 %a, %a, 2; st.global.u8 [%a+{offset}], 7; ret;")
    assert x.tolist() == [0x700]


@pytest.mark.parametrize("offset", ["9223372036854775807", "-9223372036854775809", "0x8000000000000000"])
def test_far_offsets_are_out_of_bounds(offset: str) -> None:
    with pytest.raises(EmulatorFault, match="out-of-bounds"):
        run(f"st.global.u8 [%a+{offset}], 7; ret;")


def test_offsets_of_symbols_and_literals_wrap() -> None:
    body = """
    .shared .b8 s[8]; .local .b8 l[8];
    st.shared.u8 [s+0x10000000000000003], 5; ld.shared.u8 %v, [s+3];
    st.local.u8 [l+0x10000000000000003], 6; ld.local.u8 %w, [l+3]; mad.lo.u32 %v, %w, 256, %v;
    st.global.u8 [g+0x10000000000000001], 7; ld.global.u8 %w, [g+1]; mad.lo.u32 %v, %w, 65536, %v;
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, module=".global .b8 g[4];")
    assert x[0] == 0x070605


# --- variables in functions ------------------------------------------------------------------------------------------


def test_variables_in_an_entry() -> None:
    body = """
    .global .u32 g = 4; .const .u32 c = 5; .shared .u32 s[4]; .local .u32 l[4]; .global .u64 at = g; .global .u32 z;
    ld.global.u32 %v, [g]; ld.const.u32 %w, [c]; add.u32 %v, %v, %w; st.shared.u32 [s+4], %v; ld.shared.u32 %w, [s+4];
    st.local.u32 [l], %w; ld.local.u32 %v, [l]; ld.global.u64 %l, [at]; ld.global.u32 %w, [%l];
    mad.lo.u32 %v, %w, 100, %v; ld.global.u32 %w, [z]; add.u32 %v, %v, %w; st.global.u32 [z], 1000;
    st.global.u32 [%a], %v; ret;"""
    x = np.zeros(1, np.uint32)
    module = Emulator().load(text_of(body))
    results: list[int] = []
    for _ in range(2):
        module.launch("k", 1, 1, [x])
        results.append(int(x[0]))
    # Each variable exists once and keeps its value between launches.
    assert results == [409, 1409]


def test_variables_in_functions_are_theirs() -> None:
    count = """.func (.reg .u32 o) {name}() {{ .global .u32 n = {start}; .shared .u32 s;
    ld.global.u32 o, [n]; add.u32 o, o, 1; st.global.u32 [n], o; st.shared.u32 [s], o; ld.shared.u32 o, [s]; ret; }}"""
    module = count.format(name="one", start=10) + count.format(name="two", start=20)
    body = """
    .global .u32 n = 1000; call (%v), one; call (%v), one; call (%w), two; mad.lo.u32 %v, %v, 100, %w;
    ld.global.u32 %w, [n]; mad.lo.u32 %v, %v, 10000, %w; st.global.u32 [%a], %v; ret;"""
    x, result = run(body, module=module)
    assert x[0] == 12_21_1000
    assert kinds(result) == []


def test_an_inner_scope_hides_a_variable() -> None:
    body = """
    .global .u32 n = 3; { .global .u32 n = 40; ld.global.u32 %v, [n]; } ld.global.u32 %w, [n];
    add.u32 %v, %v, %w; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body)
    assert x[0] == 43


def test_constants_in_functions_are_read_only() -> None:
    with pytest.raises(EmulatorFault, match="read-only"):
        run(".const .u32 c = 5; mov.u64 %l, c; cvta.const.u64 %l, %l; st.u32 [%l], 1; ret;")


# --- moves of vectors ------------------------------------------------------------------------------------------------


def test_a_special_register_as_a_whole() -> None:
    body = """
    .reg .v4 .u32 %n; .reg .b32 %i, %j, %k;
    mov.v4.u32 {%v, %i, %j, %k}, %tid; mov.v4.u32 %n, %ntid;
    mad.lo.u32 %v, %n.x, 10, %v; mad.lo.u32 %v, %n.y, 1000, %v; mad.lo.u32 %v, %n.w, 99999, %v; add.u32 %v, %v, %k;
    add.u32 %v, %v, %i; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, 4)
    assert x.tolist() == [1040, 1041, 1042, 1043]


def test_moves_of_vectors_read_before_they_write() -> None:
    body = """
    .reg .v2 .u32 %y; mov.u32 %v, 1; mov.u32 %w, 2; mov.v2.u32 {%v, %w}, {%w, %v}; mov.v2.u32 %y, {%v, %w};
    setp.eq.u32 %p, %t, 0; @%p mov.v2.u32 {_, %w}, %y; mad.lo.u32 %v, %y.x, 10, %w; mad.lo.u32 %v, %v, 10, %y.y;
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body)
    assert x[0] == 211


# --- exchanges in warps of which lanes have exited -------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["order", "random", "warps"])
@pytest.mark.parametrize(
    "leave",
    [
        # The lanes exit before the others vote, while the others wait, and at a reconvergence point.
        "@%p exit; {vote} st.global.u32 [%a], %v; ret;",
        "@!%p bra V; L: add.u32 %w, %w, 1; setp.lt.u32 %p, %w, 9; @%p bra L; exit; "
        "V: {vote} st.global.u32 [%a], %v; ret;",
        "setp.ge.u32 %q, %t, 5; @!%q bra J; {vote} J: @%p exit; st.global.u32 [%a], %v; ret;",
        "L: setp.lt.u32 %p, %t, 5; @%p bra E; {vote} add.u32 %w, %w, 1; setp.lt.u32 %p, %w, 3; @%p bra L; "
        "st.global.u32 [%a], %v; E: ret;",
    ],
)
@pytest.mark.parametrize(
    ("vote", "value"),
    [
        ("vote.sync.ballot.b32 %v, 1, -1;", 0xFFFFFFE0),
        ("redux.sync.add.u32 %v, %t, -1;", sum(range(5, 32))),
        ("match.any.sync.b32 %v, 7, -1;", 0xFFFFFFE0),
        ("shfl.sync.idx.b32 %v, %t, 9, 31, -1;", 9),
        ("bar.warp.sync -1; mov.u32 %v, 3;", 3),
    ],
)
def test_lanes_that_have_exited_are_not_waited_for(vote: str, value: int, leave: str, schedule: str) -> None:
    """PTX ISA 9.0, §9.7.13.8: the instruction waits for all threads of the membermask that have not exited."""
    body = "setp.lt.u32 %p, %t, 5; mov.u32 %w, 0; mov.u32 %v, 0; " + leave.format(vote=vote)
    x, result = run(body, 32, schedule=schedule)
    assert x.tolist() == [0] * 5 + [value] * 27
    assert kinds(result) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("leave", ["@%q exit;", "@%q ret;", "@%q trap;", "@%q bra END;"])
@pytest.mark.parametrize(
    ("together", "values"),
    [
        ("vote.sync.ballot.b32 %v, %p, -1;", [0x7F] * 32),
        ("redux.sync.add.u32 %v, %t, -1;", [sum(range(32))] * 32),
        ("match.any.sync.b32 %v, %w, -1;", [0x33333333, 0x33333333, 0x44444444, 0x88888888] * 8),
        ("shfl.sync.idx.b32 %v, %t, 9, 31, -1;", [9] * 32),
        ("bar.warp.sync -1; mov.u32 %v, 3;", [3] * 32),
    ],
)
def test_lanes_that_did_not_reconverge_meet(together: str, values: list[int], leave: str, seed: int) -> None:
    """Lanes leave a loop in different iterations. They do not reconverge after it, because of a way out of the kernel
    that no lane takes. So they arrive one after the other, and each waits for the others."""
    body = f"""
    and.b32 %w, %t, 3; max.u32 %w, %w, 1; mov.u32 %v, 0; setp.lt.u32 %p, %t, 7; setp.gt.u32 %q, %t, 100;
    .reg .pred %again; .reg .b32 %n; mov.u32 %n, 0;
LOOP:
    {leave}
    add.u32 %n, %n, 1; setp.lt.u32 %again, %n, %w;
    @%again bra LOOP;
    {together}
    st.global.u32 [%a], %v;
END: ret;"""
    for schedule in SCHEDULES:
        x = np.zeros(32, np.uint32)
        result = Emulator(budget=20_000).load(text_of(body)).launch("k", 1, 32, [x], schedule=schedule, seed=seed)
        assert kinds(result) == []
        assert x.tolist() == values, schedule


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("together", "values"),
    [
        ("vote.sync.ballot.b32 %v, 1, %m;", [3, 3, 12, 12]),
        ("redux.sync.add.u32 %v, %t, %m;", [1, 1, 5, 5]),
        ("match.any.sync.b32 %v, 7, %m;", [3, 3, 12, 12]),
        ("shfl.sync.bfly.b32 %v, %t, 1, 31, %m;", [1, 0, 3, 2]),
        ("elect.sync %v|%q, %m;", [0, 0, 2, 2]),
        ("bar.warp.sync %m; mov.u32 %v, 3;", [3, 3, 3, 3]),
    ],
)
def test_lanes_of_a_fragment_with_different_masks(together: str, values: list[int], seed: int) -> None:
    """Lanes 0 to 2 come together, and lane 3 comes after it has met lane 0 behind the instruction. So lanes 0 and 1,
    whose membermask is complete, must not wait for lane 2, whose is not."""
    body = f"""
    .reg .b32 %m; .reg .b64 %b; ld.param.u64 %b, [x];
    and.b32 %w, %t, 2; shl.b32 %m, 3, %w; setp.eq.u32 %p, %t, 3; setp.eq.u32 %q, %t, 0;
    @!%p bra MEET;
    bar.warp.sync 9;
MEET:
    {together}
    st.global.u32 [%a], %v; setp.ne.u32 %q, %t, 0;
    @%q bra END;
    bar.warp.sync 9;
END: ret;"""
    for schedule in SCHEDULES:
        x = np.zeros(4, np.uint32)
        result = Emulator(budget=20_000).load(text_of(body)).launch("k", 1, 4, [x], schedule=schedule, seed=seed)
        assert kinds(result) == []
        assert x.tolist() == values, schedule


def test_lanes_of_two_fragments_meet_though_others_of_one_do_not() -> None:
    """Lane 1 comes together with lane 3, whose partner never comes before lane 0 has left. The vote of lanes 0 and 1 is
    theirs, and not that of lane 0 alone."""
    body = """
    .reg .b32 %m; .reg .b64 %b; ld.param.u64 %b, [x];
    and.b32 %w, %t, 2; shl.b32 %m, 3, %w; setp.eq.u32 %p, %t, 0; setp.eq.u32 %q, %t, 2;
    @%p bra LATER;
    @%q bra LAST;
    bra MEET;
LATER: bar.warp.sync 1; bra MEET;
LAST: bar.warp.sync 5;
MEET:
    vote.sync.ballot.b32 %v, 1, %m; st.global.u32 [%a], %v;
    @!%p bra END;
    bar.warp.sync 5;
END: ret;"""
    for schedule in SCHEDULES:
        for seed in range(8):
            x = np.zeros(4, np.uint32)
            result = Emulator(budget=20_000).load(text_of(body)).launch("k", 1, 4, [x], schedule=schedule, seed=seed)
            assert kinds(result) == []
            assert x.tolist() == [3, 3, 12, 12], schedule


def test_different_masks_that_name_each_other_never_meet() -> None:
    """PTX ISA 9.0, §9.7.13.8: the lanes of a membermask wait for each other with the same membermask."""
    body = "shr.u32 %w, 0xF, %t; vote.sync.ballot.b32 %v, 1, 3; vote.sync.ballot.b32 %v, 1, %w; ret;"
    with pytest.raises(EmulatorFault, match="absent or have another one"):
        run(body, 2)


def test_barriers_of_a_warp_at_two_places_order_memory() -> None:
    """PTX ISA 9.0, §9.7.13.2: `bar.warp.sync` orders the accesses of its lanes, also where they meet at two of them."""
    body = """
    .shared .b32 s; setp.eq.u32 %p, %t, 0;
    @%p bra FIRST;
    bar.warp.sync 3; ld.shared.u32 %v, [s]; st.global.u32 [%a], %v; ret;
FIRST: st.shared.u32 [s], 7; {sync} ret;"""
    for schedule in SCHEDULES:
        x, result = run(body.replace("{sync}", "bar.warp.sync 3;"), 2, schedule=schedule)
        assert (x.tolist(), kinds(result)) == ([0, 7], []), schedule
    x, result = run(body.replace("{sync}", "").replace("bar.warp.sync 3;", "bar.warp.sync 2;"), 2)
    assert "race" in kinds(result)


# --- accesses beside variables, and lanes that are not there ----------------------------------------------------------

ARRAYS = ".local .align 4 .b8 first[8]; .local .align 4 .b8 second[8]; st.local.u32 [second], 7;"


@pytest.mark.parametrize(
    "access",
    [
        "ld.local.u32 %v, [first+8];",
        "st.local.u32 [first+8], 1;",
        "ld.local.v2.u32 {%v, %w}, [first+8];",
        "st.local.u32 [second-4], 1;",
        "mov.u64 %l, first; cvta.local.u64 %l, %l; ld.u32 %v, [%l+8];",
        "mov.u64 %l, first; mul.wide.u32 %o, %t, 4; add.u64 %l, %l, %o; st.local.u32 [%l], %t;",  # thread 2 leaves it
    ],
)
def test_an_access_that_leaves_a_local_variable(access: str) -> None:
    with pytest.raises(EmulatorFault, match="outside of the variables of the function in local memory"):
        run(f"{ARRAYS} {access} ret;", 3)


def test_accesses_inside_local_variables() -> None:
    body = "st.local.u32 [first+4], %t; mov.u64 %l, first; cvta.local.u64 %l, %l; ld.u32 %v, [%l+4];"
    sums = "ld.local.u32 %w, [second]; add.u32 %v, %v, %w; st.global.u32 [%a], %v; ret;"
    x, result = run(f"{ARRAYS} {body} {sums}", 3)
    assert x.tolist() == [7, 8, 9]
    assert result.findings == []


def test_local_variables_of_a_function_and_its_caller() -> None:
    """A function may access its caller's variable, and only its own ones are apart from each other."""
    own = ".local .align 4 .b8 own[4]; .local .align 4 .b8 other[4]; .reg .u64 %p; .reg .u32 %y;"
    body = "ld.param.u64 %p, [n]; ld.u32 %y, [%p+4]; st.local.u32 [own+{at}], %y; ld.local.u32 %y, [own];"
    function = ".func (.param .u32 o) get(.param .u64 n) { " + own + body + " st.param.u32 [o], %y; ret; }"
    call = "st.local.u32 [second+4], %t; mov.u64 %l, second; cvta.local.u64 %l, %l; call (%v), get, (%l);"
    body = f"{ARRAYS} {call} st.global.u32 [%a], %v; ret;"
    x, result = run(body, 3, module=function.replace("{at}", "0"))
    assert x.tolist() == [0, 1, 2]
    assert result.findings == []
    with pytest.raises(EmulatorFault, match="outside of the variables of the function in local memory"):
        run(body, 3, module=function.replace("{at}", "4"))


@pytest.mark.parametrize(
    ("shuffle", "threads", "absent"),
    [
        ("shfl.sync.down.b32 %v, %t, 4, 31, -1;", 32, 0),  # the last lanes read their own values: in range
        ("shfl.sync.down.b32 %v, %t, 4, 31, -1;", 8, 4),
        ("shfl.sync.idx.b32 %v, %t, 20, 31, -1;", 8, 8),
        ("setp.lt.u32 %p, %t, 4; @%p shfl.sync.bfly.b32 %v, %t, 4, 31, 15;", 8, 4),
    ],
)
def test_a_shuffle_from_an_absent_lane_is_noted(shuffle: str, threads: int, absent: int) -> None:
    _, result = run(f"{shuffle} ret;", threads)
    noted = [(finding.kind, finding.severity, finding.count) for finding in result.findings]
    assert noted == ([("absent-lane", "note", absent)] if absent else [])
