"""The Sobel filter: edges of an image of bytes, in two access patterns.

Each pixel becomes ``min(scale (|∂x| + |∂y|), 255)``, computed from the eight pixels around it. A block computes a row.
A thread computes several pixels of it in a loop, each with nine loads. In `SobelFilter`, as in the original, the pixels
of a thread are a block's width apart: accesses are coalesced, and the loads of neighbouring threads overlap. In
`SobelFilter-consecutive` a thread computes consecutive pixels: six of its nine loads repeat loads of the previous
iteration. An optimizer can remove them (figure 4.18 of the thesis).

The original loads through a texture, which repeats the border pixels outside of the image. Here the host adds them to
the image, and the kernels declare that no thread writes it.

Reference: NVIDIA CUDA samples, SobelFilter (kernel SobelTex; 512 x 512 pixels, blocks of 384 threads).
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
    device,
    f32,
    host,
    i16,
    i32,
    kernel,
    program,
    ptr,
    restrict,
    threadIdx,
    u8,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 384

#: columns, rows
SHAPES = {"tiny": (1200, 6), "small": (512, 128), "full": (512, 512)}


@device
def edge(ul: u8, um: u8, ur: u8, ml: u8, mr: u8, ll: u8, lm: u8, lr: u8, scale: f32) -> u8:
    """The strength of the edge, from the upper, middle and lower pixels on the left, in the middle and on the right."""
    across = i16(ur + 2 * mr + lr - ul - 2 * ml - ll)
    down = i16(ul + 2 * um + ur - ll - 2 * lm - lr)
    total = i16(scale * (abs(i32(across)) + abs(i32(down))))
    if total < 0:
        return u8(0)
    if total > 0xFF:
        return u8(0xFF)
    return u8(total)


@kernel
def sobel_strided(edges: restrict[ptr[u8]], image: restrict[const_ptr[u8]], width: i32, scale: f32) -> None:
    """A row of edges. ``image`` has a border of one pixel."""
    pitch = width + 2
    out = edges + i32(blockIdx.x) * width
    upper = image + i32(blockIdx.x) * pitch
    middle = upper + pitch
    lower = middle + pitch
    i: i32 = threadIdx.x
    while i < width:
        ul = upper[i]
        um = upper[i + 1]
        ur = upper[i + 2]
        ml = middle[i]
        mr = middle[i + 2]
        ll = lower[i]
        lm = lower[i + 1]
        lr = lower[i + 2]
        out[i] = edge(ul, um, ur, ml, mr, ll, lm, lr, scale)
        i += blockDim.x


@kernel
def sobel_consecutive(edges: restrict[ptr[u8]], image: restrict[const_ptr[u8]], width: i32, scale: f32) -> None:
    """The same, with consecutive pixels in each thread."""
    pitch = width + 2
    out = edges + i32(blockIdx.x) * width
    upper = image + i32(blockIdx.x) * pitch
    middle = upper + pitch
    lower = middle + pitch
    each: i32 = (width + i32(blockDim.x) - 1) // i32(blockDim.x)
    i: i32 = i32(threadIdx.x) * each
    end = min(i + each, width)
    while i < end:
        ul = upper[i]
        um = upper[i + 1]
        ur = upper[i + 2]
        ml = middle[i]
        mr = middle[i + 2]
        ll = lower[i]
        lm = lower[i + 1]
        lr = lower[i + 2]
        out[i] = edge(ul, um, ur, ml, mr, ll, lm, lr, scale)
        i += 1


@program
def strided(image: host[u8], edges: host[u8], width: i32, height: i32, scale: f32) -> None:
    gpu_image = allocate(u8, (width + 2) * (height + 2))
    gpu_edges = allocate(u8, width * height)
    copy(gpu_image, image)
    sobel_strided[height, BLOCK](gpu_edges, gpu_image, width, scale)
    copy(edges, gpu_edges)


@program
def consecutive(image: host[u8], edges: host[u8], width: i32, height: i32, scale: f32) -> None:
    gpu_image = allocate(u8, (width + 2) * (height + 2))
    gpu_edges = allocate(u8, width * height)
    copy(gpu_image, image)
    sobel_consecutive[height, BLOCK](gpu_edges, gpu_image, width, scale)
    copy(edges, gpu_edges)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Smooth hills with noise."""
    import numpy as np

    width, height = SHAPES[size]
    numbers = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = np.sin(x / 17 + numbers.random()) * np.cos(y / 23 + numbers.random())
    hills = 96 + 64 * waves
    pixels = np.clip(hills + numbers.normal(0, 12, (height, width)), 0, 255).astype(np.uint8)
    image = np.pad(pixels, 1, mode="edge").ravel()
    edges = np.zeros(width * height, np.uint8)
    return {"image": image, "edges": edges, "width": width, "height": height, "scale": 1.0}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    image = data["image"].reshape(data["height"] + 2, data["width"] + 2).astype(np.int64)
    smooth_down = image[:-2] + 2 * image[1:-1] + image[2:]
    smooth_across = image[:, :-2] + 2 * image[:, 1:-1] + image[:, 2:]
    gradient = np.abs(smooth_down[:, 2:] - smooth_down[:, :-2]) + np.abs(smooth_across[2:] - smooth_across[:-2])
    return {"edges": np.minimum(gradient, 255).astype(np.uint8).ravel()}


SIZES = {size: f"{width} x {height} pixels" for size, (width, height) in SHAPES.items()}

coalesced = Benchmark(
    suite="cuda_samples",
    name="SobelFilter",
    program=strided,
    make_data=make_data,
    reference=reference,
    stresses=("bytes", "overlapping loads of neighbouring threads", "divergent branches in a loop"),
    description="edges of an image; a thread's pixels are a block's width apart",
    sizes=SIZES,
)

reusing = Benchmark(
    suite="cuda_samples",
    name="SobelFilter-consecutive",
    program=consecutive,
    make_data=make_data,
    reference=reference,
    stresses=("bytes", "loads repeated across iterations", "divergent branches in a loop"),
    description="edges of an image; a thread's pixels are neighbours",
    sizes=SIZES,
)
