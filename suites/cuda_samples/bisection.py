"""Device functions of the bisection kernels of `eigenvalues`: Sturm counts, halving an interval, scans over a block."""

from __future__ import annotations

from ...dsl import blockDim, clz, const_ptr, device, f32, fabs, i32, ptr, syncthreads, threadIdx, u16, u32

BLOCK = 256
MOST = 2 * BLOCK  #: intervals per block
NARROWEST = 5.0e-37


@device
def next_power(n: u32) -> u32:
    """The least power of two that is not less than ``n``; 1 for 0."""
    if n <= 1:
        return u32(1)
    return u32(1) << (32 - clz(i32(n - 1)))


@device
def midpoint(left: f32, right: f32) -> f32:
    """The middle of an interval, without overflow if both ends have the same sign."""
    if (left < 0.0) == (right < 0.0):
        return left + (right - left) * 0.5
    return (left + right) * 0.5


@device
def count_smaller(
    g_d: const_ptr[f32],
    g_s: const_ptr[f32],
    n: u32,
    x: f32,
    thread: u32,
    active: u32,
    d: ptr[f32],
    s: ptr[f32],
) -> u32:
    """The Sturm count at ``x`` for threads below ``active``. All threads load; ``d`` and ``s`` are shared scratch
    memory."""
    delta: f32 = 1.0
    count: u32 = 0
    rest = n
    i: u32 = 0
    while i < n:
        syncthreads()
        if i + threadIdx.x < n:
            d[threadIdx.x] = g_d[i + threadIdx.x]
            s[threadIdx.x] = g_s[i + threadIdx.x]
        syncthreads()
        if thread < active:
            k: u32 = 0
            while k < min(rest, blockDim.x):
                delta = d[k] - x - (s[k] * s[k]) / delta
                count += u32(1) if delta < 0.0 else u32(0)
                k += 1
        rest -= blockDim.x
        i += blockDim.x
    return count


@device
def store_interval(
    at: u32,
    lefts: ptr[f32],
    rights: ptr[f32],
    left: f32,
    right: f32,
    precision: f32,
) -> None:
    """Store an interval, or its middle twice if it is narrow enough."""
    width = fabs(right - left)
    allowed = max(fabs(left), fabs(right)) * precision
    if width <= max(f32(NARROWEST), allowed):
        middle = midpoint(left, right)
        lefts[at] = middle
        rights[at] = middle
    else:
        lefts[at] = left
        rights[at] = right


@device
def make_places_short(flags: ptr[u16], count: u32) -> None:
    """An exclusive scan of ``flags[1:]``: ``flags[i]`` becomes the number of set flags before the i-th. ``count`` is a
    power of two."""
    thread: u32 = threadIdx.x
    offset: u32 = 1
    d = count >> 1
    while d > 0:
        syncthreads()
        if thread < d:
            a = offset * (2 * thread + 1)
            b = offset * (2 * thread + 2)
            flags[b] = u16(flags[b] + flags[a])
        offset <<= 1
        d >>= 1
    d = u32(2)
    while d < count:
        offset >>= 1
        syncthreads()
        if thread < d - 1:
            a = offset * (thread + 1)
            b = a + (offset >> 1)
            flags[b] = u16(flags[b] + flags[a])
        d <<= 1
    syncthreads()


@device
def make_places(flags: ptr[u32], count: u32) -> None:
    """The same scan for 32-bit flags."""
    thread: u32 = threadIdx.x
    offset: u32 = 1
    d = count >> 1
    while d > 0:
        syncthreads()
        if thread < d:
            a = offset * (2 * thread + 1)
            b = offset * (2 * thread + 2)
            flags[b] = flags[b] + flags[a]
        offset <<= 1
        d >>= 1
    d = u32(2)
    while d < count:
        offset >>= 1
        syncthreads()
        if thread < d - 1:
            a = offset * (thread + 1)
            b = a + (offset >> 1)
            flags[b] = flags[b] + flags[a]
        d <<= 1
    syncthreads()


@device
def scan_and_group(ones: ptr[u16], several: ptr[u16], sums: ptr[u16], ends: ptr[u16], count: u32) -> None:
    """Scan ``ones[1:]`` and ``several[1:]``, and join adjacent intervals into groups. A group has at most as many
    eigenvalues as there are threads.

    A subtree of the scan becomes one group while the sum of its ``sums[1:]`` is small enough. ``ends`` marks the last
    element of a group; the group's sum is stored there.
    """
    thread: u32 = threadIdx.x
    offset: u32 = 1
    d = count >> 1
    while d > 0:
        syncthreads()
        if thread < d:
            a = offset * (2 * thread + 1)
            b = offset * (2 * thread + 2)
            ones[b] = u16(ones[b] + ones[a])
            several[b] = u16(several[b] + several[a])
            if ends[a - 1] != 1 or ends[b - 1] != 1:
                if ends[a - 1] == 1:
                    ends[b - 1] = 1
                elif ends[b - 1] == 1:
                    ends[a - 1] = 1
                else:
                    joined: u32 = sums[b] + sums[a]
                    if joined > blockDim.x:
                        ends[a - 1] = 1
                        ends[b - 1] = 1
                    else:
                        sums[b] = u16(joined)
                        sums[a] = 0
        offset <<= 1
        d >>= 1
    d = u32(2)
    while d < count:
        offset >>= 1
        syncthreads()
        if thread < d - 1:
            a = offset * (thread + 1)
            b = a + (offset >> 1)
            ones[b] = u16(ones[b] + ones[a])
            several[b] = u16(several[b] + several[a])
        d <<= 1
