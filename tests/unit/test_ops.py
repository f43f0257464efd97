"""Every row of the opcode table can be decoded, prints what was decoded, and describes its operands correctly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from ptxmotion.ptx import ROWS, Effect, Instr, Op, Operand, Reg, decode, parse, print_module, substitute

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
DECLARATIONS = """.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b128 %q<9>;
.reg .f32 %f<9>; .reg .f64 %fd<9>; .shared .b8 s[64];
"""


def spellings(row: Op) -> Iterator[str]:
    """Mnemonics that the row's notation describes, the shortest first."""
    choices = [sorted(piece.words) for piece in row.pieces if not piece.optional]
    for words in itertools.islice(itertools.product(*choices), 400):
        yield ".".join([row.base, *words])
        if row.wildcard:
            yield ".".join([row.base, *words, "further"])


def operand(kind: str, role: str, number: int) -> str:
    if role == "addr":
        return f"[%rd{number}+8]"
    if kind in ("label", "name"):
        return "L"
    registers = {"pred": "%p", "vec": "{%r", "f32": "%f", "f64": "%fd", "b64": "%rd", "u64": "%rd", "wide": "%rd"}
    name = f"{registers.get(kind, '%r')}{number}"
    return name + "}" if name.startswith("{") else name


def example(row: Op, mnemonic: str) -> str:
    parts = [operand(spec.type, spec.role, number) for number, spec in enumerate(row.operands) if not spec.optional]
    if decode(mnemonic, len(parts)).op is not row:
        parts += ["[%rd7]", "128"]
    return f"{mnemonic} {', '.join(parts)};" if parts else f"{mnemonic};"


def reaching(row: Op) -> str | None:
    """A mnemonic that is decoded to the row, with the least number of operands or a larger number."""
    least = sum(not spec.optional for spec in row.operands)
    counts = (least, least + 2) if row.variadic else (least,)
    return next((text for text in spellings(row) for count in counts if decode(text, count).op is row), None)


def instruction(text: str) -> Instr:
    """The first instruction of a body that contains ``text``."""
    table = "L: .branchtargets M;\n" if text.startswith("brx") else "L:\n"
    module = parse(
        f"{HEAD}.func f(.param .b32 a) {{ ret; }}\n.entry k()\n{{\n{DECLARATIONS}{table}{text}\nM: ret;\n}}\n"
    )
    found = next(module.kernel("k").instructions())
    again = parse(print_module(module))
    assert next(again.kernel("k").instructions()).text == found.text
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if row.base != "call"], ids=lambda row: row.pattern.split()[0])
def test_every_row_is_reached_and_prints_what_it_decoded(row: Op) -> None:
    mnemonic = reaching(row)
    assert mnemonic is not None, f"no spelling leads to '{row.pattern}': an earlier row takes them all"
    text = example(row, mnemonic)
    instr = instruction(text)
    assert instr.form.op is row
    assert not instr.form.is_opaque
    assert instr.text == text


@pytest.mark.parametrize("row", [row for row in ROWS if row.base != "call"], ids=lambda row: row.pattern.split()[0])
def test_an_edit_of_every_kind_of_instruction_is_printed(row: Op) -> None:
    mnemonic = reaching(row)
    assert mnemonic is not None
    instr = instruction(example(row, mnemonic))
    named: dict[Operand, Reg] = {
        reg: Reg(f"%edited{number}", reg.type) for number, reg in enumerate((*instr.defs(), *instr.uses()))
    }
    instr.operands = tuple(substitute(operand, named) for operand in instr.operands)
    assert all(new.name in instr.text for new in named.values())
    assert not any(f"{old.text}," in instr.text or f"{old.text};" in instr.text for old in named)


def test_rows_do_not_refer_to_what_is_not_there() -> None:
    for row in ROWS:
        assert row.effects & ~Effect.ALL == 0
        assert row.divergence in ("source", "propagate", "uniform")
        slots = {piece.name for piece in row.pieces}
        for spec in row.operands:
            assert spec.role in ("def", "use", "inout", "addr")
        if row.commutes:
            assert [spec.name for spec in row.operands][:3] == ["d", "a", "b"]
        assert not row.semantics or row.semantics.isidentifier()
        assert "type" not in slots or row.base


