"""Clusters by Lloyd's algorithm, with the centres in a kd-tree: each point searches its nearest centre there.

A thread descends the tree on its point's side of each plane and keeps the path on a stack. On the way back it visits
the node, and descends on the other side if the plane is nearer than the best centre. The parent is pushed if it is not
on the stack yet. A table of flags for each point records the visited nodes. The host moves the centres to the mean of
their points and builds a new tree, until no point changes its cluster or the maximum number of rounds is reached.

Reference: Hegde, Liu, Sundararajah and Kulkarni, *Treelogy: A Benchmark Suite for Tree Traversals*, ISPASS 2017 (its
k-means with a kd-tree), and Kanungo et al., *An Efficient k-Means Clustering Algorithm*, IEEE TPAMI 24(7), 2002. Points
have 7 dimensions, as in the random inputs of that suite; ``full`` has 100 000 of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    Array,
    allocate,
    array,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    f32,
    gridDim,
    host,
    i32,
    i64,
    kernel,
    local,
    program,
    ptr,
    sqrt,
    struct,
    threadIdx,
    zeros,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIM = 7
BLOCK, STACK = 192, 64
FURTHEST = 3.4028234663852886e38

#: points, clusters, maximum number of rounds, blocks
SHAPES = {"tiny": (500, 12, 3, 2), "small": (20_000, 64, 10, 104), "full": (100_000, 256, 20, 128)}


@struct
class Point:
    """A point and its cluster."""

    cluster: i32
    coord: Array[f32] = array(f32, DIM)


@struct
class Node0:
    """The cluster whose centre is in the node, the axis of its plane (DIM in a leaf), and its parent."""

    cluster: i32
    axis: i32
    parent: i32


@struct
class Node1:
    """The centre."""

    coord: Array[f32] = array(f32, DIM)


@struct
class Node2:
    """Children, or -1."""

    left: i32
    right: i32


@kernel
def nearest_cluster(
    nodes0: const_ptr[Node0],
    nodes1: const_ptr[Node1],
    nodes2: const_ptr[Node2],
    visited: ptr[bool],
    points: ptr[Point],
    n: i32,
    clusters: i32,
) -> None:
    """The nearest centre of each point. ``visited`` has a flag for each point and centre."""
    stack = local(i32, STACK)
    pidx: i32 = blockIdx.x * blockDim.x + threadIdx.x
    while pidx < n:
        closest = points[pidx].cluster
        closest_dist: f32 = FURTHEST
        base = i64(pidx) * clusters
        for c in range(clusters):
            visited[base + c] = False
        stack[0] = -1
        stack[1] = 0
        sp: i32 = 1
        while sp >= 1:
            node = stack[sp]
            sp -= 1
            previous: i32 = -1
            while node != -1:
                axis = nodes0[node].axis
                if axis == DIM or points[pidx].coord[axis] <= nodes1[node].coord[axis]:
                    sp += 1
                    stack[sp] = node
                    node = nodes2[node].left
                else:
                    sp += 1
                    stack[sp] = node
                    node = nodes2[node].right
            while sp >= 1 and stack[sp] != -1:
                node = stack[sp]
                sp -= 1
                address = nodes0[node].cluster
                if not visited[base + address]:
                    visited[base + address] = True
                    dist: f32 = 0.0
                    for j in range(DIM):
                        dist += (points[pidx].coord[j] - nodes1[node].coord[j]) * (
                            points[pidx].coord[j] - nodes1[node].coord[j]
                        )
                    dist = sqrt(dist)
                    if dist < closest_dist:
                        closest_dist = dist
                        closest = nodes0[node].cluster
                    plane = nodes0[node].axis
                    if plane == DIM:
                        dist = 0.0
                    else:
                        dist = points[pidx].coord[plane] - nodes1[node].coord[plane]
                        if dist < 0.0:
                            dist = 0.0 - dist
                    if dist < closest_dist:
                        if nodes2[node].left == previous and nodes2[node].right != -1:
                            sp += 1
                            stack[sp] = nodes2[node].right
                            break
                        if nodes2[node].left != -1:
                            sp += 1
                            stack[sp] = nodes2[node].left
                            break
                previous = node
                if stack[sp] != nodes0[node].parent:
                    sp += 1
                    stack[sp] = nodes0[node].parent
        points[pidx].cluster = closest
        pidx += i32(blockDim.x * gridDim.x)


def move_centres(points: Any, centres: Any) -> None:
    """The mean of each cluster's points. Clusters without points do not move."""
    import numpy as np

    centres = centres.reshape(-1, DIM)
    counts = np.bincount(points["cluster"], minlength=len(centres))
    for axis in range(DIM):
        sums = np.bincount(points["cluster"], points["coord"][:, axis].astype(np.float64), minlength=len(centres))
        centres[:, axis] = np.where(counts, sums / np.maximum(counts, 1), centres[:, axis])


