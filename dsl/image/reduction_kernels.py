"""The kernels of global operators: templates of the kernel language.

One launch reduces a whole image. The pixels are divided into contiguous ranges, one for each block. A thread combines
the pixels that it loads in registers, a block combines its threads by shuffles and one array in shared memory, and the
block that ends last combines the values of all blocks. What is combined with what depends on the number of pixels and
on the sizes of block and grid only. So the result is the same in every run.

The names in capitals that start with ``REDUCE_`` are parameters of the templates: `reduction.py` replaces them by
types, functions and numbers. The values here only let a type checker read the kernels.

Source: B. Qiao's thesis, §5.5: grid of few blocks, combining while loading, vector loads, shuffles, one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .. import (
    addr,
    atomic_add,
    atomic_inc,
    blockIdx,
    const_ptr,
    device,
    f32,
    gridDim,
    i32,
    i64,
    kernel,
    local,
    pointer_cast,
    ptr,
    shared,
    shfl_down_sync,
    syncthreads,
    threadfence,
    threadIdx,
    u32,
    uint4,
    unroll,
)

__all__ = [
    "histogram_of_pixels",
    "identity_number",
    "move_narrow",
    "move_number",
    "move_words",
    "pixel_converted",
    "pixel_itself",
    "reduce_in_order",
    "reduce_in_strides",
    "value_itself",
]

if TYPE_CHECKING:
    REDUCE_PIXEL: TypeAlias = Any
    REDUCE_VALUE: TypeAlias = Any
    REDUCE_RESULT: TypeAlias = Any
    REDUCE_WORD: TypeAlias = Any
    REDUCE_WIDE: TypeAlias = Any

    def REDUCE_identity() -> Any: ...
    def REDUCE_lift(pixel: Any) -> Any: ...
    def REDUCE_combine(left: Any, right: Any) -> Any: ...
    def REDUCE_finish(value: Any, pixels: int) -> Any: ...
    def REDUCE_move(value: Any, lanes: int) -> Any: ...
    def REDUCE_bin(pixel: Any) -> int: ...
else:
    REDUCE_PIXEL = REDUCE_VALUE = REDUCE_RESULT = REDUCE_WIDE = f32
    REDUCE_WORD = uint4
    REDUCE_identity = REDUCE_lift = REDUCE_combine = REDUCE_finish = REDUCE_move = REDUCE_bin = None

REDUCE_IDENTITY = 0.0
#: Threads of a block, and its warps.
REDUCE_BLOCK = 256
REDUCE_WARPS = 8
#: Pixels of a word, and words that a thread loads before it combines them.
REDUCE_PER = 4
REDUCE_UNROLL = 4
#: 32-bit parts of a value.
REDUCE_PARTS = 1
REDUCE_BINS = 256
REDUCE_COPIES = 8


# --- pixels and values -------------------------------------------------------------------------------------------


@device(inline=True)
def pixel_itself(pixel: REDUCE_PIXEL) -> REDUCE_PIXEL:
    """The value of a pixel whose type is that of values."""
    return pixel


@device(inline=True)
def pixel_converted(pixel: REDUCE_PIXEL) -> REDUCE_VALUE:
    """A number as a number of another type."""
    return REDUCE_VALUE(pixel)


@device(inline=True)
def value_itself(value: REDUCE_VALUE, pixels: i64) -> REDUCE_VALUE:
    """The result of a reduction without `finish`."""
    return value


@device(inline=True)
def identity_number() -> REDUCE_VALUE:
    """The identity of an operator on numbers."""
    return REDUCE_VALUE(REDUCE_IDENTITY)


@device(inline=True)
def move_number(value: REDUCE_VALUE, lanes: i32) -> REDUCE_VALUE:
    """The value of the lane that is ``lanes`` higher, for numbers of 32 and 64 bits."""
    return shfl_down_sync(0xFFFFFFFF, value, lanes)


@device(inline=True)
def move_narrow(value: REDUCE_VALUE, lanes: i32) -> REDUCE_VALUE:
    """The same for numbers of 8 and 16 bits. REDUCE_WIDE has all their values."""
    return REDUCE_VALUE(shfl_down_sync(0xFFFFFFFF, REDUCE_WIDE(value), lanes))


@device(inline=True)
def move_words(value: REDUCE_VALUE, lanes: i32) -> REDUCE_VALUE:
    """The same for structs whose size is a multiple of 4 bytes."""
    moved = value
    for part in unroll(range(REDUCE_PARTS)):
        word = pointer_cast(u32, addr(value))[part]
        pointer_cast(u32, addr(moved))[part] = shfl_down_sync(0xFFFFFFFF, word, lanes)
    return moved


# --- one block ---------------------------------------------------------------------------------------------------


@device(inline=True)
def reduce_warp(value: REDUCE_VALUE) -> REDUCE_VALUE:
    """The values of a warp combined in the order of the lanes. The result is right in lane 0."""
    for step in unroll(range(5)):
        value = REDUCE_combine(value, REDUCE_move(value, 1 << step))
    return value


@device(inline=True)
def reduce_block(value: REDUCE_VALUE) -> REDUCE_VALUE:
    """The values of a block combined in the order of the threads. The result is right in thread 0. It has two
    barriers; all threads call it."""
    warps = shared(REDUCE_VALUE, REDUCE_WARPS)
    thread: i32 = threadIdx.x
    value = reduce_warp(value)
    syncthreads()  # the last call may still read `warps`
    if thread % 32 == 0:
        warps[thread // 32] = value
    syncthreads()
    if thread < 32:
        value = REDUCE_identity()
        if thread < REDUCE_WARPS:
            value = warps[thread]
        value = reduce_warp(value)
    return value


@device(inline=True)
def reduce_grid(
    value: REDUCE_VALUE, pixels: i64, partial: ptr[REDUCE_VALUE], counter: ptr[u32], result: ptr[REDUCE_RESULT]
) -> None:
    """Combine the values of thread 0 of all blocks, in the order of the blocks, and store the result.

    ``counter`` is 0 before and after. ``partial`` has one element for each block.
    """
    last = shared(i32, 1)
    thread: i32 = threadIdx.x
    if gridDim.x == 1:
        if thread == 0:
            result[0] = REDUCE_finish(value, pixels)
        return
    if thread == 0:
        partial[blockIdx.x] = value
        threadfence()
        last[0] = i32(atomic_inc(counter, gridDim.x - 1) == gridDim.x - 1)
        threadfence()
    syncthreads()
    if last[0] == 0:
        return
    blocks: i32 = gridDim.x
    each = (blocks + REDUCE_BLOCK - 1) // REDUCE_BLOCK
    total = REDUCE_identity()
    for i in range(thread * each, min((thread + 1) * each, blocks)):
        total = REDUCE_combine(total, partial[i])
    total = reduce_block(total)
    if thread == 0:
        result[0] = REDUCE_finish(total, pixels)


# --- kernels -----------------------------------------------------------------------------------------------------


@kernel
def reduce_in_strides(
    pixels: i64,
    head: i32,
    source: const_ptr[REDUCE_PIXEL],
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """Reduce ``pixels`` pixels with a commutative operator. The first ``head`` pixels lie before the first whole word.

    The words of a block's range are loaded so that neighbouring threads load neighbouring words.
    """
    thread: i32 = threadIdx.x
    whole: i64 = (pixels - head) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source + head)
    each: i64 = (whole + gridDim.x - 1) // gridDim.x
    at: i64 = blockIdx.x * each
    end: i64 = min(at + each, whole)
    at += thread
    total = REDUCE_identity()
    chunk = local(REDUCE_WORD, REDUCE_UNROLL)
    while at + (REDUCE_UNROLL - 1) * REDUCE_BLOCK < end:
        for u in unroll(range(REDUCE_UNROLL)):
            chunk[u] = words[at + u * REDUCE_BLOCK]
        for u in unroll(range(REDUCE_UNROLL)):
            for i in unroll(range(REDUCE_PER)):
                total = REDUCE_combine(total, REDUCE_lift(pointer_cast(REDUCE_PIXEL, addr(chunk[u]))[i]))
        at += REDUCE_UNROLL * REDUCE_BLOCK
    for u in unroll(range(REDUCE_UNROLL - 1)):
        if at + u * REDUCE_BLOCK < end:
            chunk[u] = words[at + u * REDUCE_BLOCK]
    for u in unroll(range(REDUCE_UNROLL - 1)):
        if at + u * REDUCE_BLOCK < end:
            for i in unroll(range(REDUCE_PER)):
                total = REDUCE_combine(total, REDUCE_lift(pointer_cast(REDUCE_PIXEL, addr(chunk[u]))[i]))
    if blockIdx.x == 0:
        rest = whole * REDUCE_PER + head
        if thread < head:
            total = REDUCE_combine(total, REDUCE_lift(source[thread]))
        if rest + thread < pixels:
            total = REDUCE_combine(total, REDUCE_lift(source[rest + thread]))
    reduce_grid(reduce_block(total), pixels, partial, counter, result)


@kernel
def reduce_in_order(
    pixels: i64,
    head: i32,
    source: const_ptr[REDUCE_PIXEL],
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """The same for an operator that is associative but not commutative: pixels are combined row by row, from left to
    right. A thread loads consecutive words, and a block combines its threads once for each tile."""
    thread: i32 = threadIdx.x
    tile = REDUCE_BLOCK * REDUCE_UNROLL
    whole: i64 = (pixels - head) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source + head)
    tiles: i64 = (whole + tile - 1) // tile
    each: i64 = (tiles + gridDim.x - 1) // gridDim.x
    at: i64 = blockIdx.x * each * tile
    end: i64 = min(at + each * tile, whole)
    running = REDUCE_identity()
    if blockIdx.x == 0:
        for i in range(head):
            running = REDUCE_combine(running, REDUCE_lift(source[i]))
    while at < end:
        total = REDUCE_identity()
        for u in unroll(range(REDUCE_UNROLL)):
            word = at + thread * REDUCE_UNROLL + u
            if word < end:
                chunk = words[word]
                for i in unroll(range(REDUCE_PER)):
                    total = REDUCE_combine(total, REDUCE_lift(pointer_cast(REDUCE_PIXEL, addr(chunk))[i]))
        running = REDUCE_combine(running, reduce_block(total))
        at += tile
    if blockIdx.x == gridDim.x - 1:
        for i in range(whole * REDUCE_PER + head, pixels):
            running = REDUCE_combine(running, REDUCE_lift(source[i]))
    reduce_grid(running, pixels, partial, counter, result)


@kernel
def histogram_of_pixels(pixels: i64, head: i32, source: const_ptr[REDUCE_PIXEL], bins: ptr[u32]) -> None:
    """Add the number of pixels of each bin to ``bins``. Pixels whose bin is outside of 0 … REDUCE_BINS - 1 are not
    counted. A block counts in shared memory, in several copies, so that fewer threads count in the same place."""
    counts = shared(u32, REDUCE_COPIES, REDUCE_BINS)
    thread: i32 = threadIdx.x
    for i in range(thread, REDUCE_COPIES * REDUCE_BINS, REDUCE_BLOCK):
        counts[i // REDUCE_BINS, i % REDUCE_BINS] = 0
    syncthreads()
    copy = thread % REDUCE_COPIES
    whole: i64 = (pixels - head) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source + head)
    each: i64 = (whole + gridDim.x - 1) // gridDim.x
    at: i64 = blockIdx.x * each
    end: i64 = min(at + each, whole)
    at += thread
    while at < end:
        chunk = words[at]
        for i in unroll(range(REDUCE_PER)):
            bin = REDUCE_bin(pointer_cast(REDUCE_PIXEL, addr(chunk))[i])
            if 0 <= bin < REDUCE_BINS:
                atomic_add(addr(counts[copy, bin]), 1)
        at += REDUCE_BLOCK
    if blockIdx.x == 0:
        rest = whole * REDUCE_PER + head
        if thread < head:
            bin = REDUCE_bin(source[thread])
            if 0 <= bin < REDUCE_BINS:
                atomic_add(addr(counts[copy, bin]), 1)
        if rest + thread < pixels:
            bin = REDUCE_bin(source[rest + thread])
            if 0 <= bin < REDUCE_BINS:
                atomic_add(addr(counts[copy, bin]), 1)
    syncthreads()
    for i in range(thread, REDUCE_BINS, REDUCE_BLOCK):
        total: u32 = 0
        for k in unroll(range(REDUCE_COPIES)):
            total += counts[k, i]
        if total != 0:
            atomic_add(bins + i, total)
