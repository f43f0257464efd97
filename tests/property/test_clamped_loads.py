"""Versions whose loads have a clamped index compute the same as the kernel, on buffers that end at their last byte.

Each random kernel is launched with random indices by the runtime on the emulator, which computes the limits, evaluates
the conditions and checks every access. ``--fuzz-n=N`` uses N new kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ptxmotion import Policy, optimize
from ptxmotion.contract import Condition, Contract, Expression, Holds
from ptxmotion.contract.expressions import argument
from ptxmotion.emulator import EmulatorFault
from ptxmotion.runtime import EmulatedDevice, Flag, load
from ptxmotion.versions import clamped, search
from random_gathers import THREADS, GatherLaunch, gather_launch, random_gather

SHARE = 10
FIXED = 60
LAUNCHES = 6
#: The passes behind those that hoist loads, with and without code motion.
PASSES = ("O3", "vectormerge,readonly,deadstores,copyprop,dce,emptyblocks")


@pytest.mark.fuzz
def test_clamped_loads_compute_the_same(seeds: list[int]) -> None:
    for seed in seeds:
        assert checked(seed)[0] == [], seed


@cache
def checked(seed: int) -> tuple[list[str], Counter[str]]:
    """`wrong` and its tally, for the package as it is."""
    tally = Counter[str]()
    return wrong(seed, tally), tally


def wrong(seed: int, tally: Counter[str]) -> list[str]:
    """What the versions of the kernel of ``seed`` compute otherwise, or which faults they have."""
    kernel = random_gather(seed)
    result = optimize(kernel.ptx, PASSES[seed % 2], Policy(gate="off", contract=True))
    assert result.contract is not None
    versions = result.contract.kernels["k"].versions
    tally["kernels"] += 1
    tally["kernels with clamps"] += any("clamped" in each.description for each in versions)
    found: list[str] = []
    entries = list(dict.fromkeys(each.entry for each in versions[:-1]))
    for number in range(LAUNCHES):
        launch = gather_launch(kernel, 1000 * seed + number)
        given = outcome(kernel.ptx, None, launch)
        if given is None:
            tally["launches of kernels that fault"] += 1
            continue
        for entry in entries:
            done, taken = run(result.text, only(result.contract, entry), launch)
            if done != given:
                found.append(f"{entry}: {'a fault' if done is None else 'other results'} in launch {number}")
            what = next(each.description for each in versions if each.entry == entry)
            tally[f"{'launched' if taken else 'refused'}: {'clamped' if 'clamped' in what else 'others'}"] += 1
    return found


def only(contract: Contract, entry: str) -> Contract:
    """The contract with one of the entries, and the kernel itself."""
    kernel = contract.kernels["k"]
    versions = tuple(each for each in kernel.versions if each.entry in (entry, "k"))
    return replace(contract, kernels={"k": replace(kernel, versions=versions)})


def outcome(ptx: str, contract: Contract | None, launch: GatherLaunch) -> bytes | None:
    return run(ptx, contract, launch)[0]


def run(ptx: str, contract: Contract | None, launch: GatherLaunch) -> tuple[bytes | None, bool]:
    """The content of all buffers after a launch, or ``None`` for a fault; whether a version was launched."""
    buffers = {name: content.copy() for name, content in launch.buffers.items()}
    arguments: list[Any] = [buffers[name][launch.offsets[name] :] for name in ("f", "b", "p", "q", "y")]
    kernel = load(ptx, contract, device=EmulatedDevice())["k"]
    grid = -(-launch.n // THREADS)
    values = (*arguments, np.uint32(launch.n), np.int32(launch.s))
    taken = kernel.decide(grid, THREADS, *values, flags=Flag.ALWAYS_PREFER).entry != "k"
    try:
        kernel.launch(grid, THREADS, *values, flags=Flag.ALWAYS_PREFER)
    except EmulatorFault:
        return None, taken
    return b"".join(buffers[name].tobytes() for name in sorted(buffers)), taken


# --- the test notices what is assumed wrongly ------------------------------------------------------------------------


def is_noticed(first: int = 0, count: int = 160) -> bool:
    """Whether one of the kernels computes something else. ``first``: a seed with which one does, to save time."""
    return any(wrong(seed, Counter()) for seed in (first, *range(count)))


@pytest.mark.slow
def test_enough_launches_take_a_clamped_version() -> None:
    tally = Counter[str]()
    for seed in range(40):
        tally += checked(seed)[1]
    print(dict(tally))
    assert tally["launched: clamped"] >= 25 and tally["refused: clamped"] >= 5


@pytest.mark.slow
@pytest.mark.parametrize(("what", "first"), [("begin", 4), ("end", 3), ("%", 67)])
def test_missing_conditions_are_noticed(what: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = search.limit_conditions

    def fewer(limits: Iterable[Any]) -> tuple[Condition, ...]:
        return tuple(each for each in complete(limits) if isinstance(each, Holds) and what not in str(each.expression))

    monkeypatch.setattr(search, "limit_conditions", fewer)
    assert is_noticed(first)


@pytest.mark.slow
@pytest.mark.parametrize("by", [1, -1])
def test_limits_that_are_off_by_one_are_noticed(by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def last(each: Any) -> Expression:
        return (search_end(each) - argument(each.pointer) - each.shift) // each.stride - 1 + by

    from ptxmotion.contract.expressions import end

    def search_end(each: Any) -> Expression:
        return end(each.pointer)

    monkeypatch.setattr(clamped, "_last", last)
    assert is_noticed(4)


@pytest.mark.slow
def test_pointers_that_are_overwritten_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = clamped._Writer  # pyright: ignore[reportPrivateUsage]

    def without_copy(self: Any, number: int) -> Any:
        return self._maker.register(number, 64)

    monkeypatch.setattr(writer, "_start", without_copy)
    assert is_noticed(34)
