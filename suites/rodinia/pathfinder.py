"""Shortest path through a grid, row by row: dynamic programming with a ghost zone.

``cost[r, c] = wall[r, c] + min(cost[r-1, c-1], cost[r-1, c], cost[r-1, c+1])``; neighbours outside the grid are
ignored. A launch advances ``pyramid`` rows. Each block loads BLOCK columns of the last row, of which ``pyramid`` on
each side are its ghost zone. In every step the valid part loses one column on each side. Two result rows are swapped
between launches.

Reference: Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009; its defaults are 100000
columns, 100 rows, pyramids of 20 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
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

BLOCK = 256

#: columns, rows, rows per pyramid
SHAPES = {"tiny": (1000, 17, 5), "small": (20_000, 50, 20), "full": (100_000, 100, 20)}


@kernel
def dynproc(
    steps: i32, wall: const_ptr[i32], src: const_ptr[i32], dst: ptr[i32], cols: i32, row: i32, border: i32
) -> None:
    """Advance ``steps`` rows from ``row``. ``border`` columns on each side of the block are its ghost zone."""
    previous = shared(i32, BLOCK)
    result = shared(i32, BLOCK)
    tx: i32 = threadIdx.x
    # The block computes BLOCK - 2 * border columns, of which the first is first_column + border.
    first_column: i32 = (BLOCK - border * 2) * i32(blockIdx.x) - border
    last_column = first_column + BLOCK - 1
    column = first_column + tx
    # The part of the block that is inside the grid.
    first = -first_column if first_column < 0 else 0
    last = BLOCK - 1 - (last_column - cols + 1) if last_column > cols - 1 else BLOCK - 1
    west = max(tx - 1, first)
    east = min(tx + 1, last)
    is_inside = first <= tx <= last

    if 0 <= column < cols:
        previous[tx] = src[column]
    syncthreads()
    computed = False
    for i in range(steps):
        computed = False
        if i + 1 <= tx <= BLOCK - i - 2 and is_inside:
            computed = True
            shortest = min(min(previous[west], previous[tx]), previous[east])
            result[tx] = shortest + wall[cols * (row + i) + column]
        syncthreads()
        if i == steps - 1:
            break
        if computed:
            previous[tx] = result[tx]
        syncthreads()
    if computed:
        dst[column] = result[tx]


@program
def pathfinder(wall: host[i32], costs: host[i32], cols: i32, rows: i32, pyramid: i32) -> None:
    gpu_wall = allocate(i32, cols * (rows - 1))
    src = allocate(i32, cols)
    dst = allocate(i32, cols)
    copy(src, wall[:cols])
    copy(gpu_wall, wall[cols:])
    blocks = -(-cols // (BLOCK - 2 * pyramid))
    for row in range(0, rows - 1, pyramid):
        dynproc[blocks, BLOCK](min(pyramid, rows - 1 - row), gpu_wall, src, dst, cols, row, pyramid)
        src, dst = dst, src
    copy(costs, src)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    cols, rows, pyramid = SHAPES[size]
    wall = np.random.default_rng(seed).integers(0, 10, rows * cols, dtype=np.int32)
    return {"wall": wall, "costs": np.zeros(cols, np.int32), "cols": cols, "rows": rows, "pyramid": pyramid}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    wall = data["wall"].reshape(data["rows"], data["cols"]).astype(np.int64)
    cost = wall[0]
    for row in wall[1:]:
        around = np.pad(cost, 1, constant_values=np.iinfo(np.int64).max)
        cost = row + np.minimum(np.minimum(around[:-2], around[1:-1]), around[2:])
    return {"costs": cost.astype(np.int32)}


benchmark = Benchmark(
    suite="rodinia",
    name="pathfinder",
    program=pathfinder,
    make_data=make_data,
    reference=reference,
    stresses=("shared memory", "barriers in a loop", "divergent branches", "launches in a loop"),
    description="shortest path through a grid by dynamic programming with a ghost zone",
    sizes={size: f"{cols} x {rows}, pyramid {pyramid}" for size, (cols, rows, pyramid) in SHAPES.items()},
)
