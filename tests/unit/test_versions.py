"""Versions of kernels: what they assume, what they require, and that they compute the same."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from contract_versions import HEAD, allowed, body, versions, with_contract
from motion import SUM_IN_MEMORY as SUM
from ptxmotion import Policy, optimize
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.cli import main
from ptxmotion.contract import Disjoint, Extent, Holds, Inside, Launch, Range, Version, load
from ptxmotion.contract.conditions import value_in
from ptxmotion.contract.expressions import evaluate
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import parse
from ptxmotion.toolchain.tools import ToolMissing, assemble, find_tool
from ptxmotion.transforms.gate.static_judge import StaticJudge
from ptxmotion.versions.search import REASONS_TO_STAY

#: ``y[i] = f[i] ? a[i + 1] : 0`` below ``i < n``.
TESTED = (
    HEAD
    + """
.visible .entry tested(.param .u64 f, .param .u64 a, .param .u64 y, .param .u32 n)
{
    .reg .pred %p, %q;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [f];
    ld.param.u64 %rd2, [a];
    ld.param.u64 %rd3, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra END;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd1, %rd4;
    add.s64 %rd6, %rd2, %rd4;
    add.s64 %rd7, %rd3, %rd4;
    ld.global.u32 %r6, [%rd5];
    mov.u32 %r7, 0;
    setp.eq.s32 %q, %r6, 0;
    @%q bra STORE;
    ld.global.u32 %r7, [%rd6+4];
STORE:
    st.global.u32 [%rd7], %r7;
END:
    ret;
}
"""
)


# --- disjoint buffers ------------------------------------------------------------------------------------------------


def test_a_sum_in_memory_stays_in_a_register() -> None:
    """The loads of the sums leave the loop in the version, and only there."""
    result, contract = with_contract(SUM)
    loop = body(result.text, "sum__ptxmotion_1").partition("LOOP:")[2].partition("bra LOOP")[0]
    assert loop.count("ld.global") == 2
    plain = body(result.text, "sum").partition("LOOP:")[2].partition("bra LOOP")[0]
    assert plain.count("ld.global") == 4
    found = versions(contract, "sum")["disjoint buffers"]
    pairs = ((0, 2), (0, 4), (1, 2), (1, 4), (2, 4))
    assert found.requires == tuple(Disjoint(Range(one), Range(two)) for one, two in pairs)


def test_the_original_is_what_o3_makes_without_a_contract() -> None:
    result, contract = with_contract(SUM)
    plain = optimize(SUM, "O3", Policy(gate="off"))
    assert body(result.text, "sum") == body(plain.text, "sum")
    assert contract.kernels["sum"].versions[-1] == Version("sum")
    assert [kernel.name for kernel in parse(result.text).entries] == ["sum__ptxmotion_1", "sum"]


def test_directives_and_linkage_are_copied() -> None:
    result, _ = with_contract(SUM)
    header = result.text[result.text.index(".visible .entry sum__ptxmotion_1") :].partition("{")[0]
    assert ".maxntid 256, 1, 1" in header and ".minnctapersm 2" in header


def test_ptxas_accepts_the_versions_also_in_relocatable_modules() -> None:
    result, _ = with_contract(SUM)
    assemble(result.text)
    assemble(result.text, flags=("-c",))


def test_the_contract_is_of_the_text() -> None:
    result, contract = with_contract(SUM)
    assert contract.matches(result.text)
    assert not contract.matches(SUM)


def parts(n: int, start_of_y: int, *, block: int = 4, grid: int = 1) -> Launch:
    """A launch of `SUM` with all buffers in one allocation of 4096 bytes: a, then x, then y, then z."""
    extents = {number: Extent(4096, 8192) for number in (0, 1, 2, 4)}
    arguments = (4096, 4096 + 4 * n * n, 4096 + start_of_y, n, 4096 + start_of_y + 4 * n)
    return Launch(arguments, (grid, 1, 1), (block, 1, 1), 0, extents)


def test_parts_of_one_allocation_are_disjoint_by_their_accesses() -> None:
    _, contract = with_contract(SUM)
    by_buffers, by_accesses = versions(contract, "sum").values()
    n = 4
    behind = 4 * n * n + 4 * n
    assert allowed(by_accesses, parts(n, behind))
    assert not allowed(by_accesses, parts(n, behind - 4))
    assert not allowed(by_buffers, parts(n, behind))


def test_threads_beyond_the_bound_are_not_part_of_the_range() -> None:
    _, contract = with_contract(SUM)
    assert allowed(versions(contract, "sum")["disjoint accesses"], parts(4, 80, block=128, grid=3))


def test_a_range_that_may_wrap_around_is_refused() -> None:
    """With n = 65536 the index i*n + j does not fit into 32 bits."""
    _, contract = with_contract(SUM)
    places = {0: 1 << 40, 1: 1 << 42, 2: 1 << 44, 4: 1 << 46}
    extents = {number: Extent(place, 2 * place) for number, place in places.items()}
    for n, expected in ((1 << 15, True), (1 << 16, False), ((1 << 32) - 1, False)):
        arguments = (places[0], places[1], places[2], n, places[4])
        launch = Launch(arguments, (1 << 10, 1, 1), (256, 1, 1), 0, extents)
        assert allowed(versions(contract, "sum")["disjoint accesses"], launch) == expected, n


def test_without_known_extents_the_original_is_launched() -> None:
    _, contract = with_contract(SUM)
    launch = Launch((4096, 8192, 16384, 4, 32768), (1, 1, 1), (4, 1, 1))
    assert not any(allowed(each, launch) for each in versions(contract, "sum").values())


@pytest.mark.parametrize("n", [1, 5, 8])
def test_a_version_computes_the_same(n: int) -> None:
    result, _ = with_contract(SUM)
    module = Emulator().load(result.text)
    outputs: list[npt.NDArray[np.uint32]] = []
    for entry in ("sum", "sum__ptxmotion_1"):
        a, x = np.arange(n * n, dtype=np.uint32), np.arange(n, dtype=np.uint32) + 3
        y, z = np.full(n, 7, np.uint32), np.full(n, 9, np.uint32)
        done = module.launch(entry, 2, 4, [a, x, y, np.uint32(n), z])
        assert done.findings == []
        outputs.append(np.concatenate([y, z]))
    assert (outputs[0] == outputs[1]).all() and outputs[0].any()


#: ``y[0] += 3*a[(t & 1 ? n : m) - (t & 2 ? n : m)]`` in a loop: two selections from the same values.
SELECTED = (
    HEAD
    + """
