"""Functions that return registers and are called by a kernel: no pass changes what the kernel stores."""

from __future__ import annotations

import random

import pytest
from ladder import Ladder, Launch, refused
from random_functions import RandomFunctions, random_functions
from test_transforms import LISTS, SHUFFLED

SIZES = (4, 8, 15, 30, 60)

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 64
SHARE = 8


def program(seed: int) -> RandomFunctions:
    return random_functions(seed, SIZES[seed % len(SIZES)], has_vectors=seed % 3 == 0)


def launch_of(drawn: RandomFunctions) -> Launch:
    return Launch("fuzz", (1,), (32,), 0, drawn.make_inputs)


@pytest.mark.fuzz
def test_passes_keep_the_results_of_random_functions(seeds: list[int]) -> None:
    for seed in seeds:
        drawn = program(seed)
        ladder = Ladder(drawn.ptx, launch_of(drawn), (seed,))
        assert ladder.is_sound, (seed, ladder.fault, ladder.before[0].details)
        rng = random.Random(f"lists:{seed}")
        for passes in (rng.choice(LISTS), ",".join(rng.choice(SHUFFLED) for _ in range(3)), "O3"):
            assert ladder.faults(passes) == [], (seed, passes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_ptxas_accepts_transformed_functions(seed: int) -> None:
    drawn = program(seed)
    assert refused(drawn.ptx) == ""
    ladder = Ladder(drawn.ptx, launch_of(drawn), (seed,))
    assert ladder.faults("O3", ptxas=True) == []
