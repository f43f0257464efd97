"""Queries on a B+ tree: single keys, and ranges of keys. A block handles a query, a thread a key of the current node.

On each level, the thread for which the query is between its key and the next one stores the child's number in global
memory. After a barrier thread 0 makes it the current node. After another barrier all threads read the tree's arrays
again. At the leaf, the thread whose key is equal stores the answer. The range kernel descends with both ends of the
range at once.

Reference: Fix, Wilkes and Skadron, *Accelerating Braided B+ Tree Searches on a GPU with CUDA*, A4MMC 2011. The size
``full`` is that of Rodinia: a million keys, up to 256 children, 6000 ranges of 3000 keys and 10000 single keys. Random
insertions leave nodes about two thirds full; this tree is built in that way from sorted keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    Array,
    allocate,
    array,
    blockIdx,
    const_ptr,
    copy,
    dtype_of,
    fill,
    host,
    i32,
    i64,
    kernel,
    program,
    ptr,
    struct,
    syncthreads,
    threadIdx,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORDER = 256
LOWEST, HIGHEST = -(2**31), 2**31 - 1

#: keys, keys per node, range queries, keys per range, single queries
SHAPES = {
    "tiny": (1000, 12, 6, 90, 8),
    "small": (50_000, 60, 500, 300, 1000),
    "full": (1_000_000, 176, 6000, 3000, 10_000),
}


@struct
class Record:
    """The value of a key."""

    value: i32


@struct
class KNode:
    """A node. Child ``i`` contains the keys from ``keys[i]`` on that are less than ``keys[i + 1]``.

    In a leaf, ``indices[i]`` is the number of the record of ``keys[i]``. The first key is the least number, and the
    last keys are the greatest number.
    """

    location: i32
    indices: Array[i32] = array(i32, ORDER + 1)
    keys: Array[i32] = array(i32, ORDER + 1)
    is_leaf: bool  # pyright: ignore[reportGeneralTypeIssues] (arrays are no defaults)
    num_keys: i32  # pyright: ignore[reportGeneralTypeIssues]


@kernel
def find_k(
    height: i64,
    knodes: const_ptr[KNode],
    knodes_elem: i64,
    records: const_ptr[Record],
    curr_knode: ptr[i64],
    offset: ptr[i64],
    keys: const_ptr[i32],
    ans: ptr[Record],
) -> None:
    """The record of ``keys[block]``, if the tree contains it. ``curr_knode`` and ``offset`` hold each block's current
    node."""
    thid: i32 = threadIdx.x
    bid: i32 = blockIdx.x
    level: i32 = 0
    while level < height:
        if (
            knodes[curr_knode[bid]].keys[thid] <= keys[bid]
            and knodes[curr_knode[bid]].keys[thid + 1] > keys[bid]
            and knodes[offset[bid]].indices[thid] < knodes_elem
        ):
            offset[bid] = knodes[offset[bid]].indices[thid]
        syncthreads()
        if thid == 0:
            curr_knode[bid] = offset[bid]
        syncthreads()
        level += 1
    if knodes[curr_knode[bid]].keys[thid] == keys[bid]:
        ans[bid].value = records[knodes[curr_knode[bid]].indices[thid]].value


@kernel
def find_range_k(
    height: i64,
    knodes: const_ptr[KNode],
    knodes_elem: i64,
    curr_knode: ptr[i64],
    offset: ptr[i64],
    last_knode: ptr[i64],
    offset_2: ptr[i64],
    start: const_ptr[i32],
    end: const_ptr[i32],
    rec_start: ptr[i32],
    rec_len: ptr[i32],
) -> None:
    """The first record from ``start[block]`` to ``end[block]`` and the number of records, if the tree contains both
    ends."""
    thid: i32 = threadIdx.x
    bid: i32 = blockIdx.x
    level: i32 = 0
    while level < height:
        if (
            knodes[curr_knode[bid]].keys[thid] <= start[bid]
            and knodes[curr_knode[bid]].keys[thid + 1] > start[bid]
            and knodes[curr_knode[bid]].indices[thid] < knodes_elem
        ):
            offset[bid] = knodes[curr_knode[bid]].indices[thid]
        if (
            knodes[last_knode[bid]].keys[thid] <= end[bid]
            and knodes[last_knode[bid]].keys[thid + 1] > end[bid]
            and knodes[last_knode[bid]].indices[thid] < knodes_elem
        ):
            offset_2[bid] = knodes[last_knode[bid]].indices[thid]
        syncthreads()
        if thid == 0:
            curr_knode[bid] = offset[bid]
            last_knode[bid] = offset_2[bid]
        syncthreads()
        level += 1
    if knodes[curr_knode[bid]].keys[thid] == start[bid]:
        rec_start[bid] = knodes[curr_knode[bid]].indices[thid]
    syncthreads()
    if knodes[last_knode[bid]].keys[thid] == end[bid]:
        rec_len[bid] = knodes[last_knode[bid]].indices[thid] - rec_start[bid] + 1


@program
def btree(
    height: i32,
    knodes: host[KNode],
    records: host[Record],
    start: host[i32],
    end: host[i32],
    keys: host[i32],
    rec_start: host[i32],
    rec_len: host[i32],
    ans: host[Record],
    nodes: i32,
    values: i32,
    ranges: i32,
    singles: i32,
) -> None:
    d_knodes, d_records = allocate(KNode, nodes), allocate(Record, values)
    copy(d_knodes, knodes)
    copy(d_records, records)

    first, first_offset = allocate(i64, ranges), allocate(i64, ranges)
    last, last_offset = allocate(i64, ranges), allocate(i64, ranges)
    d_start, d_end = allocate(i32, ranges), allocate(i32, ranges)
    d_rec_start, d_rec_len = allocate(i32, ranges), allocate(i32, ranges)
    fill(first, 0)
    fill(first_offset, 0)
    fill(last, 0)
    fill(last_offset, 0)
    copy(d_start, start)
    copy(d_end, end)
    copy(d_rec_start, rec_start)
    copy(d_rec_len, rec_len)
    find_range_k[ranges, ORDER](
        height, d_knodes, nodes, first, first_offset, last, last_offset, d_start, d_end, d_rec_start, d_rec_len
    )
    copy(rec_start, d_rec_start)
    copy(rec_len, d_rec_len)

    current, offset = allocate(i64, singles), allocate(i64, singles)
    d_keys, d_ans = allocate(i32, singles), allocate(Record, singles)
    fill(current, 0)
    fill(offset, 0)
    copy(d_keys, keys)
    copy(d_ans, ans)
    find_k[singles, ORDER](height, d_knodes, nodes, d_records, current, offset, d_keys, d_ans)
    copy(ans, d_ans)


def build(keys: NDArray[Any], per_node: int) -> tuple[NDArray[Any], int]:
    """The nodes in breadth-first order, root first, over the sorted ``keys``; and the number of steps from root to
    leaf."""
    import numpy as np

    levels = [keys]  # by level, from the leaves' records up: the least key below each node
    while levels[-1].size > 1:
        levels.append(levels[-1][::per_node])
    sizes = [level.size for level in levels[:0:-1]]
    starts = np.cumsum([0, *sizes])
    knodes = np.zeros(starts[-1], dtype_of(KNode))
    knodes["location"] = np.arange(knodes.size)
    knodes["keys"] = HIGHEST
    knodes["keys"][:, 0] = LOWEST
    for depth, (size, below) in enumerate(zip(sizes, levels[-2::-1], strict=True)):
        is_leaf = depth == len(sizes) - 1
        children, number = np.divmod(np.arange(below.size), per_node)
        children += starts[depth]
        knodes["is_leaf"][starts[depth] : starts[depth] + size] = is_leaf
        # The records of a leaf begin at position 1. The first child of an inner node also takes all smaller keys.
        if is_leaf:
            knodes["indices"][children, number + 1] = np.arange(below.size)
            knodes["keys"][children, number + 1] = below
        else:
            knodes["indices"][children, number] = starts[depth + 1] + np.arange(below.size)
            knodes["keys"][children, number] = np.where(number == 0, LOWEST, below)
    knodes["num_keys"] = (knodes["keys"] != HIGHEST).sum(axis=1) + 1
    return knodes, len(sizes) - 1


def make_data(size: str, seed: int) -> dict[str, Any]:
    import numpy as np

    count, per_node, ranges, span, singles = SHAPES[size]
    numbers = np.random.default_rng(seed)
    # Some keys are missing, so not every query has an answer.
    sorted_keys = np.sort(numbers.permutation(count + count // 50)[:count]).astype(np.int32)
    knodes, height = build(sorted_keys, per_node)
    records = np.zeros(count, dtype_of(Record))
    records["value"] = numbers.integers(0, 2**31, count)
    start = numbers.integers(0, count - span, ranges).astype(np.int32)
    return {
        "height": height,
        "knodes": knodes,
        "records": records,
        "start": start,
        "end": start + np.int32(span),
        "keys": numbers.integers(0, count, singles).astype(np.int32),
        "rec_start": np.zeros(ranges, np.int32),
        "rec_len": np.zeros(ranges, np.int32),
        "ans": np.full(singles, -1, np.int32).view(records.dtype),
        "nodes": knodes.size,
        "values": count,
        "ranges": ranges,
        "singles": singles,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    leaves = data["knodes"][data["knodes"]["is_leaf"]]
    stored = leaves["keys"].ravel()
    stored = stored[(stored != LOWEST) & (stored != HIGHEST)]

    def places(wanted: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        at = np.searchsorted(stored, wanted)
        return at, stored[np.minimum(at, stored.size - 1)] == wanted

    first, has_first = places(data["start"])
    last, has_last = places(data["end"])
    rec_start = np.where(has_first, first, 0)
    at, is_there = places(data["keys"])
    values = np.where(is_there, data["records"]["value"][np.minimum(at, stored.size - 1)], -1)
    return {
        "rec_start": rec_start.astype(np.int32),
        "rec_len": np.where(has_last, last - rec_start + 1, 0).astype(np.int32),
        "ans": values.astype(np.int32).view(data["ans"].dtype),
    }


benchmark = Benchmark(
    suite="rodinia",
    name="b+tree",
    program=btree,
    make_data=make_data,
    reference=reference,
    stresses=("loads re-read in a loop with stores and barriers", "divergent branches", "pointer chasing"),
    description="queries for keys and for ranges of keys on a B+ tree",
    sizes={size: f"{s[0]} keys, {s[2]} ranges, {s[4]} single keys" for size, s in SHAPES.items()},
)
