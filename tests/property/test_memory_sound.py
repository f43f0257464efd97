"""The claims of the memory analysis hold in every run of the emulator; see `memory_oracle`.

The programs are those of `random_pointers`, some of `random_programs`, half of these rewritten by `random_rewrites`,
and the suite programs in their smallest size. `--fuzz-n=N` uses N new programs.
"""

import sys
from pathlib import Path

import pytest
from ladder import Launch, launch_of, run
from memory_oracle import Tally, faults
from ptxmotion.analysis.memory import speculation
from ptxmotion.analysis.memory.alias import Memory, Reference
from ptxmotion.ptx import Guard, Param, Reg
from ptxmotion.suites.registry import benchmarks, find
from random_pointers import pointer_kernel
from random_programs import random_kernel
from random_rewrites import rewritten
from suite_oracle import check_suite_program

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from suite_programs import compiled

#: Programs of the suites that take about a second.
QUICK = ("cuda_samples/bilateralFilter", "cuda_samples/SobelFilter-consecutive", "rodinia/pathfinder", "rodinia/bfs")

SHARE = 8
FIXED = 40


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames:
        every = [each.fullname for each in benchmarks()]
        metafunc.parametrize("program", every if metafunc.config.getoption("--fuzz-n") else QUICK)


def drawn(seed: int) -> tuple[str, Launch]:
    """The program of ``seed``: for one seed in eight from `random_programs`, else from `random_pointers`."""
    if seed % 8 == 0:
        program = random_kernel(seed, (5, 12, 20, 35)[seed // 8 % 4])
        return rewritten(program.ptx, seed) if seed % 16 else program.ptx, launch_of(program)
    soup = pointer_kernel(seed, (8, 20, 40)[seed % 3])
    return soup.ptx, Launch(soup.kernel, soup.grid, soup.block, soup.shared, soup.make_inputs)


@pytest.mark.fuzz
def test_the_memory_facts_hold(seeds: list[int]) -> None:
    tally = Tally()
    for seed in seeds:
        ptx, launch = drawn(seed)
        assert faults(ptx, launch, seed, tally) == [], seed
    assert tally.programs == SHARE
    assert tally.apart > 100
    assert tally.proven > 50
    assert tally.guarded
    assert tally.refused


@pytest.mark.slow
def test_the_memory_facts_hold_for_the_suites(program: str) -> None:
    """The fast programs; with ``--fuzz-n`` all of them."""
    assert check_suite_program(find(program), compiled(program), Tally()) == []


# --- the oracle itself: it notices what is claimed wrongly ------------------------------------------------------------


def is_noticed(word: str, seeds: range) -> bool:
    """Whether one of the programs of ``seeds`` has a fault with ``word``."""
    return any(word in line for seed in seeds for line in faults(*drawn(seed), seed, Tally()))


def test_pointers_called_apart_without_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(self: Memory, one: Param, other: Param) -> bool:
        return True

    monkeypatch.setattr(Memory, "_is_promised", always)
    assert is_noticed("apart for ever", range(1, 40))


def test_offsets_compared_across_a_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    def within(self: Memory, one: int, two: int) -> tuple[int, int]:
        return (4, 16)

    monkeypatch.setattr(Memory, "_base_distance", within)
    assert is_noticed("apart in a t", range(1, 40))


def test_loads_speculated_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(reference: Reference, sites: object) -> str:
        return ""

    monkeypatch.setattr(speculation, "_refusal", always)
    assert is_noticed("out-of-bounds", range(1, 40))


def test_loads_speculated_under_the_wrong_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(reg: Reg, *, negated: bool) -> Guard:
        return Guard(reg, negated=not negated)

    monkeypatch.setattr(speculation, "Guard", turned)
    assert is_noticed("out-of-bounds", range(1, 40))


def test_a_guarded_access_of_few_bytes_at_one_address_is_checked() -> None:
    """An earlier version of the race check used one location for all active lanes."""
    ptx = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 30;
	@%p1 ld.u16 %r2, [%rd1+8];
	ret;
}
"""
    soup = pointer_kernel(0, 8)
    assert run(ptx, Launch("k", (1,), (32,), 0, lambda seed: soup.make_inputs(seed)[:1]), 0).fault == ""
