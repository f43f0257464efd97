"""Image pipelines with one kernel for each operator beside fused ones: times, estimates and equal results.

    python docs/experiments/image_fusion.py [--build] [--seconds N] [--least N] [--most N] [--shapes]

Needs nvcc and, unless ``--build`` only prints plans and compiles, a GPU and the extra `gpu`. Each time is that of a
CUDA graph with ten runs of the pipeline, divided by ten; the arms take turns in each round. Prints medians in
microseconds, the estimate of the model for the fused plan, and naive over fused. ``--shapes`` also times groups of all
operators with given tiles, blocks and pixels of a thread; the numbers of `fusion.cost.Machine` are chosen from these
times. Results of all arms must be the same bits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from math import isnan
from typing import Any

from image_arms import compiled, timed
from image_tiles import chain, product
from ptxmotion.dsl import f32, sqrt
from ptxmotion.dsl.image import Accessor, Boundary, Image, Options, lower, pipeline, point
from ptxmotion.dsl.image.fusion.cost import Machine, cost_of
from ptxmotion.dsl.image.fusion.planning import plan_by_model
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.lowered import Lowered
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.suites.image.gaussian import blurred3, blurred5
from ptxmotion.suites.image.sobel import across, down, magnitude

ROUNDS = 15
CLAMP = Boundary.CLAMP


@point
def square(a: f32) -> f32:
    return a * a


@point
def corner(a: f32, b: f32, c: f32) -> f32:
    return a * b - c * c - 0.04 * (a + b) * (a + b)


@point
def least(a: f32, b: f32, c: f32) -> f32:
    return 0.5 * (a + b - sqrt((a - b) * (a - b) + 4.0 * c * c))


@point
def difference(a: f32, b: f32) -> f32:
    return a - b


@point
def sharpened(a: f32, b: f32) -> f32:
    return a + 0.7 * b


@point
def ratio(a: f32, b: f32) -> f32:
    return a / (b + 0.001)


@point
def gamma(a: f32) -> f32:
    return sqrt(max(a, 0.0))


@point
def contrast(a: f32) -> f32:
    return min(max((a - 0.5) * 1.3 + 0.5, 0.0), 1.0)


@pipeline
def sobel(src: Image[f32]) -> Image[f32]:
    return magnitude(across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP)))


def tensor(src: Image[f32]) -> list[Image[f32]]:
    x, y = across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP))
    return [blurred3(Accessor(each, CLAMP)) for each in (square(x), square(y), product(x, y))]


@pipeline
def harris(src: Image[f32]) -> Image[f32]:
    return corner(*tensor(src))


@pipeline
def shi_tomasi(src: Image[f32]) -> Image[f32]:
    return least(*tensor(src))


@pipeline
def unsharp(src: Image[f32]) -> Image[f32]:
    detail = difference(src, blurred5(Accessor(src, CLAMP)))
    return product(ratio(sharpened(src, detail), src), src)


@pipeline
def enhance(src: Image[f32]) -> Image[f32]:
    return contrast(gamma(blurred5(Accessor(src, Boundary.MIRROR))))


PIPELINES: tuple[Any, ...] = (sobel, harris, unsharp, shi_tomasi, enhance, chain)
SHAPES = (((32, 8), (1, 1)), ((32, 8), (1, 4)), ((32, 4), (1, 4)), ((32, 16), (1, 2)), ((64, 4), (1, 4)))


def shaped(graph: Graph) -> Iterator[tuple[str, Plan]]:
    """Plans with one group of all operators."""
    points = [node for node in graph.nodes if node.operator.kind == "point"]
    inner = frozenset(node for node in graph.nodes if node not in graph.outputs)
    read = frozenset(a.image for node in graph.nodes for a in node.accesses if a.param.is_window)
    for word, tiled in (("none", frozenset[Any]()), ("windows", inner & read), ("locals", inner - {*points})):
        for block, pixels in SHAPES:
            group = Group(graph, graph.nodes, tiled, block, pixels)
            if next(group.problems(Options()), None) is None:
                name = f"tiles {word}, {block[0]}x{block[1]}, {pixels[0]}x{pixels[1]}"
                yield name, Plan(graph, (group,))


def arms_of(graph: Graph, *, shapes: bool) -> tuple[dict[str, Lowered], dict[str, float]]:
    """The arms, and the estimates of those that are plans, in microseconds."""
    options = Options()
    plans = {"fused": plan_by_model(graph, options), **(dict(shaped(graph)) if shapes else {})}
    made = {name: lower(graph, name, options) for name in ("naive", "isp")}
    made |= {name: lower_plan(plan, options, name) for name, plan in plans.items()}
    machine = Machine()
    estimates = {
        name: sum(cost_of(group, options, machine).seconds for group in plan.groups) * 1e6
        for name, plan in plans.items()
    }
    return made, estimates


def main() -> None:
    """Print a row for each pipeline and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true", help="only print the plans and compile")
    parser.add_argument("--seconds", type=float, default=170, help="no row starts later")
    parser.add_argument("--least", type=int, default=512, help="the smallest width and height")
    parser.add_argument("--most", type=int, default=4096, help="the largest width and height")
    parser.add_argument("--shapes", action="store_true", help="also groups of all operators in several shapes")
    chosen = parser.parse_args()
    start, cubins = time.monotonic(), dict[str, bytes]()
    backend = None if chosen.build else CudaBackend()
    print(
        f"{'pipeline':10} {'size':>5} {'naive':>8} {'isp':>8} {'fused':>8} {'estimate':>8} {'naive/fused':>11}",
        flush=True,
    )
    for each in PIPELINES:
        for size in (512, 1024, 2048, 4096):
            if not chosen.least <= size <= chosen.most or time.monotonic() - start > chosen.seconds:
                continue
            graph = each.graph(size, size)
            arms, estimates = arms_of(graph, shapes=chosen.shapes)
            compiled(arms, cubins)
            if backend is None:
                print(f"{arms['fused']}\n  estimate {estimates['fused']:.2f} us", flush=True)
                continue
            times = timed(backend, graph, arms, cubins, ROUNDS)
            assert not any(map(isnan, times.values())), f"{each.name} {size}: results differ: {times}"
            columns = " ".join(f"{times[word]:8.2f}" for word in ("naive", "isp", "fused"))
            gain = times["naive"] / times["fused"]
            print(f"{each.name:10} {size:5} {columns} {estimates['fused']:8.2f} {gain:11.3f}", flush=True)
            for word in sorted(set(estimates) - {"fused"}, key=lambda word: times[word]):
                print(f"    {word:28} {times[word]:8.2f} estimate {estimates[word]:8.2f}", flush=True)
    for each in PIPELINES if not chosen.build else ():
        print(lower(each.graph(2048, 2048), "fused"))


if __name__ == "__main__":
    main()
