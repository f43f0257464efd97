"""The kernels of global operators: templates of the kernel language.

One launch reduces a whole image. Each block reduces several tiles of words. A thread combines the pixels that it loads
in registers. A block combines its threads by shuffles and one array in shared memory. The block that ends last combines
the values of all blocks. The order in which values are combined depends only on the number of pixels and on the sizes
of block and grid, and not on the address of the image. So the result is the same in every run.

The names in capitals that start with ``REDUCE_`` are parameters of the templates: `global_operators.py` replaces them
by types, functions and numbers. The values here only let a type checker read the kernels.

Source: B. Qiao's thesis, §5.5: grid of few blocks, combining while loading, vector loads, shuffles, one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from .. import (
    addr,
    atomic_add,
    atomic_add_acq_rel,
    atomic_exch,
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
    threadIdx,
    u32,
    u64,
    uint4,
    unroll,
)

__all__ = [
    "add_pairs",
    "add_word",
    "begin_pairs",
    "begin_words",
    "end_pairs",
    "end_words",
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
    "warp_at_once",
    "warp_in_steps",
]

REDUCE_PIXEL: TypeAlias = f32
REDUCE_VALUE: TypeAlias = f32
REDUCE_RESULT: TypeAlias = f32
REDUCE_WORD: TypeAlias = uint4
REDUCE_WIDE: TypeAlias = f32

if TYPE_CHECKING:

    def REDUCE_identity() -> REDUCE_VALUE: ...
    def REDUCE_lift(pixel: REDUCE_PIXEL) -> REDUCE_VALUE: ...
    def REDUCE_combine(left: REDUCE_VALUE, right: REDUCE_VALUE) -> REDUCE_VALUE: ...
    def REDUCE_finish(value: REDUCE_VALUE, pixels: i64) -> REDUCE_RESULT: ...
    def REDUCE_move(value: REDUCE_VALUE, lanes: i32) -> REDUCE_VALUE: ...
    def REDUCE_bin(pixel: REDUCE_PIXEL) -> i32: ...
    def REDUCE_begin() -> REDUCE_VALUE: ...
    def REDUCE_add(total: REDUCE_VALUE, word: REDUCE_WORD) -> REDUCE_VALUE: ...
    def REDUCE_end(total: REDUCE_VALUE) -> REDUCE_VALUE: ...
    def REDUCE_pairs(left: u32, right: u32) -> u32: ...
    def REDUCE_warp(value: REDUCE_VALUE) -> REDUCE_VALUE: ...
    def REDUCE_extremum(mask: int, value: REDUCE_WIDE) -> REDUCE_WIDE: ...
else:
    REDUCE_identity = REDUCE_lift = REDUCE_combine = REDUCE_finish = REDUCE_move = REDUCE_bin = None
    REDUCE_add = REDUCE_begin = REDUCE_end = REDUCE_pairs = REDUCE_warp = REDUCE_extremum = None

REDUCE_IDENTITY = 0.0
#: Threads of a block, and its warps.
REDUCE_BLOCK = 256
REDUCE_WARPS = 8
#: The logarithm of the number of warps.
REDUCE_STEPS = 3
#: The most blocks for each thread of a block.
REDUCE_SHARE = 5
#: The most blocks for each lane where one warp combines them.
REDUCE_FEW = 8
#: The alignment of words: 1 if words are pixels.
REDUCE_ALIGN = 16
#: Whether words are loaded instead of single pixels.
REDUCE_VECTORS = True
#: Pixels of a word, and words that a thread loads before it combines them.
REDUCE_PER = 4
REDUCE_UNROLL = 4
#: Bits of a value that is compared in pairs.
REDUCE_BITS = 8
#: Whether one instruction combines the values of a warp.
REDUCE_AT_ONCE = False
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
def warp_in_steps(value: REDUCE_VALUE) -> REDUCE_VALUE:
    """The values of a warp combined in the order of the lanes. The result is right in lane 0."""
    for step in unroll(range(5)):
        value = REDUCE_combine(value, REDUCE_move(value, 1 << step))
    return value


@device(inline=True)
def warp_at_once(value: REDUCE_VALUE) -> REDUCE_VALUE:
    """The same for the smallest or the largest integer, with one instruction."""
    return REDUCE_VALUE(REDUCE_extremum(0xFFFFFFFF, REDUCE_WIDE(value)))


@device(inline=True)
def reduce_block(value: REDUCE_VALUE, turn: i32) -> REDUCE_VALUE:
    """The values of a block combined in the order of the threads. The result is right in thread 0.

    All threads call it, with a ``turn`` of 0 and 1 alternately: a call may begin while warp 0 still reads the values of
    the last one.
    """
    warps = shared(REDUCE_VALUE, 2, REDUCE_WARPS)
    thread: i32 = threadIdx.x
    value = REDUCE_warp(value)
    if thread % 32 == 0:
        warps[turn, thread // 32] = value
    syncthreads()
    if thread < 32:
        value = warps[turn, thread % REDUCE_WARPS]
        if REDUCE_AT_ONCE:  # several lanes have the same value, which changes no extremum
            value = REDUCE_warp(value)
        else:
            for step in unroll(range(REDUCE_STEPS)):
                value = REDUCE_combine(value, REDUCE_move(value, 1 << step))
    return value


@device(inline=True)
def reduce_few(
    lane: i32,
    blocks: i32,
    pixels: i32,
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """Combine the values of at most ``32 * REDUCE_FEW`` blocks with one warp, which needs no barrier."""
    total = REDUCE_identity()
    first = lane * REDUCE_FEW
    for i in unroll(range(REDUCE_FEW)):
        if first + i < blocks:
            total = REDUCE_combine(total, partial[first + i])
    total = REDUCE_warp(total)
    if lane == 0:
        counter[0] = 0
        result[0] = REDUCE_finish(total, pixels)


@device(inline=True)
def reduce_grid(
    value: REDUCE_VALUE,
    turn: i32,
    pixels: i32,
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """Combine the values of thread 0 of all blocks, in the order of the blocks, and store the result.

    ``counter`` is 0 before and after. ``partial`` has one element for each block.
    """
    last = shared(i32, 1)
    thread: i32 = threadIdx.x
    blocks: i32 = gridDim.x
    if blocks == 1:
        if thread == 0:
            result[0] = REDUCE_finish(value, pixels)
        return
    if thread == 0:
        partial[blockIdx.x] = value
        last[0] = i32(atomic_add_acq_rel(counter, 1) == gridDim.x - 1)
    syncthreads()
    if last[0] == 0:
        return
    if blocks <= 32 * REDUCE_FEW:
        if thread < 32:
            reduce_few(thread, blocks, pixels, partial, counter, result)
        return
    total = REDUCE_identity()
    first = thread * REDUCE_SHARE
    for i in unroll(range(REDUCE_SHARE)):
        if first + i < blocks:
            total = REDUCE_combine(total, partial[first + i])
    total = reduce_block(total, turn)
    if thread == 0:
        counter[0] = 0
        result[0] = REDUCE_finish(total, pixels)


@device(inline=True)
def whole_words(source: const_ptr[REDUCE_PIXEL]) -> bool:
    """Whether pixels can be loaded as words."""
    return REDUCE_VECTORS and u64(source) % REDUCE_ALIGN == 0  # pyright: ignore[reportArgumentType]


@device(inline=True)
def begin_words() -> REDUCE_VALUE:
    """What the words of a thread are combined with first."""
    return REDUCE_identity()


@device(inline=True)
def add_word(total: REDUCE_VALUE, word: REDUCE_WORD) -> REDUCE_VALUE:
    """A value combined with the pixels of a word, one after the other."""
    for i in unroll(range(REDUCE_PER)):
        total = REDUCE_combine(total, REDUCE_lift(pointer_cast(REDUCE_PIXEL, addr(word))[i]))
    return total


@device(inline=True)
def end_words(total: REDUCE_VALUE) -> REDUCE_VALUE:
    """The value of the words of a thread."""
    return total


@device(inline=True)
def begin_pairs() -> u32:
    """The same as `begin_words` for the smallest or the largest of integers of 8 and 16 bits, of which 32 bits have
    several."""
    first = u32(REDUCE_identity())
    return (first << (32 - REDUCE_BITS)) | ((first << (32 - REDUCE_BITS)) >> 16)


@device(inline=True)
def add_pairs(total: u32, word: REDUCE_WORD) -> u32:
    """The same as `add_word` for such integers, which are compared in pairs of 16 bits.

    Of two such numbers, the one with the larger upper byte is larger. So the upper bytes of the result are those of the
    bytes at odd places, whatever is at even places. Those at even places are compared after a shift by 8 bits.
    """
    parts = pointer_cast(u32, addr(word))
    found: u32 = parts[0]
    for part in unroll(range(1, 4)):
        found = REDUCE_pairs(found, parts[part])
    if REDUCE_BITS == 8:
        for part in unroll(range(4)):
            found = REDUCE_pairs(found, parts[part] << 8)
    return REDUCE_pairs(total, found)


@device(inline=True)
def end_pairs(total: u32) -> REDUCE_VALUE:
    """The same as `end_words` for such integers."""
    return REDUCE_VALUE(REDUCE_pairs(total, total << 16) >> (32 - REDUCE_BITS))


@device(inline=True)
def add_pixels(total: REDUCE_VALUE, source: const_ptr[REDUCE_PIXEL], word: u32) -> REDUCE_VALUE:
    """The same for the word with this number in an image that does not begin at a multiple of the size of words."""
    for i in range(REDUCE_PER):
        total = REDUCE_combine(total, REDUCE_lift(source[word * REDUCE_PER + i]))
    return total


@device(inline=True)
def count_pixel(pixel: REDUCE_PIXEL, counts: ptr[u32]) -> None:
    """Count a pixel in the copy of a thread."""
    bin = REDUCE_bin(pixel)
    if 0 <= bin < REDUCE_BINS:
        atomic_add(counts + bin, 1)


# --- kernels -----------------------------------------------------------------------------------------------------


@kernel
def reduce_in_strides(
    pixels: i32,
    source: const_ptr[REDUCE_PIXEL],
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """Reduce ``pixels`` pixels with a commutative operator. Neighbouring threads load neighbouring words."""
    thread: i32 = threadIdx.x
    tile = REDUCE_BLOCK * REDUCE_UNROLL
    step: u32 = gridDim.x * tile
    whole = u32(pixels) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source)
    at: u32 = blockIdx.x * tile + thread
    total = REDUCE_identity()
    if whole_words(source):
        chunk = local(REDUCE_WORD, REDUCE_UNROLL)
        state = REDUCE_begin()
        while at + (REDUCE_UNROLL - 1) * REDUCE_BLOCK < whole:
            for u in unroll(range(REDUCE_UNROLL)):
                chunk[u] = words[at + u * REDUCE_BLOCK]
            for u in unroll(range(REDUCE_UNROLL)):
                state = REDUCE_add(state, chunk[u])
            at += step
        if at < whole:
            for u in unroll(range(REDUCE_UNROLL)):
                if at + u * REDUCE_BLOCK < whole:
                    chunk[u] = words[at + u * REDUCE_BLOCK]
            for u in unroll(range(REDUCE_UNROLL)):
                if at + u * REDUCE_BLOCK < whole:
                    state = REDUCE_add(state, chunk[u])
        total = REDUCE_end(state)
    else:
        while at < whole:
            for u in range(REDUCE_UNROLL):
                if at + u * REDUCE_BLOCK < whole:
                    total = add_pixels(total, source, at + u * REDUCE_BLOCK)
            at += step
    if blockIdx.x == 0 and whole * REDUCE_PER + thread < u32(pixels):
        total = REDUCE_combine(total, REDUCE_lift(source[whole * REDUCE_PER + thread]))
    reduce_grid(reduce_block(total, 0), 1, pixels, partial, counter, result)


@kernel
def reduce_in_order(
    pixels: i32,
    source: const_ptr[REDUCE_PIXEL],
    partial: ptr[REDUCE_VALUE],
    counter: ptr[u32],
    result: ptr[REDUCE_RESULT],
) -> None:
    """The same for an operator that is associative but not commutative: pixels are combined row by row, from left to
    right. A thread loads consecutive words, and a block combines its threads once for each tile."""
    thread: i32 = threadIdx.x
    tile = REDUCE_BLOCK * REDUCE_UNROLL
    whole = u32(pixels) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source)
    tiles = (whole + tile - 1) // tile
    blocks = gridDim.x
    block = blockIdx.x
    each = (tiles + blocks - 1) // blocks
    at = min(block * each, tiles) * tile
    end = min(at + each * tile, whole)
    turn = 0
    aligned = whole_words(source)
    running = REDUCE_identity()
    while at < end:
        total = REDUCE_identity()
        for u in unroll(range(REDUCE_UNROLL)):
            word = at + thread * REDUCE_UNROLL + u
            if word < end:
                total = add_word(total, words[word]) if aligned else add_pixels(total, source, word)
        running = REDUCE_combine(running, reduce_block(total, turn))
        turn = 1 - turn
        at += tile
    if block == blocks - 1:
        for i in range(whole * REDUCE_PER, u32(pixels)):
            running = REDUCE_combine(running, REDUCE_lift(source[i]))
    reduce_grid(running, turn, pixels, partial, counter, result)


@kernel
def histogram_of_pixels(
    pixels: i32, source: const_ptr[REDUCE_PIXEL], totals: ptr[u32], counter: ptr[u32], result: ptr[u32]
) -> None:
    """Count the pixels of each bin. Pixels whose bin is outside of 0 … REDUCE_BINS - 1 are not counted.

    A block counts in shared memory, in several copies, so that fewer threads count in the same place. ``totals`` and
    ``counter`` are 0 before and after.
    """
    counts = shared(u32, REDUCE_COPIES, REDUCE_BINS)
    last = shared(i32, 1)
    thread: i32 = threadIdx.x
    for i in range(thread, REDUCE_COPIES * REDUCE_BINS, REDUCE_BLOCK):
        counts[i // REDUCE_BINS, i % REDUCE_BINS] = 0
    syncthreads()
    mine = addr(counts[thread % REDUCE_COPIES, 0])
    step: u32 = gridDim.x * REDUCE_BLOCK
    whole = u32(pixels) // REDUCE_PER
    words = pointer_cast(REDUCE_WORD, source)
    aligned = whole_words(source)
    at: u32 = blockIdx.x * REDUCE_BLOCK + thread
    while at < whole:
        if aligned:
            word = words[at]
            for i in unroll(range(REDUCE_PER)):
                count_pixel(pointer_cast(REDUCE_PIXEL, addr(word))[i], mine)
        else:
            for i in range(REDUCE_PER):
                count_pixel(source[at * REDUCE_PER + i], mine)
        at += step
    if blockIdx.x == 0 and whole * REDUCE_PER + thread < u32(pixels):
        count_pixel(source[whole * REDUCE_PER + thread], mine)
    syncthreads()
    for i in range(thread, REDUCE_BINS, REDUCE_BLOCK):
        total: u32 = 0
        for k in unroll(range(REDUCE_COPIES)):
            total += counts[k, i]
        if total != 0:
            atomic_add(totals + i, total)
    syncthreads()
    if thread == 0:
        last[0] = i32(atomic_add_acq_rel(counter, 1) == gridDim.x - 1)
    syncthreads()
    if last[0] != 0:
        if thread == 0:
            counter[0] = 0
        for i in range(thread, REDUCE_BINS, REDUCE_BLOCK):
            result[i] = atomic_exch(totals + i, 0)
