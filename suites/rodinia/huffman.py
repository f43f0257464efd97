"""Huffman coding in parallel: histogram, variable-length codes in shared memory, prefix sums, and packing.

The host sends the bytes in parts and builds the code from their histogram. Each thread of the encoder then looks up the
codes of four bytes, the block adds the lengths in a tree, and every thread merges its bits into the block's words with
at most three atomics in shared memory. The lengths of the blocks are added in the same way. ``pack2`` has a thread for
each block that shifts the block's words to their position; the words at both ends are shared with other blocks.

Reference: Balevic, *Parallel Variable-Length Encoding on GPGPUs*, Euro-Par 2009 Workshops; in Rodinia (Che et al.,
IISWC 2009) with a file of 1024 x 256 words whose entropy is 2.2 bits per byte. The original launches its encoder ten
times to measure it, and has an adding kernel for each shape of a block. Here the encoder runs once, and one kernel
tests its bounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dsl import (
    addr,
    allocate,
    atomic_add,
    atomic_or,
    blockDim,
    blockIdx,
    const_ptr,
    copy,
    dynamic_shared,
    fill,
    gridDim,
    host,
    i32,
    i64,
    kernel,
    program,
    ptr,
    shared,
    syncthreads,
    threadIdx,
    u8,
    u32,
    u64,
    zeros,
)
from ..registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK, SYMBOLS = 256, 256
HISTOGRAM_BLOCKS = 2

#: blocks of 256 words, parts that are sent separately, threads per block in the prefix sums
SHAPES = {"tiny": (32, 4, 8), "small": (512, 32, 128), "full": (1024, 32, 256)}


@kernel
def histo_kernel(buffer: const_ptr[u8], size: i64, histo: ptr[u32]) -> None:
    """Add the frequencies of ``size`` bytes to ``histo``."""
    temp = shared(u32, SYMBOLS)
    temp[threadIdx.x] = 0
    syncthreads()
    i: i32 = threadIdx.x + blockIdx.x * blockDim.x
    offset: i32 = blockDim.x * gridDim.x
    while i < size:
        atomic_add(addr(temp[buffer[i]]), 1)
        i += offset
    syncthreads()
    atomic_add(addr(histo[threadIdx.x]), temp[threadIdx.x])


@kernel
def vlc_encode_kernel_sm64huff(
    data: const_ptr[u32],
    gm_codewords: const_ptr[u32],
    gm_codewordlens: const_ptr[u32],
    out: ptr[u32],
    outidx: ptr[u32],
) -> None:
    """Encode 256 words, the high byte first. ``outidx`` gets the number of bits."""
    kn: u32 = blockIdx.x * blockDim.x + threadIdx.x
    k: u32 = threadIdx.x
    sm = dynamic_shared(u32)
    last_word = shared(u32, 1)
    codewords = sm + 0
    codewordlens = sm + SYMBOLS
    sums = sm + 2 * SYMBOLS

    codewords[k] = gm_codewords[k]
    codewordlens[k] = gm_codewordlens[k]
    val32 = data[kn]
    syncthreads()
    cw64: u64 = 0
    codewordlen: u32 = 0
    for i in range(4):
        byte = u8(val32 >> ((3 - i) * 8))
        word = codewords[byte]
        length = u8(codewordlens[byte])
        cw64 = (cw64 << length) | word
        codewordlen += length
    sums[k] = codewordlen
    syncthreads()

    # Sums up the tree, then prefix sums down the tree, in place.
    offset: u32 = 1
    d: u32 = blockDim.x >> 1
    while d > 0:
        syncthreads()
        if k < d:
            ai = u8(offset * (2 * k + 1) - 1)
            bi = u8(offset * (2 * k + 2) - 1)
            sums[bi] += sums[ai]
        offset *= 2
        d >>= 1
    if k == 0:
        sums[blockDim.x - 1] = 0
    d = 1
    while d < blockDim.x:
        offset >>= 1
        syncthreads()
        if k < d:
            aj = u8(offset * (2 * k + 1) - 1)
            bj = u8(offset * (2 * k + 2) - 1)
            kept = sums[aj]
            sums[aj] = sums[bj]
            sums[bj] += kept
        d *= 2
    syncthreads()

    if k == blockDim.x - 1:
        outidx[blockIdx.x] = sums[k] + codewordlen
        last_word[0] = (sums[k] + codewordlen) // 32
    kc: u32 = sums[k] // 32
    startbit: u32 = sums[k] % 32
    # This barrier is not in the original. Without it, words may be cleared before their neighbours' sums are read.
    syncthreads()
    sums[k] = 0
    syncthreads()

    wrbits: u32 = 32 - startbit if codewordlen > 32 - startbit else codewordlen
    part = u32(cw64 >> (codewordlen - wrbits))
    atomic_or(addr(sums[kc]), part << (32 - startbit - wrbits))
    codewordlen -= wrbits
    if codewordlen != 0:
        wrbits = 32 if codewordlen > 32 else codewordlen
        part = u32(cw64 >> (codewordlen - wrbits)) & (0xFFFFFFFF >> (32 - wrbits))
        atomic_or(addr(sums[kc + 1]), part << (32 - wrbits))
        codewordlen -= wrbits
    if codewordlen != 0:
        part = u32(cw64) & (0xFFFFFFFF >> (32 - codewordlen))
        atomic_or(addr(sums[kc + 2]), part << (32 - codewordlen))
    syncthreads()
    if k <= last_word[0]:
        out[kn] = sums[k]


@kernel
def prescan(out: ptr[u32], values: const_ptr[u32], block_sums: ptr[u32], n: i32) -> None:
    """Prefix sums within blocks of twice as many values as threads, and the sum of each block."""
    s = dynamic_shared(u32)
    thid: i32 = threadIdx.x
    threads: i32 = blockDim.x
    base: i32 = i32(blockIdx.x) * 2 * threads
    ai = thid
    bi = thid + threads
    # One word in 16 is unused, to avoid bank conflicts.
    bank_a = ai + (ai >> 4)
    bank_b = bi + (bi >> 4)
    s[bank_a] = values[base + ai] if base + ai < n else 0
    s[bank_b] = values[base + bi] if base + bi < n else 0
    stride: i32 = 1
    d: i32 = threads
    while d > 0:
        syncthreads()
        if thid < d:
            low = 2 * stride * thid + stride - 1
            high = low + stride
            low += low >> 4
            high += high >> 4
            s[high] += s[low]
        stride *= 2
        d >>= 1
    if thid == 0:
        last: i32 = 2 * threads - 1
        last += last >> 4
        block_sums[blockIdx.x] = s[last]
        s[last] = 0
    d = 1
    while d <= threads:
        stride >>= 1
        syncthreads()
        if thid < d:
            left = 2 * stride * thid + stride - 1
            right = left + stride
            left += left >> 4
            right += right >> 4
            kept = s[left]
            s[left] = s[right]
            s[right] += kept
        d *= 2
    syncthreads()
    if base + ai < n:
        out[base + ai] = s[bank_a]
    if base + bi < n:
        out[base + bi] = s[bank_b]


@kernel
def uniform_add(values: ptr[u32], uniforms: const_ptr[u32], n: i32) -> None:
    """Add the sum of all preceding blocks to each block."""
    uniform = shared(u32, 1)
    if threadIdx.x == 0:
        uniform[0] = uniforms[blockIdx.x]
    address: i32 = blockIdx.x * blockDim.x * 2 + threadIdx.x
    syncthreads()
    if address < n:
        values[address] += uniform[0]
    if address + i32(blockDim.x) < n:
        values[address + i32(blockDim.x)] += uniform[0]


@kernel
def pack2(src: const_ptr[u32], cindex: const_ptr[u32], cindex2: const_ptr[u32], dst: ptr[u32], words: u32) -> None:
    """Shift the ``cindex`` bits of each block to position ``cindex2``."""
    tid: u32 = blockDim.x * blockIdx.x + threadIdx.x
    offset = tid * words
    bitsize = cindex[tid]
    pos = cindex2[tid]
    dword: u32 = pos // 32
    bit: u32 = pos % 32
    dw = src[offset]
    tmp = dw >> bit
    atomic_or(addr(dst[dword]), tmp)
    # Two shifts, because a shift by 32 is undefined in C.
    tmp = dw << (31 - bit) << 1
    i: u32 = 1
    while i < bitsize // 32:
        dw = src[offset + i]
        tmp |= dw >> bit
        dst[dword + i] = tmp
        tmp = dw << (31 - bit) << 1
        i += 1
    if bit != 0 or bitsize % 32 != 0:
        atomic_or(addr(dst[dword + i]), tmp)
    if bitsize % 32 != 0:
        dw = src[offset + i]
        atomic_or(addr(dst[dword + i]), dw >> bit)
        # The original does this always, and adds zeros to words that another thread stores without atomics.
        if bit + bitsize % 32 > 32:
            atomic_or(addr(dst[dword + i + 1]), dw << (31 - bit) << 1)


def build_code(frequencies: Any, codewords: Any, lengths: Any) -> None:
    """The canonical Huffman code. Among equal weights, leaves come first by symbol, then nodes in the order of
    creation."""
    heap = [(int(count), symbol) for symbol, count in enumerate(frequencies) if count]
    heapq.heapify(heap)
    children: dict[int, tuple[int, int]] = {}
    while len(heap) > 1:
        (first, left), (second, right) = heapq.heappop(heap), heapq.heappop(heap)
        node = SYMBOLS + len(children)
        children[node] = (left, right)
        heapq.heappush(heap, (first + second, node))
    depths = {heap[0][1]: 0 if children else 1}
    for node in reversed(children):
        for child in children[node]:
            depths[child] = depths[node] + 1
    code, before = 0, 0
    for length, symbol in sorted((depth, node) for node, depth in depths.items() if node < SYMBOLS):
        code <<= length - before
        codewords[symbol], lengths[symbol], before = code, length, length
        code += 1


@program
def huffman(
    bytes_: host[u8],
    words: host[u32],
    packed: host[u32],
    codewords: host[u32],
    lengths: host[u32],
    bits: host[u32],
    blocks: i32,
    parts: i32,
    scan_threads: i32,
) -> None:
    size = blocks * BLOCK
    part = 4 * size // parts
    buffer_0, buffer_1 = allocate(u8, part), allocate(u8, part)
    histo = allocate(u32, SYMBOLS)
    fill(histo, 0)
    for i in range(0, parts, 2):
        copy(buffer_0, bytes_[i * part : (i + 1) * part])
        copy(buffer_1, bytes_[(i + 1) * part : (i + 2) * part])
        histo_kernel[HISTOGRAM_BLOCKS, SYMBOLS](buffer_0, part, histo)
        histo_kernel[HISTOGRAM_BLOCKS, SYMBOLS](buffer_1, part, histo)
    frequencies = zeros(u32, SYMBOLS)
    copy(frequencies, histo)
    build_code(frequencies, codewords, lengths)

    source, encoded, result = allocate(u32, size), allocate(u32, size), allocate(u32, size)
    gpu_codewords, gpu_lengths = allocate(u32, SYMBOLS), allocate(u32, SYMBOLS)
    cindex, cindex2 = allocate(u32, blocks), allocate(u32, blocks)
    copy(source, words)
    copy(gpu_codewords, codewords)
    copy(gpu_lengths, lengths)
    vlc_encode_kernel_sm64huff[blocks, BLOCK, 4 * (2 * SYMBOLS + BLOCK)](
        source, gpu_codewords, gpu_lengths, encoded, cindex
    )

    fill(result, 0)
    chunk = 2 * scan_threads
    chunks = (blocks + chunk - 1) // chunk
    sums, totals, total = allocate(u32, chunks), allocate(u32, chunks), allocate(u32, 1)
    scan_memory = 4 * (chunk + chunk // 16)
    prescan[chunks, scan_threads, scan_memory](cindex2, cindex, sums, blocks)
    if chunks > 1:
        prescan[1, scan_threads, scan_memory](totals, sums, total, chunks)
        uniform_add[chunks, scan_threads](cindex2, totals, blocks)
    pack2[blocks // 16, 16](encoded, cindex, cindex2, result, BLOCK)
    copy(packed, result)
    copy(bits, cindex)


def make_data(size: str, seed: int) -> dict[str, Any]:
    """Bytes with an entropy of 2.2 bits: a geometric distribution over shuffled symbols, with all symbols now and
    then."""
    import numpy as np

    blocks, parts, scan_threads = SHAPES[size]
    numbers = np.random.default_rng(seed)
    count = 4 * BLOCK * blocks
    drawn = np.minimum(numbers.geometric(0.4, count) - 1, SYMBOLS - 1)
    drawn = np.where(numbers.random(count) < 0.01, numbers.integers(0, SYMBOLS, count), drawn)
    data = numbers.permutation(SYMBOLS)[drawn].astype(np.uint8)
    return {
        "bytes_": data,
        "words": data.view(np.uint32).copy(),
        "packed": np.zeros(count // 4, np.uint32),
        "codewords": np.zeros(SYMBOLS, np.uint32),
        "lengths": np.zeros(SYMBOLS, np.uint32),
        "bits": np.zeros(blocks, np.uint32),
        "blocks": blocks,
        "parts": parts,
        "scan_threads": scan_threads,
    }


def reference(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Code lengths by two queues of ascending weights; the code by Kraft's sum; the bits of all symbols at once."""
    import numpy as np

    frequencies = np.bincount(data["bytes_"], minlength=SYMBOLS)
    leaves = [(int(frequencies[s]), [int(s)]) for s in np.argsort(frequencies, kind="stable") if frequencies[s]]
    made: list[tuple[int, list[int]]] = []
    lengths = np.zeros(SYMBOLS, np.int64)
    while len(leaves) + len(made) > 1:
        pair: list[tuple[int, list[int]]] = []
        for _ in range(2):
            queue = leaves if leaves and (not made or leaves[0][0] <= made[0][0]) else made
            pair.append(queue.pop(0))
        merged = pair[0][1] + pair[1][1]
        lengths[merged] += 1
        made.append((pair[0][0] + pair[1][0], merged))
    used = np.flatnonzero(lengths)
    order = used[np.argsort(lengths[used], kind="stable")]
    shares = 2 ** (32 - lengths[order])
    codewords = np.zeros(SYMBOLS, np.int64)
    codewords[order] = (np.cumsum(shares) - shares) >> (32 - lengths[order])

    symbols = data["words"].astype(">u4").view(np.uint8)
    widths = lengths[symbols]
    place: NDArray[Any] = np.arange(int(lengths.max()))
    shifts = widths[:, None] - 1 - place
    grid = (codewords[symbols][:, None] >> np.maximum(shifts, 0)) & 1
    stream = np.packbits(grid[shifts >= 0].astype(np.uint8))
    packed = np.zeros(data["packed"].size * 4, np.uint8)
    packed[: stream.size] = stream
    return {
        "packed": packed.view(">u4").astype(np.uint32),
        "codewords": codewords.astype(np.uint32),
        "lengths": lengths.astype(np.uint32),
        "bits": widths.reshape(data["blocks"], -1).sum(axis=1).astype(np.uint32),
    }


benchmark = Benchmark(
    suite="rodinia",
    name="huffman",
    program=huffman,
    make_data=make_data,
    reference=reference,
    stresses=("atomics in shared and global memory", "prefix sums with barriers", "divergent branches", "bits"),
    description="Huffman coding: histogram, variable-length codes, and packing",
    sizes={size: f"{s[0]} x {BLOCK} words" for size, s in SHAPES.items()},
)
