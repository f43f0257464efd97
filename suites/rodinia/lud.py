"""LU decomposition of a matrix in place, without pivoting, by blocks.

For each diagonal block: the first kernel decomposes it, with one block of threads and a thread for a row and a column.
The second kernel uses it to solve for the blocks to its right and below, with half of the threads for each. The third
kernel subtracts their products from the rest of the matrix. The last diagonal block is decomposed at the end.

Reference: Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009. Its default is 256 x 256,
which is ``small`` here; its largest data are 2048 x 2048. The matrix is random with a strong diagonal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import allocate, blockIdx, copy, f32, host, i32, kernel, program, ptr, shared, syncthreads, threadIdx
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 16
HALF = BLOCK // 2

#: rows
SHAPES = {"tiny": 48, "small": 256, "full": 2048}


@kernel
def lud_diagonal(m: ptr[f32], dim: i32, offset: i32) -> None:
    """Decompose the diagonal block at ``offset``."""
    shadow = shared(f32, BLOCK, BLOCK)
    at = offset * dim + offset
    for i in range(BLOCK):
        shadow[i, threadIdx.x] = m[at + threadIdx.x]
        at += dim
    syncthreads()
    for i in range(BLOCK - 1):
        if threadIdx.x > i:
            for j in range(i):
                shadow[threadIdx.x, i] -= shadow[threadIdx.x, j] * shadow[j, i]
            shadow[threadIdx.x, i] /= shadow[i, i]
        syncthreads()
        if threadIdx.x > i:
            for j in range(i + 1):
                shadow[i + 1, threadIdx.x] -= shadow[i + 1, j] * shadow[j, threadIdx.x]
        syncthreads()
    # The first row does not change.
    at = (offset + 1) * dim + offset
    for i in range(1, BLOCK):
        m[at + threadIdx.x] = shadow[i, threadIdx.x]
        at += dim


@kernel
def lud_perimeter(m: ptr[f32], dim: i32, offset: i32) -> None:
    """Solve for one block to the right of the diagonal block, and one block below it."""
    dia = shared(f32, BLOCK, BLOCK)
    peri_row = shared(f32, BLOCK, BLOCK)
    peri_col = shared(f32, BLOCK, BLOCK)
    idx: i32
    at: i32
    if threadIdx.x < BLOCK:
        idx = threadIdx.x
        at = offset * dim + offset
        for i in range(HALF):
            dia[i, idx] = m[at + idx]
            at += dim
        at = offset * dim + offset
        for i in range(BLOCK):
            peri_row[i, idx] = m[at + (blockIdx.x + 1) * BLOCK + idx]
            at += dim
    else:
        idx = threadIdx.x - BLOCK
        at = (offset + HALF) * dim + offset
        for i in range(HALF, BLOCK):
            dia[i, idx] = m[at + idx]
            at += dim
        at = (offset + (blockIdx.x + 1) * BLOCK) * dim + offset
        for i in range(BLOCK):
            peri_col[i, idx] = m[at + idx]
            at += dim
    syncthreads()

    if threadIdx.x < BLOCK:
        idx = threadIdx.x
        for i in range(1, BLOCK):
            for j in range(i):
                peri_row[i, idx] -= dia[i, j] * peri_row[j, idx]
    else:
        idx = threadIdx.x - BLOCK
        for i in range(BLOCK):
            for j in range(i):
                peri_col[idx, i] -= peri_col[idx, j] * dia[j, i]
            peri_col[idx, i] /= dia[i, i]
    syncthreads()

    if threadIdx.x < BLOCK:
        idx = threadIdx.x
        at = (offset + 1) * dim + offset
        for i in range(1, BLOCK):
            m[at + (blockIdx.x + 1) * BLOCK + idx] = peri_row[i, idx]
            at += dim
    else:
        idx = threadIdx.x - BLOCK
        at = (offset + (blockIdx.x + 1) * BLOCK) * dim + offset
        for i in range(BLOCK):
            m[at + idx] = peri_col[i, idx]
            at += dim


@kernel
def lud_internal(m: ptr[f32], dim: i32, offset: i32) -> None:
    """Subtract the product of the block to the left and the block above, which the perimeter kernel computed."""
    peri_row = shared(f32, BLOCK, BLOCK)
    peri_col = shared(f32, BLOCK, BLOCK)
    row: i32 = offset + (blockIdx.y + 1) * BLOCK
    col: i32 = offset + (blockIdx.x + 1) * BLOCK
    peri_row[threadIdx.y, threadIdx.x] = m[(offset + threadIdx.y) * dim + col + threadIdx.x]
    peri_col[threadIdx.y, threadIdx.x] = m[(row + threadIdx.y) * dim + offset + threadIdx.x]
    syncthreads()
    total: f32 = 0.0
    for i in range(BLOCK):
        total += peri_col[threadIdx.y, i] * peri_row[i, threadIdx.x]
    m[(row + threadIdx.y) * dim + col + threadIdx.x] -= total


@program
def lud(m: host[f32], dim: i32) -> None:
    d_m = allocate(f32, dim * dim)
    copy(d_m, m)
    for i in range(0, dim - BLOCK, BLOCK):
        lud_diagonal[1, BLOCK](d_m, dim, i)
        lud_perimeter[(dim - i) // BLOCK - 1, BLOCK * 2](d_m, dim, i)
        lud_internal[((dim - i) // BLOCK - 1, (dim - i) // BLOCK - 1), (BLOCK, BLOCK)](d_m, dim, i)
    lud_diagonal[1, BLOCK](d_m, dim, dim - BLOCK)
    copy(m, d_m)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    n = SHAPES[size]
    numbers = np.random.default_rng(seed)
    m = numbers.uniform(-1, 1, (n, n)) + np.diag(numbers.uniform(n / 2, n, n))
    return {"m": m.ravel().astype(np.float32), "dim": n}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Recursion by halves: L21 U11 = A21, L11 U12 = A12, and A22 - L21 U12 is a smaller matrix."""
    import numpy as np

    n: int = data["dim"]
    a: NDArray[np.float64] = data["m"].reshape(n, n).astype(np.float64)
    both = np.empty_like(a)

    def decompose(first: int, last: int, rest: NDArray[np.float64]) -> None:
        if last - first == 1:
            both[first, first] = rest[0, 0]
            return
        middle = (first + last) // 2
        k = middle - first
        decompose(first, middle, rest[:k, :k])
        done: NDArray[np.float64] = both[first:middle, first:middle]
        upper = np.linalg.solve(np.tril(done, -1) + np.eye(k), rest[:k, k:])
        lower = np.linalg.solve(np.triu(done).T, rest[k:, :k].T).T
        both[first:middle, middle:last] = upper
        both[middle:last, first:middle] = lower
        decompose(middle, last, rest[k:, k:] - lower @ upper)

    decompose(0, n, a)
    return {"m": both.ravel().astype(np.float32)}


benchmark = Benchmark(
    suite="rodinia",
    name="lud",
    program=lud,
    make_data=make_data,
    reference=reference,
    stresses=("shared memory", "triangular loops", "divergent branches", "kernels that can be fused"),
    description="LU decomposition of a matrix by blocks",
    tolerance=Tolerance(relative=1e-4, absolute=1e-5),
    sizes={size: f"{n} x {n}" for size, n in SHAPES.items()},
)
