"""Gaussian elimination without pivoting: two launches for each column.

The first kernel computes the multipliers of column ``t``. The second kernel subtracts row ``t`` from all rows below and
from the right side, with a thread for each element. The host does the back substitution.

Reference: Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009. Its default is 16 x 16,
which is ``tiny`` here, and its largest matrix is 1024 x 1024, which is ``full``. The matrix is symmetric, with entries
that decrease with the distance to the diagonal. Each seed has its own right side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import allocate, blockDim, blockIdx, copy, f32, host, i32, kernel, program, ptr, threadIdx
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK, BLOCK_2D = 512, 4

#: rows
SHAPES = {"tiny": 16, "small": 208, "full": 1024}


@kernel
def fan1(m: ptr[f32], a: ptr[f32], size: i32, t: i32) -> None:
    """The multipliers of column ``t``."""
    if threadIdx.x + blockIdx.x * blockDim.x >= size - 1 - t:
        return
    (m + size * (blockDim.x * blockIdx.x + threadIdx.x + t + 1) + t)[0] = (
        a + size * (blockDim.x * blockIdx.x + threadIdx.x + t + 1) + t
    )[0] / (a + size * t + t)[0]


@kernel
def fan2(m: ptr[f32], a: ptr[f32], b: ptr[f32], size: i32, j1: i32, t: i32) -> None:
    """Subtract multiples of row ``t`` from the rows below. The threads of the first column also update the right
    side."""
    if threadIdx.x + blockIdx.x * blockDim.x >= size - 1 - t:
        return
    if threadIdx.y + blockIdx.y * blockDim.y >= size - t:
        return
    x: i32 = blockIdx.x * blockDim.x + threadIdx.x
    y: i32 = blockIdx.y * blockDim.y + threadIdx.y
    a[size * (x + 1 + t) + (y + t)] -= m[size * (x + 1 + t) + t] * a[size * t + (y + t)]
    if y == 0:
        b[x + 1 + t] -= m[size * (x + 1 + t) + (y + t)] * b[t]


def back_substitution(a: Any, b: Any, x: Any, size: int) -> None:
    """Solve the upper triangle of ``a`` for ``x``, last row first."""
    import numpy as np

    rows = a.reshape(size, size)
    for i in range(size - 1, -1, -1):
        x[i] = (b[i] - np.dot(rows[i, i + 1 :], x[i + 1 :])) / rows[i, i]


@program
def gaussian(a: host[f32], b: host[f32], m: host[f32], x: host[f32], size: i32) -> None:
    d_m, d_a, d_b = allocate(f32, size * size), allocate(f32, size * size), allocate(f32, size)
    copy(d_m, m)
    copy(d_a, a)
    copy(d_b, b)
    blocks = (size + BLOCK - 1) // BLOCK
    blocks_2d = (size + BLOCK_2D - 1) // BLOCK_2D
    for t in range(size - 1):
        fan1[blocks, BLOCK](d_m, d_a, size, t)
        fan2[(blocks_2d, blocks_2d), (BLOCK_2D, BLOCK_2D)](d_m, d_a, d_b, size, size - t, t)
    copy(m, d_m)
    copy(a, d_a)
    copy(b, d_b)
    back_substitution(a, b, x, size)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    n = SHAPES[size]
    numbers = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    a = 10 * np.exp(-0.01 * distance) + np.diag(numbers.random(n))
    return {
        "a": a.ravel().astype(np.float32),
        "b": (0.5 + numbers.random(n)).astype(np.float32),
        "m": np.zeros(n * n, np.float32),
        "x": np.zeros(n, np.float32),
        "size": n,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """L and U from the Cholesky factor in double precision, without elimination; the solution from NumPy's solver."""
    import numpy as np

    n = data["size"]
    a: NDArray[np.float64] = data["a"].reshape(n, n).astype(np.float64)
    b: NDArray[np.float64] = data["b"].astype(np.float64)
    # A symmetric positive definite matrix is C C^T. Its L has the columns of C divided by their diagonal, and U = D
    # L^T.
    root = np.linalg.cholesky(a)
    unit = root / np.diag(root)
    lower = np.tril(unit, -1)
    return {
        "m": lower.ravel().astype(np.float32),
        "a": (np.diag(root)[:, None] * root.T).ravel().astype(np.float32),
        "b": np.linalg.solve(unit, b).astype(np.float32),
        "x": np.linalg.solve(a, b).astype(np.float32),
    }


benchmark = Benchmark(
    suite="rodinia",
    name="gaussian",
    program=gaussian,
    make_data=make_data,
    reference=reference,
    stresses=("launches in a loop", "kernels that can be fused", "divergent branches"),
    description="Gaussian elimination of a system of linear equations, two launches for each column",
    tolerance=Tolerance(relative=1e-3, absolute=1e-3),
    sizes={size: f"{n} x {n}" for size, n in SHAPES.items()},
)
