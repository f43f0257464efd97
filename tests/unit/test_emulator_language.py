"""Single features of the language on the emulator: calls, initializers, vectors, state spaces, divergence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from ptxmotion.emulator import Emulator, EmulatorFault, LaunchError, LaunchResult
from ptxmotion.emulator.atomic_ops import compare_and_swap, fetch_and_apply
from ptxmotion.emulator.initializer import initial_bytes
from ptxmotion.emulator.launch import BUDGET
from ptxmotion.emulator.segments import cut
from ptxmotion.ptx import parse

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
Words = npt.NDArray[np.uint32]
OWN = """
    .reg .b32 %t, %v, %w; .reg .b64 %a, %o; .reg .pred %p, %q;
    ld.param.u64 %a, [x]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %a, %a, %o;
"""


def run(
    body: str,
    threads: int = 32,
    *,
    module: str = "",
    count: int = 0,
    grid: int = 1,
    words: Words | None = None,
    budget: int = BUDGET,
    schedule: str = "order",
) -> tuple[Words, LaunchResult]:
    x = words if words is not None else np.zeros(count or threads, np.uint32)
    text = f"{HEAD}{module}\n.visible .entry k(.param .u64 x)\n{{{OWN}{body}\n}}\n"
    return x, Emulator(budget=budget).load(text).launch("k", grid, threads, [x], schedule=schedule)


def test_arguments_and_results_in_registers() -> None:
    module = ".func (.reg .u32 r) twice(.reg .u32 n) { add.u32 r, n, n; ret; }"
    x, result = run("call (%v), twice, (%t); st.global.u32 [%a], %v; ret;", module=module)
    assert np.array_equal(x, 2 * np.arange(32))
    assert result.findings == []


def test_a_guarded_call_leaves_the_others_alone() -> None:
    module = """.func (.param .b32 r) five() { .reg .b32 %z; mov.u32 %z, 5; st.param.b32 [r], %z; ret; }"""
    body = """
    mov.u32 %v, 1; setp.lt.u32 %p, %t, 10;
    { .param .b32 res; @%p call (res), five; @%p ld.param.b32 %v, [res]; }
    st.global.u32 [%a], %v; ret;"""
    x, result = run(body, module=module)
    assert x.tolist() == [5] * 10 + [1] * 22
    assert result.findings == []


def test_indirect_calls_that_diverge() -> None:
    module = """
.func (.param .b32 r) inc(.param .b32 n)
{ .reg .b32 %z; ld.param.b32 %z, [n]; add.u32 %z, %z, 1; st.param.b32 [r], %z; ret; }
.func (.param .b32 r) dec(.param .b32 n)
{ .reg .b32 %z; ld.param.b32 %z, [n]; sub.u32 %z, %z, 1; st.param.b32 [r], %z; ret; }
.global .u64 functions[2] = {inc, dec};"""
    body = """
    .reg .b64 %f, %s;
    and.b32 %w, %t, 1; mul.wide.u32 %s, %w, 8; mov.u64 %f, functions; add.u64 %s, %s, %f; ld.global.u64 %f, [%s];
    add.u32 %v, %t, 100;
    { .param .b32 arg; .param .b32 res; st.param.b32 [arg], %v;
      prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (res), %f, (arg), prototype_0; ld.param.b32 %v, [res]; }
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, module=module)
    t = np.arange(32)
    assert np.array_equal(x, np.where(t % 2, t + 99, t + 101))


def test_calling_what_is_no_function() -> None:
    body = """
    .reg .b64 %f; mov.u64 %f, 12345;
    { prototype_0 : .callprototype _ (); call %f, (), prototype_0; }
    ret;"""
    with pytest.raises(EmulatorFault, match="calls address 0x3039, which is not the address of a function"):
        run(body)


def test_endless_recursion_ends() -> None:
    module = ".func deeper() { call deeper; ret; }"
    with pytest.raises(EmulatorFault, match="call depth exceeds"):
        run("call deeper; ret;", module=module, threads=1)


