"""The loop nest compared with its definition, and on graphs like those of real kernels."""

from collections.abc import Callable
from functools import partial

from growth import assert_near_linear
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.graph.dominance import dominators
from ptxmotion.analysis.graph.loops import Loops
from ptxmotion.graphs import strongly_connected_components
from ptxmotion.ptx import Block

Edges = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    count = draw(st.integers(1, 12))
    node = st.integers(0, count - 1)
    return [draw(st.lists(node, max_size=3, unique=True)) for _ in range(count)]


def nest(succ: Edges) -> Loops:
    return Loops(Cfg([Block() for _ in succ], succ, [n for n, after in enumerate(succ) if not after]))


def sets(loops: Loops) -> dict[int, list[int]]:
    return {loop.header: loop.blocks for loop in loops.loops}


def test_nested_loops_with_a_break() -> None:
    # 1 heads the outer loop, 2 the inner one; 3 breaks out of both
    loops = nest([[1], [2, 6], [3], [4, 6], [2, 5], [1], []])
    assert sets(loops) == {1: [1, 2, 3, 4, 5], 2: [2, 3, 4]}
    outer, inner = loops.loops
    assert (outer.parent, outer.depth, outer.latches) == (-1, 1, [5])
    assert (inner.parent, inner.depth, inner.latches) == (0, 2, [4])
    assert outer.exits == [(1, 6), (3, 6)]
    assert inner.exits == [(3, 6), (4, 5)]
    assert loops.loop_of == [-1, 0, 1, 1, 1, 0, -1]
    assert loops.depth == [0, 1, 2, 2, 2, 1, 0]
    assert inner.entries == [2] and not inner.is_irreducible
    assert 3 in inner and 5 not in inner


def test_two_latches_make_one_loop() -> None:
    (loop,) = nest([[1], [2, 3], [1], [1, 4], []]).loops
    assert (loop.blocks, loop.latches) == ([1, 2, 3], [2, 3])


def test_a_block_that_branches_to_itself() -> None:
    (loop,) = nest([[1], [1, 2], []]).loops
    assert (loop.header, loop.blocks, loop.latches, loop.exits) == (1, [1], [1], [(1, 2)])


def test_two_entries_make_an_irreducible_loop() -> None:
    (loop,) = nest([[1, 2], [2], [1, 3], []]).loops
    assert loop.is_irreducible
    assert (loop.blocks, loop.entries) == ([1, 2], [1, 2])


def test_a_jump_into_an_inner_loop_spoils_that_one_only() -> None:
    # outer 1..5; inner 3 ↔ 4, entered at 3 and at 4
    loops = nest([[1], [2, 4], [3], [4], [3, 5], [1, 6], []])
    assert {tuple(loop.blocks): loop.is_irreducible for loop in loops.loops} == {
        (1, 2, 3, 4, 5): False,
        (3, 4): True,
    }


def test_the_entry_block_can_head_a_loop() -> None:
    (loop,) = nest([[1], [0, 2], []]).loops
    assert (loop.header, loop.blocks, loop.entries) == (0, [0, 1], [0])


def test_unreachable_loops_are_no_loops() -> None:
    assert nest([[], [2], [1]]).loops == []


@given(graphs())
def test_loops_are_strongly_connected_regions_without_back_edges(succ: Edges) -> None:
    loops = nest(succ)

    def check(region: list[int], edges: Edges, parent: int) -> None:
        for component in strongly_connected_components(edges, region):
            if len(component) == 1 and component[0] not in edges[component[0]]:
                if parent >= 0 and component[0] == loops.loops[parent].header:
                    continue
                assert loops.loop_of[component[0]] == parent
                continue
            (index,) = {loop.index for loop in loops.loops if loop.parent == parent and loop.header in component}
            loop = loops.loops[index]
            assert loop.blocks == sorted(component)
            header = loop.header
            assert loop.latches == [b for b in loop.blocks if header in succ[b]]
            assert loops.loop_of[header] == index
            assert loop.depth == (loops.loops[parent].depth + 1 if parent >= 0 else 1)
            inside = [[to for to in after if to != header and to in component] for after in edges]
            check(component, inside, index)

    check(list(loops.cfg.rpo), succ, -1)
    assert len({loop.header for loop in loops.loops}) == len(loops.loops)


@given(graphs())
def test_a_loop_is_irreducible_if_its_header_does_not_dominate_it(succ: Edges) -> None:
    loops = nest(succ)
    tree = dominators(loops.cfg)
    for loop in loops.loops:
        assert loop.is_irreducible == (not all(tree.dominates(loop.header, block) for block in loop.blocks))
        assert loop.is_irreducible == (loop.entries != [loop.header])


def deep_nest(depth: int) -> Edges:
    """``depth`` loops, each inside the one before, tested at their ends."""
    heads = [[n + 1] for n in range(depth)]
    latches = [[2 * depth - 1 - n, n + 1] for n in range(depth, 2 * depth)]
    return [*heads, *latches, []]


def tangle(size: int) -> Edges:
    """A chain.

    Each node has a second edge, to the node two places before it. Each second loop overlaps the next one.
    """
    return [[n + 1, *([n - 2] if n >= 2 else [])] for n in range(size - 1)] + [[]]


def irreducible_chain(size: int) -> Edges:
    """Loops of two blocks each, with jumps from the first block to both."""
    succ: Edges = [[1]]
    for n in range(size):
        a = 3 * n + 1
        succ += [[a + 1, a + 2], [a + 2], [a + 1, a + 3]]
    return [*succ, []]


def test_loop_nests_take_near_linear_time() -> None:
    for shape, small in ((deep_nest, 3_000), (tangle, 5_000), (irreducible_chain, 2_000)):
        assert_near_linear(partial(_cfg_of, shape), _find_loops, small)


def _cfg_of(shape: Callable[[int], Edges], size: int) -> Cfg:
    succ = shape(size)
    return Cfg([Block() for _ in succ], succ, [len(succ) - 1])


def _find_loops(cfg: Cfg) -> None:
    assert Loops(cfg).loops
