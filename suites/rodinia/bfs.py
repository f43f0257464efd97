"""Breadth-first search of a graph, level by level, with masks instead of queues.

A thread handles a node. The first kernel expands the nodes of the frontier: each neighbour that was not visited gets
its cost and is marked. The second kernel makes the marked nodes the next frontier, and sets a flag. The host reads the
flag after each level to decide whether there is another level. Several threads may write the same mark, with equal
values.

References: Harish and Narayanan, *Accelerating Large Graph Algorithms on the GPU Using CUDA*, HiPC 2007; Che et al.,
*Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009. Rodinia's graphs have up to a million nodes, each
with a few random edges in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    blockIdx,
    const_ptr,
    copy,
    dtype_of,
    host,
    i32,
    kernel,
    program,
    ptr,
    read,
    struct,
    threadIdx,
    write,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 512

#: nodes
SHAPES = {"tiny": 2000, "small": 65_536, "full": 1_000_000}
#: The number of random edges of each node (least, greatest). Each edge leads in both directions.
DRAWN = (2, 4)


@struct
class Node:
    """The position of a node's edges in the list of edges."""

    starting: i32
    no_of_edges: i32


@kernel
def expand(
    nodes: const_ptr[Node],
    edges: const_ptr[i32],
    mask: ptr[bool],
    updating: ptr[bool],
    visited: const_ptr[bool],
    cost: ptr[i32],
    n: i32,
) -> None:
    """Give the unvisited neighbours of the frontier ``mask`` their cost, and mark them in ``updating``."""
    node: i32 = blockIdx.x * BLOCK + threadIdx.x
    if node < n and mask[node]:
        mask[node] = False
        i = nodes[node].starting
        # The bound is loaded again in each iteration, because the stores below might change it.
        while i < nodes[node].no_of_edges + nodes[node].starting:
            neighbour = edges[i]
            if not visited[neighbour]:
                cost[neighbour] = cost[node] + 1
                updating[neighbour] = True
            i += 1


@kernel
def advance(mask: ptr[bool], updating: ptr[bool], visited: ptr[bool], over: ptr[bool], n: i32) -> None:
    """Make the marked nodes the frontier. ``over`` is set if there are any."""
    node: i32 = blockIdx.x * BLOCK + threadIdx.x
    if node < n and updating[node]:
        mask[node] = True
        visited[node] = True
        over[0] = True
        updating[node] = False


@program
def bfs(
    nodes: host[Node], edges: host[i32], frontier: host[bool], unmarked: host[bool], costs: host[i32], n: i32, m: i32
) -> None:
    d_nodes, d_edges = allocate(Node, n), allocate(i32, m)
    mask, updating, visited = allocate(bool, n), allocate(bool, n), allocate(bool, n)
    cost, over = allocate(i32, n), allocate(bool, 1)
    copy(d_nodes, nodes)
    copy(d_edges, edges)
    copy(mask, frontier)
    copy(updating, unmarked)
    copy(visited, frontier)
    copy(cost, costs)
    blocks = (n + BLOCK - 1) // BLOCK
    again = True
    while again:
        write(over, 0, False)
        expand[blocks, BLOCK](d_nodes, d_edges, mask, updating, visited, cost, n)
        advance[blocks, BLOCK](mask, updating, visited, over, n)
        again = read(over, 0)
    copy(costs, cost)


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    n = SHAPES[size]
    numbers = np.random.default_rng(seed)
    source = np.repeat(np.arange(n), numbers.integers(DRAWN[0], DRAWN[1] + 1, n))
    target = numbers.integers(0, n, source.size)
    source, target = np.concatenate((source, target)), np.concatenate((target, source))
    order = np.argsort(source, kind="stable")
    count = np.bincount(source, minlength=n)
    nodes = np.zeros(n, dtype_of(Node))
    nodes["starting"] = np.cumsum(count) - count
    nodes["no_of_edges"] = count
    costs = np.full(n, -1, np.int32)
    costs[0] = 0
    return {
        "nodes": nodes,
        "edges": target[order].astype(np.int32),
        "frontier": np.arange(n) == 0,
        "unmarked": np.zeros(n, bool),
        "costs": costs,
        "n": n,
        "m": order.size,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    nodes, edges = data["nodes"], data["edges"]
    n: int = data["n"]
    source = np.repeat(np.arange(n), nodes["no_of_edges"])
    distance = np.full(n, -1, np.int32)
    distance[0] = 0
    level = 0
    while np.any(distance == level):
        reached = edges[distance[source] == level]
        distance[reached[distance[reached] < 0]] = level + 1
        level += 1
    return {"costs": distance}


benchmark = Benchmark(
    suite="rodinia",
    name="bfs",
    program=bfs,
    make_data=make_data,
    reference=reference,
    stresses=("loads re-read in a loop with stores", "divergent branches", "irregular access", "flag read back"),
    description="breadth-first search of a graph with masks, level by level",
    sizes={size: f"{n} nodes" for size, n in SHAPES.items()},
)
