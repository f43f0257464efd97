"""The equations of kernel fusion on figures of the thesis, and compared with brute force on random graphs."""

from __future__ import annotations

import random

import pytest
from launch_programs import AbstractProgram, Statement, state_after
from ptxmotion.transforms.kernel_fusion import backward, forward
from ptxmotion.transforms.kernel_fusion.kfcm import ORDERS, PhaseOrder, Strategy, transform
from ptxmotion.transforms.kernel_fusion.launch_graph import EdgePoint, Node, Place


def always(first: Node, second: Node, at: Node) -> bool:
    return True


# Figure 5.3a, rebuilt node by node from the description in the text.
FIGURE_3 = (
    {1: "init: > d1 d2 d3 d4", 2: "set: > a", 4: "KA: a > d1", 6: "KB: a > d2", 9: "KC: a > d3", 11: "KD: a > d4"},
    "1-2 2-3 3-4 3-5 4-6 5-6 6-7 7-8 7-9 8-12 9-10 9-11 10-12 11-12",
    1,
    12,
)
K1, K2, K3, K4 = 4, 6, 9, 11


def figure_3() -> AbstractProgram:
    return AbstractProgram(*FIGURE_3)


def where(program: AbstractProgram) -> dict[str, list[str]]:
    """For each launch, the nodes of the original graph that directly precede it."""
    found: dict[str, list[str]] = {}
    for node, each in program.statements.items():
        if each.is_launch:
            found.setdefault(each.name, []).append(
                str(node) if isinstance(node, int) and node < 1000 else "+".join(map(str, program.preds(node)))
            )
    return {name: sorted(places) for name, places in found.items()}


def test_local_predicates_of_figure_3() -> None:
    graph = figure_3().graph()
    transparent = {node for node in range(1, 13) if graph.is_transparent(node, K1)}
    assert transparent == {3, 4, 5, 7, 8, 10, 12}


def test_figure_5a_down_safety() -> None:
    found = backward.analyze(figure_3().graph(), K2, always)
    assert found.n_down_safe == {5, 6} and found.x_down_safe == {4, 5}
    assert found.x_fusible == {K1}


def test_figure_5b_insertion_points() -> None:
    found = backward.analyze(figure_3().graph(), K2, always)
    assert found.n_earliest == {5} and found.x_earliest == {4}
    assert found.n_delayed == {5} and found.x_delayed == {4, 5}
    assert found.n_latest == set() and found.x_latest == {4, 5}


def test_figure_10a_is_the_step_of_k2() -> None:
    program = figure_3()
    step = backward.backward_step(program.graph(), K2, always)
    assert step is not None and step.fusions == (4,) and step.insertions == (Place(5, at_exit=True),)
    program.apply(step)
    assert where(program) == {"FusedA_B": ["4"], "KB": ["5"], "KC": ["9"], "KD": ["11"]}


def test_figure_10b_sinkability() -> None:
    program = figure_3()
    program.apply(backward.backward_step(program.graph(), K2, always) or pytest.fail())
    found = forward.analyze(program.graph(), K3, always)
    assert found.n_sinkable == {10, 11} and found.x_sinkable == {9, 10}
    assert found.n_fusible == {K4}
    assert found.n_insert == {11} and found.x_insert == {10}


def test_figure_3b_is_the_result_of_kfcm() -> None:
    program, result = transform(figure_3)
    assert where(program) == {"FusedA_B": ["4"], "KB": ["5"], "KC": ["10"], "FusedC_D": ["11"]}
    assert result.fusions == 2
    assert program.launched([0, 1, 1]) == ["FusedA_B", "FusedC_D"]
    assert program.launched([1, 1, 0]) == ["KB", "KC"]
    assert [done.fused for done in result.steps] == [("1+2",), ("3+4",)]


def test_forward_first_fuses_figure_3_differently() -> None:
    """Thesis §5.3.3: the order of the phases matters. No path has fewer launches, and one path has one more."""
    program, _ = transform(figure_3, order="forward-first")
    assert program.launched([0, 1, 1]) == ["KA", "FusedB_C_D"] and program.launched([0, 1, 0]) == ["KA", "FusedB_C"]
    assert program.launched([0, 0]) == ["KA", "KB"]


def test_kf_trad_fuses_nothing_in_figure_3() -> None:
    program, result = transform(figure_3, "kf_trad")
    assert result.fusions == 0 and where(program) == where(figure_3())


@pytest.mark.parametrize("strategy", ["kf_trad", "kfcm"])
def test_figure_1_consecutive_launches(strategy: Strategy) -> None:
    def make() -> AbstractProgram:
        return AbstractProgram({2: "KA: d_in1 > d_out1", 3: "KB: d_out1 > d_out2"}, "1-2 2-3 3-4", 1, 4)

    program, _ = transform(make, strategy)
    assert program.launched() == ["FusedA_B"]


