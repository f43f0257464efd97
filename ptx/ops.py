"""The opcode table: one row per form of an opcode. Nothing else describes an opcode.

The table is read by decoder and printer (mnemonics), parser and verifier (roles and types of operands), the analyses
(effects, divergence, operation, pointers, memory touched), the emulator (the function in column ``semantics``, which it
resolves by name), the builder, the random programs of the tests, and the page of opcodes in the docs.

`notation.py` explains the notation, `operations.py` the classes. A mnemonic gets the first row that fits, so a special
row stands before a general one of the same opcode. To add an opcode, add its row here, in `ops_sync.py` (what threads
do together) or in `ops_matrix.py` (matrix and video instructions). `tests/unit/test_ops.py` and
`tests/unit/test_operations.py` check every row.

Requires: `notation.py`, `operations.py`. Reference: PTX ISA 9.0, chapters 9.7.1 to 9.7.20.
"""

from __future__ import annotations

from functools import partial

from .notation import Effect, Op
from .operations import Operation as _O
from .operations import Pointers as _P
from .operations import Touches as _T
from .ops_matrix import MATRIX, VIDEO
from .ops_sync import SYNC

__all__ = ["ROWS"]

_R, _W, _TRAP, _CTRL = Effect.READ, Effect.WRITE, Effect.TRAP, Effect.CONTROL
_BAR, _LANE, _ORD, _ASYNC, _STATE = Effect.BARRIER, Effect.CROSS_LANE, Effect.ORDERED, Effect.ASYNC, Effect.STATE
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
#: A row whose result is a number, never an address.
number = partial(Op, pointers=_P.NUMBER)
texture = partial(Op, operation=_O.TEXTURE)
atomic = partial(
    Op, operation=_O.ATOMIC, touches=_T.ADDRESS, effects=_R | _W | _TRAP | _ORD, divergence="source", cost=40
)

