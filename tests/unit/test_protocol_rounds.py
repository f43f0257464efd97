"""Rounds are interleaved and shuffled, doubled while there is no verdict, and dropped if the clocks differ."""

from collections import Counter

import pytest
from fake_backend import FakeStopwatch, Weather
from ptxmotion.harness.protocol import Block, Plan, time_arms
from ptxmotion.harness.stats import Rule, Verdict

QUICK = Rule(resamples=500)


class Watched(FakeStopwatch):
    """A stopwatch that records the order of the measurements."""

    def measure(self, arm: int, samples: int, /) -> Block:
        self.order: list[int] = getattr(self, "order", [])
        self.order.append(arm)
        return super().measure(arm, samples)


def test_each_round_has_every_arm_once_in_an_order_of_its_own() -> None:
    watch = Watched([1e-4] * 4, Weather(noise=0.001))
    rounds, _ = time_arms(watch, 4, [(0, 1)], Plan(rounds=40, rule=QUICK))
    orders = [tuple(watch.order[i : i + 4]) for i in range(0, 160, 4)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len(set(orders)) > 12
    assert max(Counter(order[0] for order in orders).values()) < 22
    assert [len(each) for each in rounds.seconds] == [40] * 4
    assert all(len(block) == 10 for each in rounds.seconds for block in each)


def test_the_order_of_samples_does_not_leak_into_the_columns() -> None:
    watch = FakeStopwatch([1e-4, 2e-4, 3e-4], Weather(noise=0.001, tail=0.0))
    rounds, found = time_arms(watch, 3, [(0, 1), (0, 2)], Plan(rounds=10, rule=QUICK))
    for arm, truth in enumerate((1e-4, 2e-4, 3e-4)):
        assert all(abs(s / truth - 1) < 0.02 for block in rounds.seconds[arm] for s in block)
    assert [each.verdict for each in found] == [Verdict.SLOWER] * 2


def test_rounds_double_at_most_twice_and_only_while_undecided() -> None:
    progress: list[tuple[int, int]] = []
    noisy = FakeStopwatch([1e-4, 1e-4 / 1.01], Weather(noise=0.05), seed=1)
    plan = Plan(rounds=10, rule=QUICK)
    rounds, found = time_arms(noisy, 2, [(0, 1)], plan, lambda done, of: progress.append((done, of)))
    assert found[0].verdict is Verdict.INCONCLUSIVE
    assert len(rounds.clocks) == 40
    assert {of for _, of in progress} == {10, 20, 40}
    calm = FakeStopwatch([1e-4, 1e-4], Weather(noise=0.001))
    assert len(time_arms(calm, 2, [(0, 1)], Plan(rounds=10, rule=QUICK))[0].clocks) == 10


def test_throttling_drops_rounds_and_too_much_of_it_decides_nothing() -> None:
    rare = Weather(noise=0.003, step_seconds=0.02, steps=(1.0, 0.85))
    plan = Plan(rounds=60, rule=QUICK)
    rounds, found = time_arms(FakeStopwatch([1e-4, 1e-4], rare, seed=2), 2, [(0, 1)], plan)
    dropped = rounds.kept(QUICK).count(False)
    assert 0 < dropped <= 12
    assert (found[0].verdict, found[0].rounds_dropped) == (Verdict.SAME, dropped)
    often = Weather(noise=0.003, step_seconds=0.001, steps=(1.0, 0.85))
    _, found = time_arms(FakeStopwatch([1e-4, 1e-4], often, seed=2), 2, [(0, 1)], plan)
    assert found[0].verdict is Verdict.INVALID
    assert "rounds dropped" in found[0].reason


def test_a_device_that_vanishes_is_the_callers_to_handle() -> None:
    with pytest.raises(OSError, match="gone"):
        time_arms(FakeStopwatch([1e-4, 1e-4], vanish_after=7), 2, [(0, 1)], Plan(rule=QUICK))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"samples": 0}, {"doublings": -1}, {"seeds": ()}])
def test_plans_that_measure_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="invalid plan"):
        Plan(**wrong)  # pyright: ignore[reportArgumentType]
