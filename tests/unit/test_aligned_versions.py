"""Versions with vector loads, which require that pointers and strides are aligned."""

import re

import numpy as np
import pytest
from contract_versions import HEAD, allowed, body, versions, with_contract
from ptxmotion.analysis.memory.alias import RecordingPromise
from ptxmotion.contract import Contract, Extent, Holds, Inside, Launch
from ptxmotion.driver import Result
from ptxmotion.emulator import Emulator
from ptxmotion.emulator.checks import EmulatorFault
from ptxmotion.emulator.options import Options
from ptxmotion.ptx import Kernel, Module, parse, print_module
from ptxmotion.transforms.pipeline import KernelTransform, run_passes
from ptxmotion.transforms.remarks import Remarks
from ptxmotion.versions.alignment import assumed_alignments

#: ``y[i] = sum over j < n of a[i * n + j]``, four elements in a turn, and ``{shift}`` bytes further.
ROWS = (
    HEAD
    + """
.visible .entry rows(.param .u64 a, .param .u64 y, .param .u32 n, .param .u32 unused)
{
    .reg .pred %p;
    .reg .b32 %r<16>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.lo.s32 %r3, %r2, %r1;
    mov.u32 %r4, START;
    mov.u32 %r5, 0;
LOOP:
    add.s32 %r6, %r3, %r4;
    mul.wide.s32 %rd3, %r6, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r7, [%rd4+12];
    ld.global.u32 %r8, [%rd4];
    ld.global.u32 %r9, [%rd4+8];
    ld.global.u32 %r10, [%rd4+4];
    mad.lo.s32 %r5, %r5, 3, %r7;
    mad.lo.s32 %r5, %r5, 5, %r8;
    mad.lo.s32 %r5, %r5, 7, %r9;
    mad.lo.s32 %r5, %r5, 9, %r10;
    add.s32 %r4, %r4, STEP;
    setp.lt.s32 %p, %r4, %r1;
    @%p bra LOOP;
    mul.wide.s32 %rd5, %r2, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.u32 [%rd6], %r5;
    ret;
}
"""
)


def rows(start: int = 0, step: int = 4) -> tuple[Result, Contract]:
    return with_contract(ROWS.replace("START", str(start)).replace("STEP", str(step)))


def test_a_vector_load_requires_that_base_and_stride_are_aligned() -> None:
    result, contract = rows()
    version = versions(contract, "rows")["disjoint buffers, aligned"]
    assert version.requires[1:] == (holds_of("arg0 % 16 == 0"), holds_of("arg2 % 4 == 0"))
    assert re.search(r"ld\.global\.(nc\.)?v4\.u32", body(result.text, version.entry))
    assert "v4" not in body(result.text, "rows")


def holds_of(text: str) -> Holds:
    from ptxmotion.contract import parse as parse_expression

    return Holds(parse_expression(text))


@pytest.mark.parametrize(("start", "step", "lanes"), [(0, 8, 4), (2, 4, 0), (0, 2, 2), (0, 3, 0), (4, 12, 4)])
def test_the_counter_of_the_loop_decides(start: int, step: int, lanes: int) -> None:
    """A counter that begins at 2 and grows by 4 is a multiple of 2 only, but adjacent pairs are two elements apart."""
    result, contract = rows(start, step)
    found = versions(contract, "rows")
    texts = [body(result.text, each.entry) for each in found.values()]
    widest = max((4 if "v4" in text else 2 if "v2" in text else 0 for text in texts), default=0)
    assert widest == (2 if start == 2 else lanes)


