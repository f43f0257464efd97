"""Versions with clamped indices: which loads get a clamp, what one clamp serves, and what the launch has to fulfil."""

import re
from dataclasses import replace

import pytest
from contract_versions import HEAD, body, versions, with_contract
from ptxmotion.analysis.manager import Facts
from ptxmotion.contract import Contract, Holds, LaunchChange, TunedMachine, Version
from ptxmotion.contract import parse as parse_expression
from ptxmotion.contract.tuning import LaunchClass, Tuning, tuned_preference
from ptxmotion.ptx import parse, print_kernel
from ptxmotion.versions.clamped import clamp_indices

#: ``if (f[i]) y[i] = a[b[i]]``, with lines of code in the arm.
KERNEL = (
    HEAD
    + """
.visible .entry gather(.param .u64 f, .param .u64 b, .param .u64 a, .param .u64 c, .param .u64 y, .param .s32 n)
{
    .reg .pred %q, %s;
    .reg .b32 %r<20>;
    .reg .b64 %rd<30>;
    ld.param.u64 %rd1, [f];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [a];
    ld.param.u64 %rd4, [c];
    ld.param.u64 %rd5, [y];
    ld.param.s32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd6, %r2, 4;
    add.s64 %rd7, %rd1, %rd6;
    add.s64 %rd8, %rd2, %rd6;
    add.s64 %rd9, %rd5, %rd6;
    ld.global.u32 %r3, [%rd7];
    ld.global.u32 %r4, [%rd8];
    mov.u32 %r5, 0;
    setp.eq.s32 %q, %r3, 0;
    @%q bra STORE;
    ARM
STORE:
    st.global.u32 [%rd9], %r5;
    ret;
}
"""
)
ADDRESS = "mul.wide.s32 %rd10, %r4, 4; add.s64 %rd11, %rd3, %rd10;"


def clamped(arm: str) -> tuple[str, Contract, Version | None]:
    """The code of the version with clamped indices, the contract, and the version."""
    result, contract = with_contract(KERNEL.replace("ARM", arm))
    found = next((each for what, each in versions(contract, "gather").items() if "clamped" in what), None)
    return (body(result.text, found.entry) if found is not None else "", contract, found)


def conditions(version: Version | None) -> set[str]:
    assert version is not None
    found = {str(each.expression) for each in version.requires if isinstance(each, Holds)}
    return {each for each in found if "arg2" in each}


def limits(version: Version | None) -> list[str]:
    assert version is not None and version.launch is not None
    return [str(each) for each in version.launch.arguments]


def test_a_gather_rises_with_one_clamp() -> None:
    text, _, version = clamped(f"{ADDRESS} ld.global.u32 %r5, [%rd11];")
    assert text.count("min.u32") == 1
    assert text.rindex("ld.global") < text.index("bra STORE")
    assert limits(version) == ["min((end(arg2) - arg2) // 4 - 1, 2147483647)"]
    assert {"end(arg2) - arg2 >= 4", "arg2 % 4 == 0", "arg2 == begin(arg2)"} <= conditions(version)


def test_one_clamp_serves_all_loads_of_a_block_with_one_index() -> None:
    more = "add.s64 %rd12, %rd4, %rd10; ld.global.u32 %r6, [%rd12]; add.s32 %r5, %r5, %r6;"
    text, _, version = clamped(f"{ADDRESS} ld.global.u32 %r5, [%rd11]; {more}")
    assert text.count("min.u32") == 1
    (limit,) = limits(version)
    assert "end(arg2)" in limit and "end(arg3)" in limit


def test_a_load_behind_a_barrier_has_a_clamp_of_its_own() -> None:
    """A thread that executes the first load may never come to the second one."""
    more = "bar.warp.sync -1; add.s64 %rd12, %rd4, %rd10; ld.global.u32 %r6, [%rd12]; add.s32 %r5, %r5, %r6;"
    _, _, version = clamped(f"{ADDRESS} ld.global.u32 %r5, [%rd11]; {more}")
    assert all(("end(arg2)" in each) != ("end(arg3)" in each) for each in limits(version))


@pytest.mark.parametrize(
    ("test", "is_positive"),
    [
        ("lt.s32 %s, %r4, 0", True),
        ("le.s32 %s, %r4, -1", True),
        ("lt.s32 %s, %r4, -1", False),
        ("gt.s32 %s, %r4, 9", False),
    ],
)
def test_a_comparison_shows_that_the_index_is_not_negative(test: str, is_positive: bool) -> None:
    _, _, version = clamped(f"setp.{test}; @%s bra STORE; {ADDRESS} ld.global.u32 %r5, [%rd11];")
    assert ("arg2 == begin(arg2)" in conditions(version)) != is_positive


def test_an_index_that_a_load_has_extended() -> None:
    """As nvcc writes ``if (j >= 0) … a[j] + a[2*n + j]`` with an ``int`` j from memory."""
    test = "ld.global.s32 %rd15, [%rd8]; setp.lt.s64 %s, %rd15, 0; @%s bra STORE;"
    one = "shl.b64 %rd10, %rd15, 2; add.s64 %rd11, %rd3, %rd10; ld.global.u32 %r5, [%rd11];"
    other = "cvt.u32.u64 %r7, %rd15; mad.lo.s32 %r8, %r1, 2, %r7; mul.wide.s32 %rd16, %r8, 4;"
    text, _, version = clamped(
        f"{test} {one} {other} add.s64 %rd17, %rd3, %rd16; ld.global.u32 %r9, [%rd17]; add.s32 %r5, %r5, %r9;"
    )
    assert text.count("min.u32") == 2
    found = conditions(version)
    assert "arg2 >= begin(arg2)" in found and "arg2 == begin(arg2)" not in found
    # The second index is negative only if the sum wraps around.
    assert any(each.endswith("<= begin(arg2)") and "arg5" in each for each in found)