def build_tree(centres: Any, nodes0: Any, nodes1: Any, nodes2: Any) -> None:
    """A kd-tree of medians in preorder, with the axes in turn. Centres with a greater coordinate than the node are to
    its right."""
    import numpy as np

    centres = centres.reshape(-1, DIM)
    made = 0

    def build(chosen: NDArray[Any], depth: int, parent: int) -> int:
        nonlocal made
        if not chosen.size:
            return -1
        number, axis = made, depth % DIM
        made += 1
        chosen = chosen[np.argsort(centres[chosen, axis], kind="stable")]
        middle = len(chosen) // 2
        # The last one of equal coordinates, because points on the plane go left.
        line: NDArray[Any] = centres[chosen, axis]
        middle = int(np.count_nonzero(line <= line[middle])) - 1
        nodes0[number] = (chosen[middle], DIM if len(chosen) == 1 else axis, parent)
        nodes1["coord"][number] = centres[chosen[middle]]
        left = build(chosen[:middle], depth + 1, number)
        nodes2[number] = (left, build(chosen[middle + 1 :], depth + 1, number))
        return number

    everything: NDArray[Any] = np.arange(len(centres))
    build(everything, 0, -1)


def has_settled(points: Any, labels: Any) -> int:
    """Whether no label has changed. Stores the new labels."""
    same = int((labels == points["cluster"]).all())
    labels[:] = points["cluster"]
    return same


@program
def kmeans(
    points: host[Point], centres: host[f32], labels: host[i32], n: i32, clusters: i32, rounds: i32, blocks: i32
) -> None:
    gpu_points = allocate(Point, n)
    gpu_nodes0, gpu_nodes1, gpu_nodes2 = allocate(Node0, clusters), allocate(Node1, clusters), allocate(Node2, clusters)
    visited = allocate(bool, n * clusters)
    nodes0, nodes1, nodes2 = zeros(Node0, clusters), zeros(Node1, clusters), zeros(Node2, clusters)
    copy(gpu_points, points)
    for _ in range(rounds):
        build_tree(centres, nodes0, nodes1, nodes2)
        copy(gpu_nodes0, nodes0)
        copy(gpu_nodes1, nodes1)
        copy(gpu_nodes2, nodes2)
        nearest_cluster[blocks, BLOCK](gpu_nodes0, gpu_nodes1, gpu_nodes2, visited, gpu_points, n, clusters)
        copy(points, gpu_points)
        settled = has_settled(points, labels)
        if settled == 1:
            break
        move_centres(points, centres)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Points around as many places as there are clusters. The first centres are points."""
    import numpy as np

    from ...dsl import dtype_of

    n, clusters, rounds, blocks = SHAPES[size]
    numbers = np.random.default_rng(seed)
    places = numbers.random((clusters, DIM))
    points = np.zeros(n, dtype_of(Point))
    points["coord"] = places[numbers.integers(0, clusters, n)] + numbers.normal(0, 0.1, (n, DIM))
    return {
        "points": points,
        "centres": points["coord"][numbers.choice(n, clusters, replace=False)].ravel(),
        "labels": np.full(n, -1, np.int32),
        "n": n,
        "clusters": clusters,
        "rounds": rounds,
        "blocks": blocks,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Computes all distances."""
    import numpy as np

    points = data["points"]["coord"].astype(np.float64)
    centres = data["centres"].reshape(-1, DIM).astype(np.float64)
    labels = np.full(len(points), -1)
    for _ in range(data["rounds"]):
        squares = (centres**2).sum(axis=1)
        near = np.concatenate(
            [np.argmin(squares - 2 * part @ centres.T, axis=1) for part in np.array_split(points, 20)]
        )
        if (near == labels).all():
            break
        labels = near
        for c in np.unique(labels):
            centres[c] = points[labels == c].mean(axis=0)
    return {"labels": labels.astype(np.int32), "centres": centres.astype(np.float32).ravel()}


benchmark = Benchmark(
    suite="treelogy",
    name="kmeans",
    program=kmeans,
    make_data=make_data,
    reference=reference,
    stresses=("divergent traversal", "loads that loops and branches repeat", "stack in local memory", "early exits"),
    description="k-means with the centres in a kd-tree",
    # Rounding decides between centres at equal distance, and one point more or less moves a centre.
    tolerance={"labels": Tolerance(absolute=0.5, mismatches=0.005), "centres": Tolerance(1e-3, 1e-3, 0.02)},
    sizes={size: f"{s[0]} points, {s[1]} clusters, {s[2]} rounds" for size, s in SHAPES.items()},
)
