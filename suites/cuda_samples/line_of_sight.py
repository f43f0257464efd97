"""Which points of a height field along a ray can be seen from the ray's origin.

A point is visible if no point before it is seen at a greater angle. In each round one kernel computes the angles, two
kernels compute a maximum scan, and one compares. The scan is the one of CUB and Thrust, with decoupled look-back. A
block scans its tile and publishes its aggregate. Then it looks back over the preceding tiles, 32 at a time, to the
nearest tile that has published the maximum up to its end, and publishes its own. Status and value of a tile are one
64-bit word; a separate kernel resets these words. Every round computes the same. The last kernel of a round and the
first kernel of the next round are adjacent, across the back edge of the loop.

The original reads the heights through a texture. The ray begins in the middle of the first cell, not at its corner, so
that rounding does not decide which cells it passes.

Reference: NVIDIA CUDA samples, lineOfSight (10000 x 100 heights, 100 rounds); Blelloch, *Vector models for
data-parallel computing*, MIT Press 1990; Merrill, Garland, *Single-pass parallel prefix scan with decoupled look-back*,
NVR-2016-002.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ...dsl import (
    all_sync,
    allocate,
    any_sync,
    atan,
    ballot_sync,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    device,
    f32,
    ffs,
    float2,
    float_as_uint,
    floor,
    host,
    i32,
    kernel,
    local,
    program,
    ptr,
    shared,
    shfl_up_sync,
    shfl_xor_sync,
    sqrt,
    struct,
    syncthreads,
    syncwarp,
    threadIdx,
    u8,
    u32,
    u64,
    uint_as_float,
    unroll,
    volatile,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 256
WARPS = BLOCK // 32
ITEMS = 8  #: items per thread in the scan
TILE = BLOCK * ITEMS
INIT_BLOCK = 128
ALL_LANES = 0xFFFFFFFF
LOWEST = -math.inf

#: The status of a tile, in the upper half of its word: no value, the tile's maximum, the maximum up to its end. BEFORE
#: is the status of the 32 words before the first tile.
INVALID, PARTIAL, INCLUSIVE, BEFORE = 0, 1, 2, 99

#: heights in x and y, rounds
SHAPES = {"tiny": (5000, 20, 2), "small": (10_000, 100, 10), "full": (10_000, 100, 100)}


@struct
class Ray:
    """A ray from ``x, y, z`` along ``dx, dy``, in ``length`` steps."""

    x: f32
    y: f32
    z: f32
    dx: f32
    dy: f32
    length: i32
    one_over_length: f32


@device
def location(ray: Ray, step: i32) -> float2:
    part = step * ray.one_over_length
    return float2(ray.x + ray.dx * part, ray.y + ray.dy * part)


@device
def angle(ray: Ray, at: float2, height: f32) -> f32:
    x = at.x - ray.x
    y = at.y - ray.y
    return atan((height - ray.z) / sqrt(x * x + y * y))


@kernel
def compute_angles(ray: Ray, angles: ptr[f32], heights: const_ptr[f32], width: i32) -> None:
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    if i < ray.length:
        at = location(ray, i + 1)
        height = heights[i32(floor(at.y)) * width + i32(floor(at.x))]
        angles[i] = angle(ray, at, height)


@kernel
def scan_init(tiles: ptr[u64], count: i32) -> None:
    """Reset the status of all tiles."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    if i < count:
        tiles[32 + i] = u64(INVALID) << 32
    if blockIdx.x == 0 and threadIdx.x < 32:
        tiles[threadIdx.x] = u64(BEFORE) << 32


@device
def word(status: u32, value: f32) -> u64:
    return (u64(status) << 32) | float_as_uint(value)


@device
def look_back(tiles: volatile[ptr[u64]], tile: i32, lane: i32) -> f32:
    """The maximum of all tiles before ``tile``, computed by a warp."""
    prefix: f32 = LOWEST
    at = 32 + tile - 1 - lane
    while True:
        found = tiles[at]
        while any_sync(ALL_LANES, u32(found >> 32) == INVALID):
            found = tiles[at]
        status = u32(found >> 32)
        value: f32 = uint_as_float(u32(found)) if status != BEFORE else LOWEST
        ends = ballot_sync(ALL_LANES, status == INCLUSIVE)
        # Tiles before the nearest inclusive tile are already included in its value.
        if ends != 0 and lane > ffs(i32(ends)) - 1:
            value = LOWEST
        for step in unroll(range(5)):
            value = max(value, shfl_xor_sync(ALL_LANES, value, 1 << step))
        prefix = max(prefix, value)
        if not all_sync(ALL_LANES, status != INCLUSIVE):
            break
        at -= 32
    return prefix


