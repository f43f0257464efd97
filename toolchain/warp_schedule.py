"""The time that one warp needs for its code if it is alone: issue slots, fixed stalls, and waits for results.

ptxas writes its schedule into every instruction, and the machine follows it: the number of cycles that the warp stalls
after issue, the one of six barriers that a result of variable latency sets, and the barriers that must be clear before
issue. The simulation uses these fields and a latency for each class of instruction. No operand is decoded.

    bits 105–108  stall after issue, in cycles         bits 113–115  barrier that is clear once operands are read
    bits 110–112  barrier that is clear once the result is written; 7 is none      bits 116–121  barriers to wait for

Blocks are simulated in the order of the text. A block starts with the state of the barriers at the ends of its
predecessors. Its cycles are multiplied by `cost.loop_weight` of its loop depth. A wait for something that was issued
before the loop counts once; a wait for something that was issued in the loop counts in every iteration.

Unlike a count of instructions, the cycles depend on whether loads are issued together or each waits for the one before,
and on how much work is between a load and the first wait for it. The latencies are those of a machine without other
load. So the cycles are not a prediction. They are for the comparison of versions of one kernel.

The instructions are fetched in lines of 128 bytes, 8 instructions. If a branch back to the head of a loop finds only
one or two of them in the line of the head, the warp waits for the next line: one cycle if the head is the seventh
instruction of its line, two if it is the eighth, in every iteration: `fetched`. These cycles are in no other figure.
`looped` are the cycles in loops; `quickest` counts of each loop only the blocks of the shortest way through it: an
iteration may execute few of them.

The *exposed* latency is by how much the cycles grow if global memory is twice as slow. It is the part of the latencies
of global loads that the warp waits for, so it counts the loads that nothing overlaps.

The warps of a block wait for each other at barriers. So a latency of one warp overlaps with the work of the others of
its block only up to the next barrier. `pieces` splits the code there.

Requires: code for sm_75 or newer. Guarantees: the time is linear in the number of instructions; equal code gives equal
cycles. Not modelled: caches, bank conflicts, other warps, the time at a barrier, waits with a count (``DEPBAR``,
asynchronous copies, ``wgmma``).
Reference: docs/experiments/gate.md (the fetch of loops, measured on an H200);
Jia et al., *Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking*, 2018, §2.1 (control
fields); Luo et al., *Benchmarking and Dissecting the Nvidia Hopper GPU Architecture*, 2024 (latencies of memory).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from ..arch import LATENCY, OTHER_LATENCY
from ..cost import loop_weight
from ..graphs import strongly_connected_components

__all__ = ["alone", "by_block", "exposed", "fetched", "looped", "pieces", "quickest"]

#: The latency until operands have been read, in cycles.
READ = 20

_BARRIERS = 6

#: The instructions of a line, and how many of them behind the head of a loop hide the fetch of the next line.
_LINE, _HIDING = 8, 3

#: The classes of loads whose latencies `exposed` changes.
_GLOBAL = frozenset(["load_global", "load_generic"])

#: For each barrier, the cycle in which it becomes clear, counted from the start of a block.
State: TypeAlias = tuple[int, ...]
_CLEAR: State = (0,) * _BARRIERS

#: (cycles since the last event, barriers to wait for, the barrier that is set or -1, its latency in cycles).
_Event: TypeAlias = tuple[int, tuple[int, ...], int, int]


def alone(
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
    latency: Mapping[str, int] = LATENCY,
) -> float:
    """The cycles of one warp. ``words`` and ``classes`` have one entry for each instruction; ``blocks``, ``successors``
    and ``depth`` one for each block. ``latency[class]`` is in cycles.

    >>> stall = 4 << 41 | 7 << 46 | 7 << 49
    >>> alone([(0, stall), (0, stall)], ["integer", "integer"], [(0, 2)], [[]], [0])
    8.0
    """
    return sum(by_block(words, classes, blocks, successors, depth, latency))


def looped(cycles: Sequence[float], depth: Sequence[int]) -> float:
    """The cycles of one warp in the blocks of loops. ``cycles`` are those of `by_block`.

    >>> looped([5, 96], [0, 1])
    96
    """
    return sum(each for each, around in zip(cycles, depth, strict=True) if around)


def fetched(
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
    starts: Sequence[int] = (0,),
) -> float:
    """The cycles in which one warp waits in loops for instructions. ``starts``: the numbers of the first instructions
    of the functions, each of which begins a line.

    >>> fetched([(0, 5), (5, 8)], [[1], [1]], [0, 1]), fetched([(0, 7), (7, 8)], [[1], [1]], [0, 1])
    (0.0, 16.0)
    """
    return sum(_fetch(blocks[head][0], starts) * loop_weight(depth[head]) for head in _heads(successors, depth))


def quickest(cycles: Sequence[float], successors: Sequence[Sequence[int]], depth: Sequence[int]) -> float:
    """The cycles of one warp in loops if each iteration takes the shortest way from the head back to it. ``cycles``
    are those of `by_block`.

    >>> quickest([5, 16, 800, 8], [[1], [2, 3], [3], [1]], [0, 1, 1, 1])
    24.0
    """
    single = [each / loop_weight(around) for each, around in zip(cycles, depth, strict=True)]
    total = 0.0
    for head in _heads(successors, depth):
        least: dict[int, float] = {}
        waiting = [(single[head], head)]
        while waiting:
            so_far, block = heapq.heappop(waiting)
            if block in least:
                continue
            least[block] = so_far
            inner = [each for each in successors[block] if each not in least and depth[each] >= depth[head]]
            for after in inner:
                heapq.heappush(waiting, (so_far + single[after], after))
        ends = [so_far for block, so_far in least.items() if head in successors[block]]
        if ends:  # otherwise it is a branch back in a function that is called in a loop
            total += min(ends) * loop_weight(depth[head])
    return total


def _heads(successors: Sequence[Sequence[int]], depth: Sequence[int]) -> list[int]:
    """The first blocks of loops, to which a later block branches back."""
    return sorted({to for block, after in enumerate(successors) for to in after if to <= block and depth[to]})


def _fetch(place: int, starts: Sequence[int]) -> int:
    """The cycles for which a branch to an instruction waits for the next line."""
    start = max((each for each in starts if each <= place), default=0)
    return max(_HIDING - (_LINE - (place - start) % _LINE), 0)


def by_block(
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
    latency: Mapping[str, int] = LATENCY,
) -> list[float]:
    """The cycles of each block, multiplied by its weight. The arguments are those of `alone`."""
    events = [_events(words[start:end], classes[start:end], latency) for start, end in blocks]
    weights = [loop_weight(each) for each in depth]
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block, after in enumerate(successors):
        for successor in after:
            predecessors[successor].append(block)
    left: list[State | None] = [None] * len(blocks)
    cycles: list[float] = []
    # The first round has no states from back edges, the second one has.
    for _ in range(2):
        cycles = [_block(block, of, predecessors[block], weights, left) for block, of in enumerate(events)]
    return cycles


def exposed(
    cycles: float,
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
) -> float:
    """The exposed latency of global loads, in cycles. ``cycles`` are those of `alone` for the same code."""
    if _GLOBAL.isdisjoint(classes):
        return 0.0
    slower = {kind: latency * 2 if kind in _GLOBAL else latency for kind, latency in LATENCY.items()}
    return alone(words, classes, blocks, successors, depth, slower) - cycles


def pieces(
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
    requests: Collection[str],
) -> tuple[tuple[float, float, float], ...]:
    """The code between barriers on the slowest way through the kernel, in the order of the text: of each piece the
    cycles of one warp, the instructions, and those of them whose class is one of ``requests``, all weighted. Empty if
    no barrier is in a loop. A piece ends behind a barrier, or where the loop depth changes. The other arguments are
    those of `alone`.

    A kernel may have several loops of which a block executes one, as for blocks at the edges of an image. The launch
    ends when the slowest blocks end.

    >>> stall = 4 << 41 | 7 << 46 | 7 << 49
    >>> code = ["barrier", "integer", "barrier", "load_shared"]
    >>> pieces([(0, stall)] * 4, code, [(0, 4)], [[0]], [1], {"load_shared"})
    ((32.0, 8.0, 0.0), (64.0, 16.0, 0.0), (32.0, 8.0, 8.0))
    """
    if not any("barrier" in classes[start:end] for (start, end), around in zip(blocks, depth, strict=True) if around):
        return ()
    parts, after, around = _split_at_barriers(classes, blocks, successors, depth)
    cycles = by_block(words, classes, parts, after, around)
    found: list[list[float]] = []
    ends, before = True, 0
    for number in _slowest_way(after, cycles):
        start, end = parts[number]
        weight = loop_weight(around[number])
        if ends or around[number] != around[before]:
            found.append([0.0, 0.0, 0.0])
        found[-1][0] += cycles[number]
        found[-1][1] += weight * (end - start)
        found[-1][2] += weight * sum(kind in requests for kind in classes[start:end])
        ends, before = end > start and classes[end - 1] == "barrier", number
    return tuple((one, two, three) for one, two, three in found)


def _slowest_way(successors: Sequence[Sequence[int]], cycles: Sequence[float]) -> list[int]:
    """The blocks on the way through the kernel with the most cycles, in order. All blocks of a loop are on a way that
    leads through it. Blocks that no way from the first one reaches are those of functions, and belong to each way.

    >>> _slowest_way([[1, 2], [1, 3], [2, 3], []], [1, 50, 60, 1])
    [0, 2, 3]
    """
    components = strongly_connected_components(successors, range(len(cycles)))
    of = {block: number for number, blocks in enumerate(components) for block in blocks}
    behind: list[int | None] = []  # the component that follows on the slowest way
    total: list[float] = []
    for number, blocks in enumerate(components):  # those behind a component precede it
        following = {of[each] for block in blocks for each in successors[block]} - {number}
        last = max(following, key=lambda each: total[each], default=None)
        behind.append(last)
        total.append(sum(cycles[block] for block in blocks) + (0 if last is None else total[last]))
    kept = set(range(len(cycles))) - _reached(successors)
    here: int | None = of[0]
    while here is not None:
        kept.update(components[here])
        here = behind[here]
    return sorted(kept)


def _reached(successors: Sequence[Sequence[int]]) -> set[int]:
    """The blocks that ways from the first one reach."""
    found, waiting = {0}, [0]
    while waiting:
        new = set(successors[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _split_at_barriers(
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
) -> tuple[list[tuple[int, int]], list[list[int]], list[int]]:
    """Blocks, successors and loop depths of a graph in which each barrier ends a block."""
    parts: list[tuple[int, int]] = []
    first: list[int] = []
    around: list[int] = []
    for (start, end), level in zip(blocks, depth, strict=True):
        first.append(len(parts))
        cuts = [place + 1 for place in range(start, end - 1) if classes[place] == "barrier"]
        parts += zip([start, *cuts], [*cuts, end], strict=True)
        around += [level] * (len(cuts) + 1)
    after = [[number + 1] for number in range(len(parts))]
    for block, behind in enumerate(successors):
        last = (first[block + 1] if block + 1 < len(first) else len(parts)) - 1
        after[last] = [first[each] for each in behind]
    return parts, after, around


def _block(
    block: int, of: tuple[list[_Event], int], before: Sequence[int], weights: Sequence[float], left: list[State | None]
) -> float:
    """The cycles of a block times its weight. Stores the state at its end in ``left[block]``."""
    weight = weights[block]
    entering: dict[float, State] = {}
    for predecessor in before:
        state = left[predecessor]
        if state is not None:
            often = min(weights[predecessor], weight)
            earlier = entering.get(often)
            entering[often] = state if earlier is None else tuple(map(max, earlier, state))
    usual = max(entering, default=weight)
    cycles, left[block] = _replay(of, entering.pop(usual, _CLEAR))
    total = cycles * weight
    for often, state in entering.items():
        total += max(_replay(of, state)[0] - cycles, 0) * often
    return total


def _events(
    words: Sequence[tuple[int, int]], classes: Sequence[str], latency: Mapping[str, int]
) -> tuple[list[_Event], int]:
    """The events of a block, and the cycles after the last one."""
    events: list[_Event] = []
    cycles = 0
    for (_, high), kind in zip(words, classes, strict=True):
        control = high >> 41
        written, read, waits = control >> 5 & 7, control >> 8 & 7, control >> 11 & 63
        if waits:
            events.append((cycles, tuple(b for b in range(_BARRIERS) if waits >> b & 1), -1, 0))
            cycles = 0
        if written < _BARRIERS:
            events.append((cycles, (), written, latency.get(kind, OTHER_LATENCY)))
            cycles = 0
        if read < _BARRIERS:
            events.append((cycles, (), read, READ))
            cycles = 0
        cycles += max(control & 15, 1)
    return events, cycles


def _replay(of: tuple[list[_Event], int], state: State) -> tuple[int, State]:
    """The cycles of a block that starts in ``state``, and the state at its end."""
    events, rest = of
    busy = list(state)
    now = 0
    for cycles, waits, sets, latency in events:
        now += cycles
        for barrier in waits:
            if busy[barrier] > now:
                now = busy[barrier]
        if sets >= 0 and now + latency > busy[sets]:
            busy[sets] = now + latency
    now += rest
    return now, tuple(until - now if until > now else 0 for until in busy)
