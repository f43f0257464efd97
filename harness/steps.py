"""Steps in a series of values over commits: where the level changed, and by how much.

Computes: for a noise-free series, every place where the value differs from the one before. For a series with noise, the
change points of the median of the logarithms, by the PELT algorithm. Its cost is the sum of absolute differences from
the median of a segment, because times between runs have outliers. The penalty is ``PENALTY · σ · ln n``; σ is estimated
from the differences of neighbours, which contain few steps. A change point is a step if the medians on its two sides
differ by at least ``min_effect``.

Requires: ruptures, for series with noise. Guarantees: equal series give equal steps. A segment of a series with noise
has at least `FEWEST` values, so that a single outlier is no step; a step is therefore found `FEWEST` results later.
Refuses: `StepsMissing` without ruptures; `ValueError` for values of a series with noise that are not positive.
Reference: Killick, Fearnhead and Eckley, Optimal detection of changepoints with a linear computational cost, 2012.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["FEWEST", "PENALTY", "Step", "StepsMissing", "exact_steps", "noisy_steps"]

#: The least number of values between two steps of a series with noise.
FEWEST = 3

#: The factor of the penalty. docs/experiments/history.md has the steps found and the false alarms for several factors.
PENALTY = 4.0

#: The least σ of the logarithms. A series of a few equal values says nothing about its noise.
_LEAST_SIGMA = 1e-4


class StepsMissing(Exception):
    """ruptures is not installed."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"steps of values with noise need ruptures: {reason}\n"
            "install it with: python -m pip install 'ptxmotion[history]'"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """``index`` is the first value of the new level; ``before`` and ``after`` are the levels."""

    index: int
    before: float
    after: float


def exact_steps(values: Sequence[float]) -> list[Step]:
    """Every change of a noise-free series.

    >>> exact_steps([7, 7, 8, 8])
    [Step(index=2, before=7, after=8)]
    """
    return [Step(i, values[i - 1], values[i]) for i in range(1, len(values)) if values[i] != values[i - 1]]


def noisy_steps(values: Sequence[float], min_effect: float = 0.01, penalty: float = PENALTY) -> list[Step]:
    """The steps of a series with noise, of at least ``min_effect`` (0.01 is 1 %). Raises `StepsMissing`."""
    if any(not (value > 0 and math.isfinite(value)) for value in values):
        raise ValueError("a series with noise has positive, finite values")
    if len(values) < 2 * FEWEST:
        return []
    ruptures, numpy = _libraries()
    logs = numpy.log(numpy.asarray(values, float))
    sigma = _sigma(logs.tolist())
    found = ruptures.Pelt(model="l1", min_size=FEWEST, jump=1).fit(logs.reshape(-1, 1))
    ends: list[int] = found.predict(pen=penalty * sigma * math.log(len(values)))
    starts = [0, *ends[:-1]]
    levels = [median(values[start:end]) for start, end in zip(starts, ends, strict=True)]
    steps = [Step(starts[i], levels[i - 1], levels[i]) for i in range(1, len(starts))]
    return [each for each in steps if abs(math.log(each.after / each.before)) >= math.log1p(min_effect)]


def _sigma(logs: Sequence[float]) -> float:
    """The standard deviation of the noise: from the median of the absolute differences of neighbours.

    For independent normal noise, a difference has √2 of its standard deviation, and its median is 0.6745 of that.
    """
    differences = [abs(logs[i] - logs[i - 1]) for i in range(1, len(logs))]
    return max(median(differences) / (0.6745 * math.sqrt(2)), _LEAST_SIGMA)


def _libraries() -> tuple[Any, Any]:
    try:
        return importlib.import_module("ruptures"), importlib.import_module("numpy")
    except ImportError as error:
        raise StepsMissing(str(error)) from error
