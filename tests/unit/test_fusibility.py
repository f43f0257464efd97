"""The synchronization that a pair of launches needs, and what makes their fusion illegal."""

import pytest
from ptxmotion.transforms.kernel_fusion.fused_kernel import CannotFuse, build
from ptxmotion.transforms.kernel_fusion.fusibility import Buffer, Extent, Extents, LaunchSite, Scalar, decide
from ptxmotion.transforms.kernel_fusion.host_values import HostValues, Signs
from small_launches import launch
from suite_pairs import adjacent_pairs

STORE = "add.s32 %f0, %i, 5; st.global.u32 [%p], %f0;"
LOAD = "ld.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;"
BOUND = "setp.ge.s32 %z0, %i, %n; @%z0 ret; "
#: Leaves in %p the address of the element of the next thread of the block.
NEIGHBOUR = (
    "add.s32 %r0, %t, 1; and.b32 %r0, %r0, 15; mad.lo.s32 %r0, %c, %w, %r0; "
    "mul.wide.u32 %x, %r0, 4; add.s64 %p, %a, %x; "
)


def kind(first: LaunchSite, second: LaunchSite, **options: bool) -> str:
    return decide(first, second, **options).kind


PAIRS = {
    "the same element": (STORE, LOAD, "thread"),
    "the same element behind the same bound": (BOUND + STORE, BOUND + LOAD, "thread"),
    "write after read": ("ld.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;", STORE, "thread"),
    "write after write": (STORE, STORE, "thread"),
    "the next element": (STORE, "ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;", "grid"),
    "the one before, written over": ("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;", STORE, "grid"),
    "one element of each block": (
        "mul.wide.u32 %x, %c, 4; add.s64 %p, %a, %x; setp.ne.s32 %z1, %t, 0; @%z1 ret; st.global.u32 [%p], %i;",
        "mul.wide.u32 %x, %c, 4; add.s64 %p, %a, %x; ld.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;",
        "block",
    ),
    "one element of each block by its first thread": (
        "mul.wide.u32 %x, %c, 4; add.s64 %p, %a, %x; setp.ne.s32 %z1, %t, 0; @%z1 ret; st.global.u32 [%p], %i;",
        "mul.wide.u32 %x, %c, 4; add.s64 %p, %a, %x; setp.eq.s32 %z1, %t, 0; @%z1 ld.global.u32 %f1, [%p];",
        "thread",
    ),
    "even elements, odd elements": (
        "shl.b32 %r0, %i, 1; mul.wide.s32 %x, %r0, 4; add.s64 %p, %a, %x; st.global.u32 [%p], %i;",
        "shl.b32 %r0, %i, 1; mul.wide.s32 %x, %r0, 4; add.s64 %p, %a, %x; ld.global.u32 %f1, [%p+4];",
        "thread",
    ),
    "another half of the buffer": (STORE, "ld.global.u32 %f1, [%p+192]; st.global.u32 [%q], %f1;", "thread"),
    "a wider load": (STORE, "shl.b64 %x, %x, 1; add.s64 %p, %a, %x; ld.global.v2.u32 {%f1, %f2}, [%p];", "grid"),
    "the address in the buffer itself": (
        STORE,
        "ld.global.u32 %r0, [%p]; mul.wide.u32 %x, %r0, 4; add.s64 %d0, %a, %x; ld.global.u32 %f1, [%d0];",
        "grid",
    ),
    "sums that commute": (
        "red.global.add.u32 [%a], %i;",
        "red.global.add.u32 [%a], %t;",
        "thread",
    ),
    "sums of which nobody asks what was there": (
        "atom.global.add.u32 %f0, [%a], %i;",
        "red.global.add.u32 [%a], %t;",
        "thread",
    ),
    "sums of which somebody asks": (
        "atom.global.add.u32 %f0, [%a], %i; st.global.u32 [%q], %f0;",
        "red.global.add.u32 [%a], %t;",
        "grid",
    ),
    "sums that are read": ("red.global.add.u32 [%a], %i;", "ld.global.u32 %f0, [%a]; st.global.u32 [%q], %f0;", "grid"),
    "sums that are whole for a block only": (
        "red.relaxed.cta.global.add.u32 [%a], %i;",
        "red.relaxed.cta.global.add.u32 [%a], %t;",
        "grid",
    ),
    "sums of floats": ("red.global.add.f32 [%a], %f0;", "red.global.add.f32 [%a], %f1;", "grid"),
    "a sum and a maximum": ("red.global.add.u32 [%a], %i;", "red.global.max.u32 [%a], %t;", "grid"),
}


