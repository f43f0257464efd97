"""The 8 nearest neighbours of each query in a kd-tree. A thread handles a query and has a stack of unvisited subtrees.

A subtree is popped together with the distance of its plane, and skipped if 8 neighbours are nearer. A node contains a
point. A point that is nearer than the furthest neighbour replaces it and moves to its rank by exchanges. The side of
the plane that contains the query is pushed last, so it is visited first.

Reference: Hegde, Liu, Sundararajah and Kulkarni, *Treelogy: A Benchmark Suite for Tree Traversals*, ISPASS 2017 (its
k-nearest neighbours with a kd-tree, in 7 dimensions); Friedman, Bentley and Finkel, *An Algorithm for Finding Best
Matches in Logarithmic Expected Time*, ACM TOMS 3(3), 1977. ``full`` has 100 000 points and as many queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    Array,
    allocate,
    array,
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
    struct,
    threadIdx,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIM, K = 7, 8
STACK = 64
FURTHEST = 3.4028234663852886e38

#: points, queries, blocks, threads per block
SHAPES = {"tiny": (150, 80, 1, 64), "small": (20_000, 20_000, 104, 192), "full": (100_000, 100_000, 521, 192)}


@struct
class Node0:
    """The axis of a node's plane, and its point."""

    axis: i32
    coord: Array[f32] = array(f32, DIM)


@struct
class Node1:
    """Children (-1 for none), and the point's number."""

    left: i32
    right: i32
    index: i32


@struct
class Query:
    """A point."""

    coord: Array[f32] = array(f32, DIM)


@kernel
def k_nearest_neighbor_search(
    nodes0: const_ptr[Node0],
    nodes1: const_ptr[Node1],
    queries: const_ptr[Query],
    count: i32,
    distances: ptr[f32],
    indices: ptr[i32],
) -> None:
    """Squared ``distances`` and ``indices`` of the K nearest points, the furthest first."""
    place = local(f32, DIM)
    nearest = local(f32, K)
    numbers = local(i32, K)
    stack_node = local(i32, STACK)
    stack_dist = local(f32, STACK)
    pidx: i32 = blockIdx.x * blockDim.x + threadIdx.x
    while pidx < count:
        for j in range(DIM):
            place[j] = queries[pidx].coord[j]
        for m in range(K):
            nearest[m] = FURTHEST
            numbers[m] = -1
        stack_node[1] = 0
        stack_dist[1] = 0.0
        sp: i32 = 1
        while sp >= 1:
            node = stack_node[sp]
            plane_dist = stack_dist[sp]
            sp -= 1
            if plane_dist < nearest[0]:
                dist: f32 = 0.0
                for d in range(DIM):
                    dist += (place[d] - nodes0[node].coord[d]) * (place[d] - nodes0[node].coord[d])
                if dist < nearest[0]:
                    nearest[0] = dist
                    numbers[0] = nodes1[node].index
                    n: i32 = 0
                    while n < K - 1 and nearest[n] < nearest[n + 1]:
                        kept_dist = nearest[n]
                        kept_number = numbers[n]
                        nearest[n] = nearest[n + 1]
                        numbers[n] = numbers[n + 1]
                        nearest[n + 1] = kept_dist
                        numbers[n + 1] = kept_number
                        n += 1
                axis = nodes0[node].axis
                offset = place[axis] - nodes0[node].coord[axis]
                if place[axis] <= nodes0[node].coord[axis]:
                    if nodes1[node].right != -1:
                        sp += 1
                        stack_node[sp] = nodes1[node].right
                        stack_dist[sp] = offset * offset
                    if nodes1[node].left != -1:
                        sp += 1
                        stack_node[sp] = nodes1[node].left
                        stack_dist[sp] = 0.0
                else:
                    if nodes1[node].left != -1:
                        sp += 1
                        stack_node[sp] = nodes1[node].left
                        stack_dist[sp] = offset * offset
                    if nodes1[node].right != -1:
                        sp += 1
                        stack_node[sp] = nodes1[node].right
                        stack_dist[sp] = 0.0
        for out in range(K):
            distances[pidx * K + out] = nearest[out]
            indices[pidx * K + out] = numbers[out]
        pidx += i32(blockDim.x * gridDim.x)


@program
def knearestneighbor(
    nodes0: host[Node0],
    nodes1: host[Node1],
    queries: host[Query],
    distances: host[f32],
    indices: host[i32],
    n: i32,
    count: i32,
    blocks: i32,
    threads: i32,
) -> None:
    gpu_nodes0, gpu_nodes1 = allocate(Node0, n), allocate(Node1, n)
    gpu_queries = allocate(Query, count)
    gpu_distances, gpu_indices = allocate(f32, K * count), allocate(i32, K * count)
    copy(gpu_nodes0, nodes0)
    copy(gpu_nodes1, nodes1)
    copy(gpu_queries, queries)
    k_nearest_neighbor_search[blocks, threads](gpu_nodes0, gpu_nodes1, gpu_queries, count, gpu_distances, gpu_indices)
    copy(distances, gpu_distances)
    copy(indices, gpu_indices)


