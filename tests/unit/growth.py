"""How the time of a computation grows with its input, on machines that do other things as well.

A quadratic algorithm is slow in every attempt; a busy machine, a cold cache or the cyclic collector is slow in one. So
the collector is off, each size counts with its fastest run, and a growth is refused only after several attempts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["assert_near_linear", "best_seconds"]

T = TypeVar("T")

#: What four times the input may cost: linear is 4, n log n a little more, quadratic 16.
FACTOR = 10
ATTEMPTS = 4


def best_seconds(prepare: Callable[[], T], work: Callable[[T], object], runs: int = 1) -> float:
    """CPU seconds of the fastest of ``runs`` runs of ``work`` on a fresh ``prepare()``, which is not counted."""
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
    """That ``work(prepare(4 * small))`` takes less than `FACTOR` times as long as ``work(prepare(small))``."""
    fastest = [float("inf"), float("inf")]
    for _ in range(ATTEMPTS):
        for place, size in enumerate((small, 4 * small)):
            fastest[place] = min(fastest[place], best_seconds(lambda size=size: prepare(size), work))
        if fastest[1] < FACTOR * fastest[0] + 0.05:
            return
    raise AssertionError(f"{fastest[0]:.3f} s for {small}, {fastest[1]:.3f} s for {4 * small}")
