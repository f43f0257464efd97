"""The emulator's interface: arguments, refusals, counts, traces, the backend."""

from __future__ import annotations

import numpy as np
import pytest
from ptxmotion.emulator import Emulator, EmulatorFault, LaunchError, UnsupportedInstruction
from ptxmotion.emulator.backend import EmulatorBackend
from scale_kernel import HEAD, SCALE


def entry(body: str, params: str = ".param .u64 x", module: str = "") -> str:
    return f"{HEAD}{module}\n.visible .entry k({params})\n{{\n{body}\n}}\n"


def test_arrays_come_back_in_place() -> None:
    x = np.arange(1000, dtype=np.float32)
    Emulator().load(SCALE).launch("scale", 8, 128, [x, np.float32(3), np.uint32(1000)])
    assert np.array_equal(x, np.arange(1000, dtype=np.float32) * 3)


def test_one_array_twice_is_one_buffer() -> None:
    body = """
    .reg .b64 %a, %b; .reg .b32 %v;
    ld.param.u64 %a, [x]; ld.param.u64 %b, [y];
    ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%b+4], %v; ret;"""
    x = np.array([5, 0], np.uint32)
    Emulator().load(entry(body, ".param .u64 x, .param .u64 y")).launch("k", 1, 1, [x, x])
    assert x.tolist() == [5, 6]


TWO = """
    .reg .b64 %a, %b; .reg .b32 %v;
    ld.param.u64 %a, [x]; ld.param.u64 %b, [y];
    ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%b+4], %v; ret;"""


def test_two_views_of_the_same_memory_are_one_buffer() -> None:
    x = np.array([5, 0], np.uint32)
    Emulator().load(entry(TWO, ".param .u64 x, .param .u64 y")).launch("k", 1, 1, [x.view(np.float32), x[:]])
    assert x.tolist() == [5, 6]


def test_interleaved_views_are_two_buffers() -> None:
    x = np.array([5, 0, 0, 0], np.uint32)
    Emulator().load(entry(TWO, ".param .u64 x, .param .u64 y")).launch("k", 1, 1, [x[::2], x[1::2]])
    assert x.tolist() == [5, 0, 0, 6]


def read_only() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    array = np.zeros(2, np.uint32)
    array.setflags(write=False)
    return array


