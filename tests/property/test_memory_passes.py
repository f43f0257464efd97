"""The memory passes on the kernels of `random_pointers`, whose accesses overlap in every way, with the checks of
`ladder`.

Only one thread runs, because nothing must stay the same if threads race. `restrict` is promised if the buffers of the
launch are different.
"""

import random
from typing import Any

import numpy as np
import pytest
from ladder import Ladder, Launch, transformed
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.alias_check import AliasGuard, Promised, guarded
from ptxmotion.programs.alias_promises import promised_modules
from ptxmotion.ptx import print_module
from random_pointers import OBJECT, PARAMS, pointer_kernel

RESTRICT = Promise(everything=True)
LISTS = (
    "deadstores",
    "vectormerge:aligned=16",
    "readonly",
    "O1",
    "sscm:min_cost=0",
    "deadstores,lcm:min_cost=0,deadstores,dce",
    "vectormerge:aligned=16,readonly,deadstores,lcm:min_cost=0",
    "ssrqp",
    "O3",
)
STRONG = ("O1", "deadstores,lcm:min_cost=0", "sscm:min_cost=0,deadstores", "ssrqp", "readonly,srqp", "O3")
SHARE = 10
FIXED = 40


def drawn(seed: int) -> tuple[str, Launch]:
    soup = pointer_kernel(seed, (8, 20, 40)[seed % 3])
    return soup.ptx, Launch(soup.kernel, (1,), (1,), 0, soup.make_inputs)


@pytest.mark.fuzz
def test_memory_is_as_it_was(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(f"memory:{seed}")
        ptx, launch = drawn(seed)
        ladder = Ladder(ptx, launch, (seed,))
        assert not ladder.fault, seed
        pointers = launch.arguments(seed)[: len(PARAMS)]
        promise = RESTRICT if len({id(each) for each in pointers}) == len(PARAMS) else CONSERVATIVE
        for passes in rng.sample(LISTS, 2):
            assert ladder.faults(passes, promise=promise) == [], (seed, passes, promise)


def buffers_after(ptx: str, launch: Launch, seed: int, promises: dict[str, Promised]) -> tuple[list[bytes], list[str]]:
    """The contents of each buffer after a launch, and how it broke the promise. Equal array objects are one buffer."""
    backend = guarded(EmulatorBackend(counts=False), promises)
    known: dict[int, Any] = {}
    passed: list[Any] = []
    arguments: list[Any] = launch.arguments(seed)
    for value in arguments[: len(PARAMS)]:
        if id(value) not in known:
            known[id(value)] = backend.allocate(OBJECT)
            backend.write(known[id(value)], value)
        passed.append(known[id(value)])
    passed += arguments[len(PARAMS) :]
    backend.launch(backend.load(ptx).kernel(launch.kernel), launch.grid, launch.block, launch.shared, passed)
    left = [backend.read(buffer, np.uint8, OBJECT).tobytes() for buffer in known.values()]
    return left, backend.fallbacks if isinstance(backend, AliasGuard) else []


@pytest.mark.fuzz
def test_a_broken_promise_is_caught(seeds: list[int], pytestconfig: pytest.Config) -> None:
    """A kernel is optimized with `restrict` and launched with equal buffers. With the check at launch it is correct."""
    caught = 0
    for seed in seeds:
        ptx, launch = drawn(seed)
        passes = random.Random(f"broken:{seed}").choice(STRONG)
        made = print_module(transformed(ptx, passes, RESTRICT))
        promises = promised_modules(["--alias=restrict"], {"m": ptx}, {"m": made})
        for inputs in range(seed, seed + 2):
            wanted, _ = buffers_after(ptx, launch, inputs, {})
            found, fallbacks = buffers_after(made, launch, inputs, promises)
            assert found == wanted, (seed, inputs, passes)
            caught += len(fallbacks)
    assert caught or pytestconfig.getoption("--fuzz-n"), "of programs drawn at random, none may break it"
