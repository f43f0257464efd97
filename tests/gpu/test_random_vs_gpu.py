"""The last rung of the ladder: random programs on the GPU, as they are and after every list of passes, bit for bit.

``pytest tests/gpu/test_random_vs_gpu.py --fuzz-n N`` draws N programs that nobody has seen. The emulator must give the
same bytes, too: they compute nothing from addresses, which each machine chooses itself.
"""

from __future__ import annotations

import random
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ptxmotion.ptx import print_module

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "property"))

from ladder import Launch, run, transformed
from test_transforms import chosen, drawn, seeds

if TYPE_CHECKING:
    from driver import Gpu


@cache
def the_gpu() -> Gpu:
    from driver import Gpu

    return Gpu()


def on_gpu(ptx: str, launch: Launch, seed: int) -> list[np.ndarray[Any, Any]]:
    """What the kernel leaves in its arrays."""
    args = launch.arguments(seed)
    module = the_gpu().load(ptx)
    try:
        the_gpu().launch(module, launch.kernel, launch.grid, launch.block, args, launch.shared)
    finally:
        the_gpu().unload(module)
    return [value for value in args if isinstance(value, np.ndarray)]


def differences(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> list[str]:
    found: list[str] = []
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        places = np.flatnonzero(left.reshape(-1).view(np.uint8) != right.reshape(-1).view(np.uint8))
        if places.size:
            found.append(f"array {number}: {places.size} bytes differ, the first at byte {places[0]}")
    return found


@pytest.mark.gpu
@pytest.mark.fuzz
def test_the_gpu_sees_no_difference(share: int, pytestconfig: pytest.Config) -> None:
    for seed in seeds(share, pytestconfig):
        rng = random.Random(f"passes:{seed}")
        ptx, launch = drawn(seed, for_gpu=True)
        before = on_gpu(ptx, launch, seed)
        assert differences(before, on_gpu(ptx, launch, seed)) == [], (seed, "run again")
        assert differences(before, run(ptx, launch, seed).arrays) == [], (seed, "on the emulator")
        for passes in chosen(rng):
            after = print_module(transformed(ptx, passes))
            assert differences(before, on_gpu(after, launch, seed)) == [], (seed, passes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from test_transforms import pytest_generate_tests as shares

    shares(metafunc)
