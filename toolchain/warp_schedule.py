"""How long one warp takes through its code when it is alone: issue slots, fixed stalls and waits for results.

ptxas writes its schedule into every instruction, and the machine follows it: how many cycles the warp stalls after
issue, which of six barriers a result of unknown latency sets, and which barriers have to be clear before issue. To
replay it takes those fields and a latency for each class; no operand is decoded.

    bits 105–108  stall after issue, in cycles         bits 113–115  barrier that is clear once operands are read
    bits 110–112  barrier that is clear once the result is written; 7 is none      bits 116–121  barriers to wait for

Blocks are replayed in the order of the text with what is still under way at the end of their predecessors. A block's
cycles count 8 to the power of its loop depth times. What only enters a loop is charged once: a load issued before the
loop and awaited in it costs its wait once, one that is issued and awaited in the loop costs it in every turn.

This tells apart what a count of instructions cannot: loads that are issued together from loads that are issued one
after the other has come back, and work that stands between a load and the first wait for it from work that stands
behind. It is a bound on the time of a warp only in the sense of its latencies, which are those of a quiet machine;
figures mean something next to figures of another version of the same kernel.

Requires: code for sm_75 or newer. Guarantees: linear in the instructions; equal code gives equal cycles.
Does not know: caches, bank conflicts, other warps, how long a barrier waits, counted waits (``DEPBAR``, asynchronous
copies, ``wgmma``).
Reference: Jia et al., *Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking*, 2018, §2.1 (control
fields); Luo et al., *Benchmarking and Dissecting the Nvidia Hopper GPU Architecture*, 2024 (latencies of memory).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..arch import LATENCY, OTHER_LATENCY
from ..cost import loop_weight

__all__ = ["alone"]

#: Until operands have been read.
READ = 20

_BARRIERS = 6

#: Until when each barrier is taken, counted from the start of a block.
State: TypeAlias = tuple[int, ...]
_CLEAR: State = (0,) * _BARRIERS

#: Cycles since the event before it, barriers waited for, the barrier that is set or -1, and for how many cycles.
_Event: TypeAlias = tuple[int, tuple[int, ...], int, int]


def alone(
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
    latency: Mapping[str, int] = LATENCY,
) -> float:
    """Cycles of one warp. ``words`` and ``classes`` are by instruction, the rest by block; ``latency`` is by class.

    >>> stall = 4 << 41 | 7 << 46 | 7 << 49
    >>> alone([(0, stall), (0, stall)], ["integer", "integer"], [(0, 2)], [[]], [0])
    8.0
    """
    events = [_events(words[start:end], classes[start:end], latency) for start, end in blocks]
    weights = [loop_weight(each) for each in depth]
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block, after in enumerate(successors):
        for successor in after:
            predecessors[successor].append(block)
    left: list[State | None] = [None] * len(blocks)
    total = 0.0
    # Once for what comes down, once more with what comes round.
    for _ in range(2):
        total = 0.0
        for block, of in enumerate(events):
            total += _block(block, of, predecessors[block], weights, left)
    return total


def _block(
    block: int, of: tuple[list[_Event], int], before: Sequence[int], weights: Sequence[float], left: list[State | None]
) -> float:
    """The cycles of a block times its weight; sets what is under way at its end."""
    weight = weights[block]
    entering: dict[float, State] = {}
    for predecessor in before:
        state = left[predecessor]
        if state is not None:
            often = min(weights[predecessor], weight)
            known = entering.get(often)
            entering[often] = state if known is None else tuple(map(max, known, state))
    usual = max(entering, default=weight)
    cycles, left[block] = _replay(of, entering.pop(usual, _CLEAR))
    total = cycles * weight
    for often, state in entering.items():
        total += max(_replay(of, state)[0] - cycles, 0) * often
    return total


def _events(
    words: Sequence[tuple[int, int]], classes: Sequence[str], latency: Mapping[str, int]
) -> tuple[list[_Event], int]:
    """What the block does with barriers, and the cycles behind the last of that."""
    found: list[_Event] = []
    cycles = 0
    for (_, high), kind in zip(words, classes, strict=True):
        control = high >> 41
        written, read, waits = control >> 5 & 7, control >> 8 & 7, control >> 11 & 63
        if waits:
            found.append((cycles, tuple(b for b in range(_BARRIERS) if waits >> b & 1), -1, 0))
            cycles = 0
        if written < _BARRIERS:
            found.append((cycles, (), written, latency.get(kind, OTHER_LATENCY)))
            cycles = 0
        if read < _BARRIERS:
            found.append((cycles, (), read, READ))
            cycles = 0
        cycles += max(control & 15, 1)
    return found, cycles


def _replay(of: tuple[list[_Event], int], state: State) -> tuple[int, State]:
    """The cycles of a block that starts in ``state``, and what is under way at its end."""
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