Y = np.zeros(3, np.uint32)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([Y[:2], Y[1:]], "the array for parameter 'y' overlaps the array of another parameter"),
        ([np.zeros(2, ">u4"), Y], "parameter 'x' cannot take an array of >u4"),
        ([np.array([None, None]), Y], "parameter 'x' cannot take an array of Python objects"),
        ([Y, read_only()], "the array for parameter 'y' is read-only"),
    ],
)
def test_arrays_that_cannot_come_back_are_refused(args: list[object], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        Emulator().load(entry(TWO, ".param .u64 x, .param .u64 y")).launch("k", 1, 1, args)


def test_a_refused_launch_frees_the_arguments_before_the_refused_one() -> None:
    device = Emulator()
    module = device.load(entry(TWO, ".param .u64 x, .param .u64 y"))
    module.launch("k", 1, 1, [Y, Y.copy()])
    objects = list(device.space().objects)
    with pytest.raises(LaunchError, match="read-only"):
        module.launch("k", 1, 1, [Y, read_only()])
    assert device.space().objects == objects


X = np.zeros(4, np.float32)
GOOD = [X, np.float32(1), np.uint32(4)]


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "args", "shared", "words"),
    [
        ("nothing", 1, 1, GOOD, 0, "no kernel 'nothing'; the module has: scale"),
        ("scale", 1, 1, GOOD[:2], 0, "takes 3 arguments, not 2"),
        ("scale", 1, 1, [X, np.float64(1), np.uint32(4)], 0, "parameter 'a' has 4 bytes, the argument has 8"),
        ("scale", 1, 1, [X, np.int32(1), np.uint32(4)], 0, "parameter 'a' is .f32, the argument is int32"),
        ("scale", 1, 1, [X, X, np.uint32(4)], 0, "cannot take a ndarray"),
        ("scale", 1, 1, [X, "2", np.uint32(4)], 0, "cannot take a str"),
        ("scale", 1, 1, [X, 1.0, 2**33], 0, "does not fit"),
        ("scale", 0, 1, GOOD, 0, "is empty"),
        ("scale", (1, 65536), 1, GOOD, 0, "larger than"),
        ("scale", 1, 1025, GOOD, 0, "larger than"),
        ("scale", 1, (32, 33), GOOD, 0, "1056 threads, more than 1024"),
        ("scale", 1, (1, 1, 65), GOOD, 0, "larger than"),
        ("scale", 1, (1, 1, 1, 1), GOOD, 0, "one to three dimensions"),
        ("scale", 1, 1, GOOD, 300_000, "300000 bytes of shared memory"),
        ("scale", 1, 1, GOOD, -1, "-1 bytes"),
    ],
)
def test_a_wrong_launch_is_refused_in_one_line(
    kernel: str, grid: int, block: int, args: list[object], shared: int, words: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        Emulator().load(SCALE).launch(kernel, grid, block, args, shared)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(LaunchError, match="none of order, random, warps"):
        Emulator().load(SCALE).launch("scale", 1, 1, GOOD, schedule="fast")


def test_unsupported_is_named_before_anything_runs() -> None:
    body = """
    .reg .b64 %a; .reg .b32 %r<5>;
    ld.param.u64 %a, [x];
    st.global.u32 [%a], 1;
    wgmma.fence.sync.aligned;
    ret;"""
    x = np.zeros(1, np.uint32)
    with pytest.raises(UnsupportedInstruction) as caught:
        Emulator().load(entry(body)).launch("k", 1, 32, [x])
    assert "wgmma.fence.sync.aligned" in str(caught.value)
    assert caught.value.items[0][1] == 11
    assert x[0] == 0


def test_clusters_are_refused() -> None:
    text = entry(".reg .b32 %r; mov.u32 %r, %cluster_nctarank; ret;")
    Emulator().load(text.replace("u64 x)\n", "u64 x) .reqnctapercluster 1, 1, 1\n")).launch("k", 2, 1, [X])
    module = Emulator().load(text.replace("u64 x)\n", "u64 x) .explicitcluster .reqnctapercluster 2, 1, 1\n"))
    with pytest.raises(UnsupportedInstruction, match=r"reqnctapercluster 2, 1, 1 \(a cluster of several blocks\)"):
        module.launch("k", 2, 1, [X])


def test_reqntid_and_maxntid() -> None:
    for directive, words in ((".reqntid 64", "is not the kernel's"), (".maxntid 16", "larger than the kernel's")):
        ptx = f"{HEAD}.visible .entry k() {directive} {{ ret; }}"
        with pytest.raises(LaunchError, match=words):
            Emulator().load(ptx).launch("k", 1, 32, [])


def test_undefined_extern_variable() -> None:
    ptx = entry(".reg .b32 %r; ld.global.u32 %r, [elsewhere]; ret;", module=".extern .global .u32 elsewhere;")
    with pytest.raises(LaunchError, match="'elsewhere' is declared but not defined"):
        Emulator().load(ptx).launch("k", 1, 1, [X])


def test_keep_going_collects_and_skips_bad_lanes() -> None:
    x = np.zeros(100, np.float32)
    x[:] = 1
    module = Emulator().load(SCALE)
    with pytest.raises(EmulatorFault):
        module.launch("scale", 1, 128, [x, np.float32(2), np.uint32(128)])
    x[:] = 1
    result = module.launch("scale", 1, 128, [x, np.float32(2), np.uint32(128)], keep_going=True)
    assert {finding.kind for finding in result.findings} == {"out-of-bounds"}
    assert all(finding.count == 28 for finding in result.findings)
    assert (x == 2).all()


def test_a_launch_counts_instructions_and_branches() -> None:
    x = np.ones(70, np.float32)
    counts = Emulator().load(SCALE).launch("scale", 2, 64, [x, np.float32(2), np.uint32(70)]).counts
    # Four warps run 9 instructions: the head and `ret`. Three of them, one of which diverges, run the 5 of the body.
    assert counts.warp_instructions == 4 * 9 + 3 * 5 + 4
    assert counts.thread_instructions == 128 * 9 + 70 * 5 + 128
    assert (counts.branches_executed, counts.branches_diverged) == (4, 1)
    assert counts.global_load_requests == counts.global_store_requests == 3
    assert counts.global_load_sectors == 4 + 4 + 1
    assert counts.by_class["ld.global"] == [3, 70]
    assert 0 < counts.active_lane_ratio < 1


@pytest.mark.parametrize(("step", "conflicts"), [(1, 0), (2, 1), (3, 0), (8, 7), (32, 31), (0, 0)])
def test_bank_conflicts_are_counted(step: int, conflicts: int) -> None:
    body = f"""
    .reg .b32 %t, %a, %v; .shared .align 4 .b8 s[4096];
    mov.u32 %t, %tid.x; mul.lo.u32 %a, %t, {4 * step}; mov.u32 %v, s; add.u32 %a, %a, %v;
    st.shared.u32 [%a], 7; ret;"""
    counts = Emulator().load(entry(body)).launch("k", 1, 32, [X]).counts
    assert (counts.shared_requests, counts.shared_bank_conflicts) == (1, conflicts)


def test_a_trace_has_all_accesses() -> None:
    x = np.ones(40, np.float32)
    result = Emulator().load(SCALE).launch("scale", 2, 32, [x, np.float32(2), np.uint32(40)], trace=True)
    assert result.trace is not None
    accesses = result.trace.accesses
    assert len(accesses) == 80
    writes = accesses[accesses["write"]]
    first = writes["address"].min()
    where = (writes["address"] - first) // 4
    assert np.array_equal(np.sort(where), np.arange(40))
    assert np.array_equal(writes["block"] * 32 + writes["thread"], where)
    assert set(accesses["bytes"]) == {4}


def test_a_race_of_a_later_lane_at_one_address() -> None:
    """Thread 0 of both blocks reads a word that block 0 wrote. Only the second of the two lanes has a conflict."""
    body = """
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d;
    ld.param.u64 %d, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    add.u32 %r2, %r0, %r1;
    setp.eq.u32 %p0, %r0, 0;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 st.global.u32 [%d], %r0;
    @%p0 ld.global.u32 %r3, [%d];
    ret;
    """
    found = Emulator().load(entry(body)).launch("k", 2, 64, [np.zeros(1, np.uint32)]).findings
    assert [finding.kind for finding in found] == ["race"]
    assert "by block (1,0,0) thread (0,0,0)" in str(found[0])


def test_progress_is_reported_within_a_batch_and_after_it() -> None:
    body = """
    .reg .b32 %r<3>; .reg .pred %p; mov.u32 %r0, %ctaid.x; add.u32 %r0, %r0, 1; mul.lo.u32 %r0, %r0, 100;
    LOOP: sub.u32 %r0, %r0, 1; setp.ne.u32 %p, %r0, 0; @%p bra LOOP; ret;"""
    calls: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        calls.append((done, total))

    Emulator(lanes=64).load(entry(body)).launch("k", 4, 32, [np.zeros(1)], progress=tell)
    assert {total for _, total in calls} == {4}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls.count((0, 4)) > 1
    assert calls[-1] == (4, 4)


@pytest.mark.parametrize("threads", [4, 64])
@pytest.mark.parametrize("reads", ["AB", "BA"])
@pytest.mark.parametrize("write", ["st.global.u32 [%rd3], 1;", "red.global.add.u32 [%rd3], 1;"])
def test_a_race_with_the_reader_before_the_last_one(threads: int, reads: str, write: str) -> None:
    """Each thread reads its neighbour's word and its own word, in both orders, and writes its own."""
    code = {"A": "ld.global.u32 %r2, [%rd3+4];", "B": "ld.global.u32 %r3, [%rd3];"}
    body = f""".reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    {code[reads[0]]}
    {code[reads[1]]}
    {write}
    ret;"""
    found = Emulator().load(entry(body)).launch("k", 1, threads, [np.zeros(threads + 1, np.uint32)]).findings
    assert [finding.kind for finding in found] == ["race"]


#: All threads write 5 to a word: at one instruction, or the last thread at a second one.
_SAME_WRITES = {
    "one instruction": "st.global.u32 [%rd1], 5;",
    "two instructions": "@!%p0 st.global.u32 [%rd1], 5; @%p0 st.global.u32 [%rd1], 5;",
}


@pytest.mark.parametrize("blocks, threads", [(1, 4), (1, 64), (4, 1), (3, 40)])
@pytest.mark.parametrize("writes", _SAME_WRITES)
@pytest.mark.parametrize("access", ["st.global.u32 [%rd1], 7;", "ld.global.u32 %r4, [%rd1];"])
def test_a_race_with_the_writer_before_the_last_one(blocks: int, threads: int, writes: str, access: str) -> None:
    """All threads write to a word. Then only the thread that wrote it last accesses it."""
    body = f""".reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p0;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    setp.eq.u32 %p0, %r1, {blocks * threads - 1};
    {_SAME_WRITES[writes]}
    @%p0 {access}
    ret;"""
    found = Emulator().load(entry(body)).launch("k", blocks, threads, [np.zeros(1, np.uint32)]).findings
    assert {finding.kind for finding in found} == {"race", "same-value-race"}


@pytest.mark.parametrize("blocks, threads", [(1, 4), (1, 64), (4, 1), (3, 40)])
@pytest.mark.parametrize("write", ["red.global.add.u32 [%rd1], 1;", "st.volatile.global.u32 [%rd1], %r1;"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("access", ["st.global.u32 [%rd1], 7;", "ld.global.u32 %r4, [%rd1];"])
def test_a_race_with_the_strong_writer_before_the_last_one(
    blocks: int, threads: int, write: str, count: int, access: str
) -> None:
    """All threads write to a word, at one instruction or two. Then only the last thread accesses it. A reduction has
    no result, so this thread cannot know which other threads were there."""
    body = f""".reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p0;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    setp.eq.u32 %p0, %r1, {blocks * threads - 1};
    {write if count == 1 else f"@!%p0 {write} @%p0 {write}"}
    @%p0 {access}
    ret;"""
    found = Emulator().load(entry(body)).launch("k", blocks, threads, [np.zeros(1, np.uint32)]).findings
    assert {finding.kind for finding in found} == {"race"}


def test_the_last_of_all_threads_resets_a_counter() -> None:
    """The result of the atomic is the evidence that all other threads are done."""
    body = """.reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %p0;
    ld.param.u64 %rd1, [x];
    atom.global.add.u32 %r1, [%rd1], 1;
    setp.eq.u32 %p0, %r1, 7;
    @%p0 st.global.u32 [%rd1], 0;
    ret;"""
    for schedule in ("order", "random"):
        x = np.zeros(1, np.uint32)
        assert not Emulator().load(entry(body)).launch("k", 8, 1, [x], schedule=schedule).findings
        assert x[0] == 0


@pytest.mark.parametrize("blocks, kinds", [(1, {"same-value-race"}), (2, {"race", "same-value-race"})])
def test_a_barrier_orders_only_the_writers_of_its_block(blocks: int, kinds: set[str]) -> None:
    """All threads write 5 to a word. After a barrier, the last thread reads it."""
    body = f""".reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r1, %r2, 64, %r1;
    setp.eq.u32 %p0, %r1, {blocks * 64 - 1};
    setp.eq.u32 %p1, %r2, {blocks - 1};
    @!%p1 st.global.u32 [%rd1], 5;
    @%p1 st.global.u32 [%rd1], 5;
    bar.sync 0;
    @%p0 ld.global.u32 %r4, [%rd1];
    ret;"""
    found = Emulator().load(entry(body)).launch("k", blocks, 64, [np.zeros(1, np.uint32)]).findings
    assert {finding.kind for finding in found} == kinds


def test_a_parameter_of_a_function_is_set() -> None:
    """Also if a copy of a register that may be unset is assigned to it later."""
    function = """.func (.reg .u32 a, .reg .u32 b) f(.reg .pred flag, .reg .u32 n)
    {
        .reg .pred %p, %q;
        mov.u32 a, 1;
        mov.u32 b, 2;
        setp.gt.u32 %p, n, 100;
        @flag add.u32 a, a, 1;
        @%p setp.eq.u32 %q, n, 5;
        @%p mov.pred flag, %q;
        @flag add.u32 b, b, 1;
        ret;
    }"""
    body = """.reg .pred %p; .reg .u32 %r<4>; .reg .b64 %d;
    ld.param.u64 %d, [x];
    mov.u32 %r1, 7;
    setp.eq.u32 %p, %r1, 7;
    call (%r2, %r3), f, (%p, %r1);
    st.global.v2.u32 [%d], {%r2, %r3};
    ret;"""
    x = np.zeros(2, np.uint32)
    assert Emulator().load(entry(body, module=function)).launch("k", 1, 1, [x]).findings == []
    assert x.tolist() == [2, 3]


def test_random_schedules_show_a_race() -> None:
    body = """
    .reg .b64 %a; .reg .b32 %v;
    ld.param.u64 %a, [x];
    ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;"""
    seen: set[int] = set()
    module = Emulator().load(entry(body))
    for seed in range(12):
        x = np.zeros(1, np.uint32)
        module.launch("k", 16, 1, [x], schedule="random", seed=seed, checks=False)
        seen.add(int(x[0]))
    assert len(seen) > 2
    x, y = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    module.launch("k", 16, 1, [x], schedule="random", seed=5, checks=False)
    module.launch("k", 16, 1, [y], schedule="random", seed=5, checks=False)
    assert x[0] == y[0]


def test_module_variables_keep_their_values() -> None:
    body = ".reg .b32 %v; ld.global.u32 %v, [count]; add.u32 %v, %v, 2; st.global.u32 [count], %v; ret;"
    module = Emulator().load(entry(body, module=".visible .global .u32 count = 40;"))
    module.launch("k", 1, 1, [X])
    assert module.variable("count", np.uint32).tolist() == [42]


def test_memory_does_not_grow_with_the_program() -> None:
    """A program that uses two thousand registers one after another has only a few arrays at a time."""
    lines = [".reg .b32 %r<2001>; .reg .b64 %a; .reg .pred %p; ld.param.u64 %a, [x]; mov.u32 %r0, %tid.x;"]
    lines += [f"add.u32 %r{k + 1}, %r{k}, {k}; setp.eq.u32 %p, %r{k + 1}, 77; @%p bra L{k}; L{k}:" for k in range(2000)]
    lines += ["st.global.u32 [%a], %r2000; ret;"]
    from ptxmotion.emulator import engine

    most = 0
    segment = engine.Engine._segment  # pyright: ignore[reportPrivateUsage]

    def watched(self: engine.Engine, c: engine.Cohort) -> None:
        nonlocal most
        segment(self, c)
        most = max(most, len(c.env) + sum(len(file) for file in self.batch.files))

    x = np.zeros(1, np.uint32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.Engine, "_segment", watched)
        Emulator().load(entry("\n".join(lines))).launch("k", 1, 1, [x])
    assert x[0] == sum(range(2000))
    assert most < 100


class TestBackend:
    def test_a_host_program(self) -> None:
        backend = EmulatorBackend()
        kernel = backend.load(SCALE).kernel("scale")
        buffer = backend.allocate(400)
        backend.write(buffer, np.arange(100, dtype=np.float32))
        for _ in range(2):
            backend.launch(kernel, 1, 128, 0, [buffer, np.float32(2), np.uint32(100)])
        backend.synchronize()
        assert np.array_equal(backend.read(buffer, np.float32, 100), np.arange(100, dtype=np.float32) * 4)
        assert backend.counts.launches == 2
        assert backend.findings == []
        backend.fill(buffer, 0xFF)
        assert backend.read(buffer, np.uint8, 3, offset=397).tolist() == [255] * 3
        backend.free(buffer)
        with pytest.raises(LaunchError, match="freed"):
            backend.write(buffer, np.zeros(1))

    def test_unwritten_buffers_are_found_out(self) -> None:
        backend = EmulatorBackend()
        kernel = backend.load(SCALE).kernel("scale")
        buffer = backend.allocate(400)
        backend.launch(kernel, 1, 32, 0, [buffer, np.float32(2), np.uint32(10)])
        assert [finding.kind for finding in backend.findings] == ["uninitialised-memory"]

    def test_bounds(self) -> None:
        backend = EmulatorBackend()
        buffer = backend.allocate(8)
        with pytest.raises(LaunchError, match="outside of buffer"):
            backend.read(buffer, np.float64, 1, offset=4)
        with pytest.raises(LaunchError, match="buffer of -1 bytes"):
            backend.allocate(-1)
