"""What the memory passes leave unchanged, and their run time; `tests/ptx` shows what they change."""

from pathlib import Path

import pytest
from growth import assert_near_linear
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.analysis.values.alignment import Alignments
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.transforms.memory.dead_stores import DeadStores
from ptxmotion.transforms.passes import UnknownPass, create_pass
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

HEADER = """\
.version 8.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 .ptr .global .align 32 c, .param .u64 .ptr d)
{{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<99>;
	.shared .align 8 .b8 tile[64];
	.local .align 4 .b8 depot[64];
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u64 %rd3, [c];
	ld.param.u64 %rd4, [d];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 4;
"""


def module_of(body: str, target: str = "sm_90") -> Module:
    return parse(f"{HEADER.format(target=target)}{body}\n\tret;\n}}\n")


def after(body: str, passes: str, promise: str = "conservative", target: str = "sm_90") -> str:
    module = module_of(body, target)
    run_passes(module, passes, promise=Promise.parse(promise))
    return print_module(module)


FIRST = "st.global.u32 [%rd1], 1;"
LAST = "st.global.u32 [%rd1], 2;"


@pytest.mark.parametrize(
    ("between", "is_dead"),
    [
        ("", True),
        ("add.s32 %r2, %r1, 1;", True),
        ("ld.global.u32 %r2, [%rd1+4];", True),
        ("ld.shared.u32 %r2, [tile];", True),
        ("st.global.u32 [%rd2], 3;", True),
        ("@%p1 st.global.u32 [%rd1], 3;", True),
        ("@%p1 bra A; add.s32 %r2, %r1, 1; A: add.s32 %r3, %r1, 1;", True),
        ("ld.global.u32 %r2, [%rd1];", False),
        ("ld.global.u8 %r2, [%rd1+3];", False),
        ("ld.global.u32 %r2, [%rd2];", False),
        ("ld.u32 %r2, [%rd2];", False),
        ("@%p1 ld.global.u32 %r2, [%rd1];", False),
        ("atom.global.add.u32 %r2, [%rd2], 1;", False),
        ("ld.volatile.global.u32 %r2, [%rd2];", False),
        ("bar.sync 0;", False),
        ("bar.warp.sync -1;", False),
        ("fence.acq_rel.gpu;", False),
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", False),
        ("cp.async.ca.shared.global [tile], [%rd1], 4;", False),
        ("unknown.op %r2;", False),
        ("@%p1 ret;", False),
        ("@%p1 trap;", False),
        ("B: @%p1 bra B;", False),
        ("add.s64 %rd1, %rd1, 4;", False),
    ],
)
def test_a_store_before_another_one(between: str, is_dead: bool) -> None:
    text = after(f"{FIRST} {between} {LAST}", "deadstores")
    assert (FIRST not in text) == is_dead
    assert LAST in text


def test_a_promise_lets_a_store_die() -> None:
    body = f"{FIRST} ld.global.u32 %r2, [%rd2]; {LAST}"
    assert FIRST in after(body, "deadstores")
    assert FIRST not in after(body, "deadstores", "restrict")


@pytest.mark.parametrize(
    ("body", "is_dead"),
    [
        ("st.local.u32 [depot], 1;", True),
        ("st.local.u32 [depot], 1; bar.sync 0;", True),
        ("st.local.u32 [depot], 1; B: @%p1 bra B;", False),  # the loop may not end; refused, although the store is dead
        ("st.local.u32 [depot], 1; ld.local.u32 %r2, [depot];", False),
        ("st.local.u32 [depot], 1; mov.u64 %rd5, depot; cvta.local.u64 %rd6, %rd5; ld.u32 %r2, [%rd6];", False),
        ("st.local.u32 [depot], 1; ld.u32 %r2, [%rd1];", True),
        ("st.volatile.local.u32 [depot], 1;", False),
        ("st.shared.u32 [tile], 1;", False),
        ("st.global.u32 [%rd1], 1;", False),
    ],
)
def test_stores_to_memory_that_ends_with_the_kernel_are_dead(body: str, is_dead: bool) -> None:
    assert (body.partition(";")[0] not in after(body, "deadstores")) == is_dead


def test_a_limit_on_rewrites_holds() -> None:
    module = module_of(f"{FIRST} {FIRST} {LAST}")
    run_passes(module, "deadstores", Remarks(module, 1))
    assert print_module(module).count(FIRST) == 1


@pytest.mark.parametrize(
    ("load", "target", "changes"),
    [
        ("ld.global.u32 %r2, [%rd2]", "sm_90", True),
        ("ld.weak.global.u32 %r2, [%rd2]", "sm_90", True),
        ("ld.global.cg.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2]", "sm_90", True),
        ("@%p1 ld.global.u32 %r2, [%rd2]", "sm_90", True),
        ("ld.global.cv.u32 %r2, [%rd2]", "sm_90", False),
        ("ld.global.lu.u32 %r2, [%rd2]", "sm_90", False),
        ("ld.relaxed.gpu.global.u32 %r2, [%rd2]", "sm_90", False),
        ("ld.u32 %r2, [%rd2]", "sm_90", False),
        ("ld.global.u32 %r2, [%rd1]", "sm_90", False),
        ("ld.global.u32 %r2, [%rd2]", "sm_30", False),
    ],
)
def test_what_becomes_read_only(load: str, target: str, changes: bool) -> None:
    text = after(f"{load}; st.global.u32 [%rd1], %r2;", "readonly", "restrict", target)
    assert (".nc" in text) == changes


