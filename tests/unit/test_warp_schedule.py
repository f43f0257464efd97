"""Cycles of one warp: the replay of the schedule of ptxas shows differences between instructions."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.arch import LATENCY
from ptxmotion.arch import OTHER_LATENCY as OTHER
from ptxmotion.cost import TRIPS
from ptxmotion.toolchain.cubin import read_cubin
from ptxmotion.toolchain.tools import ToolMissing, assemble
from ptxmotion.toolchain.warp_schedule import alone, exposed

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "experiments"))

code_alignment: Any = importlib.import_module("code_alignment")

NEVER = 7


def word(stall: int = 1, sets: int = NEVER, read: int = NEVER, waits: tuple[int, ...] = ()) -> tuple[int, int]:
    """An encoded instruction of which only the fields of the schedule are set."""
    control = stall | sets << 5 | read << 8 | sum(1 << barrier for barrier in waits) << 11
    return 0, control << 41


LOAD, ADD = "load_global", "integer"


def straight(*code: tuple[tuple[int, int], str]) -> float:
    return alone([w for w, _ in code], [k for _, k in code], [(0, len(code))], [[]], [0])


def test_loads_issued_together_wait_once_and_one_after_the_other_twice() -> None:
    together = straight((word(sets=0), LOAD), (word(sets=1), LOAD), (word(waits=(0,)), ADD), (word(waits=(1,)), ADD))
    apart = straight((word(sets=0), LOAD), (word(waits=(0,)), ADD), (word(sets=1), LOAD), (word(waits=(1,)), ADD))
    assert together == LATENCY[LOAD] + 2
    assert apart == 2 * LATENCY[LOAD] + 2


def exposed_in(*code: tuple[tuple[int, int], str]) -> float:
    return exposed(straight(*code), [w for w, _ in code], [k for _, k in code], [(0, len(code))], [[]], [0])


def test_loads_issued_together_expose_one_latency_and_one_after_the_other_two() -> None:
    waits = (word(waits=(0,)), ADD)
    assert exposed_in((word(sets=0), LOAD), (word(sets=1), LOAD), (word(waits=(0, 1)), ADD)) == LATENCY[LOAD]
    assert exposed_in((word(sets=0), LOAD), waits, (word(sets=0), LOAD), waits) == 2 * LATENCY[LOAD]
    assert exposed_in((word(sets=0), LOAD), *[(word(stall=15), ADD)] * 100, waits) == 0
    assert exposed_in((word(sets=0), "load_shared"), waits) == 0


def test_work_between_a_load_and_its_wait_is_free() -> None:
    work = [(word(stall=4), ADD)] * 10
    hidden = straight((word(sets=0), LOAD), *work, (word(waits=(0,)), ADD))
    behind = straight((word(sets=0), LOAD), (word(waits=(0,)), ADD), *work)
    assert behind - hidden == 40


def test_a_barrier_of_two_loads_is_clear_after_the_later_one() -> None:
    assert straight((word(stall=9, sets=3), LOAD), (word(sets=3), LOAD), (word(waits=(3,)), ADD)) == LATENCY[LOAD] + 10


def test_other_classes_and_reads_have_a_latency() -> None:
    assert straight((word(sets=0), "special"), (word(waits=(0,)), ADD)) == OTHER + 1
    assert straight((word(read=5), "store_global"), (word(waits=(5,)), ADD)) == OTHER + 1


def test_what_enters_a_loop_is_waited_for_once_and_what_goes_round_every_time() -> None:
    blocks, successors, depth = [(0, 1), (1, 3), (3, 4)], [[1], [1, 2], []], [0, 1, 0]
    nothing = word(), ADD
    loads = {"before": (word(sets=0), LOAD), "inside": (word(sets=1), LOAD)}

    def looped(before: bool, inside: bool) -> float:
        code = [
            loads["before"] if before else nothing,
            (word(waits=(0, 1)), ADD),
            loads["inside"] if inside else nothing,
            nothing,
        ]
        return alone([w for w, _ in code], [k for _, k in code], blocks, successors, depth)

    plain = looped(False, False)
    assert plain == 1 + 2 * TRIPS + 1
    assert looped(True, False) - plain == LATENCY[LOAD] - 1
    assert looped(False, True) - plain == (LATENCY[LOAD] - 1) * TRIPS


SUMS = """.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 a, .param .u64 b)
{{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.global.u32 %r1, [%rd1];
	{second}
	ld.global.u32 %r2, [%rd3];
	add.u32 %r3, %r1, %r2;
	st.global.u32 [%rd2], %r3;
	ret;
}}
"""


def test_ptxas_code_of_a_dependent_load_takes_one_more_latency() -> None:
    def cycles(second: str) -> float:
        try:
            return read_cubin(assemble(SUMS.format(second=second)).cubin)["k"].cycles
        except ToolMissing as why:
            pytest.skip(str(why))

    independent = cycles("add.u64 %rd3, %rd1, 64;")
    dependent = cycles("cvt.u64.u32 %rd3, %r1; add.u64 %rd3, %rd3, %rd1;")
    assert LATENCY[LOAD] <= independent < 2 * LATENCY[LOAD] <= dependent < 3 * LATENCY[LOAD]


@pytest.mark.parametrize("length", [4, 12])
def test_the_head_of_a_loop_at_the_end_of_a_line_costs_one_or_two_cycles(length: int) -> None:
    try:
        cubin = assemble(code_alignment.loop_of(length, 4), "sm_90").cubin
    except ToolMissing as why:
        pytest.skip(str(why))
    head, _ = code_alignment.loop_place(cubin)
    moved = [code_alignment.shifted(cubin, count) for count in range(17)]
    codes = [read_cubin(each)["k"] for each in moved]
    assert [code_alignment.loop_place(each)[0] for each in moved] == [head + count for count in range(17)]
    waits = [code.fetched / TRIPS for code in codes]
    assert waits == [{6: 1, 7: 2}.get((head + count) % 8, 0) for count in range(17)]
    assert {code.cycles - codes[0].cycles - count for count, code in enumerate(codes)} == {0}
    assert len({code.looped for code in codes}) == 1


REREAD = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 o, .param .u32 n)
{{
	.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p;
	ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [o]; ld.param.u32 %r1, [n];
L:
	ld.global.u32 %r2, [%rd1];
	st.global.u32 [%rd2], %r2;
	add.u64 %rd2, %rd2, 4;
	{next}
	add.u32 %r1, %r1, -1;
	setp.ne.u32 %p, %r1, 0;
	@%p bra L;
	ret;
}}
"""


def test_a_load_of_the_same_address_in_all_iterations_misses_once() -> None:
    def code(then: str) -> Any:
        try:
            return read_cubin(assemble(REREAD.format(next=then), "sm_90").cubin)["k"]
        except ToolMissing as why:
            pytest.skip(str(why))

    same, other = code(""), code("add.u64 %rd1, %rd1, 4;")
    waits = (same.cycles - same.cached) / (LATENCY[LOAD] - LATENCY["load_local"]) * TRIPS / (TRIPS - 1)
    assert waits >= TRIPS and waits == round(waits)
    assert (other.cached, other.exposed) == (other.cycles, same.exposed)
