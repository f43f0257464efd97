"""`earlyloads` on random kernels with barriers in loops, with the checks of `ladder`: the same bytes, no access outside
of buffers that end at their last element, no thread loads more, no new race.

Also that the checks notice what the pass relies on: without it, one of the kernels fails.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest
from ladder import Ladder, Launch, transformed
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.ptx import Reg, print_module
from ptxmotion.transforms.memory import early_loads
from ptxmotion.transforms.memory.early_code import Early, EarlyCode
from random_barrier_loops import THREADS, barrier_loop

SHARE = 4
FIXED = 60
RESTRICT = Promise(everything=True)
LISTS = (
    "earlyloads:distance=1",
    "earlyloads",
    "earlyloads:distance=500",
    "readonly,earlyloads,copyprop,dce,emptyblocks",
)


def drawn(seed: int) -> tuple[str, Launch]:
    loop = barrier_loop(seed)
    return loop.ptx, Launch("k", (1,), (THREADS,), 0, loop.arguments)


@functools.cache
def moved(ptx: str, passes: str) -> tuple[int, int]:
    """How many loads move, and how many of them into the iteration before."""
    text = print_module(transformed(ptx, passes, RESTRICT))
    loads = sum(" %e_" in line and "ld.global" in line for line in text.splitlines())
    copies = sum("mov" in line and ", %e_" in line for line in text.splitlines())
    return copies, loads - copies


@pytest.mark.fuzz
def test_nothing_changes_but_the_time(seeds: list[int]) -> None:
    for seed in seeds:
        ptx, launch = drawn(seed)
        ladder = Ladder(ptx, launch, (seed, seed + 1, seed + 2))
        assert ladder.is_sound, (seed, ladder)
        passes = LISTS[seed % len(LISTS)]
        assert ladder.faults(passes, promise=RESTRICT) == [], (seed, passes)


def test_enough_loads_move() -> None:
    results = [moved(drawn(seed)[0], LISTS[seed % 3]) for seed in range(60)]
    assert sum(copies > 0 for copies, _ in results) >= 20
    assert sum(rotated > 0 for _, rotated in results) >= 10


def is_noticed(seeds: Iterable[int]) -> bool:
    """Whether one of the kernels fails. A seed that does comes first, to save time."""
    for seed in seeds:
        ptx, launch = drawn(seed)
        for passes in LISTS[:3]:
            if Ladder(ptx, launch, (seed, seed + 1, seed + 2)).faults(passes, promise=RESTRICT):
                return True
    return False


def _always(*_: object) -> bool:
    return True


def _never_leaves(_: object) -> bool:
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "first"), [("comes", 12), ("leaves", 25), ("continues", 0), ("unwritten", 20), ("condition", 1)]
)
def test_what_the_pass_relies_on_is_noticed(what: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "comes":
        monkeypatch.setattr(early_loads._Places, "_always_comes", _always)  # pyright: ignore[reportPrivateUsage]
    elif what == "leaves":
        monkeypatch.setattr(early_loads, "_stops_motion", _never_leaves)
    elif what == "continues":
        of_load = EarlyCode.of_load

        def always(code: EarlyCode, load: Early, register: Reg, edge: tuple[int, int] | None, _: object) -> object:
            return of_load(code, load, register, edge, None)

        monkeypatch.setattr(EarlyCode, "of_load", always)
    elif what == "condition":
        decided = early_loads._decided_at  # pyright: ignore[reportPrivateUsage]

        def unconditional(facts: Facts, block: int) -> tuple[int, None]:
            return decided(facts, block)[0], None

        monkeypatch.setattr(early_loads, "_decided_at", unconditional)
    else:
        from ptxmotion.analysis.memory.alias import Memory

        monkeypatch.setattr(Memory, "is_unwritten", _always)
    assert is_noticed((first, *range(80)))
