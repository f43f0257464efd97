"""Potential and force between particles in a cube of boxes: each box with itself and the boxes around it.

A block handles a box, a thread a particle of it. The home box is in shared memory. The block then loads one
neighbouring box after the other into shared memory and adds each of its particles' contributions in the innermost loop,
directly to the result in global memory. Threads without a particle only take part in the barriers.

Reference: Szafaryn, Gamblin, de Supinski and Skadron, *Experiences with Achieving Portability across Heterogeneous
Architectures*, WOLFHPC 2011; in Rodinia (Che et al., IISWC 2009) as lavaMD with 10 x 10 x 10 boxes of 100 particles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    Array,
    allocate,
    array,
    blockIdx,
    const_ptr,
    copy,
    dtype_of,
    exp,
    f64,
    host,
    i32,
    i64,
    kernel,
    program,
    ptr,
    shared,
    struct,
    syncthreads,
    threadIdx,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 128
PARTICLES = 100
AROUND = 26

#: boxes along each axis
SHAPES = {"tiny": (3, 1, 1), "small": (5, 5, 5), "full": (10, 10, 10)}


@struct
class Particle:
    """A position with its squared distance from the origin, or a force with a potential."""

    v: f64
    x: f64
    y: f64
    z: f64


@struct
class Neighbour:
    """A neighbouring box."""

    x: i32
    y: i32
    z: i32
    number: i32
    offset: i64


@struct
class Box:
    """A box, its first particle, and the boxes around it."""

    x: i32
    y: i32
    z: i32
    number: i32
    offset: i64
    nn: i32
    nei: Array[Neighbour] = array(Neighbour, AROUND)


@kernel
def kernel_gpu_cuda(
    alpha: f64, boxes: i32, box: const_ptr[Box], rv: const_ptr[Particle], qv: const_ptr[f64], fv: ptr[Particle]
) -> None:
    """Add to ``fv`` the effect of each particle's neighbours, with charges ``qv`` at positions ``rv``."""
    bx: i32 = blockIdx.x
    tx: i32 = threadIdx.x
    wtx = tx
    if bx < boxes:
        a2 = 2.0 * alpha * alpha
        home_places = shared(Particle, PARTICLES)
        places = shared(Particle, PARTICLES)
        charges = shared(f64, PARTICLES)
        first_i = box[bx].offset
        home = rv + first_i
        force = fv + first_i
        while wtx < PARTICLES:
            home_places[wtx] = home[wtx]
            wtx = wtx + BLOCK
        wtx = tx
        syncthreads()
        k: i32 = 0
        while k < 1 + box[bx].nn:
            number = bx
            if k != 0:
                number = box[bx].nei[k - 1].number
            first_j = box[number].offset
            other = rv + first_j
            charge = qv + first_j
            while wtx < PARTICLES:
                places[wtx] = other[wtx]
                charges[wtx] = charge[wtx]
                wtx = wtx + BLOCK
            wtx = tx
            syncthreads()
            while wtx < PARTICLES:
                for j in range(PARTICLES):
                    r2 = (
                        home_places[wtx].v
                        + places[j].v
                        - (
                            home_places[wtx].x * places[j].x
                            + home_places[wtx].y * places[j].y
                            + home_places[wtx].z * places[j].z
                        )
                    )
                    u2 = a2 * r2
                    vij = exp(-u2)
                    fs = 2.0 * vij
                    fx = fs * (home_places[wtx].x - places[j].x)
                    fy = fs * (home_places[wtx].y - places[j].y)
                    fz = fs * (home_places[wtx].z - places[j].z)
                    force[wtx].v += charges[j] * vij
                    force[wtx].x += charges[j] * fx
                    force[wtx].y += charges[j] * fy
                    force[wtx].z += charges[j] * fz
                wtx = wtx + BLOCK
            wtx = tx
            syncthreads()
            k += 1


