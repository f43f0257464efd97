"""The bilateral filter of an image with four channels, in two access patterns.

Each pixel becomes the mean of the window around it, weighted by the distance in the image and by the distance of the
colours: ``exp(-(i² + j²) / 2δ²) exp(-|c - c'|² / 2ε²)``. In `bilateralFilter`, as in the original, a thread computes
one pixel: accesses are coalesced, and the windows of neighbouring threads overlap. In `bilateralFilter-consecutive` a
thread computes three neighbouring pixels. In each step along a row of its window it loads three pixels, two of which it
loaded in the step before. An optimizer can remove these loads (figure 4.18 of the thesis).

The original loads through a texture, which repeats the border pixels outside of the image and converts bytes to floats.
Here the host adds the border to the image, and the kernels convert bytes to floats and declare that no thread writes
the image.

Reference: NVIDIA CUDA samples, bilateralFilter (640 x 480 pixels, radius 5, δ = 4, ε = 0.1); Tomasi, Manduchi,
*Bilateral filtering for gray and color images*, ICCV 1998.
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
    device,
    f32,
    fabs,
    fast_exp,
    float4,
    host,
    i32,
    kernel,
    local,
    program,
    ptr,
    restrict,
    saturate,
    threadIdx,
    u32,
    unroll,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 16
PIXELS = 3  #: pixels per thread in the second pattern
RADIUS = 5
GAUSSIAN_DELTA = 4.0
EUCLIDEAN_DELTA = 0.1
GAUSSIAN = np.exp(-(np.arange(-RADIUS, RADIUS + 1) ** 2) / (2 * GAUSSIAN_DELTA**2)).astype(np.float32)

#: columns, rows, radius of the window (at most RADIUS)
SHAPES = {"tiny": (49, 20, 3), "small": (320, 240, 5), "full": (640, 480, 5)}


@device
def closeness(a: float4, b: float4, delta: f32) -> f32:
    """The similarity of two colours; it is 1 if they are equal. The fourth channel is ignored."""
    distance = (b.x - a.x) * (b.x - a.x) + (b.y - a.y) * (b.y - a.y) + (b.z - a.z) * (b.z - a.z)
    return fast_exp(-distance / (2.0 * delta * delta))


@device
def unpacked(c: u32) -> float4:
    scale: f32 = 0.003921568627
    return float4(
        f32(c & 0xFF) * scale,
        f32((c >> 8) & 0xFF) * scale,
        f32((c >> 16) & 0xFF) * scale,
        f32((c >> 24) & 0xFF) * scale,
    )


@device
def packed(x: f32, y: f32, z: f32, w: f32) -> u32:
    return (
        (u32(saturate(fabs(w)) * 255.0) << 24)
        | (u32(saturate(fabs(z)) * 255.0) << 16)
        | (u32(saturate(fabs(y)) * 255.0) << 8)
        | u32(saturate(fabs(x)) * 255.0)
    )


@kernel
def bilateral_strided(
    out: restrict[ptr[u32]],
    image: restrict[const_ptr[u32]],
    width: i32,
    height: i32,
    pitch: i32,
    delta: f32,
    radius: i32,
) -> None:
    """Computes a pixel. ``image`` has rows of ``pitch`` pixels, with borders as wide as the window's radius."""
    x: i32 = blockIdx.x * blockDim.x + threadIdx.x
    y: i32 = blockIdx.y * blockDim.y + threadIdx.y
    if x >= width or y >= height:
        return
    total: f32 = 0.0
    tx: f32 = 0.0
    ty: f32 = 0.0
    tz: f32 = 0.0
    tw: f32 = 0.0
    center = unpacked(image[(y + radius) * pitch + x + radius])
    for i in range(-radius, radius + 1):
        for j in range(-radius, radius + 1):
            color = unpacked(image[(y + radius + i) * pitch + x + radius + j])
            factor = GAUSSIAN[i + RADIUS] * GAUSSIAN[j + RADIUS] * closeness(color, center, delta)
            tx += factor * color.x
            ty += factor * color.y
            tz += factor * color.z
            tw += factor * color.w
            total += factor
    out[y * width + x] = packed(tx / total, ty / total, tz / total, tw / total)


