"""A large two-dimensional histogram whose bins saturate at 255, of data that concentrate around its middle.

Each round runs four kernels. `prescan` samples an eighth of the data for mean and deviation, and gives the range of
bins around the mean, in units of BINS. `intermediates` splits each datum into range, word and byte. `main` has a block
for each part of the data and each range. It counts the data of its range in shared memory, with four bins of eight bits
in a word. An addition that makes a bin overflow carries into its neighbours. The thread that did this addition sees it
from the old value of the word, and corrects it in a table of overflows. Blocks of the first range also count data
outside of all ranges, in global memory, unless the bin is already full. `final` adds the parts, saturates the sums, and
clears the tables for the next round.

As in the original, a bin outside the ranges is read without an atomic before it is incremented, so it may grow slightly
beyond 255 before it is limited. Differences from the original: where it relies on the threads of a warp to run in
lockstep, there is a ``syncwarp`` here. Tables that it does not clear before the first round are cleared. A carry into
the third neighbour happens only if the first neighbour is full, too.

Reference: Stratton et al., *Parboil*, IMPACT-12-01; the default data set has 996 x 1040 data for 256 x 8192 bins, and
20 rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    allocate,
    atomic_add,
    atomic_max,
    atomic_min,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    device,
    f32,
    fill,
    gridDim,
    host,
    i32,
    kernel,
    pointer_cast,
    program,
    ptr,
    read,
    shared,
    sqrt,
    syncthreads,
    syncwarp,
    threadIdx,
    u8,
    u16,
    u32,
    uchar4,
    uint2,
    uint4,
    unroll,
    write,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

KB = 24
BINS = KB * 1024  #: bins in the shared memory of a block
PARTS = 14  #: parts of the data
MAIN_BLOCK = 768
FINAL_BLOCK = 512
SAMPLE_BLOCK = 512
ROWS = 16  #: rows per block of `intermediates`

#: data per row (even), rows (a multiple of 16), rows of 256 bins, blocks that sample, rounds
SHAPES = {"tiny": (200, 96, 768, 1, 2), "small": (512, 512, 4096, 64, 5), "full": (996, 1040, 8192, 64, 20)}


@kernel
def histo_prescan(data: const_ptr[u32], size: i32, minmax: ptr[u32]) -> None:
    """Widen ``minmax`` to ten deviations around the mean, computed from the first eighth of each block's part of the
    data."""
    averages = shared(f32, SAMPLE_BLOCK)
    deviations = shared(f32, SAMPLE_BLOCK)
    tx: i32 = threadIdx.x
    part: i32 = size // i32(gridDim.x)
    begin: i32 = i32(blockIdx.x) * part
    end: i32 = begin + part // 8

    average: f32 = 0.0
    count: u32 = 0
    at: i32 = begin + tx
    while at < end:
        average += data[at]
        count += 1
        at += blockDim.x
    average /= count
    averages[tx] = average

    again: i32 = begin + tx
    deviation: f32 = 0.0
    while again < end:
        deviation += (data[again] - average) * (data[again] - average)
        again += blockDim.x
    deviation /= count
    deviations[tx] = sqrt(deviation)

    distance = SAMPLE_BLOCK // 2
    while distance >= 32:
        syncthreads()
        if tx < distance:
            averages[tx] += averages[tx + distance]
            deviations[tx] += deviations[tx + distance]
        distance >>= 1
    for step in unroll(range(4)):
        syncwarp()
        if tx < (16 >> step):
            averages[tx] += averages[tx + (16 >> step)]
            deviations[tx] += deviations[tx + (16 >> step)]
    syncwarp()
    if tx == 0:
        mean = (averages[0] + averages[1]) / SAMPLE_BLOCK
        spread = (deviations[0] + deviations[1]) / SAMPLE_BLOCK
        atomic_min(minmax, u32(mean - 10.0 * spread) // (KB * 1024))
        atomic_max(minmax + 1, u32(mean + 10.0 * spread) // (KB * 1024))


@device
def place_of(bin: u32) -> uchar4:
    """Range, upper and lower index of the word, and the first bit of the bin in the word."""
    return uchar4(u8(bin // BINS), u8((bin >> 10) % KB), u8((bin >> 2) % 256), u8(bin % 4 * 8))


@kernel
def histo_intermediates(data: const_ptr[u32], height: u32, width: u32, pitch: u32, places: ptr[uchar4]) -> None:
    """Split the data. ``pitch`` is the length of a row in pairs of data. A block handles ROWS rows, a thread two data
    of each row."""
    line: u32 = ROWS * blockIdx.x
    load = pointer_cast(uint2, data) + (line * pitch + threadIdx.x)
    store: u32 = line * width + threadIdx.x
    skip = width % 2 != 0 and threadIdx.x == blockDim.x - 1
    for _ in unroll(range(ROWS)):
        pair = load[0]
        places[store] = place_of(pair.x)
        if not skip:
            places[store + blockDim.x] = place_of(pair.y)
        load += pitch
        store += width


@device
def count_outside(histogram: ptr[u32], lowest: u32, highest: u32, place: uchar4) -> None:
    """Count a datum that is in no range, in bins of 16 bits."""
    part: u32 = place.x
    high: u32 = place.y
    low: u32 = place.z
    offset: u32 = place.w
    if part < lowest or part > highest:
        bin = part * BINS + offset // 8 + (low << 2) + (high << 10)
        word = bin // 2
        shift: u32 = 16 if bin % 2 == 1 else 0
        old = histogram[word]
        old_bin = u16((old >> shift) & 0xFFFF)
        if old_bin < 255:
            atomic_add(histogram + word, u32(1) << shift)


@device
def count_inside(overflow: ptr[u32], counts: ptr[u32], mine: u32, place: uchar4) -> None:
    """Count a datum of the block's range in shared memory, and correct the carry of a full bin."""
    part: u32 = place.x
    high: u32 = place.y
    low: u32 = place.z
    offset: u32 = place.w
    if part == mine:
        old = atomic_add(counts + (high * 256 + low), u32(1) << offset)
        old_bin = (old >> offset) & 0xFF
        if old_bin == 0xFF:
            bin = part * BINS + offset // 8 + (low << 2) + (high << 10)
            next_bin = (old >> (offset + 8)) & 0xFF if offset < 24 else u32(0)
            second_bin = (old >> (offset + 16)) & 0xFF if offset < 16 else u32(0)
            third_bin = (old >> (offset + 24)) & 0xFF if offset < 8 else u32(0)
            carries = offset < 24
            carries_twice = offset < 16 and next_bin == 0xFF
            carries_thrice = offset < 8 and next_bin == 0xFF and second_bin == 0xFF
            # Undo the carry of 1. A bin that overflowed has also lost 256.
            next_add: u32 = 0xFFFFFFFF if next_bin < 0xFF else 0xFF
            second_add: u32 = 0xFFFFFFFF if second_bin < 0xFF else 0xFF
            third_add: u32 = 0xFFFFFFFF if third_bin < 0xFF else 0xFF
            atomic_add(overflow + bin, 256)
            if carries:
                atomic_add(overflow + (bin + 1), next_add)
            if carries_twice:
                atomic_add(overflow + (bin + 2), second_add)
            if carries_thrice:
                atomic_add(overflow + (bin + 3), third_add)


