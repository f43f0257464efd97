"""Tracks a disk through a noisy video with a particle filter: four kernels for each frame.

``likelihood_kernel`` moves the particles by random numbers, computes for each how well the pixels of a disk around it
fit, and adds the weights in each block. ``sum_kernel`` uses a single thread to add these sums and to accumulate the
distribution. ``normalize_weights_kernel`` normalizes the weights to a sum of 1 and distributes the samples.
``find_index_kernel`` searches the particle of each sample from the start of the distribution.

Reference: Goodrum, Trotter, Aksel, Acton and Skadron, *Parallelization of Particle Filter Algorithms*, EAMA 2010; in
Rodinia (Che et al., IISWC 2009) as the version called float (which computes with doubles) with 10 frames of 128 x 128
pixels and 1000 particles. In the original the first thread of the third kernel accumulates the distribution and draws
the first sample while other blocks still divide weights or already read the sample. Here the second kernel does
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    cos,
    device,
    exp,
    f64,
    fabs,
    fill,
    host,
    i32,
    kernel,
    log,
    pow,
    program,
    ptr,
    shared,
    sqrt,
    syncthreads,
    threadIdx,
    u8,
    u32,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 128
PI = 3.14159265358979323846
MODULUS, FACTOR, INCREMENT = 2**31 - 1, 1103515245, 12345
BACKGROUND, FOREGROUND = 100, 228

#: pixels along each axis, frames, particles, the disk's radius
SHAPES = {"tiny": (48, 3, 150, 2), "small": (128, 10, 1000, 5), "full": (128, 10, 1000, 5)}


@device
def uniform(seed: ptr[i32], i: i32) -> f64:
    """The next number between 0 and 1 of a linear congruential generator, whose product overflows."""
    seed[i] = i32(u32(FACTOR) * u32(seed[i]) + u32(INCREMENT)) % MODULUS
    return fabs(f64(seed[i]) / f64(MODULUS))


@device
def normal(seed: ptr[i32], i: i32) -> f64:
    """A normally distributed number, by the method of Box and Muller."""
    u = uniform(seed, i)
    v = uniform(seed, i)
    cosine = cos(2.0 * PI * v)
    root = -2.0 * log(u)
    return sqrt(root) * cosine


@device
def likelihood_sum(video: const_ptr[u8], ind: const_ptr[i32], ones: i32, i: i32) -> f64:
    total: f64 = 0.0
    for x in range(ones):
        total += (
            pow(f64(i32(video[ind[i * ones + x]]) - BACKGROUND), 2.0)
            - pow(f64(i32(video[ind[i * ones + x]]) - FOREGROUND), 2.0)
        ) / 50.0
    return total


@kernel
def likelihood_kernel(
    array_x: ptr[f64],
    array_y: ptr[f64],
    xj: const_ptr[f64],
    yj: const_ptr[f64],
    ind: ptr[i32],
    objxy: const_ptr[i32],
    likelihood: ptr[f64],
    video: const_ptr[u8],
    weights: ptr[f64],
    particles: i32,
    ones: i32,
    max_size: i32,
    k: i32,
    size_y: i32,
    frames: i32,
    seed: ptr[i32],
    partial_sums: ptr[f64],
) -> None:
    """Move the particles, weight them by frame ``k``, and add the weights of each block."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    buffer = shared(f64, 512)
    if i < particles:
        array_x[i] = xj[i]
        array_y[i] = yj[i]
        weights[i] = 1.0 / f64(particles)
        array_x[i] = array_x[i] + 1.0 + 5.0 * normal(seed, i)
        array_y[i] = array_y[i] - 2.0 + 2.0 * normal(seed, i)
    syncthreads()
    if i < particles:
        for y in range(ones):
            ind_x = i32(array_x[i]) + objxy[y * 2 + 1]
            ind_y = i32(array_y[i]) + objxy[y * 2]
            ind[i * ones + y] = abs(ind_x * size_y * frames + ind_y * frames + k)
            if ind[i * ones + y] >= max_size:
                ind[i * ones + y] = 0
        likelihood[i] = likelihood_sum(video, ind, ones, i)
        likelihood[i] = likelihood[i] / f64(ones)
        weights[i] = weights[i] * exp(likelihood[i])
    buffer[threadIdx.x] = 0.0
    syncthreads()
    if i < particles:
        buffer[threadIdx.x] = weights[i]
    syncthreads()
    s: u32 = blockDim.x // 2
    while s > 0:
        if threadIdx.x < s:
            buffer[threadIdx.x] += buffer[threadIdx.x + s]
        syncthreads()
        s >>= 1
    if threadIdx.x == 0:
        partial_sums[blockIdx.x] = buffer[0]
    syncthreads()


