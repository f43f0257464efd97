"""No branch that is reported as uniform diverges in any run of the emulator, whether the block's shape is known or not.

Lanes are compared as in the analysis: those that execute the same instance of a block, in the same iterations of the
loops around it. The emulator merges lanes at the same instruction, even if some are an iteration ahead. (This happens
with random schedules, and where a thread's return prevents reconvergence after a loop.) The analysis claims nothing
there. Guarded returns count as branches.
"""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.emulator import Emulator, InstanceJudge
from ptxmotion.ptx import Instr, Kernel, Module, parse
from random_programs import RandomProgram, random_kernel

SIZES = (5, 20, 60, 150)
FIXED = 40
SHARE = 10


def divergent_branches(module: Module, kernel: Kernel, shape: tuple[int, int, int] | None) -> set[Instr]:
    """The branches, and guarded returns, that may diverge."""
    found = Facts(kernel, module, shape=shape).divergence
    assert found.divergent_branches == sorted(found.divergent_branches)
    called: set[Instr] = set()
    for block in found.divergent_branches:
        terminator = found.cfg.blocks[block].terminator
        assert terminator is not None
        assert found.explain(block)
        called.add(terminator)
    return called


def measured_branches(program: RandomProgram, module: Module, seed: int) -> tuple[set[Instr], set[Instr]]:
    """The branches that were executed, and those that separated lanes of one instance, over inputs and schedules."""
    executed: set[Instr] = set()
    judge = InstanceJudge(loops_around)
    loaded = Emulator().load(module)
    for inputs, schedule in zip(range(seed, seed + 3), ("order", "warps", "random"), strict=True):
        done = loaded.launch(
            program.kernel,
            program.grid,
            program.block,
            program.make_inputs(inputs),
            program.shared,
            schedule=schedule,
            seed=inputs,
            judge=judge,
        )
        for executions in done.counts.executions.values():
            executed.update(executions.branches)
    return executed, set(judge.parted)


def loops_around(kernel: Kernel) -> list[list[int]]:
    """For each block the headers of the loops around it, outermost first."""
    facts = Facts(kernel)
    return [[loop.header for loop in facts.loops.around(block)] for block in range(len(facts.cfg))]


@pytest.mark.fuzz
def test_what_diverges_is_called_divergent(seeds: list[int]) -> None:
    for seed in seeds:
        program = random_kernel(seed, SIZES[seed % len(SIZES)])
        module = parse(program.ptx, f"seed-{seed}.ptx")
        kernel = module.kernels[0]
        _, diverged = measured_branches(program, module, seed)
        for shape in (None, program.block):
            called = divergent_branches(module, kernel, shape)
            assert diverged <= called, (seed, shape, [instr.text for instr in diverged - called])


def test_some_branches_are_called_uniform() -> None:
    """Some claims are made: over a few programs, many of the branches that never diverge are reported as uniform."""
    never = called_uniform = 0
    for seed in range(12):
        program = random_kernel(seed, 60)
        module = parse(program.ptx)
        executed, diverged = measured_branches(program, module, seed)
        called = divergent_branches(module, module.kernels[0], program.block)
        never += len(executed - diverged)
        called_uniform += len(executed - diverged - called)
    assert called_uniform > never // 2, (called_uniform, never)
