"""The eigenvalues of a large symmetric tridiagonal matrix, by bisection.

A Sturm count is the number of eigenvalues less than x. It equals the number of negative pivots in the elimination of T
- xI, ``δ_k = d_k - x - s_k² / δ_{k-1}``. Intervals that contain eigenvalues are halved until they are narrow enough.

`bisect_large` begins with the Gerschgorin interval, in one block with a thread for each interval. Threads load parts of
the matrix into shared memory and count. If both halves of an interval contain eigenvalues, the first half stays in its
place and the second half goes to a second region, which a scan compacts. The loop ends when all intervals are narrow or
there are more intervals than threads. Then the kernel separates intervals with one eigenvalue from those with several.
It groups the latter into blocks of at most as many eigenvalues as threads, by scans over up to two intervals per
thread. `bisect_one` halves intervals with one eigenvalue until they are narrow, with a thread for each.
`bisect_multiple` continues like the first kernel, with a block for each group. Rounds repeat the three launches, as in
the original, which times them.

Differences from the original: shared memory is cleared if it would be read before it is written. Intervals with several
eigenvalues always form a group, even if one block could handle all of their eigenvalues. Blocks may have fewer threads
than the original's 256, for the emulator.

Reference: NVIDIA CUDA samples, eigenvalues (2048 x 2048, precision 1e-5, 100 rounds); Lessig, *Eigenvalue computation
with CUDA*, NVIDIA 2007; Demmel, Dhillon, Ren, *On the correctness of some bisection-like parallel eigenvalue algorithms
in floating point arithmetic*, ETNA 3, 1995.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    atomic_exch,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    f32,
    fabs,
    fill,
    host,
    i32,
    kernel,
    program,
    ptr,
    read,
    shared,
    syncthreads,
    threadIdx,
    u32,
    zeros,
)
from ..registry import Benchmark, Tolerance
from .bisect_large import bisect_large
from .bisection import BLOCK, MOST, count_smaller, make_places, midpoint, next_power, store_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRECISION = 1e-5

#: rows, threads per block (at most BLOCK), rounds
SHAPES = {"tiny": (48, 16, 1), "small": (1024, 256, 10), "full": (2048, 256, 100)}


@kernel
def bisect_one(
    g_d: const_ptr[f32],
    g_s: const_ptr[f32],
    n: u32,
    intervals: u32,
    g_left: ptr[f32],
    g_right: const_ptr[f32],
    g_position: const_ptr[u32],
    precision: f32,
) -> None:
    """Halve intervals with one eigenvalue until they are narrow. Their middles replace ``g_left``."""
    d = shared(f32, BLOCK)
    s = shared(f32, BLOCK)
    all_done = shared(u32, 1)
    thread = blockDim.x * blockIdx.x + threadIdx.x
    left: f32 = 0.0
    right: f32 = 0.0
    right_count: u32 = 0
    done: u32 = 0
    middle: f32 = 0.0
    if thread < intervals:
        left = g_left[thread]
        right = g_right[thread]
        right_count = g_position[thread]
    if threadIdx.x == 0:
        all_done[0] = 0
    syncthreads()
    while True:
        atomic_exch(all_done + 0, 1)
        if thread < intervals and done == 0:
            middle = midpoint(left, right)
        middle_count = count_smaller(g_d, g_s, n, middle, thread, intervals, d + 0, s + 0)
        syncthreads()
        if thread < intervals and done == 0:
            if right_count == middle_count:
                right = middle
            else:
                left = middle
            width = right - left
            allowed = max(fabs(right), fabs(left)) * precision
            if width < min(precision, allowed):
                narrowed = midpoint(left, right)
                left = narrowed
                right = narrowed
                done = 1
            else:
                atomic_exch(all_done + 0, 0)
        syncthreads()
        if all_done[0] == 1:
            break
        syncthreads()
    syncthreads()
    if thread < intervals:
        g_left[thread] = left


@kernel
def bisect_multiple(
    g_d: const_ptr[f32],
    g_s: const_ptr[f32],
    n: u32,
    group_begins: const_ptr[u32],
    group_sums: const_ptr[u32],
    g_left: const_ptr[f32],
    g_right: const_ptr[f32],
    g_left_count: const_ptr[u32],
    g_right_count: const_ptr[u32],
    g_value: ptr[f32],
    g_position: ptr[u32],
    precision: f32,
) -> None:
    """Halve the intervals of a group until each has one eigenvalue and is narrow."""
    lefts = shared(f32, MOST)
    rights = shared(f32, MOST)
    left_counts = shared(u32, MOST)
    right_counts = shared(u32, MOST)
    places = shared(u32, MOST + 1)
    all_done = shared(u32, 1)
    active = shared(u32, 1)
    scanned = shared(u32, 1)
    has_seconds = shared(u32, 1)
    begin = shared(u32, 1)
    output = shared(u32, 1)
    thread: u32 = threadIdx.x
    left: f32 = 0.0
    right: f32 = 0.0
    left_count: u32 = 0
    right_count: u32 = 0
    middle: f32 = 0.0
    middle_count: u32 = 0
    has_second: u32 = 0

    places[thread + 1] = 0
    places[thread + 1 + blockDim.x] = 0
    if thread == 0:
        begin[0] = group_begins[blockIdx.x]
        output[0] = group_sums[blockIdx.x]
        active[0] = group_begins[blockIdx.x + 1] - group_begins[blockIdx.x]
        places[0] = 0
        scanned[0] = next_power(active[0])
        all_done[0] = 1
        has_seconds[0] = 0
    syncthreads()
    if thread < active[0]:
        lefts[thread] = g_left[begin[0] + thread]
        rights[thread] = g_right[begin[0] + thread]
        left_counts[thread] = g_left_count[begin[0] + thread]
        right_counts[thread] = g_right_count[begin[0] + thread]
    syncthreads()

    while True:
        if thread < active[0]:
            left = lefts[thread]
            right = rights[thread]
            left_count = left_counts[thread]
            right_count = right_counts[thread]
            if left != right:
                middle = midpoint(left, right)
                atomic_exch(all_done + 0, 0)
            elif right_count - left_count > 1:
                atomic_exch(all_done + 0, 0)
        syncthreads()
        if all_done[0] == 1:
            break
        middle_count = count_smaller(g_d, g_s, n, middle, thread, active[0], lefts + 0, rights + 0)
        syncthreads()

        if thread < active[0]:
            if left != right:
                if left_count != middle_count and middle_count != right_count:
                    left_counts[thread] = left_count
                    right_counts[thread] = middle_count
                    store_interval(thread, lefts + 0, rights + 0, left, middle, precision)
                    has_second = 1
                    places[thread + 1] = 1
                    atomic_exch(has_seconds + 0, 1)
                else:
                    has_second = 0
                    places[thread + 1] = 0
                    if left_count != middle_count:
                        left_counts[thread] = left_count
                        right_counts[thread] = middle_count
                        store_interval(thread, lefts + 0, rights + 0, left, middle, precision)
                    else:
                        left_counts[thread] = middle_count
                        right_counts[thread] = right_count
                        store_interval(thread, lefts + 0, rights + 0, middle, right, precision)
            else:
                # The interval is narrow. An eigenvalue of higher multiplicity becomes several intervals of width 0.
                lefts[thread] = left
                rights[thread] = right
                left_counts[thread] = left_count
                if right_count - left_count == 1:
                    right_counts[thread] = right_count
                    has_second = 0
                    places[thread + 1] = 0
                else:
                    middle_count = left_count + ((right_count - left_count) >> 1)
                    right_counts[thread] = middle_count
                    middle = left
                    has_second = 1
                    places[thread + 1] = 1
                    atomic_exch(has_seconds + 0, 1)
        syncthreads()

        if has_seconds[0] == 1:
            make_places(places + 0, scanned[0])
            if thread < active[0] and has_second == 1:
                target = active[0] + places[thread]
                lefts[target] = middle
                rights[target] = right
                left_counts[target] = middle_count
                right_counts[target] = right_count
        syncthreads()
        if thread == 0:
            active[0] += places[active[0]]
            scanned[0] = next_power(active[0])
            has_seconds[0] = 0
            all_done[0] = 1
        syncthreads()
        places[thread + 1] = 0
        places[thread + 1 + blockDim.x] = 0
        syncthreads()

    if thread < active[0]:
        g_value[output[0] + thread] = lefts[thread]
        g_position[output[0] + thread] = right_counts[thread]


def sort_in(values: Any, positions: Any, count: int, found: Any) -> None:
    """Store eigenvalues in ascending order: ``positions`` says for each how many eigenvalues are not greater."""
    values[positions[:count] - 1] = found[:count]


@program
def eigenvalues(
    diagonal: host[f32],
    superdiagonal: host[f32],
    values: host[f32],
    n: i32,
    block: i32,
    lower: f32,
    upper: f32,
    rounds: i32,
) -> None:
    d = allocate(f32, n)
    s = allocate(f32, n)
    copy(d, diagonal)
    copy(s, superdiagonal)
    ones = allocate(u32, 1)
    groups = allocate(u32, 1)
    left_one = allocate(f32, n)
    right_one = allocate(f32, n)
    position_one = allocate(u32, n)
    left_several = allocate(f32, n)
    right_several = allocate(f32, n)
    left_count_several = allocate(u32, n)
    right_count_several = allocate(u32, n)
    group_begins = allocate(u32, n)
    group_sums = allocate(u32, n)
    value_several = allocate(f32, n)
    position_several = allocate(u32, n)
    fill(left_one, 0)
    fill(position_one, 0)
    fill(value_several, 0)
    fill(position_several, 0)
    count = 0
    for _ in range(rounds):
        bisect_large[1, block](
            d,
            s,
            n,
            lower,
            upper,
            0,
            n,
            PRECISION,
            ones,
            groups,
            left_one,
            right_one,
            position_one,
            left_several,
            right_several,
            left_count_several,
            right_count_several,
            group_begins,
            group_sums,
        )
        count = read(ones, 0)
        bisect_one[max(1, -(-count // block)), block](d, s, n, count, left_one, right_one, position_one, PRECISION)
        blocks = read(groups, 0)
        bisect_multiple[blocks, block](
            d,
            s,
            n,
            group_begins,
            group_sums,
            left_several,
            right_several,
            left_count_several,
            right_count_several,
            value_several,
            position_several,
            PRECISION,
        )
    found = zeros(f32, n)
    positions = zeros(u32, n)
    copy(found, left_one)
    copy(positions, position_one)
    sort_in(values, positions, count, found)
    copy(found, value_several)
    copy(positions, position_several)
    sort_in(values, positions, n - count, found)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Random entries. The superdiagonal element of row i is at index i + 1. Gerschgorin's circles give the interval."""
    import numpy as np

    n, block, rounds = SHAPES[size]
    numbers = np.random.default_rng(seed)
    diagonal, above = numbers.random(n, np.float32), numbers.random(n, np.float32)
    above[0] = 0
    radius = np.abs(above).astype(np.float64) + np.append(np.abs(above[1:]), 0)
    low, high = float((diagonal - radius).min()), float((diagonal + radius).max())
    margin = max(abs(low), abs(high)) * float(np.finfo(np.float32).eps) * (2 * n + 11)
    return {
        "diagonal": diagonal,
        "superdiagonal": above,
        "values": np.zeros(n, np.float32),
        "n": n,
        "block": block,
        "lower": low - margin,
        "upper": high + margin,
        "rounds": rounds,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    above = np.diag(data["superdiagonal"][1:].astype(np.float64), 1)
    return {"values": np.linalg.eigvalsh(np.diag(data["diagonal"].astype(np.float64)) + above + above.T).astype("f4")}


benchmark = Benchmark(
    suite="cuda_samples",
    name="eigenvalues",
    program=eigenvalues,
    make_data=make_data,
    reference=reference,
    stresses=("divergent branches in a loop", "shared memory", "barriers in a loop", "scans", "launches in a loop"),
    description="all eigenvalues of a symmetric tridiagonal matrix, by bisection",
    # Half of the widest interval that counts as narrow, plus rounding errors of the pivots in single precision.
    tolerance=Tolerance(relative=3e-5, absolute=3e-5),
    sizes={size: f"{n} x {n}, {rounds} rounds" for size, (n, _, rounds) in SHAPES.items()},
)