@pytest.mark.parametrize(("n", "offset", "is_allowed"), [(8, 0, True), (8, 4, False), (6, 0, False), (4, 16, True)])
def test_vector_loads_compute_the_same(n: int, offset: int, is_allowed: bool) -> None:
    """Also where the conditions are false, the version faults or gives the same, and never something else."""
    result, contract = rows()
    version = versions(contract, "rows")["disjoint buffers, aligned"]
    loaded = Emulator().load(result.text)
    a, y = np.arange(100, dtype=np.uint32), {entry: np.zeros(3, np.uint32) for entry in ("rows", version.entry)}
    space = loaded.loaded.space
    buffer, out = space.allocate("a", "global", a.nbytes), space.allocate("y", "global", 12)
    extents = {0: Extent(buffer.base, buffer.base + buffer.nbytes), 1: Extent(out.base, out.base + out.nbytes)}
    launch = Launch((buffer.base + offset, out.base, n, 0), (1, 1, 1), (3, 1, 1), 0, extents)
    assert allowed(version, launch) == is_allowed
    for entry, values in y.items():
        buffer.fill_from(a.tobytes())
        arguments = [(buffer.base + offset).to_bytes(8, "little"), out.base.to_bytes(8, "little")]
        arguments += [n.to_bytes(4, "little"), bytes(4)]
        if entry != "rows" and not is_allowed:
            with pytest.raises(EmulatorFault, match="misaligned"):
                loaded.launch_bytes(
                    loaded.entry(entry), (1, 1, 1), (3, 1, 1), arguments, 0, Options(True, False, False)
                )
            continue
        loaded.launch_bytes(loaded.entry(entry), (1, 1, 1), (3, 1, 1), arguments, 0, Options(True, False, False))
        values[:] = out.bytes[:12].view(np.uint32)
    assert not is_allowed or np.array_equal(y["rows"], y[version.entry])


#: ``y[i] = a[2 * i] ? a[2 * i + 1] + a[2 * i - 4] + a[2 * i - 3] : 0``. The second load is in a branch, and beside the
#: first one. The other two, which are beside each other, are not in a branch.
PAIRS = (
    HEAD
    + """
.visible .entry pairs(.param .u64 a, .param .u64 y, .param .u32 n)
{
    .reg .pred %p, %q;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd3, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra END;
    mul.wide.s32 %rd4, %r5, 8;
    add.s64 %rd5, %rd1, %rd4;
    mul.wide.s32 %rd6, %r5, 4;
    add.s64 %rd7, %rd3, %rd6;
    ld.global.u32 %r8, [%rd5-16];
    ld.global.u32 %r9, [%rd5-12];
    add.s32 %r10, %r8, %r9;
    ld.global.u32 %r6, [%rd5];
    mov.u32 %r7, 0;
    setp.eq.s32 %q, %r6, 0;
    @%q bra STORE;
    ld.global.u32 %r11, [%rd5+4];
    add.s32 %r7, %r11, %r10;
STORE:
    st.global.u32 [%rd7], %r7;
END:
    ret;
}
"""
)


def test_a_hoisted_load_that_became_a_part_of_a_vector_must_be_inside() -> None:
    """The vector load stands where the first load was. The bytes of the second one are compared with the buffer."""
    result, contract = with_contract(PAIRS)
    found = versions(contract, "pairs").values()
    merged = [each for each in found if body(result.text, each.entry).count("v2") == 2]
    assert merged
    for version in merged:
        kinds = {type(each) for each in version.requires}
        texts = {str(each.expression) for each in version.requires if isinstance(each, Holds)}
        assert Inside in kinds or "(end(arg0) - arg0) % 8 == 0" in texts, version


@pytest.mark.parametrize(
    ("start", "step", "needed"), [(0, 4, {"a", "n"}), (4, 12, {"a", "n"}), (0, 2, {"a", "n"}), (0, 3, set[str]())]
)
def test_the_pass_records_what_it_needs(start: int, step: int, needed: set[str]) -> None:
    """A search over runs of all passes would take several times as long."""
    module = parse(ROWS.replace("START", str(start)).replace("STEP", str(step)))
    promise = RecordingPromise(assumes=assumed_alignments)
    run_passes(module, "O3", promise=promise)
    assert {param for _, param, _ in promise.merges["rows"]} == needed
    assert "v4" not in print_module(module)


def test_the_passes_run_once_more_for_a_kernel_without_loads_to_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one run over the kernel, and one for the loads that may be hoisted."""
    runs: list[str] = []
    original = KernelTransform.__call__

    def counted(self: KernelTransform, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
        runs.append(kernel.name)
        return original(self, module, kernel, remarks)

    monkeypatch.setattr(KernelTransform, "__call__", counted)
    with_contract(ROWS.replace("START", "0").replace("STEP", "3").replace("st.global.u32 [%rd6], %r5;", ""))
    assert runs == ["rows", "rows"]