@pytest.mark.parametrize("what", PAIRS)
def test_the_kind_of_a_pair(what: str) -> None:
    first, second, wanted = PAIRS[what]
    found = decide(launch(first), launch(second))
    assert found.kind == wanted, found.reasons
    assert found.reasons


def test_reading_the_next_thread_in_the_block_needs_a_block_barrier() -> None:
    # The analysis does not know the value of the masked index, but it knows that the index is in the row of the block.
    found = decide(launch(STORE), launch(NEIGHBOUR + "ld.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;"))
    assert found.kind == "block"
    assert "by threads of one block" in found.reasons[0]


def test_a_loop_over_rows_stays_within_the_thread() -> None:
    rows = """
    mov.u32 %r1, 0;
    $LOOP:
    mad.lo.s32 %r2, %r1, 48, %i;
    mul.wide.s32 %x, %r2, 4;
    add.s64 %p, %a, %x;
    {access}
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %z1, %r1, 4;
    @%z1 bra $LOOP;
    """
    first = launch(rows.replace("{access}", "st.global.u32 [%p], %r1;"))
    second = launch(rows.replace("{access}", "ld.global.u32 %f1, [%p];"))
    assert kind(first, second) == "thread"
    # With more threads than elements in a row, the rows of blocks overlap.
    assert (
        kind(*(LaunchSite(s.kernel, s.module, (4, 1, 1), s.block, 0, s.arguments) for s in (first, second))) == "grid"
    )


def test_a_loop_with_the_stride_of_the_grid_needs_a_bound() -> None:
    loop = """
    mov.u32 %r0, %nctaid.x;
    mul.lo.s32 %r0, %r0, %w;
    $LOOP:
    mul.wide.s32 %x, %i, 4;
    add.s64 %p, %a, %x;
    {access}
    add.s32 %i, %i, %r0;
    setp.lt.s32 %z1, %i, %n;
    @%z1 bra $LOOP;
    """
    first = launch(loop.replace("{access}", "st.global.u32 [%p], %i;"), n="n", grid="g")
    second = launch(loop.replace("{access}", "ld.global.u32 %f1, [%p];"), n="n", grid="g")
    assert kind(first, second) == "grid"


def test_different_buffers_and_offsets() -> None:
    assert kind(launch(STORE), launch(LOAD, a="c", b="d")) == "thread"
    shifted = Buffer("a", 4)
    assert kind(launch(STORE), launch(LOAD, a=shifted)) == "grid"
    assert kind(launch(STORE, a=shifted), launch(LOAD, a=shifted)) == "thread"
    assert kind(launch(STORE, a=Buffer("a", "4 * n")), launch(LOAD, a=Buffer("a", "n * 4"))) == "thread"
    assert kind(launch(STORE, a=Buffer("a", "m")), launch(LOAD)) == "grid"
    assert kind(launch(STORE), launch(LOAD, a=Scalar(None))) == "grid"


