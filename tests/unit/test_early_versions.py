"""Versions with loads before barriers: what they require, which distance is taken, and where they are preferred."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from contract_versions import HEAD, body, versions, with_contract
from ptxmotion import Policy, optimize
from ptxmotion.analysis.manager import Facts
from ptxmotion.contract import Contract, Disjoint, Holds, Range, Version
from ptxmotion.contract.expressions import argument, compare
from ptxmotion.cost import Figures, Piece, preferred_between_barriers
from ptxmotion.ptx import parse
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.warp_schedule import alone, pieces
from ptxmotion.transforms.gate.static_judge import StaticJudge
from ptxmotion.versions import search
from ptxmotion.versions.early import Early, early_kernels, early_requirements
from ptxmotion.versions.search import limit_by_block

NAME = "loads before barriers"
NEVER = (0, 0, 0, 0)
THREADS = "block_x * block_y * block_z"
#: Each iteration shares an element of ``x`` between two barriers, adds up 24 of them, and stores the sum to ``y``.
KERNEL = (
    HEAD
    + """
.visible .entry tile(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<12>;
    .reg .f32 %f<60>;
    .reg .b64 %rd<12>;
    .shared .align 4 .b8 row[1152];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    mov.u64 %rd6, row;
    add.s64 %rd7, %rd6, %rd3;
    mov.u32 %r3, 0;
LOOP:
    LOAD
    st.shared.f32 [%rd7], %f1;
    bar.sync 0;
    SUMS
    STORE
    bar.sync 0;
    add.s64 %rd4, %rd4, 1024;
    add.s64 %rd5, %rd5, 1024;
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p, %r3, %r1;
    @%p bra LOOP;
    ret;
}
"""
)
SUMS = "mov.f32 %f2, 0f00000000;" + "".join(
    f"ld.shared.f32 %f{n + 3}, [%rd7+{4 * n}]; add.rn.f32 %f2, %f2, %f{n + 3};" for n in range(24)
)
LOAD, STORE = "ld.global.f32 %f1, [%rd4];", "st.global.f32 [%rd5], %f2;"


def kernel(load: str = LOAD, store: str = STORE) -> str:
    return KERNEL.replace("LOAD", load).replace("SUMS", SUMS).replace("STORE", store)


def early(contract: Contract) -> dict[str, Version]:
    return {what: each for what, each in versions(contract, "tile").items() if NAME in what}


def without_judge(ptx: str) -> dict[str, Version]:
    result = optimize(ptx, "copyprop,dce", Policy(gate="off", contract=True))
    assert result.contract is not None
    return early(result.contract)


def test_the_load_of_the_next_iteration_precedes_the_barrier() -> None:
    result, contract = with_contract(kernel())
    found = early(contract)
    assert set(found) == {f"disjoint buffers, {NAME}", f"disjoint accesses, {NAME}"}
    version = found[f"disjoint buffers, {NAME}"]
    assert [type(each) for each in version.requires] == [Disjoint]
    code = body(result.text, version.entry)
    inside = code.partition("LOOP:")[2].partition("bra LOOP")[0]
    assert inside.index("ld.global") < inside.rindex("bar.sync") and "ld.global" in code.partition("LOOP:")[0]
    assert "%e_" not in body(result.text, "tile")


def test_it_is_tried_before_the_version_that_it_extends() -> None:
    _, contract = with_contract(kernel())
    order = [each.description for each in contract.kernels["tile"].versions]
    assert NAME in order[0] and order[-1] == ""


def test_no_condition_where_the_memory_is_read_only_anyway() -> None:
    found = without_judge(kernel("ld.global.nc.f32 %f1, [%rd4];"))
    assert set(found) == {NAME} and found[NAME].requires == ()


@pytest.mark.parametrize(
    ("why", "load", "store"),
    [
        ("the same buffer", LOAD, "st.global.f32 [%rd4], %f2;"),
        ("no global load", "mov.f32 %f1, 0f3F800000;", STORE),
        ("volatile", "ld.volatile.global.f32 %f1, [%rd4];", STORE),
    ],
)
def test_where_there_is_none(why: str, load: str, store: str) -> None:
    assert without_judge(kernel(load, store)) == {}, why


def test_no_barrier_no_version() -> None:
    assert without_judge(kernel().replace("bar.sync 0;", "")) == {}


def test_without_figures_it_is_for_few_warps() -> None:
    found = without_judge(kernel())
    assert {str(each.prefer_when) for each in found.values()} == {"warps_per_scheduler <= 4"}


def test_the_static_model_knows_no_barriers() -> None:
    result = optimize(kernel(), "O3", Policy(judge=StaticJudge(), contract=True))
    assert result.contract is not None and early(result.contract) == {}


def test_the_code_of_ptxas_decides_about_early_loads() -> None:
    """The loop must not be unrolled by ptxas in one of the two only."""
    ptx = kernel().replace("LOOP:", 'LOOP:\n    .pragma "nounroll";')
    _, contract = with_contract(ptx, "ptxas")
    found = early(contract)
    assert set(found) == {f"disjoint buffers, {NAME}", f"disjoint accesses, {NAME}"}
    _, contract = with_contract(kernel(), "ptxas")
    assert early(contract) == {}


def test_the_conditions_of_a_version_that_it_extends() -> None:
    module = parse(kernel().replace(".param .u32 n", ".param .u64 z, .param .u32 n"))
    facts, aligned = Facts(module.entries[0], module), Holds(compare("==", argument(0) % 8, 0))
    buffers = Disjoint(Range(0), Range(1))
    lower = {"disjoint buffers, aligned": (buffers, aligned), "disjoint accesses, aligned": (aligned,)}
    pairs, more = frozenset([("x", "y")]), frozenset([("y", "z")])
    assert list(early_requirements(facts, lower, pairs, frozenset()).values()) == list(lower.values())
    found = early_requirements(facts, lower, pairs, more)
    assert set(found) == {f"{what}, {NAME}" for what in lower}
    assert set(found[f"disjoint buffers, aligned, {NAME}"]) == {buffers, aligned, Disjoint(Range(1), Range(2))}
    accesses = found[f"disjoint accesses, aligned, {NAME}"]
    assert aligned in accesses and any(isinstance(each, Disjoint) for each in accesses)
    found = early_requirements(facts, {"aligned": (aligned,)}, frozenset(), pairs)
    assert set(found) == {f"disjoint {what}, aligned, {NAME}" for what in ("buffers", "accesses")}


# --- the model -------------------------------------------------------------------------------------------------------

WAITS = Figures("a", 32, 0, 64.0, 800.0, 8000.0, threads=1024, barriers=16.0)
#: All latency is in the piece with little work; then it is in the other one.
BEFORE = replace(WAITS, pieces=(Piece(6000.0, 200.0, 0.0), Piece(2000.0, 600.0, 0.0)))
AFTER = replace(WAITS, code="b", pieces=(Piece(200.0, 200.0, 0.0), Piece(7800.0, 600.0, 0.0)))


def test_latency_overlaps_only_with_work_before_the_next_barrier() -> None:
    assert BEFORE.cycles_of_block(1) == AFTER.cycles_of_block(1) == 8000
    assert BEFORE.cycles_of_block(8) == 6000 + 4800 and AFTER.cycles_of_block(8) == 1600 + 7800
    assert BEFORE.cycles_among_blocks(8, 2) == 800 and BEFORE.cycles_among_blocks(8, 1) == (6000 + 4800) / 8


def test_warps_that_go_on_together_wait_for_the_latencies_of_one() -> None:
    assert BEFORE.cycles_in_step(1) == 8000 and BEFORE.cycles_in_step(4) == (8000 + 3 * 800) / 4


def test_up_to_how_many_warps_it_is_preferred() -> None:
    better = replace(BEFORE, code="b", pieces=(Piece(200.0, 200.0, 0.0), Piece(2000.0, 640.0, 0.0)), weight=840.0)
    better = replace(better, cycles=2200.0)
    warps = preferred_between_barriers(BEFORE, better)
    # With so many warps, the work of 840 instead of 800 cycles for each fills the time if blocks do not wait together.
    assert warps == (9, 8, 8, 8)
    less_work = replace(better, weight=812.0, pieces=(Piece(200.0, 200.0, 0.0), Piece(2000.0, 612.0, 0.0)))
    assert preferred_between_barriers(BEFORE, less_work) == (None,) * 4  # 1.5 % more work
    assert preferred_between_barriers(BEFORE, BEFORE) == NEVER
    assert preferred_between_barriers(replace(BEFORE, pieces=()), better) == NEVER


def test_it_has_to_be_faster_if_all_warps_wait_together() -> None:
    """All that is gained is latency which overlaps with work in the model of pieces only."""
    longer = replace(AFTER, pieces=(Piece(200.0, 200.0, 0.0), Piece(600.0, 600.0, 0.0)), cycles=8100.0)
    assert longer.cycles_among_blocks(8, 1) < BEFORE.cycles_among_blocks(8, 1)
    assert preferred_between_barriers(BEFORE, longer) == NEVER
    assert preferred_between_barriers(BEFORE, replace(longer, cycles=7000.0)) != NEVER


@pytest.mark.parametrize(
    "change",
    [
        {"barriers": 8.0},  # ptxas has unrolled another loop
        {"pieces": ()},
        {"spills": 1},
        {"threads": 512},
    ],
)
def test_what_cannot_be_compared_or_launched(change: dict[str, object]) -> None:
    better = replace(BEFORE, code="b", pieces=(Piece(200.0, 200.0, 0.0), Piece(2000.0, 600.0, 0.0)), cycles=2200.0)
    assert preferred_between_barriers(BEFORE, better) != NEVER
    changed = replace(better, **change)  # pyright: ignore[reportArgumentType]
    assert preferred_between_barriers(BEFORE, changed) == NEVER


def test_fewer_resident_warps_are_not_preferred_where_they_count() -> None:
    better = replace(BEFORE, code="b", pieces=(Piece(200.0, 200.0, 0.0), Piece(2000.0, 600.0, 0.0)), cycles=2200.0)
    assert preferred_between_barriers(BEFORE, replace(better, warps=20.0)) == (5, 4, 4, 0)
    before, after = replace(BEFORE, resident=(64, 64, 64, 64)), replace(better, resident=(24, 40, 32, 32), warps=20.0)
    assert preferred_between_barriers(before, after) == (6, 10, 8, 8)


def test_the_blocks_that_a_kernel_allows_are_those_whose_warps_are_resident() -> None:
    ptx = kernel()
    assert PtxasJudge().figures(ptx)["tile"].resident == (64, 64, 64, 64)
    limited = ptx.replace(".param .u32 n)\n{", ".param .u32 n) .maxntid 192, 1, 1\n{")
    assert limited != ptx and PtxasJudge().figures(limited)["tile"].resident == (64, 60, 60, 60)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((None,) * 4, "None"),
        ((4, 4, 4, 4), "warps_per_scheduler <= 4"),
        ((9, 9, 4, 4), f"warps_per_scheduler <= (9 if {THREADS} <= 256 else 4)"),
        ((None, 12, 8, 8), f"warps_per_scheduler <= (16 if {THREADS} <= 128 else 12 if {THREADS} <= 256 else 8)"),
    ],
)
def test_the_preference_is_one_for_each_size_of_block(limits: tuple[int | None, ...], expected: str) -> None:
    assert str(limit_by_block(limits)) == expected


def test_a_distance_that_ptxas_refuses_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first distance, the module that is judged has a directive that ptxas does not know."""
    ptx = kernel().replace("LOOP:", 'LOOP:\n    .pragma "nounroll";')
    refused: list[Early] = []

    def with_a_bad_one(*arguments: Any) -> Iterator[Early]:
        for each in early_kernels(*arguments):
            if not refused:
                broken = each.kernel.clone()
                broken.directives = [*broken.directives, ".unknowndirective"]
                refused.append(replace(each, kernel=broken))
                yield refused[0]
            yield each

    monkeypatch.setattr(search, "early_kernels", with_a_bad_one)
    _, contract = with_contract(ptx, "ptxas")
    assert refused and early(contract)


