"""Compressible flow around a wing: a finite volume solver of the Euler equations on an unstructured mesh.

An element has four neighbours; the wing (-1) or the far field (-2) may take the place of one. The flux through each
face is the mean of the fluxes on both sides, plus artificial viscosity. Three Runge-Kutta steps follow, with one time
step for each element. A thread handles an element. Arrays have one row for each variable. The far field's state is in
constant memory.

Reference: Corrigan, Camelli, Löhner and Wallin, *Running Unstructured Grid Based CFD Solvers on Modern Graphics
Hardware*, AIAA 2009-4001, with its constants. Rodinia (Che et al., IISWC 2009) makes 2000 iterations on 97 thousand
elements or more. ``full`` has as many elements, but a tenth of the iterations, which are all alike, so that the
reference takes less time. The mesh is a channel over a bump, rotated about the direction of flow so that all three
dimensions matter. The numbers of elements and of faces are shuffled.
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
    cuda_source,
    device,
    f32,
    fill,
    host,
    i32,
    kernel,
    program,
    ptr,
    sqrt,
    threadIdx,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 192
GAMMA, MACH = 1.4, 1.2
FACES, VARIABLES, STEPS = 4, 5, 3
# Rows of variables: density, three of momentum, energy.
DENSITY, MOMENTUM, ENERGY = 0, 1, 4

#: columns and rows of the mesh, iterations
SHAPES = {"tiny": (26, 13, 2), "small": (110, 55, 100), "full": (440, 220, 200)}

# The free stream along x, with pressure 1 and density GAMMA, so that the speed of sound is 1. The host could write
# these symbols, so nvcc loads them; it would fold tables of Python into the code.
FAR_FIELD = f"""
#define GAMMA {GAMMA}f
#define SPEED {MACH}f
__constant__ float far_variables[5] = {{GAMMA, GAMMA * SPEED, 0.0f, 0.0f,
                                       0.5f * GAMMA * SPEED * SPEED + 1.0f / (GAMMA - 1.0f)}};
"""

initialize_variables = cuda_source(
    FAR_FIELD
    + """
extern "C" __global__ void initialize_variables(int elements, float *variables)
{
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    for (int row = 0; row < 5; row++) variables[row * elements + i] = far_variables[row];
}
""",
    "initialize_variables",
    params=[i32, ptr[f32]],
)

compute_flux = cuda_source(
    FAR_FIELD
    + """
// Momentum and energy that the far field's stream carries along each axis.
__constant__ float3 far_momentum_x = {GAMMA * SPEED * SPEED + 1.0f, 0.0f, 0.0f};
__constant__ float3 far_momentum_y = {0.0f, 1.0f, 0.0f};
__constant__ float3 far_momentum_z = {0.0f, 0.0f, 1.0f};
__constant__ float3 far_energy = {
    SPEED * (0.5f * GAMMA * SPEED * SPEED + 1.0f / (GAMMA - 1.0f) + 1.0f), 0.0f, 0.0f};

struct State {
    float density;
    float3 momentum;
    float energy;
    float speed2, sound, pressure;
    float3 momentum_x, momentum_y, momentum_z, energy_flux;
};

__device__ __forceinline__ State state_of(const float *variables, int elements, int i)
{
    State s;
    s.density = variables[i];
    s.momentum.x = variables[i + elements];
    s.momentum.y = variables[i + 2 * elements];
    s.momentum.z = variables[i + 3 * elements];
    s.energy = variables[i + 4 * elements];
    const float3 v = {s.momentum.x / s.density, s.momentum.y / s.density, s.momentum.z / s.density};
    s.speed2 = v.x * v.x + v.y * v.y + v.z * v.z;
    s.pressure = (GAMMA - 1.0f) * (s.energy - 0.5f * s.density * s.speed2);
    s.sound = sqrtf(GAMMA * s.pressure / s.density);
    s.momentum_x = {v.x * s.momentum.x + s.pressure, v.x * s.momentum.y, v.x * s.momentum.z};
    s.momentum_y = {s.momentum_x.y, v.y * s.momentum.y + s.pressure, v.y * s.momentum.z};
    s.momentum_z = {s.momentum_x.z, s.momentum_y.z, v.z * s.momentum.z + s.pressure};
    const float carried = s.energy + s.pressure;
    s.energy_flux = {v.x * carried, v.y * carried, v.z * carried};
    return s;
}

