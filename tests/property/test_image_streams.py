"""Random image pipelines as graphs of launches: in every order that the edges allow, with buffers that share memory in
random ways, the pixels are those of the naive kernels one after the other."""

import random
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError
from ptxmotion.dsl.image import Compiled, Options, maximum
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.execution import shape_of
from ptxmotion.dsl.image.graph import Graph, graph_of
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.streams.dependences import dependences, reduced, steps_of
from ptxmotion.dsl.image.streams.memory import Sharing, free_only, problems, share, unshared
from ptxmotion.dsl.image.streams.planning import MODES, ExecutionPlan, plan_execution
from ptxmotion.dsl.image.streams.running import PlanRun
from ptxmotion.dsl.types import Scalar
from ptxmotion.emulator.backend import EmulatorBackend
from random_pipelines import RandomPipeline, random_pipeline

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 6
SHARE = 2


@pytest.mark.fuzz
def test_plans_compute_the_same_in_every_order(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)


def check(seed: int) -> None:
    rng, found, nvcc = random.Random(seed), random_pipeline(seed, 4, 12), compiler()
    graph = with_reductions(rng, found.graph)
    options = Options(nvcc=nvcc)
    expected = outputs_of(Compiled(lower(graph, "naive", options), nvcc), found)
    lowered = lower(graph, "naive" if rng.random() < 0.6 else "fused", options)
    ptx = {name: kernel.ptx(nvcc) for name, kernel in lowered.kernels.items()}
    for mode in rng.sample(MODES[1:], 2):
        plan = randomly_shared(rng, plan_execution(lowered, mode))
        plan.check()
        run = PlanRun(plan, EmulatorBackend(), ptx)
        for _ in range(3):
            order = rng.randrange(1 << 30)
            made = run.run([flat(array) for array in found.arrays.values()], found.numbers, order)
            for got, wanted in zip(made, expected, strict=True):
                assert got.tobytes() == wanted, f"seed {seed}, order {plan.order(order)}\n{plan}\n{found}"
        run.close()


def outputs_of(compiled: Compiled, found: RandomPipeline) -> list[bytes]:
    made: Any = compiled(*found.arrays.values(), *found.numbers.values(), backend=EmulatorBackend())
    outputs: list[Any] = [made] if isinstance(made, np.ndarray) else list(made)
    return [each.tobytes() for each in outputs]


def flat(array: Any) -> Any:
    assert len(shape_of(array)) in (2, 3)
    return np.ascontiguousarray(array).reshape(-1)


def with_reductions(rng: random.Random, graph: Graph) -> Graph:
    """The graph, sometimes with reductions of some images: their launches need memory that is zero."""
    outputs: list[Any] = list(graph.outputs)
    for node in graph.nodes:
        if isinstance(node.pixel, Scalar) and rng.random() < 0.15:
            outputs.append(maximum(node.pixel)(node))
    return graph_of(graph.name, outputs, graph.inputs, graph.scalars)


def randomly_shared(rng: random.Random, plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with buffers that are used again whenever a coin says so, whatever it costs."""
    # Edges that the sharing of the plan has added may have replaced others that follow from them, so they stay.
    edges = dependences(plan.steps) if plan.mode == "branches" else plan.edges
    likely = rng.choice([0.3, 1.0])
    sharing = share(plan.lowered, plan.steps, edges, lambda before, more: rng.random() < likely)
    return ExecutionPlan(plan.lowered, plan.steps, plan.mode, sharing, plan.kernels, plan.estimates, plan.machine)


# --- missing edges are found --------------------------------------------------------------------------------------


def plans(seed: int) -> tuple[Lowered, ExecutionPlan]:
    lowered = lower(random_pipeline(seed, 6, 10).graph, "naive")
    return lowered, randomly_shared(random.Random(seed), plan_execution(lowered, "branches"))


@pytest.mark.parametrize("seed", range(20))
def test_each_edge_is_needed(seed: int) -> None:
    """Edges are reduced, so without any of them two steps use the same memory in no fixed order."""
    lowered, plan = plans(seed)
    assert not list(problems(plan.steps, plan.sharing))
    for edge in plan.edges:
        less = Sharing(plan.sharing.slots, plan.sharing.slot_of, plan.edges - {edge})
        assert list(problems(plan.steps, less)), (seed, edge, plan)
    plain = unshared(lowered, dependences(plan.steps))
    assert not list(problems(plan.steps, plain))
    assert plan.sharing.bytes <= plain.bytes


def test_a_missing_edge_gives_other_pixels() -> None:
    """Random orders find edges that were taken away: the test of the orders is not empty."""
    wrong = lost = 0
    nvcc = compiler()
    for seed in (3, 5):
        found = random_pipeline(seed, 6, 10)
        lowered, plan = plans(seed)
        ptx = {name: kernel.ptx(nvcc) for name, kernel in lowered.kernels.items()}
        arrays = [flat(array) for array in found.arrays.values()]
        right = [each.tobytes() for each in PlanRun(plan, EmulatorBackend(), ptx).run(arrays, found.numbers)]
        for edge in sorted(plan.edges)[:4]:
            less = Sharing(plan.sharing.slots, plan.sharing.slot_of, plan.edges - {edge})
            broken = ExecutionPlan(
                plan.lowered, plan.steps, plan.mode, less, plan.kernels, plan.estimates, plan.machine
            )
            with pytest.raises(DslError, match="in no fixed order"):
                broken.check()
            run = PlanRun(plan, EmulatorBackend(checks=False), ptx)
            run.plan = broken
            made = [run.run(arrays, found.numbers, order) for order in range(4)]
            lost += 1
            wrong += any([each.tobytes() for each in one] != right for one in made)
    assert lost and wrong >= lost // 2, (wrong, lost)


@pytest.mark.parametrize("seed", range(10))
def test_sharing_without_further_edges_changes_no_order(seed: int) -> None:
    lowered = lower(random_pipeline(seed, 6, 10).graph, "naive")
    steps = steps_of(lowered)
    edges = dependences(steps)
    made = share(lowered, steps, edges, free_only)
    assert made.edges == edges == reduced(len(steps), edges) and not made.added
    assert not list(problems(steps, made))
