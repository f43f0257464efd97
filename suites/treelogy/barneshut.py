"""Gravity between bodies by the method of Barnes and Hut, with a kd-tree: near subtrees are opened, far ones count as
one body.

A thread handles a body and has a stack of nodes. If a node's centre of mass is within its opening radius, its children
are pushed. A leaf within the radius counts unless it is the body itself. Any other node counts as a whole. The host
builds the tree for each step and moves the bodies by the leapfrog method; the kernel corrects the velocities.

Reference: Barnes and Hut, *A Hierarchical O(N log N) Force-Calculation Algorithm*, Nature 324, 1986; Hegde, Liu,
Sundararajah and Kulkarni, *Treelogy: A Benchmark Suite for Tree Traversals*, ISPASS 2017 (its version with a kd-tree).
The opening radius is the longest side of a node's box divided by ``theta``, but at least the softening length divided
by ``theta``. Bodies follow Plummer's model; ``full`` has 100 000.
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
    dtype_of,
    f32,
    gridDim,
    host,
    i32,
    kernel,
    local,
    program,
    ptr,
    rsqrt,
    struct,
    threadIdx,
    zeros,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

STACK = 128
THETA, SOFTENING = 0.5, 0.05

#: bodies, steps, blocks, threads per block
SHAPES = {"tiny": (100, 2, 1, 64), "small": (10_000, 2, 53, 192), "full": (100_000, 2, 521, 192)}


@struct
class Vec:
    """A vector."""

    x: f32
    y: f32
    z: f32


@struct
class Body:
    """A body and its mass."""

    cofm: Vec
    vel: Vec
    acc: Vec
    mass: f32
    id: i32


@struct
class Node0:
    """Centre of mass, and the number of the body in a leaf."""

    cofm: Vec
    point_id: i32
    is_leaf: i32


@struct
class Node1:
    """Mass and opening radius."""

    mass: f32
    ropen: f32


@struct
class Node2:
    """Children, or -1."""

    left: i32
    right: i32


@kernel
def compute_force_gpu(
    nodes0: const_ptr[Node0],
    nodes1: const_ptr[Node1],
    nodes2: const_ptr[Node2],
    points: ptr[Body],
    n: i32,
    eps_squared: f32,
    dthf: f32,
    step: i32,
) -> None:
    """Accelerations, and from the second step on the correction of the velocities by half a step ``dthf``."""
    stack = local(i32, STACK)
    pidx: i32 = blockIdx.x * blockDim.x + threadIdx.x
    while pidx < n:
        px = points[pidx].cofm.x
        py = points[pidx].cofm.y
        pz = points[pidx].cofm.z
        previous_x = points[pidx].acc.x
        previous_y = points[pidx].acc.y
        previous_z = points[pidx].acc.z
        ax: f32 = 0.0
        ay: f32 = 0.0
        az: f32 = 0.0
        stack[1] = 0
        sp: i32 = 1
        while sp >= 1:
            node = stack[sp]
            sp -= 1
            dx = nodes0[node].cofm.x - px
            dy = nodes0[node].cofm.y - py
            dz = nodes0[node].cofm.z - pz
            drsq = dx * dx + dy * dy + dz * dz
            ropensq = nodes1[node].ropen * nodes1[node].ropen
            if drsq < ropensq:
                if nodes0[node].is_leaf == 0:
                    if nodes2[node].right != -1:
                        sp += 1
                        stack[sp] = nodes2[node].right
                    if nodes2[node].left != -1:
                        sp += 1
                        stack[sp] = nodes2[node].left
                else:
                    if points[pidx].id != nodes0[node].point_id:
                        drsq += 2.0 * eps_squared
                        idr = rsqrt(drsq)
                        nphi = nodes1[node].mass * idr
                        scale = nphi * idr * idr
                        ax += dx * scale
                        ay += dy * scale
                        az += dz * scale
            else:
                drsq += 2.0 * eps_squared
                idr_far = rsqrt(drsq)
                nphi_far = nodes1[node].mass * idr_far
                scale_far = nphi_far * idr_far * idr_far
                ax += dx * scale_far
                ay += dy * scale_far
                az += dz * scale_far
        vx = points[pidx].vel.x
        vy = points[pidx].vel.y
        vz = points[pidx].vel.z
        if step > 0:
            vx = vx + (ax - previous_x) * dthf
            vy = vy + (ay - previous_y) * dthf
            vz = vz + (az - previous_z) * dthf
        points[pidx].vel.x = vx
        points[pidx].vel.y = vy
        points[pidx].vel.z = vz
        points[pidx].acc.x = ax
        points[pidx].acc.y = ay
        points[pidx].acc.z = az
        pidx += i32(blockDim.x * gridDim.x)


def rows(vectors: NDArray[Any]) -> NDArray[Any]:
    """Vectors as rows of three numbers."""
    import numpy as np

    return np.stack([vectors[axis] for axis in "xyz"], axis=-1)


def build_tree(points: Any, nodes0: Any, nodes1: Any, nodes2: Any) -> None:
    """Halve the bodies along the longest side of their box until each is alone. Nodes are in preorder.

    All nodes of a level are made at once: ``order`` contains their bodies, node by node. A subtree of m bodies has 2 m
    - 1 nodes. So a node's first child is the next node, and if that child has m bodies, the second child comes 2 m
    later.
    """
    import numpy as np

    places, masses = rows(points["cofm"]).astype(np.float64), points["mass"].astype(np.float64)
    order, sizes, numbers = np.arange(len(points)), np.array([len(points)]), np.array([0])
    while len(order):
        starts = np.cumsum(sizes) - sizes
        at, weight = places[order], masses[order]
        sides = np.maximum.reduceat(at, starts) - np.minimum.reduceat(at, starts)
        mass = np.add.reduceat(weight, starts)
        centre = np.add.reduceat(weight[:, None] * at, starts) / mass[:, None]
        for column, axis in enumerate("xyz"):
            nodes0["cofm"][axis][numbers] = centre[:, column]
        nodes1["mass"][numbers], nodes1["ropen"][numbers] = mass, np.maximum(sides.max(axis=1), SOFTENING) / THETA
        alone = sizes == 1
        left = sizes // 2
        nodes0["is_leaf"][numbers] = alone
        nodes0["point_id"][numbers] = np.where(alone, points["id"][order[starts]], -1)
        nodes2["left"][numbers] = np.where(alone, -1, numbers + 1)
        nodes2["right"][numbers] = np.where(alone, -1, numbers + 2 * left)
        # Leaves are complete. The bodies of each other node are sorted along its longest side, and halved.
        of = np.repeat(np.arange(len(sizes)), sizes)
        rest = ~alone[of]
        along = at[np.arange(len(order)), np.argmax(sides, axis=1)[of]]
        order = order[rest][np.lexsort((along[rest], of[rest]))]
        children = np.stack([numbers + 1, numbers + 2 * left], axis=1)[~alone]
        numbers, sizes = children.ravel(), np.stack([left, sizes - left], axis=1)[~alone].ravel()


def advance(points: Any, dthf: float) -> None:
    """Move the bodies by one step with the velocity at its middle, and predict the velocity at its end."""
    for axis in "xyz":
        change = points["acc"][axis] * dthf
        half = points["vel"][axis] + change
        points["cofm"][axis] += half * (2 * dthf)
        points["vel"][axis] = half + change


def accelerations(points: Any, acc: Any, velocities: Any) -> None:
    acc.reshape(-1, 3)[:] = rows(points["acc"])
    velocities.reshape(-1, 3)[:] = rows(points["vel"])


@program
def barneshut(
    points: host[Body], acc: host[f32], velocities: host[f32], n: i32, steps: i32, blocks: i32, threads: i32, dthf: f32
) -> None:
    nodes = 2 * n - 1
    gpu_nodes0, gpu_nodes1, gpu_nodes2 = allocate(Node0, nodes), allocate(Node1, nodes), allocate(Node2, nodes)
    gpu_points = allocate(Body, n)
    nodes0, nodes1, nodes2 = zeros(Node0, nodes), zeros(Node1, nodes), zeros(Node2, nodes)
    for step in range(steps):
        build_tree(points, nodes0, nodes1, nodes2)
        copy(gpu_nodes0, nodes0)
        copy(gpu_nodes1, nodes1)
        copy(gpu_nodes2, nodes2)
        copy(gpu_points, points)
        compute_force_gpu[blocks, threads](
            gpu_nodes0, gpu_nodes1, gpu_nodes2, gpu_points, n, SOFTENING * SOFTENING, dthf, step
        )
        copy(points, gpu_points)
        accelerations(points, acc, velocities)
        advance(points, dthf)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Plummer's model: most bodies are near the middle. The furthest tenth is omitted."""
    import numpy as np

    n, steps, blocks, threads = SHAPES[size]
    numbers = np.random.default_rng(seed)

    def directions() -> NDArray[Any]:
        vectors = numbers.normal(size=(n, 3))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    points = np.zeros(n, dtype_of(Body))
    radius = 1 / np.sqrt(numbers.uniform(0.001, 0.9, n) ** (-2 / 3) - 1)
    places, velocities = directions() * radius[:, None], directions() * numbers.uniform(0, 0.3, (n, 1))
    for column, axis in enumerate("xyz"):
        points["cofm"][axis], points["vel"][axis] = places[:, column], velocities[:, column]
    points["mass"], points["id"] = numbers.uniform(0.5, 1.5, n) / n, np.arange(n)
    return {
        "points": points,
        "acc": np.zeros(3 * n, np.float32),
        "velocities": np.zeros(3 * n, np.float32),
        "n": n,
        "steps": steps,
        "blocks": blocks,
        "threads": threads,
        "dthf": 0.0125,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Node by node, for all bodies that open it, while the tree is being built."""
    import numpy as np

    points = data["points"]
    mass = points["mass"].astype(np.float64)
    place, velocity, acc = (
        np.stack([points[f][a] for a in "xyz"], 1).astype(np.float64) for f in ("cofm", "vel", "acc")
    )
    half, velocities = data["dthf"], velocity

    def pull(inside: NDArray[Any], bodies: NDArray[Any], total: NDArray[Any]) -> None:
        centre = np.average(place[inside], axis=0, weights=mass[inside])
        away = centre - place[bodies]
        square = np.einsum("ij,ij->i", away, away)
        sides = place[inside].max(axis=0) - place[inside].min(axis=0)
        is_near = square < (max(sides.max(), SOFTENING) / THETA) ** 2
        counts = ~is_near if len(inside) > 1 else bodies != inside[0]
        force = mass[inside].sum() * away / (square + 2 * SOFTENING**2)[:, None] ** 1.5
        total[bodies[counts]] += force[counts]
        if len(inside) > 1 and is_near.any():
            order = inside[np.argsort(place[inside, sides.argmax()], kind="stable")]
            for part in np.split(order, [len(order) // 2]):
                pull(part, bodies[is_near], total)

    for step in range(data["steps"]):
        total = np.zeros_like(place)
        pull(np.arange(len(place)), np.arange(len(place)), total)
        if step > 0:
            velocity = velocity + (total - acc) * half
        acc, velocities = total, velocity
        place = place + 2 * half * (velocity + half * acc)
        velocity = velocity + 2 * half * acc
    return {"acc": acc.astype(np.float32).ravel(), "velocities": velocities.astype(np.float32).ravel()}


benchmark = Benchmark(
    suite="treelogy",
    name="barneshut",
    program=barneshut,
    make_data=make_data,
    reference=reference,
    stresses=("divergent traversal", "equal code on two branches", "stack in local memory", "approximate roots"),
    description="gravity between bodies by a kd-tree",
    # Rounding may decide whether a node is opened, which changes an acceleration by the error of the method.
    tolerance=Tolerance(relative=1e-3, absolute=1e-4, mismatches=0.01),
    sizes={size: f"{s[0]} bodies, {s[1]} steps" for size, s in SHAPES.items()},
)
