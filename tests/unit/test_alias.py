"""Which references may alias, their objects, the buffers that a kernel accesses, and which writes change a load."""

import pytest
from growth import assert_near_linear
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Memory, Promise
from ptxmotion.ptx import Instr, Param, parse

HEADER = """\
.version 8.8
.target sm_90
.address_size 64
.global .align 16 .b8 table[64];
.global .align 16 .b8 other[64];
.extern .shared .align 16 .b8 dynamic[];
.extern .shared .align 16 .b8 more[];
.const .align 4 .b8 coef[64];
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 m, .param .align 8 .b8 s[16], .param .u32 n)
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<99>;
	.shared .align 4 .b8 sa[64];
	.shared .align 4 .b8 sb[64];
	.local .align 4 .b8 depot[64];
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u64 %rd3, [m];
	ld.param.u64 %rd4, [s];
	ld.param.u64 %rd5, [s+8];
	ld.param.u32 %r1, [n];
	cvta.to.global.u64 %rd11, %rd1;
	cvta.to.global.u64 %rd12, %rd2;
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd6, %r2, 4;
	setp.lt.u32 %p1, %r2, 4;
"""


def memory_of(body: str, promise: str = "conservative", head: str = HEADER) -> tuple[Memory, list[Instr]]:
    """The memory analysis, and the accesses of the body in order."""
    module = parse(f"{head}{body}\n\tret;\n}}\n")
    kernel = module.kernels[0]
    facts = Facts(kernel, module, promise=Promise.parse(promise))
    accesses = [
        instr
        for instr in kernel.instructions()
        if instr.form.op.base in ("ld", "st", "atom", "red", "cp") and instr.form.space != "param"
    ]
    return facts.memory, accesses


