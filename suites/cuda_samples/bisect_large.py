"""The first kernel of `eigenvalues`: it halves the whole interval until there are more intervals than threads."""

from __future__ import annotations

from ...dsl import atomic_exch, blockDim, const_ptr, f32, kernel, ptr, shared, syncthreads, threadIdx, u16, u32
from .bisection import (
    MOST,
    count_smaller,
    make_places_short,
    midpoint,
    next_power,
    scan_and_group,
    store_interval,
)


@kernel
def bisect_large(
    g_d: const_ptr[f32],
    g_s: const_ptr[f32],
    n: u32,
    lower: f32,
    upper: f32,
    lower_count: u32,
    upper_count: u32,
    precision: f32,
    g_ones: ptr[u32],
    g_groups: ptr[u32],
    g_left_one: ptr[f32],
    g_right_one: ptr[f32],
    g_position_one: ptr[u32],
    g_left_several: ptr[f32],
    g_right_several: ptr[f32],
    g_left_count_several: ptr[u32],
    g_right_count_several: ptr[u32],
    g_group_begins: ptr[u32],
    g_group_sums: ptr[u32],
) -> None:
    """Halve [lower, upper] until there are more intervals than threads; then sort and group the intervals."""
    lefts = shared(f32, MOST + 1)
    rights = shared(f32, MOST + 1)
    left_counts = shared(u16, MOST + 1)
    right_counts = shared(u16, MOST + 1)
    places = shared(u16, MOST + 1)
    ends = shared(u16, MOST + 1)
    has_seconds = shared(u32, 1)
    all_done = shared(u32, 1)
    active = shared(u32, 1)
    scanned = shared(u32, 1)
    groups = shared(u32, 1)
    severals = shared(u32, 1)
    ones = shared(u32, 1)
    thread: u32 = threadIdx.x
    left: f32 = 0.0
    right: f32 = 0.0
    left_count: u32 = 0
    right_count: u32 = 0
    middle: f32 = 0.0
    middle_count: u32 = 0
    has_second: u32 = 0

    places[thread] = 0
    places[thread + blockDim.x] = 0
    lefts[thread] = 0.0
    rights[thread] = 0.0
    left_counts[thread] = 0
    right_counts[thread] = 0
    syncthreads()
    if thread == 0:
        places[2 * blockDim.x] = 0
        lefts[0] = lower
        rights[0] = upper
        left_counts[0] = u16(lower_count)
        right_counts[0] = u16(upper_count)
        has_seconds[0] = 0
        active[0] = 1
        scanned[0] = 1
        all_done[0] = 1
    syncthreads()

    while True:
        if thread < active[0]:
            left = lefts[thread]
            right = rights[thread]
            left_count = left_counts[thread]
            right_count = right_counts[thread]
            if left != right:
                middle = midpoint(left, right)
                atomic_exch(all_done + 0, 0)
            elif right_count - left_count > 1:
                atomic_exch(all_done + 0, 0)
        syncthreads()
        if all_done[0] == 1:
            break
        # The intervals are in registers, so their shared memory is free for other use.
        middle_count = count_smaller(g_d, g_s, n, middle, thread, active[0], lefts + 0, rights + 0)
        syncthreads()

        if thread < active[0]:
            if left != right:
                if left_count != middle_count and middle_count != right_count:
                    left_counts[thread] = u16(left_count)
                    right_counts[thread] = u16(middle_count)
                    store_interval(thread, lefts + 0, rights + 0, left, middle, precision)
                    has_second = 1
                    places[thread + 1] = 1
                    atomic_exch(has_seconds + 0, 1)
                else:
                    has_second = 0
                    places[thread + 1] = 0
                    if left_count != middle_count:
                        left_counts[thread] = u16(left_count)
                        right_counts[thread] = u16(middle_count)
                        store_interval(thread, lefts + 0, rights + 0, left, middle, precision)
                    else:
                        left_counts[thread] = u16(middle_count)
                        right_counts[thread] = u16(right_count)
                        store_interval(thread, lefts + 0, rights + 0, middle, right, precision)
            else:
                lefts[thread] = left
                rights[thread] = left
                left_counts[thread] = u16(left_count)
                right_counts[thread] = u16(right_count)
                has_second = 0
        syncthreads()

        if has_seconds[0] > 0:
            make_places_short(places + 0, scanned[0])
            if thread < active[0] and has_second == 1:
                target = active[0] + places[thread]
                lefts[target] = middle
                rights[target] = right
                left_counts[target] = u16(middle_count)
                right_counts[target] = u16(right_count)
        syncthreads()
        if thread == 0:
            active[0] += places[active[0]]
            scanned[0] = next_power(active[0])
            has_seconds[0] = 0
            all_done[0] = 1
        syncthreads()
        if scanned[0] > blockDim.x:
            break
    syncthreads()

    # A thread may now have two intervals. Their counts move to registers, so their shared memory is free for the scans.
    second = thread + blockDim.x
    left_count = left_counts[thread]
    right_count = right_counts[thread]
    left_count_second: u32 = 0
    right_count_second: u32 = 0
    if second < active[0]:
        left_count_second = left_counts[second]
        right_count_second = right_counts[second]
    syncthreads()
    if thread == 0:
        left_counts[0] = 0
        right_counts[0] = 0
    multiplicity = right_count - left_count
    is_one = multiplicity == 1
    left_counts[thread + 1] = u16(is_one)
    right_counts[thread + 1] = u16(not is_one)
    places[thread + 1] = u16(0) if is_one else u16(multiplicity)
    ends[thread] = 0
    is_one_second = False
    if second < active[0]:
        multiplicity_second = right_count_second - left_count_second
        is_one_second = multiplicity_second == 1
        left_counts[second + 1] = u16(is_one_second)
        right_counts[second + 1] = u16(not is_one_second)
        places[second + 1] = u16(0) if is_one_second else u16(multiplicity_second)
        ends[second] = 0
    else:
        left_counts[second + 1] = 0
        right_counts[second + 1] = 0
        places[second + 1] = 0
        ends[second] = 0
    scan_and_group(left_counts + 0, right_counts + 0, places + 0, ends + 0, scanned[0])
    make_places_short(places + 0, scanned[0])
    if thread == 0:
        # The last group ends with the last interval, not with the power of two.
        ends[active[0] - 1] = 1
        places[active[0]] = places[scanned[0]]
    syncthreads()

    group_end: u32 = 0
    group_end_second: u32 = 0
    group_sum: u32 = 0
    group_sum_second: u32 = 0
    if thread < active[0] and ends[thread] == 1:
        group_end = right_counts[thread + 1] + 1
        group_sum = places[thread + 1]
    if second < active[0] and ends[second] == 1:
        group_end_second = right_counts[second + 1] + 1
        group_sum_second = places[second + 1]
    syncthreads()
    places[thread + 1] = ends[thread]
    if second < scanned[0]:
        places[second + 1] = ends[second]
    syncthreads()
    make_places_short(places + 0, scanned[0])
    if thread == 0:
        groups[0] = places[active[0]]
        ones[0] = left_counts[active[0]]
        severals[0] = right_counts[active[0]]
        g_ones[0] = ones[0]
        g_groups[0] = groups[0]
    syncthreads()

    left = lefts[thread]
    right = rights[thread]
    left_second: f32 = 0.0
    right_second: f32 = 0.0
    if second < active[0]:
        left_second = lefts[second]
        right_second = rights[second]
    syncthreads()
    target_second: u32 = 0
    group: u32 = 0
    group_second: u32 = 0
    target: u32 = left_counts[thread] if is_one else right_counts[thread] + ones[0]
    if group_end != 0:
        group = places[thread]
    if second < active[0]:
        target_second = left_counts[second] if is_one_second else right_counts[second] + ones[0]
        if group_end_second != 0:
            group_second = places[second]
    syncthreads()
    if thread < active[0]:
        lefts[target] = left
        rights[target] = right
        left_counts[target] = u16(left_count)
        right_counts[target] = u16(right_count)
        if group_end != 0:
            places[group + 1] = u16(group_end - 1)
            ends[group + 1] = u16(group_sum)
    if second < active[0]:
        lefts[target_second] = left_second
        rights[target_second] = right_second
        left_counts[target_second] = u16(left_count_second)
        right_counts[target_second] = u16(right_count_second)
        if group_end_second != 0:
            places[group_second + 1] = u16(group_end_second - 1)
            ends[group_second + 1] = u16(group_sum_second)
    syncthreads()
    if thread == 0:
        places[groups[0]] = u16(severals[0])
        ends[0] = 0
    syncthreads()

    if thread < active[0]:
        if thread < ones[0]:
            g_left_one[thread] = lefts[thread]
            g_right_one[thread] = rights[thread]
            g_position_one[thread] = right_counts[thread]
        else:
            g_left_several[thread - ones[0]] = lefts[thread]
            g_right_several[thread - ones[0]] = rights[thread]
            g_left_count_several[thread - ones[0]] = left_counts[thread]
            g_right_count_several[thread - ones[0]] = right_counts[thread]
    if second < active[0]:
        if second < ones[0]:
            g_left_one[second] = lefts[second]
            g_right_one[second] = rights[second]
            g_position_one[second] = right_counts[second]
        else:
            g_left_several[second - ones[0]] = lefts[second]
            g_right_several[second - ones[0]] = rights[second]
            g_left_count_several[second - ones[0]] = left_counts[second]
            g_right_count_several[second - ones[0]] = right_counts[second]
    if thread <= groups[0]:
        g_group_begins[thread] = places[thread]
        g_group_sums[thread] = ends[thread]
    if second <= groups[0]:
        g_group_begins[second] = places[second]
        g_group_sums[second] = ends[second]
