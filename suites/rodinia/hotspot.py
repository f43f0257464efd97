"""Temperature of a chip over time: a stencil in tiles with a ghost zone.

A launch advances ``pyramid`` time steps. Each block loads a tile of temperature and power into shared memory. In every
step the valid part of the tile loses one row and one column on each side. The chip's resistances and capacity follow
from its size. Outside of the grid the temperature is that of the border. Two grids are swapped between launches. As in
the original, the middle of the stencil is computed in double precision.

References: Huang et al., *HotSpot: A Compact Thermal Modeling Methodology for Early-Stage VLSI Design*, IEEE TVLSI
2006; Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009. Rodinia runs 512 x 512 with
pyramids of 2 for 2 steps, which is ``small`` here. Its largest data are 1024 x 1024, and its program's default is 60
steps.
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
AMBIENT = 80.0
# The chip: thickness and side (m), conductivity (W/(m K)), heat (J/(m^3 K)), power density (W/m^3), and K per step.
THICKNESS, SIDE = 0.0005, 0.016
CONDUCTIVITY, HEAT, CAPACITY_FACTOR = 100, 1.75e6, 0.5
MAX_POWER, PRECISION = 3.0e6, 0.001

#: rows and columns, steps per pyramid, steps
SHAPES = {"tiny": (45, 2, 5), "small": (512, 2, 2), "full": (1024, 2, 60)}


@kernel
def calculate_temp(
    steps: i32,
    power: const_ptr[f32],
    src: const_ptr[f32],
    dst: ptr[f32],
    cols: i32,
    rows: i32,
    border_cols: i32,
    border_rows: i32,
    cap: f32,
    rx: f32,
    ry: f32,
    rz: f32,
    step: f32,
) -> None:
    """Advance ``steps`` time steps. The borders are the ghost zone on each side."""
    temp = shared(f32, BLOCK, BLOCK)
    heat = shared(f32, BLOCK, BLOCK)
    result = shared(f32, BLOCK, BLOCK)
    ambient: f32 = AMBIENT
    bx: i32 = blockIdx.x
    by: i32 = blockIdx.y
    tx: i32 = threadIdx.x
    ty: i32 = threadIdx.y
    step_by_cap = step / cap
    rx_1 = 1.0 / rx
    ry_1 = 1.0 / ry
    rz_1 = 1.0 / rz

    # The block computes a smaller tile, which the ghost zone surrounds.
    first_row = (BLOCK - steps * 2) * by - border_rows
    first_col = (BLOCK - steps * 2) * bx - border_cols
    last_row = first_row + BLOCK - 1
    last_col = first_col + BLOCK - 1
    row = first_row + ty
    col = first_col + tx
    index = cols * row + col
    if 0 <= row <= rows - 1 and 0 <= col <= cols - 1:
        temp[ty, tx] = src[index]
        heat[ty, tx] = power[index]
    syncthreads()

    # The part of the block that is inside the grid.
    top = -first_row if first_row < 0 else 0
    bottom = BLOCK - 1 - (last_row - rows + 1) if last_row > rows - 1 else BLOCK - 1
    left = -first_col if first_col < 0 else 0
    right = BLOCK - 1 - (last_col - cols + 1) if last_col > cols - 1 else BLOCK - 1
    north = ty - 1
    south = ty + 1
    west = tx - 1
    east = tx + 1
    north = top if north < top else north
    south = bottom if south > bottom else south
    west = left if west < left else west
    east = right if east > right else east

    computed = False
    for i in range(steps):
        computed = False
        if (
            i + 1 <= tx <= BLOCK - i - 2
            and i + 1 <= ty <= BLOCK - i - 2
            and left <= tx <= right
            and top <= ty <= bottom
        ):
            computed = True
            result[ty, tx] = f32(
                temp[ty, tx]
                + step_by_cap
                * (
                    heat[ty, tx]
                    + (temp[south, tx] + temp[north, tx] - f64(2.0) * temp[ty, tx]) * ry_1
                    + (temp[ty, east] + temp[ty, west] - f64(2.0) * temp[ty, tx]) * rx_1
                    + (ambient - temp[ty, tx]) * rz_1
                )
            )
        syncthreads()
        if i == steps - 1:
            break
        if computed:
            temp[ty, tx] = result[ty, tx]
        syncthreads()
    if computed:
        dst[index] = result[ty, tx]


@program
def hotspot(
    power: host[f32],
    temperature: host[f32],
    cols: i32,
    rows: i32,
    pyramid: i32,
    steps: i32,
    cap: f32,
    rx: f32,
    ry: f32,
    rz: f32,
    step: f32,
) -> None:
    d_power, src, dst = allocate(f32, rows * cols), allocate(f32, rows * cols), allocate(f32, rows * cols)
    copy(src, temperature)
    copy(d_power, power)
    inner = BLOCK - 2 * pyramid
    grid_x = -(-cols // inner)
    grid_y = -(-rows // inner)
    for done in range(0, steps, pyramid):
        calculate_temp[(grid_x, grid_y), (BLOCK, BLOCK)](
            min(pyramid, steps - done), d_power, src, dst, cols, rows, pyramid, pyramid, cap, rx, ry, rz, step
        )
        src, dst = dst, src
    copy(temperature, src)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    n, pyramid, steps = SHAPES[size]
    rows, cols = n, n + 6 if size == "tiny" else n
    numbers = np.random.default_rng(seed)
    # Hot units in a cool chip.
    units = numbers.random((8, 8))[np.ix_(np.arange(rows) * 8 // rows, np.arange(cols) * 8 // cols)]
    height, width = SIDE / rows, SIDE / cols
    slope = MAX_POWER / (CAPACITY_FACTOR * THICKNESS * HEAT)
    return {
        "power": (0.01 * units * numbers.random((rows, cols))).ravel().astype(np.float32),
        "temperature": (320 + 20 * units + numbers.random((rows, cols))).ravel().astype(np.float32),
        "cols": cols,
        "rows": rows,
        "pyramid": pyramid,
        "steps": steps,
        "cap": CAPACITY_FACTOR * HEAT * THICKNESS * width * height,
        "rx": width / (2 * CONDUCTIVITY * THICKNESS * height),
        "ry": height / (2 * CONDUCTIVITY * THICKNESS * width),
        "rz": THICKNESS / (CONDUCTIVITY * height * width),
        "step": PRECISION / slope,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    power = data["power"].reshape(data["rows"], data["cols"]).astype(np.float64)
    now = data["temperature"].reshape(power.shape).astype(np.float64)
    for _ in range(data["steps"]):
        around = np.pad(now, 1, mode="edge")
        vertical = np.diff(around[:, 1:-1], n=2, axis=0) / data["ry"]
        horizontal = np.diff(around[1:-1], n=2, axis=1) / data["rx"]
        now = now + data["step"] / data["cap"] * (power + vertical + horizontal + (AMBIENT - now) / data["rz"])
    return {"temperature": now.ravel().astype(np.float32)}


benchmark = Benchmark(
    suite="rodinia",
    name="hotspot",
    program=hotspot,
    make_data=make_data,
    reference=reference,
    stresses=("shared memory", "barriers in a loop", "divergent branches", "mixed precision"),
    description="temperature of a chip, a stencil in tiles with a ghost zone",
    tolerance=Tolerance(relative=1e-5),
    sizes={size: f"{n} x {n}, pyramid {pyramid}, {steps} steps" for size, (n, pyramid, steps) in SHAPES.items()},
)
