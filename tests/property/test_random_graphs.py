"""Every pass on random kernels with arbitrary flow graphs and few registers, with the checks of `ladder`."""

import random

import pytest
from ladder import Ladder, launch_of
from random_graphs import RandomGraph, random_graph
from test_transforms import chosen

SIZES = (2, 3, 4, 6, 8, 12)

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 16
SHARE = 8


def drawn(seed: int, *, for_gpu: bool = False) -> RandomGraph:
    return random_graph(seed, SIZES[seed % len(SIZES)], for_gpu=for_gpu)


@pytest.mark.fuzz
def test_a_graph_computes_the_same(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(f"passes:{seed}")
        program = drawn(seed)
        ladder = Ladder(program.ptx, launch_of(program), (seed,))
        assert ladder.is_sound, seed
        assert ladder.divergence_faults() == [], seed
        for passes in chosen(rng):
            schedule = rng.choice(["order", "random"])
            assert ladder.faults(passes, schedule=schedule) == [], (seed, passes, schedule)
