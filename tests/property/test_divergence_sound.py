"""No branch that is called uniform diverges in any run of the emulator, with the block's shape known or not.

Lanes are compared as the analysis assumes them: split at branches, together again at post-dominators. (A random
schedule lets lanes of different iterations meet at one instruction, where nothing is claimed.)
"""

import random

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.divergence import Divergence
from ptxmotion.harness.emulator import Emulator
from ptxmotion.ptx import Kernel, Module, parse
from random_programs import RandomProgram, random_kernel

SIZES = (5, 20, 60, 150)
FIXED = 40
SHARE = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0)
        metafunc.parametrize("share", range(max(1, (count or FIXED) // SHARE)))


def seeds(share: int, config: pytest.Config) -> list[int]:
    if config.getoption("--fuzz-n"):
        return [random.randrange(1 << 40) for _ in range(SHARE)]
    return list(range(share * SHARE, (share + 1) * SHARE))


def divergent_lines(module: Module, kernel: Kernel, shape: tuple[int, int, int] | None) -> tuple[set[int], Divergence]:
    """The lines of the branches that may diverge."""
    found = Facts(kernel, module, shape=shape).divergence
    lines: set[int] = set()
    for block in found.divergent_branches:
        terminator = found.cfg.blocks[block].terminator
        assert terminator is not None
        lines.add(module.source.line_column(terminator.pos)[0])
        assert found.explain(block)
    return lines, found


def diverged_lines(program: RandomProgram, seed: int) -> tuple[set[int], set[int]]:
    """The lines of the branches that were executed, and of those that diverged, over several inputs."""
    executed: set[int] = set()
    diverged: set[int] = set()
    for inputs in range(seed, seed + 3):
        loaded = Emulator().load(program.ptx)
        args = program.make_inputs(inputs)
        done = loaded.launch(program.kernel, program.grid, program.block, args, program.shared)
        for branch in done.counts.branches.values():
            executed.add(branch.line)
            if branch.diverged:
                diverged.add(branch.line)
    return executed, diverged


@pytest.mark.fuzz
def test_what_diverges_is_called_divergent(share: int, pytestconfig: pytest.Config) -> None:
    for seed in seeds(share, pytestconfig):
        program = random_kernel(seed, SIZES[seed % len(SIZES)])
        module = parse(program.ptx, f"seed-{seed}.ptx")
        kernel = module.kernels[0]
        _, diverged = diverged_lines(program, seed)
        for shape in (None, program.block):
            called, found = divergent_lines(module, kernel, shape)
            assert diverged <= called, (seed, shape, sorted(diverged - called))
            assert found.divergent_branches == sorted(found.divergent_branches)


def test_some_branches_are_called_uniform() -> None:
    """The claim is not empty: over a few programs, a fair share of the branches that never diverge is called so."""
    never = called_uniform = 0
    for seed in range(12):
        program = random_kernel(seed, 60)
        module = parse(program.ptx)
        executed, diverged = diverged_lines(program, seed)
        called, _ = divergent_lines(module, module.kernels[0], program.block)
        never += len(executed - diverged)
        called_uniform += len(executed - diverged - called)
    assert called_uniform > never // 2, (called_uniform, never)