extern "C" __global__ void compute_flux(
    int elements, const int *neighbours, const float *normals, const float *variables, float *fluxes)
{
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    const State own = state_of(variables, elements, i);
    const float own_speed = sqrtf(own.speed2);
    float density = 0.0f, energy = 0.0f;
    float3 momentum = {0.0f, 0.0f, 0.0f};

    #pragma unroll
    for (int face = 0; face < 4; face++) {
        const int other = neighbours[i + face * elements];
        const float3 n = {
            normals[i + face * elements], normals[i + (face + 4) * elements], normals[i + (face + 8) * elements]};
        const float area = sqrtf(n.x * n.x + n.y * n.y + n.z * n.z);
        if (other >= 0) {
            const State nb = state_of(variables, elements, other);
            float f = -area * 0.2f * 0.5f * (own_speed + sqrtf(nb.speed2) + own.sound + nb.sound);
            density += f * (own.density - nb.density);
            energy += f * (own.energy - nb.energy);
            momentum.x += f * (own.momentum.x - nb.momentum.x);
            momentum.y += f * (own.momentum.y - nb.momentum.y);
            momentum.z += f * (own.momentum.z - nb.momentum.z);
#define THROUGH(axis) \\
            f = 0.5f * n.axis; \\
            density += f * (nb.momentum.axis + own.momentum.axis); \\
            energy += f * (nb.energy_flux.axis + own.energy_flux.axis); \\
            momentum.x += f * (nb.momentum_x.axis + own.momentum_x.axis); \\
            momentum.y += f * (nb.momentum_y.axis + own.momentum_y.axis); \\
            momentum.z += f * (nb.momentum_z.axis + own.momentum_z.axis);
            THROUGH(x)
            THROUGH(y)
            THROUGH(z)
        } else if (other == -1) {
            momentum.x += n.x * own.pressure;
            momentum.y += n.y * own.pressure;
            momentum.z += n.z * own.pressure;
        } else if (other == -2) {
#define FROM_AFAR(axis, row) \\
            f = 0.5f * n.axis; \\
            density += f * (far_variables[row] + own.momentum.axis); \\
            energy += f * (far_energy.axis + own.energy_flux.axis); \\
            momentum.x += f * (far_momentum_x.axis + own.momentum_x.axis); \\
            momentum.y += f * (far_momentum_y.axis + own.momentum_y.axis); \\
            momentum.z += f * (far_momentum_z.axis + own.momentum_z.axis);
            float f;
            FROM_AFAR(x, 1)
            FROM_AFAR(y, 2)
            FROM_AFAR(z, 3)
        }
    }

    fluxes[i] = density;
    fluxes[i + elements] = momentum.x;
    fluxes[i + 2 * elements] = momentum.y;
    fluxes[i + 3 * elements] = momentum.z;
    fluxes[i + 4 * elements] = energy;
}
""",
    "compute_flux",
    params=[i32, const_ptr[i32], const_ptr[f32], const_ptr[f32], ptr[f32]],
)


@device
def squared_speed(density: f32, x: f32, y: f32, z: f32) -> f32:
    u, v, w = x / density, y / density, z / density
    return u * u + v * v + w * w


@kernel
def compute_step_factor(
    elements: i32, variables: const_ptr[f32], areas: const_ptr[f32], step_factors: ptr[f32]
) -> None:
    """Each element's time step divided by its area."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    density = variables[i + DENSITY * elements]
    x = variables[i + MOMENTUM * elements]
    y = variables[i + (MOMENTUM + 1) * elements]
    z = variables[i + (MOMENTUM + 2) * elements]
    energy = variables[i + ENERGY * elements]
    speed2 = squared_speed(density, x, y, z)
    pressure = (GAMMA - 1.0) * (energy - 0.5 * density * speed2)
    sound = sqrt(GAMMA * pressure / density)
    step_factors[i] = 0.5 / (sqrt(areas[i]) * (sqrt(speed2) + sound))


