"""The matrix Q of a scanner's configuration, for the reconstruction of magnetic resonance images from samples off a
grid.

``Q(x) = Σ_k |φ_k|² exp(2πi k·x)`` for every voxel x. One kernel computes the squared magnitudes of φ. The host stores
them beside the coordinates of their k. The other kernel adds the contributions of a tile of 1024 k to every voxel, two
k per iteration; it is launched once for each tile. A thread computes a voxel.

The original copies a tile into constant memory before the launch. Here the launch gets the position of its tile in the
buffer. As in the original, an odd number of samples is handled by a separate first step, which is correct only for one
tile; so larger numbers of samples are even.

Reference: Stone et al., *Accelerating advanced MRI reconstructions on GPUs*, JPDC 68(10), 2008; Stratton et al.,
*Parboil*, IMPACT-12-01, whose large data set has 2048 samples and 64³ voxels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
    cos,
    f32,
    fill,
    host,
    i32,
    kernel,
    program,
    ptr,
    restrict,
    sin,
    struct,
    threadIdx,
    zeros,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

PHI_BLOCK = 512
Q_BLOCK = 256
TILE = 1024
TWO_PI = 6.2831853071795864769

#: samples in k-space, voxels
SHAPES = {"tiny": (33, 512), "small": (2048, 32 * 32 * 32), "full": (2048, 64 * 64 * 64)}


@struct
class Sample:
    """A sample in k-space with the squared magnitude of φ there."""

    kx: f32
    ky: f32
    kz: f32
    magnitude: f32


@kernel
def compute_phi_mag(real: const_ptr[f32], imaginary: const_ptr[f32], magnitude: ptr[f32], count: i32) -> None:
    k: i32 = blockIdx.x * PHI_BLOCK + threadIdx.x
    if k < count:
        re = real[k]
        im = imaginary[k]
        magnitude[k] = re * re + im * im


@kernel
def compute_q(
    count: i32,
    first: i32,
    samples: restrict[const_ptr[Sample]],
    x: const_ptr[f32],
    y: const_ptr[f32],
    z: const_ptr[f32],
    q_real: ptr[f32],
    q_imaginary: ptr[f32],
) -> None:
    """Add the tile of samples that begins at ``first``. There are ``count`` samples in all."""
    voxel: i32 = blockIdx.x * Q_BLOCK + threadIdx.x
    vx = x[voxel]
    vy = y[voxel]
    vz = z[voxel]
    re = q_real[voxel]
    im = q_imaginary[voxel]
    tile = samples + first

    k = 0
    at = first
    if count % 2 != 0:
        phase = TWO_PI * (tile[0].kx * vx + tile[0].ky * vy + tile[0].kz * vz)
        re += tile[0].magnitude * cos(phase)
        im += tile[0].magnitude * sin(phase)
        k += 1
        at += 1
    while k < TILE and at < count:
        phase = TWO_PI * (tile[k].kx * vx + tile[k].ky * vy + tile[k].kz * vz)
        re += tile[k].magnitude * cos(phase)
        im += tile[k].magnitude * sin(phase)
        following = k + 1
        phase = TWO_PI * (tile[following].kx * vx + tile[following].ky * vy + tile[following].kz * vz)
        re += tile[following].magnitude * cos(phase)
        im += tile[following].magnitude * sin(phase)
        k += 2
        at += 2
    q_real[voxel] = re
    q_imaginary[voxel] = im


def interleave(samples: Any, kx: Any, ky: Any, kz: Any, magnitude: Any) -> None:
    """Store coordinates and magnitude of each sample beside each other."""
    samples["kx"], samples["ky"], samples["kz"], samples["magnitude"] = kx, ky, kz, magnitude


@program
def mri_q(
    kx: host[f32],
    ky: host[f32],
    kz: host[f32],
    phi_real: host[f32],
    phi_imaginary: host[f32],
    x: host[f32],
    y: host[f32],
    z: host[f32],
    q_real: host[f32],
    q_imaginary: host[f32],
    count: i32,
    voxels: i32,
) -> None:
    gpu_real = allocate(f32, count)
    gpu_imaginary = allocate(f32, count)
    gpu_magnitude = allocate(f32, count)
    copy(gpu_real, phi_real)
    copy(gpu_imaginary, phi_imaginary)
    compute_phi_mag[-(-count // PHI_BLOCK), PHI_BLOCK](gpu_real, gpu_imaginary, gpu_magnitude, count)
    magnitude = zeros(f32, count)
    copy(magnitude, gpu_magnitude)

    samples = zeros(Sample, count)
    interleave(samples, kx, ky, kz, magnitude)
    gpu_samples = allocate(Sample, count)
    copy(gpu_samples, samples)
    gpu_x = allocate(f32, voxels)
    gpu_y = allocate(f32, voxels)
    gpu_z = allocate(f32, voxels)
    gpu_q_real = allocate(f32, voxels)
    gpu_q_imaginary = allocate(f32, voxels)
    copy(gpu_x, x)
    copy(gpu_y, y)
    copy(gpu_z, z)
    fill(gpu_q_real, 0)
    fill(gpu_q_imaginary, 0)
    for first in range(0, count, TILE):
        compute_q[-(-voxels // Q_BLOCK), Q_BLOCK](
            count, first, gpu_samples, gpu_x, gpu_y, gpu_z, gpu_q_real, gpu_q_imaginary
        )
    copy(q_real, gpu_q_real)
    copy(q_imaginary, gpu_q_imaginary)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    count, voxels = SHAPES[size]
    numbers = np.random.default_rng(seed)
    data: dict[str, Any] = {name: numbers.uniform(-0.5, 0.5, count).astype(np.float32) for name in ("kx", "ky", "kz")}
    data |= {name: numbers.normal(size=count).astype(np.float32) for name in ("phi_real", "phi_imaginary")}
    data |= {name: numbers.uniform(-8, 8, voxels).astype(np.float32) for name in ("x", "y", "z")}
    data |= {name: np.zeros(voxels, np.float32) for name in ("q_real", "q_imaginary")}
    return data | {"count": count, "voxels": voxels}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    k = np.stack([data["kx"], data["ky"], data["kz"]], axis=1).astype(np.float64)
    places = np.stack([data["x"], data["y"], data["z"]], axis=0).astype(np.float64)
    weights = np.abs(data["phi_real"].astype(np.float64) + 1j * data["phi_imaginary"]) ** 2
    q = np.empty(data["voxels"], np.complex128)
    for begin in range(0, data["voxels"], 4096):
        part = slice(begin, begin + 4096)
        q[part] = weights @ np.exp(2j * np.pi * (k @ places[:, part]))
    return {"q_real": q.real.astype(np.float32), "q_imaginary": q.imag.astype(np.float32)}


benchmark = Benchmark(
    suite="parboil",
    name="mri-q",
    program=mri_q,
    make_data=make_data,
    reference=reference,
    stresses=("sine and cosine", "arithmetic", "loads that are the same for all threads", "launches in a loop"),
    description="the matrix Q for the reconstruction of magnetic resonance images from samples off a grid",
    # Phases of up to 75 have rounding errors of 4e-6, which add up over the samples.
    tolerance=Tolerance(relative=1e-4, absolute=2e-2),
    sizes={size: f"{count} samples, {voxels} voxels" for size, (count, voxels) in SHAPES.items()},
)
