"""Tiles of blocks, of warps and hybrid ones: times, and equal bits.

    python docs/experiments/image_tiles.py [--build] [--seconds N] [--json FILE] [--sizes N ...] [--programs NAME ...]

Needs nvcc and, unless ``--build`` only compiles, a GPU and the extra `gpu`. Five programs, each as one group of all
operators in many random schedules of the search: kinds of tiles, tile sizes, blocks, and what is tiled. Each time is
that of a CUDA graph with ten runs, divided by ten; the schedules take turns in each round. Prints the median of each
schedule in microseconds, and writes a line of JSON for each. Results of all schedules must be the bits of naive
kernels.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from image_arms import compiled, timed
from ptxmotion.dsl import exp, f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Mask, Options, Window, local, lower, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.schedule.auto import candidates
from ptxmotion.dsl.image.schedule.shapes import shapes
from ptxmotion.dsl.image.schedule.timing import Timer
from ptxmotion.dsl.image.schedule.tuning import tune
from ptxmotion.dsl.image.schedule.work import Members
from ptxmotion.harness.cuda import CudaBackend

ROUNDS = 7
CLAMP = Boundary.CLAMP
ACROSS = Mask(np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32) / 12, skip_zeros=True)
DOWN = Mask(ACROSS.array.T, skip_zeros=True)
SEVEN = Mask(np.array([[3, 27, 110, 168, 110, 27, 3]], np.float32) / 448)
SEVEN_DOWN = Mask(SEVEN.array.T)
NEAR = Mask(np.exp([[-(x * x + y * y) / 18.0 for x in range(-6, 7)] for y in range(-6, 7)]).astype(np.float32))


@local(ACROSS)
def across(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in ACROSS:
        total += weight * src[dx, dy]
    return total


@local(DOWN)
def down(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in DOWN:
        total += weight * src[dx, dy]
    return total


@local((3, 3))
def sum_of_nine(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy]
    return total


@point
def product(a: f32, b: f32) -> f32:
    return a * b


@point
def corner(xx: f32, yy: f32, xy: f32) -> f32:
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * trace * trace


@pipeline
def harris(src: Image[f32]) -> Image[f32]:
    x, y = across(Accessor(src, CLAMP)), down(Accessor(src, CLAMP))
    xx, yy, xy = (sum_of_nine(Accessor(each, CLAMP)) for each in (product(x, x), product(y, y), product(x, y)))
    return corner(xx, yy, xy)


@local((3, 3))
def mean_of_nine(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += src[dx, dy]
    return total * 0.11111111


@pipeline
def chain(src: Image[f32]) -> Image[f32]:
    for _ in range(5):
        src = mean_of_nine(Accessor(src, CLAMP))
    return src


@local((3, 1))
def mean_across(src: Window[f32]) -> f32:
    return (src[-1, 0] + src[0, 0] + src[1, 0]) * 0.33333333


@local((1, 3))
def mean_down(src: Window[f32]) -> f32:
    return (src[0, -1] + src[0, 0] + src[0, 1]) * 0.33333333


@pipeline
def blur(src: Image[f32]) -> Image[f32]:
    return mean_down(Accessor(mean_across(Accessor(src, CLAMP)), CLAMP))


@point
def grey(red: f32, green: f32, blue: f32) -> f32:
    return 0.299 * red + 0.587 * green + 0.114 * blue


@local(SEVEN)
def seven_across(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in SEVEN:
        total += weight * src[dx, dy]
    return total


@local(SEVEN_DOWN)
def seven_down(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in SEVEN_DOWN:
        total += weight * src[dx, dy]
    return total


@point
def sharpened(value: f32, smooth: f32) -> f32:
    return 2.0 * value - smooth


@point
def ratio(a: f32, b: f32) -> f32:
    return a / b


@pipeline
def unsharp(red: Image[f32], green: Image[f32], blue: Image[f32]) -> tuple[Image[f32], Image[f32], Image[f32]]:
    value = grey(red, green, blue)
    smooth = seven_across(Accessor(seven_down(Accessor(value, CLAMP)), CLAMP))
    factor = ratio(sharpened(value, smooth), value)
    return product(red, factor), product(green, factor), product(blue, factor)


@local(NEAR)
def similar(src: Window[f32]) -> f32:
    centre = src[0, 0]
    weights: f32 = 0.0
    total: f32 = 0.0
    for dy in range(-6, 7):
        for dx in range(-6, 7):
            pixel = src[dx, dy]
            apart = pixel - centre
            weight = exp(-20.0 * (apart * apart)) * NEAR[dx, dy]
            weights += weight
            total += weight * pixel
    return total / weights


@pipeline
def bilateral(src: Image[f32]) -> Image[f32]:
    return similar(Accessor(src, CLAMP))


PROGRAMS: tuple[Any, ...] = (unsharp, harris, chain, blur, bilateral)


def plans_of(graph: Graph, count: int) -> Iterator[tuple[str, Plan]]:
    """Plans with one group of all operators: at most ``count`` random ones, as many of each kind of tiles."""
    kinds: dict[str, list[Group]] = {}
    for group in shapes(Members(graph, graph.nodes, Options())):
        kinds.setdefault(group.kind, []).append(group)
    rng = random.Random(graph.name)
    for kind, groups in kinds.items():
        for group in rng.sample(groups, min(len(groups), count // len(kinds))):
            tiled = "+".join(node.name for node in group.nodes if node in group.tiled) or "none"
            (block_x, block_y), (x, y) = group.block, group.pixels
            part = f" {group.in_registers}r" if group.in_registers else ""
            yield f"{kind} {block_x}x{block_y} {x}x{y}{part} {tiled}", Plan(graph, (group,))


def main() -> None:
    """Print a line for each program, size and schedule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true", help="only compile")
    parser.add_argument("--seconds", type=float, default=100, help="no program starts later")
    parser.add_argument("--json", type=Path, help="append a line for each schedule to this file")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 4096], help="widths and heights")
    parser.add_argument("--programs", nargs="*", default=[each.name for each in PROGRAMS], help="programs to run")
    parser.add_argument("--count", type=int, default=60, help="schedules of a program")
    parser.add_argument("--tune", type=float, default=0, help="seconds of tuning of each program and size")
    parser.add_argument("--threads", type=int, default=14, help="compilers at the same time")
    chosen = parser.parse_args()
    start, cubins = time.monotonic(), dict[str, bytes]()
    backend = None if chosen.build else CudaBackend()
    for size in chosen.sizes:
        for each in PROGRAMS:
            if each.name not in chosen.programs or time.monotonic() - start > chosen.seconds:
                continue
            graph: Graph = each.graph(size, size)
            plans = dict(plans_of(graph, chosen.count)) if chosen.count else {}
            plans |= {each.name: each.plan for each in candidates(graph, Options())}
            arms = {"naive": lower(graph, "naive", Options())}
            arms |= {name: lower_plan(plan, Options(), "schedule") for name, plan in plans.items()}
            compiled(arms, cubins, chosen.threads)
            print(f"{each.name} {size}: {len(arms)} schedules after {time.monotonic() - start:.1f} s", flush=True)
            if backend is None:
                continue
            if chosen.tune:
                options = Options(nvcc=compiler())
                tuned = tune(graph, options, Timer(backend, graph, options, {}), chosen.tune, print)
                plans["tuned"] = tuned.plan
                arms["tuned"] = lower_plan(tuned.plan, Options(), "schedule")
                compiled(arms, cubins, chosen.threads)
                print(f"  tuned: {tuned.plan}", flush=True)
            times = timed(backend, graph, arms, cubins, ROUNDS)
            for name in sorted(times, key=times.__getitem__):
                print(f"  {name:40} {times[name]:8.2f}  {times['naive'] / times[name]:6.3f}", flush=True)
                if chosen.json:
                    record: dict[str, Any] = {"program": each.name, "size": size, "schedule": name, "us": times[name]}
                    record["plan"] = json.loads(plans[name].to_json()) if name in plans else None
                    with chosen.json.open("a") as file:
                        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
