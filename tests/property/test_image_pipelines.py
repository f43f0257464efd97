"""Random image pipelines: all lowerings compute at every pixel what an interpreter in NumPy computes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError
from ptxmotion.dsl.image import Compiled, Options, lower
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.emulator.backend import EmulatorBackend
from random_pipelines import RandomPipeline, random_pipeline

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 8
SHARE = 2


@pytest.mark.fuzz
def test_all_lowerings_compute_what_numpy_computes(seeds: list[int]) -> None:
    for seed in seeds:
        check(random_pipeline(seed), seed)


def check(found: RandomPipeline, seed: int) -> None:
    reference = found.reference()
    for lowering in ("naive", "isp", "isp_warp", "isp_rows", ("fused", "fused+h", "auto")[seed % 3]):
        for loops in (False, True) if lowering == "isp" else (False,):
            try:
                outputs = computed(found, lowering, loops)
            except DslError as why:
                assert lowering == "isp_warp" and "multiple of 32" in why.message, f"seed {seed}\n{found}\n{why}"
                continue
            for got, expected in zip(outputs, reference, strict=True):
                assert got.dtype == expected.dtype
                same = np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")
                assert same, f"seed {seed}, {lowering}, loops {loops}:\n{found}\n{got - expected}"


def computed(found: RandomPipeline, lowering: str, loops: bool) -> list[Any]:
    nvcc = compiler(("-fmad=false",))
    lowered = lower(found.graph, lowering, Options(found.block, loops, nvcc))
    made: Any = Compiled(lowered, nvcc)(*found.arrays.values(), *found.numbers.values(), backend=EmulatorBackend())
    return [made] if isinstance(made, np.ndarray) else list(made)


def test_the_generator_reaches_every_boundary_and_degenerate_sizes() -> None:
    """What 300 pipelines have: each boundary with an image that is smaller than a window, images of one row, all types
    of pixels and results, inputs of different sizes, and outputs that are read."""
    found: Counter[str] = Counter()
    for seed in range(300):
        graph = random_pipeline(seed).graph
        found["sizes"] += len({image.size for image in graph.inputs}) > 1
        found["several outputs"] += len(graph.outputs) > 1
        found["read output"] += any(graph.consumers(node) for node in graph.outputs)
        for image in graph.inputs:
            found[f"input {image.pixel}"] += 1
        for node in graph.nodes:
            width, height = int(node.width), int(node.height)
            found[f"result {node.pixel}"] += 1
            found["1 x 1"] += (width, height) == (1, 1)
            found["1 x N"] += width == 1 < height
            found["N x 1"] += height == 1 < width
            for access in node.accesses:
                if not access.param.is_window:
                    found["pixel of a local operator"] += node.operator.kind == "local"
                    continue
                kind, extent = access.boundary.kind, access.extent
                across, down = 1 + extent.left + extent.right, 1 + extent.up + extent.down
                found[kind] += 1
                found[f"{kind}, window > image"] += across > access.image.width or down > access.image.height
    kinds = ("clamp", "symmetric", "reflect", "repeat", "constant")
    numbers = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64")
    wanted = ["1 x 1", "1 x N", "N x 1", "undefined", *kinds, *(f"{kind}, window > image" for kind in kinds)]
    wanted += ["sizes", "several outputs", "read output", "pixel of a local operator"]
    wanted += [f"{place} {name}" for place in ("input", "result") for name in (*numbers, "int2", "float2", "float4")]
    assert {name: found[name] for name in wanted if found[name] < 5} == {}, found
