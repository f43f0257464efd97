"""No branch of a random flow graph that is reported as uniform parts lanes on the emulator."""

import numpy as np
import pytest
from ptxmotion.analysis import Facts
from ptxmotion.emulator import Emulator, EmulatorError, InstanceJudge
from ptxmotion.ptx import Module, parse
from random_flow import random_flow
from test_divergence_sound import divergent_branches, loops_around

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 40
SHARE = 20
#: Values of the parameter, and schedules.
LAUNCHES = ((1, "order"), (7, "warps"), (3, "random"))
THREADS = 8


def faults(module: Module, seed: int) -> list[str]:
    """The branches that are called uniform and part lanes. A kernel that runs forever is stopped."""
    judge = InstanceJudge(loops_around)
    for number, schedule in LAUNCHES:
        try:
            Emulator(budget=200).load(module).launch(
                "flow", (1, 1, 1), (THREADS, 1, 1), [np.uint32(number)], 0, schedule=schedule, seed=seed, judge=judge
            )
        except EmulatorError as error:
            assert "endless" in str(error), (seed, str(error))
    parted = set(judge.parted)
    called = [divergent_branches(module, module.kernels[0], shape) for shape in (None, (THREADS, 1, 1))]
    return sorted({instr.text for each in called for instr in parted - each})


@pytest.mark.fuzz
def test_what_diverges_in_a_flow_graph_is_called_divergent(seeds: list[int]) -> None:
    for seed in seeds:
        assert faults(parse(random_flow(seed)), seed) == [], seed


def test_some_branches_are_called_uniform() -> None:
    kernels = [parse(random_flow(seed)).kernels[0] for seed in range(20)]
    found = [Facts(kernel).divergence for kernel in kernels]
    branches = sum(len(set(each.cfg.succ[block])) > 1 for each in found for block in each.cfg.rpo)
    assert 0 < sum(len(each.divergent_branches) for each in found) < branches