def pointees(body: str) -> set[str] | None:
    """The names of the objects that the first access of the body may access."""
    memory, accesses = memory_of(body)
    found = memory.objects(accesses[0])
    return None if found is None else {each.name for each in found}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("ld.global.u32 %r9, [%rd11];", {"a"}),
        ("ld.u32 %r9, [%rd1];", {"a"}),
        ("add.s64 %rd20, %rd11, %rd6; ld.global.u32 %r9, [%rd20+4];", {"a"}),
        ("mad.lo.s64 %rd20, %rd6, 8, %rd11; ld.global.u32 %r9, [%rd20+4];", {"a"}),
        ("selp.b64 %rd20, %rd11, %rd12, %p1; ld.global.u32 %r9, [%rd20];", {"a", "b"}),
        ("mov.u64 %rd20, %rd11; @%p1 mov.u64 %rd20, %rd12; ld.global.u32 %r9, [%rd20];", {"a", "b"}),
        ("sub.s64 %rd20, %rd12, %rd11; add.s64 %rd21, %rd20, %rd11; ld.global.u32 %r9, [%rd21];", {"a", "b"}),
        ("add.s64 %rd20, %rd11, %rd3; ld.global.u32 %r9, [%rd20];", {"a", "m"}),
        ("shl.b64 %rd19, %rd3, 2; add.s64 %rd20, %rd11, %rd19; ld.global.u32 %r9, [%rd20];", {"a", "m"}),
        ("ld.global.u64 %rd20, [%rd11]; ld.global.u32 %r9, [%rd20];", {"a"}),
        ("ld.global.u32 %r9, [%rd4];", {"s"}),
        # ptxas accepts these: they read what lies beside the parameter.
        ("ld.param.u64 %rd20, [a+8]; ld.global.u32 %r9, [%rd20];", None),
        ("ld.param.u64 %rd20, [b+-8]; ld.global.u32 %r9, [%rd20];", None),
        ("ld.param.v2.u64 {%rd20, %rd21}, [a]; ld.global.u32 %r9, [%rd21];", None),
        ("ld.param.v2.u64 {%rd20, %rd21}, [s]; ld.global.u32 %r9, [%rd21];", {"s"}),
        ("ld.global.u32 %r9, [table+4];", {"table"}),
        ("mov.u64 %rd20, table; cvta.global.u64 %rd21, %rd20; ld.u32 %r9, [%rd21];", {"table"}),
        ("ld.shared.u32 %r9, [sa];", {"sa"}),
        ("mov.u32 %r20, sa; mad.lo.s32 %r21, %r2, 4, %r20; ld.shared.u32 %r9, [%r21];", {"sa"}),
        ("mov.u64 %rd20, sb; cvta.shared.u64 %rd21, %rd20; ld.u32 %r9, [%rd21];", {"sb"}),
        ("mov.u64 %rd20, depot; add.u64 %rd21, %rd20, 8; ld.local.u32 %r9, [%rd21];", {"depot"}),
        ("mov.b64 {%r20, %r21}, %rd11; mov.b64 %rd20, {%r20, %r21}; ld.global.u32 %r9, [%rd20];", None),
        ("ld.shared.u32 %r9, [%r2];", None),
        ("mov.u32 %r20, sa; mapa.shared::cluster.u32 %r21, %r20, 0; ld.shared::cluster.u32 %r9, [%r21];", None),
        ("ld.global.u32 %r9, [4096];", None),
        ("mov.u64 %rd20, 0; selp.b64 %rd20, %rd11, %rd20, %p1; ld.global.u32 %r9, [%rd20];", {"a"}),
        ("selp.b64 %rd20, %rd11, 4096, %p1; ld.global.u32 %r9, [%rd20];", None),
        ("shl.b64 %rd20, %rd3, 8; shr.u64 %rd20, %rd20, 8; ld.global.u32 %r9, [%rd20];", None),
        ("shl.b64 %rd20, %rd3, 8; selp.b64 %rd20, %rd11, %rd20, %p1; ld.global.u32 %r9, [%rd20];", None),
        ("selp.b64 %rd20, %rd11, %rd6, %p1; add.s64 %rd20, %rd20, %rd6; ld.global.u32 %r9, [%rd20];", None),
        ("selp.b64 %rd20, %rd11, %rd6, %p1; add.s64 %rd20, %rd20, %rd12; ld.global.u32 %r9, [%rd20];", {"a", "b"}),
        ("and.b64 %rd20, %rd11, -16; or.b64 %rd20, %rd20, 4; ld.global.u32 %r9, [%rd20];", {"a"}),
        ("and.b64 %rd20, %rd11, 15; ld.global.u32 %r9, [%rd20];", None),
        ("sub.s64 %rd20, %rd11, %rd6; ld.global.u32 %r9, [%rd20];", {"a"}),
        ("sub.s64 %rd20, %rd6, %rd11; ld.global.u32 %r9, [%rd20];", None),
        ("sub.s64 %rd20, %rd11, %rd12; ld.global.u32 %r9, [%rd20];", None),
        ("and.b64 %rd20, %rd11, %rd6; ld.global.u32 %r9, [%rd20];", None),
        ("xor.b64 %rd20, %rd11, %rd12; ld.global.u32 %r9, [%rd20];", None),
        ("xor.b64 %rd20, %rd11, 64; ld.global.u32 %r9, [%rd20];", {"a"}),
        ("mov.u32 %r20, sa; cvt.u64.u32 %rd20, %r20; ld.shared.u32 %r9, [%rd20];", {"sa"}),
        ("mov.u32 %r20, sa; shfl.sync.idx.b32 %r20, %r20, 3, 31, -1; ld.shared.u32 %r9, [%r20];", {"sa"}),
    ],
)
def test_what_an_address_points_into(code: str, names: set[str] | None) -> None:
    assert pointees(code) == names


@pytest.mark.parametrize(
    ("code", "is_known"),
    [
        ("ld.global.u64 %rd20, [%rd11]; ld.global.u32 %r9, [%rd20];", False),
        ("ld.global.u32 %r20, [%rd11]; mad.wide.u32 %rd20, %r20, 4, %rd12; ld.global.u32 %r9, [%rd20];", True),
        ("ld.global.u64 %rd20, [%rd11]; add.s64 %rd21, %rd20, %rd12; ld.global.u32 %r9, [%rd21];", False),
        ("ld.global.u64 %rd20, [%rd11]; shl.b64 %rd21, %rd20, 2; add.s64 %rd22, %rd21, %rd12; "
         "ld.global.u32 %r9, [%rd22];", True),
        ("ld.shared.u32 %r20, [sa]; ld.shared.u32 %r9, [%r20];", False),
        ("atom.global.add.u64 %rd20, [%rd11], 4; ld.global.u32 %r9, [%rd20];", False),
        ("alloca.u64 %rd20, 16; ld.local.u32 %r9, [%rd20];", True),
    ],
)  # fmt: skip
def test_what_comes_from_memory_may_be_any_address(code: str, is_known: bool) -> None:
    memory, accesses = memory_of(code)
    assert (memory.objects(accesses[-1]) is not None) == is_known


