"""The rows of matrix and video instructions in the opcode table (`ops.py`).

Requires: `notation.py`, `operations.py`. Reference: PTX ISA 9.0, chapter 9.7.
"""

from __future__ import annotations

from functools import partial

from .notation import Effect, Op
from .operations import Operation as _O
from .operations import Touches as _T

__all__ = ["MATRIX", "VIDEO"]

_R, _W, _TRAP, _LANE = Effect.READ, Effect.WRITE, Effect.TRAP, Effect.CROSS_LANE
_FENCED, _LATER = Effect.FENCED, Effect.REGISTERS_LATER

op = Op
video = partial(Op, operation=_O.VIDEO, cost=4)
async_matrix = partial(Op, operation=_O.ASYNC_MATRIX)

MATRIX: list[Op] = [
    op(
        "wmma.load{.*} d:vec, [a], ...",
        operation=_O.MATRIX_LOAD,
        touches=_T.ADDRESS,
        effects=_R | _TRAP | _LANE,
        divergence="source",
        cost=30,
    ),
    op(
        "wmma.store{.*} [a], b:vec, ...",
        operation=_O.MATRIX_STORE,
        touches=_T.ADDRESS,
        effects=_W | _TRAP | _LANE,
        cost=10,
    ),
    op("wmma.mma{.*} d:vec, ...", operation=_O.MATRIX, effects=_LANE, divergence="source", cost=30),
    op("mma{.*} d:vec, ...", "matrix_mma", _O.MATRIX, effects=_LANE, divergence="source", cost=30),
    op(
        "ldmatrix{.*} d:vec, [a]",
        "matrix_load",
        operation=_O.MATRIX_LOAD,
        touches=_T.SHARED,
        effects=_R | _TRAP | _LANE,
        divergence="source",
        cost=20,
    ),
    op(
        "stmatrix{.*} [a], b:vec",
        "matrix_store",
        _O.MATRIX_STORE,
        touches=_T.SHARED,
        effects=_W | _TRAP | _LANE,
        cost=8,
    ),
    async_matrix(
        "wgmma.mma_async{.*} d+:vec, ...",
        effects=_FENCED | _LATER,
        divergence="source",
        cost=40,
    ),
    async_matrix("wgmma{.*} ...", effects=_FENCED, cost=10),
    async_matrix(
        "tcgen05.ld.red{.*} d:any, p:any, [a], ...",
        effects=_FENCED | _LATER,
        divergence="source",
        cost=20,
    ),
    async_matrix(
        "tcgen05.ld{.*} d:any, [a], ...",
        effects=_FENCED | _LATER,
        divergence="source",
        cost=20,
    ),
    async_matrix("tcgen05.st{.*} [a], ...", effects=_FENCED | _LATER, cost=20),
    async_matrix("tcgen05{.*} ...", effects=_FENCED, cost=20),
]

# Video instructions: operands may be bytes or halves (`%r1.b0`), and some have a second operation on a third source.
_VIDEO_COMPARISON = "(eq|ne|lt|le|gt|ge)"
VIDEO: list[Op] = [
    *[
        video(
            f"{name}.dtype=word.atype=word.btype=word{{.sat}}{{.secop}} d:dtype, a:atype, b:btype{{, c:dtype}}",
            "video_word",
        )
        for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
    ],
    *[
        video(
            f"{name}.dtype=word.atype=word.u32{{.sat}}.(clamp|wrap){{.secop}} d:dtype, a:atype, b:u32{{, c:dtype}}",
            "video_word",
        )
        for name in ("vshl", "vshr")
    ],
    video(f"vset.atype=word.btype=word.{_VIDEO_COMPARISON}{{.secop}} d:u32, a:atype, b:btype{{, c:u32}}", "video_word"),
    video(
        "vmad.dtype=word.atype=word.btype=word{.po}{.sat}{.(shr7|shr15)} d:dtype, a:atype, b:btype, c:dtype",
        "video_mad",
    ),
    *[
        video(
            f"{name}{parts}.dtype=word.atype=word.btype=word{{.sat}}{{.add}} d:dtype, a:atype, b:btype, c:dtype",
            "video_parts",
        )
        for parts in (2, 4)
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    ],
    *[
        video(
            f"vset{parts}.atype=word.btype=word.{_VIDEO_COMPARISON}{{.add}} d:u32, a:atype, b:btype, c:u32",
            "video_parts",
        )
        for parts in (2, 4)
    ],
]
