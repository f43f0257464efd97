"""The fused kernel: its code, and that it has the effects of the two launches."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from ptxmotion.ptx import Directive, Kernel, parse, print_kernel, print_module
from ptxmotion.toolchain.tools import ToolMissing, assemble
from ptxmotion.transforms.kernel_fusion.fused_kernel import CannotFuse, FusedKernel, build
from ptxmotion.transforms.kernel_fusion.fusibility import Buffer, Fusibility, LaunchSite, Scalar, decide
from ptxmotion.transforms.kernel_fusion.launch_site import Extents
from small_launches import launch, run_fused, run_one_by_one

STORE = "add.s32 %f0, %i, 5; st.global.u32 [%p], %f0;"
LOAD = "ld.global.u32 %f1, [%p]; add.s32 %f1, %f1, 1; st.global.u32 [%q], %f1;"
BOUND = "setp.ge.s32 %z0, %i, %n; @%z0 bra $OUT; "
OUT = " $OUT:"
#: The value of the adjacent thread of the block, through shared memory.
EXCHANGE = """
    mov.u32 %r1, tile;
    shl.b32 %r2, %t, 2;
    add.s32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %i;
    bar.sync 0;
    xor.b32 %r2, %r2, 4;
    add.s32 %r3, %r1, %r2;
    ld.shared.u32 %f2, [%r3];
    st.global.u32 [{0}], %f2;
