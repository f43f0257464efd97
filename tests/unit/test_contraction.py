"""Products and sums that ptxas contracts: the kinds of products, and the behaviour of ptxas that they are based on."""

from functools import cache

import pytest
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.contraction import Contraction, may_contract, pinned, role
from ptxmotion.judges import Assembled
from ptxmotion.ptx import decode, parse, print_module
from ptxmotion.toolchain.contraction_counts import contraction_counts
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import ToolMissing, find_tool
from ptxmotion.transforms.kernel_fusion.fused_kernel import build
from ptxmotion.transforms.kernel_fusion.fusibility import decide
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from small_launches import launch

#: Many cases begin with one text, or end with it.
counts_of = cache(contraction_counts)

#: Register declarations and loads at the start of every body. Results are stored to [%o] and [%o+4].
HEAD = """.version 8.6
.target {arch}
.address_size 64
.visible .entry k(.param .u64 A, .param .u64 O, .param .u32 N)
{{
.reg .{type} %a, %b, %c, %d, %p, %q, %s, %t;
.reg .b64 %x, %o;
.reg .b32 %n, %i, %j;
.reg .pred %k, %l;
{declarations}
ld.param.u64 %x, [A];
ld.param.u64 %o, [O];
ld.param.u32 %n, [N];
setp.gt.u32 %k, %n, 7;
ld.volatile.global.{type} %a, [%x];
ld.volatile.global.{type} %b, [%x+16];
ld.volatile.global.{type} %c, [%x+32];
ld.volatile.global.{type} %d, [%x+48];
{body}
ret;
}}
"""
MUL, ADD = "mul.TYPE %p, %a, %b; ", "add.TYPE %s, %p, %c; "
S, P, T = (f"st.global.TYPE [%o+{at}], %{reg}; " for at, reg in ((0, "s"), (16, "p"), (32, "t")))
LOOP, AGAIN = "mov.u32 %i, 0; L: ", "add.u32 %i, %i, 1; setp.lt.u32 %l, %i, %n; @%l bra L; "
J = "st.global.u32 [%o+64], %j; "
ADD_T = "add.TYPE %t, %p, %d; "
#: The product of %a and %b is computed again and stored in the outer of two loops.
NESTED = (
    "mov.u32 %i, 0; V: mul.TYPE %q, %b, %a; st.global.TYPE [%o+64], %q; mov.u32 %j, 0; "
    "W: st.volatile.global.u32 [%o+80], %j; add.u32 %j, %j, 1; setp.lt.u32 %l, %j, %n; @%l bra W; "
    "add.u32 %i, %i, 1; setp.lt.u32 %l, %i, %n; @%l bra V; "
)