INTEGER: list[Op] = [
    op("add.type d, a, b", "int_add", _O.SUM, _P.SUM, types=_I16 + _IX2, commutes=True),
    op("add.sat.type d, a, b", "int_add_sat", pointers=_P.SUM, types="s32", commutes=True),
    op("add.cc.type d, a, b", "int_add_cc", pointers=_P.SUM, types=_I64, commutes=True),
    op("addc{.cc}.type d, a, b", "int_addc", pointers=_P.SUM, types=_I64, commutes=True, effects=Effect.CARRY_IN),
    op("sub.type d, a, b", "int_sub", _O.DIFFERENCE, _P.DIFFERENCE, types=_I16 + _IX2),
    op("sub.sat.type d, a, b", "int_sub_sat", pointers=_P.DIFFERENCE, types="s32"),
    op("sub.cc.type d, a, b", "int_sub_cc", pointers=_P.DIFFERENCE, types=_I64),
    op("subc{.cc}.type d, a, b", "int_subc", pointers=_P.DIFFERENCE, types=_I64, effects=Effect.CARRY_IN),
    op("mul.lo.type d, a, b", "int_mul_lo", _O.PRODUCT, _P.NUMBER, types=_I16, commutes=True, cost=2),
    number("mul.hi.type d, a, b", "int_mul_hi", types=_I16, commutes=True, cost=2),
    op(
        "mul.wide.type d:wide, a, b",
        "int_mul_wide",
        _O.WIDE_PRODUCT,
        _P.NUMBER,
        types="u16 s16 u32 s32",
        commutes=True,
        cost=2,
    ),
    op("mad.lo.type d, a, b, c", "int_mad_lo", _O.PRODUCT_SUM, _P.PRODUCT_SUM, types=_I16, cost=2),
    op("mad.hi.type d, a, b, c", "int_mad_hi", pointers=_P.PRODUCT_SUM, types=_I16, cost=2),
    op(
        "mad.wide.type d:wide, a, b, c:wide",
        "int_mad_wide",
        _O.WIDE_PRODUCT_SUM,
        _P.PRODUCT_SUM,
        types="u16 s16 u32 s32",
        cost=2,
    ),
    op("mad.hi.sat.type d, a, b, c", "int_mad_hi_sat", pointers=_P.PRODUCT_SUM, types="s32", cost=2),
    op("mad.(lo|hi).cc.type d, a, b, c", "int_mad_cc", pointers=_P.PRODUCT_SUM, types=_I64, cost=2),
    op(
        "madc.(lo|hi){.cc}.type d, a, b, c",
        "int_madc",
        pointers=_P.PRODUCT_SUM,
        types=_I64,
        cost=2,
        effects=Effect.CARRY_IN,
    ),
    number("mul24.(lo|hi).type d, a, b", "int_mul24", types=_I32, commutes=True, cost=2),
    op("mad24.(lo|hi){.sat}.type d, a, b, c", "int_mad24", pointers=_P.PRODUCT_SUM, types=_I32, cost=2),
    number("sad.type d, a, b, c", "int_sad", types=_I16),
    op("div.type d, a, b", "int_div", _O.QUOTIENT, _P.NUMBER, types=_I16, cost=20, splits="always"),
    op("rem.type d, a, b", "int_rem", _O.REMAINDER, _P.NUMBER, types=_I16, cost=20, splits="always"),
    op("abs.type d, a", "int_abs", _O.MAGNITUDE, _P.NUMBER, types="s16 s32 s64"),
    op("neg.type d, a", "int_neg", _O.NEGATION, _P.NUMBER, types="s16 s32 s64"),
    op("min{.relu}.type d, a, b", "int_min", _O.MINIMUM, _P.ANY_SOURCE, types=_I16 + _IX2, commutes=True),
    op("max{.relu}.type d, a, b", "int_max", _O.MAXIMUM, _P.ANY_SOURCE, types=_I16 + _IX2, commutes=True),
    number("popc.type d:u32, a", "int_popc", types="b32 b64", cost=2),
    number("clz.type d:u32, a", "int_clz", types="b32 b64", cost=2),
    number("bfind{.shiftamt}.type d:u32, a", "int_bfind", types=_I64, cost=2, splits="64 bits"),
    number("fns.b32 d:b32, a:b32, b:b32, c:s32", "int_fns", cost=8),
    number("brev.type d, a", "int_brev", types="b32 b64", cost=2),
    op("bfe.type d, a, b:u32, c:u32", "int_bfe", _O.BIT_FIELD, _P.NUMBER, types=_I64, cost=2, contraction="through"),
    op(
        "bfi.type d, a, b, c:u32, e:u32",
        "int_bfi",
        pointers=_P.ANY_SOURCE,
        types="b32 b64",
        cost=2,
        contraction="through",
    ),
    number("szext.(clamp|wrap).type d, a, b:u32", "int_szext", types=_I32),
    number("bmsk.(clamp|wrap).b32 d:b32, a:b32, b:b32", "int_bmsk"),
    number("dp4a.atype=type.btype=type d:b32, a:b32, b:b32, c:b32", "int_dp4a", cost=2),
    number("dp2a.(lo|hi).atype=type.btype=type d:b32, a:b32, b:b32, c:b32", "int_dp2a", cost=2),
]

