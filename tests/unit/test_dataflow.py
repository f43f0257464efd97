"""The solver of data-flow equations, compared with enumeration of paths and with simple iteration."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.graph.dataflow import Meet, Solution, bits, solve
from ptxmotion.ptx import Block

Edges = list[list[int]]
FACTS = 5
UNIVERSE = (1 << FACTS) - 1


@st.composite
def problems(draw: st.DrawFn) -> tuple[Cfg, list[int], list[int], int]:
    count = draw(st.integers(1, 9))
    node = st.integers(0, count - 1)
    facts = st.integers(0, UNIVERSE)
    succ = [draw(st.lists(node, max_size=3, unique=True)) for _ in range(count)]
    exits = [n for n, after in enumerate(succ) if not after or draw(st.integers(0, 5)) == 0]
    gen = [draw(facts) for _ in succ]
    kill = [draw(facts) for _ in succ]
    return Cfg([Block() for _ in succ], succ, exits), gen, kill, draw(facts)


def plainly(
    cfg: Cfg, direction: str, meets: list[Meet], gen: list[int], kill: list[int], boundary: int, start: int
) -> Solution:
    """The solution by iteration over all reachable blocks until nothing changes."""
    forward = direction == "forward"
    ends = {0} if forward else set(cfg.leaves)
    inward = dict.fromkeys(cfg.rpo, start)
    outward = dict.fromkeys(cfg.rpo, start)
    changed = True
    while changed:
        changed = False
        for b in cfg.rpo:
            values = [outward[o] for o in (cfg.pred if forward else cfg.succ)[b] if o in outward]
            if b in ends:
                values.append(boundary)
            facts = values[0]
            for value in values[1:]:
                facts = facts | value if meets[b] == "union" else facts & value
            result = gen[b] | (facts & ~kill[b])
            changed = changed or (facts, result) != (inward[b], outward[b])
            inward[b], outward[b] = facts, result
    neutral = [0 if meet == "union" else UNIVERSE for meet in meets]
    a = [inward.get(b, neutral[b]) for b in range(len(cfg))]
    z = [outward.get(b, neutral[b]) for b in range(len(cfg))]
    return Solution(a, z) if forward else Solution(z, a)


@given(problems(), st.sampled_from(["forward", "backward"]), st.sampled_from(["union", "intersection"]))
def test_solution_is_that_of_plain_iteration(
    problem: tuple[Cfg, list[int], list[int], int], direction: Literal["forward", "backward"], meet: Meet
) -> None:
    cfg, gen, kill, boundary = problem
    found = solve(cfg, direction=direction, meet=meet, gen=gen, kill=kill, boundary=boundary, universe=UNIVERSE)
    start = 0 if meet == "union" else UNIVERSE
    assert found == plainly(cfg, direction, [meet] * len(cfg), gen, kill, boundary, start)


@given(problems(), st.data())
def test_bits_with_different_meets_are_solved_together(
    problem: tuple[Cfg, list[int], list[int], int], data: st.DataObject
) -> None:
    cfg, gen, kill, boundary = problem
    choice: st.SearchStrategy[Meet] = st.sampled_from(("union", "intersection"))
    meets: list[Meet] = [data.draw(choice) for _ in range(len(cfg))]

    def run(chosen: list[Meet]) -> Solution:
        return solve(
            cfg,
            direction="backward",
            meet="union",
            meets=chosen,
            gen=gen,
            kill=kill,
            boundary=boundary,
            universe=UNIVERSE,
        )

    found = run(meets)
    lowest = run(["intersection"] * len(cfg))
    highest = plainly(cfg, "backward", meets, gen, kill, boundary, UNIVERSE)
    for b in cfg.rpo:
        # It solves the equations …
        values = [found.entry[s] for s in cfg.succ[b]] + ([boundary] if b in cfg.leaves else [])
        facts = values[0]
        for value in values[1:]:
            facts = facts | value if meets[b] == "union" else facts & value
        assert found.exit[b] == facts
        assert found.entry[b] == gen[b] | (facts & ~kill[b])
        # … and is between the solution with intersections only and the greatest solution.
        assert lowest.entry[b] & ~found.entry[b] == 0
        assert found.entry[b] & ~highest.entry[b] == 0


@given(problems(), st.data())
def test_unions_by_fact(problem: tuple[Cfg, list[int], list[int], int], data: st.DataObject) -> None:
    """Each fact has the solution of a problem with only this fact and the meet operators that blocks use for it."""
    cfg, gen, kill, boundary = problem
    unions = [data.draw(st.integers(0, UNIVERSE)) for _ in range(len(cfg))]

    def run(**meets: object) -> Solution:
        return solve(
            cfg,
            direction="backward",
            meet="intersection",
            gen=gen,
            kill=kill,
            boundary=boundary,
            universe=UNIVERSE,
            **meets,  # pyright: ignore[reportArgumentType]
        )

    found = run(unions=unions)
    assert found == run(unions=unions, strict=run())
    for fact in range(UNIVERSE.bit_length()):
        alone = run(meets=["union" if facts >> fact & 1 else "intersection" for facts in unions])
        for b in cfg.rpo:
            assert (found.entry[b] ^ alone.entry[b]) >> fact & 1 == 0
            assert (found.exit[b] ^ alone.exit[b]) >> fact & 1 == 0


def down_safety(succ: Edges, gen: list[int], unions: set[int]) -> list[int]:
    cfg = Cfg([Block() for _ in succ], succ, [n for n, after in enumerate(succ) if not after])
    meets: list[Meet] = ["union" if n in unions else "intersection" for n in range(len(succ))]
    kill = [0] * len(succ)
    found = solve(
        cfg, direction="backward", meet="intersection", meets=meets, gen=gen, kill=kill, boundary=0, universe=1
    )
    return found.entry


def test_a_loop_left_by_a_union_block_does_not_hold_up_a_fact_by_itself() -> None:
    # 0 → 1 → 2 → 1 | 3: no block generates anything
    assert down_safety([[1], [2], [1, 3], []], [0, 0, 0, 0], {2}) == [0, 0, 0, 0]


def test_a_divergent_diamond_in_a_loop_keeps_what_holds_behind_the_loop() -> None:
    # 0 → 1 (head) → 2 | 6;  2 → 3 | 4 → 5 → 1;  6 generates. With a union at 2, the solution is not smaller.
    succ = [[1], [2, 6], [3, 4], [5], [5], [1], []]
    gen = [0, 0, 0, 0, 0, 0, 1]
    assert down_safety(succ, gen, set()) == down_safety(succ, gen, {2}) == [1] * 7


def test_one_arm_is_enough_at_a_union_block() -> None:
    # Figure 4.5 (2) of the thesis: what one side of a divergent branch computes is down-safe above it
    succ = [[1, 2], [3], [3], []]
    assert down_safety(succ, [0, 1, 0, 0], set()) == [0, 1, 0, 0]
    assert down_safety(succ, [0, 1, 0, 0], {0}) == [1, 1, 0, 0]


def test_a_chain_of_union_blocks_takes_near_linear_time() -> None:
    # each block branches to the end or to the next block; only the last one generates
    count = 20_000
    succ = [[n + 1, count] for n in range(count - 1)] + [[count], []]
    gen = [0] * (count + 1)
    gen[count - 1] = 1
    assert down_safety(succ, gen, set(range(0, count, 2)))[0] == 0
    assert down_safety(succ, gen, set(range(count - 1)))[0] == 1


def test_nothing_is_anticipated_at_an_endless_loop() -> None:
    succ = [[1, 2], [1], []]
    assert down_safety(succ, [0, 0, 1], set()) == [0, 0, 1]


@given(st.integers(0, 1 << 700))
def test_the_numbers_of_set_bits(facts: int) -> None:
    assert bits(facts) == [n for n in range(facts.bit_length()) if facts >> n & 1]