@program
def lavamd(
    alpha: f64, boxes: i32, box: host[Box], rv: host[Particle], qv: host[f64], fv: host[Particle], forces: host[f64]
) -> None:
    gpu_box = allocate(Box, boxes)
    gpu_rv, gpu_fv = allocate(Particle, boxes * PARTICLES), allocate(Particle, boxes * PARTICLES)
    gpu_qv = allocate(f64, boxes * PARTICLES)
    copy(gpu_box, box)
    copy(gpu_rv, rv)
    copy(gpu_qv, qv)
    copy(gpu_fv, fv)
    kernel_gpu_cuda[boxes, BLOCK](alpha, boxes, gpu_box, gpu_rv, gpu_qv, gpu_fv)
    copy(fv, gpu_fv)
    as_numbers(fv, forces)


def as_numbers(particles: Any, numbers: Any) -> None:
    """Particles as rows of v, x, y, z."""
    numbers.reshape(-1, 4)[:] = particles.view("f8").reshape(-1, 4)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    sides = SHAPES[size]
    count = math.prod(sides)
    numbers = np.random.default_rng(seed)
    box = np.zeros(count, dtype_of(Box))
    for number in range(count):
        rest, x = divmod(number, sides[0])
        z, y = divmod(rest, sides[1])
        neighbours = 0
        for dz, dy, dx in np.ndindex(3, 3, 3):
            at = (x + dx - 1, y + dy - 1, z + dz - 1)
            if (dx, dy, dz) != (1, 1, 1) and all(0 <= i < side for i, side in zip(at, sides, strict=True)):
                other = (at[2] * sides[1] + at[1]) * sides[0] + at[0]
                box[number]["nei"][neighbours] = (*at, other, other * PARTICLES)
                neighbours += 1
        box["x"][number], box["y"][number], box["z"][number] = x, y, z
        box["number"][number], box["offset"][number], box["nn"][number] = number, number * PARTICLES, neighbours
    rv = np.zeros(count * PARTICLES, dtype_of(Particle))
    for axis in "vxyz":
        rv[axis] = numbers.integers(1, 11, rv.size) / 10
    return {
        "alpha": 0.5,
        "boxes": count,
        "box": box,
        "rv": rv,
        "qv": numbers.integers(1, 11, rv.size) / 10,
        "fv": np.zeros(rv.size, rv.dtype),
        "forces": np.zeros(4 * rv.size),
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Iterates over offsets in the cube instead of lists of neighbours."""
    import numpy as np

    sides = [int(data["box"][axis].max()) + 1 for axis in "zyx"]
    grid = (*sides, PARTICLES)
    v, x, y, z = (data["rv"][axis].reshape(grid) for axis in "vxyz")
    places, charges = np.stack([x, y, z], axis=-1), data["qv"].reshape(grid)
    forces = np.zeros((*grid, 4))
    for at in np.ndindex(*sides):
        around = tuple(slice(max(i - 1, 0), i + 2) for i in at)
        other, weight, square = places[around].reshape(-1, 3), charges[around].ravel(), v[around].ravel()
        near = np.exp(-2 * data["alpha"] ** 2 * (v[at][:, None] + square - places[at] @ other.T)) * weight
        forces[at][:, 0] = near.sum(axis=1)
        forces[at][:, 1:] = 2 * (places[at] * near.sum(axis=1)[:, None] - near @ other)
    return {"forces": forces.ravel()}


benchmark = Benchmark(
    suite="rodinia",
    name="lavaMD",
    program=lavamd,
    make_data=make_data,
    reference=reference,
    stresses=("double precision", "shared memory", "barriers in a loop", "global sums in the innermost loop"),
    description="forces between particles in neighbouring boxes",
    tolerance=Tolerance(relative=1e-9, absolute=1e-9),
    sizes={size: f"{s[0]} x {s[1]} x {s[2]} boxes of {PARTICLES} particles" for size, s in SHAPES.items()},
)
