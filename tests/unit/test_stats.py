"""The verdict rule: rates of false positives and false negatives in simulations with drift and clock steps."""

import math

import numpy as np
import pytest
from fake_backend import FakeStopwatch, Weather
from ptxmotion.harness.protocol import Plan, time_arms
from ptxmotion.harness.stats import (
    DEFAULT_RULE,
    Rule,
    Verdict,
    bootstrap_interval,
    estimate,
    keep_rounds,
    log_ratios,
    summarize,
)

#: The same interval with fewer resamples: a simulation draws thousands of them.
QUICK = Rule(resamples=1000)
STORMY = Weather(noise=0.01, tail=0.02, drift=0.05, step_seconds=0.2, steps=(1.0, 0.97, 0.9))


def rounds(seconds: float, spread: float = 0.001, n: int = 30, seed: int = 0) -> np.ndarray:
    return seconds * np.exp(np.random.default_rng(seed).normal(0, spread, (n, 10)))


def judge(base: float, candidate: float, spread: float = 0.001, rule: Rule = DEFAULT_RULE) -> Verdict:
    return estimate(rounds(base, spread, seed=1), rounds(candidate, spread, seed=2), [True] * 30, rule).verdict


def test_verdicts_by_where_the_interval_lies() -> None:
    assert judge(1e-3, 0.98e-3) is Verdict.FASTER
    assert judge(1e-3, 1.02e-3) is Verdict.SLOWER
    assert judge(1e-3, 1.003e-3) is Verdict.SAME
    assert judge(1e-3, 1.0101e-3, spread=0.01) is Verdict.INCONCLUSIVE
    assert judge(1e-3, 0.98e-3, rule=Rule(min_effect=0.05)) is Verdict.SAME


def test_differences_below_the_resolution_are_ignored() -> None:
    """0.2 µs is the resolution. So for a time of 2 µs, δ is 10 %."""
    assert math.isclose(DEFAULT_RULE.delta(2e-6), 0.1)
    assert judge(2e-6, 1.9e-6) is Verdict.SAME
    assert judge(2e-6, 1.7e-6) is Verdict.FASTER


def test_ratios_are_of_medians_by_round() -> None:
    base = [[1.0, 2.0, 100.0], [4.0, 4.0, 4.0]]
    assert np.allclose(log_ratios(base, [[1.0, 1.0, 50.0], [1.0, 4.0, 2.0]]), math.log(2))


def test_interval_resamples_rounds_not_samples() -> None:
    """Thirty equal samples in each of a few rounds give the same interval as one sample in each."""
    ratios = np.random.default_rng(0).normal(0, 0.05, 12)
    low, high = bootstrap_interval(ratios)
    many = np.exp(np.repeat(ratios[:, None], 1000, axis=1))
    found = estimate(many, np.ones_like(many), [True] * 12)
    assert np.allclose((found.low, found.high), np.exp([low, high]))
    assert low < np.median(ratios) < high


def test_the_interval_has_the_stated_coverage() -> None:
    """99 % of the intervals should contain the true median. The percentile interval of 30 rounds is close to that."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        low, high = bootstrap_interval(generator.normal(0.0, 0.02, 30), QUICK)
        held += low <= 0.0 <= high
    assert held >= 388


def test_rounds_with_clocks_apart_are_dropped_for_all_arms() -> None:
    clocks = [[2e9, 2e9], [2e9, 1.9e9], [1.9e9, 1.9e9], [2e9, math.nan], [2e9, 1.97e9]]
    assert keep_rounds(clocks).tolist() == [True, False, True, False, True]
    base, candidate = np.ones((10, 2)), np.ones((10, 2))
    candidate[:2] = 9.0
    found = estimate(base, candidate, [False, False, *[True] * 8])
    assert (found.verdict, found.rounds, found.rounds_dropped) == (Verdict.SAME, 8, 2)
    assert estimate(base, candidate, [False] * 3 + [True] * 7).verdict is Verdict.INVALID
    assert estimate(base, candidate, [False] * 10).verdict is Verdict.INVALID


@pytest.mark.parametrize("bad", [[[0.0, 1.0]], [[math.nan]], [[-1.0]], [[math.inf]], [[]]])
def test_what_is_no_time_is_refused(bad: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="seconds"):
        estimate(bad, [[1.0]], [True])
    with pytest.raises(ValueError, match="rounds"):
        estimate([[1.0]], [[1.0], [1.0]], [True])


def test_the_summary_of_samples() -> None:
    found = summarize([[1.0, 2.0], [3.0, 4.0]])
    assert (found.min, found.q1, found.median, found.q3, found.max, found.rounds) == (1.0, 1.75, 2.5, 3.25, 4.0, 4)
    assert found.iqr == 1.5
    assert found.mean == 2.5
    assert math.isclose(found.stddev, math.sqrt(5 / 3))


def simulate(effect: float, runs: int, weather: Weather = STORMY) -> list[Verdict]:
    plan = Plan(rule=QUICK, warm_up_seconds=0.0)
    found: list[Verdict] = []
    for seed in range(runs):
        watch = FakeStopwatch([100e-6, 100e-6 / effect], weather, seed=seed)
        found.append(time_arms(watch, 2, [(0, 1)], plan)[1][0].verdict)
    return found


def test_a_few_equal_and_unequal_pairs_in_a_storm() -> None:
    assert {Verdict.FASTER, Verdict.SLOWER}.isdisjoint(simulate(1.0, 20))
    assert set(simulate(1.03, 20)) == {Verdict.FASTER}
    assert set(simulate(1 / 1.03, 20)) == {Verdict.SLOWER}


@pytest.mark.slow
def test_no_equal_pair_of_600_is_flagged_and_every_two_percent_is_found() -> None:
    equal = simulate(1.0, 600)
    assert equal.count(Verdict.FASTER) + equal.count(Verdict.SLOWER) == 0
    assert equal.count(Verdict.SAME) >= 590
    assert simulate(1.02, 200) == [Verdict.FASTER] * 200
    assert simulate(1 / 1.02, 200) == [Verdict.SLOWER] * 200


def test_runs_that_are_not_interleaved_would_mislead() -> None:
    """The same samples, measured for one arm after the other, show differences that do not exist."""
    claimed = 0
    for seed in range(20):
        watch = FakeStopwatch([100e-6, 100e-6], Weather(drift=0.05, period=0.3), seed=seed)
        base, candidate = ([list(watch.measure(arm, 10).seconds) for _ in range(30)] for arm in (0, 1))
        claimed += estimate(base, candidate, [True] * 30, QUICK).verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert claimed >= 5