@kernel
def time_step(
    step: i32,
    elements: i32,
    old: const_ptr[f32],
    variables: ptr[f32],
    step_factors: const_ptr[f32],
    fluxes: const_ptr[f32],
) -> None:
    """Runge-Kutta step ``step``."""
    i: i32 = blockDim.x * blockIdx.x + threadIdx.x
    factor = step_factors[i] / f32(STEPS + 1 - step)
    variables[i + DENSITY * elements] = old[i + DENSITY * elements] + factor * fluxes[i + DENSITY * elements]
    variables[i + ENERGY * elements] = old[i + ENERGY * elements] + factor * fluxes[i + ENERGY * elements]
    variables[i + MOMENTUM * elements] = old[i + MOMENTUM * elements] + factor * fluxes[i + MOMENTUM * elements]
    variables[i + (MOMENTUM + 1) * elements] = (
        old[i + (MOMENTUM + 1) * elements] + factor * fluxes[i + (MOMENTUM + 1) * elements]
    )
    variables[i + (MOMENTUM + 2) * elements] = (
        old[i + (MOMENTUM + 2) * elements] + factor * fluxes[i + (MOMENTUM + 2) * elements]
    )


@program
def cfd(
    areas: host[f32], neighbours: host[i32], normals: host[f32], result: host[f32], elements: i32, iterations: i32
) -> None:
    d_areas, step_factors = allocate(f32, elements), allocate(f32, elements)
    d_neighbours, d_normals = allocate(i32, FACES * elements), allocate(f32, 3 * FACES * elements)
    variables, old = allocate(f32, VARIABLES * elements), allocate(f32, VARIABLES * elements)
    fluxes = allocate(f32, VARIABLES * elements)
    copy(d_areas, areas)
    copy(d_neighbours, neighbours)
    copy(d_normals, normals)
    blocks = elements // BLOCK
    initialize_variables[blocks, BLOCK](elements, variables)
    initialize_variables[blocks, BLOCK](elements, old)
    initialize_variables[blocks, BLOCK](elements, fluxes)
    fill(step_factors, 0)
    for _ in range(iterations):
        copy(old, variables)
        compute_step_factor[blocks, BLOCK](elements, variables, d_areas, step_factors)
        for step in range(STEPS):
            compute_flux[blocks, BLOCK](elements, d_neighbours, d_normals, variables, fluxes)
            time_step[blocks, BLOCK](step, elements, old, variables, step_factors, fluxes)
    copy(result, variables)


