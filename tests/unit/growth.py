"""Tests how the time of a computation grows with its input, on machines that run other programs, too.

Calls of functions, also of those that are written in C, do not depend on the machine: `calls` counts them. Where the
time is spent inside of one call, time has to be measured.

A quadratic algorithm is slow in every attempt. A busy machine, a cold cache or the garbage collector is slow in some.
So the collector is off, the fastest run of each size counts, and a test fails only after several attempts.
"""

from __future__ import annotations

import cProfile
import gc
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["assert_near_linear", "best_seconds", "calls"]

T = TypeVar("T")

#: The largest ratio of times for four times the input: linear is 4, n log n is slightly more, quadratic is 16.
FACTOR = 10
ATTEMPTS = 4


def calls(work: Callable[[], object]) -> int:
    """The number of calls of functions while ``work`` runs."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def best_seconds(prepare: Callable[[], T], work: Callable[[T], object], runs: int = 1) -> float:
    """CPU seconds of the fastest of ``runs`` runs of ``work`` on a new ``prepare()``, which does not count."""
    best = float("inf")
    was_enabled = gc.isenabled()
    for _ in range(runs):
        prepared = prepare()
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            work(prepared)
            best = min(best, time.process_time() - start)
        finally:
            if was_enabled:
                gc.enable()
    return best


def assert_near_linear(prepare: Callable[[int], T], work: Callable[[T], object], small: int) -> None:
    """Asserts that ``work(prepare(4 * small))`` takes less than `FACTOR` times as long as ``work(prepare(small))``."""
    fastest = [float("inf"), float("inf")]
    for _ in range(ATTEMPTS):
        for place, size in enumerate((small, 4 * small)):
            fastest[place] = min(fastest[place], best_seconds(lambda size=size: prepare(size), work))
        if fastest[1] < FACTOR * fastest[0] + 0.05:
            return
    raise AssertionError(f"{fastest[0]:.3f} s for {small}, {fastest[1]:.3f} s for {4 * small}")