def test_a_pointer_that_a_loop_moves_on_stays_in_its_object() -> None:
    memory, accesses = memory_of(
        """mov.u64 %rd20, %rd11;
    L:  ld.global.u32 %r9, [%rd20];
        add.s64 %rd20, %rd20, 4;
        @%p1 bra L;"""
    )
    assert {each.name for each in memory.objects(accesses[0]) or ()} == {"a"}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("add.s64 %rd20, %rd11, %rd3;", {"a"}),
        ("selp.b64 %rd20, %rd11, %rd3, %p1;", {"a", "m"}),
        ("sub.s64 %rd19, %rd11, %rd1; add.s64 %rd20, %rd19, %rd3;", {"a", "m"}),
        ("selp.b64 %rd19, %rd11, 0, %p1; selp.b64 %rd18, 0, %rd3, %p1; add.s64 %rd20, %rd19, %rd18;", {"a", "m"}),
        ("or.b64 %rd20, %rd11, %rd3;", {"a", "m"}),
    ],
)
def test_where_pointers_are_marked_the_rest_are_integers(code: str, names: set[str]) -> None:
    """An operand without a mark is an integer if it is added to a pointer, but not if one of the two is selected."""
    head = HEADER.replace(".param .u64 a", ".param .u64 .ptr .global .align 4 a")
    memory, accesses = memory_of(f"{code} ld.global.u32 %r9, [%rd20];", head=head)
    assert {each.name for each in memory.objects(accesses[0]) or ()} == names


@pytest.mark.parametrize(
    ("one", "two", "conservative", "restrict"),
    [
        ("st.global.u32 [%rd11]", "st.global.u32 [%rd12]", True, False),
        ("st.global.u32 [%rd11]", "st.global.u32 [%rd11+4]", False, False),
        ("st.global.u32 [%rd11]", "st.global.u32 [%rd11+3]", True, True),
        ("st.global.v4.u32 [%rd11]", "st.global.u32 [%rd11+12]", True, True),
        ("st.global.u32 [%rd11+16]", "st.global.v4.u32 [%rd11]", False, False),
        ("st.global.u32 [%rd11+4294967296]", "st.global.u32 [%rd11]", True, True),
        ("st.global.u32 [%rd11]", "st.u32 [%rd2]", True, False),
        ("st.global.u32 [%rd11]", "st.global.u32 [table]", True, True),
        ("st.global.u32 [other]", "st.global.u32 [table]", False, False),
        ("st.global.u32 [%rd4]", "st.global.u32 [%rd5]", True, True),  # both pointers are from one structure
        ("st.global.u32 [%rd11]", "st.global.u32 [%rd5]", True, True),  # the pointers in a structure cannot be checked
        ("st.shared.u32 [sa]", "st.shared.u32 [sb]", False, False),
        ("st.shared.u32 [sa]", "st.shared.u32 [%r2]", True, True),
        ("st.shared.u32 [dynamic]", "st.shared.u32 [more]", True, True),
        ("st.shared.u32 [dynamic]", "st.shared.u32 [sa]", False, False),
        ("st.shared.u32 [%r2]", "st.global.u32 [%rd11]", False, False),
        ("st.shared.u32 [%r2+2147483648]", "st.shared.u32 [%r2+-2147483648]", True, True),
        ("st.local.u32 [depot]", "st.u32 [%rd1]", False, False),
        ("st.local.u32 [depot]", "st.u32 [%rd6]", True, True),
    ],
)
def test_which_pairs_of_references_may_and_must_alias(one: str, two: str, conservative: bool, restrict: bool) -> None:
    code = "".join(f"{text}, {{%r1, %r1, %r1, %r1}};" if ".v4" in text else f"{text}, %r1;" for text in (one, two))
    for level, expected in (("conservative", conservative), ("restrict", restrict)):
        memory, (left, right) = memory_of(code, level)
        a, b = memory.reference(left), memory.reference(right)
        assert a is not None and b is not None
        assert memory.may_alias(a, b) == memory.may_alias(b, a) == expected
        assert memory.must_alias(a, a)
        assert not (memory.must_alias(a, b) and not memory.may_alias(a, b))


