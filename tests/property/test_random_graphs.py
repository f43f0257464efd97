"""Every pass on random kernels with arbitrary flow graphs and few registers, with the checks of `ladder`."""

import random

import pytest
from ladder import Ladder, Launch, launch_of
from random_graphs import random_graph
from random_rewrites import rewritten
from test_transforms import chosen

SIZES = (2, 3, 4, 6, 8, 12)

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 16
SHARE = 8


def drawn(seed: int, *, for_gpu: bool = False) -> tuple[str, Launch]:
    """The kernel of ``seed`` and how to launch it. Half of the graphs in a kernel, not in a function, are rewritten."""
    program = random_graph(seed, SIZES[seed % len(SIZES)], for_gpu=for_gpu)
    is_rewritten = seed % 2 and ".func work(" not in program.ptx
    return rewritten(program.ptx, seed) if is_rewritten else program.ptx, launch_of(program)


@pytest.mark.fuzz
def test_a_graph_computes_the_same(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(f"passes:{seed}")
        ladder = Ladder(*drawn(seed), (seed,))
        assert ladder.is_sound, seed
        assert ladder.divergence_faults() == [], seed
        for passes in chosen(rng):
            schedule = rng.choice(["order", "random"])
            assert ladder.faults(passes, schedule=schedule) == [], (seed, passes, schedule)