def test_early_returns_meet_behind_the_call() -> None:
    module = """
.func (.param .b32 r) clip(.param .b32 n) { .reg .b32 %z; .reg .pred %p; ld.param.b32 %z, [n]; st.param.b32 [r], 7;
    setp.lt.u32 %p, %z, 20; @%p ret; st.param.b32 [r], %z; ret; }"""
    body = """
    { .param .b32 arg; .param .b32 res; st.param.b32 [arg], %t; call (res), clip, (arg); ld.param.b32 %v, [res]; }
    activemask.b32 %w; add.u32 %v, %v, %w; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, module=module)
    t = np.arange(32, dtype=np.uint32)
    assert np.array_equal(x, np.where(t < 20, 7, t) + np.uint32(0xFFFFFFFF))


def test_carry_flag_under_a_guard() -> None:
    body = """
    setp.lt.u32 %p, %t, 16; mov.u32 %v, 0xffffffff; add.cc.u32 %w, %v, 0;
    @%p add.cc.u32 %w, %v, 1; addc.u32 %v, 0, 0; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body)
    assert x.tolist() == [1] * 16 + [0] * 16


def test_vector_registers_and_packing() -> None:
    body = """
    .reg .v2 .b32 %p2; .reg .b64 %d;
    mov.u32 %p2.x, %t; mov.u32 %p2.y, 9; mov.b64 %d, {%p2.x, %p2.y}; mov.b64 {%w, %v}, %d;
    mad.lo.u32 %v, %v, 100, %w; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body)
    assert np.array_equal(x, 900 + np.arange(32))


def test_values_of_128_bits() -> None:
    body = """
    .reg .b128 %q1, %q2, %q3; .reg .b64 %c, %l, %h;
    ld.param.u64 %c, [x]; mov.b64 %l, 5; mov.b64 %h, 6; mov.b128 %q1, {%l, %h};
    atom.global.exch.b128 %q2, [%c], %q1; mov.b64 %l, 7; mov.b128 %q3, {%l, %h};
    atom.global.cas.b128 %q2, [%c], %q1, %q3; mov.b128 {%l, %h}, %q2; st.global.u64 [%c+16], %l; ret;"""
    x, _ = run(body, threads=1, count=8)
    assert x.view(np.uint64).tolist() == [7, 6, 5, 0]


def test_narrow_values_extend() -> None:
    body = """
    .reg .b16 %h; .reg .s64 %l;
    ld.global.s8 %v, [bytes+1]; ld.global.u8 %h, [bytes+1]; cvt.u32.u16 %w, %h; shl.b32 %w, %w, 8; xor.b32 %v, %v, %w;
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, threads=1, module=".global .b8 bytes[3] = {1, 0xF0, 3};")
    assert x[0] == 0xFFFFFFF0 ^ 0xF000


def test_isspacep_and_windows() -> None:
    body = """
    .shared .b32 s; .local .b32 l; .reg .b64 %g; .reg .b32 %r<4>; .reg .pred %p<4>;
    mov.u64 %g, s; cvta.shared.u64 %g, %g; isspacep.shared %p0, %g; selp.u32 %r0, 1, 0, %p0;
    mov.u64 %g, l; cvta.local.u64 %g, %g; isspacep.local %p1, %g; selp.u32 %r1, 2, 0, %p1;
    isspacep.global %p2, %a; selp.u32 %r2, 4, 0, %p2; isspacep.global %p3, %g; selp.u32 %r3, 8, 0, %p3;
    add.u32 %v, %r0, %r1; add.u32 %v, %v, %r2; add.u32 %v, %v, %r3; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, threads=1)
    assert x[0] == 7


def test_reduction_barriers_under_a_guard() -> None:
    body = """
    setp.lt.u32 %p, %t, 32; setp.eq.u32 %q, %t, 3; mov.u32 %v, 77;
    @%p barrier.cta.red.popc.u32 %v, 1, 32, %q;
    st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, threads=64)
    assert x.tolist() == [1] * 32 + [77] * 32