def test_bases_that_differ_by_multiples() -> None:
    memory, (even, odd, near) = memory_of(
        """mul.wide.u32 %rd20, %r2, 16;
        add.s64 %rd21, %rd20, %rd11;
        mul.wide.u32 %rd22, %r1, 8;
        add.s64 %rd23, %rd22, %rd11;
        st.global.u32 [%rd21], %r1;
        st.global.u32 [%rd23+4], %r1;
        st.global.u32 [%rd23+2], %r1;"""
    )
    a, b, c = (memory.reference(each) for each in (even, odd, near))
    assert a is not None and b is not None and c is not None
    assert not memory.may_alias(a, b)
    assert memory.may_alias(a, c)


def test_one_place_by_two_ways_of_adding() -> None:
    memory, (one, two) = memory_of(
        """add.s64 %rd20, %rd11, %rd6; add.s64 %rd21, %rd20, 8; st.global.u32 [%rd21], %r1;
        mad.wide.u32 %rd22, %r2, 4, %rd11; ld.global.u32 %r9, [%rd22+8];"""
    )
    a, b = memory.reference(one), memory.reference(two)
    assert a is not None and b is not None and memory.must_alias(a, b)


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("conservative", ""),
        ("restrict", "k.a k.b j.a"),
        ("restrict:k", "k.a k.b"),
        ("restrict:k.a,j", "k.a j.a"),
    ],
)
def test_which_parameters_a_promise_covers(text: str, covered: str) -> None:
    promise = Promise.parse(text)
    names = [("k", "a"), ("k", "b"), ("j", "a")]
    assert " ".join(".".join(name) for name in names if promise.covers(*name)) == covered
    assert Promise.parse(promise.text) == promise


@pytest.mark.parametrize("text", ["", "restricted", "restrict:", "restrict:k.", "restrict:,k", "conservative:k"])
def test_promises_that_say_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"restrict|names no parameter"):
        Promise.parse(text)


def test_one_promised_parameter_is_enough() -> None:
    code = "st.global.u32 [%rd11], %r1; ld.global.u32 %r9, [%rd12];"
    for level, expected in (("restrict:k.b", True), ("restrict:k.m", False), ("restrict:j", False)):
        memory, (_, load) = memory_of(code, level)
        assert memory.is_unwritten(load) == expected


@pytest.mark.parametrize(
    ("code", "reads", "writes", "unknown"),
    [
        ("ld.global.u32 %r9, [%rd11]; st.global.u32 [%rd12], %r9;", "a", "b", ""),
        ("atom.global.add.u32 %r9, [%rd11], 1;", "a", "a", ""),
        ("red.global.add.u32 [%rd11], 1;", "a", "a", ""),
        ("cp.async.ca.shared.global [sa], [%rd12], 16;", "b", "", ""),
        ("ld.global.u64 %rd20, [%rd11]; st.global.u32 [%rd20], %r1;", "a", "", "w"),
        ("ld.global.u64 %rd20, [%rd11]; ld.global.u32 %r9, [%rd20];", "a", "", "r"),
        ("st.shared.u32 [%r2], %r1; st.local.u32 [depot], %r1;", "", "", ""),
        ("tex.1d.v4.u32.s32 {%r5, %r6, %r7, %r8}, [%rd1, {%r2}];", "", "", "r"),
        ("unknown.op %r9, %r9;", "", "", "rw"),
        ("st.global.u32 [table], %r1;", "", "", "w"),
        ("bar.sync 0; membar.gl;", "", "", ""),
        ("add.s64 %rd20, %rd11, %rd3; st.global.u32 [%rd20], %r1;", "", "a m", ""),
    ],
)
def test_which_buffers_are_read_and_written(code: str, reads: str, writes: str, unknown: str) -> None:
    memory, _ = memory_of(code)
    found = memory.buffers
    assert (" ".join(sorted(found.reads)), " ".join(sorted(found.writes))) == (reads, writes)
    assert ("r" * found.unknown_reads) + ("w" * found.unknown_writes) == unknown


def test_variables_of_the_module_are_named() -> None:
    memory, _ = memory_of("ld.global.u32 %r9, [other]; st.global.u32 [table], %r9;")
    assert (memory.buffers.variables_read, memory.buffers.variables_written) == ({"other"}, {"table"})


def test_a_call_may_touch_anything() -> None:
    head = (
        ".version 8.8\n.target sm_90\n.address_size 64\n.func f() { ret; }\n"
        + HEADER.partition(".address_size 64\n")[2]
    )
    module = parse(f"{head}call f;\n\tret;\n}}\n")
    kernel = module.kernel("k")
    buffers = Facts(kernel, module).memory.buffers
    assert buffers.unknown_reads and buffers.unknown_writes