FLOAT: list[Op] = [
    number("add{.rnd}{.ftz}{.sat}.type d, a, b", "float_add", types="f32 f64 f32x2", commutes=True, contraction="sum"),
    number("add{.rnd}{.ftz}{.sat}.type d, a, b", "half_add", types=_HALF, commutes=True, contraction="sum"),
    number("add{.rnd}{.sat}.dtype=type.atype=type d:dtype, a:atype, b:dtype", "mixed_add", contraction="sum"),
    number("sub{.rnd}{.ftz}{.sat}.type d, a, b", "float_sub", types="f32 f64 f32x2", contraction="sum"),
    number("sub{.rnd}{.ftz}{.sat}.type d, a, b", "half_sub", types=_HALF, contraction="sum"),
    number("sub{.rnd}{.sat}.dtype=type.atype=type d:dtype, a:atype, b:dtype", "mixed_sub", contraction="sum"),
    number(
        "mul{.rnd}{.ftz}{.sat}.type d, a, b", "float_mul", types="f32 f64 f32x2", commutes=True, contraction="product"
    ),
    number("mul{.rnd}{.ftz}{.sat}.type d, a, b", "half_mul", types=_HALF, commutes=True, contraction="product"),
    number("fma.rnd{.ftz}{.sat}.type d, a, b, c", "float_fma", types="f32 f64 f32x2"),
    number("fma.rnd{.ftz}{.sat}{.relu}{.oob}.type d, a, b, c", "half_fma", types=_HALF),
    number("fma.rnd{.sat}.dtype=type.atype=type d:dtype, a:atype, b:atype, c:dtype", "mixed_fma"),
    number("mad{.rnd}{.ftz}{.sat}.type d, a, b, c", "float_fma", types="f32 f64"),
    number("div.rnd{.ftz}.type d, a, b", "float_div", types="f32 f64", cost=20, splits="always"),
    number(
        "div.(approx|full){.ftz}.type d, a, b",
        "float_div_approx",
        types="f32",
        cost=8,
        approximate=True,
        contraction="product",
    ),
    number(
        "div{.ftz}{.sat}.type d, a, b",
        "float_div_approx",
        types="f32 f64",
        cost=8,
        approximate=True,
        contraction="product",
    ),
    number("abs{.ftz}.type d, a", "float_abs", types="f32 f64 " + _HALF, contraction="through"),
    op(
        "neg{.ftz}.type d, a",
        "float_neg",
        _O.FLOAT_NEGATION,
        _P.NUMBER,
        types="f32 f64 " + _HALF,
        contraction="through",
    ),
    number("min{.ftz}{.NaN}{.xorsign}{.abs}.type d, a, b", "float_min", types="f32 f64 " + _HALF, commutes=True),
    number("max{.ftz}{.NaN}{.xorsign}{.abs}.type d, a, b", "float_max", types="f32 f64 " + _HALF, commutes=True),
    number("min{.ftz}{.NaN}{.abs}.type d, a, b, c", "float_min3", types="f32"),
    number("max{.ftz}{.NaN}{.abs}.type d, a, b, c", "float_max3", types="f32"),
    number("copysign.type d, a, b", "float_copysign", types="f32 f64"),
    op(
        "testp.(finite|infinite|number|notanumber|normal|subnormal).type p:pred, a",
        "float_testp",
        pointers=_P.NOTHING,
        types="f32 f64",
    ),
    number("rcp.rnd{.ftz}.type d, a", "float_rcp", types="f32 f64", cost=12, splits="always"),
    number("rcp.approx.ftz.f64 d:f64, a:f64", "double_rcp_approx", cost=6, approximate=True),
    number("rcp{.approx}{.ftz}.type d, a", "float_rcp_approx", types="f32 f64", cost=4, approximate=True),
    number("sqrt.rnd{.ftz}.type d, a", "float_sqrt", types="f32 f64", cost=16, splits="always"),
    number("sqrt{.approx}{.ftz}.type d, a", "float_sqrt_approx", types="f32 f64", cost=4, approximate=True),
    number("rsqrt.approx.ftz.f64 d:f64, a:f64", "double_rsqrt_approx", cost=6, approximate=True, splits="64 bits"),
    number(
        "rsqrt{.approx}{.ftz}.type d, a",
        "float_rsqrt_approx",
        types="f32 f64",
        cost=4,
        approximate=True,
        splits="64 bits",
    ),
    number("sin{.approx}{.ftz}.type d, a", "float_sin_approx", types="f32", cost=4, approximate=True),
    number("cos{.approx}{.ftz}.type d, a", "float_cos_approx", types="f32", cost=4, approximate=True),
    number("lg2{.approx}{.ftz}.type d, a", "float_lg2_approx", types="f32", cost=4, approximate=True),
    number("ex2{.approx}{.ftz}.type d, a", "float_ex2_approx", types="f32 " + _HALF, cost=4, approximate=True),
    number("tanh{.approx}.type d, a", "float_tanh_approx", types="f32 " + _HALF, cost=4, approximate=True),
]

COMPARE: list[Op] = [
    number("set.cmp.bool{.ftz}.dtype=type.type d:dtype, a, b, c:pred", "compare_set"),
    number("set.cmp{.ftz}.dtype=type.type d:dtype, a, b", "compare_set"),
    op("setp.cmp.bool{.ftz}.type p:pred{|q:pred}, a, b, c:pred", "compare_setp", _O.COMPARISON, _P.NOTHING),
    op("setp.cmp{.ftz}.type p:pred{|q:pred}, a, b", "compare_setp", _O.COMPARISON, _P.NOTHING),
    op("selp.type d, a, b, c:pred", "compare_selp", _O.SELECTION, _P.ANY_SOURCE, contraction="through"),
    op("slct{.ftz}.type.atype=type d, a, b, c:atype", "compare_slct", pointers=_P.ANY_SOURCE, contraction="through"),
]