def channel(columns: int, rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Areas, neighbours (elements x faces) and inward normals (elements x faces x 3) of a channel over a bump."""
    import numpy as np

    along, across = np.linspace(0, 3, columns + 1), np.linspace(0, 1, rows + 1)
    bump = np.where(abs(along - 1.5) < 0.5, 0.08 * np.cos(np.pi * (along - 1.5)) ** 2, 0)
    x = np.broadcast_to(along, (rows + 1, columns + 1))
    y = bump + np.outer(across, 1.5 - bump)
    corners = np.stack([x, y], axis=-1)
    # Counterclockwise corners of each quadrilateral; an edge (dx, dy) has the inward normal (-dy, dx).
    quads = np.stack([corners[:-1, :-1], corners[:-1, 1:], corners[1:, 1:], corners[1:, :-1]], axis=2)
    edges = np.roll(quads, -1, axis=2) - quads
    diagonals = quads[:, :, 2:] - quads[:, :, :2]
    areas = 0.5 * abs(diagonals[:, :, 0, 0] * diagonals[:, :, 1, 1] - diagonals[:, :, 0, 1] * diagonals[:, :, 1, 0])
    tilt = 0.6
    normals = np.stack([-edges[..., 1], np.cos(tilt) * edges[..., 0], np.sin(tilt) * edges[..., 0]], axis=-1).reshape(
        -1, FACES, 3
    )
    number = np.pad(np.arange(rows * columns).reshape(rows, columns), 1, constant_values=-2)
    number[0] = -1  # the bump's side is the wing
    neighbours = np.stack([number[:-2, 1:-1], number[1:-1, 2:], number[2:, 1:-1], number[1:-1, :-2]], axis=-1)
    return areas.ravel(), neighbours.reshape(-1, FACES), normals


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    columns, rows, iterations = SHAPES[size]
    areas, neighbours, normals = channel(columns, rows)
    numbers = np.random.default_rng(seed)
    count = areas.size
    # Elements are exchanged with others nearby, as a mesh generator would number them. Faces are in any order.
    order = np.argsort(np.arange(count) // 64 + numbers.random(count), kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    turned = (np.arange(FACES) + numbers.integers(0, FACES, count)[:, None]) % FACES
    neighbours = np.where(neighbours >= 0, place[neighbours], neighbours)
    neighbours, normals = np.take_along_axis(neighbours, turned, 1), np.take_along_axis(normals, turned[..., None], 1)
    # The last block is filled with copies of the last element.
    order = np.pad(order, (0, -count % BLOCK), mode="edge")
    return {
        "areas": areas[order].astype(np.float32),
        "neighbours": neighbours[order].T.ravel().astype(np.int32),
        "normals": normals[order].transpose(2, 1, 0).ravel().astype(np.float32),
        "result": np.zeros(VARIABLES * order.size, np.float32),
        "elements": order.size,
        "iterations": iterations,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Computes the flux tensor of every element; each face uses a projection of it."""
    import numpy as np

    count: int = data["elements"]
    around = data["neighbours"].reshape(FACES, count)
    normals = data["normals"].reshape(3, FACES, count).transpose(1, 2, 0).astype(np.float64)
    is_wing, is_far = around == -1, around == -2
    # The far field is one more element. At the wing, an element counts as its own neighbour; its flux is replaced.
    other = np.where(is_far, count, np.where(is_wing, np.arange(count), around))
    viscosity = np.where(is_far | is_wing, 0, 0.1 * np.linalg.norm(normals, axis=2))
    far = np.array([GAMMA, GAMMA * MACH, 0, 0, GAMMA * MACH**2 / 2 + 1 / (GAMMA - 1)])
    state = np.repeat(far[None], count + 1, axis=0)

    def pressure_and_wave(u: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        square = np.einsum("ik,ik->i", u[:, 1:4], u[:, 1:4])
        pressure = (GAMMA - 1) * (u[:, 4] - square / u[:, 0] / 2)
        return pressure, np.sqrt(square) / u[:, 0] + np.sqrt(GAMMA * pressure / u[:, 0])

    def rate(u: NDArray[Any]) -> NDArray[Any]:
        pressure, wave = pressure_and_wave(u)
        flux = np.einsum("iv,ik->ivk", u, u[:, 1:4] / u[:, :1])
        flux[:, 4] += pressure[:, None] * (u[:, 1:4] / u[:, :1])
        for axis in range(3):
            flux[:, 1 + axis, axis] += pressure
        total = np.zeros((count, VARIABLES))
        for normal, beside, smooth, wing in zip(normals, other, viscosity, is_wing, strict=True):
            through = np.einsum("ivk,ik->iv", flux[beside] + flux[:-1], normal) / 2
            through -= (smooth * (wave[beside] + wave[:-1]))[:, None] * (u[:-1] - u[beside])
            through[wing] = 0
            through[wing, 1:4] = pressure[:-1][wing, None] * normal[wing]
            total += through
        return total

    for _ in range(data["iterations"]):
        before = state[:-1].copy()
        factor = 0.5 / (np.sqrt(data["areas"].astype(np.float64)) * pressure_and_wave(before)[1])
        for step in range(STEPS):
            state[:-1] = before + (factor / (STEPS + 1 - step))[:, None] * rate(state)
    return {"result": state[:-1].T.ravel().astype(np.float32)}


benchmark = Benchmark(
    suite="rodinia",
    name="cfd",
    program=cfd,
    make_data=make_data,
    reference=reference,
    stresses=(
        "redundant loads and arithmetic on many paths",
        "nested branches",
        "constant memory",
        "launches in a loop",
    ),
    description="Euler equations on an unstructured mesh by finite volumes",
    tolerance=Tolerance(relative=2e-3, absolute=2e-3),
    sizes={size: f"{s[0] * s[1]} elements, {s[2]} iterations" for size, s in SHAPES.items()},
)