#: The operands that an instruction writes and reads, in the order of the text.
ROLES = """\
add.s32 %r0, %r1, %r2                                     | %r0 | %r1 %r2
mad.wide.s32 %rd0, %r1, %r2, %rd3                         | %rd0 | %r1 %r2 %rd3
setp.lt.and.s32 %p0|%p1, %r1, %r2, !%p2                   | %p0 %p1 | %r1 %r2 %p2
selp.b32 %r0, %r1, %r2, %p3                               | %r0 | %r1 %r2 %p3
lop3.or.b32 %r0|%p1, %r2, %r3, %r4, 0x3f, %p5             | %r0 %p1 | %r2 %r3 %r4 %p5
mov.b64 {%r0, %r1}, %rd2                                  | %r0 %r1 | %rd2
mov.b64 {_, %r1}, %rd2                                    | %r1 | %rd2
mov.b128 %q0, {%rd1, %rd2}                                | %q0 | %rd1 %rd2
mov.v2.b32 {%r0, %r1}, {%r1, %r2}                         | %r0 %r1 | %r1 %r2
cvt.rn.f16x2.f32 %r0, %f1, %f2                            | %r0 | %f1 %f2
isspacep.shared %p0, %rd1                                 | %p0 | %rd1
mapa.shared::cluster.u32 %r0, %r1, %r2                    | %r0 | %r1 %r2
ld.global.v2.f32 {%f0, %f1}, [%rd2+8]                     | %f0 %f1 | %rd2
ld.global.L2::cache_hint.b32 %r0, [%rd1], %rd2            | %r0 | %rd1 %rd2
ld.mmio.relaxed.sys.global.b32 %r0, [%rd1]                | %r0 | %rd1
ld.global.b128 %q0, [%rd1]                                | %q0 | %rd1
st.global.v2.f32 [%rd0], {%f1, %f2}                       | | %rd0 %f1 %f2
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r0], {%r1, %r2}, [%r3] | | %r0 %r1 %r2 %r3
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, [%r2] | | %r0 %r1 %r2
st.bulk.weak.shared::cta [%rd0], %rd1, 0                  | | %rd0 %rd1
atom.global.add.u32 %r0, [%rd1], %r2                      | %r0 | %rd1 %r2
atom.global.add.u32 _, [%rd1], %r2                        | | %rd1 %r2
atom.global.cas.b32 %r0, [%rd1], %r2, %r3                 | %r0 | %rd1 %r2 %r3
atom.global.v2.f32.add {%f0, %f1}, [%rd2], {%f3, %f4}     | %f0 %f1 | %rd2 %f3 %f4
red.global.add.u32 [%rd0], %r1                            | | %rd0 %r1
multimem.ld_reduce.acquire.gpu.global.add.u32 %r0, [%rd1] | %r0 | %rd1
multimem.ld_reduce.weak.global.add.v2.f16x2 {%r0, %r1}, [%rd1] | %r0 %r1 | %rd1
multimem.st.weak.global.b32 [%rd0], %r1                   | | %rd0 %r1
multimem.red.relaxed.gpu.global.add.u32 [%rd0], %r1       | | %rd0 %r1
createpolicy.range.global.L2::evict_last.b64 %rd0, [%rd1], %r2, %r3 | %rd0 | %rd1 %r2 %r3
prefetch.global.L2 [%rd0]                                 | | %rd0
cp.async.ca.shared.global [%r0], [%rd1], 16, %r2          | | %r0 %rd1 %r2
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd1, {%r2, %r3}], [%r4] | \
| %r0 %rd1 %r2 %r3 %r4
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r1], %r2 | | %rd0 %r1 %r2
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd0], %rd1 | | %rd0 %rd1
tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4, %f5}] | %f0 %f1 %f2 %f3 | %rd0 %f4 %f5
tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}|%p4, [%rd0, {%f4, %f5}] | %f0 %f1 %f2 %f3 %p4 | %rd0 %f4 %f5
tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4, %f5}], %f6, {%r1, %r2}, %f7 | %f0 %f1 %f2 %f3 \
| %rd0 %f4 %f5 %f6 %r1 %r2 %f7
tex.grad.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4}], {%f5}, {%f6}, {%r1}, %f7 | %f0 %f1 %f2 %f3 \
| %rd0 %f4 %f5 %f6 %r1 %f7
suld.b.2d.v2.b32.trap {%r0, %r1}, [%rd2, {%r3, %r4}]      | %r0 %r1 | %rd2 %r3 %r4
sust.b.1d.b32.trap [%rd0, {%r1}], {%r2}                   | | %rd0 %r1 %r2
sured.b.add.1d.u32.trap [%rd0, {%r1}], %r2                | | %rd0 %r1 %r2
txq.width.b32 %r0, [%rd1]                                 | %r0 | %rd1
shfl.sync.down.b32 %r0|%p1, %r2, 1, 31, %r3               | %r0 %p1 | %r2 %r3
shfl.down.b32 %r0, %r2, 1, 31                             | %r0 | %r2
vote.all.pred %p0, !%p1                                   | %p0 | %p1
vote.sync.ballot.b32 %r0, %p1, %r2                        | %r0 | %p1 %r2
match.all.sync.b32 %r0|%p1, %r2, %r3                      | %r0 %p1 | %r2 %r3
elect.sync _|%p0, %r1                                     | %p0 | %r1
redux.sync.add.s32 %r0, %r1, %r2                          | %r0 | %r1 %r2
bar.red.popc.u32 %r0, 0, %r1, !%p2                        | %r0 | %r1 %p2
barrier.cta.red.and.pred %p0, 0, %p1                      | %p0 | %p1
setmaxnreg.inc.sync.aligned.u32 160                       | |
griddepcontrol.wait                                       | |
mbarrier.init.shared.b64 [%r0], %r1                       | | %r0 %r1
mbarrier.arrive.shared.b64 %rd0, [%r1]                    | %rd0 | %r1
mbarrier.arrive.shared::cluster.b64 _, [%r1], %r2         | | %r1 %r2
mbarrier.arrive.shared::cluster.b64 [%r1], %r2            | | %r1 %r2
mbarrier.arrive.expect_tx.shared::cta.b64 %rd0, [%r1], %r2 | %rd0 | %r1 %r2
mbarrier.test_wait.shared.b64 %p0, [%r1], %rd2            | %p0 | %r1 %rd2
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r1], %r2, %r3 | %p0 | %r1 %r2 %r3
mbarrier.pending_count.b64 %r0, %rd1                      | %r0 | %rd1
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %q1 | %p0 | %q1
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r0, %q1 | %r0 | %q1
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r0, %r1, %r2, _}, %q1 | %r0 %r1 %r2 | %q1
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1] | | %r0 %r1
wmma.load.a.sync.aligned.row.m8n8k4.f64 {%fd0}, [%rd1], %r2 | %fd0 | %rd1 %r2
wmma.store.d.sync.aligned.row.m8n8k4.f64 [%rd0], {%fd1, %fd2}, %r3 | | %rd0 %fd1 %fd2 %r3
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, \
{%f0, %f1, %f2, %f4} | %f0 %f1 %f2 %f3 | %r0 %r1 %r2 %r3 %r4 %r5 %f0 %f1 %f2 %f4
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%r2] | %r0 %r1 | %r2
stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r0], {%r1, %r2} | | %r0 %r1 %r2
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1}, %rd2, %rd3, %p4, 1, 1, 0, 0 | %f0 %f1 | \
%f0 %f1 %rd2 %rd3 %p4
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r0, %r1}, [%r2]   | %r0 %r1 | %r2
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r0], {%r1}        | | %r0 %r1
tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd1, %rd2, %r3, %p4 | | %r0 %rd1 %rd2 %r3 %p4
vadd.s32.s32.s32.sat %r0.h1, %r1.b0, %r2, %r3             | %r0 | %r1 %r2 %r3 %r0
vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3              | %r0 | %r1 %r2 %r3
call f, (%r0)                                             | | %r0
brx.idx %r0, L                                            | | %r0
bra L                                                     | |
zap.u32 %r0, %r1                                          | %r0 %r1 | %r0 %r1
"""