@kernel
def sum_kernel(
    partial_sums: ptr[f64], particles: i32, weights: const_ptr[f64], cdf: ptr[f64], first: ptr[f64], seed: ptr[i32]
) -> None:
    """The sum of all weights in ``partial_sums[0]``, their distribution, and the first sample."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    if i == 0:
        total: f64 = 0.0
        blocks = (particles + BLOCK - 1) // BLOCK
        for x in range(blocks):
            total += partial_sums[x]
        partial_sums[0] = total
        cdf[0] = weights[0] / total
        for x in range(1, particles):
            cdf[x] = weights[x] / total + cdf[x - 1]
        first[0] = 1.0 / f64(particles) * uniform(seed, i)


@kernel
def normalize_weights_kernel(
    weights: ptr[f64], particles: i32, partial_sums: const_ptr[f64], first: const_ptr[f64], u: ptr[f64]
) -> None:
    """Weights with a sum of 1, and equidistant samples beginning at the first one."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    u1 = shared(f64, 1)
    total = shared(f64, 1)
    if threadIdx.x == 0:
        total[0] = partial_sums[0]
    syncthreads()
    if i < particles:
        weights[i] = weights[i] / total[0]
    syncthreads()
    if threadIdx.x == 0:
        u1[0] = first[0]
    syncthreads()
    if i < particles:
        u[i] = u1[0] + f64(i) / f64(particles)