def test_pieces_of_a_cubin_add_up_to_its_cycles() -> None:
    judge = PtxasJudge()
    figures = judge.figures(kernel())["tile"]
    assert figures.pieces and figures.barriers >= 16
    assert sum(each.weight for each in figures.pieces) == figures.weight
    assert sum(each.requests for each in figures.pieces) == figures.requests
    assert sum(each.cycles for each in figures.pieces) == pytest.approx(figures.cycles, rel=0.05)
    assert judge.figures(kernel())["tile"] == figures  # from the cache


def test_pieces_are_those_of_the_slowest_way() -> None:
    """One of two loops is executed, each with a barrier; the second one has twice as many instructions."""
    word, code = (0, 4 << 41 | 7 << 46 | 7 << 49), ["branch", "barrier", "barrier", "integer", "integer", "integer"]
    blocks = [(0, 1), (1, 2), (2, 4), (4, 6)]
    found = pieces([word] * 6, code, blocks, [[1, 2], [1, 3], [2, 3], []], [0, 1, 1, 0], ())
    assert found == ((4.0, 1.0, 0.0), (32.0, 8.0, 0.0), (32.0, 8.0, 0.0), (8.0, 2.0, 0.0))
    # A function that is called belongs to each way.
    found = pieces([word] * 6, code, blocks, [[1], [1, 3], [2], []], [0, 1, 1, 0], ())
    assert sum(weight for _, weight, _ in found) == 1 + 8 + 16 + 2


def test_the_slowest_way_has_to_be_faster() -> None:
    """Another way than that of the pieces is faster: the launch still waits for the blocks on this one."""
    other = replace(BEFORE, code="b", cycles=2000.0)
    assert other.cycles_in_step(4) < BEFORE.cycles_in_step(4) and preferred_between_barriers(BEFORE, other) == NEVER


def test_code_without_a_barrier_in_a_loop_has_no_pieces() -> None:
    stall = (0, 1 << 41 | 7 << 46 | 7 << 49)
    code = ["barrier", "integer"]
    assert pieces([stall, stall], code, [(0, 2)], [[]], [0], ()) == ()
    assert alone([stall, stall], code, [(0, 2)], [[]], [0]) == 2
    assert parse(kernel()).entries[0].name == "tile"