@pytest.mark.parametrize("line", [line for line in ROLES.splitlines() if line], ids=lambda line: line.split()[0])
def test_operands_are_written_and_read_as_the_manual_says(line: str) -> None:
    *text, written, read = line.rsplit(" |", 2)
    instr = instruction(text[0].strip() + ";")
    assert [reg.name for reg in instr.defs()] == written.split()
    assert [reg.name for reg in instr.uses()] == read.split()


#: Effects that prevent illegal code motion.
EFFECTS = [
    ("ld.global.f32", Effect.READ | Effect.TRAP),
    ("ld.volatile.global.f32", Effect.ORDERED),
    ("ld.acquire.gpu.global.b32", Effect.ORDERED | Effect.BARRIER),
    ("ld.mmio.relaxed.sys.global.b32", Effect.ORDERED),
    ("ld.global.cv.b32", Effect.ORDERED),
    ("ld.local.lu.b32", Effect.ORDERED),
    ("st.release.cta.b32", Effect.WRITE | Effect.ORDERED | Effect.BARRIER),
    ("multimem.ld_reduce.acquire.gpu.global.add.u32", Effect.READ | Effect.ORDERED | Effect.BARRIER),
    ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32", Effect.WRITE | Effect.ASYNC),
    ("cp.async.cg.shared.global", Effect.READ | Effect.WRITE | Effect.ASYNC | Effect.BARRIER),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", Effect.WRITE | Effect.ASYNC | Effect.BARRIER),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", Effect.REGISTERS_LATER | Effect.ASYNC | Effect.CROSS_LANE),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32", Effect.REGISTERS_LATER | Effect.ASYNC | Effect.CROSS_LANE),
    ("tcgen05.st.sync.aligned.32x32b.x1.b32", Effect.REGISTERS_LATER | Effect.ASYNC | Effect.CROSS_LANE),
    ("bar.sync", Effect.BARRIER | Effect.CROSS_LANE),
    ("barrier.cluster.arrive.aligned", Effect.BARRIER | Effect.CROSS_LANE),
    ("griddepcontrol.wait", Effect.BARRIER | Effect.READ | Effect.WRITE),
    ("setmaxnreg.inc.sync.aligned.u32", Effect.STATE | Effect.CROSS_LANE),
    ("fence.proxy.async", Effect.BARRIER),
    ("membar.gl", Effect.BARRIER),
    ("vote.all.pred", Effect.CROSS_LANE),
    ("activemask.b32", Effect.CROSS_LANE),
    ("elect.sync", Effect.CROSS_LANE),
    ("shfl.down.b32", Effect.CROSS_LANE),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", Effect.CROSS_LANE),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", Effect.CROSS_LANE | Effect.READ),
    ("add.cc.u32", Effect.CARRY_OUT),
    ("madc.hi.cc.u32", Effect.CARRY_OUT | Effect.CARRY_IN),
    ("subc.u32", Effect.CARRY_IN),
    ("sust.b.1d.b32.trap", Effect.WRITE),
    ("call.uni", Effect.READ | Effect.WRITE | Effect.BARRIER | Effect.STATE),
    ("zap.u32", Effect.ALL),
]