@kernel
def find_index_kernel(
    array_x: const_ptr[f64],
    array_y: const_ptr[f64],
    cdf: const_ptr[f64],
    u: const_ptr[f64],
    xj: ptr[f64],
    yj: ptr[f64],
    particles: i32,
) -> None:
    """The particle of each sample: the first one at which the distribution reaches the sample."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    if i < particles:
        index: i32 = -1
        for x in range(particles):
            if cdf[x] >= u[i]:
                index = x
                break
        if index == -1:
            index = particles - 1
        xj[i] = array_x[index]
        yj[i] = array_y[index]
    syncthreads()


@program
def particlefilter(
    video: host[u8],
    objxy: host[i32],
    seed: host[i32],
    start: host[f64],
    x: host[f64],
    y: host[f64],
    weight: host[f64],
    size: i32,
    frames: i32,
    particles: i32,
    ones: i32,
) -> None:
    array_x, array_y = allocate(f64, particles), allocate(f64, particles)
    xj, yj = allocate(f64, particles), allocate(f64, particles)
    cdf, u = allocate(f64, particles), allocate(f64, particles)
    likelihood, weights = allocate(f64, particles), allocate(f64, particles)
    gpu_video = allocate(u8, size * size * frames)
    gpu_objxy, gpu_seed = allocate(i32, 2 * ones), allocate(i32, particles)
    ind = allocate(i32, ones * particles)
    partial_sums, first = allocate(f64, particles), allocate(f64, 1)
    fill(likelihood, 0)
    copy(gpu_video, video)
    copy(gpu_objxy, objxy)
    copy(gpu_seed, seed)
    copy(xj, start)
    copy(yj, start)
    blocks = (particles + BLOCK - 1) // BLOCK
    for k in range(1, frames):
        likelihood_kernel[blocks, BLOCK](
            array_x,
            array_y,
            xj,
            yj,
            ind,
            gpu_objxy,
            likelihood,
            gpu_video,
            weights,
            particles,
            ones,
            size * size * frames,
            k,
            size,
            frames,
            gpu_seed,
            partial_sums,
        )
        sum_kernel[blocks, BLOCK](partial_sums, particles, weights, cdf, first, gpu_seed)
        normalize_weights_kernel[blocks, BLOCK](weights, particles, partial_sums, first, u)
        find_index_kernel[blocks, BLOCK](array_x, array_y, cdf, u, xj, yj, particles)
    copy(x, array_x)
    copy(y, array_y)
    copy(weight, weights)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """A bright disk that moves from the middle over a dark, noisy background."""
    import numpy as np

    side, frames, particles, radius = SHAPES[size]
    numbers = np.random.default_rng(seed)
    frame = np.arange(frames)
    # As in the original, the first index of a pixel is its x for the filter.
    moved = np.maximum(frame - 1, 0)
    at_x, at_y = side // 2 + moved, side // 2 - 2 * moved
    xs, ys = np.arange(side)[:, None, None], np.arange(side)[None, :, None]
    is_disk = (xs - at_x) ** 2 + (ys - at_y) ** 2 < radius**2
    noise = np.trunc(5 * numbers.normal(size=(side, side, frames)))
    video = np.clip(np.where(is_disk, FOREGROUND, BACKGROUND) + noise, 0, 255)
    offsets = np.argwhere(np.hypot(*np.mgrid[1 - radius : radius, 1 - radius : radius]) < radius) + 1 - radius
    return {
        "video": video.astype(np.uint8).ravel(),
        "objxy": offsets[:, ::-1].astype(np.int32).ravel(),
        "seed": numbers.integers(1, MODULUS, particles, dtype=np.int32),
        "start": np.full(particles, side / 2),
        "x": np.zeros(particles),
        "y": np.zeros(particles),
        "weight": np.zeros(particles),
        "size": side,
        "frames": frames,
        "particles": particles,
        "ones": len(offsets),
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    side, frames, count = data["size"], data["frames"], data["particles"]
    video = data["video"].astype(np.float64)
    state = data["seed"].astype(np.int64)
    offsets = data["objxy"].reshape(-1, 2).astype(np.int64)

    def draw(which: slice) -> NDArray[Any]:
        wrapped = (FACTOR * state[which] + INCREMENT + 2**31) % 2**32 - 2**31
        state[which] = np.fmod(wrapped, MODULUS)
        return abs(state[which] / MODULUS)

    def gauss() -> NDArray[Any]:
        u, v = draw(slice(None)), draw(slice(None))
        return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)

    x: NDArray[Any] = data["start"]
    y, weight = x, np.zeros(count)
    ranks: NDArray[Any] = np.arange(int(count))
    chosen = ranks
    for k in range(1, frames):
        x = x[chosen] + 1 + 5 * gauss()
        y = y[chosen] - 2 + 2 * gauss()
        pixel_x = np.trunc(x).astype(np.int64)[:, None] + offsets[:, 1]
        pixel_y = np.trunc(y).astype(np.int64)[:, None] + offsets[:, 0]
        place = abs((pixel_x * side + pixel_y) * frames + k)
        pixels = video[np.where(place < video.size, place, 0)]
        weight = np.exp(((pixels - BACKGROUND) ** 2 - (pixels - FOREGROUND) ** 2).mean(axis=1) / 50) / count
        weight /= weight.sum()
        samples = draw(slice(0, 1)) / count + ranks / count
        chosen = np.minimum(np.searchsorted(np.cumsum(weight), samples, side="left"), count - 1)
    return {"x": x, "y": y, "weight": weight}


benchmark = Benchmark(
    suite="rodinia",
    name="particlefilter",
    program=particlefilter,
    make_data=make_data,
    reference=reference,
    stresses=("double precision", "divergent loop exits", "kernels in a loop that could be fused", "serial sums"),
    description="particle filter that tracks a disk in a video",
    tolerance=Tolerance(relative=1e-6, absolute=1e-12, mismatches=0.02),
    sizes={size: f"{s[0]} x {s[0]} pixels, {s[1]} frames, {s[2]} particles" for size, s in SHAPES.items()},
)