def test_figure_2_a_launch_behind_a_branch() -> None:
    def make() -> AbstractProgram:
        return AbstractProgram({2: "KA: x > y", 4: "KB: y > z"}, "1-2 1-3 2-3 3-4 4-5", 1, 5)

    program, _ = transform(make)
    assert program.launched([0]) == ["FusedA_B"] and program.launched([1]) == ["KB"]
    assert transform(make, "kf_trad")[1].fusions == 0


# Figure 5.14a, as the text describes it: K1 cannot be sunk to K2, since a path to K2 does not contain K1. K2 cannot be
# hoisted to K1, since a path from K1 does not contain K2. But both can be moved to node 4.
def figure_14() -> AbstractProgram:
    nodes = {1: "KA: x > y", 5: "KB: y > z"}
    return AbstractProgram(nodes, "0-1 0-2 1-3 1-4 2-5 4-5 3-6 5-6", 0, 6)


def test_figure_14_second_order_effects() -> None:
    assert transform(figure_14, order="backward")[1].fusions == 0
    assert transform(figure_14, order="forward")[1].fusions == 0
    program, result = transform(figure_14)
    assert program.launched([0, 1]) == ["FusedA_B"]
    assert program.launched([0, 0]) == ["KA"] and program.launched([1]) == ["KB"]
    assert [done.step.phase for done in result.steps] == ["forward", "backward"]


def test_a_motion_that_fuses_nothing_is_undone() -> None:
    nodes = {1: "KA: x > y", 2: "step: > v", 5: "use: y v > w"}

    def make() -> AbstractProgram:
        return AbstractProgram(nodes, "0-1 1-2 2-3 2-4 3-5 4-5 5-6", 0, 6)

    moved, result = transform(make, tidy=False)
    assert [done.step.insertions for done in result.steps] == [(Place(5, at_exit=False),)]
    assert where(moved) == {"KA": ["3+4"]}
    kept, result = transform(make)
    assert result.steps == [] and where(kept) == {"KA": ["1"]}


def test_a_launch_moves_neither_out_of_nor_into_a_loop() -> None:
    nodes = {1: "KA: x > y", 3: "KB: y > z"}

    def make() -> AbstractProgram:
        return AbstractProgram(nodes, "0-1 1-2 2-3 2-4 3-2 4-5", 0, 5)  # KB is in a loop after KA

    assert transform(make)[1].steps == []


def test_a_launch_moves_across_the_back_edge_of_a_loop_that_runs_at_least_once() -> None:
    nodes = {1: "KA: x > y", 2: "KB: y > z", 3: "KC: z > y"}

    def make() -> AbstractProgram:
        return AbstractProgram(nodes, "0-1 1-2 2-3 3-4 4-2 4-5", 0, 5, lambda a, b: b.kernels == ("KB",))

    program, _ = transform(make)
    assert program.launched([1]) == ["FusedA_B", "KC"]
    assert program.launched([0, 0, 1]) == ["FusedA_B", "FusedC_B", "FusedC_B", "KC"]


def test_no_launch_moves_into_or_out_of_an_endless_loop() -> None:
    nodes = {1: "KA: x > y", 2: "KB: y > z"}
    before = AbstractProgram(nodes, "0-1 1-4 4-2 4-3 3-3 2-5", 0, 5)
    found = backward.analyze(before.graph(), 2, always)
    assert 1 not in found.x_down_safe and not found.x_fusible
    sunk = forward.analyze(before.graph(), 1, always)
    assert 3 not in sunk.n_sinkable and Place(EdgePoint(6), True) not in sunk.x_insert
    assert sunk.x_insert | sunk.n_insert and transform(lambda: AbstractProgram(nodes, "0-1 1-4 4-2 4-3 3-3 2-5", 0, 5))


# --- brute force -------------------------------------------------------------------------------------------------


def random_program(seed: int) -> AbstractProgram:
    """A graph of four to twelve nodes, structured or unstructured, with up to six launches."""
    draw = random.Random(seed)
    size = draw.randint(4, 12)
    things = "abcde"[: draw.randint(2, 5)]
    nodes: dict[int, str] = {}
    letters = iter("ABCDEF")
    for number in range(1, size - 1):
        kind = draw.random()
        reads = " ".join(draw.sample(things, draw.randint(0, min(2, len(things)))))
        writes = " ".join(draw.sample(things, 1))
        letter = next(letters, None) if kind < 0.5 else None
        if letter is not None:
            nodes[number] = f"K{letter}: {reads} > {writes}"
        elif kind < 0.75:
            nodes[number] = f"s{number}: {reads} > {writes}" if kind < 0.65 else f"r{number}: {reads} >"
    ways: list[str] = []
    for number in range(size - 1):
        targets = [number + 1]
        if draw.random() < 0.45:
            back = draw.random() < 0.3
            targets.append(draw.randint(1, number) if back and number else draw.randint(number + 1, size - 1))
        if draw.random() < 0.3 and len(targets) == 1 and number < size - 3:
            targets = [draw.randint(number + 1, size - 1)]
        draw.shuffle(targets)
        ways += [f"{number}-{target}" for target in targets]
    denied = {(a, b) for a in "ABCDEF" for b in "ABCDEF" if draw.random() < draw.choice([0.0, 0.0, 0.4])}

    def legal(first: Statement, second: Statement) -> bool:
        return not any((a[1], b[1]) in denied for a in first.kernels for b in second.kernels)

    return AbstractProgram(nodes, " ".join(ways), 0, size - 1, legal)


