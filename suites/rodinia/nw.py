"""Needleman-Wunsch: the score of the best global alignment of two sequences, for all of their prefixes.

``score[i, j] = max(score[i-1, j-1] + similarity[i, j], score[i, j-1] - penalty, score[i-1, j] - penalty)``. A block of
BLOCK threads computes BLOCK x BLOCK scores in shared memory, along their diagonals: up to the longest diagonal, and
down again. A launch computes a diagonal of blocks. The first kernel computes those of the upper left half, the second
kernel those of the lower right half.

References: Needleman and Wunsch, *A general method applicable to the search for similarities in the amino acid sequence
of two proteins*, J. Mol. Biol. 48, 1970; Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC
2009, with sequences of 2048 and a penalty of 10. The table of similarities is random and symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
    device,
    host,
    i32,
    kernel,
    program,
    ptr,
    shared,
    syncthreads,
    threadIdx,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 16
PENALTY = 10
LETTERS = 23

#: length of both sequences
SHAPES = {"tiny": 64, "small": 512, "full": 2048}


@device
def greatest(a: i32, b: i32, c: i32) -> i32:
    k = b if a <= b else a
    return c if k <= c else k


@kernel
def needle_1(
    similarity: const_ptr[i32], score: ptr[i32], cols: i32, penalty: i32, diagonal: i32, block_width: i32
) -> None:
    """The block diagonal with ``diagonal`` blocks, counted from the upper left corner."""
    bx: i32 = blockIdx.x
    tx: i32 = threadIdx.x
    block_x = bx
    block_y = diagonal - 1 - bx
    index = cols * BLOCK * block_y + BLOCK * block_x + tx + (cols + 1)
    index_n = cols * BLOCK * block_y + BLOCK * block_x + tx + 1
    index_w = cols * BLOCK * block_y + BLOCK * block_x + cols
    index_nw = cols * BLOCK * block_y + BLOCK * block_x
    temp = shared(i32, BLOCK + 1, BLOCK + 1)
    ref = shared(i32, BLOCK, BLOCK)

    if tx == 0:
        temp[tx, 0] = score[index_nw]
    for ty in range(BLOCK):
        ref[ty, tx] = similarity[index + cols * ty]
    syncthreads()
    temp[tx + 1, 0] = score[index_w + cols * tx]
    syncthreads()
    temp[0, tx + 1] = score[index_n]
    syncthreads()

    for m in range(BLOCK):
        if tx <= m:
            x = tx + 1
            y = m - tx + 1
            temp[y, x] = greatest(
                temp[y - 1, x - 1] + ref[y - 1, x - 1], temp[y, x - 1] - penalty, temp[y - 1, x] - penalty
            )
        syncthreads()
    for m in range(BLOCK - 2, -1, -1):
        if tx <= m:
            x = tx + BLOCK - m
            y = BLOCK - tx
            temp[y, x] = greatest(
                temp[y - 1, x - 1] + ref[y - 1, x - 1], temp[y, x - 1] - penalty, temp[y - 1, x] - penalty
            )
        syncthreads()
    for ty in range(BLOCK):
        score[index + ty * cols] = temp[ty + 1, tx + 1]


@kernel
def needle_2(
    similarity: const_ptr[i32], score: ptr[i32], cols: i32, penalty: i32, diagonal: i32, block_width: i32
) -> None:
    """The block diagonal with ``diagonal`` blocks in the lower right half."""
    bx: i32 = blockIdx.x
    tx: i32 = threadIdx.x
    block_x = bx + block_width - diagonal
    block_y = block_width - bx - 1
    index = cols * BLOCK * block_y + BLOCK * block_x + tx + (cols + 1)
    index_n = cols * BLOCK * block_y + BLOCK * block_x + tx + 1
    index_w = cols * BLOCK * block_y + BLOCK * block_x + cols
    index_nw = cols * BLOCK * block_y + BLOCK * block_x
    temp = shared(i32, BLOCK + 1, BLOCK + 1)
    ref = shared(i32, BLOCK, BLOCK)

    for ty in range(BLOCK):
        ref[ty, tx] = similarity[index + cols * ty]
    syncthreads()
    if tx == 0:
        temp[tx, 0] = score[index_nw]
    temp[tx + 1, 0] = score[index_w + cols * tx]
    syncthreads()
    temp[0, tx + 1] = score[index_n]
    syncthreads()

    for m in range(BLOCK):
        if tx <= m:
            x = tx + 1
            y = m - tx + 1
            temp[y, x] = greatest(
                temp[y - 1, x - 1] + ref[y - 1, x - 1], temp[y, x - 1] - penalty, temp[y - 1, x] - penalty
            )
        syncthreads()
    for m in range(BLOCK - 2, -1, -1):
        if tx <= m:
            x = tx + BLOCK - m
            y = BLOCK - tx
            temp[y, x] = greatest(
                temp[y - 1, x - 1] + ref[y - 1, x - 1], temp[y, x - 1] - penalty, temp[y - 1, x] - penalty
            )
        syncthreads()
    for ty in range(BLOCK):
        score[index + ty * cols] = temp[ty + 1, tx + 1]


@program
def nw(similarity: host[i32], score: host[i32], cols: i32, penalty: i32) -> None:
    d_similarity, d_score = allocate(i32, cols * cols), allocate(i32, cols * cols)
    copy(d_similarity, similarity)
    copy(d_score, score)
    block_width = (cols - 1) // BLOCK
    for i in range(1, block_width + 1):
        needle_1[i, BLOCK](d_similarity, d_score, cols, penalty, i, block_width)
    for i in range(block_width - 1, 0, -1):
        needle_2[i, BLOCK](d_similarity, d_score, cols, penalty, i, block_width)
    copy(score, d_score)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    cols = SHAPES[size] + 1
    numbers = np.random.default_rng(seed)
    table = np.tril(numbers.integers(-4, 4, (LETTERS, LETTERS)))
    table = table + np.tril(table, -1).T + np.diag(numbers.integers(4, 9, LETTERS))
    one, other = numbers.integers(0, LETTERS, (2, cols))
    score = np.zeros((cols, cols), np.int32)
    score[0] = score[:, 0] = -PENALTY * np.arange(cols)
    return {
        "similarity": table[np.ix_(one, other)].ravel().astype(np.int32),
        "score": score.ravel(),
        "cols": cols,
        "penalty": PENALTY,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Row by row. Gaps along a row are a running maximum of the values that scores have at the end of the row."""
    import numpy as np

    similarity = data["similarity"].reshape(data["cols"], -1).astype(np.int64)
    gaps: NDArray[np.int64] = data["penalty"] * np.arange(data["cols"], dtype=np.int64)
    rows: list[NDArray[np.int64]] = [-gaps]
    for number, gain in enumerate(similarity[1:], 1):
        from_above = np.maximum(rows[-1][:-1] + gain[1:], rows[-1][1:] - data["penalty"])
        entered = np.concatenate(([-data["penalty"] * number], from_above))
        rows.append(np.maximum.accumulate(entered + gaps) - gaps)
    return {"score": np.array(rows).ravel().astype(np.int32)}


benchmark = Benchmark(
    suite="rodinia",
    name="nw",
    program=nw,
    make_data=make_data,
    reference=reference,
    stresses=("shared memory", "barriers in unrolled loops", "divergent branches", "launches in a loop"),
    description="Needleman-Wunsch alignment of two sequences, along diagonals",
    sizes={size: f"{n} x {n}" for size, n in SHAPES.items()},
)
