"""Random plans with tiles of lanes for random pipelines of many types at odd sizes: every pixel is that of naive
kernels, and the emulator finds no races."""

import random

import pytest
from ptxmotion.dsl.image import Compiled, Options
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.lowerings import lower
from random_lanes import random_array, random_graph, random_plan
from test_image_schedules import results, same_bits

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 6
SHARE = 2


@pytest.mark.fuzz
def test_lanes_compute_what_naive_kernels_compute(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)


def check(seed: int) -> None:
    rng, nvcc = random.Random(seed), compiler()
    graph = random_graph(rng)
    options = Options(nvcc=nvcc, contract=rng.random() < 0.2)
    arrays = [random_array(image, seed) for image in graph.inputs]
    expected = results(Compiled(lower(graph, "naive", options), nvcc), arrays, f"seed {seed}, naive")
    plan = random_plan(rng, graph, options)
    message = f"seed {seed}\n{graph}\n{plan}"
    made = results(Compiled(lower_plan(plan, options, "plan"), nvcc), arrays, message)
    for got, wanted in zip(made, expected, strict=True):
        assert same_bits(got, wanted), message
