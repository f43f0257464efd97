"""Where diverged lanes reconverge, compared with pairs of lanes that walk through random graphs."""

import random
from collections.abc import Callable
from functools import partial

from growth import assert_near_linear
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.divergence.reconvergence import Reconvergence
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.graph.loops import Loops
from ptxmotion.ptx import Block

Edges = list[list[int]]
Instance = tuple[int, ...]  # a block, and the iteration of each loop around it, the outermost first


def analyse(succ: Edges, exits: list[int] | None = None) -> Reconvergence:
    ends = [number for number, after in enumerate(succ) if not after] if exits is None else exits
    cfg = Cfg([Block() for _ in succ], succ, ends)
    return Reconvergence(cfg, Loops(cfg))


def part(found: Reconvergence, divergent: list[int]) -> Reconvergence:
    for branch in divergent:
        found.diverge(branch)
    for index in range(len(found.loops.loops)):
        if found.loops.loops[index].is_irreducible:
            found.test_entries(index)
    for block in found.cfg.rpo:
        found.is_divergent_join(block)
    return found


def after(succ: Edges, divergent: list[int], exits: list[int] | None = None) -> tuple[list[int], list[int]]:
    """Divergent joins, and headers of loops with divergent exits."""
    found = part(analyse(succ, exits), divergent)
    return sorted(found.join_cause), sorted(found.loops.loops[index].header for index in found.loop_cause)


def test_the_sides_of_a_diamond_meet_at_its_end() -> None:
    assert after([[1, 2], [3], [3], []], [0]) == ([3], [])


def test_a_uniform_diamond_in_an_arm() -> None:
    # 0 → 1 | 5; the diamond 1 → 2 | 3 → 4; 5 joins
    succ = [[1, 5], [2, 3], [4], [4], [5], []]
    assert after(succ, [0]) == ([5], [])
    assert after(succ, [1]) == ([4], [])


def test_an_early_return_leaves_the_rest_alone() -> None:
    # 0 branches to the end or to a uniform loop with a uniform diamond
    succ = [[6, 1], [2, 3], [4], [4], [1, 5], [], []]
    assert after(succ, [0]) == ([], [])
    # … and when many guards jump to one end, only that end is a join of lanes
    assert after([[1, 4], [2, 4], [3, 4], [4], []], [0, 2]) == ([4], [])


def test_a_divergent_loop_exit() -> None:
    succ = [[1], [1, 2], []]
    assert after(succ, [1]) == ([], [1])


def test_the_header_of_a_divergent_loop_is_no_divergent_join() -> None:
    # header 1 has the exit, 2 is the body
    assert after([[1], [2, 3], [1], []], [1]) == ([], [1])


def test_a_divergent_continue_makes_the_header_a_join() -> None:
    # … and lanes that take it miss the exit of that iteration
    assert after([[1], [2, 3], [1], [1, 4], []], [1]) == ([1], [1])


def test_a_divergent_diamond_in_a_loop_leaves_header_and_exit_alone() -> None:
    assert after([[1], [2, 3], [4], [4], [1, 5], []], [1]) == ([4], [])


def test_a_uniform_diamond_in_a_loop_with_a_divergent_exit() -> None:
    assert after([[1], [2, 3], [4], [4], [1, 5], []], [4]) == ([], [1])


def test_two_exits_that_meet() -> None:
    # 1 has a uniform exit and 2 a divergent exit, both to 3
    assert after([[1], [2, 3], [1, 3], []], [2]) == ([3], [1])


def test_a_break_under_a_divergent_branch() -> None:
    # 1 is divergent, to 2 or 3; 2 has a uniform exit, and an edge to 3; 3 is the latch, with a uniform exit to 4
    assert after([[1], [2, 3], [3, 4], [1, 4], []], [1]) == ([3, 4], [1])


def test_only_the_loop_that_lanes_leave_apart() -> None:
    # outer 1..4, inner 2 ↔ 3 with a divergent exit at 3 to 4
    assert after([[1], [2], [3], [2, 4], [1, 5], []], [3]) == ([], [2])
    # a divergent break out of both
    assert after([[1], [2], [3, 5], [2, 4], [1, 5], []], [2]) == ([5], [1, 2])


def test_an_irreducible_loop() -> None:
    # 0 → 1 | 2, 1 ↔ 2, 2 → 3
    succ = [[1, 2], [2], [1, 3], []]
    assert after(succ, [0]) == ([1, 2], [1])
    assert after(succ, [2]) == ([1, 2], [1])
    assert after([[1, 4], [2, 3], [3], [2, 4], []], [0]) == ([4], [])


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    count = draw(st.integers(2, 12))
    node = st.integers(0, count - 1)
    # Mostly forward edges, so that walks are long.
    succ: Edges = []
    for number in range(count - 1):
        forward = st.integers(number + 1, count - 1)
        succ.append(draw(st.lists(st.one_of(forward, forward, node), min_size=1, max_size=3, unique=True)))
    return [*succ, []]