LOGIC: list[Op] = [
    op("and.bits d, a, b", "bits_and", _O.AND, _P.MASK, commutes=True, contraction="through"),
    op("or.bits d, a, b", "bits_or", _O.OR, _P.UNION, commutes=True, contraction="through"),
    op("xor.bits d, a, b", "bits_xor", _O.XOR, _P.DIFFERENCE, commutes=True, contraction="through"),
    op("not.bits d, a", "bits_not", _O.NOT, _P.NUMBER, contraction="through"),
    number("cnot.bits d, a", "bits_cnot"),
    op("lop3.(or|and).b32 p:b32|q:pred, a:b32, b:b32, c:b32, e:b32, f:pred", "bits_lop3_pred", pointers=_P.ANY_SOURCE),
    op("lop3.b32 d:b32, a:b32, b:b32, c:b32, e:b32", "bits_lop3", pointers=_P.ANY_SOURCE, contraction="through"),
    op(
        "shf.(l|r){.clamp}{.wrap}.b32 d:b32, a:b32, b:b32, c:u32",
        "bits_shf",
        pointers=_P.ANY_SOURCE,
        contraction="through",
    ),
    op("shl.bits d, a, b:u32", "bits_shl", _O.SHIFT_LEFT, _P.NUMBER, contraction="through"),
    op("shr.type d, a, b:u32", "bits_shr", _O.SHIFT_RIGHT, _P.NUMBER, types=_I16 + " " + _B, contraction="through"),
]

MOVE: list[Op] = [
    op("mov.type d, a", "move_mov", _O.COPY, _P.ANY_SOURCE, cost=0, contraction="through"),
    op("mov.vec.type d:any, a:any", "move_vector", _O.VECTOR_COPY, _P.ANY_SOURCE, cost=0, contraction="through"),
    op("mov d, a", "move_mov", _O.COPY, _P.ANY_SOURCE, cost=0, contraction="through"),
    op("movmatrix{.sync}.aligned{.*} d:b32, a:b32", operation=_O.MATRIX, effects=_LANE, divergence="source", cost=8),
    op(
        "prmt.b32{.(f4e|b4e|rc8|ecl|ecr|rc16)} d:b32, a:b32, b:b32, c:b32",
        "bits_prmt",
        pointers=_P.ANY_SOURCE,
        contraction="through",
    ),
    op("cvta{.space}.type d, a", "address_cvta", _O.TO_GENERIC, _P.ANY_SOURCE, types="u32 u64"),
    op("cvta.to.space.type d, a", "address_cvta_to", _O.FROM_GENERIC, _P.ANY_SOURCE, types="u32 u64"),
    op("isspacep.space p:pred, a:any", "address_isspacep", pointers=_P.NOTHING),
    op("mapa{.space}.type d, a, b:u32", operation=_O.CLUSTER_MAP, types="u32 u64"),
    op("getctarank{.space}.type d:u32, a", operation=_O.CLUSTER_MAP, pointers=_P.NUMBER, types="u32 u64"),
    op("istypep.(texref|samplerref|surfref) p:pred, a:any", pointers=_P.NOTHING),
    op(
        "cvt.pack{.sat}.dtype=type.atype=type{.ctype=type} d:b32, a:atype, b:atype{, c:b32}",
        "convert_pack",
        _O.PACKED_CONVERSION,
        _P.CONVERSION,
    ),
    op(
        "cvt{.rnd}{.ftz}{.sat}{.satfinite}{.relu}{.scaled::n2::ue8m0}.dtype=type.atype=type d:dtype, a:atype",
        "convert",
        _O.CONVERSION,
        _P.CONVERSION,
        relaxed=True,
        cost=2,
        contraction="through",
    ),
    op(
        "cvt.rs{.satfinite}{.relu}.dtype=type.atype=type d:dtype, a:vec, b:b32",
        "convert_stochastic",
        _O.PACKED_CONVERSION,
        _P.CONVERSION,
        relaxed=True,
        cost=2,
    ),
    op(
        "cvt{.rnd}{.satfinite}{.relu}.dtype=type.atype=type d:dtype, a:atype, b:atype{, c:b32}",
        "convert_pair",
        _O.PACKED_CONVERSION,
        _P.CONVERSION,
        relaxed=True,
        cost=2,
    ),
]

