"""Which of two arms is faster, with a confidence interval.

Computes, from the samples of interleaved rounds: one log ratio per round, r = ln(median(base) / median(candidate));
the speedup exp(median r); a percentile bootstrap interval over rounds; the verdict with δ = max(1 %, 0.2 µs / base).

Requires: rounds in which all arms ran within a short time, so that drift and clock steps affect all arms of a round
equally. Samples inside one round are not independent; therefore rounds are resampled, never samples.
Guarantees: the same samples give the same interval and verdict (the resampling is seeded), so that a verdict can be
checked from a result file.
Refuses: `ValueError` for samples that are not positive and finite, and for arms with different numbers of rounds.
Reference: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.3 (percentile interval).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from .results import Stats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DEFAULT_RULE",
    "Estimate",
    "Rule",
    "Verdict",
    "bootstrap_interval",
    "estimate",
    "keep_rounds",
    "log_ratios",
    "summarize",
]


class Verdict(StrEnum):
    """The result of a comparison."""

    IDENTICAL = "IDENTICAL"  # the same machine code: not timed
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"  # the clocks changed too much, or the machine failed
    MISMATCH = "MISMATCH"  # the candidate computes other outputs
    BETTER = "BETTER"  # not timed: no noise-free figure is worse, and one is better
    WORSE = "WORSE"  # not timed: a noise-free figure is worse
    EQUAL = "EQUAL"  # not timed: the noise-free figures do not differ
    UNTIMED = "UNTIMED"  # correct, but neither timed nor counted


@dataclass(frozen=True, slots=True)
class Rule:
    """The constants of the verdict: δ (``min_effect`` as a fraction, ``resolution`` in seconds), the ``level`` of the
    interval, the number of ``resamples`` and their ``seed``, and limits for the clocks as fractions."""

    min_effect: float = 0.01
    resolution: float = 0.2e-6
    level: float = 0.99
    resamples: int = 10_000
    clock_tolerance: float = 0.02
    max_dropped: float = 0.20
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < 1 or not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(f"invalid rule: {self}")

    def delta(self, base_seconds: float) -> float:
        """δ, in units of the log ratio, for a baseline that takes ``base_seconds``."""
        return max(self.min_effect, self.resolution / base_seconds)


DEFAULT_RULE = Rule()


@dataclass(frozen=True, slots=True)
class Estimate:
    """``speedup`` > 1: the candidate is faster. ``low`` and ``high`` are its interval; ``delta`` is δ."""

    speedup: float
    low: float
    high: float
    delta: float
    rounds: int
    rounds_dropped: int
    verdict: Verdict
    reason: str


def log_ratios(base: ArrayLike, candidate: ArrayLike) -> NDArray[np.float64]:
    """ln(median(base) / median(candidate)) of each round; both are rounds × samples, in seconds. Raises `ValueError` if
    the numbers of rounds differ.

    >>> log_ratios([[2.0, 2.0]], [[1.0, 1.0]]).round(3).tolist()
    [0.693]
    """
    left, right = _samples(base), _samples(candidate)
    if left.shape[0] != right.shape[0]:
        raise ValueError(f"{left.shape[0]} rounds of the baseline and {right.shape[0]} of the candidate")
    return np.log(np.median(left, axis=1) / np.median(right, axis=1))


def bootstrap_interval(ratios: ArrayLike, rule: Rule = DEFAULT_RULE) -> tuple[float, float]:
    """The percentile interval of the median of ``ratios``, resampled over rounds. Raises `ValueError` without a ratio.

    >>> bootstrap_interval([0.5] * 30)
    (0.5, 0.5)
    """
    values = np.asarray(ratios, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError("an interval needs one ratio for each of at least one round")
    generator = np.random.default_rng(rule.seed)
    picks = generator.integers(0, values.size, (rule.resamples, values.size))
    medians = _medians(values, picks)
    low, high = np.quantile(medians, [(1 - rule.level) / 2, (1 + rule.level) / 2])
    return float(low), float(high)


def _medians(values: NDArray[np.float64], picks: NDArray[np.int64]) -> NDArray[np.float64]:
    """``np.median(values[picks], axis=1)``. Small integers are sorted several times faster than numbers, so ranks of
    the values are sorted."""
    order = np.argsort(values)
    ranks = np.empty(values.size, np.uint8 if values.size <= 256 else np.int64)
    ranks[order] = np.arange(values.size)
    resampled = np.sort(ranks[picks], axis=1, kind="stable")
    ordered = values[order]
    return (ordered[resampled[:, (values.size - 1) // 2]] + ordered[resampled[:, values.size // 2]]) / 2


def keep_rounds(clocks: ArrayLike, rule: Rule = DEFAULT_RULE) -> NDArray[np.bool_]:
    """Which rounds count: those whose arms ran at SM clocks no more than ``rule.clock_tolerance`` apart.

    ``clocks`` is rounds × arms in Hz; NaN is an unknown clock, and its round does not count.

    >>> keep_rounds([[1.98e9, 1.97e9], [1.98e9, 1.5e9]]).tolist()
    [True, False]
    """
    hertz = np.asarray(clocks, np.float64)
    lowest, highest = hertz.min(axis=1), hertz.max(axis=1)
    return np.isfinite(lowest) & (lowest > 0) & (highest <= lowest * (1 + rule.clock_tolerance))


def estimate(base: ArrayLike, candidate: ArrayLike, keep: Sequence[bool], rule: Rule = DEFAULT_RULE) -> Estimate:
    """Compare two arms of the same rounds; both are rounds × samples, in seconds per run of the work.

    ``keep`` says which rounds count (`keep_rounds`). If more than ``rule.max_dropped`` of the rounds are dropped,
    the verdict is `INVALID`. Raises `ValueError` if the numbers of rounds differ.
    """
    kept = np.asarray(keep, np.bool_)
    left, right = _samples(base), _samples(candidate)
    if kept.shape != (left.shape[0],) or left.shape[0] != right.shape[0]:
        raise ValueError("baseline, candidate and keep differ in their rounds")
    dropped = int((~kept).sum())
    if not kept.any():
        return Estimate(math.nan, math.nan, math.nan, math.nan, 0, dropped, Verdict.INVALID, "every round was dropped")
    left, right = left[kept], right[kept]
    ratios = log_ratios(left, right)
    low, high = bootstrap_interval(ratios, rule)
    delta = rule.delta(float(np.median(np.median(left, axis=1))))
    if dropped > rule.max_dropped * kept.size:
        verdict = Verdict.INVALID
        reason = f"{dropped} of {kept.size} rounds dropped: SM clocks of the arms differed by more than "
        reason += f"{rule.clock_tolerance:.0%}"
    else:
        verdict = _verdict(low, high, delta)
        reason = _reason(verdict, delta, rule)
    speedup, low, high = (math.exp(value) for value in (float(np.median(ratios)), low, high))
    return Estimate(speedup, low, high, delta, int(kept.sum()), dropped, verdict, reason)


def _verdict(low: float, high: float, delta: float) -> Verdict:
    if low > delta:
        return Verdict.FASTER
    if high < -delta:
        return Verdict.SLOWER
    return Verdict.SAME if -delta < low and high < delta else Verdict.INCONCLUSIVE


def _reason(verdict: Verdict, delta: float, rule: Rule) -> str:
    where = {
        Verdict.FASTER: "above",
        Verdict.SLOWER: "below minus",
        Verdict.SAME: "within plus and minus",
        Verdict.INCONCLUSIVE: "neither inside nor outside of",
    }[verdict]
    return f"{rule.level:.0%} interval {where} {delta:.2%}"


def summarize(samples: ArrayLike) -> Stats:
    """The statistics of all samples of one arm, in seconds. The quartiles are those of NumPy (linear interpolation).

    >>> summarize([[1.0, 3.0]]).median
    2.0
    """
    values = _samples(samples).ravel()
    low, q1, median, q3, high = (float(v) for v in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Stats(low, q1, median, q3, q3 - q1, float(values.mean()), deviation, high, int(values.size))


def _samples(values: Any) -> NDArray[np.float64]:
    array = np.atleast_2d(np.asarray(values, np.float64))
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError("samples are rounds of one or more positive, finite seconds")
    return array