@pytest.mark.parametrize(
    ("instruction", "shared", "private", "unwritten"),
    [
        ("add.s32 %r9, %r9, 1;", "", "", ""),
        ("ld.global.u32 %r9, [%rd12];", "", "", ""),
        ("st.global.u32 [%rd11+4], %r1;", "", "", ""),
        ("st.global.u32 [%rd11], %r1;", "store", "", ""),
        ("st.local.u32 [depot], %r1;", "", "store", ""),
        ("st.u32 [%rd6], %r1;", "store", "store", "store"),
        ("bar.sync 0;", "barrier", "", ""),
        ("bar.warp.sync -1;", "barrier", "", ""),
        ("membar.gl;", "barrier", "", ""),
        ("fence.acq_rel.gpu;", "barrier", "", ""),
        ("fence.acq_rel.sys;", "barrier", "", ""),
        ("membar.sys;", "barrier", "", ""),
        ("atom.global.add.u32 %r9, [%rd11+64], 1;", "ordered", "", ""),
        ("red.shared.add.u32 [sb], 1;", "ordered", "", ""),
        ("ld.volatile.global.u32 %r9, [%rd12];", "ordered", "", ""),
        ("ld.acquire.gpu.global.u32 %r9, [%rd12];", "barrier", "", ""),
        ("ld.acquire.sys.global.u32 %r9, [%rd12];", "barrier", "", ""),
        ("cp.async.ca.shared.global [sb], [%rd12], 16;", "barrier", "", ""),
        ("cp.async.wait_all;", "barrier", "", ""),
        ("mbarrier.arrive.shared.b64 %rd30, [sb];", "barrier", "", ""),
        ("griddepcontrol.wait;", "barrier", "", ""),
        ("unknown.op %r9, %r9;", "opaque", "opaque", "opaque"),
        ('.pragma "nounroll";', "", "", ""),
        ("shfl.sync.idx.b32 %r9, %r9, 0, 31, -1;", "", "", ""),
    ],
)
def test_what_changes_what_a_load_reads(instruction: str, shared: str, private: str, unwritten: str) -> None:
    """A load from a buffer that is written, one from local memory, and one from shared memory that is not written."""
    memory, _ = memory_of(
        f"""st.global.u32 [%rd11+128], %r1; st.local.u32 [depot+8], %r1;
    A:  {instruction}
    B:  ld.global.u32 %r10, [%rd11]; ld.local.u32 %r11, [depot]; ld.shared.u32 %r12, [sa];"""
    )
    blocks = {block.label.text: block.instrs for block in memory.kernel.blocks if block.label is not None}
    instr, loads = blocks["A"][0], blocks["B"][:3]
    assert [memory.kills(instr, load) for load in loads] == [shared, private, unwritten]
    references = [memory.reference(load) for load in loads]
    assert [memory.kills(instr, each) for each in references if each is not None] == [shared, private, unwritten]


def test_what_nobody_writes() -> None:
    memory, accesses = memory_of(
        """ld.global.u32 %r9, [%rd12]; ld.global.nc.u32 %r9, [%rd11]; ld.volatile.shared.u32 %r9, [sa];
        ld.const.u32 %r9, [coef]; ld.shared.u32 %r9, [sa]; ld.shared.u32 %r9, [%r2]; ld.global.u32 %r9, [table];
        st.shared.u32 [sb], %r9;"""
    )
    assert [memory.is_unwritten(each) for each in accesses] == [True, True, False, True, True, False, True, False]
    memory, accesses = memory_of("ld.global.u32 %r9, [%rd12]; ld.global.u32 %r8, [table]; st.global.u32 [%rd11], %r9;")
    assert [memory.is_unwritten(each) for each in accesses[:2]] == [False, False]
    memory, accesses = memory_of("ld.global.u32 %r9, [%rd12]; st.global.u32 [%rd11], %r9;", "restrict")
    assert memory.is_unwritten(accesses[0])


