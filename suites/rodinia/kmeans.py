"""K-means clustering: each point joins the nearest of a few centres, which then move to the mean of their points.

One kernel transposes the points' features, so that neighbouring threads read neighbouring numbers. Another kernel finds
the nearest centre of each point in each round. The host computes the new centres, and stops when few enough points have
changed their centre.

Reference: Che et al., *Rodinia: A Benchmark Suite for Heterogeneous Computing*, IISWC 2009; its largest data are 494020
points of 34 features, in 5 clusters, with a threshold of 0.001 and at most 500 rounds. There the features are read
through a texture and the centres from constant memory; both are read-only pointers here. The points lie around more
places than there are clusters, and overlap.
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
    f32,
    host,
    i32,
    kernel,
    program,
    ptr,
    restrict,
    threadIdx,
    zeros,
)
from ..registry import Benchmark, Tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 256
THRESHOLD, ROUNDS = 0.001, 500

#: points, features, clusters
SHAPES = {"tiny": (600, 7, 5), "small": (20_000, 34, 5), "full": (494_020, 34, 5)}


@kernel
def invert_mapping(rows: const_ptr[f32], columns: ptr[f32], npoints: i32, nfeatures: i32) -> None:
    """Transpose: the row of each point becomes a column."""
    point: i32 = threadIdx.x + blockDim.x * blockIdx.x
    if point < npoints:
        for i in range(nfeatures):
            columns[point + npoints * i] = rows[point * nfeatures + i]


# The intrinsic replaces the texture. With either of them nvcc keeps the loops, which it would split for plain loads.
kmeans_point = cuda_source(
    """
extern "C" __global__ void kmeans_point(const float *features, int nfeatures, int npoints, int nclusters,
                                        int *membership, const float *__restrict__ clusters)
{
    const unsigned int block = gridDim.x * blockIdx.y + blockIdx.x;
    const unsigned int point = block * blockDim.x * blockDim.y + threadIdx.x;
    int nearest = -1;
    if (point < npoints) {
        float least = 3.40282347e+38f;
        for (int cluster = 0; cluster < nclusters; cluster++) {
            const int centre = cluster * nfeatures;
            float distance = 0.0f;
            for (int feature = 0; feature < nfeatures; feature++) {
                const int at = point + feature * npoints;
                const float difference = __ldg(&features[at]) - clusters[centre + feature];
                distance += difference * difference;
            }
            if (distance < least) {
                least = distance;
                nearest = cluster;
            }
        }
    }
    if (point < npoints) membership[point] = nearest;
}
""",
    "kmeans_point",
    params=[const_ptr[f32], i32, i32, i32, ptr[i32], restrict[const_ptr[f32]]],
)


def blocks_of_side(npoints: int) -> int:
    """The side of the smallest square grid of blocks with a thread for each point."""
    side = 1
    while side * side * BLOCK < npoints:
        side += 1
    return side


def move(points: Any, clusters: Any, before: Any, now: Any, nclusters: int) -> int:
    """Move centres to the mean of their points, and store each point's centre. The result is the number of points whose
    centre changed."""
    import numpy as np

    rows, centres = points.reshape(before.size, -1), clusters.reshape(nclusters, -1)
    changed = int(np.count_nonzero(now != before))
    before[:] = now
    for cluster in range(nclusters):
        own = rows[now == cluster]
        if len(own):
            # A running sum in single precision, like adding point by point.
            centres[cluster] = np.cumsum(own, axis=0, dtype=np.float32)[-1] / np.float32(len(own))
    return changed


@program
def kmeans(
    points: host[f32],
    clusters: host[f32],
    membership: host[i32],
    npoints: i32,
    nfeatures: i32,
    nclusters: i32,
    threshold: f32,
    most_rounds: i32,
) -> None:
    side = blocks_of_side(npoints)
    flipped, features = allocate(f32, npoints * nfeatures), allocate(f32, npoints * nfeatures)
    d_membership, d_clusters = allocate(i32, npoints), allocate(f32, nclusters * nfeatures)
    copy(flipped, points)
    invert_mapping[side * side, BLOCK](flipped, features, npoints, nfeatures)
    now = zeros(i32, npoints)
    rounds = 0
    changed = npoints
    while changed > threshold and rounds <= most_rounds:
        copy(d_membership, now)
        copy(d_clusters, clusters)
        kmeans_point[(side, side), BLOCK](features, nfeatures, npoints, nclusters, d_membership, d_clusters)
        copy(now, d_membership)
        changed = move(points, clusters, membership, now, nclusters)
        rounds += 1


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    npoints, nfeatures, nclusters = SHAPES[size]
    numbers = np.random.default_rng(seed)
    middles = numbers.uniform(0, 2, (3 * nclusters, nfeatures))
    points = middles[numbers.integers(0, 3 * nclusters, npoints)] + numbers.normal(0, 0.3, (npoints, nfeatures))
    points = points.astype(np.float32)
    return {
        "points": points.ravel(),
        # The first points are the first centres.
        "clusters": points[:nclusters].ravel(),
        "membership": np.full(npoints, -1, np.int32),
        "npoints": npoints,
        "nfeatures": nfeatures,
        "nclusters": nclusters,
        "threshold": THRESHOLD,
        "most_rounds": ROUNDS,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Computes in double precision, with distances from matrix products."""
    import numpy as np

    points: NDArray[np.float64] = data["points"].reshape(data["npoints"], -1).astype(np.float64)
    centres: NDArray[np.float64] = data["clusters"].reshape(data["nclusters"], -1).astype(np.float64)
    nearest: NDArray[np.int64] = np.full(len(points), -1, np.int64)
    for _ in range(data["most_rounds"] + 1):
        before = nearest
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * points @ centres.T, axis=1)
        members = nearest[:, None] == np.arange(len(centres))
        count = members.sum(axis=0)[:, None]
        centres = np.where(count > 0, members.T.astype(np.float64) @ points / np.maximum(count, 1), centres)
        if np.array_equal(before, nearest):
            break
    return {"clusters": centres.ravel().astype(np.float32), "membership": nearest.astype(np.int32)}


benchmark = Benchmark(
    suite="rodinia",
    name="kmeans",
    program=kmeans,
    make_data=make_data,
    reference=reference,
    stresses=("nested loops", "divergent branches", "launches in a loop", "results read back in a loop"),
    description="k-means clustering of points",
    tolerance={"clusters": Tolerance(relative=1e-3, absolute=1e-3), "membership": Tolerance(mismatches=1e-3)},
    sizes={size: f"{n} points, {features} features, {k} clusters" for size, (n, features, k) in SHAPES.items()},
)