def branches_of(program: AbstractProgram, draw: random.Random) -> list[tuple[int, ...]]:
    found = [tuple((number >> bit) & 1 for bit in range(5)) for number in range(32)]
    return [way + tuple(draw.randint(0, 1) for _ in range(40)) for way in found]


def kernels(passed: list[Statement]) -> list[str]:
    return [kernel for each in passed for kernel in each.kernels]


def is_left_backward(program: AbstractProgram, first: Node, second: Node) -> bool:
    """Whether every path from ``first`` reaches ``second`` before a node that it cannot be moved across."""
    ends = program.graph().ends
    seen, waiting = set[Node](), list(program.succs(first))
    if first == program.exit or first not in ends:
        return False
    while waiting:
        node = waiting.pop()
        if node == second or node in seen:
            continue
        blocked = program.statements[node].is_launch or program.modifies(node, second)
        if blocked or node == program.exit or node not in ends:
            return False
        seen.add(node)
        waiting += program.succs(node)
    return True


def is_left_forward(program: AbstractProgram, first: Node, second: Node) -> bool:
    """Whether every path to ``second`` comes from ``first``, without a node that ``first`` cannot be moved across."""
    graph = program.graph()
    reached, ends = set(graph.order), graph.ends
    if second == program.entry or second not in ends:
        return False
    seen, waiting = set[Node](), [node for node in program.preds(second) if node in reached]
    while waiting:
        node = waiting.pop()
        if node == first or node in seen:
            continue
        if program.statements[node].is_launch or program.modifies(node, first) or node == program.entry:
            return False
        seen.add(node)
        waiting += [pred for pred in program.preds(node) if pred in reached]
    return True


def check_random(seed: int, strategy: Strategy, order: PhaseOrder, tidy: bool) -> int:
    """Transform a random program and check it. The result is the number of fusions."""
    before = random_program(seed)
    after, result = transform(lambda: random_program(seed), strategy, order, tidy=tidy)
    for branches in branches_of(before, random.Random(seed)):
        old, ended = before.way(branches)
        new, still = after.way(branches)
        assert ended == still, (seed, branches)
        if ended:
            assert state_after(old) == state_after(new), (seed, branches)
            assert kernels(old) == kernels(new), (seed, branches)
            assert sum(s.is_launch for s in new) <= sum(s.is_launch for s in old)
    if strategy == "kfcm" and order in ORDERS[:2]:
        graph = after.graph()
        for first in graph.launches:
            for second in graph.launches:
                if first != second and after.may_fuse(first, second, first):
                    assert not is_left_backward(after, first, second), (seed, first, second)
                    assert not is_left_forward(after, first, second), (seed, first, second)
    return result.fusions


def test_fusions_of_random_graphs_are_right_and_complete(request: pytest.FixtureRequest) -> None:
    """No path executes more launches or computes other values, and no fusion that the phases can make is missing."""
    trad = kfcm = 0
    for seed in range(int(request.config.getoption("--fuzz-n") or 0) or 250):
        trad += check_random(seed, "kf_trad", "backward-first", True)
        kfcm += check_random(seed, "kfcm", ORDERS[seed % 4], seed % 8 < 4)
        if seed % 4 > 1:
            kfcm += check_random(seed, "kfcm", "backward-first", True)
    assert 0 < trad < kfcm


def test_kfcm_fuses_where_kf_trad_does() -> None:
    for seed in range(150):
        before = random_program(seed)
        trad, _ = transform(lambda seed=seed: random_program(seed), "kf_trad")
        kfcm, _ = transform(lambda seed=seed: random_program(seed), "kfcm")
        for branches in branches_of(before, random.Random(seed)):
            if before.way(branches)[1] and all(before.legal(a, b) for a in _parts(before) for b in _parts(before)):
                assert len(kfcm.launched(branches)) <= len(trad.launched(branches)), seed


def _parts(program: AbstractProgram) -> list[Statement]:
    return [each for each in program.statements.values() if each.is_launch]
