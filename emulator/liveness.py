"""Which registers hold a value that is still wanted, segment by segment.

Computes: for every segment the registers live into and out of it, those it must fetch, and after which step each one
dies; registers that some path reads before any write (`unset`).
Requires: defs and uses of every step as keys. Guarantees: a guarded write keeps the old value live.
Method: backward bit-vector iteration, sets as Python integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SegmentLiveness", "StepFacts", "solve"]


@dataclass(slots=True)
class StepFacts:
    """One step: registers read, registers written in every lane, registers that a guard may leave as they were."""

    uses: list[int]
    defs: list[int]
    may_defs: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class SegmentLiveness:
    """Facts of one segment; ``dies[i]`` are the registers that no one wants after step ``i``."""

    live_in: frozenset[int]
    live_out: frozenset[int]
    needs: tuple[int, ...]
    dies: list[tuple[int, ...]]


def solve(steps: list[list[StepFacts]], successors: list[list[int]]) -> list[SegmentLiveness]:
    """Facts for each segment; ``steps`` and ``successors`` are indexed by segment, the entry is 0."""
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
    return [
        _facts(segment, _members(before, keys), _members(after, keys))
        for segment, before, after in zip(steps, live_in, live_out, strict=True)
    ]


def _members(bits: int, keys: list[int]) -> frozenset[int]:
    found: list[int] = []
    while bits:
        low = bits & -bits
        found.append(keys[low.bit_length() - 1])
        bits ^= low
    return frozenset(found)


def _facts(segment: list[StepFacts], live_in: frozenset[int], live_out: frozenset[int]) -> SegmentLiveness:
    needs: dict[int, None] = {}
    defined: set[int] = set()
    for step in segment:
        for key in (*step.uses, *step.may_defs):
            if key not in defined and key in live_in:
                needs[key] = None
        defined.update(step.defs)
    dies: list[tuple[int, ...]] = []
    wanted = set(live_out)
    for step in reversed(segment):
        touched = {*step.uses, *step.defs, *step.may_defs}
        dies.append(tuple(touched - wanted))
        wanted.difference_update(step.defs)
        wanted.update(step.uses)
        wanted.update(step.may_defs)
    dies.reverse()
    return SegmentLiveness(live_in, live_out, tuple(needs), dies)