class Lane:
    """A walk through a graph that records the predecessor of each instance."""

    def __init__(self, found: Reconvergence, choices: dict[Instance, int], rng: random.Random) -> None:
        self.came: dict[Instance, int] = {}
        self.time: dict[Instance, int] = {}
        self.entered: dict[tuple[int, Instance], int] = {}  # loop and the iterations around it → time of entry
        self.last: dict[tuple[int, Instance], int] = {}  # … → the last iteration in it
        cfg, loops = found.cfg, found.loops
        block, before = 0, -1
        iteration: dict[int, int] = {}
        for time_now in range(150):
            around: list[int] = []
            index = loops.loop_of[block]
            while index >= 0:
                around.append(index)
                index = loops.loops[index].parent
            around.reverse()
            iteration = {index: iteration.get(index, 0) for index in around}
            if around and loops.loops[around[-1]].header == block:
                iteration[around[-1]] += 1
            vector = tuple(iteration[index] for index in around)
            instance = (block, *vector)
            assert instance not in self.came
            self.came[instance] = before
            self.time[instance] = time_now
            for depth, index in enumerate(around):
                self.entered.setdefault((index, vector[:depth]), time_now)
                self.last[index, vector[:depth]] = vector[depth]
            ways = cfg.succ[block]
            if not ways:
                return
            if block in divergent_branches(found):
                way = rng.randrange(len(ways))
            else:
                way = choices.setdefault(instance, rng.randrange(len(ways)))
            block, before = ways[way], block


def divergent_branches(found: Reconvergence) -> set[int]:
    return {block for block, flag in enumerate(found._divergent) if flag}  # pyright: ignore[reportPrivateUsage]


@given(graphs(), st.sets(st.integers(0, 10), max_size=4), st.integers(0, 1 << 30))
def test_lanes_that_arrive_apart_arrive_at_divergent_joins(succ: Edges, chosen: set[int], seed: int) -> None:
    found = analyse(succ)
    if any(loop.is_irreducible for loop in found.loops.loops):
        return
    part(found, [b for b in sorted(chosen) if b < len(succ) and found.cfg.reachable[b] and len(succ[b]) > 1])
    rng = random.Random(seed)
    for _ in range(30):
        choices: dict[Instance, int] = {}
        one, other = Lane(found, choices, rng), Lane(found, choices, rng)
        shared = [instance for instance in other.time if instance in one.time]
        for instance in shared:
            if one.came[instance] != other.came[instance]:
                assert instance[0] in found.join_cause, (instance, succ)
        # If the lanes left a loop in different iterations, they left it by a divergent exit.
        for key, last in one.last.items():
            loop = found.loops.loops[key[0]]
            if other.last.get(key, last) == last or loop.index in found.loop_cause:
                continue
            for instance in shared:
                is_behind = one.time[instance] > one.entered[key] and other.time[instance] > other.entered[key]
                assert instance[0] in loop or not is_behind, (loop, instance, succ)


@given(graphs(), st.lists(st.integers(0, 10), max_size=5, unique=True))
def test_the_order_in_which_branches_are_found_does_not_matter(succ: Edges, chosen: list[int]) -> None:
    reachable = analyse(succ).cfg.reachable
    branches = [b for b in chosen if b < len(succ) and reachable[b] and len(succ[b]) > 1]
    assert after(succ, branches) == after(succ, branches[::-1])


def test_reconvergence_takes_near_linear_time() -> None:
    def early_exits(size: int) -> Edges:
        return [[n + 1, size] for n in range(size - 1)] + [[size], []]

    def diamonds(size: int) -> Edges:
        succ: Edges = []
        for n in range(size):
            succ += [[3 * n + 1, 3 * n + 2], [3 * n + 3], [3 * n + 3]]
        return [*succ, []]

    for shape, small in ((early_exits, 8_000), (diamonds, 4_000)):
        assert_near_linear(partial(_analysed, shape), _part_everywhere, small)


def _analysed(shape: Callable[[int], Edges], size: int) -> Reconvergence:
    return analyse(shape(size))


def _part_everywhere(found: Reconvergence) -> None:
    part(found, [b for b in found.cfg.rpo if len(found.cfg.succ[b]) > 1])
    assert found.join_cause
