"""Versions with loads before barriers compute the same as the kernel, on buffers that end at their last byte.

Each random kernel is launched by the runtime on the emulator, which evaluates the conditions and checks every access.
The buffers may overlap; then the conditions must not hold, or the results must be the same. ``--fuzz-n=N`` uses N new
kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ptxmotion import Policy, optimize
from ptxmotion.analysis.memory.alias import Memory
from ptxmotion.contract import Condition, Contract
from ptxmotion.emulator import EmulatorFault
from ptxmotion.runtime import EmulatedDevice, Flag, load
from ptxmotion.versions import early
from random_barrier_loops import THREADS, WildLaunch, barrier_loop, wild_launch

SHARE = 6
FIXED = 48
LAUNCHES = 4
#: The passes of the versions that loads are moved in: such that gain nothing from disjoint buffers, and others.
PASSES = ("copyprop,dce,emptyblocks", "readonly,copyprop,dce,emptyblocks", "copyprop,dce,emptyblocks", "O3")
NAME = "loads before barriers"


@pytest.mark.fuzz
def test_early_loads_compute_the_same(seeds: list[int]) -> None:
    for seed in seeds:
        assert wrong(seed, Counter()) == [], seed


def wrong(seed: int, tally: Counter[str]) -> list[str]:
    """What the versions with loads before barriers compute otherwise, or which faults they have."""
    kernel = barrier_loop(seed, is_wild=True)
    result = optimize(kernel.ptx, PASSES[seed % 4], Policy(gate="off", contract=True))
    assert result.contract is not None
    tally["kernels"] += 1
    entries = dict.fromkeys(each.entry for each in result.contract.kernels["k"].versions if NAME in each.description)
    tally["kernels with a version"] += bool(entries)
    found: list[str] = []
    for number in range(LAUNCHES if entries else 0):
        launch = wild_launch(kernel, 1000 * seed + number)
        given, _ = run(kernel.ptx, None, launch)
        if given is None:
            tally["launches of kernels that fault"] += 1
            continue
        for entry in entries:
            done, taken = run(result.text, only(result.contract, entry), launch)
            tally[f"{'launched' if taken else 'refused'}: {len(launch.allocations)} allocations"] += 1
            if done != given:
                found.append(f"{entry}: {'a fault' if done is None else 'other results'} in launch {number}")
    return found


def only(contract: Contract, entry: str) -> Contract:
    """The contract with one of the entries, and the kernel itself."""
    kernel = contract.kernels["k"]
    versions = tuple(each for each in kernel.versions if each.entry in (entry, "k"))
    return replace(contract, kernels={"k": replace(kernel, versions=versions)})


def run(ptx: str, contract: Contract | None, launch: WildLaunch) -> tuple[bytes | None, bool]:
    """The content of all allocations after a launch, or ``None`` for a fault; whether a version was launched."""
    allocations = [each.copy() for each in launch.allocations]
    pointers: list[Any] = [allocations[number][start:] for number, start in launch.places]
    kernel = load(ptx, contract, device=EmulatedDevice())["k"]
    values = (*pointers, np.uint32(launch.n), np.uint32(launch.m))
    taken = kernel.decide(1, THREADS, *values, flags=Flag.ALWAYS_PREFER).entry != "k"
    try:
        kernel.launch(1, THREADS, *values, flags=Flag.ALWAYS_PREFER)
    except EmulatorFault:
        return None, taken
    return b"".join(each.tobytes() for each in allocations), taken


def test_enough_launches_take_a_version() -> None:
    tally = Counter[str]()
    for seed in range(24):
        wrong(seed, tally)
    print(dict(tally))
    assert tally["launched: 4 allocations"] >= 5 and tally["refused: 1 allocations"] >= 5


# --- the test notices what is assumed wrongly ------------------------------------------------------------------------


def is_noticed(seeds: Iterable[int]) -> bool:
    """Whether one of the kernels computes something else. A seed that does comes first, to save time."""
    return any(wrong(seed, Counter()) for seed in seeds)


@pytest.mark.slow
def test_a_missing_pair_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> tuple[Condition, ...]:
        return ()

    monkeypatch.setattr(early, "by_allocation", nothing)
    monkeypatch.setattr(early, "by_ranges", nothing)
    assert is_noticed((0, *range(60)))


@pytest.mark.slow
def test_written_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(Memory, "is_unwritten", always)
    assert is_noticed((0, *range(60)))