def test_host_variables_as_extents_and_arguments() -> None:
    grid = "(n + 255) // 256"
    first, second = (
        launch(BOUND + STORE, n="n", grid=grid, block=256),
        launch(BOUND + LOAD, n="n", grid=grid, block=256),
    )
    assert kind(first, second) == "thread"
    # The number of blocks is unknown. With 2^24 or more, the index may wrap around.
    first, second = launch(STORE, grid="g", block=256), launch(LOAD, grid="g", block=256)
    assert kind(first, second) == "grid"
    checked = decide(first, second, may_check=True)
    assert checked.kind == "thread"
    assert checked.checks
    assert all(eval(check, {}, {"g": 1 << 20}) for check in checked.checks)
    assert not all(eval(check, {}, {"g": 1 << 25}) for check in checked.checks)


def test_rows_and_columns_of_a_matrix() -> None:
    body = """
    mov.u32 %r0, %ctaid.y;
    mov.u32 %r1, %ntid.y;
    mov.u32 %r2, %tid.y;
    mad.lo.s32 %r3, %r0, %r1, %r2;
    mad.lo.s32 %r4, %r3, %n, %i;
    mul.wide.s32 %x, %r4, 4;
    add.s64 %p, %a, %x;
    """
    first, second = body + "st.global.u32 [%p], %i;", body + "ld.global.u32 %f1, [%p];"

    def pair(rows: Extent, columns: Extent, grid: Extents) -> list[LaunchSite]:
        bounded = [each if isinstance(each, int) else Scalar(each, (8, 4096)) for each in (columns, rows)]
        passed = bounded[1] if isinstance(bounded[1], Scalar) else Scalar(bounded[1])
        return [launch(each, n=bounded[0], b=passed, grid=grid, block=(8, 4, 1)) for each in (first, second)]

    assert kind(*pair(8, 16, (2, 2, 1))) == "thread"
    assert kind(*pair(8, 15, (2, 2, 1))) == "grid"
    # The number of columns is a multiple of the width of the block, because the grid is computed from it.
    assert kind(*pair("m", "n", ("n // 8", "m // 4", 1))) == "thread"
    assert kind(*pair("m", "n", ("n // 4", "m // 4", 1))) == "grid"


def test_a_promise_of_the_user() -> None:
    pair = launch(STORE), launch("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;")
    assert kind(*pair, assume_independent=True) == "thread"
    assert "promises" in decide(*pair, assume_independent=True).reasons[0]


REFUSED: dict[str, tuple[str, dict[str, str]]] = {
    "calls 'vprintf'": (
        "{ .param .b64 p0; .param .b64 p1; .param .b32 r0; st.param.b64 [p0], %a; st.param.b64 [p1], %b; "
        "call.uni (r0), vprintf, (p0, p1); ld.param.b32 %f0, [r0]; }",
        {"head": ".extern .func (.param .b32 r) vprintf (.param .b64 x, .param .b64 y);"},
    ),
    "is an unknown instruction": ("frobnicate.u32 %f0, %i;", {}),
    "completes later": (
        "mov.u32 %r0, tile; cp.async.ca.shared.global [%r0], [%p], 4; cp.async.wait_all;",
        {"declarations": ".shared .align 16 .b8 tile[64];"},
    ),
    "through a texture": ("tex.1d.v4.u32.s32 {%f0, %f1, %f2, %f3}, [%d0, {%i}];", {}),
    "may wait for another block": (
        "$WAIT: ld.volatile.global.u32 %f0, [%b]; setp.eq.s32 %z1, %f0, 0; @%z1 bra $WAIT;",
        {},
    ),
    "may not be reached by all threads": ("setp.gt.s32 %z1, %t, 3; @%z1 bra $SKIP; bar.sync 0; $SKIP:", {}),
    "may not be reached by all threads of a block": (
        "mov.b64 %d1, {%tid.x, %n}; cvt.u32.u64 %f0, %d1; setp.gt.s32 %z1, %f0, 3; @%z1 bra $SKIP; bar.sync 0; $SKIP:",
        {},
    ),
    "'mov.b64 %d1, {%n, %cluster_ctarank};' reads a property of the launch": (
        "mov.b64 %d1, {%n, %cluster_ctarank}; st.global.u64 [%p], %d1;",
        {},
    ),
    "another barrier": ("bar.sync 1;", {}),
    "a part of the block": ("bar.sync 0, 64;", {}),
    "arrives": ("bar.arrive 0, 64;", {}),
    "has .reqnctapercluster": ("", {"directives": ".reqnctapercluster 2"}),
    "reads a property of the launch": ("mov.u32 %f0, %cluster_ctarank;", {}),
    "shared with other kernels": (
        "ld.global.u32 %f0, [counter]; st.global.u32 [%p], %f0;",
        {"head": ".visible .global .align 4 .u32 counter;"},
    ),
    "reads beyond its parameter": ("ld.param.u64 %d1, [odd_a+8]; st.global.u32 [%d1], %i;", {}),
    "shared with its other launches": (
        "atom.global.add.u32 %f0, [counter], 1; st.global.u32 [%p], %f0;",
        {"declarations": ".global .align 4 .u32 counter;"},
    ),
    "may be written": (
        "st.global.u32 [table], %i;",
        {"head": ".global .align 4 .u32 table[2] = {1, 2};"},
    ),
    "requires blocks": ("", {"directives": ".reqntid 32, 1, 1"}),
    "has an endless loop": ("$L: bra $L;", {}),
    "griddepcontrol": ("griddepcontrol.wait;", {}),
}


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("is_second", [False, True])
def test_kernels_that_are_never_fused(reason: str, is_second: bool) -> None:
    body, parts = REFUSED[reason]
    odd, plain = launch(body, name="odd", **parts), launch(STORE)
    found = decide(plain, odd, assume_independent=True) if is_second else decide(odd, plain, assume_independent=True)
    assert found.kind == "none"
    assert any(reason in each for each in found.reasons), found.reasons