"""


def fuse(first: LaunchSite, second: LaunchSite, *, dead: str = "", grid_barrier: bool = False) -> FusedKernel:
    """Fuse, and compare with the two launches: in order and with two random schedules."""
    verdict = decide(first, second, may_pad=True)
    fused = build(first, second, verdict, name="both", dead_buffers=frozenset(dead), grid_barrier=grid_barrier)
    wanted = run_one_by_one(first, second)
    for seed in (-1, 1, 2):
        found = run_fused(fused, seed=seed)
        for name in wanted.keys() - set(dead):
            assert np.array_equal(found[name], wanted[name]), (name, seed)
    with contextlib.suppress(ToolMissing):
        assemble(print_module(fused.module))
    return fused


def mnemonics(kernel: Kernel) -> list[str]:
    return [instr.form.text for instr in kernel.instructions()]


def test_the_thesis_example() -> None:
    """Figure 5.1: the load becomes a copy of the register, and the store is removed if the buffer is not read later."""
    first = launch("ld.global.u32 %f2, [%q]; mul.lo.s32 %f0, %f2, 3; st.global.u32 [%p], %f0;", name="kernel1", b="c")
    second = launch(LOAD, name="kernel2")
    fused = fuse(first, second)
    assert mnemonics(fused.kernel).count("ld.global.u32") == 1
    assert mnemonics(fused.kernel).count("st.global.u32") == 2
    fused = fuse(first, second, dead="a")
    assert mnemonics(fused.kernel).count("st.global.u32") == 1
    assert "bar.sync" not in mnemonics(fused.kernel)
    assert fused.parameters == [(0, "kernel1_a"), (0, "kernel1_b"), (0, "kernel1_n"), (1, "kernel2_b")]
    assert not fused.cooperative


def test_a_store_is_kept_if_its_buffer_is_read() -> None:
    first = launch(STORE, b="c")
    # The second kernel reads it in a way that is not forwarded.
    second = launch("ld.global.u8 %f1, [%p]; st.global.u32 [%q], %f1;")
    fused = fuse(first, second, dead="a")
    assert mnemonics(fused.kernel).count("st.global.u32") == 2


FORWARDED = {
    "both bounded alike": (BOUND + STORE + OUT, BOUND + LOAD + OUT, 1),
    "both end early": ("setp.ge.s32 %z0, %i, %n; @%z0 ret; " + STORE, "setp.ge.s32 %z0, %i, %n; @%z0 exit; " + LOAD, 1),
    "the load is bounded further": (
        BOUND + STORE + OUT,
        BOUND + "setp.lt.s32 %z1, %t, 3; @%z1 bra $OUT; " + LOAD + OUT,
        1,
    ),
    "the store always, the load bounded": (STORE, BOUND + LOAD + OUT, 1),
    "the store bounded, the load always": (BOUND + STORE + OUT, LOAD, 0),
    "the store under a predicate": ("setp.lt.s32 %z1, %t, 3; @%z1 st.global.u32 [%p], %i;", LOAD, 0),
    "another bound": ("setp.ge.s32 %z0, %i, 20; @%z0 ret; " + STORE, BOUND + LOAD + OUT, 0),
    "the register changes afterwards": (STORE + " add.s32 %f0, %f0, 1; st.global.u32 [%q], %f0;", LOAD, 0),
    "stored twice": (STORE + " st.global.u32 [%p], %i;", LOAD, 0),
    "half of it stored again": (STORE + " st.global.u8 [%p], %i;", LOAD, 0),
    "stored again by the second": (STORE, "st.global.u32 [%p], %t; " + LOAD, 0),
    "stored again behind the load": (STORE, LOAD + " st.global.u32 [%p], %t;", 1),
    "stored again in a loop": (
        STORE,
        "mov.u32 %r1, 0; $L: "
        + LOAD
        + " st.global.u32 [%p], %r1; add.s32 %r1, %r1, 1; setp.lt.s32 %z1, %r1, 3; @%z1 bra $L;",
        0,
    ),
    "loaded in a loop": (
        STORE,
        "mov.u32 %r1, 0; $L: " + LOAD + " add.s32 %r1, %r1, 1; setp.lt.s32 %z1, %r1, 3; @%z1 bra $L;",
        1,
    ),
    "stored in a loop": (
        "mov.u32 %r1, 0; $L: add.s32 %f0, %r1, %i; st.global.u32 [%p], %f0; "
        "add.s32 %r1, %r1, 1; setp.lt.s32 %z1, %r1, 3; @%z1 bra $L;",
        LOAD,
        0,
    ),
    "a float": (
        "cvt.rn.f32.s32 %g0, %i; st.global.f32 [%p], %g0;",
        "ld.global.b32 %f1, [%p]; st.global.b32 [%q], %f1;",
        1,
    ),
    "a number": ("st.global.u32 [%p], 7;", LOAD, 1),
    "read by another width": (STORE, "ld.global.u16 %f1, [%p]; st.global.u32 [%q], %f1;", 0),
    "read as volatile": (STORE, "ld.volatile.global.u32 %f1, [%p]; st.global.u32 [%q], %f1;", 0),
    "through the read-only path": (STORE, "ld.global.nc.u32 %f1, [%p]; st.global.u32 [%q], %f1;", 1),
}


@pytest.mark.parametrize("what", FORWARDED)
def test_loads_that_are_forwarded(what: str) -> None:
    first, second, count = FORWARDED[what]
    sites = [launch(body, n=40, declarations=".reg .f32 %g<2>;") for body in (first, second)]
    fused = fuse(launch(first, n=40, b="c", declarations=".reg .f32 %g<2>;"), sites[1])
    assert any("loads replaced by the register" in remark for remark in fused.remarks) == bool(count)


def test_early_exits_branch_to_the_join() -> None:
    first = launch(
        "setp.ge.s32 %z0, %i, 20; @%z0 exit; " + STORE + " setp.ge.s32 %z1, %i, 10; @!%z1 bra $ON; ret; $ON:"
    )
    fused = fuse(first, launch("st.global.u32 [%q], %i;"))
    text = print_kernel(fused.kernel)
    assert "exit" not in text
    assert text.count("ret;") == 1
    assert text.count("bra $fused_join_0;") + text.count("bra.uni $fused_join_0;") == 2


def test_a_dependence_within_a_block_gets_a_block_barrier() -> None:
    neighbour = "xor.b32 %r0, %t, 1; and.b32 %r0, %r0, 15; mad.lo.s32 %r0, %c, %w, %r0; "
    second = launch(neighbour + "mul.wide.u32 %x, %r0, 4; add.s64 %p, %a, %x; " + LOAD)
    # Some threads return early, but they must reach the barrier, too.
    fused = fuse(launch("setp.ge.s32 %z0, %t, 9; @%z0 ret; " + STORE), second)
    assert mnemonics(fused.kernel).count("bar.sync") == 1


def test_a_dependence_across_blocks_needs_a_grid_barrier() -> None:
    first, second = launch(STORE), launch("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;", b="c")
    verdict = decide(first, second)
    with pytest.raises(CannotFuse, match="other blocks"):
        build(first, second, verdict, name="both")
    fused = fuse(first, second, grid_barrier=True)
    assert fused.cooperative
    assert "atom.relaxed.gpu.global.add.u32" in mnemonics(fused.kernel)
    # It is launched cooperatively, and so is the kernel that it is fused with. A second barrier has a separate counter.
    again = fuse(fused.site, launch(STORE, a="d"))
    assert again.cooperative and len(again.site.counters) == 1
    twice = build(fused.site, second, decide(fused.site, second), name="both", grid_barrier=True)
    assert len(twice.site.counters) == 2
    # In another launch it might wait for a block that does not run yet.
    alone = replace(fused.site, cooperative=False)
    assert "may wait for another block" in str(decide(alone, launch(STORE, a="d")).reasons)
    alone = replace(fused.site, counters=frozenset())
    assert "writes a variable of the module" in str(decide(alone, launch(STORE, a="d")).reasons)


def test_registers_named_like_special_registers() -> None:
    """They hide `%tid.x`, which the barrier of the grid uses."""
    body = "mov.s32 %tid, 5; st.global.s32 [%p], %tid;"
    first = launch(body, declarations=".reg .s32 %tid;")
    second = launch("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;", b="c")
    fused = build(first, second, Fusibility("grid"), name="both", grid_barrier=True)
    assert "mov.s32 %tid_f2x, 5;" in print_module(fused.module)


def test_a_grid_barrier_needs_sm_70() -> None:
    first, second = launch(STORE), launch("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;", b="c")
    first.module.target = second.module.target = "sm_60"
    with pytest.raises(CannotFuse, match="sm_70"):
        build(first, second, decide(first, second), name="both", grid_barrier=True)


def test_a_grid_barrier_can_be_used_again() -> None:
    from small_launches import _Memory, contents  # pyright: ignore[reportPrivateUsage]

    first, second = launch(STORE), launch("ld.global.u32 %f1, [%p+4]; add.s32 %f1, %f1, %t; st.global.u32 [%p+8], %f1;")
    second = launch("ld.global.u32 %f1, [%p+4]; st.global.u32 [%q], %f1;")
    fused = build(first, second, decide(first, second), name="both", grid_barrier=True)
    memory = _Memory()
    loaded = memory.emulator.load(parse(print_module(fused.module)))
    from ptxmotion.emulator.options import Options

    values = [memory.buffers[each].base.to_bytes(8, "little") for each in "ab"] + [(48).to_bytes(4, "little")]
    for grid in (3, 3, 1, 2):
        for seed in (1, 2):
            done = loaded.launch_bytes(
                loaded.entry("both"), grid, 16, values, 0, Options(fine=True), schedule="random", seed=seed
            )
            assert done.findings == []
    counter = loaded.variable("both_arrived", np.uint32)
    assert int(counter[0]) & 0x7FFFFFFF == 0
    assert np.array_equal(contents(memory)["b"][:31], np.arange(6, 37))


def test_the_same_kernel_twice() -> None:
    shared = ".shared .align 4 .b8 tile[64];"
    site = launch(EXCHANGE.format("%p"), declarations=shared)
    fused = fuse(site, LaunchSite(site.kernel, site.module, site.grid, site.block, 0, dict(site.arguments)))
    assert len([each for each in fused.kernel.variables if each.space == "shared"]) == 2
    assert len(fused.parameters) == 3
    # The fused kernel is fused again.
    fuse(fused.site, launch(EXCHANGE.format("%q"), declarations=shared))


def test_too_much_shared_memory() -> None:
    """A fused launch must not need more shared memory than a block may have, if the separate launches do not."""
    dynamic = EXCHANGE.format("%p")
    first = launch(dynamic, head=".extern .shared .align 4 .b8 tile[];", shared=30_000)
    second = launch(EXCHANGE.format("%q"), declarations=".shared .align 4 .b8 tile[40000];")
    with pytest.raises(CannotFuse, match="70000 bytes of shared memory"):
        build(first, second, Fusibility("block"), name="both")
    with pytest.raises(CannotFuse, match=r"and 4 . m bytes of dynamic shared memory may be too much"):
        build(replace(first, shared="4 * m"), second, Fusibility("block"), name="both")
    fuse(replace(first, shared=8_000), second)
    plain = launch("st.global.u32 [%q], %i;")
    assert build(replace(first, shared="4 * m"), plain, Fusibility("thread"), name="both").shared_bytes == "4 * m"


def test_too_many_parameters() -> None:
    text = """.version 8.0
    .target sm_90
    .address_size 64
    .visible .entry k(.param .align 8 .b8 large[{0}]) {{ ret; }}"""
    for size, is_much in ((2048, False), (2056, True)):
        module = parse(text.format(size))
        site = LaunchSite(module.kernel("k"), module, (1, 1, 1), (1, 1, 1))
        expected = pytest.raises(CannotFuse, match="4112 bytes of parameters") if is_much else contextlib.nullcontext()
        with expected:
            build(site, site, decide(site, site), name="both")


def test_large_arrays_share_their_bytes_behind_a_barrier() -> None:
    large = ".shared .align 8 .b8 tile[32768];"
    fused = fuse(launch(EXCHANGE.format("%p"), declarations=large), launch(EXCHANGE.format("%q"), declarations=large))
    (array,) = (each for each in fused.kernel.variables if each.space == "shared")
    assert array.bytes == 32768
    assert mnemonics(fused.kernel).count("bar.sync") == 3


@pytest.mark.parametrize("sizes", [(64, 128), (128, 64)])
def test_dynamic_shared_arrays_share_their_bytes(sizes: tuple[int, int]) -> None:
    head = ".extern .shared .align 16 .b8 tile[];"
    first = launch(EXCHANGE.format("%p"), head=head, shared=sizes[0])
    second = launch(EXCHANGE.format("%q"), head=head, shared=sizes[1])
    fused = fuse(first, second)
    assert fused.shared_bytes == 128
    assert mnemonics(fused.kernel).count("bar.sync") == 3
    named = LaunchSite(first.kernel, first.module, first.grid, first.block, "m", first.arguments)
    assert build(named, second, decide(named, second), name="both").shared_bytes == f"max(m, {sizes[1]})"
    plain = launch(STORE, shared=4096)
    assert build(plain, second, decide(plain, second), name="both").shared_bytes == sizes[1]


def test_shared_arrays_of_the_module_move_into_the_kernel() -> None:
    head = ".shared .align 4 .b8 tile[64];"
    fused = fuse(launch(EXCHANGE.format("%p"), head=head), launch(EXCHANGE.format("%q"), head=head))
    assert len([each for each in fused.kernel.variables if each.space == "shared"]) == 2


def test_launch_bounds_of_both() -> None:
    first = launch(STORE, directives=".maxntid 256, 1, 1\n.minnctapersm 4")
    second = launch(LOAD, directives=".maxntid 128\n.minnctapersm 2")
    assert fuse(first, second).kernel.directives == [".maxntid 128", ".minnctapersm 2"]
    second = launch(LOAD, directives=".reqntid 16, 1, 1")
    assert fuse(first, second).kernel.directives == [".reqntid 16, 1, 1"]


@pytest.mark.parametrize(
    ("block", "directives"),
    [
        ((16, 16, 1), []),
        ((257, 1, 1), [".maxntid 257, 1, 1"]),
        ((16, 16, 4), [".maxntid 16, 16, 4"]),
        (("b", 2, 1), []),
    ],
)
def test_a_large_block_limits_the_registers(block: Extents, directives: list[str]) -> None:
    """ptxas may give the fused kernel more registers than both kernels have, and such a block would not be launched."""
    first, second = launch(STORE, block=block), launch(LOAD, a="b", block=block)
    assert build(first, second, decide(first, second), name="both").kernel.directives == directives
    stated = launch(LOAD, a="b", block=block, directives=".maxntid 1024")
    assert build(first, stated, decide(first, stated), name="both").kernel.directives == [".maxntid 1024"]
    first, second = (launch(text, block=block, directives=".minnctapersm 4") for text in (STORE, LOAD))
    both = build(first, second, decide(first, second), name="both").kernel
    assert both.directives == directives, "without bounds, ptxas ignores the number of blocks"


@pytest.mark.parametrize("grids", [(3, 2), (2, 3), ((2, 1, 1), (1, 2, 1))])
def test_different_grids_are_guarded(grids: tuple[int, int]) -> None:
    body = "mov.u32 %f0, %nctaid.x; add.s32 %f0, %f0, %i; mov.u32 %r0, %ctaid.y; mul.wide.u32 %x, %r0, 512; "
    body += "add.s64 %p, %p, %x; mov.u32 %r1, %nctaid.y; add.s32 %f0, %f0, %r1; st.global.u32 [%p], %f0;"
    first, second = (launch(body, a=name, grid=grid) for name, grid in zip("ab", grids, strict=True))
    fused = fuse(first, second)
    assert fused.grid == ((3, 1, 1) if isinstance(grids[0], int) else (2, 2, 1))


@pytest.mark.parametrize(
    "read",
    [
        "mov.v4.u32 {%f0, %r1, %r2, %r3}, %nctaid;",
        ".reg .v4 .u32 %v; mov.v4.u32 %v, %nctaid; mov.u32 %f0, %v.x;",
        ".reg .u16 %h; mov.u16 %h, %nctaid.x; cvt.u32.u16 %f0, %h;",
    ],
)
def test_different_grids_as_vectors_or_short_words_are_refused(read: str) -> None:
    """The vector has all extents of the fused grid, and a word of 32 bits cannot take the place of one of 16 bits."""
    body = read + " add.s32 %f0, %f0, %i; st.global.u32 [%p], %f0;"
    for extents in ((2, 3), ("g", "h")):
        first, second = (launch(body, a=name, grid=grid) for name, grid in zip("ab", extents, strict=True))
        with pytest.raises(CannotFuse, match="the grids differ, and 'mov"):
            build(first, second, decide(first, second, may_pad=True), name="both")
    fuse(launch(body), launch(body, a="b"))


def test_symbolic_grids_become_parameters() -> None:
    body = "mov.u32 %f0, %nctaid.x; add.s32 %f0, %f0, %i; st.global.u32 [%p], %f0;"
    first, second = launch(body, grid="g + 1"), launch(body, a="c", grid="h")
    verdict = decide(first, second, may_pad=True)
    fused = build(first, second, verdict, name="both")
    assert fused.grid == ("max((g + 1), h)", 1, 1)
    assert fused.parameters[-2:] == [(0, "%nctaid.x"), (1, "%nctaid.x")]
    numbers = {"g": 2, "h": 2}
    arguments = {
        name: Scalar(eval(given.value, {}, numbers))
        if isinstance(given, Scalar) and isinstance(given.value, str)
        else given
        for name, given in fused.site.arguments.items()
    }
    site = LaunchSite(fused.kernel, fused.module, (3, 1, 1), (16, 1, 1), 0, arguments)
    found = run_fused(FusedKernel(fused.module, "both", fused.parameters, site, ()))
    wanted = run_one_by_one(launch(body, grid=3), launch(body, a="c", grid=2))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_read_only_loads_become_plain_ones() -> None:
    # The second kernel writes what the first reads through the read-only path, and the first what the second reads.
    first = launch("ld.global.nc.u32 %f0, [%q]; st.global.u32 [%p], %f0;", b="c")
    second = launch("ld.global.nc.L1::no_allocate.u32 %f1, [%p]; st.global.u32 [%q], %f1;", b="c")
    text = print_kernel(fuse(first, second).kernel)
    assert ".nc" not in text
    # Loads from memory that neither kernel writes are not changed.
    second = launch("ld.global.nc.u32 %f1, [%p]; st.global.u32 [%q], %f1;", a="d")
    assert (
        print_kernel(fuse(launch("ld.global.nc.u32 %f0, [%q]; st.global.u32 [%p], %f0;", b="c"), second).kernel).count(
            ".nc"
        )
        == 2
    )


FUNCTION = """
.func (.param .b32 r) twice(.param .b32 x)
{{
.reg .b32 %v;
ld.param.b32 %v, [x];
{0} %v, %v, %v;
st.param.b32 [r], %v;
ret;
}}
"""
CALL = "{ .param .b32 x; .param .b32 r; st.param.b32 [x], %i; call.uni (r), twice, (x); ld.param.b32 %f0, [r]; } "


def test_functions_of_both_modules() -> None:
    add, mul = FUNCTION.format("add.s32"), FUNCTION.format("mul.lo.s32")
    first = launch(CALL + "st.global.u32 [%p], %f0;", head=add)
    same = fuse(first, launch(CALL + "st.global.u32 [%q], %f0;", head=add))
    assert len(same.module.kernels) == 2
    different = fuse(first, launch(CALL + "st.global.u32 [%q], %f0;", head=mul))
    assert [each.name for each in different.module.kernels] == ["twice", "twice_f2", "both"]


def test_the_copy_shares_nothing_with_the_original() -> None:
    first = launch(CALL + "st.global.u32 [%p], %f0;", head=FUNCTION.format("add.s32"))
    fused = fuse(first, launch(CALL + "st.global.u32 [%q], %f0;", head=FUNCTION.format("add.s32")))
    for kernel in fused.module.kernels:
        own = {*kernel.variables, *(kernel.params or ()), *(kernel.results or ()), *fused.module.kernels}
        for block in kernel.blocks:
            own |= {each.declaration for each in block.instrs if isinstance(each, Directive) and each.declaration}
        for instr in kernel.instructions():
            assert all(symbol.declaration in own for symbol in instr.symbols()), instr.text


def test_a_function_that_is_declared_before_its_definition() -> None:
    # In the original, the kernel is between declaration and definition, as in the output of nvcc.
    site = launch(CALL + "st.global.u32 [%p], %f0;", head=".func (.param .b32 r) twice(.param .b32 x);")
    module = parse(print_module(site.module) + FUNCTION.format("add.s32"))
    first = LaunchSite(module.kernel("k"), module, site.grid, site.block, 0, site.arguments)
    fused = fuse(first, launch(CALL + "st.global.u32 [%q], %f0;", head=FUNCTION.format("add.s32")))
    assert [each.name for each in fused.module.kernels] == ["twice", "both"]


def test_constants_of_both_modules() -> None:
    body = "mul.wide.u32 %x, %t, 4; mov.u64 %d0, table; add.s64 %d0, %d0, %x; ld.global.u32 %f0, [%d0]; "
    sites = [
        launch(body + f"st.global.u32 [{to}], %f0;", head=f".global .align 4 .u32 table[16] = {{{number}, 2}};")
        for to, number in (("%p", 1), ("%q", 3))
    ]
    assert [each.name for each in fuse(*sites).module.variables] == ["table", "table_f2"]
    assert [each.name for each in fuse(sites[0], sites[0]).module.variables] == ["table"]


def test_a_variable_of_the_body_does_not_hide_one_of_the_module() -> None:
    table = "mul.wide.u32 %x, %t, 4; mov.u64 %d0, tile; add.s64 %d0, %d0, %x; ld.global.u32 %f0, [%d0]; "
    first = launch(EXCHANGE.format("%p"), declarations=".shared .align 4 .b8 tile[64];")
    second = launch(table + "st.global.u32 [%q], %f0;", head=".global .align 4 .u32 tile[16] = {1, 2};")
    assert [each.name for each in fuse(first, second).module.variables] == ["tile_f2"]


def test_versions_and_targets() -> None:
    def of(version: str, target: str) -> LaunchSite:
        site = launch(STORE)
        site.module.version, site.module.target = version, target
        return site

    made = build(of("8.0", "sm_80"), of("7.8", "sm_90a"), Fusibility("thread"), name="both").module
    assert (made.version, made.target) == ("8.0", "sm_90a")
    assert build(of("8.0", "sm_90a"), of("8.0", "sm_90"), Fusibility("thread"), name="both").module.target == "sm_90a"
    with pytest.raises(CannotFuse, match="does not run on"):
        build(of("8.7", "sm_100"), of("8.0", "sm_90a"), Fusibility("thread"), name="both")


def test_what_is_not_fusible_is_not_built() -> None:
    first, second = launch(STORE), launch(LOAD, block=32)
    with pytest.raises(CannotFuse, match="different shapes"):
        build(first, second, decide(first, second), name="both")


def test_source_positions_are_kept() -> None:
    bodies = [f".loc 1 {line} 3\nadd.s32 %f0, %i, {line};\nst.global.u32 [%p], %f0;" for line in (12, 34)]
    sites = [launch(body, a=name) for body, name in zip(bodies, "ab", strict=True)]
    modules = [
        parse(print_module(site.module) + f'\n.file 1 "{name}"\n')
        for site, name in zip(sites, ("one.cu", "two.cu"), strict=True)
    ]
    first, second = (
        LaunchSite(module.entries[0], module, site.grid, site.block, 0, site.arguments)
        for site, module in zip(sites, modules, strict=True)
    )
    fused = build(first, second, decide(first, second), name="both")
    assert fused.module.files == {1: "one.cu", 2: "two.cu"}
    lines = {instr.loc.file_line_column[:2] for instr in fused.kernel.instructions() if instr.loc is not None}
    assert lines == {(1, 12), (2, 34)}


def test_the_original_kernels_are_not_changed() -> None:
    first, second = launch(STORE), launch("{ .reg .b32 %r0; mov.u32 %r0, 5; st.global.u32 [%q], %r0; }")
    before = print_module(first.module), print_module(second.module)
    fuse(first, second)
    assert (print_module(first.module), print_module(second.module)) == before


def test_forwarding_is_correct_under_the_independence_promise() -> None:
    """Even with the promise, a load is not replaced if it may read the store of another thread."""
    first = launch(
        "and.b32 %r0, %i, 7; mul.wide.u32 %x, %r0, 4; add.s64 %p, %a, %x; st.global.u32 [%p], %i;", grid=1, block=8
    )
    second = launch("and.b32 %r0, %i, 7; mul.wide.u32 %x, %r0, 4; add.s64 %p, %a, %x; " + LOAD, grid=1, block=8)
    fused = build(first, second, decide(first, second, assume_independent=True), name="both")
    assert not fused.remarks


def test_buffers_are_named_once() -> None:
    first = launch(STORE, a=Buffer("a", 16))
    assert len(fuse(first, launch(LOAD, a=Buffer("a", 16))).parameters) == 3
    assert len(fuse(first, launch("st.global.u32 [%q], %i;", a=Buffer("a", 32))).parameters) == 4
