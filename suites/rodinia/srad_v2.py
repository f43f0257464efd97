"""Speckle reducing anisotropic diffusion with tiles in shared memory: two stencils, each on its own tile and its edges.

The first kernel computes the derivatives of the image at each pixel towards its four neighbours, and the diffusion
coefficient. The second kernel computes the divergence with the coefficients of the pixel and of its southern and
eastern neighbours, which other blocks wrote. Pixels at the edges of a tile read rows of neighbouring tiles. Every
thread loads its block's edges, and a block at the image's edge loads its own row instead. Between iterations the host
computes the speckle scale of a region of interest, so the image is copied to the host and back.

Reference: Yu and Acton, *Speckle Reducing Anisotropic Diffusion*, IEEE Transactions on Image Processing 11(11), 2002
(its equations 31, 33, 35, 52, 54, 58, 61); in Rodinia (Che et al., IISWC 2009) with 2048 x 2048 random pixels, a region
of 128 x 128, and 2 iterations. As in the original, pixels outside the image are loaded before they are replaced. Here
the image has a row of zeros above and below, so these loads stay inside the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
    f32,
    f64,
    fill,
    gridDim,
    host,
    i32,
    kernel,
    program,
    ptr,
    shared,
    syncthreads,
    threadIdx,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 16

#: rows, columns, rows and columns of the region of interest, iterations
SHAPES = {"tiny": (48, 64, 20, 2), "small": (512, 512, 128, 2), "full": (2048, 2048, 128, 2)}


@kernel
def srad_cuda_1(
    east_c: ptr[f32],
    west_c: ptr[f32],
    north_c: ptr[f32],
    south_c: ptr[f32],
    image: const_ptr[f32],
    coefficients: ptr[f32],
    cols: i32,
    q0sqr: f32,
) -> None:
    """Derivatives towards the four neighbours, and the diffusion coefficient. ``image`` begins one row early."""
    bx: i32 = blockIdx.x
    by: i32 = blockIdx.y
    tx: i32 = threadIdx.x
    ty: i32 = threadIdx.y
    corner = cols * BLOCK * by + BLOCK * bx
    index = corner + cols * ty + tx
    first = cols + corner
    index_n = first + tx - cols
    index_s = first + cols * BLOCK + tx
    index_w = first + cols * ty - 1
    index_e = first + cols * ty + BLOCK

    temp = shared(f32, BLOCK, BLOCK)
    result = shared(f32, BLOCK, BLOCK)
    north = shared(f32, BLOCK, BLOCK)
    south = shared(f32, BLOCK, BLOCK)
    east = shared(f32, BLOCK, BLOCK)
    west = shared(f32, BLOCK, BLOCK)

    north[ty, tx] = image[index_n]
    south[ty, tx] = image[index_s]
    if by == 0:
        north[ty, tx] = image[cols + BLOCK * bx + tx]
    elif by == i32(gridDim.y) - 1:
        south[ty, tx] = image[first + cols * (BLOCK - 1) + tx]
    syncthreads()

    west[ty, tx] = image[index_w]
    east[ty, tx] = image[index_e]
    if bx == 0:
        west[ty, tx] = image[first + cols * ty]
    elif bx == i32(gridDim.x) - 1:
        east[ty, tx] = image[first + cols * ty + BLOCK - 1]
    syncthreads()

    temp[ty, tx] = image[cols + index]
    syncthreads()

    here = temp[ty, tx]
    n: f32 = 0.0
    s: f32 = 0.0
    w: f32 = 0.0
    e: f32 = 0.0
    if ty == 0 and tx == 0:
        n = north[ty, tx] - here
        s = temp[ty + 1, tx] - here
        w = west[ty, tx] - here
        e = temp[ty, tx + 1] - here
    elif ty == 0 and tx == BLOCK - 1:
        n = north[ty, tx] - here
        s = temp[ty + 1, tx] - here
        w = temp[ty, tx - 1] - here
        e = east[ty, tx] - here
    elif ty == BLOCK - 1 and tx == BLOCK - 1:
        n = temp[ty - 1, tx] - here
        s = south[ty, tx] - here
        w = temp[ty, tx - 1] - here
        e = east[ty, tx] - here
    elif ty == BLOCK - 1 and tx == 0:
        n = temp[ty - 1, tx] - here
        s = south[ty, tx] - here
        w = west[ty, tx] - here
        e = temp[ty, tx + 1] - here
    elif ty == 0:
        n = north[ty, tx] - here
        s = temp[ty + 1, tx] - here
        w = temp[ty, tx - 1] - here
        e = temp[ty, tx + 1] - here
    elif tx == BLOCK - 1:
        n = temp[ty - 1, tx] - here
        s = temp[ty + 1, tx] - here
        w = temp[ty, tx - 1] - here
        e = east[ty, tx] - here
    elif ty == BLOCK - 1:
        n = temp[ty - 1, tx] - here
        s = south[ty, tx] - here
        w = temp[ty, tx - 1] - here
        e = temp[ty, tx + 1] - here
    elif tx == 0:
        n = temp[ty - 1, tx] - here
        s = temp[ty + 1, tx] - here
        w = west[ty, tx] - here
        e = temp[ty, tx + 1] - here
    else:
        n = temp[ty - 1, tx] - here
        s = temp[ty + 1, tx] - here
        w = temp[ty, tx - 1] - here
        e = temp[ty, tx + 1] - here

    # In the original, C's constants make these expressions double.
    gradient2 = (n * n + s * s + w * w + e * e) / (here * here)
    laplacian = (n + s + w + e) / here
    num = f32(0.5 * f64(gradient2) - (1.0 / 16.0) * f64(laplacian * laplacian))
    den = f32(1.0 + 0.25 * f64(laplacian))
    qsqr = num / (den * den)
    den = (qsqr - q0sqr) / (q0sqr * (1.0 + q0sqr))
    c = f32(1.0 / (1.0 + f64(den)))
    if c < 0.0:
        result[ty, tx] = 0.0
    elif c > 1.0:
        result[ty, tx] = 1.0
    else:
        result[ty, tx] = c
    syncthreads()

    coefficients[index] = result[ty, tx]
    east_c[index] = e
    west_c[index] = w
    south_c[index] = s
    north_c[index] = n


@kernel
def srad_cuda_2(
    east_c: const_ptr[f32],
    west_c: const_ptr[f32],
    north_c: const_ptr[f32],
    south_c: const_ptr[f32],
    image: ptr[f32],
    coefficients: const_ptr[f32],
    cols: i32,
    step: f32,
) -> None:
    """Add the divergence to ``image``, which begins one row early."""
    bx: i32 = blockIdx.x
    by: i32 = blockIdx.y
    tx: i32 = threadIdx.x
    ty: i32 = threadIdx.y
    corner = cols * BLOCK * by + BLOCK * bx
    index = corner + cols * ty + tx
    index_s = corner + cols * BLOCK + tx
    index_e = corner + cols * ty + BLOCK

    south = shared(f32, BLOCK, BLOCK)
    east = shared(f32, BLOCK, BLOCK)
    own = shared(f32, BLOCK, BLOCK)
    result = shared(f32, BLOCK, BLOCK)
    temp = shared(f32, BLOCK, BLOCK)

    temp[ty, tx] = image[cols + index]
    syncthreads()
    south[ty, tx] = coefficients[index_s]
    if by == i32(gridDim.y) - 1:
        south[ty, tx] = coefficients[corner + cols * (BLOCK - 1) + tx]
    syncthreads()
    east[ty, tx] = coefficients[index_e]
    if bx == i32(gridDim.x) - 1:
        east[ty, tx] = coefficients[corner + cols * ty + BLOCK - 1]
    syncthreads()
    own[ty, tx] = coefficients[index]
    syncthreads()

    here = own[ty, tx]
    cn = here
    cw = here
    cs = here
    ce = here
    if ty == BLOCK - 1 and tx == BLOCK - 1:
        cs = south[ty, tx]
        ce = east[ty, tx]
    elif tx == BLOCK - 1:
        cs = own[ty + 1, tx]
        ce = east[ty, tx]
    elif ty == BLOCK - 1:
        cs = south[ty, tx]
        ce = own[ty, tx + 1]
    else:
        cs = own[ty + 1, tx]
        ce = own[ty, tx + 1]

    divergence = cn * north_c[index] + cs * south_c[index] + cw * west_c[index] + ce * east_c[index]
    result[ty, tx] = f32(f64(temp[ty, tx]) + 0.25 * f64(step) * f64(divergence))
    syncthreads()
    image[cols + index] = result[ty, tx]


def speckle_scale(image: Any, cols: int, region: int) -> float:
    """Variance divided by squared mean of the first ``region`` rows and columns."""
    import numpy as np

    part = image.reshape(-1, cols)[:region, :region].astype(np.float64)
    return float(part.var() / part.mean() ** 2)


@program
def srad_v2(image: host[f32], rows: i32, cols: i32, region: i32, iterations: i32, step: f32) -> None:
    size = rows * cols
    gpu_image = allocate(f32, size + 2 * cols)
    coefficients = allocate(f32, size + cols)
    east_c, west_c = allocate(f32, size), allocate(f32, size)
    south_c, north_c = allocate(f32, size), allocate(f32, size)
    fill(gpu_image, 0)
    fill(coefficients, 0)
    for _ in range(iterations):
        q0sqr = speckle_scale(image, cols, region)
        copy(gpu_image[cols : cols + size], image)
        srad_cuda_1[(cols // BLOCK, rows // BLOCK), (BLOCK, BLOCK)](
            east_c, west_c, north_c, south_c, gpu_image, coefficients, cols, q0sqr
        )
        srad_cuda_2[(cols // BLOCK, rows // BLOCK), (BLOCK, BLOCK)](
            east_c, west_c, north_c, south_c, gpu_image, coefficients, cols, step
        )
        copy(image, gpu_image[cols : cols + size])


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    rows, cols, region, iterations = SHAPES[size]
    image = np.exp(np.random.default_rng(seed).random(rows * cols)).astype(np.float32)
    return {"image": image, "rows": rows, "cols": cols, "region": region, "iterations": iterations, "step": 0.5}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    image: NDArray[Any] = data["image"].reshape(data["rows"], data["cols"]).astype(np.float64)
    for _ in range(data["iterations"]):
        roi = image[: data["region"], : data["region"]]
        q0 = (np.mean(roi**2) - np.mean(roi) ** 2) / np.mean(roi) ** 2
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
    return {"image": image.astype(np.float32).ravel()}


benchmark = Benchmark(
    suite="rodinia",
    name="srad_v2",
    program=srad_v2,
    make_data=make_data,
    reference=reference,
    stresses=(
        "shared memory",
        "nested divergent branches with equal code",
        "barriers",
        "values of neighbouring blocks",
    ),
    description="speckle reducing anisotropic diffusion on tiles",
    tolerance=Tolerance(relative=1e-5),
    sizes={size: f"{s[0]} x {s[1]}, {s[3]} iterations" for size, s in SHAPES.items()},
)
