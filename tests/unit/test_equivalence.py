"""The comparison of two kernels: pointers from any source, the inputs, and when the result *same* is justified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ptxmotion.harness.verification.equivalence import (
    DIFFERENT,
    INCONCLUSIVE,
    SAME,
    Comparison,
    Verdict,
    compare,
    verdict,
)
from ptxmotion.harness.verification.generated_inputs import Signature, generate
from ptxmotion.harness.verification.input_regions import Regions
from ptxmotion.harness.verification.input_runs import Device
from ptxmotion.harness.verification.pointer_search import find_pointers
from ptxmotion.ptx import Instr, Module, PtxError, parse

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .f64 %e<4>; .reg .b64 %d<16>;\n"
    "mov.u32 %r0, %tid.x;\nmul.wide.u32 %d0, %r0, 4;\n"
)


def entry(params: str, body: str, before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k({params})\n{{\n{REGISTERS}{body}\nret;\n}}\n"


def judged(first: str, second: str) -> Verdict:
    return verdict("k", list(compare(parse(first), parse(second))))


#: Code that computes a pointer in different ways. Each leaves it in %d2; lane i stores to element i.
POINTERS = {
    "a member of a structure": (".param .align 8 .b8 s[24]", "ld.param.u64 %d2, [s+8];", ""),
    "a structure read through its address": (
        ".param .align 8 .b8 s[24]",
        "mov.u64 %d1, s; add.u64 %d1, %d1, 16; ld.param.u64 %d2, [%d1];",
        "",
    ),
    "passed to a function": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; { .param .b64 x; .param .b64 y; st.param.b64 [x], %d1;"
        " call (y), f, (x); ld.param.b64 %d2, [y]; }",
        ".func (.param .b64 r) f(.param .b64 q) { .reg .b64 %z; ld.param.b64 %z, [q]; st.param.b64 [r], %z; ret; }",
    ),
    "loaded from memory": (".param .u64 a", "ld.param.u64 %d1, [a]; ld.global.u64 %d2, [%d1+24];", ""),
    "loaded from memory twice": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; ld.global.u64 %d1, [%d1]; ld.global.u64 %d2, [%d1+8];",
        "",
    ),
    "one for each thread": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; mul.wide.u32 %d3, %r0, 8; add.u64 %d1, %d1, %d3; ld.global.u64 %d2, [%d1];",
        "",
    ),
    "through local memory": (
        ".param .u64 a",
        ".local .align 8 .b8 l[16]; ld.param.u64 %d1, [a]; st.local.u64 [l+8], %d1; ld.local.u64 %d2, [l+8];",
        "",
    ),
    "through shared memory": (
        ".param .u64 a",
        ".shared .align 8 .b8 s[4096]; ld.param.u64 %d1, [a]; mul.wide.u32 %d3, %r0, 8; cvt.u32.u64 %r1, %d3;"
        " mov.u32 %r2, s; and.b32 %r1, %r1, 4088; add.u32 %r2, %r2, %r1; bar.sync 0;"
        " st.shared.u64 [%r2], %d1; ld.shared.u64 %d2, [%r2];",
        "",
    ),
    "behind an and": (".param .u64 a", "ld.param.u64 %d1, [a]; and.b64 %d2, %d1, -16;", ""),
    "in two halves": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; mov.b64 {%r1, %r2}, %d1; mov.b64 %d2, {%r1, %r2};",
        "",
    ),
    "beyond 16,384 elements": (".param .u64 a", "ld.param.u64 %d2, [a]; add.u64 %d2, %d2, 4000000;", ""),
    "before the pointer": (".param .u64 a", "ld.param.u64 %d2, [a]; sub.u64 %d2, %d2, 8192;", ""),
    "in a module variable": ("", "ld.global.u64 %d2, [g];", ".visible .global .align 8 .u64 g;"),
    "in constant memory": ("", "ld.const.u64 %d2, [g+8];", ".const .align 8 .b8 g[16];"),
    "one in each third word, before the pointer": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; sub.u64 %d1, %d1, 12288; mul.wide.u32 %d3, %r0, 24; add.u64 %d1, %d1, %d3;"
        " ld.global.u64 %d2, [%d1+8];",
        "",
    ),
    "one in each third word, far behind the pointer": (
        ".param .u64 a",
        "ld.param.u64 %d1, [a]; add.u64 %d1, %d1, 4000000; mul.wide.u32 %d3, %r0, 24; add.u64 %d1, %d1, %d3;"
        " ld.global.u64 %d2, [%d1+8];",
        "",
    ),
    "behind an xor": (".param .u64 a", "ld.param.u64 %d1, [a]; xor.b64 %d1, %d1, 64; mov.u64 %d2, %d1;", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTERS)
def test_what_is_stored_through_any_pointer_is_compared(name: str) -> None:
    params, address, before = POINTERS[name]
    body = address + "\nadd.u64 %d4, %d2, %d0;\nld.global.u32 %r5, [%d4];\nadd.u32 %r5, %r5, %r0;\n"
    first = entry(params, body + "st.global.u32 [%d4], %r5;", before)
    assert judged(first, first).outcome == SAME
    assert judged(first, entry(params, body, before)).outcome == DIFFERENT
    other = body.replace("add.u32 %r5, %r5, %r0;", "add.u32 %r5, %r5, %r0; add.u32 %r5, %r5, 1;")
    assert judged(first, entry(params, other + "st.global.u32 [%d4], %r5;", before)).outcome == DIFFERENT


def pointers_of(text: str) -> tuple[Signature, Regions]:
    module = parse(text)
    kernel = module.entries[0]
    regions = Regions()
    signature = Signature.of(kernel, regions)
    find_pointers(Device(module), kernel, signature, regions, {}, float("inf"))
    return signature, regions


def test_pointers_are_found_by_running() -> None:
    body = (
        "ld.param.u64 %d1, [s+8]; ld.param.u64 %d2, [s]; ld.param.u32 %r1, [s+16]; ld.global.u64 %d3, [%d1+16];\n"
        "add.u64 %d4, %d3, %d0; cvt.u32.u64 %r2, %d2; add.u32 %r2, %r2, %r1; st.global.u32 [%d4], %r2;"
    )
    signature, regions = pointers_of(entry(".param .align 8 .b8 s[24]", body))
    assert signature.certain == set()
    assert [signature.name_of(word) for word in signature.pointers] == ["parameter 's'+8"]
    (word,) = signature.pointers
    assert regions.regions[regions.region("parameter", word)].pointers == {2}


def test_a_64_bit_size_is_no_pointer() -> None:
    body = (
        "ld.param.u64 %d1, [a]; ld.param.u64 %d2, [n]; setp.ge.u64 %p1, %d0, %d2; @%p1 bra E;\n"
        "add.u64 %d4, %d1, %d0; st.global.u32 [%d4], %r0; E:"
    )
    signature, _ = pointers_of(entry(".param .u64 a, .param .u64 n", body))
    assert [signature.name_of(word) for word in signature.pointers] == ["parameter 'a'"]


# --- inconclusive ------------------------------------------------------------------------------------------------


def test_nothing_written_is_inconclusive() -> None:
    text = entry(".param .u64 a", "ld.param.u64 %d1, [a]; ld.global.u32 %r1, [%d1];")
    found = judged(text, text)
    assert found.outcome == INCONCLUSIVE
    assert found.undecided[0].endswith("undecided: the first run changes nothing that is compared")


def test_storing_what_was_there_compares_nothing() -> None:
    body = "ld.param.u64 %d1, [a]; add.u64 %d1, %d1, %d0; ld.global.u32 %r1, [%d1]; "
    stored = entry(".param .u64 a", body + "st.global.u32 [%d1], %r1;")
    assert judged(stored, entry(".param .u64 a", body)).outcome == INCONCLUSIVE


def test_skipped_accesses_are_inconclusive() -> None:
    body = (
        "ld.param.u64 %d1, [a]; add.u64 %d1, %d1, %d0; st.global.u32 [%d1], %r0; mov.u64 %d2, 100;"
        " st.global.u32 [%d2], %r0;"
    )
    text = entry(".param .u64 a", body)
    found = judged(text, text)
    assert found.outcome == INCONCLUSIVE
    assert "the first run skips accesses (out-of-bounds in global memory)" in found.undecided[0]


def test_skipped_accesses_are_compared_by_address() -> None:
    body = (
        ".shared .align 4 .b8 s[64]; ld.param.u64 %d1, [a]; add.u64 %d1, %d1, %d0; st.global.u32 [%d1], %r0;"
        " setp.gt.u32 %p1, %r0, 999999; mov.u32 %r1, 60; @%p1 st.shared.u32 [%r1], %r0;"
    )
    first = entry(".param .u64 a", body)
    second = entry(".param .u64 a", body.replace("@%p1 st.shared", "@!%p1 st.shared").replace("%r1, 60", "%r1, 64"))
    assert judged(first, first).outcome == SAME
    assert judged(first, second).outcome == DIFFERENT


def test_a_page_that_only_the_second_touches_is_a_difference() -> None:
    body = "ld.param.u64 %d1, [a]; add.u64 %d2, %d1, %d0; st.global.u32 [%d2], %r0;"
    first = entry(".param .u64 a", body)
    found = judged(first, entry(".param .u64 a", body + "ld.global.u32 %r1, [%d1+40000];"))
    assert found.outcome == DIFFERENT
    assert "only the second accesses the page of memory at byte 36864 of parameter 'a'" in "".join(
        line for each in found.comparisons for line in each.details
    )


TESTS = Path(__file__).parents[1]
OURS = sorted([*(TESTS / "ptx").glob("*.ptx"), *(TESTS / "run").glob("*.ptx")])


def without_stores(text: str) -> Module:
    """The module without stores to memory that other threads can read."""
    module = parse(text)
    for kernel in module.kernels:
        for block in kernel.blocks:
            kept = [instr for instr in block.instrs if not is_store(instr)]
            kernel.set_instrs(block, kept)
    return module


def is_store(instr: Instr) -> bool:
    is_call = instr.form.op.base == "call" and "vprintf" in instr.text
    return is_call or (instr.form.op.base in ("st", "red", "atom") and instr.form.space in ("global", "generic"))


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_without_its_stores_no_kernel_is_the_same(path: Path) -> None:
    text = path.read_text()
    try:
        first, second = parse(text), without_stores(text)
    except PtxError:
        pytest.skip("no module that can be parsed")
    results: dict[str, list[Comparison]] = {}
    for each in compare(first, second, seeds=range(1), seconds=2):
        assert each.outcome != SAME or each.changed, each
        results.setdefault(each.kernel, []).append(each)
    for kernel, found in results.items():
        assert verdict(kernel, found).outcome != SAME, kernel


# --- inputs ------------------------------------------------------------------------------------------------------

X = "ld.param.u64 %d1, [a]; add.u64 %d2, %d1, %d0; "
INDEX = (
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d0, %r3, 4; "
    "ld.param.u64 %d1, [a]; add.u64 %d2, %d1, %d0; "
)

#: Differences that are found only with a certain input: parameters, a body, and another body.
SEEN: dict[str, tuple[str, str, str, str]] = {
    "tid & 31": (".param .u64 a", X + "st.global.u32 [%d2], %r0;", "%d1, [a];", "%d1, [a]; and.b32 %r0, %r0, 31;"),
    "only block 1 is wrong": (
        ".param .u64 a",
        INDEX + "mov.u32 %r4, 5; st.global.u32 [%d2], %r4;",
        "mov.u32 %r4, 5;",
        "mov.u32 %r4, 5; setp.eq.u32 %p1, %r1, 1; @%p1 mov.u32 %r4, 6;",
    ),
    "the last dimension": (
        ".param .u64 a",
        "mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mad.lo.u32 %r3, %r1, 64, %r0; mad.lo.u32 %r3, %r2, 512, %r3; "
        "mul.wide.u32 %d0, %r3, 4; " + X + "st.global.u32 [%d2], %r3;",
        "512, %r3",
        "256, %r3",
    ),
    "blocks in the third dimension": (
        ".param .u64 a",
        "mov.u32 %r1, %ctaid.z; mad.lo.u32 %r3, %r1, 512, %r0; mul.wide.u32 %d0, %r3, 4; "
        + X
        + "st.global.u32 [%d2], %r3;",
        "%ctaid.z",
        "%ctaid.y",
    ),
    "a negative integer": (
        ".param .u64 a, .param .u32 n",
        X + "ld.param.u32 %r1, [n]; shr.s32 %r2, %r1, 1; st.global.u32 [%d2], %r2;",
        "shr.s32",
        "shr.u32",
    ),
    "zero": (
        ".param .u64 a, .param .u32 n",
        X + "ld.param.u32 %r1, [n]; add.u32 %r1, %r1, %r0; st.global.u32 [%d2], %r1;",
        "add.u32 %r1",
        "setp.eq.u32 %p1, %r1, 0; @%p1 mov.u32 %r1, 9; add.u32 %r1",
    ),
    "a large integer": (
        ".param .u64 a, .param .u32 n",
        X + "ld.param.u32 %r1, [n]; add.u32 %r1, %r1, %r0; cvt.u64.u32 %d3, %r1; st.global.u32 [%d2], %r1;",
        "st.global",
        "setp.gt.u32 %p1, %r1, 1000000000; @%p1 mov.u32 %r1, 1; st.global",
    ),
    "a number in a comparison": (
        ".param .u64 a, .param .u32 n",
        X + "ld.param.u32 %r1, [n]; mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; setp.eq.u32 %p1, %r1, 123456; @%p1 mov.u32 %r2, 6;",
    ),
    "a number in a comparison with memory": (
        ".param .u64 a",
        X + "ld.global.u32 %r1, [%d2]; mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; setp.eq.u32 %p1, %r1, 0xfff0b5a5; @%p1 mov.u32 %r2, 6;",
    ),
    "an axis of the grid that only the other kernel reads": (
        ".param .u64 a",
        X + "mov.u32 %r2, 5; st.global.u32 [%d2+4], %r2; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; mov.u32 %r1, %ctaid.z; setp.eq.u32 %p1, %r1, 1; @%p1 mov.u32 %r2, 6;",
    ),
    "an axis of the block that only the other kernel reads": (
        ".param .u64 a",
        X + "mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; mov.u32 %r1, %tid.y; setp.eq.u32 %p1, %r1, 1; @%p1 mov.u32 %r2, 6;",
    ),
    "the place in the warp": (
        ".param .u64 a",
        X + "mov.u32 %r2, %laneid; red.global.add.u32 [%d2], %r2;",
        "mov.u32 %r2, %laneid;",
        "and.b32 %r2, %r0, 31;",
    ),
    "NaN": (
        ".param .u64 a",
        X + "ld.global.f32 %f1, [%d2]; setp.lt.f32 %p1, %f1, 0f00000000; selp.u32 %r1, 3, 4, %p1; "
        "st.global.u32 [%d2], %r1;",
        "setp.lt.f32",
        "setp.ltu.f32",
    ),
    "minus zero": (
        ".param .u64 a",
        X + "ld.global.f32 %f1, [%d2]; mul.rn.f32 %f2, %f1, 0f40000000; st.global.f32 [%d2], %f2;",
        "mul.rn.f32 %f2, %f1, 0f40000000;",
        "mul.rn.f32 %f2, %f1, 0f40000000; add.rn.f32 %f2, %f2, 0f00000000;",
    ),
    "a subnormal": (
        ".param .u64 a, .param .f32 s",
        X + "ld.param.f32 %f1, [s]; mul.rn.f32 %f2, %f1, 0f40000000; st.global.f32 [%d2], %f2;",
        "mul.rn.f32",
        "mul.rn.ftz.f32",
    ),
    "infinity": (
        ".param .u64 a",
        X + "ld.global.f32 %f1, [%d2]; mul.rn.f32 %f2, %f1, 0f40000000; st.global.f32 [%d2], %f2;",
        "mul.rn.f32 %f2, %f1, 0f40000000;",
        "mul.rn.f32 %f2, %f1, 0f40000000; min.f32 %f2, %f2, 0f7F7FFFFF;",
    ),
    "one buffer for two parameters": (
        ".param .u64 a, .param .u64 b",
        X + "ld.param.u64 %d3, [b]; add.u64 %d3, %d3, %d0; ld.global.u32 %r1, [%d2]; add.u32 %r1, %r1, 1; "
        "st.global.u32 [%d3], %r1; ld.global.u32 %r2, [%d2]; add.u32 %r2, %r2, 1; st.global.u32 [%d3], %r2;",
        "ld.global.u32 %r2, [%d2];",
        "sub.u32 %r2, %r1, 1;",
    ),
    "a bound that cuts off": (
        ".param .u64 a, .param .u32 n",
        INDEX + "ld.param.u32 %r5, [n]; setp.ge.u32 %p1, %r3, %r5; @%p1 bra E; st.global.u32 [%d2], 7; E:",
        "setp.ge.u32",
        "setp.gt.u32",
    ),
    "coordinates as a vector": (
        ".param .u64 a",
        "mov.v4.u32 {%r0, %r1, %r2, %r3}, %tid; mov.v4.u32 {%r3, %r4, %r5, %r6}, %ctaid; mad.lo.u32 %r7, %r1, 32, %r4; "
        "mad.lo.u32 %r0, %r7, 16, %r0; and.b32 %r0, %r0, 255; mul.wide.u32 %d0, %r0, 4; ld.param.u64 %d1, [a]; "
        "add.u64 %d2, %d1, %d0; red.global.add.u32 [%d2], 1;",
        "mad.lo.u32 %r7, %r1, 32, %r4;",
        "mov.u32 %r7, 0;",
    ),
    "signed and unsigned bounds": (
        ".param .u64 a, .param .u32 n",
        INDEX + "ld.param.u32 %r5, [n]; setp.ge.s32 %p1, %r3, %r5; @%p1 bra E; st.global.u32 [%d2], 7; E:",
        "setp.ge.s32",
        "setp.ge.u32",
    ),
    "a high thread number": (
        ".param .u64 a",
        X + "mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; setp.eq.u32 %p1, %r0, 1023; @%p1 mov.u32 %r2, 6;",
    ),
    "a high number in two dimensions": (
        ".param .u64 a",
        "mov.u32 %r1, %tid.y; mad.lo.u32 %r3, %r1, 64, %r0; mul.wide.u32 %d0, %r3, 4; "
        + X + "mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; setp.gt.u32 %p1, %r1, 28; @%p1 mov.u32 %r2, 6;",
    ),
    "the size of dynamic shared memory": (
        ".param .u64 a",
        X + "mov.u32 %r1, %dynamic_smem_size; shr.u32 %r2, %r1, 13; st.global.u32 [%d2], %r2;",
        "shr.u32 %r2, %r1, 13;",
        "shr.u32 %r2, %r1, 14;",
    ),
    "a number in a comparison with this size": (
        ".param .u64 a",
        X + "mov.u32 %r1, %dynamic_smem_size; mov.u32 %r2, 5; st.global.u32 [%d2], %r2;",
        "mov.u32 %r2, 5;",
        "mov.u32 %r2, 5; setp.eq.u32 %p1, %r1, 12288; @%p1 mov.u32 %r2, 6;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_fixed_cases_show(name: str) -> None:
    params, body, old, new = SEEN[name]
    assert old in body
    first = entry(params, body)
    assert judged(first, first).outcome == SAME
    assert judged(first, entry(params, body.replace(old, new))).outcome == DIFFERENT


def test_inputs_are_equal_for_equal_numbers() -> None:
    module = parse(entry(".param .u64 a, .param .u32 n, .param .f32 s", X + "st.global.u32 [%d2], %r0;"))
    regions = Regions()
    signature = Signature.of(module.entries[0], regions)
    for number in range(30):
        made = [generate(module.entries[0], signature, regions, number) for _ in range(2)]
        assert made[0] == made[1]


def test_a_restricted_pointer_may_not_share_its_buffer() -> None:
    params, body, old, new = SEEN["one buffer for two parameters"]
    first, second = parse(entry(params, body)), parse(entry(params, body.replace(old, new)))
    assert verdict("k", list(compare(first, second))).outcome == DIFFERENT
    assert verdict("k", list(compare(first, second, restrict=True))).outcome == SAME


def test_the_time_for_a_kernel_is_kept_and_said() -> None:
    text = entry(".param .u64 a", X + "st.global.u32 [%d2], %r0;")
    found = verdict("k", list(compare(parse(text), parse(text), seconds=1e-9)))
    assert found.outcome == INCONCLUSIVE
    assert re.fullmatch(r"\d+ not compared: the time for this kernel ended", found.undecided[-1])


@pytest.mark.parametrize("directive", [".reqntid 64", ".reqntid 32, 2"])
def test_another_required_block_is_a_difference(directive: str) -> None:
    text = entry(".param .u64 a", X + "st.global.u32 [%d2], %r0;")
    assert judged(text, text.replace("\n{", f" {directive}\n{{", 1)).outcome == DIFFERENT