.visible .entry selected(.param .u64 a, .param .u64 y, .param .u32 n, .param .u32 m)
{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [m];
    mov.u32 %r3, %tid.x;
    and.b32 %r4, %r3, 1;
    and.b32 %r5, %r3, 2;
    setp.ne.s32 %p1, %r4, 0;
    setp.ne.s32 %p2, %r5, 0;
    selp.b32 %r6, %r1, %r2, %p1;
    selp.b32 %r7, %r1, %r2, %p2;
    sub.s32 %r8, %r6, %r7;
    mul.wide.s32 %rd3, %r8, 4;
    add.s64 %rd4, %rd1, %rd3;
    mov.u32 %r10, 0;
LOOP:
    ld.global.u32 %r9, [%rd4];
    ld.global.u32 %r11, [%rd2];
    mad.lo.s32 %r11, %r9, 3, %r11;
    st.global.u32 [%rd2], %r11;
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p3, %r10, 8;
    @%p3 bra LOOP;
    ret;
}
"""
)


@pytest.mark.parametrize(("start_of_y", "expected"), [(4, False), (12, True), (-8, False), (-12, True)])
def test_selections_from_the_same_values_may_differ(start_of_y: int, expected: bool) -> None:
    """The index is between -2 and 2 for n = 2 and m = 0, and not always 0."""
    _, contract = with_contract(SELECTED)
    extents = {number: Extent(4096, 8192) for number in (0, 1)}
    launch = Launch((4160, 4160 + start_of_y, 2, 0), (1, 1, 1), (4, 1, 1), 0, extents)
    assert allowed(versions(contract, "selected")["disjoint accesses"], launch) == expected


#: A loop of two iterations, which continues on the second result of ``setp.ne``. Its index wraps around in the second
#: one, for the last thread of 1024. Only there, ``a`` is read: at byte 4096.
SECOND_RESULT = (
    HEAD
    + """