def test_a_load_keeps_its_cache_policy() -> None:
    text = with_clamps(f"{ADDRESS} ld.global.L2::cache_hint.u32 %r5, [%rd11], %rd4;")
    assert re.search(r"L2::cache_hint\.u32 %r5, \[%m_\w+\], %rd4;", text)


def with_clamps(arm: str) -> str:
    """The kernel with all clamps, before it is optimized."""
    module = parse(KERNEL.replace("ARM", arm))
    kernel = module.kernel("gather")
    made = clamp_indices(Facts(kernel, module), {instr.pos for instr in kernel.instructions()})
    assert made is not None
    return print_kernel(made.kernel)


def test_the_register_of_the_pointer_may_be_overwritten() -> None:
    """The address with the clamped index is computed at the load, when %rd3 has another value."""
    text = with_clamps(f"{ADDRESS} mov.b64 %rd3, %rd4; ld.global.u32 %r5, [%rd11];")
    (start,) = re.findall(r"add\.s64 %m_\w+, (%\w+), %m_\w+;", text)
    assert text.index(f"mov.b64 {start}, %rd3;") < text.index("bra STORE")


def test_loads_from_two_buffers_through_one_register() -> None:
    """a[i] - c[i], where %rd3 has the address of ``a`` and then that of ``c``: both are loaded."""
    arm = f"{ADDRESS} mov.b64 %rd3, %rd4; ld.global.u32 %r5, [%rd11]; add.s64 %rd12, %rd3, %rd10;"
    text, _, version = clamped(f"{arm} ld.global.u32 %r6, [%rd12]; sub.s32 %r5, %r5, %r6;")
    assert len(limits(version)) == 1
    early = text[: text.index("bra STORE")]
    addresses = re.findall(r"ld\.global\S* \S+, \[([^]]+)\]", early)
    assert len(set(addresses)) == 4


def test_an_unsigned_index_is_not_negative() -> None:
    _, _, version = clamped(f"{ADDRESS.replace('s32', 'u32')} ld.global.u32 %r5, [%rd11];")
    assert limits(version) == ["min((end(arg2) - arg2) // 4 - 1, 4294967295)"]
    assert "arg2 == begin(arg2)" not in conditions(version)


def test_fields_of_elements_need_a_buffer_of_whole_elements() -> None:
    arm = "mul.wide.s32 %rd10, %r4, 24; add.s64 %rd11, %rd3, %rd10; ld.global.u32 %r5, [%rd11+8];"
    _, _, version = clamped(arm)
    assert "(end(arg2) - arg2) % 24 == 0" in conditions(version)


def test_a_scalar_may_be_added_to_the_pointer() -> None:
    arm = "mul.wide.s32 %rd13, %r1, 4; add.s64 %rd14, %rd3, %rd13; mul.wide.s32 %rd10, %r4, 4;"
    _, _, version = clamped(f"{arm} add.s64 %rd11, %rd14, %rd10; ld.global.u32 %r5, [%rd11];")
    assert all("arg5" in each for each in limits(version))
    assert any(re.search(r"arg2 \+ 4 \* .*arg5.* == begin\(arg2\)|begin\(arg2\)", each) for each in conditions(version))


@pytest.mark.parametrize(
    "arm",
    [
        # An offset in front of or behind the element: another index may be in the buffer.
        f"{ADDRESS} ld.global.u32 %r5, [%rd11+4];",
        f"{ADDRESS} ld.global.u32 %r5, [%rd11+-4];",
        # An index of 64 bits, also one that is equal to a small one modulo 2^32.
        "ld.global.u64 %rd15, [%rd8]; shl.b64 %rd10, %rd15, 2; add.s64 %rd11, %rd3, %rd10; ld.global.u32 %r5, [%rd11];",
        # Two indices.
        f"{ADDRESS} mul.wide.s32 %rd16, %r3, 4; add.s64 %rd11, %rd11, %rd16; ld.global.u32 %r5, [%rd11];",
        # A guard, a vector, and a pointer from memory.
        f"setp.gt.s32 %s, %r4, 7; {ADDRESS} @%s ld.global.u32 %r5, [%rd11];",
        "mul.wide.s32 %rd10, %r4, 8; add.s64 %rd11, %rd3, %rd10; ld.global.v2.u32 {%r5, %r6}, [%rd11];",
        f"ld.global.u64 %rd17, [%rd4]; {ADDRESS.replace('%rd3', '%rd17')} ld.global.u32 %r5, [%rd11];",
    ],
)
def test_other_loads_have_no_clamp(arm: str) -> None:
    _, _, version = clamped(arm)
    assert version is None


def test_a_tuning_decides_about_versions_with_further_arguments() -> None:
    _, _, version = clamped(f"{ADDRESS} ld.global.u32 %r5, [%rd11];")
    assert version is not None
    tuning = Tuning(TunedMachine("GPU", 1), "", "", (LaunchClass(1, 1 << 20),))
    assert tuned_preference(version, tuning) != version.prefer_when
    sizes = (parse_expression("grid_x"), parse_expression("grid_y"), parse_expression("grid_z"))
    other = replace(version, launch=LaunchChange(grid=sizes))
    assert tuned_preference(other, tuning) == version.prefer_when