@kernel
def histo_main(
    places: const_ptr[uchar4],
    count: u32,
    lowest: u32,
    highest: u32,
    bins: u32,
    parts: ptr[u32],
    histogram: ptr[u32],
    overflow: ptr[u32],
) -> None:
    """Count the data of part ``blockIdx.x`` that are in range ``lowest + blockIdx.y``, and store the counts in
    ``parts``."""
    counts = shared(u32, KB * 256)
    mine: u32 = lowest + blockIdx.y
    at: u32 = blockIdx.x * blockDim.x + threadIdx.x
    clear: i32 = threadIdx.x
    while clear < BINS // 4:
        counts[clear] = 0
        clear += blockDim.x
    syncthreads()
    if blockIdx.y == 0:
        while at < count:
            place = places[at]
            at += blockDim.x * gridDim.x
            count_inside(overflow, counts, mine, place)
            count_outside(histogram, lowest, highest, place)
    else:
        while at < count:
            place = places[at]
            at += blockDim.x * gridDim.x
            count_inside(overflow, counts, mine, place)
    target = parts + (blockIdx.x * (bins // 4) + mine * BINS // 4)
    syncthreads()
    word: i32 = threadIdx.x
    while word < BINS // 4:
        target[word] = counts[word]
        word += blockDim.x


@device
def saturated(x: u32, y: u32, z: u32, w: u32) -> uchar4:
    return uchar4(u8(min(x, 255)), u8(min(y, 255)), u8(min(z, 255)), u8(min(w, 255)))


@device
def take(histogram: ptr[uint2], index: u32) -> uchar4:
    """Read and clear four bins of 16 bits."""
    found = histogram[index]
    histogram[index] = uint2(0, 0)
    return saturated(found.x & 0xFFFF, found.x >> 16, found.y & 0xFFFF, found.y >> 16)


@kernel
def histo_final(
    lowest: u32, highest: u32, bins: u32, parts: const_ptr[u32], histogram: ptr[u32], overflow: ptr[u32], out: ptr[u8]
) -> None:
    """Add the parts: below the ranges, in them, above them. Each thread handles four bins."""
    first: u32 = threadIdx.x + blockIdx.x * blockDim.x
    below: u32 = lowest * BINS
    inside: u32 = (highest - lowest + 1) * BINS
    outside = pointer_cast(uint2, histogram)
    repairs = pointer_cast(uint4, overflow)
    result = pointer_cast(uchar4, out)
    i = first
    while i < below // 4:
        result[i] = take(outside, i)
        i += gridDim.x * blockDim.x
    i = below // 4 + first
    while i < (below + inside) // 4:
        sums = repairs[i]
        repairs[i] = uint4(0, 0, 0, 0)
        for part in unroll(range(PARTS)):
            four = parts[i + part * bins // 4]
            sums.x += four & 0xFF
            sums.y += (four >> 8) & 0xFF
            sums.z += (four >> 16) & 0xFF
            sums.w += (four >> 24) & 0xFF
        result[i] = saturated(sums.x, sums.y, sums.z, sums.w)
        i += gridDim.x * blockDim.x
    i = (below + inside) // 4 + first
    while i < bins // 4:
        result[i] = take(outside, i)
        i += gridDim.x * blockDim.x


@program
def histo(
    image: host[u32], histogram: host[u8], width: i32, height: i32, bins: i32, sample_blocks: i32, rounds: i32
) -> None:
    even_width = (width + 1) // 2 * 2
    data = allocate(u32, even_width * height)
    ranges = allocate(u32, 2)
    places = allocate(uchar4, width * height)
    parts = allocate(u32, PARTS * bins)
    outside = allocate(u32, bins // 2)
    overflow = allocate(u32, bins)
    result = allocate(u8, bins)
    fill(result, 0)
    fill(outside, 0)
    fill(overflow, 0)
    for y in range(height):
        copy(data[y * even_width : y * even_width + width], image[y * width : (y + 1) * width])
    for _ in range(rounds):
        write(ranges, 0, 0xFFFFFFFF)
        write(ranges, 1, 0)
        histo_prescan[sample_blocks, SAMPLE_BLOCK](data, width * height, ranges)
        lowest = read(ranges, 0)
        highest = read(ranges, 1)
        fill(parts, 0)
        histo_intermediates[-(-height // ROWS), (width + 1) // 2](data, height, width, (width + 1) // 2, places)
        histo_main[(PARTS, highest - lowest + 1), MAIN_BLOCK](
            places, width * height, lowest, highest, bins, parts, outside, overflow
        )
        histo_final[PARTS * 3, FINAL_BLOCK](lowest, highest, bins, parts, outside, overflow, result)
    copy(histogram, result)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Most data are around the middle of the histogram, some in two bins that share a word, and a few anywhere."""
    import numpy as np

    width, height, rows, sample_blocks, rounds = SHAPES[size]
    numbers = np.random.default_rng(seed)
    count, bins = width * height, 256 * rows
    column = np.clip(np.rint(numbers.normal(128, 10, count)), 0, 255)
    row = np.clip(np.rint(numbers.normal(rows / 2, rows / 100, count)), 0, rows - 1)
    image = (row * 256 + column).astype(np.uint32)
    kind = numbers.random(count)
    middle = bins // 2 + 128
    image[kind < 0.4] = middle + (kind[kind < 0.4] < 0.2)
    image[kind > 0.998] = numbers.integers(0, bins, int((kind > 0.998).sum()))
    shape = {"width": width, "height": height, "bins": bins, "sample_blocks": sample_blocks, "rounds": rounds}
    return {"image": image, "histogram": np.zeros(bins, np.uint8), **shape}


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import numpy as np

    counts = np.bincount(data["image"], minlength=data["bins"])
    return {"histogram": np.minimum(counts, 255).astype(np.uint8)}


benchmark = Benchmark(
    suite="parboil",
    name="histo",
    program=histo,
    make_data=make_data,
    reference=reference,
    stresses=("atomics", "divergent branches in a loop", "shared memory", "bytes and bits", "launches in a loop"),
    description="a saturating two-dimensional histogram of data that concentrate around its middle",
    sizes={
        size: f"{width} x {height} data, 256 x {rows} bins, {rounds} rounds"
        for size, (width, height, rows, _, rounds) in SHAPES.items()
    },
)