.visible .entry second(.param .u64 a, .param .u64 y)
{
    .reg .pred %p<5>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [y];
    mov.u32 %r3, %tid.x;
    mov.u32 %r5, 4;
    mul.wide.u32 %rd6, %r3, 4;
LOOP:
    add.s32 %r6, %r5, 2147482620;
    add.s32 %r6, %r6, %r3;
    setp.lt.s32 %p1, %r6, -2147483648;
    @%p1 bra NEXT;
    setp.ge.s32 %p2, %r6, -2147483638;
    @%p2 bra NEXT;
    add.s64 %rd4, %rd1, %rd6;
    ld.global.u32 %r9, [%rd4];
    st.global.u32 [%rd2], %r9;
NEXT:
    add.s64 %rd6, %rd6, 4;
    setp.ne.s32 %p3|%p4, %r5, 4;
    add.s32 %r5, %r5, 1;
    @%p4 bra LOOP;
    ret;
}
"""
)


def test_the_second_result_of_a_comparison_bounds_no_loop() -> None:
    _, contract = with_contract(SECOND_RESULT)
    start = 1 << 40
    extents = {number: Extent(start, start + 8192) for number in (0, 1)}
    launch = Launch((start, start + 4096), (1, 1, 1), (1024, 1, 1), 0, extents)
    assert not any(allowed(each, launch) for each in versions(contract, "second").values())


# --- what is not promised --------------------------------------------------------------------------------------------


def test_no_version_where_nothing_is_written() -> None:
    result, contract = with_contract(re.sub(r"st.global.*", "", SUM))
    assert len(contract.kernels["sum"].versions) == 1
    assert [each.reason for each in result.remarks if each.pass_name == "versions"] == ["no-pairs"]


def test_no_version_of_a_kernel_with_a_variable_in_global_memory() -> None:
    """All launches of the kernel share the variable. A version would have a copy of it."""
    counting = SUM.replace("LOOP:", "mov.u64 %rd13, seen; red.global.add.u32 [%rd13], 1;\nLOOP:", 1)
    counting = counting.replace("    .reg .pred %p;", "    .global .align 4 .u32 seen;\n    .reg .pred %p;", 1)
    result, contract = with_contract(counting)
    assert len(contract.kernels["sum"].versions) == 1 and result.text.count(".global .align 4 .u32 seen") == 1
    assert [each.reason for each in result.remarks if each.pass_name == "versions"] == ["own-variable"]


@pytest.mark.parametrize(("branches", "said"), [(True, "same"), (False, "one-block")])
def test_the_remark_says_why_no_load_rises(branches: bool, said: str) -> None:
    nothing_written = TESTED.replace("st.global.u32 [%rd7], %r7;", "")
    text = nothing_written if branches else re.sub(r"@%[pq] bra \w+;|STORE:|END:", "", nothing_written)
    (remark,) = [each for each in with_contract(text)[0].remarks if each.pass_name == "versions"]
    assert remark.reason == "no-pairs" and remark.message.endswith(f"; {REASONS_TO_STAY[said]}")


def test_a_pointer_from_memory_stays_conservative() -> None:
    """The pointers of the sums are loaded, so they may point to ``a``, which no condition excludes."""
    indirect = SUM.replace("ld.param.u64 %rd3, [y];", "ld.param.u64 %rd10, [y]; ld.global.u64 %rd3, [%rd10];")
    indirect = indirect.replace("ld.param.u64 %rd11, [z];", "ld.param.u64 %rd13, [z]; ld.global.u64 %rd11, [%rd13];")
    result, contract = with_contract(indirect)
    assert len(contract.kernels["sum"].versions) == 1
    assert "__ptxmotion_" not in result.text


def test_a_pointer_in_a_structure_stays_conservative() -> None:
    structure = (
        SUM.replace(".param .u64 y,", ".param .align 8 .b8 y[16],").replace("[y]", "[y+8]").replace("[z]", "[y]")
    )
    _, contract = with_contract(structure)
    assert len(contract.kernels["sum"].versions) == 1
    assert not contract.kernels["sum"].parameters[2].pointer


def test_a_variable_of_the_module_stays_conservative() -> None:
    variable = SUM.replace("ld.param.u64 %rd3, [y];", "mov.u64 %rd3, table;")
    variable = variable.replace("ld.param.u64 %rd11, [z];", "mov.u64 %rd11, table+1024;")
    variable = variable.replace(".visible .entry", ".visible .global .align 4 .b8 table[4096];\n.visible .entry")
    _, contract = with_contract(variable)
    assert len(contract.kernels["sum"].versions) == 1


def test_modules_of_other_kinds_get_no_versions() -> None:
    debug = SUM.replace(".target sm_90", ".target sm_90, debug")
    result, contract = with_contract(debug)
    assert len(contract.kernels["sum"].versions) == 1
    assert "debug" in [each.reason for each in result.remarks]


def test_a_promise_and_a_contract_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="promise"):
        optimize(SUM, "O3", Policy(contract=True, promise=Promise(everything=True)))


def test_the_gate_judges_versions() -> None:
    """The static judge sees fewer accesses in the loop. One that sees no difference keeps no version."""
    _, contract = with_contract(SUM, gate="static")
    assert versions(contract, "sum")

    class Blind(StaticJudge):
        def figures(self, module: Any) -> Any:
            return {name: super(Blind, self).figures(parse(SUM))["sum"] for name in super().figures(module)}

    _, contract = with_contract(SUM, judge=Blind())
    assert not versions(contract, "sum")


def test_weak_versions_are_named_after_their_code() -> None:
    """A linker merges weak entries of one name, so different versions must have different names."""
    weak = SUM.replace(".visible .entry", ".weak .entry")
    names = [
        parse(with_contract(text)[0].text).entries[0].name
        for text in (weak, weak, weak.replace("mad.lo.s32 %r12, %r10, %r11, %r8", "sub.s32 %r12, %r8, %r10"))
    ]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("sum__ptxmotion_1_")


def test_names_are_not_used_twice() -> None:
    both = SUM + SUM.removeprefix(HEAD).replace("entry sum(", "entry sum__ptxmotion_1(").replace("LOOP", "L").replace(
        "END", "E"
    )
    result, contract = with_contract(both)
    names = [kernel.name for kernel in parse(result.text).entries]
    assert len(set(names)) == len(names) == 4
    assert contract.kernels["sum"].versions[0].entry == "sum__ptxmotion_2"


# --- loads inside buffers --------------------------------------------------------------------------------------------


def test_a_load_rises_where_its_range_is_compared() -> None:
    result, contract = with_contract(TESTED)
    found = versions(contract, "tested")["disjoint buffers, loads inside buffers"]
    text = body(result.text, found.entry)
    assert text.index("+4]") < text.index("bra STORE")
    plain = body(result.text, "tested")
    assert plain.index("+4]") > plain.index("bra STORE")
    (inside,) = [each for each in found.requires if isinstance(each, Inside)]
    assert inside.range.pointer == 1 and str(inside.range.start) == "4"
    assert "arg1 % 4 == 0" in [str(each.expression) for each in found.requires if isinstance(each, Holds)]
    assert str(found.prefer_when) == "warps_per_scheduler <= 4"
    for each in versions(contract, "tested").values():
        assert (each.prefer_when is None) == ("inside" not in each.description)


def test_the_range_of_a_risen_load_is_that_below_the_bound() -> None:
    """The load does not rise above ``i < n``, above which more threads would read."""
    _, contract = with_contract(TESTED)
    found = versions(contract, "tested")["disjoint buffers, loads inside buffers"]
    n = 10
    for end, expected in ((4096 + 4 * (n + 1), True), (4096 + 4 * n, False)):
        extents = {0: Extent(1 << 20, 1 << 21), 1: Extent(4096, end), 2: Extent(1 << 22, 1 << 23)}
        launch = Launch((1 << 20, 4096, 1 << 22, n), (2, 1, 1), (32, 1, 1), 0, extents)
        assert allowed(found, launch) == expected
    assert not allowed(found, Launch((1 << 20, 4098, 1 << 22, n), (1, 1, 1), (32, 1, 1), 0, {1: Extent(4096, 8192)}))


#: As TESTED, with ``a[b[i + 1]]`` in place of ``a[i + 1]``.
GATHERED = TESTED.replace("[%rd6+4]", "[%rd8]").replace(
    "ld.global.u32 %r7, [%rd8];",
    "mul.wide.u32 %rd8, %r6, 4; add.s64 %rd8, %rd2, %rd8; ld.global.u32 %r7, [%rd8];",
)


def test_a_load_whose_index_is_in_memory_rises_only_with_a_clamp() -> None:
    result, contract = with_contract(GATHERED)
    of_entry = {each.entry: each.description for each in contract.kernels["tested"].versions}
    for kernel in parse(result.text).entries:
        text = body(result.text, kernel.name)
        last = max(found.start() for found in re.finditer(r"ld\.global", text))
        assert (last < text.index("bra STORE")) == ("min.u32" in text) == ("clamped" in of_entry[kernel.name])
    assert any("clamped" in each for each in of_entry.values())


def test_the_limit_of_a_clamp_is_the_last_element() -> None:
    _, contract = with_contract(GATHERED)
    found = next(each for each in contract.kernels["tested"].versions if "clamped" in each.description)
    assert found.launch is not None
    (limit,) = found.launch.arguments
    for begin, end, expected in ((4096, 4096 + 40, 9), (4096, 4099 + 40, 9), (4096, 4099, None), (4092, 8192, 1023)):
        places = {0: Extent(1 << 20, 1 << 21), 1: Extent(begin, end), 2: Extent(1 << 22, 1 << 23)}
        launch = Launch((1 << 20, 4096, 1 << 22, 0), (1, 1, 1), (32, 1, 1), 0, places)
        if expected is not None:
            assert evaluate(limit, partial(value_in, launch)) == expected
        # The index is unsigned, so the pointer need not be the start of the buffer.
        assert allowed(found, launch) == (expected is not None)


#: Both loads are needed at the division. ptxas puts the first one back behind the branch.
DIVIDED = (
    HEAD
    + """.visible .entry divided(.param .u64 out, .param .u64 a, .param .u32 n, .param .u32 t)
{
    .reg .pred %p;
    .reg .f32 %f<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [a];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [t];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra END;
    cvta.to.global.u64 %rd3, %rd2;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.u32 %rd5, %r6, 4;
    add.s64 %rd6, %rd3, %rd5;
    mul.wide.u32 %rd7, %r2, 4;
    add.s64 %rd8, %rd3, %rd7;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd6];
    div.rn.f32 %f3, %f2, %f1;
    add.s64 %rd9, %rd4, %rd5;
    st.global.f32 [%rd9], %f3;
