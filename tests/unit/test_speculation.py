"""Which loads may run where the program would not have run them, and why others may not."""

import pytest
from growth import assert_near_linear
from ptxmotion.analysis import Facts
from ptxmotion.analysis.effects import REASONS
from ptxmotion.analysis.memory.dereferences import Dereferences
from ptxmotion.analysis.memory.speculation import may_speculate, speculation_places
from ptxmotion.ptx import parse

HEADER = """\
.version 8.8
.target sm_90
.address_size 64
.global .align 8 .b8 table[64];
.extern .global .align 8 .b8 unsized[];
.const .align 4 .b8 coef[32];
.visible .entry k(.param .u64 p, .param .u32 n, .param .align 4 .b8 s[12]){maxntid}
{{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<99>;
	.shared .align 16 .b8 sa[256];
	.local .align 4 .b8 depot[32];
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	setp.lt.u32 %p1, %r2, %r1;
	setp.lt.u32 %p2, %r1, 9;
	mov.u32 %r3, sa;
"""


def answers(body: str, opcode: str = "ld.global.u32", *, maxntid: str = "") -> dict[str, str]:
    """For the last load of the opcode: what is said of the end of each labelled block, and of the first, ``0``."""
    module = parse(f"{HEADER.format(maxntid=maxntid)}{body}\n}}\n")
    kernel = module.kernels[0]
    facts = Facts(kernel, module)
    load = [instr for instr in kernel.instructions() if instr.form.text.startswith(opcode)][-1]
    found: dict[str, str] = {}
    proven = {at for at, block in enumerate(kernel.blocks) if may_speculate(facts, load, block).kind == "proven"}
    assert speculation_places(facts, load, range(len(kernel.blocks))) == proven
    for number, block in enumerate(kernel.blocks):
        if block.label is not None or number == 0:
            answer = may_speculate(facts, load, block)
            assert answer.reason in REASONS or not answer.reason
            assert bool(answer) == (answer.kind != "refused")
            detail = answer.guard.text if answer.guard is not None else answer.reason
            found[block.label.text if block.label is not None else "0"] = " ".join([answer.kind, detail]).strip()
    return found


LOAD = "ld.global.u32 %r9, [%rd3];"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Behind a test: only where that holds.
        (f"@%p1 bra A; ret; A: {LOAD} ret;", "guarded @%p1"),
        (f"@!%p1 bra A; ret; A: {LOAD} ret;", "guarded @!%p1"),
        (f"@%p1 bra A; {LOAD} A: ret;", "guarded @!%p1"),
        # On both ways; and by a store, or an atomic.
        (f"@%p1 bra A; {LOAD} ret; A: {LOAD} ret;", "proven"),
        (f"@%p1 bra A; {LOAD} ret; A: st.global.u32 [%rd3], %r1; ret;", "proven"),
        (f"@%p1 bra A; {LOAD} ret; A: atom.global.add.u32 %r8, [%rd3], 1; ret;", "proven"),
        (f"@%p1 bra A; mov.u32 %r7, 1; A: {LOAD} ret;", "proven"),
        # Before it already.
        (f"ld.global.u32 %r8, [%rd3]; @%p1 bra A; ret; A: {LOAD} ret;", "proven"),
        # Between two others of the same base, but not beside them.
        ("ld.global.u32 %r8, [%rd3]; st.global.u32 [%rd3+8], %r1; @%p1 bra A; ret; A: ld.global.u32 %r9, [%rd3+4];",
         "proven"),
        ("ld.global.u32 %r8, [%rd3]; st.global.u32 [%rd3+8], %r1; @%p1 bra A; ret; A: ld.global.u32 %r9, [%rd3+12];",
         "guarded @%p1"),
        # A path that returns, traps, waits, calls an unknown function, or loops endlessly does not reach this point.
        (f"@%p1 bra A; @%p2 exit; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; trap; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; bar.sync 0; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; bar.warp.sync -1; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; unknown.op; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; B: bra.uni B; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; B: @%p2 bra B; A: {LOAD} ret;", "guarded @%p1"),
        (f"@%p1 bra A; membar.gl; A: {LOAD} ret;", "proven"),
        # A load in a loop's body before any test runs in every turn; one behind the loop waits for its end.
        (f"L: {LOAD} @%p1 bra L; ret;", "proven"),
        (f"L: @%p1 bra L; {LOAD} ret;", "refused may-fault"),
        # A guarded access is not certain to happen.
        (f"@%p2 ld.global.u32 %r8, [%rd3]; @%p1 bra A; ret; A: {LOAD} ret;", "guarded @%p1"),
        # Another space, or an address that is another value there.
        ("ld.u32 %r8, [%rd3]; @%p1 bra A; ret; A: ld.global.u32 %r9, [%rd3]; ret;", "guarded @%p1"),
        (f"brx.idx %r1, T; T: .branchtargets A, B; A: {LOAD} B: ret;", "refused may-fault"),
    ],
)  # fmt: skip
def test_at_the_first_fork(body: str, expected: str) -> None:
    assert answers(body)["0"] == expected