#: Body, the kind of the product in %p, and how many sums ptxas contracts (`None`: not tested).
BODIES: dict[str, tuple[str, str, int | None]] = {
    "a sum": (MUL + ADD + S, "contracted", 1),
    "two sums": (MUL + ADD + ADD_T + S + T, "contracted", 2),
    "a difference": (MUL + "sub.TYPE %s, %c, %p; " + S, "contracted", 1),
    "a negated product": (MUL + "neg.TYPE %q, %p; add.TYPE %s, %q, %c; " + S, "contracted", 1),
    "a copy": (MUL + "mov.TYPE %q, %p; add.TYPE %s, %q, %c; " + S, "contracted", 1),
    "a barrier between": (MUL + "bar.sync 0; " + ADD + S, "contracted", 1),
    "a dead reader": (MUL + ADD + "mul.TYPE %t, %p, %d; " + S, "contracted", 1),
    "in a loop": ("mov.TYPE %s, %d; " + LOOP + MUL + "add.TYPE %s, %s, %p; " + AGAIN + S, "contracted", 1),
    "no sum": (MUL + "add.TYPE %s, %c, %d; " + S + P, "rounded", 0),
    "also stored": (MUL + ADD + S + P, "rounded", 0),
    "stored under a guard": (MUL + ADD + S + "@%k " + P, "open", 0),
    "stored in an arm": (MUL + ADD + S + "@%k bra E; " + P + "E: ", "open", 0),
    "two sums and a store": (MUL + ADD + ADD_T + S + T + P, "rounded", 0),
    "also a factor": (MUL + ADD + "mul.TYPE %t, %p, %d; " + S + T, "rounded", 0),
    "also a sum that rounds": (MUL + ADD + "add.rn.TYPE %t, %p, %d; " + S + T, "rounded", 0),
    "doubled": (MUL + "add.TYPE %s, %p, %p; " + S, "rounded", 0),
    "through memory": (MUL + P + "ld.global.TYPE %q, [%o+16]; add.TYPE %s, %q, %c; " + S, "rounded", 0),
    "equal products": (MUL + "mul.TYPE %q, %a, %b; add.TYPE %s, %q, %c; " + S + P, "rounded", 1),
    "a pair": (MUL + "mul.TYPE %q, %c, %d; add.TYPE %s, %p, %q; " + S, "paired", 1),
    "a pair of equal products": (MUL + "mul.TYPE %q, %b, %a; add.TYPE %s, %p, %q; " + S, "open", 0),
    "a pair of equal products, one of which is stored": (
        MUL + "mul.TYPE %q, %b, %a; add.TYPE %s, %p, %q; st.global.TYPE [%o+16], %q; " + S,
        "open",
        0,
    ),
    "a pair, one of which is stored": (
        MUL + "mul.TYPE %q, %c, %d; add.TYPE %s, %p, %q; st.global.TYPE [%o+16], %q; " + S,
        "contracted",
        1,
    ),
    "an equal product where it is stored": (
        MUL + LOOP + ADD + S + "@%k bra E; mul.TYPE %t, %b, %a; " + P + T + "bar.sync 0; E: " + AGAIN,
        "open",
        1,
    ),
    "a guarded sum between": (
        MUL + "@%k add.rn.TYPE %d, %d, %c; " + ADD + S + "st.global.TYPE [%o+16], %d; ",
        "contracted",
        1,
    ),
    "a guarded store between": (MUL + "@%k st.global.TYPE [%o+16], %a; " + ADD + S, "open", 0),
    "a guarded load between": (MUL + "@%k ld.global.TYPE %c, [%o+16]; " + ADD + S, "open", 0),
    "a division between": (MUL + "div.rn.TYPE %c, %c, %d; " + ADD + S, "open", None),
    "an integer division between": (
        MUL + "div.s32 %i, %n, %j; " + ADD + S + "st.global.u32 [%o+16], %i; ",
        "open",
        None,
    ),
    "a division by a constant between": (
        MUL + "div.s32 %i, %n, 7; " + ADD + S + "st.global.u32 [%o+16], %i; ",
        "open",
        0,
    ),
    "a fence between": (MUL + "fence.sc.gpu; " + ADD + S, "open", None),
    "a 64-bit remainder between": (MUL + "rem.u64 %x, %x, %o; " + ADD + S + "st.global.u64 [%o+16], %x; ", "open", 0),
    "another block": (MUL + "@%k bra E; bar.sync 0; " + ADD + S + "E: ", "open", None),
    "carried": (MUL + LOOP + ADD + "st.volatile.global.TYPE [%o], %s; " + MUL + AGAIN, "open", None),
    "selected": (MUL + "selp.TYPE %q, %p, %d, %k; add.TYPE %s, %q, %c; " + S, "open", None),
    "stored in some turns": (LOOP + MUL + ADD + S + "setp.eq.u32 %k, %i, 3; @%k " + P + AGAIN, "open", None),
    "computed again in a loop, stored behind nested loops": (
        MUL + ADD + S + NESTED + "st.global.TYPE [%o+48], %p; ",
        "open",
        None,
    ),
    "computed again in a loop, stored before it": (MUL + ADD + S + P + NESTED, "rounded", None),
    "stored after the loop": (LOOP + MUL + ADD + S + AGAIN + P, "open", None),
    "negated by a factor": (MUL + "mul.TYPE %q, %p, NEGATIVE; add.TYPE %s, %q, %c; " + S, "open", 1),
    "multiplied by 1, which rounds": (MUL + "mul.rn.TYPE %q, %p, ONE; add.TYPE %s, %q, %c; " + S, "open", None),
    "a factor of 1 in a register": (
        MUL + "mov.TYPE %d, ONE; mul.TYPE %q, %d, %p; add.TYPE %s, %q, %c; " + S,
        "open",
        1,
    ),
    "the maximum of equal values": (
        MUL + "mov.TYPE %q, %p; max.TYPE %d, %p, %q; add.TYPE %s, %d, %c; " + S,
        "open",
        1,
    ),
    "a sum, and the maximum of equal values": (
        MUL + ADD + S + "min.TYPE %q, %p, %p; add.TYPE %t, %q, %d; " + T,
        "open",
        2,
    ),
    "compared for nothing": (MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; selp.TYPE %t, %d, %d, %k; " + T, "open", 1),
    "compared with itself": (MUL + ADD + S + "setp.equ.TYPE %k, %p, %p; selp.TYPE %t, %c, %d, %k; " + T, "open", 1),
    "compared for a branch around nothing": (
        MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; @%k bra E; add.TYPE %t, %c, %d; E: ",
        "open",
        1,
    ),
    "compared for a branch around a store": (
        MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; @%k bra E; st.global.TYPE [%o+16], %d; E: ",
        "rounded",
        0,
    ),
    "compared for the end": (MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; @%k exit; ", "open", 1),
    "compared for an end before a store": (
        MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; @%k exit; st.global.TYPE [%o+16], %d; ",
        "rounded",
        0,
    ),
    "compared in an empty loop": (
        MUL + ADD + S + "max.TYPE %t, %p, %d; L: add.rn.TYPE %t, %t, %d; setp.lt.TYPE %k, %t, %c; @%k bra L; ",
        "open",
        1,
    ),
    "a shuffle before the sum": (
        MUL + "shfl.sync.idx.b32 %j, %n, 0, 31, -1; " + ADD + S + "st.global.u32 [%o+16], %j; ",
        "open",
        1,
    ),
    "a shuffle between the sums": (
        MUL + ADD + S + "shfl.sync.idx.b32 %j, %n, 0, 31, -1; st.global.u32 [%o+16], %j; " + ADD_T + T,
        "open",
        0,
    ),
    "a vote for nothing": (
        MUL + ADD + S + "setp.gt.TYPE %k, %p, %d; vote.sync.any.pred %l, %k, -1; ",
        "open",
        1,
    ),
    "compared with a number": (
        MUL + ADD + S + "setp.gt.TYPE %k, %p, ONE; selp.TYPE %t, %c, %d, %k; " + T,
        "rounded",
        0,
    ),
    "selected by a constant": (
        MUL + ADD + S + "setp.eq.u32 %k, 1, 2; selp.TYPE %t, %p, %d, %k; " + T,
        "open",
        1,
    ),
    "a sum without it": (
        MUL + ADD + S + "cvt.rzi.s32.TYPE %i, %p; sub.s32 %j, %n, %i; add.s32 %j, %j, %i; " + J,
        "open",
        1,
    ),
    "a difference without it": (
        MUL + ADD + S + "cvt.rzi.s32.TYPE %i, %p; add.s32 %j, %i, %n; sub.s32 %j, %j, %i; " + J,
        "open",
        1,
    ),
    "a number from its bits": (
        MUL + ADD + S + "cvt.rzi.s32.TYPE %i, %p; not.b32 %j, %i; xor.b32 %j, %j, %i; " + J,
        "open",
        1,
    ),
    "bits shifted out": (
        MUL + ADD + S + "cvt.rzi.s32.TYPE %i, %p; mul.lo.s32 %j, %i, 65536; mul.lo.s32 %j, %j, 65536; " + J,
        "open",
        1,
    ),
    "bits shifted out of a sum": (
        MUL + ADD + S + "cvt.rzi.s32.TYPE %i, %p; mad.lo.s32 %j, %i, 65536, 7; mul.lo.s32 %j, %j, 65536; " + J,
        "open",
        1,
    ),
    "a saturated value": (
        MUL + ADD + S + "cvt.sat.TYPE.TYPE %q, %p; setp.gt.TYPE %k, %q, ONE; selp.b32 %j, 1, 2, %k; " + J,
        "open",
        None,  # ptxas knows it for f32 only
    ),
    "stored under a constant": (MUL + ADD + S + "setp.eq.u32 %k, 1, 2; @%k bra E; bra F; E: " + P + "F: ", "open", 1),
}
LITERALS = {"f32": ("0f3F800000", "0fBF800000"), "f64": ("0d3FF0000000000000", "0dBFF0000000000000")}
#: Results of %q that are the product in %q, its negative or nothing of it, in ptxas. They end in %t.
FOLDED = {
    "a factor": "mul.f32 %t, %q, 0fBF800000; ",
    "a computed factor": "mov.f32 %d, 0f40000000; sub.f32 %d, %d, 0f3F800000; mul.f32 %t, %q, %d; ",
    "equal operands": "max.f32 %t, %q, %q; ",
    "an integer sum": "mov.b32 %i, %q; add.s32 %i, %i, 0; mov.b32 %t, %i; ",
    "two negations": "mov.b32 %i, %q; neg.s32 %i, %i; neg.s32 %i, %i; mov.b32 %t, %i; ",
    "a branch around nothing": "mov.f32 %t, %q; setp.gt.f32 %k, %q, %d; @%k bra E; add.f32 %d, %c, %d; E: ",
    "a carry for nothing": "mov.f32 %t, %q; mov.b32 %i, %q; add.cc.u32 %i, %i, 7; ",
    "no bits": "mov.f32 %t, %q; max.f32 %d, %q, %c; mov.b32 %i, %d; and.b32 %i, %i, 0; st.global.u32 [%o+12], %i; ",
}


def module(body: str, type: str = "f32", arch: str = "sm_80", declarations: str = "") -> str:
    one, negative = LITERALS.get(type, ("", ""))
    body = body.replace("ONE", one).replace("NEGATIVE", negative)
    return HEAD.format(arch=arch, type=type, body=body.replace("TYPE", type), declarations=declarations)


@pytest.mark.parametrize("name", BODIES)
def test_which_products_are_rounded_contracted_or_open(name: str) -> None:
    body, kind, _ = BODIES[name]
    parsed = parse(module(body))
    found = Contraction.of(Facts(parsed.kernels[0], parsed))
    kinds = {product.kind for instr, product in found.products.items() if instr.defs()[0].text == "%p"}
    assert kinds == {kind}
    assert found.is_fragile == (kind == "open")


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_what_ptxas_contracts(type: str) -> None:
    """ptxas behaves as the header of the module says."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    known = {name: (body, number) for name, (body, _, number) in BODIES.items() if number is not None}
    entries = [module(body, type).replace(" k(", f" k{at}(") for at, (body, _) in enumerate(known.values())]
    head, start = entries[0].split(".visible")[0], len(entries[0].split(".visible")[0])
    found = contraction_counts(head + "".join(entry[start:] for entry in entries))
    assert {name: found[f"k{at}"].contracted for at, name in enumerate(known)} == {
        name: number for name, (_, number) in known.items()
    }


def test_products_with_a_rounding_modifier_are_not_contracted() -> None:
    assert [role(decode(text)) for text in ("mul.f32", "mul.rn.f32", "mul.ftz.f32", "mul.sat.f32", "mul.lo.s32")] == [
        "product",
        "",
        "product",
        "",
        "",
    ]
    assert role(decode("mul.rn.f32x2")) == "product"  # ptxas contracts it in spite of .rn
    assert role(decode("add.sat.f32")) == "sum"
    assert pinned(decode("mul.ftz.f32")) == "mul.rn.ftz.f32"
    assert pinned(decode("div.approx.f32")) is None
    assert pinned(decode("mul.f32x2")) is None


def test_local_memory_may_become_registers() -> None:
    body = MUL + "st.local.f32 [slot], %p; ld.local.f32 %q, [slot]; add.f32 %s, %q, %c; " + S
    parsed = parse(module(body, declarations=".local .align 4 .b8 slot[4];"))
    assert Contraction.of(Facts(parsed.kernels[0], parsed)).is_fragile


def test_kernels_without_sums_are_not_analysed() -> None:
    assert not may_contract(parse(module(MUL + P)).kernels[0])


def test_a_merged_product_would_be_rounded() -> None:
    """One of two equal products is stored and the other one is contracted. If they were merged, neither would be."""
    text = module(BODIES["equal products"][0])
    parsed = parse(text)
    remarks = Remarks(parsed)
    for passes in ("cse", "O1", "O3"):
        run_passes(parsed, passes, remarks)
        assert print_module(parsed).count("mul.f32") == 2


@pytest.mark.parametrize(
    "addresses", ["add.u64 %y, %x, 16; add.u64 %z, %x, 16; ", "add.u64 %y, %x, %o; add.u64 %z, %o, %x; "]
)
@pytest.mark.parametrize("store", ["", "st.global.f32 [%o+16], %p; ", "st.global.f32 [%o+16], %q; "])
def test_products_do_not_become_equal(addresses: str, store: str) -> None:
    """ptxas contracts one of two products with their sum. If the loads of their factors were merged, it would compute
    one product, and contract none. That holds also if one of the products is stored, and so is rounded."""
    loads = "ld.global.f32 %a, [%y]; ld.global.f32 %b, [%y+4]; ld.global.f32 %c, [%z+4]; ld.global.f32 %d, [%z]; "
    products = "mul.f32 %p, %a, %c; mul.f32 %q, %b, %d; add.f32 %s, %p, %q; "
    for passes in ("cse", "O3"):
        parsed = parse(module(addresses + loads + products + store + S, declarations=".reg .u64 %y, %z;"))
        run_passes(parsed, passes, Remarks(parsed))
        assert "mul.f32 %p, %a, %c;" in print_module(parsed)
        assert "mul.f32 %q, %b, %d;" in print_module(parsed)


@pytest.mark.parametrize("factor", ["0f3f808000", "%t", "%u"])
@pytest.mark.parametrize("store", ["", "st.global.f32 [%o+16], %p; "])
def test_products_with_a_constant_do_not_become_equal(factor: str, store: str) -> None:
    """Whether two products are equal does not depend on the spelling of a constant, nor on whether a register has
    it."""
    loads = "ld.global.f32 %a, [%x]; ld.global.f32 %b, [%x]; mov.f32 %t, 0f3F808000; mov.b32 %u, 0x3F808000; "
    products = f"mul.f32 %p, %a, 0f3F808000; mul.f32 %q, {factor}, %b; add.f32 %s, %p, %q; "
    for passes in ("cse", "O3"):
        parsed = parse(module(loads + products + store + S, declarations=".reg .f32 %u;"))
        run_passes(parsed, passes, Remarks(parsed))
        assert print_module(parsed).count("ld.global.f32") == 2


@pytest.mark.parametrize("stored", ["%p", "%q"])
@pytest.mark.parametrize("passes", ["lcm", "O3"])
def test_a_stored_product_does_not_become_equal_to_another_one(passes: str, stored: str) -> None:
    """As above, but one of the two products is stored, so it is rounded. ptxas contracts the other one."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    loads = "ld.global.f32 %a, [%x+4]; mul.f32 %p, %a, 0f3F808000; ld.global.f32 %b, [%x+4]; "
    sums = "mul.f32 %q, %b, 0f3F808000; add.f32 %s, %p, %q; "
    text = module(loads + sums + S + f"st.global.f32 [%o+12], {stored}; ")
    assert counts_of(text)["k"].contracted == 1
    for reader in (None, Assembled(PtxasJudge())):
        parsed = parse(text)
        run_passes(parsed, passes, Remarks(parsed), float_code=reader)
        assert counts_of(print_module(parsed))["k"].contracted == 1


@pytest.mark.parametrize("name", FOLDED)
def test_a_product_behind_a_folded_instruction_stays_contracted(name: str) -> None:
    """ptxas contracts the second of two equal products with a sum behind an instruction that it folds. The first one is
    stored. If they were merged, ptxas would round both."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    text = module(MUL + P + "mul.f32 %q, %a, %b; " + FOLDED[name] + "add.f32 %s, %t, %c; " + S)
    assert counts_of(text)["k"].contracted == 1
    for passes, reader in (("cse", None), ("O3", Assembled(PtxasJudge()))):
        parsed = parse(text)
        run_passes(parsed, passes, Remarks(parsed), float_code=reader)
        assert counts_of(print_module(parsed))["k"].contracted == 1


@pytest.mark.parametrize("passes", ["cse", "O3"])
def test_equal_products_around_nested_loops_stay(passes: str) -> None:
    """ptxas uses the product in the loop for the last store, and contracts the first product with its sum. If one
    product replaced both, ptxas would contract none."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    text = module(BODIES["computed again in a loop, stored behind nested loops"][0])
    assert counts_of(text)["k"].contracted == 1
    parsed = parse(text)
    run_passes(parsed, passes, Remarks(parsed))
    assert counts_of(print_module(parsed))["k"].contracted == 1


@pytest.mark.parametrize("between", ["@%k st.global.f32 [%o+16], %a; ", "div.rn.f32 %t, %c, %d; "])
def test_a_sum_in_another_block_of_ptxas_stays_there(between: str) -> None:
    """ptxas makes a block of its own for a guarded store, and calls a function for a division. Without these between
    product and sum, it would contract them."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    body = "div.rn.f32 %q, %c, %d; st.global.f32 [%o+4], %q; " + MUL + between + ADD + S
    text = module(body + "st.global.f32 [%o+16], %b; st.global.f32 [%o+8], %t; ")
    assert counts_of(text)["k"].contracted == 0
    for passes in ("cse", "deadstores", "O3"):
        parsed = parse(text)
        run_passes(parsed, passes, Remarks(parsed))
        assert counts_of(print_module(parsed))["k"].contracted == 0


def test_a_bfloat16_sum_is_counted_as_a_sum_however_ptxas_encodes_it() -> None:
    """ptxas encodes some of several sums as a multiply-add with the factor 1."""
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    body = "".join(f"ld.global.b32 %r{i}, [%rd0+{4 * i}];\n" for i in range(24))
    body += "".join(f"add.bf16x2 %r{i}, %r{i}, %r{i + 8};\n" for i in range(16))
    body += "".join(f"st.global.b32 [%rd0+{4 * i}], %r{i};\n" for i in range(16))
    counts = contraction_counts(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b32 %r<24>; .reg .b64 %rd<1>; ld.param.u64 %rd0, [p];\n" + body + "ret;\n}\n"
    )["k"]
    assert (counts.fma, counts.add) == (0, 16)


FUSED = "ld.global.f32 %f1, [%q]; mul.f32 %f2, %f1, %f1; st.global.f32 [%p], %f2;"
SUM = "ld.global.f32 %f1, [%p]; add.f32 %f3, %f1, 0f3F800000; st.global.f32 [%q], %f3;"


def test_fusion_pins_what_memory_rounded() -> None:
    first, second = launch(FUSED, name="one", b="c"), launch(SUM, name="two")
    for dead in (frozenset[str](), frozenset("a")):
        fused = build(first, second, decide(first, second, may_pad=True), name="both", dead_buffers=dead)
        text = [instr.form.text for instr in fused.kernel.instructions()]
        assert text.count("ld.global.f32") == 1
        assert "mul.rn.f32" in text and "mul.f32" not in text
        assert any(".rn" in remark for remark in fused.remarks)
