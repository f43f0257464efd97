"""A branch of a suite program that is reported as uniform separates no lanes of one instance."""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.emulator import InstanceJudge
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import Kernel
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import run
from suite_programs import compiled


def loops_around(kernel: Kernel) -> list[list[int]]:
    facts = Facts(kernel)
    return [[loop.header for loop in facts.loops.around(block)] for block in range(len(facts.cfg))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rodinia/bfs", "rodinia/gaussian", "rodinia/pathfinder", "rodinia/srad_v1"])
@pytest.mark.parametrize("schedule", ["order", "warps"])
def test_what_parts_is_called_divergent(name: str, schedule: str) -> None:
    judge = InstanceJudge(loops_around)
    backend = EmulatorBackend(checks=False, schedule=schedule, seed=3, judge=judge)
    assert run(find(name), backend, compiled(name), "tiny", 0).differences == []
    divergent = parted = 0
    for kernel in judge.kernels:
        found = Facts(kernel).divergence
        called = {found.cfg.blocks[block].terminator for block in found.divergent_branches}
        own = {instr for instr in kernel.instructions() if instr in judge.parted}
        assert own <= called, [instr.text for instr in own - called]
        divergent, parted = divergent + len(called), parted + len(own)
    assert 0 < parted <= divergent
