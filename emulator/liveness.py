"""Liveness of registers, by segment.

Computes: for every segment the registers that are live into and out of it, those that it must read from the file, and
for each step the registers that are dead after it.
Requires: the registers that each step reads and writes, as keys. Guarantees: after a guarded write the old value is
still live.
Method: backward iteration over bit vectors; the sets are Python integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["SegmentLiveness", "StepFacts", "solve"]


@dataclass(slots=True)
class StepFacts:
    """One step: registers that it reads, registers that it writes in every lane, registers that it writes in some
    lanes only."""

    uses: list[int]
    defs: list[int]
    may_defs: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class SegmentLiveness:
    """Facts about one segment; ``dies[i]`` are the registers that are dead after step ``i``."""

    live_in: frozenset[int]
    live_out: frozenset[int]
    needs: tuple[int, ...]
    dies: list[tuple[int, ...]]


def solve(steps: list[list[StepFacts]], successors: list[list[int]]) -> list[SegmentLiveness]:
    """Facts about each segment. ``steps`` and ``successors`` are indexed by segment; the entry is segment 0."""
    numbers: dict[int, int] = {}
    for segment in steps:
        for step in segment:
            for key in (*step.uses, *step.defs, *step.may_defs):
                numbers.setdefault(key, len(numbers))
    keys = list(numbers)
    gen: list[int] = []
    kill: list[int] = []
    for segment in steps:
        use = define = 0
        for step in segment:
            for key in step.uses:
                use |= (1 << numbers[key]) & ~define
            for key in step.defs:
                define |= 1 << numbers[key]
        gen.append(use)
        kill.append(define)
    live_in = list(gen)
    live_out = [0] * len(steps)
    pending = True
    while pending:
        pending = False
        for index in range(len(steps) - 1, -1, -1):
            out = 0
            for target in successors[index]:
                out |= live_in[target]
            live_out[index] = out
            new = gen[index] | (out & ~kill[index])
            if new != live_in[index]:
                live_in[index] = new
                pending = True
    # What is live into a segment is often what is live out of the one before.
    sets = {bits: _members(bits, keys) for bits in {*live_in, *live_out}}
    return [
        _facts(segment, sets[before], sets[after])
        for segment, before, after in zip(steps, live_in, live_out, strict=True)
    ]


def _members(bits: int, keys: list[int]) -> frozenset[int]:
    """The keys whose bits are set. A loop over the bits would be quadratic in kernels with thousands of registers."""
    packed = np.frombuffer(bits.to_bytes(-(-len(keys) // 8), "little"), np.uint8)
    places: list[int] = np.unpackbits(packed, bitorder="little").view(np.bool_).nonzero()[0].tolist()
    return frozenset(map(keys.__getitem__, places))


def _facts(segment: list[StepFacts], live_in: frozenset[int], live_out: frozenset[int]) -> SegmentLiveness:
    needs: dict[int, None] = {}
    defined: set[int] = set()
    for step in segment:
        for key in (*step.uses, *step.may_defs):
            if key not in defined and key in live_in:
                needs[key] = None
        defined.update(step.defs)
    dies: list[tuple[int, ...]] = []
    live = set(live_out)
    for step in reversed(segment):
        touched = {*step.uses, *step.defs, *step.may_defs}
        dies.append(tuple(touched - live))
        live.difference_update(step.defs)
        live.update(step.uses)
        live.update(step.may_defs)
    dies.reverse()
    return SegmentLiveness(live_in, live_out, tuple(needs), dies)
