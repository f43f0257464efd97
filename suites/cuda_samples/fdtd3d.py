"""Finite differences in the time domain on a volume: a star-shaped stencil of radius 4 in three dimensions.

``out[z, y, x] = c[0] in[z, y, x] + Σ_i c[i] (in[z ± i, y, x] + in[z, y ± i, x] + in[z, y, x ± i])``, for i of 1 to 4,
on the inner volume. A halo of 4 cells on each side is read and never written. A thread computes a column along z. It
moves through the planes with a queue of registers: four cells behind, the current one, four in front. The current plane
is in shared memory with its halo, between two barriers. Threads outside the volume take part because they load parts of
the halo; they store nothing. The two volumes are swapped between launches.

The original copies the coefficients into constant memory before the launch. Here they are a table in constant memory.

Reference: NVIDIA CUDA samples, FDTD3d; Micikevicius, *3D finite difference computation on GPUs using CUDA*, GPGPU-2,
2009. The defaults are 376 cells in each dimension and 5 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl import (
    allocate,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    f32,
    host,
    i32,
    kernel,
    local,
    program,
    ptr,
    shared,
    syncthreads,
    threadIdx,
    unroll,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

RADIUS = 4
BLOCK_X, BLOCK_Y = 32, 16
STENCIL = np.full(RADIUS + 1, 0.1, np.float32)

#: cells in x, y and z without the halo, time steps
SHAPES = {"tiny": (40, 20, 10, 2), "small": (160, 160, 160, 5), "full": (376, 376, 376, 5)}


@kernel
def finite_differences(output: ptr[f32], source: const_ptr[f32], dimx: i32, dimy: i32, dimz: i32) -> None:
    """One time step."""
    tile = shared(f32, BLOCK_Y + 2 * RADIUS, BLOCK_X + 2 * RADIUS)
    infront = local(f32, RADIUS)
    behind = local(f32, RADIUS)
    gx: i32 = blockIdx.x * blockDim.x + threadIdx.x
    gy: i32 = blockIdx.y * blockDim.y + threadIdx.y
    lx: i32 = threadIdx.x
    ly: i32 = threadIdx.y
    width: i32 = blockDim.x
    height: i32 = blockDim.y
    tx = lx + RADIUS
    ty = ly + RADIUS
    row = dimx + 2 * RADIUS
    plane = row * (dimy + 2 * RADIUS)
    # Threads in the halo on the far sides read, too.
    reads = gx < dimx + RADIUS and gy < dimy + RADIUS
    writes = gx < dimx and gy < dimy

    ahead = (gy + RADIUS) * row + gx + RADIUS
    current: f32 = 0.0
    for i in range(RADIUS - 2, -1, -1):
        behind[i] = 0.0
        if reads:
            behind[i] = source[ahead]
        ahead += plane
    if reads:
        current = source[ahead]
    here = ahead
    ahead += plane
    for i in range(RADIUS):
        infront[i] = 0.0
        if reads:
            infront[i] = source[ahead]
        ahead += plane

    for _ in unroll(range(dimz), 9):
        for i in range(RADIUS - 1, 0, -1):
            behind[i] = behind[i - 1]
        behind[0] = current
        current = infront[0]
        for i in unroll(range(RADIUS - 1)):
            infront[i] = infront[i + 1]
        if reads:
            infront[RADIUS - 1] = source[ahead]
        ahead += plane
        here += plane
        syncthreads()

        # Outside the volume these indices are in the next row or plane, which is still inside the buffer.
        if ly < RADIUS:
            tile[ly, tx] = source[here - RADIUS * row]
            tile[ly + height + RADIUS, tx] = source[here + height * row]
        if lx < RADIUS:
            tile[ty, lx] = source[here - RADIUS]
            tile[ty, lx + width + RADIUS] = source[here + width]
        tile[ty, tx] = current
        syncthreads()

        value = STENCIL[0] * current
        for i in unroll(range(1, RADIUS + 1)):
            value += STENCIL[i] * (
                infront[i - 1]
                + behind[i - 1]
                + tile[ty - i, tx]
                + tile[ty + i, tx]
                + tile[ty, tx - i]
                + tile[ty, tx + i]
            )
        if writes:
            output[here] = value


@program
def fdtd3d(volume: host[f32], dimx: i32, dimy: i32, dimz: i32, steps: i32) -> None:
    cells = (dimx + 2 * RADIUS) * (dimy + 2 * RADIUS) * (dimz + 2 * RADIUS)
    source = allocate(f32, cells)
    target = allocate(f32, cells)
    copy(source, volume)
    copy(target, volume)
    columns = -(-dimx // BLOCK_X)
    rows = -(-dimy // BLOCK_Y)
    for _ in range(steps):
        finite_differences[(columns, rows), (BLOCK_X, BLOCK_Y)](target, source, dimx, dimy, dimz)
        source, target = target, source
    copy(volume, source)


def make_data(size: str, seed: int) -> dict[str, Any]:
    dimx, dimy, dimz, steps = SHAPES[size]
    cells = (dimx + 2 * RADIUS) * (dimy + 2 * RADIUS) * (dimz + 2 * RADIUS)
    volume = np.random.default_rng(seed).random(cells, np.float32)
    return {"volume": volume, "dimx": dimx, "dimy": dimy, "dimz": dimz, "steps": steps}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    shape = [data[dim] + 2 * RADIUS for dim in ("dimz", "dimy", "dimx")]
    now = data["volume"].reshape(shape).astype(np.float64)
    after = now.copy()
    term = np.empty((shape[1] - 2 * RADIUS, shape[2] - 2 * RADIUS))
    for _ in range(data["steps"]):
        # Plane by plane: all volumes of this size together do not fit into the caches of a processor.
        for z in range(RADIUS, shape[0] - RADIUS):
            inner = after[z, RADIUS:-RADIUS, RADIUS:-RADIUS]
            np.multiply(now[z, RADIUS:-RADIUS, RADIUS:-RADIUS], float(STENCIL[0]), out=inner)
            for distance in range(1, RADIUS + 1):
                first, *others = (_window(now, z, axis, way * distance) for axis in range(3) for way in (-1, 1))
                np.copyto(term, first)
                for each in others:
                    np.add(term, each, out=term)
                term *= float(STENCIL[distance])
                inner += term
        now, after = after, now
    return {"volume": now.astype(np.float32).ravel()}


def _window(volume: NDArray[Any], z: int, axis: int, distance: int) -> NDArray[Any]:
    """The inner cells of the plane ``z``, so many cells away along an axis."""
    begins = [z, RADIUS, RADIUS]
    begins[axis] += distance
    ends = [volume.shape[1] - 2 * RADIUS + begins[1], volume.shape[2] - 2 * RADIUS + begins[2]]
    return volume[begins[0], begins[1] : ends[0], begins[2] : ends[1]]


benchmark = Benchmark(
    suite="cuda_samples",
    name="FDTD3d",
    program=fdtd3d,
    make_data=make_data,
    reference=reference,
    stresses=(
        "shared memory",
        "barriers in a loop",
        "divergent branches in a loop",
        "register queue",
        "unrolled loops",
    ),
    description="finite differences in the time domain: a 3-D stencil of radius 4, plane by plane",
    tolerance=Tolerance(relative=1e-4),
    sizes={size: f"{x} x {y} x {z}, {steps} steps" for size, (x, y, z, steps) in SHAPES.items()},
)
