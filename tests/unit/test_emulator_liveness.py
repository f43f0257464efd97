"""Liveness of registers in the emulator, beside the definition by single registers."""

import random

import pytest
from ptxmotion.emulator.liveness import StepFacts, solve


def live_by_definition(steps: list[list[StepFacts]], successors: list[list[int]], key: int) -> list[tuple[bool, bool]]:
    """By segment: whether a register is live into it and out of it."""
    first = [next((key in step.uses for step in each if key in (*step.uses, *step.defs)), None) for each in steps]
    live = [(False, False)] * len(steps)
    while True:
        out = [any(live[target][0] for target in targets) for targets in successors]
        made = [(out[at] if first[at] is None else bool(first[at]), out[at]) for at in range(len(steps))]
        if made == live:
            return live
        live = made


@pytest.mark.parametrize("seed", range(6))
def test_of_random_segments(seed: int) -> None:
    """Registers have numbers with gaps, and there are more of them than bits of a word."""
    rng = random.Random(seed)
    keys = rng.sample(range(5000), 150)

    def some(most: int) -> list[int]:
        return rng.sample(keys, rng.randint(0, most))

    steps = [[StepFacts(some(3), some(2)) for _ in range(rng.randint(0, 12))] for _ in range(12)]
    successors = [rng.sample(range(12), rng.randint(0, 2)) for _ in steps]
    found = solve(steps, successors)
    used = {key for segment in steps for step in segment for key in (*step.uses, *step.defs)}
    assert len(used) > 64
    for key in used:
        expected = live_by_definition(steps, successors, key)
        assert [(key in each.live_in, key in each.live_out) for each in found] == expected
    for each in found:
        assert each.live_in | each.live_out <= used
