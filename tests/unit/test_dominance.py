"""Dominators compared with their definition on random graphs, and the growth of the time on large ones."""

from collections.abc import Callable
from functools import partial

from growth import assert_near_linear
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.graph.dominance import Dominance, dominators, post_dominators
from ptxmotion.ptx import Block

Edges = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    count = draw(st.integers(1, 12))
    node = st.integers(0, count - 1)
    return [draw(st.lists(node, max_size=3, unique=True)) for _ in range(count)]


def as_cfg(succ: Edges, exits: list[int] | None = None) -> Cfg:
    ends = [number for number, after in enumerate(succ) if not after] if exits is None else exits
    return Cfg([Block() for _ in succ], succ, ends)


def reach(succ: Edges, root: int, without: int = -1) -> set[int]:
    seen: set[int] = set()
    work = [root] if root != without else []
    while work:
        node = work.pop()
        if node not in seen:
            seen.add(node)
            work.extend(to for to in succ[node] if to != without)
    return seen


def dominates_by_definition(succ: Edges, root: int, a: int, b: int) -> bool:
    if a == b:
        return True
    return b in reach(succ, root) and b not in reach(succ, root, without=a)


def check_against_definition(tree: Dominance, succ: Edges, root: int) -> None:
    nodes = range(len(succ))
    reached = reach(succ, root)
    for b in nodes:
        strict = {a for a in nodes if a != b and dominates_by_definition(succ, root, a, b)}
        for a in nodes:
            assert tree.dominates(a, b) == (a == b or a in strict), (a, b)
        if b == root or b not in reached:
            assert tree.idom[b] == -1
        else:
            # The immediate dominator is the strict dominator that all other strict dominators dominate.
            assert [tree.idom[b]] == [a for a in strict if all(tree.dominates(other, a) for other in strict)]
            assert tree.depth[b] == len(strict)
            assert b in tree.children[tree.idom[b]]


@given(graphs())
def test_dominators_are_those_of_the_definition(succ: Edges) -> None:
    check_against_definition(dominators(as_cfg(succ)), succ, 0)


@given(graphs())
def test_post_dominators_are_dominators_from_the_virtual_exit(succ: Edges) -> None:
    cfg = as_cfg(succ)
    end = len(succ)
    reachable = reach(succ, 0)
    backwards: Edges = [[p for p in cfg.pred[b] if p in reachable] if b in reachable else [] for b in range(end)]
    backwards.append(cfg.leaves)
    tree = post_dominators(cfg)
    check_against_definition(tree, backwards, end)
    # Every reachable block has post-dominators, even in endless loops.
    assert all(tree.dominates(end, block) for block in reachable)


@given(graphs())
def test_frontiers_are_those_of_the_definition(succ: Edges) -> None:
    cfg = as_cfg(succ)
    tree = dominators(cfg)
    reached = reach(succ, 0)
    for a, found in enumerate(tree.frontier()):
        assert found == [
            b
            for b in sorted(reached)
            if a in reached
            and not (a != b and tree.dominates(a, b))
            and any(tree.dominates(a, p) for p in cfg.pred[b] if p in reached)
        ]


def test_an_endless_loop_leaves_by_its_latch() -> None:
    # 0 → 1 | 5;  1 → 2 | 3 → 4 → 1, never left
    cfg = as_cfg([[1, 5], [2, 3], [4], [4], [1], []])
    tree = post_dominators(cfg)
    assert cfg.endless == [4]
    assert tree.idom == [6, 4, 4, 4, 6, 6, -1]


def ladder(rungs: int) -> Edges:
    """Two chains with edges between them in both directions. The root is the immediate dominator of every node. The
    iterative algorithm needs a number of iterations that grows with the length."""
    succ: Edges = [[1, 2]]
    for rung in range(rungs):
        left, right = 2 * rung + 1, 2 * rung + 2
        last = rung == rungs - 1
        succ.append([right] if last else [left + 2, right])
        succ.append([left] if last else [right + 2, left])
    return succ


def backward_ladder(rungs: int) -> Edges:
    """A chain, and an edge from each of its nodes to a second chain that runs in the other direction."""
    down = [[n + 1, 2 * rungs - n - 1] for n in range(rungs)]
    down[-1] = [rungs]
    up = [[n + 1] for n in range(rungs, 2 * rungs - 1)] + [[]]
    return down + up


def test_large_ladders_take_near_linear_time() -> None:
    for shape in (ladder, backward_ladder):
        assert_near_linear(partial(_ladder_of, shape), _both_trees, 4_000)


def _ladder_of(shape: Callable[[int], Edges], rungs: int) -> Cfg:
    return as_cfg(shape(rungs))


def _both_trees(cfg: Cfg) -> None:
    assert dominators(cfg).idom[1] == 0
    post_dominators(cfg)
