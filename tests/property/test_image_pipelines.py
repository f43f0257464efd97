"""Random image pipelines: all lowerings compute at every pixel what an interpreter in NumPy computes."""

import random
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = int(metafunc.config.getoption("--fuzz-n") or 0) or FIXED
    metafunc.parametrize("share", range(max(1, count // SHARE)))


@pytest.mark.fuzz
def test_all_lowerings_compute_what_numpy_computes(share: int, pytestconfig: pytest.Config) -> None:
    for number in range(SHARE):
        seed = random.randrange(1 << 40) if pytestconfig.getoption("--fuzz-n") else share * SHARE + number
        check(random_pipeline(seed), seed)


def check(found: RandomPipeline, seed: int) -> None:
    reference = found.reference()
    for lowering in ("naive", "isp", "isp_warp"):
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