END:
    ret;
}
"""
)


def test_a_load_that_ptxas_puts_back_makes_no_version() -> None:
    """Only the computation of its address would be executed early."""
    try:
        find_tool("ptxas")
    except ToolMissing as why:
        pytest.skip(str(why))
    _, contract = with_contract(DIVIDED, gate="auto")
    assert not versions(contract, "divided")
    _, contract = with_contract(DIVIDED)
    assert any("inside" in each for each in versions(contract, "divided"))


# --- command line ----------------------------------------------------------------------------------------------------


def test_opt_writes_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target, contract = (tmp_path / name for name in ("a.ptx", "b.ptx", "b.contract.json"))
    source.write_text(SUM)
    arguments = ["opt", str(source), "-O3", "--gate=static", "--contract", str(contract), "-o", str(target)]
    assert main([*arguments, "--remarks=versions"]) == 0
    assert "version 'sum__ptxmotion_1' for disjoint buffers" in capsys.readouterr().err
    found = load(str(contract))
    assert found.matches(target.read_bytes()) and found.producer.startswith("ptxmotion 0")
    assert main(["opt", str(source), "--contract", str(contract), "--alias=restrict", "-o", str(target)]) == 2
    assert main(["opt", str(source), "--contract", str(contract), "--emit=json", "-o", str(target)]) == 2


#: ``node = p + 24*index[i]; if (node->count > 0) y[i] = node->value``: all fields of an element that is touched.
NODES = (
    HEAD
    + """
