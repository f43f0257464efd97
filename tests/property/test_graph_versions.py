"""Versions of random graphs whose conditions hold compute the same as the kernel, bit for bit.

The kernels are those of `test_random_graphs`. In half of the launches, ``out`` and ``other`` are one buffer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from ptxmotion import Policy, optimize
from ptxmotion.contract import Condition, Expression, Extent, Launch, holds
from ptxmotion.contract.conditions import value_in
from ptxmotion.contract.expressions import evaluate
from ptxmotion.emulator import Emulator
from ptxmotion.emulator.options import Options
from test_random_graphs import drawn

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 16
SHARE = 8
GRID, BLOCK = (1, 1, 1), (32, 1, 1)
PASSES = ("O3", "O2", "vectormerge,readonly,deadstores,copyprop,dce,emptyblocks")


def run(loaded: Any, name: str, given: Sequence[Any], limits: Sequence[Expression] = ()) -> tuple[Any, Launch]:
    """The bytes of the buffers after a launch with the kinds of its findings, and the facts of the launch. ``given``:
    arrays, and the number ``k``."""
    loaded.reset()
    space = loaded.loaded.space
    arrays = {id(each): each for each in given[:-1]}
    objects = {key: space.allocate(f"buffer {key}", "global", each.nbytes) for key, each in arrays.items()}
    for key, each in arrays.items():
        objects[key].bytes[: each.nbytes] = each.view("u1")
        objects[key].written = None
    own = [objects[id(each)] for each in given[:-1]]
    extents = {number: Extent(each.base, each.base + each.nbytes) for number, each in enumerate(own)}
    facts = Launch((*(each.base for each in own), int(given[-1])), GRID, BLOCK, 0, extents)
    values = [each.base.to_bytes(8, "little") for each in own] + [int(given[-1]).to_bytes(4, "little")]
    values += [evaluate(each, partial(value_in, facts)).to_bytes(4, "little") for each in limits]
    done = loaded.launch_bytes(loaded.entry(name), GRID, BLOCK, values, 0, Options(True, False, False))
    memory = [each.bytes[: each.nbytes].tobytes() for each in objects.values()]
    for each in objects.values():
        space.free(each)
    space.rewind()
    return (memory, {str(finding.kind) for finding in done.findings}), facts


def wrong_versions(seed: int) -> tuple[int, list[str]]:
    """The number of launches of versions of the kernel of ``seed``, and those that gave something else."""
    ptx, launch = drawn(seed)
    result = optimize(ptx, PASSES[seed % len(PASSES)], Policy(gate="off", contract=True))
    assert result.contract is not None
    terms = result.contract.kernels.get("fuzz")
    before, after = (Emulator(budget=200_000).load(text) for text in (ptx, result.text))
    taken, wrong = 0, list[str]()
    for inputs in (seed, seed + 1) if terms is not None else ():
        given = launch.arguments(inputs)
        expected, _ = run(before, "fuzz", given)
        found, facts = run(after, "fuzz", given)
        wrong += [f"the kernel with inputs {inputs}"] * (found != expected)
        for version in terms.versions[:-1] if terms is not None else ():
            if all(holds(each, facts) for each in version.requires):
                limits = version.launch.arguments if version.launch is not None else ()
                taken += 1
                found, _ = run(after, version.entry, given, limits)
                wrong += [f"{version.description} with inputs {inputs}"] * (found != expected)
    return taken, wrong


@pytest.mark.fuzz
def test_versions_of_graphs_compute_the_same(seeds: list[int]) -> None:
    results = [(seed, *wrong_versions(seed)) for seed in seeds]
    assert [(seed, wrong) for seed, _, wrong in results if wrong] == []
    assert sum(taken for _, taken, _ in results), "no launch took a version"


def test_missing_conditions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_is_required(condition: Condition, launch: Launch) -> bool:
        return True

    monkeypatch.setattr(sys.modules[__name__], "holds", nothing_is_required)
    assert any(wrong_versions(seed)[1] for seed in (210, *range(20)))
