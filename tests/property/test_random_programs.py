"""What the generator of random programs guarantees: they can be parsed and assembled, they end, and they have no race,
fault or unset register."""

from collections import Counter

import numpy as np
import pytest
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import ROWS, Module, parse, print_module
from ptxmotion.ptx.verify import problems
from ptxmotion.toolchain.tools import assemble
from random_instructions import LEFT_OUT, LEFT_OUT_WITH_EFFECTS, templates
from random_programs import RandomProgram, random_kernel
from random_rewrites import rewritten

SIZES = (5, 20, 60, 150)

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 40
SHARE = 10


def program(seed: int) -> RandomProgram:
    return random_kernel(seed, SIZES[seed % len(SIZES)])


def sound(seed: int) -> Module:
    module = parse(program(seed).ptx, f"seed-{seed}.ptx")
    assert problems(module) == []
    return module


@pytest.mark.fuzz
def test_programs_read_back(seeds: list[int]) -> None:
    for seed in seeds:
        printed = print_module(sound(seed))
        assert print_module(parse(printed)) == printed, seed


@pytest.mark.fuzz
def test_programs_are_well_defined(seeds: list[int]) -> None:
    """The emulator has no finding, and the result is the same with every schedule."""
    for seed in seeds:
        drawn = program(seed)
        results: list[list[np.ndarray]] = []
        for schedule in ("order", "random"):
            args = drawn.make_inputs(seed)
            loaded = Emulator().load(drawn.ptx)
            done = loaded.launch(
                drawn.kernel, drawn.grid, drawn.block, args, drawn.shared, schedule=schedule, seed=seed
            )
            assert [str(finding) for finding in done.findings] == [], seed
            results.append([np.asarray(args[index]) for index in drawn.outputs])
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_ptxas_accepts_random_programs(seed: int) -> None:
    assemble(program(seed).ptx, arch="sm_90")


def test_a_program_is_a_function_of_its_seed() -> None:
    assert random_kernel(3, 60) == random_kernel(3, 60)
    assert random_kernel(3, 60) != random_kernel(4, 60)
    first, second = (program(3).make_inputs(5) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_outputs_are_sometimes_one_buffer() -> None:
    same = [args[1] is args[2] for args in (program(1).make_inputs(seed) for seed in range(20))]
    assert True in same
    assert False in same


def test_every_row_is_drawn_or_left_out() -> None:
    drawn = {template.form.op.semantics for template in templates()}
    for row in ROWS:
        if row.semantics and not row.effects and not row.approximate:
            assert (row.semantics in drawn) != (row.semantics in LEFT_OUT), row.pattern
    assert set(LEFT_OUT) | set(LEFT_OUT_WITH_EFFECTS) <= {row.semantics for row in ROWS}


def test_every_row_with_effects_is_drawn_or_left_out() -> None:
    """This is about rows that the emulator runs. Eighty programs are drawn, each with and without rewrites."""
    drawn: set[str] = set()
    for seed in range(80):
        plain = program(seed).ptx
        for text in (plain, rewritten(plain, seed)):
            drawn |= {each.form.op.semantics for kernel in parse(text).kernels for each in kernel.instructions()}
    for row in ROWS:
        if row.semantics and row.effects:
            assert (row.semantics in drawn) != (row.semantics in LEFT_OUT_WITH_EFFECTS), row.pattern


def test_every_spelling_is_pure_and_exact() -> None:
    for template in templates():
        row = template.form.op
        assert row.semantics, template.mnemonic
        assert not row.effects, template.mnemonic
        assert not row.approximate, template.mnemonic


def test_programs_have_opportunities_for_code_motion() -> None:
    """Over forty programs: loops, forks, barriers, guards, jumps, and expressions that occur again."""
    found: Counter[str] = Counter()
    for seed in range(40):
        kernel = sound(seed).kernels[0]
        texts: Counter[str] = Counter()
        place = {block.label: number for number, block in enumerate(kernel.blocks) if block.label is not None}
        for number, block in enumerate(kernel.blocks):
            for instr in block.instrs:
                found["guarded"] += instr.guard is not None
                found[instr.form.op.base] += 1
                if instr.form.op.base == "bra":
                    found["back edge"] += place[instr.operands[0]] <= number  # type: ignore[index]
                elif instr.form.dst_count:
                    texts[" ".join([instr.form.text, *(operand.text for operand in instr.srcs)])] += 1
        found["computed again"] += sum(count - 1 for count in texts.values())
    for what, least in {
        "back edge": 60,
        "guarded": 400,
        "computed again": 1000,
        "bar": 60,
        "shfl": 5,
        "vote": 5,
        "exit": 5,
        "atom": 10,
        "red": 3,
        "ld": 500,
        "st": 300,
        "cvta": 100,
        "addc": 5,
    }.items():
        assert found[what] >= least, (what, found)