TABLES = ".global .align 8 .u32 table[2] = {1, 2};\n.global .align 8 .u32 other[2] = {1, 2};\n"
WRITER = (
    ".entry writer(.param .u64 out, .param .u32 m) {{ .reg .pred %q; .reg .b32 %m<4>; .reg .b64 %w<8>; "
    "ld.param.u64 %w0, [out]; ld.param.u32 %m0, [m]; mov.u64 %w1, table; mov.u64 %w2, other; setp.eq.u32 %q, %m0, 0; "
    "{0} ret; }}"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("@%q bra E; mov.u64 %w2, table; E: st.global.u32 [%w2], 5;", "none"),
        ("@%q bra E; mov.u64 %w2, table; E: st.global.u64 [%w0], %w2;", "none"),
        ("@%q mov.u64 %w2, %w1; st.global.u32 [%w2], 5;", "none"),
        ("st.global.v2.u64 [%w0], {%w2, %w1};", "none"),
        ("mov.b64 {%m1, %m2}, %w1; mov.b64 %w3, {%m1, %m2}; st.global.u32 [%w3], 5;", "none"),
        ("atom.global.add.u32 %m1, [table], 5;", "none"),
        ("ld.global.u32 %m1, [table]; st.global.u32 [%w0], %m1;", "thread"),
        ("ld.global.v2.u32 {%m1, %m2}, [%w1]; st.global.u32 [%w2], %m1;", "thread"),
    ],
)
def test_a_table_that_another_kernel_may_write(code: str, expected: str) -> None:
    """A fused kernel has a copy of the table, so nobody may write it."""
    head = TABLES + WRITER.format(code)
    reader = launch("ld.global.u32 %f0, [table]; st.global.u32 [%q], %f0;", head=head)
    assert kind(reader, launch(STORE)) == expected


def test_a_table_whose_address_is_the_value_of_a_variable() -> None:
    read = "ld.global.u32 %f0, [table]; st.global.u32 [%q], %f0;"
    for value, expected in (("table", "none"), ("generic(table)+4", "none"), ("other", "thread")):
        head = f"{TABLES}.global .align 8 .u64 pointers[2] = {{0, {value}}};"
        assert kind(launch(read, head=head), launch(STORE)) == expected