_LOAD_MODIFIERS = "{.mmio}{.sem}{.scope}{.space}{.cop}{.nc}{.evict}{.l2evict}{.hint}{.prefetch}{.unified}"

MEMORY: list[Op] = [
    op(
        f"ld{_LOAD_MODIFIERS}{{.vec}}.type d*, [a]{{, b:b64}}",
        "memory_ld",
        _O.LOAD,
        _P.LOADED,
        touches=_T.ADDRESS,
        types=_LOAD,
        effects=_R | _TRAP,
        relaxed=True,
        cost=20,
        divergence="source",
    ),
    op(
        "ldu{.space}{.vec}.type d*, [a]",
        "memory_ld",
        _O.UNIFORM_LOAD,
        touches=_T.ADDRESS,
        types=_LOAD,
        effects=_R | _TRAP,
        relaxed=True,
        cost=20,
        divergence="source",
    ),
    op(
        "st{.mmio}{.sem}{.scope}{.space}{.cop}{.evict}{.l2evict}{.hint}{.vec}.type [a], b*{, c:b64}",
        "memory_st",
        _O.STORE,
        touches=_T.ADDRESS,
        types=_LOAD,
        effects=_W | _TRAP,
        relaxed=True,
        cost=4,
    ),
    op(
        "st.async{.*} [a], b:any, ...",
        operation=_O.ASYNC_ACCESS,
        touches=_T.ADDRESS,
        effects=_W | _TRAP | _ASYNC | _ORD,
        cost=4,
    ),
    op(
        "st.bulk{.*} [a], b:any, c:any", operation=_O.BULK_STORE, touches=_T.ADDRESS, effects=_W | _TRAP | _ORD, cost=20
    ),
    op(
        "red.async{.*} [a], b:any, ...",
        operation=_O.ASYNC_ACCESS,
        touches=_T.ADDRESS,
        effects=_R | _W | _TRAP | _ASYNC | _ORD,
        cost=8,
    ),
    atomic("atom{.sem}{.scope}{.space}.cas{.hint}.type d, [a], b, c{, e:b64}", "memory_atom_cas"),
    atomic("atom{.sem}{.scope}{.space}.exch{.hint}{.vec}.type d*, [a], b*{, c:b64}", "memory_atom"),
    atomic("atom{.sem}{.scope}{.space}.atomop{.noftz}{.hint}{.vec}.type d*, [a], b*{, c:b64}", "memory_atom"),
    op(
        "red{.sem}{.scope}{.space}.atomop{.noftz}{.hint}{.vec}.type [a], b*{, c:b64}",
        "memory_red",
        _O.REDUCTION,
        touches=_T.ADDRESS,
        effects=_R | _W | _TRAP | _ORD,
        cost=20,
    ),
    op(
        "multimem.ld_reduce{.*} d:any, [a]",
        operation=_O.MULTIMEM,
        touches=_T.ADDRESS,
        effects=_R | _TRAP | _ORD,
        divergence="source",
        cost=40,
    ),
    op("multimem.st{.*} [a], b:any", operation=_O.MULTIMEM, touches=_T.ADDRESS, effects=_W | _TRAP | _ORD, cost=20),
    op(
        "multimem.red{.*} [a], b:any",
        operation=_O.MULTIMEM,
        touches=_T.ADDRESS,
        effects=_R | _W | _TRAP | _ORD,
        cost=20,
    ),
    op("multimem.cp{.*} ...", operation=_O.MULTIMEM, effects=_FENCED, cost=20),
    op(
        "prefetch{.space}{.tensormap}{.(L1|L2)}{.evict}{.l2evict} [a]",
        "memory_prefetch",
        _O.PREFETCH,
        effects=_STATE,
        cost=2,
    ),
    op("prefetchu.L1 [a]", "memory_prefetch", _O.PREFETCH, effects=_STATE, cost=2),
    op("applypriority{.global}{.l2evict} [a], b:any", "memory_prefetch", _O.PREFETCH, effects=_STATE, cost=2),
    op("discard{.global}.L2 [a], b:any", operation=_O.DISCARD, touches=_T.ADDRESS, effects=_W | _TRAP | _ORD, cost=2),
    number("createpolicy{.*} d:b64, ...", "memory_createpolicy", cost=2),
    op(
        "cp.async.(ca|cg){.space}{.global}{.hint}{.prefetch} [d], [a], b:any, ...",
        "memory_cp_async",
        _O.ASYNC_ACCESS,
        touches=_T.SHARED_COPY,
        effects=_FENCED,
    ),
    op("cp.async.commit_group", "memory_cp_async_commit", _O.ASYNC_ACCESS, effects=_BAR | _ORD | _ASYNC),
    op("cp.async.wait_group a:any", "memory_cp_async_wait", _O.ASYNC_ACCESS, effects=_BAR | _ORD | _ASYNC),
    op("cp.async.wait_all", "memory_cp_async_wait", _O.ASYNC_ACCESS, effects=_BAR | _ORD | _ASYNC),
    op(
        "cp.async.mbarrier.arrive{.noinc}{.space}.b64 [a]", "mbarrier_copies", _O.ASYNC_ACCESS, effects=_FENCED, cost=20
    ),
    op("cp.async.bulk.commit_group", "bulk_commit", _O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp.async.bulk.wait_group{.read} a:any", "bulk_wait", _O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp.reduce{.*} ...", operation=_O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp.async.bulk.prefetch{.*} ...", operation=_O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp.async.bulk.tensor{.*} ...", operation=_O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp.async.bulk{.*} ...", "bulk_copy", _O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("cp{.*} ...", operation=_O.ASYNC_ACCESS, effects=_FENCED, cost=20),
    op("tensormap{.*} ...", operation=_O.TENSOR_MAP, effects=_FENCED, cost=20),
    op("stacksave.type d", operation=_O.STACK, types="u32 u64", effects=_STATE, divergence="source"),
    op("stackrestore.type a", operation=_O.STACK, types="u32 u64", effects=_STATE),
    op(
        "alloca.type d, a{, b:any}",
        operation=_O.ALLOCATION,
        pointers=_P.ALLOCATED,
        types="u32 u64",
        effects=_STATE,
        divergence="source",
    ),
]

TEXTURE: list[Op] = [
    texture(
        "tex{.*} d:any{|p:pred}, [a]{, b:any, c:any, e:any, f:any}",
        "texture_fetch",
        effects=_R | _TRAP,
        divergence="source",
        cost=30,
    ),
    texture(
        "tld4{.*} d:any{|p:pred}, [a]{, b:any, c:any}",
        effects=_R | _TRAP,
        divergence="source",
        cost=30,
    ),
    texture("txq{.*} d:any, [a]{, b:any}", "texture_query", effects=_R | _TRAP, cost=20),
    texture("suld{.*} d:any, [a]", "surface_load", effects=_R | _TRAP | _ORD, divergence="source", cost=30),
    texture("sust{.*} [a], b:any", "surface_store", effects=_W | _TRAP | _ORD, cost=8),
    texture("sured{.*} [a], b:any", effects=_R | _W | _TRAP | _ORD, cost=20),
    texture("suq{.*} d:any, [a]", "texture_query", effects=_R | _TRAP, cost=20),
]

CONTROL: list[Op] = [
    op("bra{.uni} a:label", "control_bra", _O.BRANCH, effects=_CTRL),
    op("brx.idx{.uni} a:u32, b:label", "control_brx", _O.INDEXED_BRANCH, effects=_CTRL, cost=4),
    op("call{.uni} ...", "control_call", _O.CALL, effects=_FENCED | _GRID, cost=40, splits="always"),
    op("ret{.uni}", "control_ret", _O.RETURN, effects=_CTRL),
    op("exit", "control_exit", _O.EXIT, effects=_CTRL),
    op("trap", "control_trap", _O.TRAP, effects=_CTRL | _STATE | _ORD),
    op("brkpt", "control_nop", _O.MONITORING, effects=_STATE | _ORD, splits="always"),
    op("nanosleep{.type} a:u32", "control_nop", _O.MONITORING, types="u32", effects=_STATE | _ORD),
    op("pmevent{.mask} a:any", "control_nop", _O.MONITORING, effects=_STATE | _ORD, splits="always"),
    op("setmaxnreg{.*} a:any", operation=_O.REGISTER_BUDGET, effects=_STATE | _LANE | _ORD),
    op("griddepcontrol{.*}", "control_nop", _O.GRID_DEPENDENCY, touches=_T.NOTHING, effects=_FENCED | _GRID),
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