def test_a_pragma_waits_for_nobody() -> None:
    assert ".nc" in after(
        '.pragma "nounroll"; ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd1], %r2;', "readonly", "restrict"
    )


@pytest.mark.parametrize(
    "waits",
    ["griddepcontrol.wait;", "fence.acq_rel.gpu;", "membar.gl;", "ld.volatile.global.u32 %r3, [%rd3];", "unknown.op;"],
)
def test_a_kernel_that_waits_for_others_keeps_its_loads(waits: str) -> None:
    assert ".nc" not in after(f"{waits} ld.global.u32 %r2, [%rd2];", "readonly", "restrict")


@pytest.mark.parametrize(
    ("code", "alignment"),
    [
        ("ld.global.u32 %r2, [%rd1];", 1),
        ("ld.global.u32 %r2, [%rd3];", 32),
        ("ld.global.u32 %r2, [%rd3+8];", 8),
        ("ld.global.u32 %r2, [%rd4];", 4),
        ("cvta.to.global.u64 %rd5, %rd3; ld.global.u32 %r2, [%rd5+16];", 16),
        ("mad.wide.u32 %rd5, %r1, 24, %rd3; ld.global.u32 %r2, [%rd5];", 8),
        ("and.b32 %r2, %r1, -4; mad.wide.u32 %rd5, %r2, 4, %rd3; ld.global.u32 %r3, [%rd5];", 16),
        ("ld.shared.u32 %r2, [tile+16];", 8),
        ("mov.u32 %r2, tile; mad.lo.s32 %r3, %r1, 4, %r2; ld.shared.u32 %r4, [%r3];", 4),
        ("ld.local.u32 %r2, [depot];", 4),
        ("selp.b64 %rd5, %rd3, %rd1, %p1; ld.global.u32 %r2, [%rd5];", 1),
    ],
)
def test_the_alignment_of_an_address(code: str, alignment: int) -> None:
    module = module_of(code)
    kernel = module.kernels[0]
    facts = Facts(kernel, module)
    load = [instr for instr in kernel.instructions() if instr.form.op.base == "ld"][-1]
    reference = facts.memory.reference(load)
    assert reference is not None
    assert Alignments(facts).of(reference) == alignment


@pytest.mark.parametrize(
    ("code", "alignment"),
    [
        ("ld.global.u32 %r2, [%rd1];", 16),
        ("ld.global.u32 %r2, [%rd1+4];", 4),
        ("cvta.to.global.u64 %rd5, %rd1; ld.global.u32 %r2, [%rd5];", 16),
        ("add.s64 %rd5, %rd1, %rd2; ld.global.u32 %r2, [%rd5];", 1),
        ("shl.b64 %rd5, %rd2, 2; add.s64 %rd5, %rd5, %rd1; ld.global.u32 %r2, [%rd5];", 4),
        ("mov.u64 %rd5, tile; add.s64 %rd5, %rd5, %rd1; ld.shared.u32 %r2, [%rd5];", 1),
    ],
)
def test_a_promised_alignment_is_of_pointers_only(code: str, alignment: int) -> None:
    """A parameter that is multiplied, or added to another address, may as well be an integer."""
    module = module_of(code)
    # Where a kernel marks its pointers, those that it does not mark are integers.
    for param in module.kernels[0].params or ():
        param.attributes = ""
    facts = Facts(module.kernels[0], module)
    load = [instr for instr in module.kernels[0].instructions() if instr.form.text.endswith("u32")][-1]
    reference = facts.memory.reference(load)
    assert reference is not None
    assert Alignments(facts).of(reference, 16) == alignment


def test_a_promised_alignment_is_of_marked_pointers_where_there_are_any() -> None:
    module = module_of("ld.global.u32 %r2, [%rd1]; ld.global.u32 %r2, [%rd4];")
    facts = Facts(module.kernels[0], module)
    loads = [instr for instr in module.kernels[0].instructions() if instr.form.text == "ld.global.u32"]
    references = [facts.memory.reference(load) for load in loads]
    assert [Alignments(facts).of(each, 16) for each in references if each is not None] == [1, 16]


@pytest.mark.parametrize("aligned", ["3", "0", "-4"])
def test_an_alignment_that_is_none(aligned: str) -> None:
    with pytest.raises(UnknownPass, match="power of two"):
        create_pass(f"vectormerge:aligned={aligned}")


@pytest.mark.parametrize(("limit", "merges"), [("", False), (":constants=387", False), (":constants=388", True)])
def test_how_many_constants_a_loop_may_read(limit: str, merges: bool) -> None:
    text = (Path(__file__).parents[1] / "ptx" / "vectormerge_constants.ptx").read_text(encoding="utf-8")
    module = parse(text)
    run_passes(module, f"vectormerge:aligned=16{limit}")
    first = print_module(module).split(".visible .entry")[1]
    assert ("ld.global.v2" in first) == merges
    with pytest.raises(UnknownPass, match="at least 0"):
        create_pass("vectormerge:constants=-1")


def test_memory_transforms_take_near_linear_time() -> None:
    def kernel_of(size: int) -> Facts:
        lines = [
            f"\tst.global.u32 [%rd1+{4 * (number * 7 % size)}], %r1;\n\tld.global.u32 %r{2 + number % 90}, "
            f"[%rd1+{4 * (number * 5 % size)}];\n"
            for number in range(size)
        ]
        module = module_of("".join(lines))
        facts = Facts(module.kernels[0], module)
        assert facts.memory
        return facts

    assert_near_linear(kernel_of, lambda facts: DeadStores().run(facts.kernel, facts, Remarks()), 1000)