@pytest.mark.parametrize(("mnemonic", "needed"), EFFECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_effects_that_keep_an_instruction_in_its_place(mnemonic: str, needed: int) -> None:
    assert decode(mnemonic).effects & needed == needed


def test_only_branches_end_a_block() -> None:
    ending = {row.base for row in ROWS if row.effects & Effect.CONTROL}
    assert ending == {"bra", "brx", "ret", "exit", "trap"}
    assert not instruction("zap.u32 %r0;").is_terminator
    assert not instruction("call f, (%r0);").is_terminator


def test_modifiers_may_stand_in_any_order_and_stay_there() -> None:
    usual, other = decode("ld.global.volatile.v2.f32"), decode("ld.volatile.global.v2.f32")
    assert usual.op is other.op
    assert usual.mods == other.mods
    assert usual.text != other.text


def test_an_unknown_opcode_is_opaque_in_each_spelling() -> None:
    module = parse(f"{HEAD}.entry k() {{ .reg .b32 a; zap.b32 a; zap.b32 a; zap.b64 a; add.s32 a, a, 1; ret; }}")
    opaque = [instr.form.text for instr in module.kernel("k").instructions() if instr.form.is_opaque]
    assert opaque == ["zap.b32", "zap.b32", "zap.b64"]


KEPT = [
    "st.global.v8.b32 [%rd1], {%r0, _, %r1, %r2, %r3, %r4, %r5, %r6};",
    "st.global.v4.f64 [%rd1], {%fd1, _, %fd2, %fd3};",
    "ld.global.v2.b32 {%r1, %r2}, [%rd1+16].unified;",
    "vmad.s32.s32.s32 %r1, -%r2, %r3.h0, %r4;",
]


@pytest.mark.parametrize("text", KEPT)
def test_accesses_with_an_unknown_range_are_kept_and_ordered(text: str) -> None:
    """A store that skips elements writes no contiguous range, so it does not make an earlier store dead."""
    assert instruction(text).form.is_opaque
    assert instruction(text).text == text


def test_a_store_that_writes_all_its_elements_is_no_special_case() -> None:
    instr = instruction("st.global.v8.b32 [%rd1], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};")
    assert not instr.form.is_opaque and instr.form.lanes == 8


def test_operands_that_the_ir_has_no_form_for_are_kept_and_fenced() -> None:
    module = parse(f"{HEAD}.entry k() {{ .reg .b32 a, b; .reg .pred p; @p add.u32 a, b+1, -b; ret; }}")
    instr = next(module.kernel("k").instructions())
    assert instr.form.is_opaque
    assert instr.text == "@p add.u32 a, b+1, -b;"
    assert {reg.name for reg in instr.defs()} == {"a", "b"}
    assert {reg.name for reg in instr.uses()} == {"a", "b", "p"}


def test_the_order_of_words_that_are_not_modelled_is_kept() -> None:
    """`vadd` with its types in another order is another operation, so the forms must be unequal."""
    one, other = decode("vadd.s32.u32.s32.sat"), decode("vadd.s32.s32.u32.sat")
    assert one.flags == other.flags
    assert one.mods != other.mods