def test_only_the_second_kernel_depends_on_which_lanes_arrive_together() -> None:
    body = "activemask.b32 %f0; st.global.u32 [%q], %f0;"
    assert kind(launch(body), launch(STORE)) == "thread"
    assert kind(launch(STORE), launch(body)) == "none"


BACKWARDS = (
    "sub.s32 %r0, 15, %t; mad.lo.s32 %r0, %c, %w, %r0; mul.wide.u32 %x, %r0, 4; add.s64 %p, %a, %x; "
    "ld.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;"
)
SYNC = "bar.warp.sync -1; "
VOTE = "setp.gt.s32 %z1, %i, 9; vote.sync.ballot.b32 %f2, %z1, -1; "


@pytest.mark.parametrize(
    ("first", "second", "block", "expected"),
    [
        (BOUND + SYNC + STORE, LOAD, 16, "thread"),
        (BOUND + SYNC + STORE, SYNC + LOAD, 16, "none"),
        (BOUND + VOTE + STORE, VOTE + LOAD, 16, "none"),
        (BOUND + "redux.sync.add.u32 %f2, %t, -1; " + STORE, "bar.sync 0; " + LOAD, 16, "none"),
        ("setp.ge.s32 %z0, %t, 9; @!%z0 bar.warp.sync -1; " + STORE, SYNC + LOAD, 16, "none"),
        ("setp.ge.s32 %z0, %t, 9; @%z0 bra $SKIP; " + SYNC + "$SKIP: " + STORE, SYNC + LOAD, 16, "none"),
        (SYNC + STORE, SYNC + LOAD, 16, "thread"),
        (VOTE + BOUND + STORE, SYNC + LOAD, 16, "thread"),
        (STORE, BACKWARDS, 16, "block"),
        (BOUND + SYNC + STORE, BACKWARDS, 16, "none"),
        # With blocks of 64 threads, all lanes of a warp take the branch, or none.
        ("setp.ge.s32 %z0, %t, 32; @%z0 bra $SKIP; " + SYNC + "$SKIP: " + STORE, SYNC + LOAD, (64, 1, 1), "thread"),
        ("setp.ge.s32 %z0, %t, 33; @%z0 bra $SKIP; " + SYNC + "$SKIP: " + STORE, SYNC + LOAD, (64, 1, 1), "none"),
    ],
)
def test_lanes_that_others_wait_for_do_not_wait_behind_the_first_body(
    first: str, second: str, block: Extent | Extents, expected: str
) -> None:
    """A lane that has returned is not waited for. In a fused kernel it goes on, to the next wait."""
    found = decide(launch(first, block=block), launch(second, block=block))
    assert found.kind == expected, found.reasons
    assert expected != "none" or "wait for lanes that wait behind the first body" in found.reasons[0]


def test_a_barrier_for_shared_memory_counts_as_a_wait() -> None:
    tile = ".shared .align 4 .b8 tile[40000];"
    own = "st.shared.u32 [tile], 1; "
    first = launch(BOUND + SYNC + own + STORE, name="one", declarations=tile)
    second = launch(own + LOAD, name="two", declarations=tile)
    assert decide(first, second).kind == "thread"
    with pytest.raises(CannotFuse, match="wait for the shared memory"):
        build(first, second, decide(first, second), name="both")


def test_block_shapes_must_match() -> None:
    assert "different shapes" in decide(launch(STORE), launch(LOAD, block=32)).reasons[0]
    assert kind(launch(STORE, block="b"), launch(LOAD, block="b")) == "thread"
    assert "the grids differ" in decide(launch(STORE), launch(LOAD, grid=2)).reasons[0]
    assert kind(launch(STORE), launch(LOAD, grid=2), may_pad=True) == "thread"


def test_addresses_of_32_bits_are_refused() -> None:
    site = launch(STORE)
    site.module.address_size = None
    assert "64 bits" in decide(site, launch(LOAD)).reasons[0]