def kd_tree(points: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Nodes of the median along each axis in turn, in preorder."""
    import numpy as np

    nodes0, nodes1 = np.zeros(len(points), dtype_of(Node0)), np.zeros(len(points), dtype_of(Node1))
    made = 0

    def build(chosen: NDArray[Any], depth: int) -> int:
        nonlocal made
        if not chosen.size:
            return -1
        number, axis = made, depth % DIM
        made += 1
        chosen = chosen[np.argsort(points[chosen, axis], kind="stable")]
        middle = len(chosen) // 2
        nodes0[number] = (axis, points[chosen[middle]])
        left = build(chosen[:middle], depth + 1)
        nodes1[number] = (left, build(chosen[middle + 1 :], depth + 1), chosen[middle])
        return number

    build(np.arange(len(points)), 0)
    return nodes0, nodes1


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Uniformly distributed points, and queries without any order."""
    import numpy as np

    n, count, blocks, threads = SHAPES[size]
    numbers = np.random.default_rng(seed)
    nodes0, nodes1 = kd_tree(numbers.random((n, DIM), np.float32))
    queries = np.zeros(count, dtype_of(Query))
    queries["coord"] = numbers.random((count, DIM), np.float32)
    return {
        "nodes0": nodes0,
        "nodes1": nodes1,
        "queries": queries,
        "distances": np.zeros(K * count, np.float32),
        "indices": np.zeros(K * count, np.int32),
        "n": n,
        "count": count,
        "blocks": blocks,
        "threads": threads,
    }


def boxes(points: NDArray[Any], most: int) -> Iterator[NDArray[Any]]:
    """Groups of neighbouring points, by number: halved along the longest side of their box."""
    import numpy as np

    waiting = [np.arange(len(points))]
    while waiting:
        inside = waiting.pop()
        if len(inside) <= most:
            yield inside
            continue
        axis = np.ptp(points[inside], axis=0).argmax()
        waiting += np.array_split(inside[np.argpartition(points[inside, axis], len(inside) // 2)], 2)


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """All distances except those to boxes of points that are further away than K others.

    The distances of the K nearest of some points are bounds for the K nearest of all points.
    """
    import numpy as np

    points = data["nodes0"]["coord"][np.argsort(data["nodes1"]["index"])].astype(np.float64)
    queries = data["queries"]["coord"].astype(np.float64)
    squares, own = (points**2).sum(axis=1), (queries**2).sum(axis=1)
    some = np.random.default_rng(0).permutation(len(points))[: max(K, min(len(points) // 8, 4000))]
    parts = np.array_split(queries, -(-len(queries) // 500))
    kth = [np.partition(squares[some] - 2 * part @ points[some].T, K - 1)[:, K - 1] for part in parts]
    # Without the square of the query, which does not change the order. The tolerance is for rounding.
    bound = np.concatenate(kth) + 1e-9
    pairs: list[NDArray[Any]] = []
    for inside in boxes(points, 64):
        low, high = points[inside].min(axis=0), points[inside].max(axis=0)
        gap = (np.maximum(np.maximum(low - queries, queries - high), 0) ** 2).sum(axis=1)
        rows = np.flatnonzero(gap - own <= bound)
        away = squares[inside] - 2 * queries[rows] @ points[inside].T
        row, column = np.divmod(np.flatnonzero(away <= bound[rows, None]), len(inside))
        pairs.append(np.stack([rows[row], inside[column]]))
    query, point = np.concatenate(pairs, axis=1)
    order = np.lexsort((((queries[query] - points[point]) ** 2).sum(axis=1), query))
    starts = np.searchsorted(query[order], np.arange(len(queries)))
    indices = point[order][starts[:, None] + np.arange(K - 1, -1, -1)]
    distances = ((queries[:, None] - points[indices]) ** 2).sum(axis=2)
    return {"distances": distances.astype(np.float32).ravel(), "indices": indices.astype(np.int32).ravel()}


benchmark = Benchmark(
    suite="treelogy",
    name="knearestneighbor",
    program=knearestneighbor,
    make_data=make_data,
    reference=reference,
    stresses=("divergent traversal", "stacks in local memory", "loads that branches repeat", "insertion by exchanges"),
    description="8 nearest neighbours in a kd-tree",
    # Rounding decides between points at equal distance.
    tolerance={"distances": Tolerance(1e-4, 1e-6), "indices": Tolerance(absolute=0.5, mismatches=0.002)},
    sizes={size: f"{s[0]} points, {s[1]} queries" for size, s in SHAPES.items()},
)