@kernel
def bilateral_consecutive(
    out: restrict[ptr[u32]],
    image: restrict[const_ptr[u32]],
    width: i32,
    height: i32,
    pitch: i32,
    delta: f32,
    radius: i32,
) -> None:
    """Computes PIXELS neighbouring pixels. The right border is wider, for the last thread."""
    x: i32 = PIXELS * i32(blockIdx.x * blockDim.x + threadIdx.x)
    y: i32 = blockIdx.y * blockDim.y + threadIdx.y
    if x >= width or y >= height:
        return
    total = local(f32, PIXELS)
    tx = local(f32, PIXELS)
    ty = local(f32, PIXELS)
    tz = local(f32, PIXELS)
    tw = local(f32, PIXELS)
    center = local(float4, PIXELS)
    for p in unroll(range(PIXELS)):
        total[p] = 0.0
        tx[p] = 0.0
        ty[p] = 0.0
        tz[p] = 0.0
        tw[p] = 0.0
        center[p] = unpacked(image[(y + radius) * pitch + x + p + radius])
    for i in range(-radius, radius + 1):
        for j in range(-radius, radius + 1):
            for p in unroll(range(PIXELS)):
                color = unpacked(image[(y + radius + i) * pitch + x + p + radius + j])
                factor = GAUSSIAN[i + RADIUS] * GAUSSIAN[j + RADIUS] * closeness(color, center[p], delta)
                tx[p] += factor * color.x
                ty[p] += factor * color.y
                tz[p] += factor * color.z
                tw[p] += factor * color.w
                total[p] += factor
    for p in unroll(range(PIXELS)):
        if x + p < width:
            out[y * width + x + p] = packed(tx[p] / total[p], ty[p] / total[p], tz[p] / total[p], tw[p] / total[p])


@program
def strided(
    image: host[u32], filtered: host[u32], width: i32, height: i32, pitch: i32, delta: f32, radius: i32
) -> None:
    gpu_image = allocate(u32, pitch * (height + 2 * radius))
    out = allocate(u32, width * height)
    copy(gpu_image, image)
    bilateral_strided[(-(-width // BLOCK), -(-height // BLOCK)), (BLOCK, BLOCK)](
        out, gpu_image, width, height, pitch, delta, radius
    )
    copy(filtered, out)


@program
def consecutive(
    image: host[u32], filtered: host[u32], width: i32, height: i32, pitch: i32, delta: f32, radius: i32
) -> None:
    gpu_image = allocate(u32, pitch * (height + 2 * radius))
    out = allocate(u32, width * height)
    copy(gpu_image, image)
    bilateral_consecutive[(-(-width // (BLOCK * PIXELS)), -(-height // BLOCK)), (BLOCK, BLOCK)](
        out, gpu_image, width, height, pitch, delta, radius
    )
    copy(filtered, out)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Smooth colours with edges and noise."""
    width, height, radius = SHAPES[size]
    numbers = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    channels = np.empty((height, width, 4), np.uint8)
    for channel in range(4):
        waves = 40 * np.sin(x / 11 + channel + numbers.random())
        smooth = 128 + waves + 30 * ((x // 13 + y // 9) % 2)
        channels[..., channel] = np.clip(smooth + numbers.normal(0, 9, (height, width)), 0, 255)
    border = ((radius, radius), (radius, radius + PIXELS - 1), (0, 0))
    image = np.ascontiguousarray(np.pad(channels, border, mode="edge")).view("<u4").astype(np.uint32)
    return {
        "image": image.ravel(),
        "filtered": np.zeros(width * height, np.uint32),
        "width": width,
        "height": height,
        "pitch": image.shape[1],
        "delta": EUCLIDEAN_DELTA,
        "radius": radius,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    width, height, radius = data["width"], data["height"], data["radius"]
    packed = data["image"].reshape(height + 2 * radius, data["pitch"])
    colors = np.stack([(packed >> shift) & 0xFF for shift in (0, 8, 16, 24)], axis=-1) / 255.0
    center = colors[radius : radius + height, radius : radius + width]
    sums, weights = np.zeros_like(center), np.zeros((height, width))
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            window = colors[dy : dy + height, dx : dx + width]
            near = ((dy - radius) ** 2 + (dx - radius) ** 2) / (2 * GAUSSIAN_DELTA**2)
            alike = ((window - center)[..., :3] ** 2).sum(axis=-1) / (2 * data["delta"] ** 2)
            weight = np.exp(-near - alike)
            sums += weight[..., None] * window
            weights += weight
    channels = sums / weights[..., None] * 255
    return {"filtered": np.ascontiguousarray(channels.astype("u1")).view("<u4").astype(np.uint32).ravel()}


#: Means are truncated to bytes. If a mean is close to an integer, rounding decides.
TOLERANCE = Tolerance(mismatches=0.005)
SIZES = {size: f"{width} x {height} pixels, radius {radius}" for size, (width, height, radius) in SHAPES.items()}

coalesced = Benchmark(
    suite="cuda_samples",
    name="bilateralFilter",
    program=strided,
    make_data=make_data,
    reference=reference,
    stresses=("arithmetic in nested loops", "overlapping loads of neighbouring threads", "constant memory"),
    description="smooths an image and keeps its edges; a thread does one pixel",
    tolerance=TOLERANCE,
    sizes=SIZES,
)

reusing = Benchmark(
    suite="cuda_samples",
    name="bilateralFilter-consecutive",
    program=consecutive,
    make_data=make_data,
    reference=reference,
    stresses=("arithmetic in nested loops", "loads repeated across iterations", "constant memory", "registers"),
    description="smooths an image and keeps its edges; a thread does three neighbouring pixels",
    tolerance=TOLERANCE,
    sizes=SIZES,
)
