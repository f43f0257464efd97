"""THE table: one row per opcode form, and the only place where an opcode is described.

From it come decoding and printing of mnemonics, operand roles, the verifier's types and arity, the effects, the
divergence rule, the emulator's semantics (by name, resolved when it asks), the builder and the page of opcodes in the
docs. The notation is explained in `notation.py`. Of several rows with one base the first that fits is taken, so the
more special ones stand first.

Requires: `notation.py`. Guarantees: `decode` never fails; a mnemonic that no row fits becomes an opaque form that has
every effect, so that nothing moves across it. Reference: PTX ISA 9.0, chapters 9.7.1 to 9.7.20.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from .notation import Effect, Form, Op, decode_with
from .operands import SINK, Mem, Operand, Vec

__all__ = ["ROWS", "decode", "form_of", "may_skip_elements", "opaque_form", "special_type"]

_R, _W, _TRAP, _CTRL = Effect.READ, Effect.WRITE, Effect.TRAP, Effect.CONTROL
_BAR, _LANE, _ORD, _ASYNC, _STATE = Effect.BARRIER, Effect.CROSS_LANE, Effect.ORDERED, Effect.ASYNC, Effect.STATE
_LATER = Effect.REGISTERS_LATER
_FENCED = Effect.FENCED
_GRID = Effect.GRID

_I16 = "u16 s16 u32 s32 u64 s64"
_I32 = "u32 s32"
_I64 = "u32 s32 u64 s64"
_IX2 = " u16x2 s16x2"
_B = "b16 b32 b64"
_HALF = "f16 f16x2 bf16 bf16x2"
_LOAD = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64"

op = Op

INTEGER: list[Op] = [
    op("add.type d, a, b", "int_add", types=_I16 + _IX2, commutes=True),
    op("add.sat.type d, a, b", "int_add_sat", types="s32", commutes=True),
    op("add.cc.type d, a, b", "int_add_cc", types=_I64, commutes=True),
    op("addc{.cc}.type d, a, b", "int_addc", types=_I64, commutes=True, effects=Effect.CARRY_IN),
    op("sub.type d, a, b", "int_sub", types=_I16 + _IX2),
    op("sub.sat.type d, a, b", "int_sub_sat", types="s32"),
    op("sub.cc.type d, a, b", "int_sub_cc", types=_I64),
    op("subc{.cc}.type d, a, b", "int_subc", types=_I64, effects=Effect.CARRY_IN),
    op("mul.lo.type d, a, b", "int_mul_lo", types=_I16, commutes=True, cost=2),
    op("mul.hi.type d, a, b", "int_mul_hi", types=_I16, commutes=True, cost=2),
    op("mul.wide.type d:wide, a, b", "int_mul_wide", types="u16 s16 u32 s32", commutes=True, cost=2),
    op("mad.lo.type d, a, b, c", "int_mad_lo", types=_I16, cost=2),
    op("mad.hi.type d, a, b, c", "int_mad_hi", types=_I16, cost=2),
    op("mad.wide.type d:wide, a, b, c:wide", "int_mad_wide", types="u16 s16 u32 s32", cost=2),
    op("mad.hi.sat.type d, a, b, c", "int_mad_hi_sat", types="s32", cost=2),
    op("mad.(lo|hi).cc.type d, a, b, c", "int_mad_cc", types=_I64, cost=2),
    op("madc.(lo|hi){.cc}.type d, a, b, c", "int_madc", types=_I64, cost=2, effects=Effect.CARRY_IN),
    op("mul24.(lo|hi).type d, a, b", "int_mul24", types=_I32, commutes=True, cost=2),
    op("mad24.(lo|hi){.sat}.type d, a, b, c", "int_mad24", types=_I32, cost=2),
    op("sad.type d, a, b, c", "int_sad", types=_I16),
    op("div.type d, a, b", "int_div", types=_I16, cost=20),
    op("rem.type d, a, b", "int_rem", types=_I16, cost=20),
    op("abs.type d, a", "int_abs", types="s16 s32 s64"),
    op("neg.type d, a", "int_neg", types="s16 s32 s64"),
    op("min{.relu}.type d, a, b", "int_min", types=_I16 + _IX2, commutes=True),
    op("max{.relu}.type d, a, b", "int_max", types=_I16 + _IX2, commutes=True),
    op("popc.type d:u32, a", "int_popc", types="b32 b64", cost=2),
    op("clz.type d:u32, a", "int_clz", types="b32 b64", cost=2),
    op("bfind{.shiftamt}.type d:u32, a", "int_bfind", types=_I64, cost=2),
    op("fns.b32 d:b32, a:b32, b:b32, c:s32", "int_fns", cost=8),
    op("brev.type d, a", "int_brev", types="b32 b64", cost=2),
    op("bfe.type d, a, b:u32, c:u32", "int_bfe", types=_I64, cost=2, contraction="through"),
    op("bfi.type d, a, b, c:u32, e:u32", "int_bfi", types="b32 b64", cost=2, contraction="through"),
    op("szext.(clamp|wrap).type d, a, b:u32", "int_szext", types=_I32),
    op("bmsk.(clamp|wrap).b32 d:b32, a:b32, b:b32", "int_bmsk"),
    op("dp4a.atype=type.btype=type d:b32, a:b32, b:b32, c:b32", "int_dp4a", cost=2),
    op("dp2a.(lo|hi).atype=type.btype=type d:b32, a:b32, b:b32, c:b32", "int_dp2a", cost=2),
]

FLOAT: list[Op] = [
    op("add{.rnd}{.ftz}{.sat}.type d, a, b", "float_add", types="f32 f64 f32x2", commutes=True, contraction="sum"),
    op("add{.rnd}{.ftz}{.sat}.type d, a, b", "half_add", types=_HALF, commutes=True, contraction="sum"),
    op("add{.rnd}{.sat}.dtype=type.atype=type d:dtype, a:atype, b:dtype", "mixed_add", contraction="sum"),
    op("sub{.rnd}{.ftz}{.sat}.type d, a, b", "float_sub", types="f32 f64 f32x2", contraction="sum"),
    op("sub{.rnd}{.ftz}{.sat}.type d, a, b", "half_sub", types=_HALF, contraction="sum"),
    op("sub{.rnd}{.sat}.dtype=type.atype=type d:dtype, a:atype, b:dtype", "mixed_sub", contraction="sum"),
    op("mul{.rnd}{.ftz}{.sat}.type d, a, b", "float_mul", types="f32 f64 f32x2", commutes=True, contraction="product"),
    op("mul{.rnd}{.ftz}{.sat}.type d, a, b", "half_mul", types=_HALF, commutes=True, contraction="product"),
    op("fma.rnd{.ftz}{.sat}.type d, a, b, c", "float_fma", types="f32 f64 f32x2"),
    op("fma.rnd{.ftz}{.sat}{.relu}{.oob}.type d, a, b, c", "half_fma", types=_HALF),
    op("fma.rnd{.sat}.dtype=type.atype=type d:dtype, a:atype, b:atype, c:dtype", "mixed_fma"),
    op("mad{.rnd}{.ftz}{.sat}.type d, a, b, c", "float_fma", types="f32 f64"),
    op("div.rnd{.ftz}.type d, a, b", "float_div", types="f32 f64", cost=20),
    op(
        "div.(approx|full){.ftz}.type d, a, b",
        "float_div_approx",
        types="f32",
        cost=8,
        approximate=True,
        contraction="product",
    ),
    op(
        "div{.ftz}{.sat}.type d, a, b",
        "float_div_approx",
        types="f32 f64",
        cost=8,
        approximate=True,
        contraction="product",
    ),
    op("abs{.ftz}.type d, a", "float_abs", types="f32 f64 " + _HALF, contraction="through"),
    op("neg{.ftz}.type d, a", "float_neg", types="f32 f64 " + _HALF, contraction="through"),
    op("min{.ftz}{.NaN}{.xorsign}{.abs}.type d, a, b", "float_min", types="f32 f64 " + _HALF, commutes=True),
    op("max{.ftz}{.NaN}{.xorsign}{.abs}.type d, a, b", "float_max", types="f32 f64 " + _HALF, commutes=True),
    op("min{.ftz}{.NaN}{.abs}.type d, a, b, c", "float_min3", types="f32"),
    op("max{.ftz}{.NaN}{.abs}.type d, a, b, c", "float_max3", types="f32"),
    op("copysign.type d, a, b", "float_copysign", types="f32 f64"),
    op("testp.(finite|infinite|number|notanumber|normal|subnormal).type p:pred, a", "float_testp", types="f32 f64"),
    op("rcp.rnd{.ftz}.type d, a", "float_rcp", types="f32 f64", cost=12),
    op("rcp.approx.ftz.f64 d:f64, a:f64", "double_rcp_approx", cost=6, approximate=True),
    op("rcp{.approx}{.ftz}.type d, a", "float_rcp_approx", types="f32 f64", cost=4, approximate=True),
    op("sqrt.rnd{.ftz}.type d, a", "float_sqrt", types="f32 f64", cost=16),
    op("sqrt{.approx}{.ftz}.type d, a", "float_sqrt_approx", types="f32 f64", cost=4, approximate=True),
    op("rsqrt.approx.ftz.f64 d:f64, a:f64", "double_rsqrt_approx", cost=6, approximate=True),
    op("rsqrt{.approx}{.ftz}.type d, a", "float_rsqrt_approx", types="f32 f64", cost=4, approximate=True),
    op("sin{.approx}{.ftz}.type d, a", "float_sin_approx", types="f32", cost=4, approximate=True),
    op("cos{.approx}{.ftz}.type d, a", "float_cos_approx", types="f32", cost=4, approximate=True),
    op("lg2{.approx}{.ftz}.type d, a", "float_lg2_approx", types="f32", cost=4, approximate=True),
    op("ex2{.approx}{.ftz}.type d, a", "float_ex2_approx", types="f32 " + _HALF, cost=4, approximate=True),
    op("tanh{.approx}.type d, a", "float_tanh_approx", types="f32 " + _HALF, cost=4, approximate=True),
]

COMPARE: list[Op] = [
    op("set.cmp.bool{.ftz}.dtype=type.type d:dtype, a, b, c:pred", "compare_set"),
    op("set.cmp{.ftz}.dtype=type.type d:dtype, a, b", "compare_set"),
    op("setp.cmp.bool{.ftz}.type p:pred{|q:pred}, a, b, c:pred", "compare_setp"),
    op("setp.cmp{.ftz}.type p:pred{|q:pred}, a, b", "compare_setp"),
    op("selp.type d, a, b, c:pred", "compare_selp", contraction="through"),
    op("slct{.ftz}.type.atype=type d, a, b, c:atype", "compare_slct", contraction="through"),
]

LOGIC: list[Op] = [
    op("and.bits d, a, b", "bits_and", commutes=True, contraction="through"),
    op("or.bits d, a, b", "bits_or", commutes=True, contraction="through"),
    op("xor.bits d, a, b", "bits_xor", commutes=True, contraction="through"),
    op("not.bits d, a", "bits_not", contraction="through"),
    op("cnot.bits d, a", "bits_cnot"),
    op("lop3.(or|and).b32 p:b32|q:pred, a:b32, b:b32, c:b32, e:b32, f:pred", "bits_lop3_pred"),
    op("lop3.b32 d:b32, a:b32, b:b32, c:b32, e:b32", "bits_lop3", contraction="through"),
    op("shf.(l|r){.clamp}{.wrap}.b32 d:b32, a:b32, b:b32, c:u32", "bits_shf", contraction="through"),
    op("shl.bits d, a, b:u32", "bits_shl", contraction="through"),
    op("shr.type d, a, b:u32", "bits_shr", types=_I16 + " " + _B, contraction="through"),
]

MOVE: list[Op] = [
    op("mov.type d, a", "move_mov", cost=0, contraction="through"),
    op("mov.vec.type d:any, a:any", "move_vector", cost=0, contraction="through"),
    op("mov d, a", "move_mov", cost=0, contraction="through"),
    op("movmatrix{.sync}.aligned{.*} d:b32, a:b32", effects=_LANE, divergence="source", cost=8),
    op("prmt.b32{.(f4e|b4e|rc8|ecl|ecr|rc16)} d:b32, a:b32, b:b32, c:b32", "bits_prmt", contraction="through"),
    op("cvta{.space}.type d, a", "address_cvta", types="u32 u64"),
    op("cvta.to.space.type d, a", "address_cvta_to", types="u32 u64"),
    op("isspacep.space p:pred, a:any", "address_isspacep"),
    op("mapa{.space}.type d, a, b:u32", types="u32 u64"),
    op("getctarank{.space}.type d:u32, a", types="u32 u64"),
    op("istypep.(texref|samplerref|surfref) p:pred, a:any"),
    op("cvt.pack{.sat}.dtype=type.atype=type{.ctype=type} d:b32, a:atype, b:atype{, c:b32}", "convert_pack"),
    op(
        "cvt{.rnd}{.ftz}{.sat}{.satfinite}{.relu}{.scaled::n2::ue8m0}.dtype=type.atype=type d:dtype, a:atype",
        "convert",
        relaxed=True,
        cost=2,
        contraction="through",
    ),
    op(
        "cvt.rs{.satfinite}{.relu}.dtype=type.atype=type d:dtype, a:vec, b:b32",
        "convert_stochastic",
        relaxed=True,
        cost=2,
    ),
    op(
        "cvt{.rnd}{.satfinite}{.relu}.dtype=type.atype=type d:dtype, a:atype, b:atype{, c:b32}",
        "convert_pair",
        relaxed=True,
        cost=2,
    ),
]

_LOAD_MODIFIERS = "{.mmio}{.sem}{.scope}{.space}{.cop}{.nc}{.evict}{.l2evict}{.hint}{.prefetch}{.unified}"

MEMORY: list[Op] = [
    op(
        f"ld{_LOAD_MODIFIERS}{{.vec}}.type d*, [a]{{, b:b64}}",
        "memory_ld",
        types=_LOAD,
        effects=_R | _TRAP,
        relaxed=True,
        cost=20,
        divergence="source",
    ),
    op(
        "ldu{.space}{.vec}.type d*, [a]",
        "memory_ld",
        types=_LOAD,
        effects=_R | _TRAP,
        relaxed=True,
        cost=20,
        divergence="source",
    ),
    op(
        "st{.mmio}{.sem}{.scope}{.space}{.cop}{.evict}{.l2evict}{.hint}{.vec}.type [a], b*{, c:b64}",
        "memory_st",
        types=_LOAD,
        effects=_W | _TRAP,
        relaxed=True,
        cost=4,
    ),
    op("st.async{.*} [a], b:any, ...", effects=_W | _TRAP | _ASYNC | _ORD, cost=4),
    op("st.bulk{.*} [a], b:any, c:any", effects=_W | _TRAP | _ORD, cost=20),
    op("red.async{.*} [a], b:any, ...", effects=_R | _W | _TRAP | _ASYNC | _ORD, cost=8),
    op(
        "atom{.sem}{.scope}{.space}.cas{.hint}.type d, [a], b, c{, e:b64}",
        "memory_atom_cas",
        effects=_R | _W | _TRAP | _ORD,
        divergence="source",
        cost=40,
    ),
    op(
        "atom{.sem}{.scope}{.space}.exch{.hint}{.vec}.type d*, [a], b*{, c:b64}",
        "memory_atom",
        effects=_R | _W | _TRAP | _ORD,
        divergence="source",
        cost=40,
    ),
    op(
        "atom{.sem}{.scope}{.space}.atomop{.noftz}{.hint}{.vec}.type d*, [a], b*{, c:b64}",
        "memory_atom",
        effects=_R | _W | _TRAP | _ORD,
        divergence="source",
        cost=40,
    ),
    op(
        "red{.sem}{.scope}{.space}.atomop{.noftz}{.hint}{.vec}.type [a], b*{, c:b64}",
        "memory_red",
        effects=_R | _W | _TRAP | _ORD,
        cost=20,
    ),
    op("multimem.ld_reduce{.*} d:any, [a]", effects=_R | _TRAP | _ORD, divergence="source", cost=40),
    op("multimem.st{.*} [a], b:any", effects=_W | _TRAP | _ORD, cost=20),
    op("multimem.red{.*} [a], b:any", effects=_R | _W | _TRAP | _ORD, cost=20),
    op("multimem.cp{.*} ...", effects=_FENCED, cost=20),
    op("prefetch{.space}{.tensormap}{.(L1|L2)}{.evict}{.l2evict} [a]", "memory_prefetch", effects=_STATE, cost=2),
    op("prefetchu.L1 [a]", "memory_prefetch", effects=_STATE, cost=2),
    op("applypriority{.global}{.l2evict} [a], b:any", "memory_prefetch", effects=_STATE, cost=2),
    op("discard{.global}.L2 [a], b:any", effects=_W | _TRAP | _ORD, cost=2),
    op("createpolicy{.*} d:b64, ...", "memory_createpolicy", cost=2),
    op("cp.async.(ca|cg){.space}{.global}{.hint}{.prefetch} [d], [a], b:any, ...", "memory_cp_async", effects=_FENCED),
    op("cp.async.commit_group", "memory_cp_async_commit", effects=_BAR | _ORD | _ASYNC),
    op("cp.async.wait_group a:any", "memory_cp_async_wait", effects=_BAR | _ORD | _ASYNC),
    op("cp.async.wait_all", "memory_cp_async_wait", effects=_BAR | _ORD | _ASYNC),
    op("cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]", "mbarrier_copies", effects=_FENCED, cost=20),
    op("cp.async.bulk.commit_group", "bulk_commit", effects=_FENCED, cost=20),
    op("cp.async.bulk.wait_group{.read} a:any", "bulk_wait", effects=_FENCED, cost=20),
    op("cp.reduce{.*} ...", effects=_FENCED, cost=20),
    op("cp.async.bulk.prefetch{.*} ...", effects=_FENCED, cost=20),
    op("cp.async.bulk.tensor{.*} ...", effects=_FENCED, cost=20),
    op("cp.async.bulk{.*} ...", "bulk_copy", effects=_FENCED, cost=20),
    op("cp{.*} ...", effects=_FENCED, cost=20),
    op("tensormap{.*} ...", effects=_FENCED, cost=20),
    op("stacksave.type d", types="u32 u64", effects=_STATE, divergence="source"),
    op("stackrestore.type a", types="u32 u64", effects=_STATE),
    op("alloca.type d, a{, b:any}", types="u32 u64", effects=_STATE, divergence="source"),
]

TEXTURE: list[Op] = [
    op("tex{.*} d:any{|p:pred}, [a]{, b:any, c:any, e:any, f:any}", effects=_R | _TRAP, divergence="source", cost=30),
    op("tld4{.*} d:any{|p:pred}, [a]{, b:any, c:any}", effects=_R | _TRAP, divergence="source", cost=30),
    op("txq{.*} d:any, [a]{, b:any}", effects=_R | _TRAP, cost=20),
    op("suld{.*} d:any, [a]", effects=_R | _TRAP | _ORD, divergence="source", cost=30),
    op("sust{.*} [a], b:any", effects=_W | _TRAP | _ORD, cost=8),
    op("sured{.*} [a], b:any", effects=_R | _W | _TRAP | _ORD, cost=20),
    op("suq{.*} d:any, [a]", effects=_R | _TRAP, cost=20),
]

CONTROL: list[Op] = [
    op("bra{.uni} a:label", "control_bra", effects=_CTRL),
    op("brx.idx{.uni} a:u32, b:label", "control_brx", effects=_CTRL, cost=4),
    op("call{.uni} ...", "control_call", effects=_FENCED | _GRID, cost=40),
    op("ret{.uni}", "control_ret", effects=_CTRL),
    op("exit", "control_exit", effects=_CTRL),
    op("trap", "control_trap", effects=_CTRL | _STATE | _ORD),
    op("brkpt", "control_nop", effects=_STATE | _ORD),
    op("nanosleep{.type} a:u32", "control_nop", types="u32", effects=_STATE | _ORD),
    op("pmevent{.mask} a:any", "control_nop", effects=_STATE | _ORD),
    op("setmaxnreg{.*} a:any", effects=_STATE | _LANE | _ORD),
    op("griddepcontrol{.*}", "control_nop", effects=_FENCED | _GRID),
]

_SYNC = _BAR | _LANE | _ORD

SYNC: list[Op] = [
    op("bar{.cta}.red.popc{.aligned}.u32 d:u32, a:u32{, b:u32}, c:pred", "sync_bar_red_popc", effects=_SYNC, cost=20),
    op("bar{.cta}.red.bool{.aligned}.pred p:pred, a:u32{, b:u32}, c:pred", "sync_bar_red", effects=_SYNC, cost=20),
    op("bar{.cta}.(sync|arrive) a:u32{, b:u32}", "sync_bar", effects=_SYNC, cost=20),
    op("bar.warp.sync a:b32", "sync_warp", effects=_SYNC, cost=2),
    op(
        "barrier{.cta}.red.popc{.aligned}.u32 d:u32, a:u32{, b:u32}, c:pred",
        "sync_bar_red_popc",
        effects=_SYNC,
        cost=20,
    ),
    op(
        "barrier{.cta}.red.bool{.aligned}.pred p:pred, a:u32{, b:u32}, c:pred",
        "sync_bar_red",
        effects=_SYNC,
        cost=20,
    ),
    op("barrier{.cta}.(sync|arrive){.aligned} a:u32{, b:u32}", "sync_bar", effects=_SYNC, cost=20),
    op("barrier.cluster{.*}", effects=_SYNC, cost=40),
    op("membar{.proxy}{.*}", "sync_fence", effects=_BAR | _ORD, cost=20),
    op("fence{.*}", "sync_fence", effects=_BAR | _ORD, cost=20),
    op("fence.proxy{.*} ...", "sync_fence", effects=_BAR | _ORD, cost=20),
    op("vote{.sync}.ballot.b32 d:b32, a:pred{, b:b32}", "sync_ballot", effects=_LANE, divergence="uniform"),
    op("vote{.sync}.(all|any|uni).pred p:pred, a:pred{, b:b32}", "sync_vote", effects=_LANE, divergence="uniform"),
    op("match.any.sync.type d:b32, a, b:b32", "sync_match_any", types="b32 b64", effects=_LANE, divergence="source"),
    op(
        "match.all.sync.type d:b32{|p:pred}, a, b:b32",
        "sync_match_all",
        types="b32 b64",
        effects=_LANE,
        divergence="uniform",
    ),
    op("activemask.b32 d:b32", "sync_activemask", effects=_LANE, divergence="uniform"),
    op(
        "redux.sync.(add|min|max|and|or|xor){.abs}{.NaN}.type d, a, b:b32",
        "sync_redux",
        types="u32 s32 b32 f32",
        effects=_LANE,
        divergence="uniform",
        cost=8,
    ),
    op("elect.sync d:b32{|p:pred}, a:b32", "sync_elect", effects=_LANE, divergence="source"),
    op(
        "shfl{.sync}.(up|down|bfly|idx).b32 d:b32{|p:pred}, a:b32, b:b32, c:b32{, e:b32}",
        "sync_shfl",
        effects=_LANE,
        divergence="source",
        cost=8,
    ),
    op("mbarrier.init{.*} [a], b:u32", "mbarrier_init", effects=_W | _ORD | _BAR | _TRAP),
    op("mbarrier.inval{.*} [a]", "mbarrier_inval", effects=_W | _ORD | _BAR | _TRAP),
    op("mbarrier.arrive{.*} d:b64, [a]{, b:u32}", "mbarrier_arrive", effects=_FENCED, divergence="source"),
    op("mbarrier.arrive_drop{.*} d:b64, [a]{, b:u32}", "mbarrier_arrive_drop", effects=_FENCED, divergence="source"),
    op("mbarrier.test_wait{.*} p:pred, [a], b:any{, c:u32}", "mbarrier_wait", effects=_FENCED, divergence="source"),
    op("mbarrier.try_wait{.*} p:pred, [a], b:any{, c:u32}", "mbarrier_wait", effects=_FENCED, divergence="source"),
    op("mbarrier.expect_tx{.*} [a], b:u32", "mbarrier_expect_tx", effects=_FENCED),
    op("mbarrier.complete_tx{.*} [a], b:u32", "mbarrier_complete_tx", effects=_FENCED),
    op("mbarrier.pending_count{.*} d:u32, a:b64", "mbarrier_pending_count"),
    op("mbarrier{.*} ...", effects=_FENCED),
    op("clusterlaunchcontrol.query_cancel{.*} d:any, a:any", divergence="source"),
    op("clusterlaunchcontrol{.*} ...", effects=_FENCED),
]

MATRIX: list[Op] = [
    op("wmma.load{.*} d:vec, [a], ...", effects=_R | _TRAP | _LANE, divergence="source", cost=30),
    op("wmma.store{.*} [a], b:vec, ...", effects=_W | _TRAP | _LANE, cost=10),
    op("wmma.mma{.*} d:vec, ...", effects=_LANE, divergence="source", cost=30),
    op("mma{.*} d:vec, ...", "matrix_mma", effects=_LANE, divergence="source", cost=30),
    op("ldmatrix{.*} d:vec, [a]", "matrix_load", effects=_R | _TRAP | _LANE, divergence="source", cost=20),
    op("stmatrix{.*} [a], b:vec", "matrix_store", effects=_W | _TRAP | _LANE, cost=8),
    op("wgmma.mma_async{.*} d+:vec, ...", effects=_FENCED | _LATER, divergence="source", cost=40),
    op("wgmma{.*} ...", effects=_FENCED, cost=10),
    op("tcgen05.ld.red{.*} d:any, p:any, [a], ...", effects=_FENCED | _LATER, divergence="source", cost=20),
    op("tcgen05.ld{.*} d:any, [a], ...", effects=_FENCED | _LATER, divergence="source", cost=20),
    op("tcgen05.st{.*} [a], ...", effects=_FENCED | _LATER, cost=20),
    op("tcgen05{.*} ...", effects=_FENCED, cost=20),
]

# Video instructions: selectors on operands (`%r1.b0`) and a second operation; only decoded.
VIDEO: list[Op] = [
    op(f"{name}{{.*}} d:any, a:any, b:any{{, c:any}}", cost=4)
    for name in "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 "
    "vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4".split()
]

#: All rows, in the order in which they are tried.
ROWS: tuple[Op, ...] = (
    *INTEGER,
    *FLOAT,
    *COMPARE,
    *LOGIC,
    *MOVE,
    *MEMORY,
    *TEXTURE,
    *CONTROL,
    *SYNC,
    *MATRIX,
    *VIDEO,
)

_OPAQUE = op("opaque{.*} ...", effects=Effect.ALL, divergence="source", cost=20)


def _rows_by_base() -> dict[str, list[Op]]:
    rows: dict[str, list[Op]] = {}
    for row in ROWS:
        rows.setdefault(row.base, []).append(row)
    return rows


_BY_BASE = _rows_by_base()
_FORMS: dict[tuple[str, int], Form] = {}


def decode(mnemonic: str, arity: int = -1) -> Form:
    """The form of ``mnemonic``, for ``arity`` operands where rows differ only in that (-1: not known).

    Never fails: what no row fits becomes an opaque form.

    >>> decode("mul.wide.s32").op.name, decode("ld.global.nc.v4.f32").lanes, decode("zap.u32").is_opaque
    ('mul.wide', 4, True)
    """
    key = (mnemonic, arity)
    form = _FORMS.get(key)
    if form is None:
        form = _FORMS[key] = _decode(mnemonic, arity)
    return form


def _decode(mnemonic: str, arity: int) -> Form:
    base, *words = mnemonic.split(".")
    first: Form | None = None
    for row in _BY_BASE.get(base, ()):
        form = decode_with(row, mnemonic, words)
        if form is not None:
            if arity < 0 or _takes(row, arity):
                return form
            first = first or form
    if first is not None:
        return first
    return opaque_form(mnemonic)


@cache
def opaque_form(mnemonic: str) -> Form:
    """The form of an instruction that is kept as it is and fenced, whatever the table says of its opcode."""
    words = frozenset(mnemonic.split(".")[1:])
    return Form(mnemonic, _OPAQUE, {}, words, None, Effect.ALL, 0, is_opaque=True, inout=True)


def form_of(mnemonic: str, operands: Sequence[Operand]) -> Form:
    """The form of ``mnemonic`` with these operands.

    Differs from `decode` where the rows of a family tell by the operands whether there is a result: a row whose result
    would be an address does not fit. A store that skips elements of its vector is opaque, since what it writes is no
    range of bytes.

    >>> from ptxmotion.ptx import Imm
    >>> form_of("mbarrier.arrive.b64", [Mem(Imm(0)), Imm(1)]).dst_count
    0
    """
    form = decode(mnemonic, len(operands))
    if may_skip_elements(form) and any(isinstance(part, Vec) and SINK in part.elements for part in operands):
        return opaque_form(mnemonic)
    if not _has_address_as_result(form, operands):
        return form
    base, *words = mnemonic.split(".")
    for row in _BY_BASE.get(base, ()):
        other = decode_with(row, mnemonic, words)
        if other is not None and _takes(row, len(operands)) and not _has_address_as_result(other, operands):
            return other
    return form if not form.op.wildcard else opaque_form(mnemonic)


def may_skip_elements(form: Form) -> bool:
    """Whether the form is a store of 256 bits: where its vector has a sink ``_``, those bytes are not written.

    >>> may_skip_elements(decode("st.global.v8.f32")), may_skip_elements(decode("st.global.v4.f32"))
    (True, False)
    """
    return form.op.base == "st" and form.type is not None and form.lanes * form.type.bits == 256


def _has_address_as_result(form: Form, operands: Sequence[Operand]) -> bool:
    return any(isinstance(operand, Mem) for operand in operands[: form.dst_count])


def _takes(row: Op, arity: int) -> bool:
    least = sum(not spec.optional for spec in row.operands)
    return least <= arity and (row.variadic or arity <= len(row.operands))


#: Type of each special register, by its name without component.
_SPECIAL_TYPES: dict[str, str] = {
    "%clock64": "u64",
    "%globaltimer": "u64",
    "%gridid": "u64",
    "%current_graph_exec": "u64",
    "%total_smem_size": "u32",
    "%is_explicit_cluster": "pred",
}
_SPECIAL_NAMES = frozenset(
    "%tid %ntid %laneid %warpid %nwarpid %ctaid %nctaid %smid %nsmid %gridid %is_explicit_cluster %clusterid "
    "%nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank %lanemask_eq %lanemask_le "
    "%lanemask_lt %lanemask_ge %lanemask_gt %clock %clock_hi %clock64 %globaltimer %globaltimer_lo %globaltimer_hi "
    "%reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %reserved_smem_offset_0 "
    "%reserved_smem_offset_1 %total_smem_size %aggr_smem_size %dynamic_smem_size %current_graph_exec WARP_SZ".split()
)


def special_type(name: str) -> str | None:
    """The type of special register ``name`` (``%tid.x``, ``%clock64``), or ``None`` if there is no such register."""
    base, _, component = name.partition(".")
    if component and component not in ("x", "y", "z", "w"):
        return None
    if base in _SPECIAL_NAMES:
        return _SPECIAL_TYPES.get(base, "u32")
    for prefix in ("%envreg", "%pm"):
        digits = base[len(prefix) :]
        if base.startswith(prefix) and digits.removesuffix("_64").isdigit():
            return "u64" if digits.endswith("_64") else "u32"
    return None