@pytest.mark.parametrize("schedule", ["order", "random", "warps"])
@pytest.mark.parametrize(
    ("threads", "body", "each_four"),
    [
        # Odd lanes exit before the others wait, or while they wait.
        (64, "@%p exit; bar.sync 1, 64; st.global.u32 [%a], 7; ret;", [7, 0, 7, 0]),
        (64, "@%p bra W; barrier.sync 1, 64; st.global.u32 [%a], 7; ret; W: nanosleep.u32 9; exit;", [7, 0, 7, 0]),
        # The last warp has 16 threads, which arrive in two parts.
        (
            48,
            "@%p bra W; barrier.sync 1, 64; st.global.u32 [%a], 7; ret; "
            "W: nanosleep.u32 9; barrier.sync 1, 64; st.global.u32 [%a], 8; ret;",
            [7, 8, 7, 8],
        ),
        (48, "bar.sync 1, 64; st.global.u32 [%a], 7; ret;", [7, 7, 7, 7]),
        (
            64,
            "@%p exit; setp.ne.u32 %q, %w, 2; bar.red.popc.u32 %v, 1, 64, %q; st.global.u32 [%a], %v; ret;",
            [16, 0, 16, 0],
        ),
        (
            64,
            "@%p exit; setp.ne.u32 %q, %w, 1; bar.red.and.pred %q, 1, 64, %q; selp.u32 %v, 5, 6, %q; "
            "st.global.u32 [%a], %v; ret;",
            [5, 0, 5, 0],
        ),
    ],
)
def test_a_warp_counts_as_whole_when_all_its_remaining_threads_have_arrived(
    schedule: str, threads: int, body: str, each_four: list[int]
) -> None:
    """The expected values are those of an H200."""
    own = "and.b32 %w, %t, 3; and.b32 %v, %t, 1; setp.eq.u32 %p, %v, 1;"
    x, _ = run(own + body, threads, schedule=schedule)
    assert x.tolist() == each_four * (threads // 4)


def test_an_arrival_counts_as_whole_when_the_others_have_exited() -> None:
    body = """
    and.b32 %v, %t, 1; setp.eq.u32 %p, %v, 1; @%p exit; setp.lt.u32 %q, %t, 32; @%q bra A;
    bar.sync 1, 64; st.global.u32 [%a], 7; ret;
A:  bar.arrive 1, 64; st.global.u32 [%a], 8; ret;"""
    for schedule in ("order", "random"):
        x, _ = run(body, 64, schedule=schedule)
        assert x.tolist() == [8, 0] * 16 + [7, 0] * 16


def test_syncwarp_in_both_arms() -> None:
    body = """
    setp.lt.u32 %p, %t, 16; mov.u32 %v, 1;
    @%p bra A; bar.warp.sync 0xffffffff; mov.u32 %v, 2; bra B;
A:  bar.warp.sync 0xffffffff; mov.u32 %v, 3;
B:  st.global.u32 [%a], %v; ret;"""
    x, _ = run(body)
    assert x.tolist() == [3] * 16 + [2] * 16


def test_a_spin_on_another_lane_ends() -> None:
    """Since Volta, a thread that spins does not prevent others of its warp from running."""
    body = """
    .reg .b64 %f; ld.param.u64 %f, [x]; setp.eq.u32 %p, %t, 31;
    @%p bra SET;
WAIT: ld.relaxed.gpu.global.u32 %v, [%f+128]; setp.eq.u32 %q, %v, 0; @%q bra WAIT; bra DONE;
SET: st.relaxed.gpu.global.u32 [%f+128], 5; mov.u32 %v, 9;
DONE: st.global.u32 [%a], %v; ret;"""
    x, result = run(body, count=33)
    assert x.tolist() == [5] * 31 + [9, 5]
    assert result.findings == []


@pytest.mark.parametrize(
    ("body", "threads", "words"),
    [
        (
            "setp.eq.u32 %p, %t, 5; @%p bra.uni Q; bar.sync 3; bra.uni E; Q: bar.sync 4; E: bar.sync 5; ret;",
            33,
            "deadlock: threads wait forever: "
            "32 at barrier 3 of block (0,0,0) in line 9: threads (0,0,0) to (4,0,0), (6,0,0) to (32,0,0); "
            "1 at barrier 4 of block (0,0,0) in line 9: thread (5,0,0)",
        ),
        (
            "and.b32 %v, %t, 1; setp.eq.u32 %p, %v, 0; @%p shfl.sync.idx.b32 %v, %t, 0, 31, -1; bar.sync 0; ret;",
            12,
            "6 at shfl.sync.idx.b32 in line 9, whose membermask names lanes that are absent or have another one: "
            "threads (0,0,0), (2,0,0), (4,0,0), (6,0,0), …",
        ),
        ("LOOP: setp.ge.u32 %p, %t, 3; @%p bra LOOP; ret;", 6, "at block LOOP in line 9: threads (3,0,0) to (5,0,0)"),
    ],
)
def test_what_never_ends_names_the_place_and_the_threads(body: str, threads: int, words: str) -> None:
    with pytest.raises(EmulatorFault) as caught:
        run(body, threads=threads, budget=2000)
    assert words in str(caught.value)


def test_the_address_of_an_entry_is_only_a_number() -> None:
    module = ".visible .entry child(.param .u32 n) { .reg .b32 %r; ld.param.u32 %r, [n]; ret; }"
    x, result = run(".reg .b64 %f; mov.u64 %f, child; cvt.u32.u64 %v, %f; st.global.u32 [%a], %v; ret;", module=module)
    assert (x != 0).all()
    assert result.findings == []


@pytest.mark.parametrize(
    ("body", "register"),
    [
        ("mov.u32 %v, 5; @!%p mov.u32 %v, 6; st.global.u32 [%a], %v; ret;", "%p"),
        ("@%p bra E; mov.u32 %v, 6; E: ret;", "%p"),
        ("@%p bar.sync 0; ret;", "%p"),
        ("T: .branchtargets A, B; brx.idx %v, T; A: ret; B: ret;", "%v"),
        ("bar.sync %v; ret;", "%v"),
        ("bar.red.popc.u32 %v, 0, %q; st.global.u32 [%a], %v; ret;", "%q"),
        ("vote.sync.all.pred %p, %q, -1; selp.u32 %v, 1, 0, %p; st.global.u32 [%a], %v; ret;", "%q"),
        ("shfl.sync.idx.b32 %v, %w, 0, 31, -1; st.global.u32 [%a], %v; ret;", "%w"),
    ],
)
def test_a_register_that_was_never_written_is_found_wherever_it_is_read(body: str, register: str) -> None:
    _, result = run(body)
    assert [finding.kind for finding in result.findings] == ["uninitialised-register"]
    assert f"register {register}, which was never written" in str(result.findings[0])


def test_copy_async_zero_fill() -> None:
    body = """
    .shared .align 16 .b32 s[128]; .reg .b32 %s; .reg .b64 %g;
    shl.b32 %s, %t, 2; mov.u32 %w, s; add.u32 %s, %s, %w; and.b32 %v, %t, 1; shl.b32 %v, %v, 2;
    cp.async.ca.shared.global [%s], [%a], 4, %v; cp.async.wait_all; ld.shared.u32 %v, [%s];
    add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;"""
    x, _ = run(body, words=np.full(32, 9, np.uint32))
    assert x.tolist() == [1, 10] * 16


def test_uninitialised_copies_are_no_fault_until_used() -> None:
    body = (
        "setp.eq.u32 %p, %t, 99; @%p mov.u32 %w, 1; mov.u32 %v, %w; selp.u32 %v, %v, 4, %p; st.global.u32 [%a], 1; ret;"
    )
    _, result = run(body)
    assert {finding.kind for finding in result.findings} == {"uninitialised-register"}
    quiet = "setp.eq.u32 %p, %t, 99; @%p mov.u32 %w, 1; mov.u32 %v, %w; st.global.u32 [%a], 1; ret;"
    _, result = run(quiet)
    assert result.findings == []


ADDRESS = {"x": 0x7FA0_0000_1234, "f": 0x1010}


@pytest.mark.parametrize(
    ("declaration", "want"),
    [
        (".global .u32 v = 7;", (7).to_bytes(4, "little")),
        (".global .s16 v[3] = {-1, 0x10};", b"\xff\xff\x10\0\0\0"),
        (".global .f32 v[2] = {1.0, 0f40490fdb};", b"\0\0\x80\x3f\xdb\x0f\x49\x40"),
        (".global .f64 v = 0d3FF0000000000000;", (0x3FF0 << 48).to_bytes(8, "little")),
        (".global .u8 v[2][3] = {{1,2,3},{4}};", b"\1\2\3\4\0\0"),
        (".global .u64 v = x;", ADDRESS["x"].to_bytes(8, "little")),
        (".global .u64 v[2] = {generic(x)+8, f};", (ADDRESS["x"] + 8).to_bytes(8, "little") + b"\x10\x10" + bytes(6)),
        (".global .u8 v[4] = {0xFF(x), 0xFF00(x), 1, 0xFF000000000(generic(x))};", b"\x34\x12\1\xfa"),
        (".global .v2 .u16 v = {1, 2};", b"\1\0\2\0"),
    ],
)
def test_the_bytes_of_initializers(declaration: str, want: bytes) -> None:
    variable = parse(HEAD + ".global .u32 x;\n.func f() { ret; }\n" + declaration).variables[-1]
    assert initial_bytes(variable, ADDRESS.__getitem__, len(want)) == want


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        (".global .u8 v[2] = {1, 2, 3};", "more values than elements"),
        (".global .u32 v = what(x);", "is not an address"),
    ],
)
def test_wrong_initializers_are_refused(declaration: str, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        Emulator().load(HEAD + ".global .u32 x;\n" + declaration)


def plus(old: Words, value: Words) -> Words:
    return old + value


def count_up(old: Words, limit: Words) -> Words:
    return np.where(old >= limit, 0, old + 1).astype(np.uint32)


def test_atomics_serve_lanes_in_order() -> None:
    random = np.random.default_rng(0)
    where = random.integers(0, 7, 300)
    values = random.integers(0, 100, 300).astype(np.uint32)
    for combine, is_associative in ((plus, True), (count_up, False)):
        data, slow = np.arange(7, dtype=np.uint32), np.arange(7, dtype=np.uint32)
        got = fetch_and_apply(data, where, values, combine, is_associative)
        for lane, (at, value) in enumerate(zip(where, values, strict=True)):
            assert got[lane] == slow[at]
            slow[at] = combine(slow[at : at + 1], value)[0]
        assert np.array_equal(data, slow)


def test_compare_and_swap_serves_lanes_in_order() -> None:
    random = np.random.default_rng(1)
    where = random.integers(0, 5, 400)
    compare = random.integers(0, 4, 400).astype(np.uint32)
    replace = random.integers(0, 4, 400).astype(np.uint32)
    data, slow = np.zeros(5, np.uint32), np.zeros(5, np.uint32)
    got = compare_and_swap(data, where, compare, replace)
    for lane, at in enumerate(where):
        assert got[lane] == slow[at]
        if slow[at] == compare[lane]:
            slow[at] = replace[lane]
    assert np.array_equal(data, slow)


def test_joins_are_immediate_post_dominators() -> None:
    kernel = parse(
        HEAD
        + """.entry k() { .reg .pred %p; .reg .b32 %r;
    @%p bra B; mov.u32 %r, 1; bra C; B: @%p bra D; mov.u32 %r, 2; D: mov.u32 %r, 3; C: mov.u32 %r, 4;
    L: @%p bra L; mov.u32 %r, 5; ret; }"""
    ).kernel("k")
    segments = cut(kernel)
    branches = [s for s in segments if s.kind == "bra" and s.targets[0] is not s.targets[1]]
    joins = [s.join.body[0].operands[1].text for s in branches if s.join is not None]
    assert joins == ["4", "3", "5"]