def test_what_is_global_may_be_read_by_a_generic_address() -> None:
    body = "ld.global.u32 %r8, [%rd3]; @%p1 bra A; ret; A: ld.u32 %r9, [%rd3]; ret;"
    assert answers(body, "ld.u32")["0"] == "proven"


def test_a_wide_access_aligns_narrow_ones_and_not_the_other_way_round() -> None:
    wide = "ld.global.v2.u32 {%r7, %r8}, [%rd3]; @%p1 bra A; ret; A: ld.global.u32 %r9, [%rd3+4]; ret;"
    assert answers(wide)["0"] == "proven"
    narrow = (
        "ld.global.u32 %r7, [%rd3]; ld.global.u32 %r8, [%rd3+4]; @%p1 bra A; ret;"
        "A: @%p2 bra B; ret; B: ld.global.v2.u32 {%r9, %r10}, [%rd3]; ret;"
    )
    assert answers(narrow, "ld.global.v2.u32")["0"] == "refused misaligned"


def test_the_address_of_the_next_turn_is_another_one() -> None:
    body = f"""mov.u32 %r5, 0;
    L:  mad.wide.u32 %rd3, %r5, 4, %rd1;
        @%p1 bra C;
    B:  {LOAD}
    C:  add.u32 %r5, %r5, 1;
        setp.lt.u32 %p3, %r5, %r1;
    D:  @%p3 bra L;
        ret;"""
    found = answers(body)
    assert found["B"] == "proven"
    assert found["L"] == "guarded @!%p1"
    assert found["C"] == found["D"] == "refused may-fault"


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("ld.shared.u32 %r9, [sa+252]", "proven"),
        ("ld.shared.u32 %r9, [sa+256]", "guarded @%p1"),
        ("ld.shared.u32 %r9, [sa+250]", "guarded @%p1"),
        ("ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [sa+240]", "proven"),
        ("ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [sa+244]", "guarded @%p1"),
        ("ld.global.u32 %r9, [table+60]", "proven"),
        ("ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [table+32]", "guarded @%p1"),  # aligned to 8 only
        ("ld.global.u32 %r9, [unsized]", "guarded @%p1"),
        ("ld.const.u32 %r9, [coef+28]", "proven"),
        ("ld.const.u32 %r9, [coef+32]", "guarded @%p1"),
        ("ld.local.u32 %r9, [depot+28]", "proven"),
        ("ld.param.u32 %r9, [s+8]", "proven"),
        ("ld.volatile.global.u32 %r9, [table]", "refused ordered"),
        ("atom.global.add.u32 %r9, [table], 1", "refused ordered"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [sa]", "refused convergent"),
        ("tex.1d.v4.u32.s32 {%r9, %r10, %r11, %r12}, [%rd1, {%r2}]", "refused not-a-load"),
    ],
)
def test_which_loads_of_variables_cannot_fault(load: str, expected: str) -> None:
    assert answers(f"@%p1 bra A; ret; A: {load}; ret;", load.partition(" ")[0])["0"] == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("and.b32 %r5, %r1, 63; shl.b32 %r6, %r5, 2; add.s32 %r7, %r3, %r6;", "proven"),
        ("and.b32 %r5, %r1, 63; mad.lo.s32 %r7, %r5, 4, %r3;", "proven"),
        ("and.b32 %r5, %r1, 31; mad.lo.s32 %r6, %r5, 4, %r3; add.s32 %r7, %r6, 128;", "proven"),
        ("and.b32 %r5, %r1, 31; mad.lo.s32 %r6, %r5, -4, %r3; add.s32 %r7, %r6, 124;", "proven"),
        ("and.b32 %r5, %r1, 31; mad.lo.s32 %r6, %r5, -4, %r3; add.s32 %r7, %r6, 120;", "guarded @%p1"),
        ("and.b32 %r5, %r1, 127; mad.lo.s32 %r7, %r5, 4, %r3;", "guarded @%p1"),
        ("and.b32 %r5, %r1, 127; mad.lo.s32 %r7, %r5, 2, %r3;", "guarded @%p1"),  # in bounds, and odd halves
        ("and.b32 %r5, %r1, 126; mad.lo.s32 %r7, %r5, 2, %r3;", "proven"),
        ("mad.lo.s32 %r7, %r1, 4, %r3;", "guarded @%p1"),
        ("shr.u32 %r5, %r1, 26; mad.lo.s32 %r7, %r5, 4, %r3;", "proven"),
        ("mul.lo.u32 %r5, %r1, 1073741824; add.s32 %r7, %r3, %r5;", "guarded @%p1"),  # wraps around
        ("mad.lo.s32 %r7, %r2, 4, %r3;", "guarded @%p1"),
    ],
)
def test_indices_that_their_bits_bound(index: str, expected: str) -> None:
    assert answers(f"{index} @%p1 bra A; ret; A: ld.shared.u32 %r9, [%r7]; ret;", "ld.shared")["0"] == expected