def test_a_function_that_reads_the_grid() -> None:
    head = ".func (.param .b32 r) f() {{ .reg .b32 %v; mov.u32 %v, {0}; st.param.b32 [r], %v; ret; }}"
    call = "{ .param .b32 r; call.uni (r), f, (); ld.param.b32 %f0, [r]; } st.global.u32 [%p], %f0;"
    assert kind(launch(call, head=head.format("%ctaid.x")), launch(LOAD)) == "thread"
    assert kind(launch(call, head=head.format("%nctaid.x")), launch(LOAD)) == "none"
    pair = head.replace("mov.u32 %v, {0};", ".reg .b64 %w; mov.b64 %w, {{%tid.x, {0}}}; cvt.u32.u64 %v, %w;")
    assert kind(launch(call, head=pair.format("%ctaid.x").replace("}}", "}")), launch(LOAD)) == "thread"
    assert kind(launch(call, head=pair.format("%nctaid.x").replace("}}", "}")), launch(LOAD)) == "none"


def test_a_function_with_a_variable_in_global_memory() -> None:
    head = (
        ".func (.param .b32 r) f() { .global .u32 g; .reg .b32 %v; ld.global.u32 %v, [g]; st.param.b32 [r], %v; ret; }"
    )
    call = "{ .param .b32 r; call.uni (r), f, (); ld.param.b32 %f0, [r]; } st.global.u32 [%p], %f0;"
    assert kind(launch(call, head=head), launch(LOAD)) == "none"


def test_a_function_that_accesses_shared_memory() -> None:
    head = (
        ".shared .u32 s;\n.func (.param .b32 r) f() { .reg .b32 %v; ld.shared.u32 %v, [s]; st.param.b32 [r], %v; ret; }"
    )
    call = "{ .param .b32 r; call.uni (r), f, (); ld.param.b32 %f0, [r]; } st.global.u32 [%p], %f0;"
    assert kind(launch(call, head=head), launch(LOAD)) == "none"


def test_constants_of_a_module_may_be_read() -> None:
    body = "mul.wide.u32 %x, %t, 4; mov.u64 %d0, table; add.s64 %d0, %d0, %x; ld.global.u32 %f0, [%d0]; "
    first = launch(body + "st.global.u32 [%p], %f0;", head=".global .align 4 .u32 table[16] = {1, 2};")
    assert kind(first, launch(LOAD)) == "thread"


def test_a_kernel_with_scopes_is_not_changed() -> None:
    site = launch("{ .reg .b32 %r0; mov.u32 %r0, 5; st.global.u32 [%p], %r0; }")
    assert site.kernel.has_scopes
    assert kind(site, launch(LOAD)) == "thread"
    assert site.kernel.has_scopes


def test_srad_needs_the_whole_grid() -> None:
    (pair,) = adjacent_pairs("rodinia/srad_v2", tries=0)
    assert (pair.first, pair.second, pair.worst.kind) == ("srad_cuda_1", "srad_cuda_2", "grid")
    # The first kernel writes the coefficients, the second one reads those of adjacent rows and columns.
    assert any("perhaps by threads of different blocks" in reason for reason in pair.worst.reasons)


def test_bounds_of_a_product() -> None:
    """A bound of ``n * m`` from a launch is used for the product, although its factors are unknown."""
    values = HostValues({"n * m": (0, 2**31 - 1), "n * m - k": (None, -1)})
    signs = Signs(values, may_check=False)
    product = values.poly("n*m")
    for positive in (product + 1, product * 4 + 1, -product + 2**31, -product * 4 + 2**33):
        assert signs.is_positive(positive)
    values.poly("n * m - k")
    assert signs.is_positive(values.poly("k") - product)
    for open_ in (product, -product + 2**31 - 1, values.poly("n") + 1):
        assert not signs.is_positive(open_)
