"""The bytes that accesses touch, as expressions of the launch, for single shapes of indices and loops."""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.access_ranges import AccessRange, AccessRanges
from ptxmotion.contract import Holds, Launch, Range, holds
from ptxmotion.ptx import parse

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n, .param .u32 m, .param .u64 w)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>, %n, %m, %i, %j;
    .reg .b64 %rd<20>, %a, %w;
    ld.param.u64 %a, [p];
    ld.param.u32 %n, [n];
    ld.param.u32 %m, [m];
    ld.param.u64 %w, [w];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %i, %r1, %r2, %r3;
    mov.u32 %j, %tid.y;
"""
TAIL = "\nEND: ret;\n}\n"
ADDRESS = "mul.wide.s32 %rd1, %r9, 4; add.s64 %rd2, %a, %rd1; st.global.u32 [%rd2], %r9;"
BELOW_N = "setp.ge.s32 %p1, %i, %n; @%p1 bra END;"
BASE = 1 << 20


def range_of(body: str) -> AccessRange | None:
    module = parse(HEAD + body + TAIL)
    kernel = module.kernel("k")
    ranges = Facts(kernel, module).get(AccessRanges)
    (store,) = [instr for instr in kernel.instructions() if instr.form.op.base == "st"]
    return ranges.of(store)


def bounds(body: str, n: int, m: int = 1, w: int = 1, grid: int = 2, block: tuple[int, int] = (4, 1)) -> object:
    """(first byte, byte behind the last) relative to the pointer; ``wraps`` if a need does not hold; ``unknown``."""
    found = range_of(body)
    if found is None:
        return "unknown"
    launch = Launch((BASE, n, m, w), (grid, 1, 1), (*block, 1))
    if not all(holds(Holds(need), launch) for need in found.needs):
        return "wraps"
    first, last = Range(found.pointer, found.start, found.stop).addresses(launch)
    return first - BASE, last - BASE


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("mov.u32 %r9, %i;", (0, 20)),
        ("add.s32 %r9, %i, 3;", (12, 32)),
        ("sub.s32 %r9, %n, %i;", (4, 24)),
        ("mad.lo.s32 %r9, %i, %m, %j;", (0, 4 * (4 * 7 + 1) + 4)),
        ("and.b32 %r9, %i, 3;", (0, 16)),
        ("shr.u32 %r9, %i, 1;", (0, 16)),
        ("and.b32 %r8, %n, -4; add.s32 %r9, %i, %r8;", (16, 36)),
        ("selp.b32 %r9, %i, 9, %p1;", (0, 40)),
        ("ld.global.u8 %r9, [%a];", (0, 1024)),
        ("ld.global.u32 %r9, [%a];", "unknown"),
    ],
)
def test_indices_below_a_bound(index: str, expected: object) -> None:
    """``if (i < n)`` with n = 5 and m = 7, for 8 threads in x and 2 in y."""
    assert bounds(BELOW_N + index + ADDRESS, 5, 7, block=(4, 2)) == expected


def test_without_a_bound_all_threads_count() -> None:
    assert bounds("mov.u32 %r9, %i;" + ADDRESS, 5) == (0, 32)


def test_two_bounded_indices_in_one_sum() -> None:
    """``i*n + j`` with i and j below n: the threads beyond the bounds do not count."""
    body = BELOW_N + "setp.ge.s32 %p2, %j, %n; @%p2 bra END; mad.lo.s32 %r9, %i, %n, %j;" + ADDRESS
    assert bounds(body, 3, block=(32, 8)) == (0, 4 * 9)


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("mov.u32 %r9, 0; L: BODY add.s32 %r9, %r9, 1; setp.lt.s32 %p3, %r9, %m; @%p3 bra L;", (0, 28)),
        ("mov.u32 %r9, 1; L: BODY add.s32 %r9, %r9, 3; setp.le.s32 %p3, %r9, %m; @%p3 bra L;", (4, 32)),
        ("mov.u32 %r9, 0; L: setp.ge.s32 %p3, %r9, %m; @%p3 bra END; BODY add.s32 %r9, %r9, 2; bra L;", (0, 28)),
        ("mov.u32 %r9, %m; L: BODY add.s32 %r9, %r9, -1; setp.gt.s32 %p3, %r9, 0; @%p3 bra L;", (4, 32)),
        ("mov.u32 %r9, 0; L: BODY add.s32 %r9, %r9, 1; setp.ne.s32 %p3, %r9, %m; @%p3 bra L;", (0, 28)),
        ("mov.u32 %r9, 0; L: BODY add.s32 %r9, %r9, 2; setp.ne.s32 %p3, %r9, %m; @%p3 bra L;", "wraps"),
        ("mov.u32 %r9, %r3; L: BODY add.s32 %r9, %r9, %r2; setp.lt.s32 %p3, %r9, %m; @%p3 bra L;", "unknown"),
        ("mov.u32 %r9, 0; L: BODY add.s32 %r9, %r9, %j; setp.ne.s32 %p3, %r9, %m; @%p3 bra L;", "unknown"),
    ],
)
def test_ranges_of_accesses_in_loops(loop: str, expected: object) -> None:
    """With m = 7. A counter that misses its limit in steps of two would run until it wraps around."""
    assert bounds(loop.replace("BODY", ADDRESS), 5, 7) == expected


@pytest.mark.parametrize(
    ("body", "n", "m", "expected"),
    [
        # The product does not fit into 32 bits.
        (BELOW_N + "mul.lo.s32 %r9, %i, %m;" + ADDRESS, 5, 1 << 29, "wraps"),
        (BELOW_N + "mul.lo.s32 %r9, %i, %m;" + ADDRESS, 5, 1 << 28, (0, 16 * (1 << 28) + 4)),
        # A negative stride.
        (BELOW_N + "mul.lo.s32 %r9, %i, %m;" + ADDRESS, 5, (1 << 32) - 2, (-32, 4)),
        # The index is larger than 2^31 - 1.
        ("add.s32 %r9, %i, %m;" + ADDRESS, 5, (1 << 31) - 4, "wraps"),
        # A counter that steps over the largest number.
        (
            "mov.u32 %r9, 0; L:" + ADDRESS + "add.s32 %r9, %r9, 4; setp.lt.s32 %p3, %r9, %m; @%p3 bra L;",
            5,
            (1 << 31) - 1,
            "wraps",
        ),
    ],
)
def test_arithmetic_that_wraps_around(body: str, n: int, m: int, expected: object) -> None:
    assert bounds(body, n, m) == expected


def test_an_offset_that_wraps_around_64_bits_is_refused() -> None:
    """``a + 4*i*w`` with w = -1: the range begins below 0 as an integer of 64 bits."""
    body = BELOW_N + "cvt.s64.s32 %rd3, %i; mul.lo.s64 %rd4, %rd3, %w; shl.b64 %rd5, %rd4, 2; add.s64 %rd6, %a, %rd5;"
    body += "st.global.u32 [%rd6], %i;"
    assert bounds(body, 5, w=3) == (0, 4 * 4 * 3 + 4)
    found = range_of(body)
    assert found is not None
    launch = Launch((BASE, 5, 1, (1 << 64) - 1), (2, 1, 1), (4, 1, 1))
    assert not holds(Holds(found.stop), launch)


@pytest.mark.parametrize(
    "offset",
    ["%w", "%rd4", "%rd5"],  # a scalar, a sum of it and an index, and a product of it and an index
)
def test_a_range_that_no_buffer_contains_is_refused(offset: str) -> None:
    """An index that is read from memory, beside numbers of the launch."""
    body = "ld.global.u32 %r9, [%a]; mul.wide.u32 %rd1, %r9, 4; cvt.u64.u32 %rd3, %i; add.s64 %rd4, %w, %rd3;"
    body += f"mad.lo.s64 %rd5, %rd3, 8, %w; add.s64 %rd2, %a, %rd1; add.s64 %rd2, %rd2, {offset};"
    body += "st.global.u32 [%rd2], %r9;"
    assert range_of(BELOW_N + body) is None
    assert range_of((BELOW_N + body).replace("ld.global.u32", "ld.global.u8")) is not None


def test_a_guard_that_no_thread_passes_needs_nothing() -> None:
    """``if (m > 0)`` is false in all threads, so that the counter may be anything."""
    body = "setp.lt.s32 %p1, %m, 1; @%p1 bra END; mov.u32 %r9, 0; L:" + ADDRESS
    body += "add.s32 %r9, %r9, 1; setp.ne.s32 %p3, %r9, %m; @%p3 bra L;"
    assert bounds(body, 5, 7) == (0, 28)
    assert bounds(body, 5, 0) != "wraps"