def test_the_number_of_threads_bounds_an_index() -> None:
    body = "mad.lo.s32 %r7, %r2, 4, %r3; @%p1 bra A; ret; A: ld.shared.u32 %r9, [%r7]; ret;"
    assert answers(body, "ld.shared", maxntid=" .maxntid 64, 1, 1")["0"] == "proven"
    assert answers(body, "ld.shared", maxntid=" .maxntid 65, 1, 1")["0"] == "guarded @%p1"


def test_memory_may_be_freed_in_a_call() -> None:
    function = ".func f() { ret; }\n.visible .entry"
    body = f"{HEADER.format(maxntid='')}ld.global.u32 %r8, [%rd3]; call f; @%p1 bra A; ret; A: {LOAD} ret;\n}}\n"
    module = parse(body.replace(".visible .entry", function))
    kernel = module.kernel("k")
    load = [instr for instr in kernel.instructions() if instr.form.text == "ld.global.u32"][-1]
    assert may_speculate(Facts(kernel, module), load, kernel.blocks[0]).kind == "guarded"


def test_speculation_takes_near_linear_time() -> None:
    def kernel_of(size: int) -> Facts:
        lines = [
            f"L{number}: ld.global.u32 %r{9 + number % 80}, [%rd3+{4 * number}];\n"
            f"\tsetp.lt.u32 %p3, %r{9 + number % 80}, 7;\n\t@%p3 bra L{number + 1};\n\tst.global.u32 [%rd3], %r1;\n"
            for number in range(size)
        ]
        module = parse(f"{HEADER.format(maxntid='')}{''.join(lines)}L{size}: ret;\n}}\n")
        facts = Facts(module.kernels[0], module)
        assert facts.memory
        return facts

    assert_near_linear(kernel_of, Dereferences, 400)