@pytest.mark.parametrize(
    ("instruction", "is_outside"),
    [
        ("bar.sync 0;", False),
        ("membar.cta;", False),
        ("fence.acq_rel.cta;", False),
        ("fence.acq_rel.cluster;", False),
        ("fence.proxy.async;", False),
        ("cp.async.wait_all;", False),
        ("mbarrier.arrive.shared.b64 %rd30, [sb];", False),
        ("atom.global.add.u32 %r9, [other], 1;", False),
        ("ld.volatile.shared.u32 %r9, [sb];", False),
        ("ld.acquire.cta.global.u32 %r9, [%rd12];", False),
        ("membar.gl;", True),
        ("membar.sys;", True),
        ("fence.acq_rel.gpu;", True),
        ("fence.sc.sys;", True),
        ("ld.acquire.gpu.global.u32 %r9, [%rd12];", True),
        ("ld.relaxed.gpu.global.u32 %r9, [%rd12];", True),
        ("ld.volatile.global.u32 %r9, [%rd12];", True),
        ("atom.acquire.gpu.global.add.u32 %r9, [%rd11], 1;", True),
        ("griddepcontrol.wait;", True),
    ],
)
def test_after_a_wait_for_other_threads_memory_may_be_written(instruction: str, is_outside: bool) -> None:
    """No global memory is known to be unwritten, and read-only memory is read-only only after the wait."""
    memory, _ = memory_of(f"A: {instruction}\nB: ld.global.u32 %r10, [table]; ld.shared.u32 %r11, [sa];", "restrict")
    blocks = {block.label.text: block.instrs for block in memory.kernel.blocks if block.label is not None}
    loads = blocks["B"][:2]
    assert (memory.outside is not None) == is_outside
    assert [memory.is_unwritten(load) for load in loads] == [not is_outside, True]
    assert bool(memory.kills(blocks["A"][0], loads[0])) == is_outside


def test_read_only_memory_is_so_from_the_wait_for_a_grid_on() -> None:
    memory, (load, constant) = memory_of(
        "A: griddepcontrol.wait;\nB: ld.global.nc.u32 %r10, [%rd11]; ld.const.u32 %r11, [coef];"
    )
    wait = next(instr for instr in memory.kernel.instructions() if instr.form.op.base == "griddepcontrol")
    assert [memory.kills(wait, each) for each in (load, constant)] == ["grid-dependency", ""]


def test_parameters_of_functions_are_any_address() -> None:
    module = parse(
        ".version 8.8\n.target sm_90\n.address_size 64\n.func f(.param .b64 p)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
        "ld.param.u64 %rd1, [p]; ld.u32 %r1, [%rd1]; ret;\n}\n"
    )
    kernel = module.kernels[0]
    load = next(
        instr for instr in kernel.instructions() if instr.form.space == "generic" and instr.form.op.base == "ld"
    )
    memory = Facts(kernel, module, promise=Promise.parse("restrict")).memory
    assert memory.objects(load) is None
    assert isinstance((kernel.params or [])[0], Param)


def test_nothing_is_known_where_nothing_comes() -> None:
    memory, (_, hidden) = memory_of(
        "mov.u64 %rd20, %rd11; @%p1 mov.u64 %rd20, %rd12; ld.global.u32 %r9, [%rd20]; ret;"
        "mov.u64 %rd20, %rd1; ld.global.u32 %r9, [%rd20];"
    )
    assert memory.reference(hidden) is None
    assert memory.objects(hidden) is None
    assert [access.objects for access in memory.accesses(hidden)] == [None]


def test_facts_without_a_promise() -> None:
    module = parse(f"{HEADER}\tret;\n}}\n")
    assert Facts(module.kernels[0], module).promise is CONSERVATIVE


def test_aliasing_takes_near_linear_time() -> None:
    def kernel_of(size: int) -> Facts:
        lines = [
            f"\tadd.s64 %rd{20 + number % 70}, %rd11, {8 * number};\n"
            f"\tld.global.u32 %r{10 + number % 80}, [%rd{20 + number % 70}];\n"
            f"\tst.global.u32 [%rd12+{4 * number}], %r{10 + number % 80};\n"
            for number in range(size)
        ]
        module = parse(f"{HEADER}{''.join(lines)}\tret;\n}}\n")
        facts = Facts(module.kernels[0], module)
        assert facts.values
        return facts

    def work(facts: Facts) -> None:
        memory = Memory.of(facts)
        for instr in facts.kernel.instructions():
            memory.reference(instr)
            memory.is_unwritten(instr)
        assert memory.buffers.writes == {"b"}

    assert_near_linear(kernel_of, work, 1500)