@kernel(max_threads=BLOCK)
def scan(values: const_ptr[f32], maxima: ptr[f32], tiles: volatile[ptr[u64]], count: i32) -> None:
    """The inclusive maximum scan of ``values``; a block scans a tile."""
    exchange = shared(f32, TILE)
    warp_maxima = shared(f32, WARPS)
    prefix = shared(f32, 1)
    items = local(f32, ITEMS)
    tx: i32 = threadIdx.x
    lane = tx % 32
    warp = tx // 32
    tile: i32 = blockIdx.x
    base = tile * TILE

    # Coalesced loads, transposed within the warp so that each thread has consecutive items.
    own = warp * 32 * ITEMS
    for k in unroll(range(ITEMS)):
        at = own + k * 32 + lane
        exchange[at] = values[base + at] if base + at < count else LOWEST
    syncwarp()
    for k in unroll(range(ITEMS)):
        items[k] = exchange[own + lane * ITEMS + k]
    syncthreads()

    aggregate = items[0]
    for k in unroll(range(1, ITEMS)):
        aggregate = max(aggregate, items[k])
    inclusive = aggregate
    for step in unroll(range(5)):
        other = shfl_up_sync(ALL_LANES, inclusive, 1 << step)
        if lane >= (1 << step):
            inclusive = max(inclusive, other)
    if lane == 31:
        warp_maxima[warp] = inclusive
    exclusive = shfl_up_sync(ALL_LANES, inclusive, 1)
    if lane == 0:
        exclusive = LOWEST
    syncthreads()
    before: f32 = LOWEST
    whole: f32 = LOWEST
    for k in unroll(range(WARPS)):
        if warp == k:
            before = whole
        whole = max(whole, warp_maxima[k])
    exclusive = max(exclusive, before)

    if tile == 0:
        if tx == 0:
            tiles[32] = word(INCLUSIVE, whole)
    else:
        if warp == 0:
            if lane == 0:
                tiles[32 + tile] = word(PARTIAL, whole)
            found = look_back(tiles, tile, lane)
            if lane == 0:
                tiles[32 + tile] = word(INCLUSIVE, max(found, whole))
                prefix[0] = found
        syncthreads()
        exclusive = max(exclusive, prefix[0])

    for k in unroll(range(ITEMS)):
        exclusive = max(exclusive, items[k])
        items[k] = exclusive
    syncthreads()
    for k in unroll(range(ITEMS)):
        exchange[own + lane * ITEMS + k] = items[k]
    syncwarp()
    for k in unroll(range(ITEMS)):
        at = own + k * 32 + lane
        if base + at < count:
            maxima[base + at] = exchange[at]


@kernel
def compute_visibilities(angles: const_ptr[f32], maxima: const_ptr[f32], count: i32, visible: ptr[u8]) -> None:
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    if i < count:
        visible[i] = u8(maxima[i] <= angles[i])


@program
def line_of_sight(ray: host[Ray], heights: host[f32], visible: host[u8], width: i32, length: i32, rounds: i32) -> None:
    gpu_heights = allocate(f32, width * (-(-len(heights) // width)))
    copy(gpu_heights, heights)
    angles = allocate(f32, length)
    maxima = allocate(f32, length)
    gpu_visible = allocate(u8, length)
    tiles = allocate(u64, 32 + -(-length // TILE))
    for _ in range(rounds):
        compute_angles[-(-length // BLOCK), BLOCK](ray[0], angles, gpu_heights, width)
        scan_init[-(-length // TILE // INIT_BLOCK), INIT_BLOCK](tiles, -(-length // TILE))
        scan[-(-length // TILE), BLOCK](angles, maxima, tiles, length)
        compute_visibilities[-(-length // BLOCK), BLOCK](angles, maxima, length, gpu_visible)
    copy(visible, gpu_visible)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """A surface of sines with noise. Its waves become higher and longer with the distance."""
    import numpy as np

    from ...dsl import dtype_of

    width, depth, rounds = SHAPES[size]
    y, x = np.mgrid[:depth, :width]
    amplitude = 0.1 * (x + y)
    waves = np.sin(np.sqrt(x * x + y * y) * 2 * np.pi / (2 + amplitude)) + 1
    noise = np.random.default_rng(seed).normal(1, 0.05, (depth, width))
    length = max(width, depth) - 1
    ray = np.array([(0.5, 0.5, 2.0, width - 1, depth - 1, length, 1 / length)], dtype_of(Ray))
    return {
        "ray": ray,
        "heights": (amplitude * waves * noise).astype(np.float32).ravel(),
        "visible": np.zeros(length, np.uint8),
        "width": width,
        "length": length,
        "rounds": rounds,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    ray = data["ray"][0]
    part = cast("Any", np.arange(1, data["length"] + 1)) / data["length"]
    dx, dy = float(ray["dx"]) * part, float(ray["dy"]) * part
    heights = data["heights"].reshape(-1, data["width"])
    height = heights[(float(ray["y"]) + dy).astype(int), (float(ray["x"]) + dx).astype(int)].astype(np.float64)
    slope = (height - float(ray["z"])) / np.hypot(dx, dy)
    return {"visible": (slope >= np.maximum.accumulate(slope)).astype(np.uint8)}


benchmark = Benchmark(
    suite="cuda_samples",
    name="lineOfSight",
    program=line_of_sight,
    make_data=make_data,
    reference=reference,
    stresses=("launches in a loop", "waiting for other blocks", "warp primitives", "shared memory"),
    description="which points of a height field along a ray can be seen from its origin",
    # For two points that are seen at almost the same angle.
    tolerance=Tolerance(mismatches=0.001),
    sizes={size: f"{x} x {y} heights, {rounds} rounds" for size, (x, y, rounds) in SHAPES.items()},
)
