"""Speckle reducing anisotropic diffusion with tables of neighbours: six small kernels, with sums by repeated reduction.

The image is stored by columns. Its values 0..255 are converted to exponentials. In each iteration the pixels and their
squares are added: every launch of ``reduce`` leaves one sum per block at the position of the block's first element,
until a single block is left. The host reads the two sums and computes the speckle scale. Then one kernel computes
derivatives and diffusion coefficients, and another one updates the image. The rows and columns of neighbours come from
tables.

Reference: Yu and Acton, *Speckle Reducing Anisotropic Diffusion*, IEEE Transactions on Image Processing 11(11), 2002;
in Rodinia (Che et al., IISWC 2009) with 502 x 458 pixels, 100 iterations and a step of 0.5. Here the remainder in the
last block is read with the same stride as the rest. The original lacks this stride, so its sums differ from the second
launch on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
    exp,
    f32,
    f64,
    gridDim,
    host,
    i32,
    i64,
    kernel,
    log,
    program,
    ptr,
    read,
    shared,
    syncthreads,
    threadIdx,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 512

#: rows, columns, iterations
SHAPES = {"tiny": (43, 29, 2), "small": (502, 458, 10), "full": (502, 458, 100)}


@kernel
def extract(n: i64, image: ptr[f32]) -> None:
    i: i32 = blockIdx.x * BLOCK + threadIdx.x
    if i < n:
        image[i] = exp(image[i] / 255.0)


@kernel
def prepare(n: i64, image: const_ptr[f32], sums: ptr[f32], sums2: ptr[f32]) -> None:
    i: i32 = blockIdx.x * BLOCK + threadIdx.x
    if i < n:
        sums[i] = image[i]
        sums2[i] = image[i] * image[i]


@kernel
def reduce(count: i32, stride: i32, sums: ptr[f32], sums2: ptr[f32]) -> None:
    """Each block adds BLOCK of the ``count`` sums, which are ``stride`` apart, and stores the result at the position of
    the first."""
    bx: i32 = blockIdx.x
    tx: i32 = threadIdx.x
    i: i32 = bx * BLOCK + tx
    in_last: i32 = BLOCK - (i32(gridDim.x) * BLOCK - count)
    psum = shared(f32, BLOCK)
    psum2 = shared(f32, BLOCK)
    if i < count:
        psum[tx] = sums[i * stride]
        psum2[tx] = sums2[i * stride]
    syncthreads()

    width: i32 = 2
    if in_last == BLOCK:
        while width <= BLOCK:
            if (tx + 1) % width == 0:
                psum[tx] = psum[tx] + psum[tx - width // 2]
                psum2[tx] = psum2[tx] + psum2[tx - width // 2]
            syncthreads()
            width = 2 * width
        if tx == BLOCK - 1:
            sums[bx * stride * BLOCK] = psum[tx]
            sums2[bx * stride * BLOCK] = psum2[tx]
    else:
        if bx != i32(gridDim.x) - 1:
            while width <= BLOCK:
                if (tx + 1) % width == 0:
                    psum[tx] = psum[tx] + psum[tx - width // 2]
                    psum2[tx] = psum2[tx] + psum2[tx - width // 2]
                syncthreads()
                width = 2 * width
            if tx == BLOCK - 1:
                sums[bx * stride * BLOCK] = psum[tx]
                sums2[bx * stride * BLOCK] = psum2[tx]
        else:
            # All threads add the greatest power of two elements of the last block; one thread adds the rest.
            power: i32 = 1
            while width <= BLOCK:
                if in_last >= width:
                    power = width
                width = 2 * width
            width = 2
            while width <= power:
                if (tx + 1) % width == 0 and tx < power:
                    psum[tx] = psum[tx] + psum[tx - width // 2]
                    psum2[tx] = psum2[tx] + psum2[tx - width // 2]
                syncthreads()
                width = 2 * width
            if tx == power - 1:
                for j in range(bx * BLOCK + power, bx * BLOCK + in_last):
                    psum[tx] = psum[tx] + sums[j * stride]
                    psum2[tx] = psum2[tx] + sums2[j * stride]
                sums[bx * stride * BLOCK] = psum[tx]
                sums2[bx * stride * BLOCK] = psum2[tx]


@kernel
def srad(
    rows: i32,
    n: i64,
    north: const_ptr[i32],
    south: const_ptr[i32],
    east: const_ptr[i32],
    west: const_ptr[i32],
    to_north: ptr[f32],
    to_south: ptr[f32],
    to_east: ptr[f32],
    to_west: ptr[f32],
    q0sqr: f32,
    coefficients: ptr[f32],
    image: const_ptr[f32],
) -> None:
    """Derivatives towards the four neighbours, and the diffusion coefficient."""
    i: i32 = blockIdx.x * BLOCK + threadIdx.x
    row = (i + 1) % rows - 1
    col = (i + 1) // rows
    if (i + 1) % rows == 0:
        row = rows - 1
        col = col - 1
    if i < n:
        here = image[i]
        dn = image[north[row] + rows * col] - here
        ds = image[south[row] + rows * col] - here
        dw = image[row + rows * west[col]] - here
        de = image[row + rows * east[col]] - here
        # In the original, C's constants make these expressions double.
        gradient2 = (dn * dn + ds * ds + dw * dw + de * de) / (here * here)
        laplacian = (dn + ds + dw + de) / here
        num = f32(0.5 * f64(gradient2) - (1.0 / 16.0) * f64(laplacian * laplacian))
        den = f32(1.0 + 0.25 * f64(laplacian))
        qsqr = num / (den * den)
        den = (qsqr - q0sqr) / (q0sqr * (1.0 + q0sqr))
        c = f32(1.0 / (1.0 + f64(den)))
        if c < 0.0:
            c = 0.0
        elif c > 1.0:
            c = 1.0
        to_north[i] = dn
        to_south[i] = ds
        to_west[i] = dw
        to_east[i] = de
        coefficients[i] = c


@kernel
def srad2(
    step: f32,
    rows: i32,
    n: i64,
    south: const_ptr[i32],
    east: const_ptr[i32],
    to_north: const_ptr[f32],
    to_south: const_ptr[f32],
    to_east: const_ptr[f32],
    to_west: const_ptr[f32],
    coefficients: const_ptr[f32],
    image: ptr[f32],
) -> None:
    """Add the divergence to the image."""
    i: i32 = blockIdx.x * BLOCK + threadIdx.x
    row = (i + 1) % rows - 1
    col = (i + 1) // rows
    if (i + 1) % rows == 0:
        row = rows - 1
        col = col - 1
    if i < n:
        cn = coefficients[i]
        cs = coefficients[south[row] + rows * col]
        cw = coefficients[i]
        ce = coefficients[row + rows * east[col]]
        divergence = cn * to_north[i] + cs * to_south[i] + cw * to_west[i] + ce * to_east[i]
        image[i] = f32(f64(image[i]) + 0.25 * f64(step) * f64(divergence))


@kernel
def compress(n: i64, image: ptr[f32]) -> None:
    i: i32 = blockIdx.x * BLOCK + threadIdx.x
    if i < n:
        image[i] = log(image[i]) * 255.0


@program
def srad_v1(
    image: host[f32],
    north: host[i32],
    south: host[i32],
    east: host[i32],
    west: host[i32],
    rows: i32,
    cols: i32,
    iterations: i32,
    step: f32,
) -> None:
    n = rows * cols
    gpu_image = allocate(f32, n)
    gpu_north, gpu_south = allocate(i32, rows), allocate(i32, rows)
    gpu_east, gpu_west = allocate(i32, cols), allocate(i32, cols)
    sums, sums2 = allocate(f32, n), allocate(f32, n)
    to_north, to_south = allocate(f32, n), allocate(f32, n)
    to_east, to_west = allocate(f32, n), allocate(f32, n)
    coefficients = allocate(f32, n)
    copy(gpu_north, north)
    copy(gpu_south, south)
    copy(gpu_east, east)
    copy(gpu_west, west)
    copy(gpu_image, image)
    blocks = (n + BLOCK - 1) // BLOCK
    extract[blocks, BLOCK](n, gpu_image)
    for _ in range(iterations):
        prepare[blocks, BLOCK](n, gpu_image, sums, sums2)
        left = blocks
        count = n
        stride = 1
        while left != 0:
            reduce[left, BLOCK](count, stride, sums, sums2)
            count = left
            if left == 1:
                left = 0
            else:
                stride = stride * BLOCK
                left = (left + BLOCK - 1) // BLOCK
        total = read(sums, 0)
        total2 = read(sums2, 0)
        mean2 = (total / n) * (total / n)
        q0sqr = (total2 / n - mean2) / mean2
        srad[blocks, BLOCK](
            rows,
            n,
            gpu_north,
            gpu_south,
            gpu_east,
            gpu_west,
            to_north,
            to_south,
            to_east,
            to_west,
            q0sqr,
            coefficients,
            gpu_image,
        )
        srad2[blocks, BLOCK](
            step, rows, n, gpu_south, gpu_east, to_north, to_south, to_east, to_west, coefficients, gpu_image
        )
    compress[blocks, BLOCK](n, gpu_image)
    copy(image, gpu_image)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """A smooth image from 0 to 255 with speckle."""
    import numpy as np

    rows, cols, iterations = SHAPES[size]
    numbers = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 6, cols), np.linspace(0, 5, rows))
    speckle = numbers.normal(1, 0.2, (rows, cols))
    picture = np.clip(np.rint((128 + 80 * np.sin(x) * np.cos(y)) * speckle), 0, 255)
    row, col = np.arange(rows, dtype=np.int32), np.arange(cols, dtype=np.int32)
    return {
        "image": picture.T.ravel().astype(np.float32),
        "north": np.maximum(row - 1, 0),
        "south": np.minimum(row + 1, rows - 1),
        "east": np.minimum(col + 1, cols - 1),
        "west": np.maximum(col - 1, 0),
        "rows": rows,
        "cols": cols,
        "iterations": iterations,
        "step": 0.5,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    image: NDArray[Any] = np.exp(data["image"].reshape(data["cols"], data["rows"]).T.astype(np.float64) / 255)
    for _ in range(data["iterations"]):
        q0 = image.var() / image.mean() ** 2
        padded = np.pad(image, 1, mode="edge")
        towards = [padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
        north, south, west, east = (side - image for side in towards)
        gradient = (north**2 + south**2 + west**2 + east**2) / image**2
        laplacian = (north + south + west + east) / image
        q = (gradient / 2 - laplacian**2 / 16) / (1 + laplacian / 4) ** 2
        c = np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)
        beyond = np.pad(c, ((0, 1), (0, 1)), mode="edge")
        divergence = c * (north + west) + beyond[1:, :-1] * south + beyond[:-1, 1:] * east
        image = image + data["step"] / 4 * divergence
    return {"image": (255 * np.log(image)).T.ravel().astype(np.float32)}


benchmark = Benchmark(
    suite="rodinia",
    name="srad_v1",
    program=srad_v1,
    make_data=make_data,
    reference=reference,
    stresses=("many small kernels", "equal code on many paths", "indirect loads", "a reduction in a loop of launches"),
    description="speckle reducing anisotropic diffusion with tables of neighbours",
    tolerance=Tolerance(relative=1e-3, absolute=2e-2),
    sizes={size: f"{s[0]} x {s[1]}, {s[2]} iterations" for size, s in SHAPES.items()},
)
