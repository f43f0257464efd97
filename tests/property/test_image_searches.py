"""Random graphs of image operators: by the model of time, no partition is more than 1 % better than what the searches
find. Nothing is compiled."""

import random

import pytest
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.fusion.partition import exhaustive
from ptxmotion.dsl.image.fusion.planning import GroupProblem, searched
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.schedule.auto import microseconds
from ptxmotion.dsl.image.schedule.costs import time_model
from ptxmotion.dsl.image.schedule.dynamic import Chooser, _problem, dynamic_plan  # pyright: ignore[reportPrivateUsage]
from ptxmotion.dsl.image.schedule.known import KnownMembers
from test_image_schedules import random_graph

#: Graphs without --fuzz-n, and graphs in one test case.
FIXED = 6
SHARE = 2


def graph_of(seed: int) -> Graph:
    rng = random.Random(seed)
    return random_graph(rng, 2, rng.choice([5, 5, 5, 8]), [(512, 512)])


def ratios(graph: Graph) -> dict[str, float]:
    """By search: the time of its plan over that of the best partition. ``connected`` joins connected operators only."""
    options, model, members = Options(), time_model(), KnownMembers(graph, Options())
    fused = GroupProblem(graph, options, known=members)
    found, best = (microseconds(fused.plan(find(fused.problem)), options, model) for find in (searched, exhaustive))
    chooser = Chooser(graph, options, model, members=members)
    _, least = chooser.plan(exhaustive(_problem(chooser)))
    made = {"fused": found / best}
    for word, regroup in (("connected", False), ("dynamic", True)):
        _, micros = dynamic_plan(Chooser(graph, options, model, members=members), regroup=regroup)
        made[word] = micros / least
    return made


@pytest.mark.fuzz
def test_searches_are_within_one_per_cent_of_the_best_partition(seeds: list[int]) -> None:
    for seed in seeds:
        found = ratios(graph_of(seed))
        assert max(found["fused"], found["dynamic"]) <= 1.01, (seed, found)


def test_groups_that_are_not_connected_are_found() -> None:
    """The best groups of this graph are 0, 2, 3 and 1, 4. Of 1 and 4, neither reads the other, nor a common image."""
    found = ratios(random_graph(random.Random(8), sizes=[(512, 512)]))
    assert found["connected"] > 1.1 and found["dynamic"] <= 1.0001
