"""The rows of barriers, fences, votes, shuffles, barrier objects and clusters in the opcode table (`ops.py`).

Requires: `notation.py`, `operations.py`. Reference: PTX ISA 9.0, §9.7.9.6 (shfl) and §9.7.13.
"""

from __future__ import annotations

from functools import partial

from .notation import Effect, Op
from .operations import Operation as _O
from .operations import Pointers as _P
from .operations import Touches as _T

__all__ = ["SYNC"]

_W, _TRAP, _BAR, _LANE, _ORD = Effect.WRITE, Effect.TRAP, Effect.BARRIER, Effect.CROSS_LANE, Effect.ORDERED
_FENCED = Effect.FENCED
_SYNC = _BAR | _LANE | _ORD

op = Op
barrier = partial(Op, operation=_O.BARRIER, effects=_SYNC, cost=20)
barrier_object = partial(Op, operation=_O.BARRIER_OBJECT, touches=_T.BARRIER_OBJECT, effects=_FENCED)

SYNC: list[Op] = [
    barrier("bar{.cta}.red.popc{.aligned}.u32 d:u32, a:u32{, b:u32}, c:pred", "sync_bar_red_popc"),
    barrier("bar{.cta}.red.bool{.aligned}.pred p:pred, a:u32{, b:u32}, c:pred", "sync_bar_red"),
    barrier("bar{.cta}.(sync|arrive) a:u32{, b:u32}", "sync_bar"),
    op("bar.warp.sync a:b32", "sync_warp", _O.WARP_BARRIER, effects=_SYNC, cost=2, splits="always"),
    barrier(
        "barrier{.cta}.red.popc{.aligned}.u32 d:u32, a:u32{, b:u32}, c:pred",
        "sync_bar_red_popc",
        splits="unless aligned",
    ),
    barrier(
        "barrier{.cta}.red.bool{.aligned}.pred p:pred, a:u32{, b:u32}, c:pred", "sync_bar_red", splits="unless aligned"
    ),
    barrier("barrier{.cta}.(sync|arrive){.aligned} a:u32{, b:u32}", "sync_bar", splits="unless aligned"),
    op("barrier.cluster{.*}", operation=_O.CLUSTER_BARRIER, effects=_SYNC, cost=40),
    op("membar{.proxy}{.*}", "sync_fence", _O.FENCE, effects=_BAR | _ORD, cost=20, splits="always"),
    op("fence{.*}", "sync_fence", _O.FENCE, effects=_BAR | _ORD, cost=20, splits="always"),
    op("fence.proxy{.*} ...", "sync_fence", _O.FENCE, effects=_BAR | _ORD, cost=20, splits="always"),
    op(
        "vote{.sync}.ballot.b32 d:b32, a:pred{, b:b32}",
        "sync_ballot",
        _O.VOTE,
        _P.NOTHING,
        effects=_LANE,
        splits="always",
        divergence="uniform",
    ),
    op(
        "vote{.sync}.(all|any|uni).pred p:pred, a:pred{, b:b32}",
        "sync_vote",
        _O.VOTE,
        _P.NOTHING,
        effects=_LANE,
        splits="always",
        divergence="uniform",
    ),
    op(
        "match.any.sync.type d:b32, a, b:b32",
        "sync_match_any",
        _O.VOTE,
        _P.NOTHING,
        types="b32 b64",
        effects=_LANE,
        splits="always",
        divergence="source",
    ),
    op(
        "match.all.sync.type d:b32{|p:pred}, a, b:b32",
        "sync_match_all",
        _O.VOTE,
        _P.NOTHING,
        types="b32 b64",
        effects=_LANE,
        splits="always",
        divergence="uniform",
    ),
    op("activemask.b32 d:b32", "sync_activemask", _O.VOTE, _P.NOTHING, effects=_LANE, divergence="uniform"),
    op(
        "redux.sync.(add|min|max|and|or|xor){.abs}{.NaN}.type d, a, b:b32",
        "sync_redux",
        _O.VOTE,
        _P.NOTHING,
        types="u32 s32 b32 f32",
        effects=_LANE,
        splits="always",
        divergence="uniform",
        cost=8,
    ),
    op(
        "elect.sync d:b32{|p:pred}, a:b32",
        "sync_elect",
        _O.ELECTION,
        effects=_LANE,
        divergence="source",
        splits="always",
    ),
    op(
        "shfl{.sync}.(up|down|bfly|idx).b32 d:b32{|p:pred}, a:b32, b:b32, c:b32{, e:b32}",
        "sync_shfl",
        _O.SHUFFLE,
        _P.OTHER_LANE,
        effects=_LANE,
        splits="always",
        divergence="source",
        cost=8,
    ),
    op(
        "mbarrier.init{.*} [a], b:u32",
        "mbarrier_init",
        _O.BARRIER_OBJECT,
        touches=_T.BARRIER_OBJECT,
        effects=_W | _ORD | _BAR | _TRAP,
    ),
    op(
        "mbarrier.inval{.*} [a]",
        "mbarrier_inval",
        _O.BARRIER_OBJECT,
        touches=_T.BARRIER_OBJECT,
        effects=_W | _ORD | _BAR | _TRAP,
    ),
    barrier_object(
        "mbarrier.arrive{.*} d:b64, [a]{, b:u32}",
        "mbarrier_arrive",
        divergence="source",
    ),
    barrier_object(
        "mbarrier.arrive_drop{.*} d:b64, [a]{, b:u32}",
        "mbarrier_arrive_drop",
        divergence="source",
    ),
    barrier_object(
        "mbarrier.test_wait{.*} p:pred, [a], b:any{, c:u32}",
        "mbarrier_wait",
        divergence="source",
    ),
    barrier_object(
        "mbarrier.try_wait{.*} p:pred, [a], b:any{, c:u32}",
        "mbarrier_wait",
        divergence="source",
    ),
    barrier_object("mbarrier.expect_tx{.*} [a], b:u32", "mbarrier_expect_tx"),
    barrier_object("mbarrier.complete_tx{.*} [a], b:u32", "mbarrier_complete_tx"),
    op(
        "mbarrier.pending_count{.*} d:u32, a:b64",
        "mbarrier_pending_count",
        _O.BARRIER_OBJECT,
        pointers=_P.NUMBER,
    ),
    barrier_object("mbarrier{.*} ..."),
    op("clusterlaunchcontrol.query_cancel{.*} d:any, a:any", operation=_O.CLUSTER_LAUNCH, divergence="source"),
    op("clusterlaunchcontrol{.*} ...", operation=_O.CLUSTER_LAUNCH, effects=_FENCED),
]
