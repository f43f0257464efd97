"""Random programs on the GPU, before and after every list of passes: the results have the same bits.

``pytest tests/gpu/test_random_vs_gpu.py --fuzz-n N`` draws N new programs. The emulator must give the same
bytes, too: the programs compute nothing from addresses, which differ between machines.

ptxas assembles the programs at -O0. At -O3, ptxas 13.0 compiles about one in two thousand of the unchanged programs to
code with another result. The output of `opt` also runs at -O3. A difference there is only a warning, since it is a
difference between two ways to assemble the same PTX.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.harness.arm_code import arch_on
from ptxmotion.ptx import print_module
from ptxmotion.toolchain.tools import assemble

__all__ = ["FIXED", "SHARE"]

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "property"))

from gpu_driver import Gpu, GpuError, GpuProcess
from ladder import Launch, run, transformed
from test_random_graphs import drawn as drawn_graph
from test_transforms import FIXED, SHARE, chosen, drawn


@cache
def the_gpu() -> GpuProcess:
    return GpuProcess()


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """End the process before the interpreter exits and deletes what this needs."""
    yield
    the_gpu().close()


@cache
def capability() -> int:
    return Gpu().sm


def on_gpu(ptx: str, launch: Launch, seed: int, level: int = 0) -> list[np.ndarray[Any, Any]]:
    """The contents of the arrays after the kernel, assembled at a level of ptxas. Raises `GpuError`."""
    code = assemble(ptx, arch=arch_on(ptx, capability()), opt_level=level).cubin
    return the_gpu().launch(code, launch.kernel, launch.grid, launch.block, launch.arguments(seed), launch.shared)


def differences(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> list[str]:
    found: list[str] = []
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        places = np.flatnonzero(left.reshape(-1).view(np.uint8) != right.reshape(-1).view(np.uint8))
        if places.size:
            found.append(f"array {number}: {places.size} bytes differ, the first at byte {places[0]}")
    return found


def optimized(ptx: str, launch: Launch, seed: int, expected: list[np.ndarray[Any, Any]]) -> list[str]:
    """The differences between the results of the program with ptxas -O3 and -O0."""
    try:
        return differences(expected, on_gpu(ptx, launch, seed, 3))
    except GpuError as error:
        return [str(error)]


@pytest.mark.gpu
@pytest.mark.fuzz
def test_the_gpu_sees_no_difference(seeds: list[int]) -> None:
    for seed in seeds:
        compare_on_gpu(*drawn(seed, for_gpu=True), seed)


@pytest.mark.gpu
@pytest.mark.fuzz
def test_the_gpu_sees_no_difference_in_graphs(seeds: list[int]) -> None:
    for seed in seeds:
        compare_on_gpu(*drawn_graph(seed, for_gpu=True), seed)


def compare_on_gpu(ptx: str, launch: Launch, seed: int) -> None:
    """Check that the GPU computes what the emulator computes, before and after the passes."""
    expected = run(ptx, launch, seed).arrays
    assert differences(expected, on_gpu(ptx, launch, seed)) == [], (seed, "emulator")
    texts = {"": ptx}
    for passes in chosen(random.Random(f"passes:{seed}")):
        texts[passes] = print_module(transformed(ptx, passes))
        assert differences(expected, on_gpu(texts[passes], launch, seed)) == [], (seed, passes)
    for passes, text in texts.items():
        for line in optimized(text, launch, seed, expected):
            warnings.warn(f"seed {seed}, passes '{passes}': ptxas -O3: {line}", stacklevel=1)