.visible .entry nodes(.param .u64 p, .param .u64 index, .param .u64 y)
{
    .reg .pred %q;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [p];
    ld.param.u64 %rd2, [index];
    ld.param.u64 %rd3, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd2, %rd4;
    ld.global.u32 %r2, [%rd5];
    mul.wide.s32 %rd6, %r2, 24;
    add.s64 %rd7, %rd1, %rd6;
    add.s64 %rd8, %rd3, %rd4;
    ld.global.u32 %r3, [%rd7+4];
    mov.u32 %r4, 0;
    setp.lt.s32 %q, %r3, 1;
    @%q bra STORE;
    ld.global.u32 %r4, [%rd7+FIELD];
STORE:
    st.global.u32 [%rd8], %r4;
    ret;
}
"""
)


@pytest.mark.parametrize(("field", "rises"), [(20, True), (0, True), (24, False), (-4, False)])
def test_another_field_of_a_touched_element_rises(field: int, rises: bool) -> None:
    result, contract = with_contract(NODES.replace("+FIELD", f"+{field}" if field >= 0 else str(field)))
    found = [each for each in contract.kernels["nodes"].versions if "inside" in each.description]
    assert bool(found) == rises
    if rises:
        texts = [str(each.expression) for each in found[0].requires if isinstance(each, Holds)]
        # Bytes 0 to 3 are in the same granule of 8 bytes as the field that is read anyway, bytes 20 to 23 are not.
        granule = 8 if field == 0 else 24
        whole = [f"(end(arg0) - arg0) % {granule} == 0", f"(arg0 - begin(arg0)) % {granule} == 0"]
        assert texts == ["arg0 % 4 == 0", *whole]
        text = body(result.text, found[0].entry)
        assert text.rindex("[%rd7") < text.index("bra STORE")


def test_a_buffer_that_ends_within_an_element_is_refused() -> None:
    _, contract = with_contract(NODES.replace("FIELD", "20"))
    found = next(each for each in contract.kernels["nodes"].versions if "inside" in each.description)
    for nbytes, expected in ((240, True), (244, False)):
        places = {0: Extent(4096, 4096 + nbytes), 1: Extent(1 << 20, 1 << 21), 2: Extent(1 << 22, 1 << 23)}
        launch = Launch((4096, 1 << 20, 1 << 22), (1, 1, 1), (32, 1, 1), 0, places)
        assert allowed(found, launch) == expected


def test_versions_call_the_same_functions() -> None:
    function = ".func work() { ret; }\n"
    calls = SUM.replace(".visible .entry", function + ".visible .entry").replace(
        "mov.u32 %r2, %ctaid.x;", "call.uni work;\n    mov.u32 %r2, %ctaid.x;"
    )
    result, contract = with_contract(calls)
    assert versions(contract, "sum")
    assert result.text.count("call.uni work") == 2 and result.text.count(".func work") == 1
    assemble(result.text)


def test_several_files_have_contracts_of_their_own(tmp_path: Path) -> None:
    sources = [tmp_path / "one.ptx", tmp_path / "two.ptx"]
    for source, text in zip(sources, (SUM, TESTED), strict=True):
        source.write_text(text)
    arguments = ["opt", *map(str, sources), "-O3", "--gate=off", "--contract", str(tmp_path / "c"), "-o"]
    assert main([*arguments, str(tmp_path / "out")]) == 0
    for source in sources:
        contract = load(str(tmp_path / "c" / f"{source.stem}.contract.json"))
        assert contract.matches((tmp_path / "out" / source.name).read_bytes())
