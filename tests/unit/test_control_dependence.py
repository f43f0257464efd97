"""Control dependence compared with its definition, and the region of non-divergence in figures of the thesis."""

from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.analysis.graph.control_dependence import ENTRY, ControlDependence
from ptxmotion.analysis.graph.dominance import post_dominators
from ptxmotion.ptx import Block

Edges = list[list[int]]


def dependence(succ: Edges, exits: list[int] | None = None) -> ControlDependence:
    ends = [number for number, after in enumerate(succ) if not after] if exits is None else exits
    cfg = Cfg([Block() for _ in succ], succ, ends)
    return ControlDependence(cfg, post_dominators(cfg))


# Figure 4.11 has the nodes s, 1, 2 … 9. Nodes 2 and 4 branch forward; 8 branches to 9 and to the end. Block 0 is s.
FIGURE_4_11: Edges = [[1], [2], [3, 4], [8], [5, 6], [7], [7], [8], [9], [2]]


def test_figure_4_11() -> None:
    found = dependence(FIGURE_4_11, exits=[8])
    assert found.on(2) == [3, 4, 7]
    assert found.on(4) == [5, 6]
    assert found.on(8) == [2, 8, 9]
    assert found.on(ENTRY) == [0, 1, 2, 8]
    assert found.branches == [2, 4, 8]
    assert found.controllers[2] == [ENTRY, 8]
    for direct in (False, True):
        region = found.cdrnd([2, 4], direct=direct)
        assert [block for block, inside in enumerate(region) if inside] == [0, 1, 2, 8, 9]


def test_figure_4_1() -> None:
    # 1 → 2 | 6, 2 → 3 | 4 → 5, 5 and 6 → 7; 1 and 2 diverge. Block 0 is node 1, and so on.
    found = dependence([[1, 5], [2, 3], [4], [4], [6], [6], []])
    assert found.on(0) == [1, 4, 5]
    assert found.on(1) == [2, 3]
    region = found.cdrnd([0, 1])
    assert [block + 1 for block, inside in enumerate(region) if inside] == [1, 7]


def test_figure_4_6() -> None:
    # According to the text, 4 and 6 diverge, 1 does not, and 1, 2, 4, 5, 10 is a path. Block 0 is node 1.
    # 1 → 2 | 6;  2 → 4 → 3 | 5;  6 → 7 | 8;  7 and 8 → 9;  3, 5 and 9 → 10
    found = dependence([[1, 5], [3], [9], [2, 4], [9], [6, 7], [8], [8], [9], []])
    region = found.cdrnd([3, 5])
    assert [block + 1 for block, inside in enumerate(region) if inside] == [1, 2, 4, 6, 9, 10]


def test_a_uniform_branch_under_a_divergent_one() -> None:
    # Figure 4.1 with 1 divergent and 2 uniform: 3 and 4 depend on 2 only, but run with inactive lanes.
    found = dependence([[1, 5], [2, 3], [4], [4], [6], [6], []])
    assert [block + 1 for block, inside in enumerate(found.cdrnd([0])) if inside] == [1, 7]
    assert [block + 1 for block, inside in enumerate(found.cdrnd([0], direct=True)) if inside] == [1, 3, 4, 7]


def test_what_follows_a_guarded_return_depends_on_it() -> None:
    found = dependence([[1], []], exits=[0, 1])
    assert found.on(0) == [1]
    assert found.on(ENTRY) == [0]
    assert found.cdrnd([0]) == [True, False]


def test_unreachable_blocks_lie_outside() -> None:
    assert dependence([[], [0]]).cdrnd([]) == [True, False]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    count = draw(st.integers(1, 10))
    node = st.integers(0, count - 1)
    return [draw(st.lists(node, max_size=3, unique=True)) for _ in range(count)]


@given(graphs(), st.sets(st.integers(0, 9)))
def test_dependence_is_that_of_the_definition(succ: Edges, chosen: set[int]) -> None:
    found = dependence(succ)
    cfg, end = found.cfg, len(succ)
    augmented = {b: [*succ[b], *([end] if b in cfg.leaves else [])] for b in cfg.rpo}
    augmented[ENTRY] = [0, end]
    post = found.post_dominance

    def depends(m: int, n: int) -> bool:
        """Whether there is a non-empty path from n to m on which m post-dominates every node except n."""
        seen: set[int] = set()
        work = [to for to in augmented[n] if to != end and post.dominates(m, to)]
        while work:
            node = work.pop()
            if node == m:
                return len(augmented[n]) > 1 and (n == ENTRY or not (m != n and post.dominates(m, n)))
            if node not in seen:
                seen.add(node)
                work.extend(to for to in augmented[node] if to != end and post.dominates(m, to))
        return False

    for n in (ENTRY, *cfg.rpo):
        assert found.on(n) == [m for m in sorted(cfg.rpo) if depends(m, n)], n
    # The region, computed directly from the relation
    divergent = {b for b in chosen if b < end and cfg.reachable[b]}
    literal = [cfg.reachable[b] and not divergent.intersection(found.controllers[b]) for b in range(end)]
    assert found.cdrnd(divergent, direct=True) == literal
    spread = set(divergent)
    while True:
        more = {b for b in found.branches if spread.intersection(found.controllers[b])} - spread
        if not more:
            break
        spread |= more
    closed = [cfg.reachable[b] and not spread.intersection(found.controllers[b]) for b in range(end)]
    assert found.cdrnd(divergent) == closed
